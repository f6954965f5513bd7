"""Adapts the first convolution of weights for RGB images to another number of channels."""

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from object_detection.weights.interfaces import Entry

_RGB = 3


def adapt(entries: Mapping[str, Entry], variables: Mapping[str, tf.Variable]) -> dict[str, Entry]:
    """Returns the entries of a file, with the kernel of the first convolution in a model's shape.

    For one channel, the kernel is the sum over red, green and blue: a grey image gives what it gave
    as three equal channels. For more than three channels, the kernel is zero for the channels after
    the first three: their values have no effect at first, and are learnt.

    Args:
      entries: entries of the file, by the model's names.
      variables: variables of the model, by name.
    """
    return {
        name: _with_channels(entry, tuple(variables[name].shape)) if name in variables else entry
        for name, entry in entries.items()
    }


def _with_channels(entry: Entry, shape: tuple[int, ...]) -> Entry:
    theirs = tuple(entry.shape)
    is_kernel = len(shape) == len(theirs) == 4 and theirs[2] == _RGB
    if not is_kernel or theirs[:2] != shape[:2] or theirs[3] != shape[3] or shape[2] == _RGB:
        return entry

    def read() -> np.ndarray:
        kernel = entry.read()
        if shape[2] < _RGB:
            return np.repeat(kernel.sum(axis=2, keepdims=True), shape[2], axis=2) / shape[2]
        missing = shape[2] - _RGB
        return np.pad(kernel, [(0, 0), (0, 0), (0, missing), (0, 0)])

    return entry._replace(shape=shape, read=read)
