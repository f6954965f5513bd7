"""Box coders: boxes relative to anchors, as numbers that a network learns.

That of Faster R-CNN (https://arxiv.org/abs/1506.01497, eq. 2), one for square boxes, such as faces,
one that also encodes an object's keypoints, one of the differences of corners, and that of FCOS
(https://arxiv.org/abs/1904.01355), of the distances of the sides.
"""

import tensorflow as tf

from object_detection.core import boxes as box_ops
from object_detection.errors import UserError, expected

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
      max_log_size: `decode` takes larger log(h / ha) and log(w / wa) for it; None: no limit.
    """

    code_size = 4

    def __init__(
        self,
        scale_factors: tuple[float, float, float, float] = (10.0, 10.0, 5.0, 5.0),
        max_log_size: float | None = None,
    ):
        if min(scale_factors) <= 0:
            raise expected(type(self).__name__, 'scale_factors above 0', scale_factors)
        self._scale_factors = scale_factors
        self._max_log_size = max_log_size

    def encode(self, boxes: tf.Tensor, anchors: tf.Tensor) -> tf.Tensor:
        """Returns the codes of `boxes` relative to `anchors`.

        Args:
          boxes: float32 [..., N, 4].
          anchors: float32 [..., N, 4]; leading dimensions broadcast.

        Returns:
          float32 [..., N, 4], rows [ty, tx, th, tw].
        """
        center, size = self._measure(boxes)
        anchor_center, anchor_size = self._measure(anchors)
        anchor_size += EPSILON
        shift = (center - anchor_center) / anchor_size
        scale = tf.math.log((size + EPSILON) / anchor_size)
        return tf.concat([shift, scale], axis=-1) * self._scale_factors

    def decode(self, codes: tf.Tensor, anchors: tf.Tensor) -> tf.Tensor:
        """Returns the boxes that `encode` maps to `codes`, in the same shapes and not clipped."""
        anchor_center, anchor_size = self._measure(anchors)
        shift, scale = tf.split(codes / self._scale_factors, 2, axis=-1)
        if self._max_log_size is not None:
            scale = tf.minimum(scale, self._max_log_size)
        center = anchor_center + shift * anchor_size
        return box_ops.corners(center, anchor_size * tf.exp(scale))

    @staticmethod
    def _measure(boxes: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the centres (y, x) and sizes (h, w), each [..., 2], of boxes [..., 4]."""
        center, size = tf.split(box_ops.corners_to_center_size(boxes), 2, axis=-1)
        return center, size


class SquareBoxCoder(FasterRcnnBoxCoder):
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
        super().__init__(scale_factors)

    def decode(self, codes: tf.Tensor, anchors: tf.Tensor) -> tf.Tensor:
        """Returns square boxes, float32 [..., N, 4], of codes [..., N, 3]."""
        anchor_center, anchor_length = self._measure(anchors)
        shift, scale = tf.split(codes / self._scale_factors, [2, 1], axis=-1)
        center = anchor_center + shift * anchor_length
        length = anchor_length * tf.exp(scale)
        return box_ops.center_size_to_corners(tf.concat([center, length, length], axis=-1))

    @staticmethod
    def _measure(boxes: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns centres (y, x) [..., 2] and square roots of areas [..., 1] of boxes [..., 4]."""
        center, size = tf.split(box_ops.corners_to_center_size(boxes), 2, axis=-1)
        return center, tf.sqrt(tf.reduce_prod(size, axis=-1, keepdims=True))


class KeypointBoxCoder:
    """Encodes a box as `FasterRcnnBoxCoder` does, and appends (ty, tx) of each keypoint.

    A keypoint (y, x) has ty = (y - ya) / ha * scale_y and tx = (x - xa) / wa * scale_x, as if it
    were a box's centre.

    Args:
      num_keypoints: number of keypoints of an object.
      scale_factors: (scale_y, scale_x, scale_h, scale_w), all positive.
    """

    def __init__(
        self,
        num_keypoints: int,
        scale_factors: tuple[float, float, float, float] = (10.0, 10.0, 5.0, 5.0),
    ):
        if num_keypoints < 0:
            raise expected('KeypointBoxCoder', 'num_keypoints of 0 or more', num_keypoints)
        self.num_keypoints = num_keypoints
        self.code_size = 4 + 2 * num_keypoints
        self._box_coder = FasterRcnnBoxCoder(scale_factors)
        self._keypoint_scale = scale_factors[:2]

    def encode(self, boxes: tf.Tensor, anchors: tf.Tensor, keypoints: tf.Tensor) -> tf.Tensor:
        """Returns the codes of boxes and keypoints relative to `anchors`.

        Args:
          boxes: float32 [..., N, 4].
          anchors: float32 [..., N, 4]; leading dimensions broadcast.
          keypoints: float32 [..., N, num_keypoints, 2], (y, x) in the frame of the boxes, with the
            leading dimensions of `boxes`.

        Returns:
          float32 [..., N, 4 + 2 * num_keypoints].
        """
        codes = self._box_coder.encode(boxes, anchors)
        center, size = _keypoint_frame(anchors)
        points = (keypoints - center) / (size + EPSILON) * self._keypoint_scale
        points = tf.reshape(points, tf.concat([tf.shape(codes)[:-1], [-1]], axis=0))
        return tf.concat([codes, points], axis=-1)

    def decode(self, codes: tf.Tensor, anchors: tf.Tensor) -> tf.Tensor:
        """Returns the boxes, float32 [..., N, 4], of codes [..., N, 4 + 2 * num_keypoints]."""
        return self._box_coder.decode(codes[..., :4], anchors)

    def decode_keypoints(self, codes: tf.Tensor, anchors: tf.Tensor) -> tf.Tensor:
        """Returns the keypoints, float32 [..., N, num_keypoints, 2], of codes; see `decode`."""
        center, size = _keypoint_frame(anchors)
        shape = tf.concat([tf.shape(codes)[:-1], [self.num_keypoints, 2]], axis=0)
        points = tf.reshape(codes[..., 4:], shape)
        return points / self._keypoint_scale * size + center


def _keypoint_frame(anchors: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the centres (y, x) and sizes (h, w), each [..., 1, 2], of anchors [..., 4]."""
    frame = box_ops.corners_to_center_size(anchors)[..., tf.newaxis, :]
    center, size = tf.split(frame, 2, axis=-1)
    return center, size


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


class DistanceBoxCoder:
    """Encodes a box by the distances of its sides from the centre of an anchor.

    A code is [top, left, bottom, right]. The unit of vertical distances is the height of the
    anchor, that of horizontal ones its width (FCOS, https://arxiv.org/abs/1904.01355, eq. 1). Codes
    are negative where the centre is outside the box.
    """

    code_size = 4

    def encode(self, boxes: tf.Tensor, anchors: tf.Tensor) -> tf.Tensor:
        """Returns the codes of `boxes` relative to `anchors`.

        Args:
          boxes: float32 [..., N, 4].
          anchors: float32 [..., N, 4]; leading dimensions broadcast.

        Returns:
          float32 [..., N, 4]; 0 of an anchor of no size.
        """
        center, size = tf.split(box_ops.corners_to_center_size(anchors), 2, axis=-1)
        low, high = tf.split(boxes, 2, axis=-1)
        distances = tf.concat([center - low, high - center], axis=-1)
        return tf.math.divide_no_nan(distances, tf.concat([size, size], axis=-1))

    def decode(self, codes: tf.Tensor, anchors: tf.Tensor) -> tf.Tensor:
        """Returns the boxes that `encode` maps to `codes`, in the same shapes and not clipped."""
        center, size = tf.split(box_ops.corners_to_center_size(anchors), 2, axis=-1)
        before, after = tf.split(codes, 2, axis=-1)
        return tf.concat([center - before * size, center + after * size], axis=-1)


def centerness(distances: tf.Tensor) -> tf.Tensor:
    """Returns how near a point is to the centre of its box (FCOS, eq. 3): 1 there, 0 at the sides.

    Args:
      distances: float32 [..., 4], of `DistanceBoxCoder`, not negative.

    Returns:
      float32 [...]; 0 for distances of 0.
    """
    before, after = tf.split(distances, 2, axis=-1)
    shares = tf.math.divide_no_nan(tf.minimum(before, after), tf.maximum(before, after))
    return tf.sqrt(tf.reduce_prod(shares, axis=-1))
