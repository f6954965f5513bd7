"""The number of channels of the images that new networks take."""

import contextlib
import contextvars
from collections.abc import Sequence
from typing import Any

from object_detection.core import scopes

RGB = 3
_current = contextvars.ContextVar('image_channels', default=RGB)


def current() -> int:
    """Returns the number of channels in the innermost `scope` of this thread; 3 outside of all."""
    return _current.get()


def scope(num_channels: int) -> contextlib.AbstractContextManager:
    """A scope in which new backbones take images of `num_channels`; as `precision.scope` works."""
    return scopes.scope(_current, num_channels)


def of_backbone(backbone: Any) -> int:
    """Returns the number of channels of the images that a network takes."""
    inputs = getattr(backbone, 'inputs', None)
    return inputs[0].shape[-1] if inputs else RGB


def of_channels(values: Sequence[float], num_channels: int) -> list[float]:
    """Returns one value for each channel, of values for red, green and blue.

    A grey image, and each channel after the first three, takes their mean. A single value is that
    of all channels, and as many values as there are channels stay as they are.
    """
    if len(values) in (1, num_channels):
        return [*values] * (num_channels // len(values))
    mean = sum(values) / RGB
    if num_channels < RGB:
        return [mean] * num_channels
    return [*values, *[mean] * (num_channels - RGB)]
