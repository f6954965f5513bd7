"""Random flips."""

import tensorflow as tf

from object_detection.core.fields import InputFields as F
from object_detection.data.augmentation.symmetry import Mappings, RandomSymmetry


def _mappings(axis: int) -> Mappings:
    """Those of a flip along y (axis 0) or x (axis 1)."""

    def flip_image(image: tf.Tensor) -> tf.Tensor:
        return tf.reverse(image, [axis])

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
        F.IMAGE: flip_image,
        F.GROUNDTRUTH_BOXES: flip_boxes,
        F.GROUNDTRUTH_INSTANCE_MASKS: flip_masks,
        F.GROUNDTRUTH_INSTANCE_MASK_CROPS: flip_masks,
        F.GROUNDTRUTH_KEYPOINTS: flip_points,
        F.GROUNDTRUTH_KEYPOINT_VISIBILITIES: tf.identity,
    }


class RandomHorizontalFlip(RandomSymmetry):
    """Mirrors an image, and what belongs to it, left to right."""

    mappings = _mappings(axis=1)


class RandomVerticalFlip(RandomSymmetry):
    """Mirrors an image, and what belongs to it, top to bottom."""

    mappings = _mappings(axis=0)
