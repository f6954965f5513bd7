"""What a single-shot detector learns of its anchors in addition to their boxes and classes."""

import abc
from collections.abc import Sequence

import tensorflow as tf

from object_detection.core.loss_sum import LossSum
from object_detection.meta_architectures.ssd.predictions import Predictions
from object_detection.models.heads.dense_outputs import DenseOutput
from object_detection.targets.targets import Targets


class AnchorTask(abc.ABC):
    """A head, its losses, and what it says of detections: centerness, for example.

    The box predictor has its head if `output` is one of its further outputs.

    Attributes:
      output: what is predicted of each anchor.
      loss_names: names of the losses.
    """

    output: DenseOutput
    loss_names: Sequence[str]

    @abc.abstractmethod
    def loss_sums(
        self, rows: tf.Tensor, predictions: Predictions, targets: Targets
    ) -> dict[str, LossSum]:
        """Returns the weighted losses by name.

        Args:
          rows: float32 [B, N, size], what was predicted.
          predictions: what else was.
          targets: targets of the anchors.
        """

    def rescore(self, scores: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        """Returns the scores of all columns, float32 [B, N, C], as this task changes them."""
        del rows
        return scores

    def fields(self, rows: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns what detections have of their anchors, [B, N, ...], by the names there."""
        del rows
        return {}
