"""Federated losses: in each image, of the classes without an object only a sample has losses.

Probabilistic two-stage detection (https://arxiv.org/abs/2103.07461), for data whose images were
searched for some of the classes only, such as LVIS.
"""

from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

from object_detection.core import sampling
from object_detection.core.fields import InputFields as F
from object_detection.core.groundtruth import Groundtruth
from object_detection.errors import expected
from object_detection.targets.targets import Targets

# Distinguishes the noise of the classes from that of the candidates.
_CLASS_SAMPLE = (1, 1)
# Keeps the keys of classes finite.
_SMALLEST_NOISE, _SMALLEST_WEIGHT = 2.0**-25, 1e-30


class FederatedClasses:
    """Removes the losses of classes that are not sampled, image by image.

    The classes of the objects have losses, and others so that there are `num_classes` in all; they
    are drawn without replacement, with probabilities that are proportional to
    (number of images) ** power.

    Args:
      num_classes: number of classes with losses in an image, if it does not have objects of more.
      power: exponent of the numbers of images.
      image_counts: returns 1-based id -> number of images with the class; it is called when a
        training is traced. Others are never drawn. None draws all classes equally.
      use_image_labels: whether the classes that are verified to be absent always have losses, and
        those of which some objects have no box only where they are matched.
    """

    def __init__(
        self,
        num_classes: int,
        *,
        power: float = 0.5,
        image_counts: Callable[[], Mapping[int, int]] | None = None,
        use_image_labels: bool = False,
    ):
        self._num_classes = num_classes
        self._power = power
        self._image_counts = image_counts
        self._use_image_labels = use_image_labels

    def __call__(
        self, targets: Targets, groundtruth: Groundtruth, seeds: tf.Tensor | None
    ) -> Targets:
        """Returns targets whose `class_weights` [B, N, C] are 0 for the other classes.

        Args:
          targets: of N candidates; C is K, or K + 1 with a background column at first, which stays.
          groundtruth: the objects of K classes; with `use_image_labels`, with the lists of classes.
          seeds: int32 [B, 2], of the draws; None draws from the global generator.

        Raises:
          UserError: if there are counts of more than K classes, or no lists of classes.
        """
        counted = self.sample(groundtruth, seeds)[:, tf.newaxis]  # [B, 1, K]
        first = targets.class_targets.shape[-1] - counted.shape[-1]
        if self._use_image_labels:
            is_partial = _labels(groundtruth, F.GROUNDTRUTH_NOT_EXHAUSTIVE_CLASSES)
            is_negative = targets.class_targets[..., first:] == 0
            counted &= ~(is_partial[:, tf.newaxis] & is_negative)
        shares = tf.pad(
            tf.cast(counted, tf.float32), [[0, 0], [0, 0], [first, 0]], constant_values=1.0
        )
        weights = targets.class_weights
        weights = weights if weights.shape.rank == 3 else weights[..., tf.newaxis]
        return targets._replace(class_weights=weights * shares)

    def sample(self, groundtruth: Groundtruth, seeds: tf.Tensor | None) -> tf.Tensor:
        """Returns which classes have losses, bool [B, K]; arguments as those of a call."""
        annotated = tf.reduce_any(groundtruth.classes > 0, axis=1)
        if self._use_image_labels:
            annotated |= _labels(groundtruth, F.GROUNDTRUTH_VERIFIED_NEG_CLASSES)
        weights = self._weights(annotated.shape[-1])
        noise = sampling.sampling_noise(
            sampling.fold_in(seeds, _CLASS_SAMPLE), len(weights), tf.shape(annotated)[0]
        )
        # The largest keys log(u) / weight are a weighted sample without replacement
        # (Efraimidis and Spirakis, https://doi.org/10.1016/j.ipl.2005.11.003).
        keys = tf.math.log(tf.maximum(noise, _SMALLEST_NOISE))
        keys /= np.maximum(weights, _SMALLEST_WEIGHT)
        candidates = annotated | (weights > 0)
        sampled = sampling.sample_balanced(candidates, annotated, self._num_classes, 1.0, keys)
        return annotated | sampled

    def _weights(self, num_classes: int) -> np.ndarray:
        """Returns the weights of the draws, float32 [K]."""
        if self._image_counts is None:
            return np.ones(num_classes, np.float32)
        counts = self._image_counts()
        if max(counts) > num_classes:
            raise expected(
                'FederatedLoss.image_counts_path', f'ids up to {num_classes}', max(counts)
            )
        weights = np.zeros(num_classes, np.float32)
        for number, images in counts.items():
            weights[number - 1] = images**self._power if images else 0.0
        return weights


def _labels(groundtruth: Groundtruth, name: str) -> tf.Tensor:
    """Returns a list of classes of each image, bool [B, K]."""
    if name not in groundtruth.fields:
        raise expected(
            'FederatedLoss.use_image_labels',
            f'{name} in the ground truth (load_image_labels: true in train_input_reader)',
        )
    return groundtruth.fields[name] > 0
