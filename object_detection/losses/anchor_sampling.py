"""The choice of the unmatched anchors to train on: at random, or by weights in place of it."""

import dataclasses
import enum

import tensorflow as tf

from object_detection.core.sampling import sample_balanced, sampling_noise
from object_detection.core.shapes import dimensions
from object_detection.errors import expected


class RandomExampleSampler:
    """Chooses all matched anchors, and as many unmatched ones as a share of positives leaves.

    Args:
      positive_fraction: f, share of matched anchors, in (0, 1]; there are (1 / f - 1) unmatched
        anchors for each matched one, none in images without objects.

    Raises:
      ValueError: if `positive_fraction` is out of range.
    """

    def __init__(self, positive_fraction: float):
        if not 0.0 < positive_fraction <= 1.0:
            raise expected(
                'RandomExampleSampler', '0 < positive_sample_fraction <= 1', positive_fraction
            )
        self._positive_fraction = positive_fraction

    def __call__(
        self, candidates: tf.Tensor, positives: tf.Tensor, seeds: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Marks the anchors to train on.

        Args:
          candidates: bool [B, N], anchors with a class weight other than 0.
          positives: bool [B, N], anchors with a class other than background.
          seeds: int32 [B, 2], a seed for each image; None draws from the global generator.

        Returns:
          bool [B, N].
        """
        batch, size = dimensions(candidates, 0, 1)
        noise = sampling_noise(seeds, size, batch_size=batch)
        return sample_balanced(candidates, positives, None, self._positive_fraction, noise)


class Expectation(enum.Enum):
    """What the weight of an unmatched anchor is; see `ExpectedLossWeights`."""

    SAMPLING = enum.auto()
    REWEIGHTING = enum.auto()


@dataclasses.dataclass(frozen=True)
class ExpectedLossWeights:
    """Weights of both outcomes of an anchor, in place of sampling unmatched anchors.

    An anchor is an object with a probability p. Its expected loss is p times the loss of its label
    plus b (1 - p) times the loss of background. With n anchors, sum P of the probabilities of an
    image, ratio K and fewest negatives m:

        SAMPLING:     b_i = min(1, max(K P_i, m) / (n - P_i)), with P_i = P - p_i. This is the
                      probability that sampling chooses anchor i, if it is a negative.
        REWEIGHTING:  b = max(K P, m) / (n - P), the same for all anchors of an image; the weights
                      of unmatched anchors then sum to K times those of matched ones.

    The reference has these options in its schema only: it cannot build them.

    Attributes:
      kind: the formula of b.
      negatives_per_positive: K, not negative.
      min_negatives: m, not negative.

    Raises:
      ValueError: if a number is negative.
    """

    kind: Expectation
    negatives_per_positive: float = 3.0
    min_negatives: float = 0.0

    def __post_init__(self):
        for name, value in (
            ('desired_negative_sampling_ratio', self.negatives_per_positive),
            ('min_num_negative_samples', self.min_negatives),
        ):
            if value < 0:
                raise expected('ExpectedLossWeights', f'{name} of 0 or more', value)

    def __call__(
        self, probabilities: tf.Tensor, candidates: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the weights p and b (1 - p), each float32 of the shape of `probabilities`.

        Args:
          probabilities: float32 [B, N], p of each anchor, such as 1 - the target of background; or
            [B, N, C], targets of independent classes, each of which then counts as an anchor.
          candidates: bool [B, N] or [B, N, C]; other anchors do not count, and have weight 0. None
            means that all count.
        """
        counted = tf.ones_like(probabilities)
        if candidates is not None:
            counted *= tf.cast(candidates, probabilities.dtype)
        positives = probabilities * counted
        axes = list(range(1, probabilities.shape.rank))
        others = tf.reduce_sum(positives, axes, keepdims=True)
        if self.kind is Expectation.SAMPLING:
            others -= positives
        negatives = tf.reduce_sum(counted, axes, keepdims=True) - others
        wanted = tf.maximum(self.negatives_per_positive * others, self.min_negatives)
        share = tf.math.divide_no_nan(wanted, negatives)
        if self.kind is Expectation.SAMPLING:
            share = tf.minimum(share, 1.0)
        return positives, share * (counted - positives)
