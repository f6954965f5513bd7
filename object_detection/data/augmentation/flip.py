"""Random flips."""

import tensorflow as tf

from object_detection.core.fields import InputFields as F
from object_detection.data.objects import Example


class RandomHorizontalFlip:
    """Mirrors an image, and what belongs to it, left to right.

    Args:
      probability: of flipping, in [0, 1].
      keypoint_permutation: which keypoint takes the place of each (left eye <-> right eye); needed
        for examples with keypoints.

    Raises:
      ValueError: if the probability is not in [0, 1], or the permutation is none.
    """

    def __init__(self, *, probability: float = 0.5, keypoint_permutation: tuple[int, ...] = ()):
        if not 0.0 <= probability <= 1.0:
            raise ValueError(
                'RandomHorizontalFlip: probability must be between 0 and 1. '
                f'Received: {probability}.'
            )
        if sorted(keypoint_permutation) != list(range(len(keypoint_permutation))):
            raise ValueError(
                'RandomHorizontalFlip: keypoint_flip_permutation must hold every index from 0 on '
                f'once. Received: {tuple(keypoint_permutation)}.'
            )
        self._probability = probability
        self._permutation = tuple(keypoint_permutation)

    def __call__(self, example: Example, seed: tf.Tensor) -> Example:
        """Flips `example`, or not.

        Args:
          example: image [H, W, C]; boxes and keypoints normalized to it; mask crops relative to
            the boxes or full-size masks; those that are there.
          seed: integer [2]; tells alone whether to flip.

        Raises:
          ValueError: if there are keypoints, and not as many as the permutation has.
        """
        present = {name: example[name] for name in _FLIPS if name in example}
        if F.GROUNDTRUTH_KEYPOINTS in present:
            self._check_keypoints(present[F.GROUNDTRUTH_KEYPOINTS])

        def flip() -> Example:
            return {name: _FLIPS[name](value, self._permutation) for name, value in present.items()}

        do_flip = tf.random.stateless_uniform([], seed) < self._probability
        return {**example, **tf.cond(do_flip, flip, lambda: dict(present))}

    def _check_keypoints(self, keypoints: tf.Tensor) -> None:
        if keypoints.shape[1] != len(self._permutation):
            raise ValueError(
                'RandomHorizontalFlip: keypoint_flip_permutation needs one entry for each of the '
                f'{keypoints.shape[1]} keypoints. Received: {self._permutation}.'
            )


def _flip_columns(values: tf.Tensor, permutation: tuple[int, ...]) -> tf.Tensor:
    """Images [H, W, C], of which the last axis but one is x."""
    del permutation
    return tf.reverse(values, [-2])


def _flip_masks(masks: tf.Tensor, permutation: tuple[int, ...]) -> tf.Tensor:
    """Masks and mask crops [n, H, W]: a flipped box holds the flipped crop."""
    del permutation
    return tf.reverse(masks, [-1])


def _flip_boxes(boxes: tf.Tensor, permutation: tuple[int, ...]) -> tf.Tensor:
    del permutation
    ymin, xmin, ymax, xmax = tf.unstack(boxes, axis=-1)
    return tf.stack([ymin, 1.0 - xmax, ymax, 1.0 - xmin], axis=-1)


def _flip_keypoints(keypoints: tf.Tensor, permutation: tuple[int, ...]) -> tf.Tensor:
    y, x = tf.unstack(keypoints, axis=-1)
    return tf.gather(tf.stack([y, 1.0 - x], axis=-1), permutation, axis=1)


def _permute(values: tf.Tensor, permutation: tuple[int, ...]) -> tf.Tensor:
    return tf.gather(values, permutation, axis=1)


_FLIPS = {
    F.IMAGE: _flip_columns,
    F.GROUNDTRUTH_BOXES: _flip_boxes,
    F.GROUNDTRUTH_INSTANCE_MASKS: _flip_masks,
    F.GROUNDTRUTH_INSTANCE_MASK_CROPS: _flip_masks,
    F.GROUNDTRUTH_KEYPOINTS: _flip_keypoints,
    F.GROUNDTRUTH_KEYPOINT_VISIBILITIES: _permute,
}
