"""The region proposal network (Faster R-CNN, https://arxiv.org/abs/1506.01497, sec. 3.1)."""

import dataclasses
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from object_detection.core import boxes as box_ops
from object_detection.core import sampling
from object_detection.core.fields import DetectionFields
from object_detection.core.groundtruth import Groundtruth
from object_detection.core.nms_tiles import used_first
from object_detection.core.post_processing import (
    Detections,
    NmsParams,
    batch_multiclass_non_max_suppression,
)
from object_detection.core.shapes import dimensions
from object_detection.target_assigners.target_assigner import TargetAssigner

# Entry of predictions, a bool scalar: whether they were made for training.
IS_TRAINING = 'is_training'


@dataclasses.dataclass(frozen=True)
class ProposalParams:
    """Numbers of the first stage.

    Attributes:
      nms: how proposals are chosen; `max_total_detections` is their number.
      minibatch_size: anchors an image that the losses see.
      positive_fraction: at most this share of them is positive.
      clip_anchors: clip anchors to the image in training; else those that cross its border do not
        train. Inference always clips.
      localization_weight, objectness_weight: factors of the losses.
      static_shapes: only operations that XLA compiles.
      fill_samples: in training, other anchors make up for samples that are missing; see
        `sampling.sample_balanced`.
    """

    nms: NmsParams
    minibatch_size: int
    positive_fraction: float
    clip_anchors: bool
    localization_weight: float
    objectness_weight: float
    static_shapes: bool
    fill_samples: bool = False


class Proposals(NamedTuple):
    """Proposals of a batch, padded to P rows.

    Attributes:
      boxes: float32 [B, P, 4], absolute; padding rows are zero.
      scores: float32 [B, P], objectness.
      count: int32 [B], the rows that hold a proposal.
    """

    boxes: tf.Tensor
    scores: tf.Tensor
    count: tf.Tensor

    def is_valid(self) -> tf.Tensor:
        """bool [B, P]."""
        return tf.range(tf.shape(self.boxes)[1]) < self.count[:, tf.newaxis]


class RegionProposalNetwork(keras.layers.Layer):
    """Anchors, the head that scores and moves them, the choice of proposals, the losses.

    Args:
      head: `(features: list) -> (codes [B, N, 4], logits [B, N, 2], head features: list)`.
      anchor_generator: gives absolute anchors for a list of feature map shapes.
      target_assigner: matches anchors to ground truth; its coder decodes the codes too.
      localization_loss: `(codes, targets, weights [B, N]) -> [B, N]`.
      params: the numbers.
    """

    def __init__(
        self,
        *,
        head: keras.layers.Layer,
        anchor_generator: Any,
        target_assigner: TargetAssigner,
        localization_loss: Any,
        params: ProposalParams,
        name: str = 'rpn',
    ):
        super().__init__(name=name)
        self.head = head
        self.anchor_generator = anchor_generator
        self.target_assigner = target_assigner
        self.localization_loss = localization_loss
        self.params = params

    def predict(
        self, features: list[tf.Tensor], height: Any, width: Any, training: bool
    ) -> dict[str, Any]:
        """Runs the head on the pyramid of images of size (height, width), padding included.

        Returns:
          The entries `anchors` (float32 [N, 4], absolute), `rpn_box_encodings` (float32
          [B, N, 4]), `rpn_objectness_predictions_with_background` (float32 [B, N, 2]) and
          `rpn_box_predictor_features` (a list); and `is_training`, a bool scalar.
        """
        codes, logits, head_features = self.head(features, training=training)
        codes, logits = tf.cast(codes, tf.float32), tf.cast(logits, tf.float32)
        shapes = [dimensions(level, 1, 2) for level in features]
        # As tensors, so that static and dynamic images have the same anchors.
        height, width = tf.convert_to_tensor(height), tf.convert_to_tensor(width)
        anchors = tf.concat(self.anchor_generator.generate(shapes, height, width), axis=0)
        window = tf.stack([0.0, 0.0, tf.cast(height, tf.float32), tf.cast(width, tf.float32)])
        if self.params.clip_anchors or not training:
            anchors = box_ops.clip(anchors, window)
        else:
            inside = box_ops.is_inside(anchors, window)
            anchors = tf.boolean_mask(anchors, inside)
            codes = tf.boolean_mask(codes, inside, axis=1)
            logits = tf.boolean_mask(logits, inside, axis=1)
        return {
            IS_TRAINING: tf.constant(training),
            'rpn_box_predictor_features': head_features,
            'rpn_box_encodings': codes,
            'rpn_objectness_predictions_with_background': logits,
            'anchors': anchors,
        }

    def decode(self, predictions: dict[str, Any]) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the boxes [B, N, 4] and scores [B, N, 2] (background first) of all anchors."""
        boxes = self.target_assigner.box_coder.decode(
            predictions['rpn_box_encodings'], predictions['anchors']
        )
        return boxes, tf.nn.softmax(predictions['rpn_objectness_predictions_with_background'])

    def propose(
        self, predictions: dict[str, Any], true_shapes: tf.Tensor, training: bool
    ) -> Proposals:
        """Chooses the best boxes, clipped to the true images; in training gradients stop here.

        With `fill_samples`, padding rows hold boxes that the images leave nothing of.
        """
        boxes, scores = self.decode(predictions)
        scores = scores[..., 1:]
        if training:
            boxes, scores = tf.stop_gradient(boxes), tf.stop_gradient(scores)
        windows = true_image_windows(true_shapes)
        keeps_empty = training and self.params.fill_samples and not self.params.nms.use_combined_nms
        detections = batch_multiclass_non_max_suppression(
            boxes[:, :, tf.newaxis],
            scores,
            self.params.nms,
            clip_window=None if keeps_empty else windows,
            static=self.params.static_shapes,
        )
        if keeps_empty:
            return _clip_with_empty(detections, windows)
        return Proposals(detections.boxes, detections.scores, detections.num_detections)

    def loss(
        self,
        predictions: dict[str, Any],
        groundtruth_boxes: tf.Tensor,
        groundtruth: Groundtruth,
        seeds: tf.Tensor | None,
    ) -> dict[str, tf.Tensor]:
        """Returns the localization and objectness losses over a balanced sample of the anchors.

        Args:
          predictions: entries of `predict`.
          groundtruth_boxes: float32 [B, M, 4], absolute.
          groundtruth: gives the weights.
          seeds: int32 [B, 2] of the sample, or None.
        """
        anchors = predictions['anchors']
        codes = predictions['rpn_box_encodings']
        targets = self.target_assigner.assign(
            anchors,
            groundtruth_boxes,
            tf.ones_like(groundtruth.weights)[..., tf.newaxis],
            groundtruth.weights,
            tf.zeros([1]),
        )
        is_object = targets.class_targets[..., 0] > 0
        sampled = sampling.sample_balanced(
            targets.class_weights > 0,
            is_object,
            self.params.minibatch_size,
            self.params.positive_fraction,
            sampling.sampling_noise(seeds, tf.shape(codes)[1], tf.shape(codes)[0]),
            fill=predictions[IS_TRAINING] if self.params.fill_samples else False,
        )
        sampled = tf.cast(sampled, tf.float32)
        localization = self.localization_loss(
            codes, targets.box_targets, sampled * targets.box_weights
        )
        objectness = sampled * tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels=tf.cast(is_object, tf.int32),
            logits=predictions['rpn_objectness_predictions_with_background'],
        )
        normalizer = tf.maximum(tf.reduce_sum(sampled, axis=1, keepdims=True), 1.0)

        def mean_over_images(losses: tf.Tensor) -> tf.Tensor:
            return tf.reduce_mean(tf.reduce_sum(losses / normalizer, axis=1))

        return {
            'Loss/RPNLoss/localization_loss': self.params.localization_weight
            * mean_over_images(localization),
            'Loss/RPNLoss/objectness_loss': self.params.objectness_weight
            * mean_over_images(objectness),
        }


def proposals_as_detections(
    rpn: RegionProposalNetwork,
    predictions: dict[str, Any],
    proposals: Proposals,
    true_shapes: tf.Tensor,
) -> dict[str, tf.Tensor]:
    """Returns the detections of the first stage alone, which knows no classes but background."""
    windows = true_image_windows(true_shapes)
    raw_boxes, raw_scores = rpn.decode(predictions)
    multiclass = tf.stack([1.0 - proposals.scores, proposals.scores], axis=-1)
    is_valid = proposals.is_valid()[..., tf.newaxis]
    return {
        DetectionFields.BOXES: box_ops.change_frame(proposals.boxes, windows),
        DetectionFields.SCORES: proposals.scores,
        DetectionFields.MULTICLASS_SCORES: tf.where(is_valid, multiclass, 0.0),
        DetectionFields.NUM_DETECTIONS: tf.cast(proposals.count, tf.float32),
        DetectionFields.RAW_BOXES: box_ops.change_frame(box_ops.clip(raw_boxes, windows), windows),
        DetectionFields.RAW_SCORES: raw_scores,
    }


def true_image_windows(true_shapes: tf.Tensor) -> tf.Tensor:
    """int32 [B, 3] true shapes -> float32 [B, 4] windows [0, 0, height, width]."""
    sizes = tf.cast(true_shapes[:, :2], tf.float32)
    return tf.concat([tf.zeros_like(sizes), sizes], axis=1)


def _clip_with_empty(detections: Detections, windows: tf.Tensor) -> Proposals:
    """Clips to the windows [B, 4]; what has no area there stays, behind the others, uncounted."""
    boxes = box_ops.clip(detections.boxes, windows)
    has_area, order = used_first(box_ops.area(boxes) > 0, boxes.shape[1])
    scores = tf.gather(detections.scores, order, batch_dims=1)
    return Proposals(
        boxes=tf.gather(boxes, order, batch_dims=1),
        scores=tf.where(has_area, scores, 0.0),
        count=tf.reduce_sum(tf.cast(has_area, tf.int32), axis=1),
    )
