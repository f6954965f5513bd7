"""Resizes images before the model's own resizer does."""

import tensorflow as tf

from object_detection.core.example_fields import Geometry, names_of
from object_detection.core.fields import InputFields as F
from object_detection.data.objects import Example
from object_detection.resizers.resizer import Resizer


class ResizeImage:
    """Resizes the image, and full-size masks by nearest neighbour.

    Boxes, keypoints and mask crops are normalized, so they do not change.

    Args:
      resizer: a resizer that does not pad, since padding would shift the boxes.
    """

    def __init__(self, resizer: Resizer):
        self._resizer = resizer

    def __call__(self, example: Example, seed: tf.Tensor) -> Example:
        """Resizes image [H, W, C] and masks [n, H, W] of `example`; `seed` is unused."""
        del seed
        image, _ = self._resizer(example[F.IMAGE])
        example = {**example, F.IMAGE: image}
        for name in names_of(Geometry.IMAGE_MASK):
            if name in example:
                example[name] = self._resizer.resize_masks(example[name])
        return example
