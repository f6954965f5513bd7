"""A box coder for square boxes, such as faces."""

import tensorflow as tf

from object_detection.core import boxes as box_ops
from object_detection.errors import UserError

# Keeps the codes of padding rows (boxes of zero size) finite.
_EPSILON = 1e-8


class SquareBoxCoder:
    """Encodes a box by its centre and area only: [ty, tx, tl].

        ty = (y - ya) / la * scale_y        tl = log(l / la) * scale_l
        tx = (x - xa) / la * scale_x        l = sqrt(h * w), la = sqrt(ha * wa)

    where (y, x, h, w) is the centre and size of the box and (ya, xa, ha, wa) those of the anchor.
    Decoded boxes are square: encoding and decoding a box keeps its centre and area.

    Args:
      scale_factors: (scale_y, scale_x, scale_l), all positive.
    """

    code_size = 3

    def __init__(self, scale_factors: tuple[float, float, float] = (10.0, 10.0, 5.0)):
        if min(scale_factors) <= 0:
            raise UserError(
                f'SquareBoxCoder: scale_factors must be positive. Received: {scale_factors}.'
            )
        self._scale_factors = scale_factors

    def encode(self, boxes: tf.Tensor, anchors: tf.Tensor) -> tf.Tensor:
        """Returns the codes, float32 [..., N, 3], of boxes and anchors, both [..., N, 4]."""
        center, length = _center_and_length(boxes)
        anchor_center, anchor_length = _center_and_length(anchors)
        anchor_length += _EPSILON
        shift = (center - anchor_center) / anchor_length
        scale = tf.math.log((length + _EPSILON) / anchor_length)
        return tf.concat([shift, scale], axis=-1) * self._scale_factors

    def decode(self, codes: tf.Tensor, anchors: tf.Tensor) -> tf.Tensor:
        """Returns square boxes, float32 [..., N, 4], of codes [..., N, 3]."""
        anchor_center, anchor_length = _center_and_length(anchors)
        shift, scale = tf.split(codes / self._scale_factors, [2, 1], axis=-1)
        center = anchor_center + shift * anchor_length
        length = anchor_length * tf.exp(scale)
        return box_ops.center_size_to_corners(tf.concat([center, length, length], axis=-1))


def _center_and_length(boxes: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns centres (y, x) [..., 2] and square roots of areas [..., 1] of boxes [..., 4]."""
    center, size = tf.split(box_ops.corners_to_center_size(boxes), 2, axis=-1)
    return center, tf.sqrt(tf.reduce_prod(size, axis=-1, keepdims=True))
