"""The region proposal network (Faster R-CNN, https://arxiv.org/abs/1506.01497, sec. 3.1).

Objectness logits of the first stage: two of background and object, or one of object.

Two logits are for softmax, one for a sigmoid; the last dimension decides.
"""

import dataclasses
import enum
from typing import Any

import keras
import tensorflow as tf

from object_detection.core import boxes as box_ops
from object_detection.core import sampling, tracing
from object_detection.core.fields import DetectionFields
from object_detection.core.groundtruth import Groundtruth
from object_detection.core.loss_sum import LossSum, over_images
from object_detection.core.post_processing import NmsParams
from object_detection.core.shapes import dimensions
from object_detection.core.suppression.nms_tiles import NEVER
from object_detection.meta_architectures.faster_rcnn import loss_names
from object_detection.meta_architectures.faster_rcnn.predictions import AnchorPredictions
from object_detection.meta_architectures.faster_rcnn.proposals import (
    ProposalLimits,
    Proposals,
    best_of_levels,
    choose_of_all,
    choose_per_level,
    is_large_enough,
    true_image_windows,
)
from object_detection.targets.assigners import Assigner, Candidates
from object_detection.targets.targets import Columns, Targets, encode_targets, without_crowds


def logit_difference(logits: tf.Tensor) -> tf.Tensor:
    """Returns the logit of object minus the logit of background, [...], for logits [..., 1 or 2].

    A larger difference means a larger probability, even where probabilities are rounded to 1.
    """
    if logits.shape[-1] == 1:
        return logits[..., 0]
    return logits[..., 1] - logits[..., 0]


def probabilities(logits: tf.Tensor) -> tf.Tensor:
    """Returns the probabilities of background and object, [..., 2], of logits [..., 1 or 2]."""
    if logits.shape[-1] == 1:
        return tf.concat([tf.sigmoid(-logits), tf.sigmoid(logits)], axis=-1)
    return tf.nn.softmax(logits)


def objectness_cross_entropy(logits: tf.Tensor, is_object: tf.Tensor) -> tf.Tensor:
    """Returns the loss of each anchor, [...], of logits [..., 1 or 2] and bool [...]."""
    if logits.shape[-1] == 1:
        return tf.nn.sigmoid_cross_entropy_with_logits(
            labels=tf.cast(is_object, logits.dtype), logits=logits[..., 0]
        )
    return tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=tf.cast(is_object, tf.int32), logits=logits
    )


class OutsideAnchors(enum.Enum):
    """The treatment of anchors that cross the border of the padded image.

    In training they are removed (PRUNE), clipped (CLIP), kept (KEEP), or kept in their rows without
    being used (IGNORE_LABEL: like PRUNE, with static shapes). Inference keeps them with KEEP and
    clips them otherwise.
    """

    PRUNE = enum.auto()
    CLIP = enum.auto()
    KEEP = enum.auto()
    IGNORE_LABEL = enum.auto()


@dataclasses.dataclass(frozen=True)
class ProposalParams:
    """Parameters of the choice of proposals.

    Attributes:
      nms: parameters of the suppression; its numbers of detections are not used.
      limits, eval_limits: limits of their number in training and in inference.
      static_shapes: whether to use only operations that XLA compiles.
      min_box_size: boxes of smaller height or width, clipped, in pixels, are left out.
      keeps_empty: in training, padding rows hold boxes that the images leave nothing of, for a
        sampler that fills up. Not where levels choose for themselves.
    """

    nms: NmsParams
    limits: ProposalLimits
    eval_limits: ProposalLimits
    static_shapes: bool
    min_box_size: float = 0.0
    keeps_empty: bool = False


@dataclasses.dataclass(frozen=True)
class RpnLossParams:
    """Parameters of the losses of anchors.

    Attributes:
      minibatch_size: number of anchors per image in the losses.
      positive_fraction: at most this share of them is positive.
      localization_weight, objectness_weight: factors of the losses.
      fill_samples: in training, other anchors fill up missing samples; see
        `sampling.sample_balanced`.
      localize_sampled_only: the localization loss covers the sample, otherwise all positives.
      crowd_ioa_threshold: anchors with this share of their area on a crowd do not train, and crowds
        are no objects; 0 = crowds are objects.
      use_matmul_gather: whether rows are gathered by matrix products, see `encode_targets`.
    """

    minibatch_size: int
    positive_fraction: float
    localization_weight: float
    objectness_weight: float
    fill_samples: bool = False
    localize_sampled_only: bool = True
    crowd_ioa_threshold: float = 0.0
    use_matmul_gather: bool = False


class RegionProposalNetwork(keras.layers.Layer):
    """Anchors, the head that scores and moves them, the choice of proposals, the losses.

    Args:
      head: `(features: list) -> (codes [B, N, 4], logits [B, N, 1 or 2], head features: list)`;
        see `objectness` for the logits.
      anchor_generator: returns absolute anchors for a list of feature map shapes.
      assigner: matches anchors to ground truth.
      box_coder: encodes the targets of boxes, and decodes the codes.
      localization_loss: `(codes, targets, weights [B, N]) -> [B, N]`.
      params: parameters of the choice of proposals.
      loss_params: parameters of the losses.
      outside_anchors: treatment of anchors that cross the border.
    """

    def __init__(
        self,
        *,
        head: keras.layers.Layer,
        anchor_generator: Any,
        assigner: Assigner,
        box_coder: Any,
        localization_loss: Any,
        params: ProposalParams,
        loss_params: RpnLossParams,
        outside_anchors: OutsideAnchors = OutsideAnchors.PRUNE,
        name: str = 'rpn',
    ):
        super().__init__(name=name)
        self.head = head
        self.anchor_generator = anchor_generator
        self.assigner = assigner
        self.box_coder = box_coder
        self.localization_loss = localization_loss
        self.params = params
        self.loss_params = loss_params
        self._outside_anchors = outside_anchors

    def predict(
        self, features: list[tf.Tensor], height: Any, width: Any, training: bool
    ) -> AnchorPredictions:
        """Runs the head on the pyramid of images of size (height, width), padding included."""
        codes, logits, head_features = self.head(features, training=training)
        codes, logits = tf.cast(codes, tf.float32), tf.cast(logits, tf.float32)
        shapes = [dimensions(level, 1, 2) for level in features]
        levels = self.anchor_generator.generate(shapes, height, width)
        sizes = [dimensions(level, 0)[0] for level in levels]
        anchors = tf.concat(levels, axis=0)
        window = tf.stack([0.0, 0.0, tf.cast(height, tf.float32), tf.cast(width, tf.float32)])
        in_use = None
        if training and self._outside_anchors == OutsideAnchors.IGNORE_LABEL:
            in_use = box_ops.is_inside(anchors, window)
        elif training and self._outside_anchors == OutsideAnchors.PRUNE:
            inside = box_ops.is_inside(anchors, window)
            anchors = tf.boolean_mask(anchors, inside)
            codes = tf.boolean_mask(codes, inside, axis=1)
            logits = tf.boolean_mask(logits, inside, axis=1)
            sizes = _count_of_levels(inside, sizes)
        elif self._outside_anchors != OutsideAnchors.KEEP:
            anchors = box_ops.clip(anchors, window)
        return AnchorPredictions(
            boxes=anchors,
            box_codes=codes,
            objectness_logits=logits,
            level_sizes=sizes,
            is_training=tf.constant(training),
            in_use=in_use,
            head_features=head_features,
        )

    def decode(self, predictions: AnchorPredictions) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the boxes [B, N, 4] and scores [B, N, 2] (background first) of all anchors."""
        boxes = self.box_coder.decode(predictions.box_codes, predictions.boxes)
        return boxes, probabilities(predictions.objectness_logits)

    @tracing.named('proposals')
    def propose(
        self, predictions: AnchorPredictions, true_shapes: tf.Tensor, training: bool
    ) -> Proposals:
        """Chooses the best boxes, clipped to the true images; in training gradients stop here.

        With limits of levels only the best anchors of each are decoded, and their boxes are clipped
        before they suppress each other. Else boxes of all levels suppress each other, and are
        clipped after that, as in the reference.
        """
        limits = self.params.limits if training else self.params.eval_limits
        windows = true_image_windows(true_shapes)
        if training:
            predictions = predictions._replace(
                box_codes=tf.stop_gradient(predictions.box_codes),
                objectness_logits=tf.stop_gradient(predictions.objectness_logits),
            )
        if limits.is_per_level:
            return self._propose_per_level(predictions, windows, limits)
        return self._propose_of_all(predictions, windows, limits, training)

    def _propose_per_level(
        self, predictions: AnchorPredictions, windows: tf.Tensor, limits: ProposalLimits
    ) -> Proposals:
        logits = predictions.objectness_logits
        margins = tf.where(_in_use(predictions), logit_difference(logits), NEVER)
        best = best_of_levels(margins, predictions.level_sizes, limits.topk_per_level)
        boxes = self.box_coder.decode(
            tf.gather(predictions.box_codes, best.rows, batch_dims=1),
            tf.gather(predictions.boxes, best.rows),
        )
        boxes = box_ops.clip(boxes, windows)
        scores = probabilities(tf.gather(logits, best.rows, batch_dims=1))[..., 1]
        takes_part = best.takes_part & is_large_enough(boxes, self.params.min_box_size)
        scores = tf.where(takes_part, scores, NEVER)
        return choose_per_level(boxes, scores, best.levels, self.params.nms, limits)

    def _propose_of_all(
        self,
        predictions: AnchorPredictions,
        windows: tf.Tensor,
        limits: ProposalLimits,
        training: bool,
    ) -> Proposals:
        boxes, scores = self.decode(predictions)
        takes_part = _in_use(predictions)
        if self.params.min_box_size > 0:
            clipped = box_ops.clip(boxes, windows)
            takes_part &= is_large_enough(clipped, self.params.min_box_size)
        return choose_of_all(
            boxes,
            tf.where(takes_part, scores[..., 1], NEVER),
            self.params.nms,
            limits.max_proposals,
            windows,
            static=self.params.static_shapes,
            keeps_empty=training and self.params.keeps_empty,
        )

    def loss_sums(
        self,
        predictions: AnchorPredictions,
        groundtruth_boxes: tf.Tensor,
        groundtruth: Groundtruth,
        seeds: tf.Tensor | None,
    ) -> dict[str, LossSum]:
        """Returns the localization and objectness losses over a balanced sample of the anchors.

        Args:
          predictions: result of `predict`.
          groundtruth_boxes: float32 [B, M, 4], absolute.
          groundtruth: ground truth with weights, and `is_crowd` if there is a crowd threshold.
          seeds: seeds of the sample, int32 [B, 2], or None.

        Raises:
          ValueError: if there is a crowd threshold and the ground truth has no `is_crowd`.
        """
        params = self.loss_params
        codes = predictions.box_codes
        found, in_use = self._assign(predictions, groundtruth._replace(boxes=groundtruth_boxes))
        is_object = found.class_targets[..., 0] > 0
        noise = sampling.sampling_noise(seeds, tf.shape(codes)[1], tf.shape(codes)[0])
        sampled = sampling.sample_balanced(
            in_use & (found.class_weights > 0),
            is_object,
            params.minibatch_size,
            params.positive_fraction,
            # Unused anchors are the last to fill up samples, and are removed again.
            tf.where(in_use, noise, -1.0),
            fill=predictions.is_training if params.fill_samples else False,
        )
        sampled = tf.cast(sampled & in_use, tf.float32)
        localized = sampled if params.localize_sampled_only else tf.cast(in_use, tf.float32)
        localization = self.localization_loss(
            codes, found.box_targets, localized * found.box_weights
        )
        cross_entropy = sampled * objectness_cross_entropy(predictions.objectness_logits, is_object)
        count = tf.maximum(tf.reduce_sum(sampled, axis=1, keepdims=True), 1.0)

        def sum_of(weight: float, losses: tf.Tensor) -> LossSum:
            return over_images(weight * tf.reduce_sum(losses / count, axis=1))

        return {
            loss_names.RPN_LOCALIZATION: sum_of(params.localization_weight, localization),
            loss_names.RPN_OBJECTNESS: sum_of(params.objectness_weight, cross_entropy),
        }

    def _assign(
        self, predictions: AnchorPredictions, groundtruth: Groundtruth
    ) -> tuple[Targets, tf.Tensor]:
        """Returns the targets of the anchors, and which may train: bool [1 or B, N or 1].

        With a crowd threshold, boxes of crowds become padding.

        Args:
          predictions: of `predict`.
          groundtruth: ground truth with absolute boxes.
        """
        candidates = Candidates(predictions.boxes, is_valid=predictions.in_use)
        may_train = _in_use(predictions)[tf.newaxis]
        threshold = self.loss_params.crowd_ioa_threshold
        if threshold > 0:
            groundtruth, is_on_crowd = without_crowds(candidates.boxes, groundtruth, threshold)
            may_train &= ~is_on_crowd
        found = encode_targets(
            self.assigner.assign(candidates, groundtruth),
            candidates,
            groundtruth,
            self.box_coder,
            Columns(tf.ones_like(groundtruth.weights)[..., tf.newaxis], unmatched=tf.zeros([1])),
            self.loss_params.use_matmul_gather,
        )
        return found, may_train


def proposals_as_detections(
    rpn: RegionProposalNetwork,
    predictions: AnchorPredictions,
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


def _in_use(predictions: AnchorPredictions) -> tf.Tensor:
    """bool [N], or [1] where all anchors are."""
    return tf.constant([True]) if predictions.in_use is None else predictions.in_use


def _count_of_levels(flags: tf.Tensor, sizes: list[Any]) -> list[tf.Tensor]:
    """How many of bool [N] are set in each level, of N in all: int32 scalars."""
    counts, start = [], 0
    for size in sizes:
        counts.append(tf.reduce_sum(tf.cast(flags[start : start + size], tf.int32)))
        start += size
    return counts
