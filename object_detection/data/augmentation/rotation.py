"""Random turns by a quarter."""

import tensorflow as tf

from object_detection.core.fields import InputFields as F
from object_detection.data.augmentation.symmetry import Mappings, RandomSymmetry


def _turn_masks(masks: tf.Tensor) -> tf.Tensor:
    """Masks and mask crops [n, H, W] -> [n, W, H]: a turned box holds the turned crop."""
    return tf.reverse(tf.transpose(masks, [0, 2, 1]), [1])


def _turn_boxes(boxes: tf.Tensor) -> tf.Tensor:
    ymin, xmin, ymax, xmax = tf.unstack(boxes, axis=-1)
    return tf.stack([1.0 - xmax, ymin, 1.0 - xmin, ymax], axis=-1)


def _turn_points(points: tf.Tensor) -> tf.Tensor:
    y, x = tf.unstack(points, axis=-1)
    return tf.stack([1.0 - x, y], axis=-1)


_MAPPINGS: Mappings = {
    F.IMAGE: tf.image.rot90,
    F.GROUNDTRUTH_BOXES: _turn_boxes,
    F.GROUNDTRUTH_INSTANCE_MASKS: _turn_masks,
    F.GROUNDTRUTH_INSTANCE_MASK_CROPS: _turn_masks,
    F.GROUNDTRUTH_KEYPOINTS: _turn_points,
    F.GROUNDTRUTH_KEYPOINT_VISIBILITIES: tf.identity,
}


class RandomRotation90(RandomSymmetry):
    """Turns an image, and what belongs to it, by a quarter against the clock.

    Keypoints keep their places in the list where no permutation is given.
    """

    mappings = _MAPPINGS
    permutation_field = 'keypoint_rot_permutation'
    needs_permutation = False
