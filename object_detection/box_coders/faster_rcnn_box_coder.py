"""The box coder of Faster R-CNN (https://arxiv.org/abs/1506.01497, eq. 2)."""

import tensorflow as tf

from object_detection.core import boxes as box_ops
from object_detection.errors import UserError

# Keeps the codes of padding rows (boxes of zero size) finite.
EPSILON = 1e-8


class FasterRcnnBoxCoder:
    """Encodes a box as its offset from an anchor: [ty, tx, th, tw].

        ty = (y - ya) / ha * scale_y        th = log(h / ha) * scale_h
        tx = (x - xa) / wa * scale_x        tw = log(w / wa) * scale_w

    where (y, x, h, w) is the centre and size of the box and (ya, xa, ha, wa) those of the anchor.
    Boxes and anchors may be in any common coordinate frame; the codes do not depend on it.

    Args:
      scale_factors: (scale_y, scale_x, scale_h, scale_w), all positive.
    """

    code_size = 4

    def __init__(self, scale_factors: tuple[float, float, float, float] = (10.0, 10.0, 5.0, 5.0)):
        if min(scale_factors) <= 0:
            raise UserError(
                f'FasterRcnnBoxCoder: scale_factors must be positive. Received: {scale_factors}.'
            )
        self._scale_factors = scale_factors

    def encode(self, boxes: tf.Tensor, anchors: tf.Tensor) -> tf.Tensor:
        """Returns the codes of `boxes` relative to `anchors`.

        Args:
          boxes: float32 [..., N, 4].
          anchors: float32 [..., N, 4]; leading dimensions broadcast.

        Returns:
          float32 [..., N, 4], rows [ty, tx, th, tw].
        """
        center, size = _center_and_size(boxes)
        anchor_center, anchor_size = _center_and_size(anchors)
        anchor_size += EPSILON
        shift = (center - anchor_center) / anchor_size
        scale = tf.math.log((size + EPSILON) / anchor_size)
        return tf.concat([shift, scale], axis=-1) * self._scale_factors

    def decode(self, codes: tf.Tensor, anchors: tf.Tensor) -> tf.Tensor:
        """Returns the boxes that `encode` maps to `codes`, in the same shapes and not clipped."""
        anchor_center, anchor_size = _center_and_size(anchors)
        shift, scale = tf.split(codes / self._scale_factors, 2, axis=-1)
        center = anchor_center + shift * anchor_size
        return box_ops.corners(center, anchor_size * tf.exp(scale))


def _center_and_size(boxes: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the centres (y, x) and sizes (h, w), each [..., 2], of boxes [..., 4]."""
    center, size = tf.split(box_ops.corners_to_center_size(boxes), 2, axis=-1)
    return center, size
