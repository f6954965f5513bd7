"""A box coder that also encodes an object's keypoints."""

import tensorflow as tf

from object_detection.box_coders.faster_rcnn_box_coder import EPSILON, FasterRcnnBoxCoder
from object_detection.core import boxes as box_ops
from object_detection.errors import UserError


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
            raise UserError(
                f'KeypointBoxCoder: num_keypoints must not be negative. Received: {num_keypoints}.'
            )
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
