"""Random flips."""

import tensorflow as tf

from object_detection.core.example_fields import Geometry
from object_detection.data.augmentation.symmetry import MapTensor, RandomSymmetry


def _map_objects(axis: int) -> dict[Geometry, MapTensor]:
    """Returns, by geometry, the functions that flip fields along y (axis 0) or x (axis 1)."""

    def flip_masks(masks: tf.Tensor) -> tf.Tensor:
        # [n, H, W]; a flipped box holds the flipped crop.
        return tf.reverse(masks, [axis + 1])

    def flip_boxes(boxes: tf.Tensor) -> tf.Tensor:
        ymin, xmin, ymax, xmax = tf.unstack(boxes, axis=-1)
        if axis == 0:
            return tf.stack([1.0 - ymax, xmin, 1.0 - ymin, xmax], axis=-1)
        return tf.stack([ymin, 1.0 - xmax, ymax, 1.0 - xmin], axis=-1)

    def flip_points(points: tf.Tensor) -> tf.Tensor:
        y, x = tf.unstack(points, axis=-1)
        return tf.stack([1.0 - y, x] if axis == 0 else [y, 1.0 - x], axis=-1)

    return {
        Geometry.BOX: flip_boxes,
        Geometry.POINTS: flip_points,
        Geometry.IMAGE_MASK: flip_masks,
        Geometry.BOX_MASK: flip_masks,
    }


class RandomHorizontalFlip(RandomSymmetry):
    """Mirrors an image and its objects horizontally."""

    map_objects = _map_objects(axis=1)

    def map_image(self, image: tf.Tensor) -> tf.Tensor:
        return tf.reverse(image, [1])


class RandomVerticalFlip(RandomSymmetry):
    """Mirrors an image and its objects vertically."""

    map_objects = _map_objects(axis=0)

    def map_image(self, image: tf.Tensor) -> tf.Tensor:
        return tf.reverse(image, [0])
