"""A small detector like DETR (https://arxiv.org/abs/2005.12872): a set of boxes, not suppressed."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

import keras
import tensorflow as tf

from object_detection.core import boxes as box_ops
from object_detection.core import tracing
from object_detection.core.fields import DetectionFields
from object_detection.core.groundtruth import Groundtruth
from object_detection.core.loss_sum import LossSum, add
from object_detection.core.shapes import dimensions
from object_detection.meta_architectures.detection_model import DetectionModel
from object_detection.models.feature_extractor import FeatureExtractor
from object_detection.targets.assigners import Assigner, Candidates
from object_detection.targets.targets import Columns, encode_targets
from tests.meta_architectures.detr_like.family import LOSSES
from tests.meta_architectures.detr_like.transformer import Transformer

# Side of the image that variables are built for.
_PROBE_SIZE = 64
# Factors of the losses, as in Deformable DETR (https://arxiv.org/abs/2010.04159).
_WEIGHTS = (2.0, 5.0, 2.0)


class Predictions(NamedTuple):
    """What the layers of the decoder predict, the last one best.

    Attributes:
      class_logits: float32 [B, Q, K] of each layer.
      boxes: float32 [B, Q, 4] of each layer, (y, x, height, width) as shares of the preprocessed
        images.
      windows: float32 [B, 4], the true images in that frame.
    """

    class_logits: Sequence[tf.Tensor]
    boxes: Sequence[tf.Tensor]
    windows: tf.Tensor


@dataclasses.dataclass(frozen=True)
class Learning:
    """What predictions are compared with, and by which losses.

    Attributes:
      assigner: gives each object one query.
      classification, l1, giou: losses of class logits, of boxes as (y, x, height, width), and of
        boxes.
    """

    assigner: Assigner
    classification: Callable
    l1: Callable
    giou: Callable


class _CenterSizeCoder:
    """Boxes as they are predicted: not relative to those of candidates."""

    def encode(self, boxes: tf.Tensor, candidates: tf.Tensor) -> tf.Tensor:
        del candidates
        return box_ops.corners_to_center_size(boxes)


class DetrLike(DetectionModel):
    """Predicts a box and the scores of all classes for each of a few learned queries.

    Losses are divided by the number of objects of the batch, and are means over the layers of the
    decoder, each of which is matched for itself.
    """

    def __init__(
        self,
        *,
        num_classes: int,
        resizer: Callable,
        feature_extractor: FeatureExtractor,
        transformer: Transformer,
        learning: Learning,
    ):
        super().__init__(num_classes=num_classes, resizer=resizer, name='detr_like')
        self.feature_extractor = feature_extractor
        self.transformer = transformer
        self.learning = learning

    def parts(self) -> dict[str, keras.layers.Layer]:
        return {**self.feature_extractor.parts(), 'transformer': self.transformer}

    def build_variables(self) -> None:
        (features,) = self.feature_extractor.empty_features(_PROBE_SIZE)
        shapes = tf.constant([[_PROBE_SIZE, _PROBE_SIZE, 3]])
        self.transformer(*self._cells(features, [_PROBE_SIZE, _PROBE_SIZE], shapes))

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
        ((features,),) = self.feature_extractor.feature_stacks(images, training)
        size = dimensions(images, 1, 2)
        found = self.transformer(*self._cells(features, size, true_shapes))
        logits, boxes = zip(*found, strict=True)
        true = tf.cast(true_shapes[:, :2], tf.float32) / tf.cast(tf.stack(size), tf.float32)
        return Predictions(
            class_logits=logits,
            boxes=boxes,
            windows=tf.concat([tf.zeros_like(true), true], axis=-1),
        )

    def _cells(
        self, features: tf.Tensor, size: Sequence, true_shapes: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Returns a map [B, H, W, C] of images of `size` as cells; see `Transformer.call`."""
        (stride,) = self.feature_extractor.strides
        batch, height, width = dimensions(features, 0, 1, 2)
        sides = [(tf.range(count, dtype=tf.float32) + 0.5) * stride for count in (height, width)]
        centers = tf.reshape(tf.stack(tf.meshgrid(*sides, indexing='ij'), axis=-1), [-1, 2])
        true = tf.cast(true_shapes[:, tf.newaxis, :2], tf.float32)
        # The first cell is in every image, however small.
        is_seen = tf.reduce_all(centers - stride / 2 < true, axis=-1)
        cells = tf.reshape(features, [batch, height * width, features.shape[-1]])
        return cells, centers / tf.cast(tf.stack(size), tf.float32), is_seen

    @tracing.named('postprocess')
    def postprocess(self, predictions: Predictions, true_shapes: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the best of all pairs of a query and a class, as many as there are queries."""
        boxes = box_ops.center_size_to_corners(predictions.boxes[-1])
        boxes = box_ops.clip(boxes, predictions.windows)
        has_area = box_ops.area(boxes)[..., tf.newaxis] > 0.0
        scores = tf.where(has_area, tf.sigmoid(predictions.class_logits[-1]), 0.0)  # [B, Q, K]
        batch, queries = dimensions(scores, 0, 1)
        pairs = tf.reshape(scores, [batch, queries * self.num_classes])
        best, indices = tf.math.top_k(pairs, queries)
        chosen = tf.gather(boxes, indices // self.num_classes, batch_dims=1)
        is_found = best > 0.0
        framed = box_ops.change_frame(chosen, predictions.windows)
        return {
            DetectionFields.BOXES: tf.where(is_found[..., tf.newaxis], framed, 0.0),
            DetectionFields.SCORES: best,
            DetectionFields.CLASSES: tf.cast(indices % self.num_classes, tf.float32),
            DetectionFields.NUM_DETECTIONS: tf.reduce_sum(tf.cast(is_found, tf.float32), axis=1),
        }

    @tracing.named('loss')
    def loss_sums(
        self, predictions: Predictions, groundtruth: Groundtruth, seeds: tf.Tensor | None
    ) -> dict[str, LossSum]:
        """Returns the losses; see the base class."""
        del seeds
        layers = zip(predictions.class_logits, predictions.boxes, strict=True)
        losses = [self._layer_losses(logits, boxes, groundtruth) for logits, boxes in layers]
        count = tf.math.count_nonzero(groundtruth.weights, dtype=tf.float32)
        stacks = zip(LOSSES, zip(*losses, strict=True), _WEIGHTS, strict=True)
        return {name: add(each, count, weight) for name, each, weight in stacks}

    def _layer_losses(
        self, logits: tf.Tensor, boxes: tf.Tensor, groundtruth: Groundtruth
    ) -> tuple[tf.Tensor, ...]:
        """Returns the losses of a layer in the order of `LOSSES`."""
        learning = self.learning
        candidates = self.candidates(logits, boxes)
        targets = encode_targets(
            learning.assigner.assign(candidates, groundtruth),
            candidates,
            groundtruth,
            _CenterSizeCoder(),
            Columns(groundtruth.classes, tf.zeros([self.num_classes])),
        )
        class_weights = targets.class_weights[..., tf.newaxis]
        l1 = learning.l1(boxes, targets.box_targets, targets.box_weights[..., tf.newaxis])
        corners = (box_ops.center_size_to_corners(each) for each in (boxes, targets.box_targets))
        return (
            learning.classification(logits, targets.class_targets, class_weights),
            l1,
            learning.giou(*corners, targets.box_weights),
        )

    def candidates(self, logits: tf.Tensor, boxes: tf.Tensor) -> Candidates:
        """Returns what objects are matched to: the queries, with what a layer predicts for them.

        Args:
          logits: float32 [B, Q, K].
          boxes: float32 [B, Q, 4], (y, x, height, width).
        """
        return Candidates(
            boxes=box_ops.center_size_to_corners(tf.sigmoid(self.transformer.queries.boxes)),
            scores=tf.stop_gradient(tf.sigmoid(logits)),
            predicted_boxes=tf.stop_gradient(box_ops.center_size_to_corners(boxes)),
        )

    def loss_names(self) -> Sequence[str]:
        return LOSSES
