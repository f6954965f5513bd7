"""The names that scripts and notebooks for the TensorFlow Object Detection API import.

Each module has the name and each function the signature of the reference. They adapt functions of
the other packages, which new code calls directly; nothing in this toolkit imports them.
docs/migrating.md lists them.
"""

from collections.abc import Callable, Mapping
from typing import Any, NoReturn


def missing(module: str, replacements: Mapping[str, str]) -> Callable[[str], Any]:
    """Returns the `__getattr__` of a module that lacks names of the reference.

    Args:
      module: `__name__` of the module.
      replacements: name in the reference -> what to use here, the end of a sentence.
    """

    def getattr_of_module(name: str) -> NoReturn:
        if name in replacements:
            text = f'{module}.{name} of the reference does not exist here: {replacements[name]}.'
        else:
            text = f'module {module!r} has no attribute {name!r}; docs/migrating.md lists its names'
        raise AttributeError(text, name=name)

    return getattr_of_module
