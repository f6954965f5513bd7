"""Exports of trained detectors.

The package itself can be called: `object_detection.export(...)` is `tasks.exporting.export`.
"""

import inspect
import sys
import types
from typing import Any

from object_detection import registry


class _Package(types.ModuleType):
    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Writes a model that runs without its checkpoint; see `tasks.exporting.export`."""
        return _function()(*arguments, **options)

    @property
    def __signature__(self) -> inspect.Signature:
        """What completion shows."""
        return inspect.signature(_function())


def _function() -> Any:
    # By name: the layer of tasks is above this one.
    return registry.load('object_detection.tasks.exporting:export')


# Python would otherwise put the package in place of a function of the same name.
sys.modules[__name__].__class__ = _Package
