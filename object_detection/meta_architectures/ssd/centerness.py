"""Centre-ness of anchors (FCOS, https://arxiv.org/abs/1904.01355, section 3.3)."""

import tensorflow as tf

from object_detection.core.loss_sum import LossSum
from object_detection.meta_architectures.ssd import loss_names
from object_detection.meta_architectures.ssd.anchor_tasks import AnchorTask
from object_detection.meta_architectures.ssd.predictions import Predictions
from object_detection.models.heads.dense_outputs import DenseOutput
from object_detection.targets.box_coders import centerness
from object_detection.targets.targets import Targets


class Centerness(AnchorTask):
    """Predicts how central matched points are in their objects, and lowers the scores of others.

    It is learnt by binary cross entropy from the targets of boxes, which are of `DistanceBoxCoder`.
    The score of a class becomes the root of its product with the centre-ness.

    Args:
      weight: factor of the loss.
      divides_by_matches: whether the loss is divided by the number of matched anchors.
    """

    output = DenseOutput('centerness', 1, 'box_tower')
    loss_names = (loss_names.CENTERNESS,)

    def __init__(self, weight: float = 1.0, divides_by_matches: bool = True):
        self._weight = weight
        self._divides_by_matches = divides_by_matches

    def loss_sums(
        self, rows: tf.Tensor, predictions: Predictions, targets: Targets
    ) -> dict[str, LossSum]:
        """Returns the loss; see the base class."""
        del predictions
        weights = targets.box_weights
        losses = weights * tf.nn.sigmoid_cross_entropy_with_logits(
            labels=centerness(targets.box_targets), logits=rows[..., 0]
        )
        number = tf.reduce_sum(weights) if self._divides_by_matches else tf.zeros([])
        return {loss_names.CENTERNESS: LossSum(self._weight * tf.reduce_sum(losses), number)}

    def rescore(self, scores: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        """Returns the geometric means of scores and centre-ness; see the base class."""
        return tf.sqrt(scores * tf.sigmoid(rows))
