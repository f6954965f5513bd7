"""How a user installs the optional requirements of this package."""

import importlib.metadata
import importlib.util
import shlex
from collections.abc import Iterable

from object_detection.errors import UserError, format_list


def install_command(extra: str) -> str:
    """Returns the command that installs the requirements of an extra, such as 'video'.

    It names the requirements and not this package, which no package index has: another package of
    its name there would be a stranger's.
    """
    try:
        requirements = importlib.metadata.requires('object-detection-toolkit') or []
    except importlib.metadata.PackageNotFoundError:  # a source tree that is not installed
        requirements = []
    parts = (each.partition(';') for each in requirements)
    names = [name.strip() for name, _, marker in parts if f'extra == "{extra}"' in marker]
    # A source tree may be newer than what is installed.
    return f'pip install {shlex.join(names or [f".[{extra}]"])}'


def check_packages(what: str, packages: Iterable[str], extra: str) -> None:
    """Checks that `what`, such as a command, finds the packages that an extra installs.

    Raises:
      UserError: unless all are installed; it names those that are missing, and the command.
    """
    missing = [each for each in packages if importlib.util.find_spec(each) is None]
    if missing:
        raise UserError(
            f'{what}: needs the Python package {format_list(missing)}, which is not installed: '
            f'{install_command(extra)}.'
        )
