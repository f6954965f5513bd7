"""The size of the images that new networks take, for those that are made for one size."""

import contextlib
import contextvars
from collections.abc import Sequence

from object_detection.core import scopes

Size = tuple[int, int]
_current: contextvars.ContextVar[Size | None] = contextvars.ContextVar('image_size', default=None)


def current() -> Size | None:
    """Returns height and width in pixels, without padding, of the innermost `scope`.

    None: images differ in size, or it is unknown.
    """
    return _current.get()


def scope(shape: Sequence[int] | None) -> contextlib.AbstractContextManager:
    """A scope in which new backbones take images of the `static_shape` of a resizer.

    It works as `precision.scope` does.
    """
    return scopes.scope(_current, shape and (shape[0], shape[1]))
