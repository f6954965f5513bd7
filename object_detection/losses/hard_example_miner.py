"""Training on the examples with the greatest losses (https://arxiv.org/abs/1604.03540)."""

import tensorflow as tf

from object_detection.core.shapes import dimensions, smaller
from object_detection.core.suppression.nms import non_max_suppression
from object_detection.core.suppression.nms_tiles import NEVER, NmsSelection, eligible_scores
from object_detection.errors import UserError
from object_detection.targets.matchers import UNMATCHED


class HardExampleMiner:
    """Chooses the hardest examples of each image, without near duplicates.

    Hardness is a weighted sum of both losses. Examples are selected by non-maximum suppression: the
    hardest first, and none that overlaps a harder one. Then the number of unmatched examples may be
    limited to the hardest ones.

    Unlike in the reference, where it is never mined, a loss that is NaN counts as the hardest, so
    that it is noticed.

    Args:
      num_hard_examples: maximum number of examples per image; None sets no limit.
      iou_threshold: an example is left out if its IoU with a harder one is above this threshold.
      classification_weight, localization_weight: weights of the losses in the hardness.
      max_negatives_per_positive: maximum number of unmatched examples per matched one; None sets no
        limit.
      min_negatives_per_image: unmatched examples that this limit always allows.

    Raises:
      ValueError: if a number is out of range.
    """

    def __init__(
        self,
        *,
        num_hard_examples: int | None = 64,
        iou_threshold: float = 0.7,
        classification_weight: float = 1.0,
        localization_weight: float = 1.0,
        max_negatives_per_positive: float | None = None,
        min_negatives_per_image: int = 0,
    ):
        _check('num_hard_examples', num_hard_examples, 1)
        _check('max_negatives_per_positive', max_negatives_per_positive, 0)
        _check('min_negatives_per_image', min_negatives_per_image, 0)
        if not 0.0 <= iou_threshold <= 1.0:
            raise UserError(
                f'HardExampleMiner: iou_threshold must be in [0, 1]. Received: {iou_threshold}.'
            )
        self._num_hard_examples = num_hard_examples
        self._iou_threshold = iou_threshold
        self._classification_weight = classification_weight
        self._localization_weight = localization_weight
        self._max_negatives_per_positive = max_negatives_per_positive
        self._min_negatives_per_image = min_negatives_per_image

    def __call__(
        self,
        localization_losses: tf.Tensor,
        classification_losses: tf.Tensor,
        boxes: tf.Tensor,
        *,
        matches: tf.Tensor | None = None,
        num_valid: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Marks the examples to train on; no gradient flows through the choice.

        Args:
          localization_losses, classification_losses: float32 [B, N], N at least 1.
          boxes: float32 [B, N, 4], boxes of the examples, in any frame.
          matches: int32 [B, N], as `Targets.matches`; None does not limit unmatched examples.
          num_valid: int32 [B], number of examples without padding; None means all.

        Returns:
          bool [B, N].
        """
        hardness = tf.stop_gradient(
            self._classification_weight * classification_losses
            + self._localization_weight * localization_losses
        )
        hardness = tf.where(tf.math.is_nan(hardness), float('inf'), hardness)
        (size,) = dimensions(hardness, 1)
        if self._num_hard_examples is not None:
            size = smaller(size, self._num_hard_examples)
        if self._iou_threshold == 1.0:  # No IoU is above it.
            selection = _hardest(hardness, size, num_valid)
        else:
            selection = non_max_suppression(
                tf.stop_gradient(boxes),
                hardness,
                max_outputs=size,
                iou_threshold=self._iou_threshold,
                score_threshold=NEVER,
                num_valid=num_valid,
            )
        if self._max_negatives_per_positive is not None and matches is not None:
            selection = self._limit_negatives(selection, matches)
        return _marks(selection, tf.shape(hardness))

    def _limit_negatives(self, selection: NmsSelection, matches: tf.Tensor) -> NmsSelection:
        """Drops the easiest unmatched examples, and ignored ones easier than the first dropped."""
        matches = tf.gather(matches, selection.indices, batch_dims=1)
        is_positive = selection.is_valid & (matches >= 0)
        is_negative = selection.is_valid & (matches == UNMATCHED)
        num_positives = tf.reduce_sum(tf.cast(is_positive, tf.float32), axis=1)
        limit = tf.maximum(
            tf.cast(self._max_negatives_per_positive * num_positives, tf.int32),
            self._min_negatives_per_image,
        )
        rank = tf.cumsum(tf.cast(is_negative, tf.int32), axis=1)
        is_kept = is_positive | (rank <= limit[:, tf.newaxis])
        return selection._replace(is_valid=selection.is_valid & is_kept)


def _hardest(
    hardness: tf.Tensor, count: int | tf.Tensor, num_valid: tf.Tensor | None
) -> NmsSelection:
    """Selects the hardest of all examples, the first ones among equally hard ones."""
    scores, indices = tf.math.top_k(eligible_scores(hardness, NEVER, num_valid), count)
    is_valid = scores > NEVER
    return NmsSelection(tf.where(is_valid, indices, 0), is_valid)


def _marks(selection: NmsSelection, shape: tf.Tensor) -> tf.Tensor:
    """bool [B, N] = `shape`, True where selected."""
    images = tf.range(shape[0])[:, tf.newaxis] + tf.zeros_like(selection.indices)
    where = tf.stack([images, selection.indices], axis=-1)
    # Float32, since TensorFlow scatters int32 on the host. Padding adds zeros to the first example.
    return tf.scatter_nd(where, tf.cast(selection.is_valid, tf.float32), shape) > 0


def _check(name: str, value: float | None, lowest: int) -> None:
    if value is not None and value < lowest:
        raise UserError(f'HardExampleMiner: {name} must be at least {lowest}. Received: {value}.')
