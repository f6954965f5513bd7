"""A box coder that encodes the differences of corners."""

import tensorflow as tf

from object_detection.errors import UserError


class MeanStddevBoxCoder:
    """Encodes a box as the offsets of its corners from those of an anchor, divided by `stddev`.

    Args:
      stddev: positive, in the unit of the coordinates of the boxes.
    """

    code_size = 4

    def __init__(self, stddev: float = 0.01):
        if stddev <= 0:
            raise UserError(f'MeanStddevBoxCoder: stddev must be positive. Received: {stddev}.')
        self._stddev = stddev

    def encode(self, boxes: tf.Tensor, anchors: tf.Tensor) -> tf.Tensor:
        """Returns the codes, float32 [..., N, 4], of boxes and anchors, both [..., N, 4]."""
        return (boxes - anchors) / self._stddev

    def decode(self, codes: tf.Tensor, anchors: tf.Tensor) -> tf.Tensor:
        """Returns the boxes that `encode` maps to `codes`, in the same shapes."""
        return codes * self._stddev + anchors
