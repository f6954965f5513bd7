"""Faster R-CNN (https://arxiv.org/abs/1506.01497) and Mask R-CNN (https://arxiv.org/abs/1703.06870).

Also Cascade R-CNN (https://arxiv.org/abs/1712.00726), which has several box stages.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from object_detection.core import boxes as box_ops
from object_detection.core import sampling, tracing
from object_detection.core.fields import DetectionFields
from object_detection.core.groundtruth import Groundtruth
from object_detection.core.loss_sum import LossSum
from object_detection.core.shapes import dimensions
from object_detection.errors import UserError, expected
from object_detection.meta_architectures.detection_model import DetectionModel
from object_detection.meta_architectures.faster_rcnn import loss_names, mask_stage
from object_detection.meta_architectures.faster_rcnn.box_stage import BoxStage, detect, mean_scores
from object_detection.meta_architectures.faster_rcnn.context_stage import (
    ContextStage,
    RegionContext,
    no_context,
    remember,
)
from object_detection.meta_architectures.faster_rcnn.croppers import Crops
from object_detection.meta_architectures.faster_rcnn.extra_outputs import (
    ExtraOutputs,
    absolute_boxes,
    of_detections,
    raw_boxes,
)
from object_detection.meta_architectures.faster_rcnn.keypoint_stage import KeypointStage
from object_detection.meta_architectures.faster_rcnn.predictions import (
    BoxPredictions,
    MaskPredictions,
    Predictions,
    RegionPredictions,
)
from object_detection.meta_architectures.faster_rcnn.proposals import Proposals
from object_detection.meta_architectures.faster_rcnn.region_proposal_network import (
    RegionProposalNetwork,
    proposals_as_detections,
)
from object_detection.meta_architectures.faster_rcnn.variable_names import FASTER_RCNN_NAMES
from object_detection.targets.anchors import AnchorGenerator
from object_detection.targets.targets import Targets

# Distinguish the seeds of the samples of the two stages, of dropout, and of further box stages.
# Added to even numbers.
_ANCHOR_SAMPLE, _PROPOSAL_SAMPLE, _DROPOUT, _NEXT_STAGE = (0, 0), (0, 1), (1, 0), (1, 1)

# Side of the image that variables are built for; the coarsest level (stride 128) keeps a cell.
_PROBE_SIZE = 128


class Stages(NamedTuple):
    """What follows the proposals; without any stage, they are the detections.

    Attributes:
      boxes: the second stage: none, one, or the stages of a cascade. Each but the first takes the
        boxes that the one before refined. Masks and keypoints are trained on the proposals of the
        first, and predicted in the final boxes; masks without `from_crops` see the features of the
        first.
      masks: the third stage, or None.
      keypoints: predicts keypoints, or None.
      context: what regions see in other images and in each other, or None; the same layers for all
        box stages. It changes the features that boxes are classified by, also where masks are
        predicted from these; not the crops of masks and keypoints.
      crops: how the second stage crops the features of regions; None where it does not.
      outputs: what is returned beside the usual.
    """

    boxes: Sequence[BoxStage] = ()
    masks: mask_stage.MaskStage | None = None
    keypoints: KeypointStage | None = None
    context: ContextStage | None = None
    crops: Crops | None = None
    outputs: ExtraOutputs = ExtraOutputs()


class FasterRcnn(DetectionModel):
    """A two-stage detector of parts; one, two or three stages are run.

    Stage 1 proposes boxes, stage 2 classifies and refines them, stage 3 predicts a mask in each.
    All rows of proposals and detections are padded to fixed sizes.

    Differs from the reference: crops are made in the frame that the features cover. There, crops
    are too large by what the extractor pads beyond the resizer's padding (a pyramid pads to a
    multiple of 32), and those of masks of detections by what the resizer pads. In training, masks
    are predicted only for as many regions as can be positive.

    Args:
      num_classes: K, without background.
      resizer: the image resizer.
      feature_extractor: backbone and neck; also the layers between a crop and the box head.
      rpn: the first stage.
      stages: what follows the proposals.
    """

    variable_names = FASTER_RCNN_NAMES

    def __init__(
        self,
        *,
        num_classes: int,
        resizer: Callable,
        feature_extractor: Any,
        rpn: RegionProposalNetwork,
        stages: Stages,
        name: str = 'faster_rcnn',
    ):
        super().__init__(num_classes=num_classes, resizer=resizer, name=name)
        self.feature_extractor = feature_extractor
        self.rpn = rpn
        self.box_stages = list(stages.boxes)
        self.mask_stage = stages.masks
        self.keypoint_stage = stages.keypoints
        self.context_stage = stages.context
        self._cropper, self._pool = stages.crops or (None, None)
        self._outputs = stages.outputs

    @property
    def anchor_generator(self) -> AnchorGenerator:
        """That of the first stage."""
        return self.rpn.anchor_generator

    def parts(self) -> dict[str, keras.layers.Layer]:
        layers = {**self.feature_extractor.parts(), 'rpn': self.rpn.head}
        for number, stage in enumerate(self.box_stages, 1):
            named = stage.parts().items()
            layers |= {loss_names.numbered(name, number): layer for name, layer in named}
        if self.mask_stage is not None:
            layers['mask_head'] = self.mask_stage.head
        if self.keypoint_stage is not None:
            layers['keypoint_head'] = self.keypoint_stage.head
        if self.context_stage is not None:
            layers |= self.context_stage.layers_with_variables()
        return layers

    def side_inputs(self) -> dict[str, tf.TensorSpec]:
        return {} if self.context_stage is None else self.context_stage.side_inputs()

    def build_variables(self) -> None:
        # One region and not none: oneDNN's convolutions hand empty inputs through as they are.
        boxes = tf.zeros([1, 1, 4])
        maps = self.feature_extractor.empty_features(_PROBE_SIZE)
        self.rpn.head(maps)
        if not self.box_stages:
            return
        frame, context = (_PROBE_SIZE, _PROBE_SIZE), no_context(self.context_stage)
        regions, *_ = (
            self.classify_regions(stage, maps, boxes, frame, training=False, context=context)
            for stage in self.box_stages
        )
        if self.keypoint_stage is not None:
            self.keypoint_stage.heat_maps(maps, boxes)
        if self.mask_stage is None:
            return
        if self.mask_stage.cropper is not None:
            features = self.crop_for_masks(maps, boxes, frame, training=False)
        elif self.mask_stage.from_crops:
            features = regions.crops
        else:
            features = regions.features
        self.mask_stage.head(features)

    def normalize(self, images: tf.Tensor) -> tf.Tensor:
        return self.feature_extractor.normalize(images)

    def forward(
        self,
        images: tf.Tensor,
        true_shapes: tf.Tensor,
        training: bool,
        groundtruth: Groundtruth | None,
        seeds: tf.Tensor | None,
        context_features: tf.Tensor | None = None,
        valid_context_size: tf.Tensor | None = None,
    ) -> Predictions:
        """Runs the stages that do not need final detections; see the base class.

        With `training` and ground truth the second stage sees a sample of the proposals. With
        ground truth, regions are matched to it, once for all losses; and the third stage predicts
        the masks that the mask loss needs. Without, masks are the business of `postprocess`.
        """
        self._check(groundtruth, training)
        features = self.feature_extractor.proposal_features(images, training)
        size = dimensions(images, 1, 2)
        anchors = self.rpn.predict(features, *size, training)
        proposals, targets = self.rpn.propose(anchors, true_shapes, training), None
        if self.box_stages and groundtruth is not None:
            objects = box_ops.normalized_to_absolute(groundtruth.boxes, *size)
            proposals, targets = self._match(proposals, objects, groundtruth, training, seeds)
        normalized = box_ops.absolute_to_normalized(proposals.boxes, *size)
        predictions = Predictions(
            image_shape=tf.shape(images),
            features=features,
            anchors=anchors,
            proposals=proposals,
            proposals_normalized=normalized,
            final_anchors=normalized,
            memory=remember(self.context_stage, context_features, valid_context_size, training),
        )
        for stage in self.box_stages:
            if predictions.box_stages:
                proposals, targets = self._refine(predictions, true_shapes, groundtruth, training)
                seeds = sampling.fold_in(seeds, _NEXT_STAGE)
            regions = self.classify_regions(
                stage,
                features,
                proposals.boxes,
                self.feature_extractor.padded_size(*size),
                training,
                sampling.fold_in(seeds, _DROPOUT),
                RegionContext(proposals.count, predictions.memory),
            )
            if training and stage.federated is not None:
                targets = stage.federated(
                    targets, groundtruth, sampling.fold_in(seeds, _PROPOSAL_SAMPLE)
                )
            found = BoxPredictions(proposals, regions, targets)
            predictions = predictions._replace(box_stages=[*predictions.box_stages, found])
        return self._predict_in_boxes(predictions, true_shapes, groundtruth, training)

    def _check(self, groundtruth: Groundtruth | None, training: bool) -> None:
        """Checks the ground truth that `predict` is given."""
        if training and groundtruth is None and self.box_stages:
            raise expected('FasterRcnn.predict', '`groundtruth` in training, to sample proposals')
        if groundtruth is not None and groundtruth.classes.shape[-1] != self.num_classes:
            raise UserError(
                f'{self.name}: expected groundtruth.classes of {self.num_classes} columns '
                f'(num_classes). Received: shape {groundtruth.classes.shape}.'
            )

    def _refine(
        self,
        predictions: Predictions,
        true_shapes: tf.Tensor,
        groundtruth: Groundtruth | None,
        training: bool,
    ) -> tuple[Proposals, Targets | None]:
        """Returns the proposals of the box stage after those that ran, and their targets."""
        number = len(predictions.box_stages)
        proposals = self.box_stages[number - 1].refine(predictions.box_stages[-1], true_shapes)
        if training:
            proposals = proposals._replace(boxes=tf.stop_gradient(proposals.boxes))
        if groundtruth is None:
            return proposals, None
        objects = _absolute_objects(predictions, groundtruth)
        return proposals, self.box_stages[number].assign(proposals.boxes, objects, groundtruth)

    def _predict_in_boxes(
        self,
        predictions: Predictions,
        true_shapes: tf.Tensor,
        groundtruth: Groundtruth | None,
        training: bool,
    ) -> Predictions:
        """Adds the raw boxes, and with ground truth the masks and keypoints that train."""
        if self._outputs.raw_detections:
            boxes = raw_boxes(self.box_stages[-1], predictions.box_stages[-1], true_shapes)
            predictions = predictions._replace(raw_boxes=boxes)
        if self.mask_stage is not None and groundtruth is not None:
            masks = self._predict_masks_of_proposals(predictions, training)
            predictions = predictions._replace(masks=masks)
        if self.keypoint_stage is not None and groundtruth is not None:
            keypoints = self.keypoint_stage.predict(
                predictions,
                groundtruth,
                training=training,
                max_positives=self.box_stages[0].params.max_positives,
            )
            predictions = predictions._replace(keypoints=keypoints)
        return predictions

    @tracing.named('postprocess')
    def postprocess(self, predictions: Predictions, true_shapes: tf.Tensor) -> dict[str, tf.Tensor]:
        proposals = predictions.proposals
        if not self.box_stages:
            return proposals_as_detections(self.rpn, predictions.anchors, proposals, true_shapes)
        detections = detect(self.box_stages, predictions.box_stages, true_shapes)
        return self._add_to_detections(detections, predictions, true_shapes)

    def predict_masks_from_boxes(
        self, predictions: Predictions, true_shapes: tf.Tensor, boxes: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Classifies given boxes, and predicts a mask in each, in place of its own detections.

        The boxes stay as they are: they are neither refined nor suppressed.

        Args:
          predictions: of `predict`.
          true_shapes: int32 [B, 3], shapes before padding.
          boxes: float32 [B, N, 4], normalized to the true image.

        Returns:
          As `postprocess`: the boxes, their best class (0-based) with its score, the scores of all
          classes, N as the number of detections, and masks where there is a mask stage.

        Raises:
          ValueError: if there is no second stage.
        """
        if not self.box_stages:
            raise expected(
                f'{self.name}: classes and masks of given boxes', 'number_of_stages 2 or 3', 1
            )
        batch, count = dimensions(boxes, 0, 1)
        regions = [
            self.classify_regions(
                stage,
                predictions.features,
                absolute_boxes(boxes, true_shapes),
                self._features_frame(predictions),
                training=False,
                context=RegionContext(tf.fill([batch], count), predictions.memory),
            )
            for stage in self.box_stages
        ]
        scores = mean_scores(self.box_stages, regions, batch, count)
        classes = tf.argmax(scores[..., 1:], axis=-1)
        detections = {
            DetectionFields.BOXES: boxes,
            DetectionFields.SCORES: tf.reduce_max(scores[..., 1:], axis=-1),
            DetectionFields.CLASSES: tf.cast(classes, tf.float32),
            DetectionFields.MULTICLASS_SCORES: scores,
            DetectionFields.NUM_DETECTIONS: tf.fill([batch], tf.cast(count, tf.float32)),
        }
        return self._add_to_detections(detections, predictions, true_shapes)

    def _add_to_detections(
        self, detections: dict[str, tf.Tensor], predictions: Predictions, true_shapes: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Adds masks, keypoints, and what `outputs` asks for."""
        maps, frame = predictions.features, self._features_frame(predictions)
        boxes = absolute_boxes(detections[DetectionFields.BOXES], true_shapes)
        if self.keypoint_stage is not None:
            detections |= self.keypoint_stage.detect(maps, boxes, detections, frame)
        shares_crops = self.mask_stage is not None and self.mask_stage.cropper is None
        if self.mask_stage is not None and not shares_crops:
            features = self.crop_for_masks(maps, boxes, frame, training=False)
            detections['detection_masks'] = self.mask_stage.detect(features, detections)
        if not shares_crops and not self._outputs.need_crops:
            return detections
        crops = self._cropper(maps, boxes, *frame)
        counts = tf.cast(detections[DetectionFields.NUM_DETECTIONS], tf.int32)
        context = RegionContext(counts, predictions.memory)
        pooled = self._pool_crops(crops, context, training=False)

        @functools.cache
        def features_of(stage: BoxStage) -> tf.Tensor:
            return self._features_of(stage, pooled, context, training=False)

        if shares_crops:
            # Masks have learnt from the features of the first stage.
            features = crops if self.mask_stage.from_crops else features_of(self.box_stages[0])
            detections['detection_masks'] = self.mask_stage.detect(features, detections)
        if self._outputs.box_features:
            features = features_of(self.box_stages[-1])
            detections[DetectionFields.FEATURES] = of_detections(features, detections)
        if self._outputs.cropped_features:
            detections[DetectionFields.CROPPED_FEATURES] = of_detections(pooled, detections)
        return detections

    def loss_names(self) -> list[str]:
        return loss_names.of_parts(
            box_stages=len(self.box_stages), masks=self.needs_masks, keypoints=self.needs_keypoints
        )

    @property
    def needs_masks(self) -> bool:
        return self.mask_stage is not None

    @property
    def needs_keypoints(self) -> bool:
        return self.keypoint_stage is not None

    @tracing.named('loss')
    def loss_sums(
        self, predictions: Predictions, groundtruth: Groundtruth, seeds: tf.Tensor | None
    ) -> dict[str, LossSum]:
        """Returns the losses of the stages; see the base class.

        Regions are matched here if `predict` was not given the ground truth.
        """
        boxes = _absolute_objects(predictions, groundtruth)
        losses = self.rpn.loss_sums(
            predictions.anchors, boxes, groundtruth, sampling.fold_in(seeds, _ANCHOR_SAMPLE)
        )
        stages = zip(self.box_stages, predictions.box_stages, strict=True)
        for number, (stage, (proposals, regions, targets)) in enumerate(stages, 1):
            if targets is None:
                targets = stage.assign(proposals.boxes, boxes, groundtruth)
            sums = stage.loss_sums(regions, proposals, targets).items()
            losses |= {loss_names.numbered(name, number): each for name, each in sums}
        if predictions.masks is not None:
            rows = predictions.masks.rows
            losses |= self.mask_stage.loss_sums(
                predictions.masks.logits,
                tf.gather(predictions.proposals_normalized, rows, batch_dims=1),
                self._mask_targets(predictions),
                groundtruth,
            )
        if predictions.keypoints is not None:
            losses |= self.keypoint_stage.loss_sums(predictions.keypoints)
        return losses

    def _mask_targets(self, predictions: Predictions) -> Targets:
        """The targets of the rows whose masks were predicted; padding has no weight."""
        is_valid = tf.cast(predictions.proposals.is_valid(), tf.float32)
        targets = predictions.targets
        targets = targets._replace(box_weights=targets.box_weights * is_valid)
        use_matmul = self.box_stages[0].params.use_matmul_gather
        return mask_stage.take_rows(targets, predictions.masks.rows, use_matmul)

    def _match(
        self,
        proposals: Proposals,
        objects: tf.Tensor,
        groundtruth: Groundtruth,
        training: bool,
        seeds: tf.Tensor | None,
    ) -> tuple[Proposals, Targets]:
        """Returns the proposals of the losses, in training a sample, and their targets."""
        if training:
            seeds = sampling.fold_in(seeds, _PROPOSAL_SAMPLE)
            return self.box_stages[0].sample(proposals, objects, groundtruth, seeds)
        return proposals, self.box_stages[0].assign(proposals.boxes, objects, groundtruth)

    def classify_regions(
        self,
        stage: BoxStage,
        features: list[tf.Tensor],
        boxes: tf.Tensor,
        frame: tuple[Any, Any],
        training: bool,
        seeds: tf.Tensor | None = None,
        context: RegionContext | None = None,
    ) -> RegionPredictions:
        """Runs the networks of a box stage.

        Args:
          stage: the stage.
          features: levels, fine to coarse, [B, Hl, Wl, C].
          boxes: float32 [B, P, 4], absolute.
          frame: height and width in pixels that the features cover.
          training: whether dropout and norms act as in training.
          seeds: of dropout, int32 [B, 2].
          context: what the boxes attend to; needed with a context stage.

        Returns:
          What they predict of the B * P boxes, image by image.
        """
        # Training stops gradients at the proposals; elsewhere all is differentiable.
        crops = self._cropper(features, boxes, *frame, box_gradients=not training)
        pooled = self._pool_crops(crops, context, training)
        box_features = self._features_of(stage, pooled, context, training)
        codes, logits = stage.head(box_features, training=training, seeds=seeds)
        codes, logits = tf.cast(codes, tf.float32), tf.cast(logits, tf.float32)
        return RegionPredictions(codes, logits, box_features, crops)

    def _pool_crops(
        self, crops: tf.Tensor, context: RegionContext | None = None, training: bool = False
    ) -> tf.Tensor:
        pooled = crops if self._pool is None else self._pool(crops)
        if self.context_stage is None:
            return pooled
        return self.context_stage.add_to_crops(pooled, context, training)

    def _features_of(
        self, stage: BoxStage, pooled: tf.Tensor, context: RegionContext | None, training: bool
    ) -> tf.Tensor:
        """Returns the features that a stage sees, of pooled crops [B * P, h, w, C]."""
        classifier = stage.classifier or self.feature_extractor.box_classifier
        features = classifier(pooled, training=training)
        if self.context_stage is None:
            return features
        return self.context_stage.add_to_features(features, context, training)

    def _features_frame(self, predictions: Predictions) -> tuple[tf.Tensor, tf.Tensor]:
        """The height and width in pixels that the feature maps of predictions cover."""
        image_shape = predictions.image_shape
        return self.feature_extractor.padded_size(image_shape[1], image_shape[2])

    def crop_for_masks(
        self, maps: list[tf.Tensor], boxes: tf.Tensor, frame: tuple[Any, Any], training: bool
    ) -> tf.Tensor:
        """Makes the mask stage's own crops of regions, which its head takes.

        Args:
          maps: levels, fine to coarse, [B, Hl, Wl, C].
          boxes: float32 [B, S, 4], absolute.
          frame: height and width in pixels that the maps cover.
          training: whether norms act as in training, and no gradients reach the boxes.

        Returns:
          [B * S, h, w, C]. The mask stage has to have a cropper.
        """
        with tf.name_scope('mask_roi_align'):
            crops = self.mask_stage.cropper(maps, boxes, *frame, box_gradients=not training)
        if self.mask_stage.from_crops:
            return crops
        return self.feature_extractor.box_classifier_features(crops, training)

    def _predict_masks_of_proposals(
        self, predictions: Predictions, training: bool
    ) -> MaskPredictions:
        """Predicts masks of the proposals that a mask loss needs.

        Args:
          predictions: of the second stage, with targets.
          training: a sample holds no more than `max_positives` positives, and only so many rows are
            predicted, or as many as the mask stage is limited to; else all are.
        """
        proposals, regions = predictions.proposals, predictions.regions
        batch, count = dimensions(proposals.scores, 0, 1)
        size = count
        if training:
            limit = self.mask_stage.max_regions or count
            size = min(self.box_stages[0].params.max_positives, limit, count)
        pads = self.mask_stage.pad_regions or not training
        rows = mask_stage.positive_rows(predictions.targets, proposals.is_valid(), size, pad=pads)
        features = shared = regions.crops if self.mask_stage.from_crops else regions.features
        if self.mask_stage.cropper is not None:
            boxes = tf.gather(proposals.boxes, rows, batch_dims=1)
            frame = self._features_frame(predictions)
            features = self.crop_for_masks(predictions.features, boxes, frame, training)
        elif training and (size < count or not pads):
            shape = shared.shape[1:]
            features = tf.reshape(shared, [batch, count, *shape])
            features = tf.reshape(tf.gather(features, rows, batch_dims=1), [-1, *shape])
        logits = self.mask_stage.head(features, training=training)
        return MaskPredictions(tf.cast(logits, tf.float32), rows)


def _absolute_objects(predictions: Predictions, groundtruth: Groundtruth) -> tf.Tensor:
    """The boxes of the objects, float32 [B, M, 4], absolute."""
    _, height, width, _ = tf.unstack(predictions.image_shape)
    return box_ops.normalized_to_absolute(groundtruth.boxes, height, width)
