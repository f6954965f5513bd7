"""Random rotations by 90 degrees."""

import tensorflow as tf

from object_detection.core.example_fields import Geometry
from object_detection.data.augmentation.symmetry import RandomSymmetry


def _turn_masks(masks: tf.Tensor) -> tf.Tensor:
    """Rotates masks or mask crops: [n, H, W] -> [n, W, H]."""
    return tf.reverse(tf.transpose(masks, [0, 2, 1]), [1])


def _turn_boxes(boxes: tf.Tensor) -> tf.Tensor:
    ymin, xmin, ymax, xmax = tf.unstack(boxes, axis=-1)
    return tf.stack([1.0 - xmax, ymin, 1.0 - xmin, ymax], axis=-1)


def _turn_points(points: tf.Tensor) -> tf.Tensor:
    y, x = tf.unstack(points, axis=-1)
    return tf.stack([1.0 - x, y], axis=-1)


_MAP_OBJECTS = {
    Geometry.BOX: _turn_boxes,
    Geometry.POINTS: _turn_points,
    Geometry.IMAGE_MASK: _turn_masks,
    Geometry.BOX_MASK: _turn_masks,
}


class RandomRotation90(RandomSymmetry):
    """Rotates an image and its objects counterclockwise by 90 degrees.

    Without a permutation, keypoints keep their order.
    """

    map_objects = _MAP_OBJECTS
    permutation_field = 'keypoint_rot_permutation'
    needs_permutation = False

    def map_image(self, image: tf.Tensor) -> tf.Tensor:
        return tf.image.rot90(image)
