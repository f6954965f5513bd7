"""A small detector like FCOS (https://arxiv.org/abs/1904.01355): points predict boxes."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

import keras
import tensorflow as tf

from object_detection.core import boxes as box_ops
from object_detection.core import tracing
from object_detection.core.fields import DetectionFields
from object_detection.core.groundtruth import Groundtruth
from object_detection.core.loss_sum import LossSum
from object_detection.core.shapes import dimensions
from object_detection.meta_architectures.detection_model import DetectionModel
from object_detection.models.feature_extractor import FeatureExtractor
from object_detection.targets.assigners import Assigner, Candidates
from object_detection.targets.box_coders import DistanceBoxCoder, centerness
from object_detection.targets.targets import Columns, Targets, encode_targets
from tests.meta_architectures.fcos_like.family import LOSSES
from tests.meta_architectures.fcos_like.point_targets import cells

# Side of the image that variables are built for.
_PROBE_SIZE = 64


class Predictions(NamedTuple):
    """What the N points of the feature maps predict.

    Attributes:
      points: the cells around them, in pixels of the preprocessed images.
      distances: float32 [B, N, 4], of the sides of boxes; see `DistanceBoxCoder`.
      center_logits: float32 [B, N, 1], whether a point is at the centre of its object.
      class_logits: float32 [B, N, K].
      size: float32 [2], height and width of the preprocessed images.
    """

    points: Candidates
    distances: tf.Tensor
    center_logits: tf.Tensor
    class_logits: tf.Tensor
    size: tf.Tensor


@dataclasses.dataclass(frozen=True)
class Learning:
    """What predictions are compared with, and by which losses.

    Attributes:
      assigner: matches points to objects.
      classification, localization, center: losses of class logits, of boxes, and of the logits of
        being at the centre.
    """

    assigner: Assigner
    classification: Callable
    localization: Callable
    center: Callable


class FcosLike(DetectionModel):
    """Predicts a box, the scores of all classes and its centre-ness for each point of a pyramid.

    Args:
      num_classes: K.
      resizer: the image resizer.
      feature_extractor: backbone and pyramid.
      head: `(maps, training) -> (codes [B, N, 5], logits [B, N, K])`.
      learning: the targets and losses.
      nms: multi-class non-maximum suppression.
      score_converter: logits -> scores.
    """

    def __init__(
        self,
        *,
        num_classes: int,
        resizer: Callable,
        feature_extractor: FeatureExtractor,
        head: keras.layers.Layer,
        learning: Learning,
        nms: Callable,
        score_converter: Callable[[tf.Tensor], tf.Tensor],
    ):
        super().__init__(num_classes=num_classes, resizer=resizer, name='fcos_like')
        self.feature_extractor = feature_extractor
        self.head = head
        self.learning = learning
        self.coder = DistanceBoxCoder()
        self._nms = nms
        self._score_converter = score_converter

    def parts(self) -> dict[str, keras.layers.Layer]:
        return {**self.feature_extractor.parts(), 'head': self.head}

    def build_variables(self) -> None:
        self.head(self.feature_extractor.empty_features(_PROBE_SIZE))

    def normalize(self, images: tf.Tensor) -> tf.Tensor:
        return self.feature_extractor.normalize(images)

    def forward(
        self,
        images: tf.Tensor,
        true_shapes: tf.Tensor,
        training: bool,
        groundtruth: Groundtruth | None,
        seeds: tf.Tensor | None,
    ) -> Predictions:
        """Runs the network; see `predict` of the base class."""
        (maps,) = self.feature_extractor.feature_stacks(images, training)
        codes, logits = self.head(maps, training=training)
        return Predictions(
            points=cells(maps, self.feature_extractor.strides),
            # Positive, as the exponential of the paper is; it does not overflow.
            distances=tf.nn.softplus(codes[..., :4]),
            center_logits=codes[..., 4:],
            class_logits=logits,
            size=tf.cast(tf.stack(dimensions(images, 1, 2)), tf.float32),
        )

    @tracing.named('postprocess')
    def postprocess(self, predictions: Predictions, true_shapes: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the detections.

        A score is the geometric mean of that of the class and of being at the centre.
        """
        scores = self._score_converter(predictions.class_logits)
        center = self._score_converter(predictions.center_logits)
        sizes = tf.cast(true_shapes[:, :2], tf.float32)
        found = self._nms(
            self.coder.decode(predictions.distances, predictions.points.boxes)[:, :, tf.newaxis],
            tf.sqrt(scores * center),
            clip_window=tf.concat([tf.zeros_like(sizes), sizes], axis=-1),
        )
        return {
            DetectionFields.BOXES: found.boxes,
            DetectionFields.SCORES: found.scores,
            DetectionFields.CLASSES: found.classes,
            DetectionFields.NUM_DETECTIONS: tf.cast(found.num_detections, tf.float32),
        }

    def targets(self, predictions: Predictions, groundtruth: Groundtruth) -> Targets:
        """Returns the targets of the points; those of boxes are distances."""
        height, width = tf.unstack(predictions.size)
        absolute = box_ops.normalized_to_absolute(groundtruth.boxes, height, width)
        groundtruth = groundtruth._replace(boxes=absolute)
        return encode_targets(
            self.learning.assigner.assign(predictions.points, groundtruth),
            predictions.points,
            groundtruth,
            self.coder,
            Columns(groundtruth.classes, tf.zeros([self.num_classes])),
        )

    @tracing.named('loss')
    def loss_sums(
        self, predictions: Predictions, groundtruth: Groundtruth, seeds: tf.Tensor | None
    ) -> dict[str, LossSum]:
        """Returns the losses; see the base class.

        They are means over matched points; those of boxes are weighted by how central a point is.
        """
        del seeds
        learning, targets = self.learning, self.targets(predictions, groundtruth)
        weights = targets.box_weights
        central = centerness(targets.box_targets)
        boxes, objects = (
            self.coder.decode(distances, predictions.points.boxes)
            for distances in (predictions.distances, targets.box_targets)
        )
        losses = (
            learning.classification(
                predictions.class_logits,
                targets.class_targets,
                targets.class_weights[..., tf.newaxis],
            ),
            learning.localization(boxes, objects, weights * central),
            learning.center(
                predictions.center_logits, central[..., tf.newaxis], weights[..., tf.newaxis]
            ),
        )
        counts = (weights, weights * central, weights)
        return {
            name: LossSum(tf.reduce_sum(loss), tf.reduce_sum(count))
            for name, loss, count in zip(LOSSES, losses, counts, strict=True)
        }

    def loss_names(self) -> Sequence[str]:
        return LOSSES
