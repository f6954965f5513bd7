"""Faster R-CNN (https://arxiv.org/abs/1506.01497) and Mask R-CNN (https://arxiv.org/abs/1703.06870)."""

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from object_detection.core import boxes as box_ops
from object_detection.core.fields import DetectionFields
from object_detection.core.groundtruth import Groundtruth
from object_detection.core.shapes import dimensions
from object_detection.errors import UserError
from object_detection.meta_architectures.detection_model import DetectionModel
from object_detection.meta_architectures.faster_rcnn.box_stage import (
    BoxStage,
    RoiCropper,
    num_positives,
)
from object_detection.meta_architectures.faster_rcnn.croppers import RoiAlignCropper
from object_detection.meta_architectures.faster_rcnn.extra_outputs import (
    ExtraOutputs,
    raw_detections,
)
from object_detection.meta_architectures.faster_rcnn.mask_stage import (
    MaskStage,
    positive_rows,
    take_rows,
)
from object_detection.meta_architectures.faster_rcnn.region_proposal_network import (
    Proposals,
    RegionProposalNetwork,
    proposals_as_detections,
)
from object_detection.meta_architectures.faster_rcnn.variable_names import FASTER_RCNN_NAMES
from object_detection.target_assigners.target_assigner import Targets

# Told apart in the seeds, so that the samples of the two stages and dropout do not depend on each
# other. Added to even numbers.
_ANCHOR_SAMPLE, _PROPOSAL_SAMPLE, _DROPOUT = (0, 0), (0, 1), (1, 0)

# Side of the image that variables are built for; the coarsest level (stride 128) keeps a cell.
_PROBE_SIZE = 128


class RegionPredictions(NamedTuple):
    """What the second stage makes of the regions of a batch.

    Attributes:
      crops: [B * P, h, w, C], of the features; None where there are none.
      features: what codes and logits are predicted from: [B * P, h, w, C], or the maps
        [B, H, W, C] of whole images.
      box_codes: [B * P, K or 1, D].
      class_logits: [B * P, K + 1].
    """

    crops: tf.Tensor | None
    features: tf.Tensor
    box_codes: tf.Tensor
    class_logits: tf.Tensor


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
      cropper: crops the features of regions; None with one stage.
      box_stage: the second stage, or None.
      mask_stage: the third stage, or None.
      maxpool_size, maxpool_stride: pooling of the crops before the box head.
      outputs: what is returned beside the usual; needs a second stage.
    """

    variable_names = FASTER_RCNN_NAMES

    def __init__(
        self,
        *,
        num_classes: int,
        resizer: Callable,
        feature_extractor: Any,
        rpn: RegionProposalNetwork,
        cropper: RoiCropper | RoiAlignCropper | None = None,
        box_stage: BoxStage | None = None,
        mask_stage: MaskStage | None = None,
        maxpool_size: int = 1,
        maxpool_stride: int = 1,
        outputs: ExtraOutputs | None = None,
        name: str = 'faster_rcnn',
    ):
        super().__init__(num_classes=num_classes, resizer=resizer, name=name)
        self.feature_extractor = feature_extractor
        self.rpn = rpn
        self.box_stage = box_stage
        self.mask_stage = mask_stage
        self._cropper = cropper
        self._pool = keras.layers.MaxPooling2D(maxpool_size, maxpool_stride, name='crop_pool')
        self._pools = maxpool_size > 1 or maxpool_stride > 1
        self._outputs = outputs or ExtraOutputs()

    def parts(self) -> dict[str, keras.layers.Layer]:
        layers = {**self.feature_extractor.parts(), 'rpn': self.rpn.head}
        if self.box_stage is not None:
            layers['box_head'] = self.box_stage.head
        if self.mask_stage is not None:
            layers['mask_head'] = self.mask_stage.head
        return layers

    def build_variables(self) -> None:
        # One region and not none: oneDNN's convolutions hand empty inputs through as they are.
        boxes = tf.zeros([1, 1, 4])
        maps = self.feature_extractor.empty_features(_PROBE_SIZE)
        self.rpn.head(maps)
        if self.box_stage is None:
            return
        regions = self._classify_regions(maps, boxes, (_PROBE_SIZE, _PROBE_SIZE), training=False)
        if self.mask_stage is None:
            return
        if self.mask_stage.cropper is not None:
            image_shape = tf.constant([1, _PROBE_SIZE, _PROBE_SIZE, 3])
            inputs = {'rpn_features_to_crop': maps, 'image_shape': image_shape}
            features = self._crop_for_masks(inputs, boxes, training=False)
        elif self.mask_stage.from_crops:
            features = regions.crops
        else:
            features = regions.features
        self.mask_stage.head(features)

    def normalize(self, images: tf.Tensor) -> tf.Tensor:
        return self.feature_extractor.normalize(images)

    def predict(
        self,
        images: tf.Tensor,
        true_shapes: tf.Tensor,
        training: bool = False,
        groundtruth: Groundtruth | None = None,
        seeds: tf.Tensor | None = None,
    ) -> dict[str, Any]:
        """Runs the stages that do not need final detections; see the base class.

        With `training` and ground truth the second stage sees a sample of the proposals. With
        ground truth the third stage predicts masks (`mask_predictions`) of the proposals
        `mask_rows`, so that the mask loss can be had; without, masks are the business of
        `postprocess`.
        """
        if training and groundtruth is None and self.box_stage is not None:
            raise UserError(
                'FasterRcnn.predict: training needs `groundtruth`, which proposals are sampled by.'
            )
        if groundtruth is not None and groundtruth.classes.shape[-1] != self.num_classes:
            raise UserError(
                f'{self.name}: expected groundtruth.classes of {self.num_classes} columns '
                f'(num_classes). Received: shape {groundtruth.classes.shape}.'
            )
        features = self.feature_extractor.proposal_features(images, training)
        predictions = {
            'image_shape': tf.shape(images),
            'rpn_features_to_crop': features,
            'feature_maps': features,
            **self.rpn.predict(features, *dimensions(images, 1, 2), training),
        }
        proposals = self.rpn.propose(predictions, true_shapes, training)
        if self.box_stage is not None and training:
            proposals = self.box_stage.sample(
                proposals,
                _absolute(groundtruth.boxes, images),
                groundtruth,
                _fold_in(seeds, _PROPOSAL_SAMPLE),
            )
        normalized = box_ops.absolute_to_normalized(proposals.boxes, *dimensions(images, 1, 2))
        predictions |= {
            'proposal_boxes': proposals.boxes,
            'proposal_scores': proposals.scores,
            'num_proposals': proposals.count,
            'proposal_boxes_normalized': normalized,
            'final_anchors': normalized,
        }
        if self.box_stage is None:
            return predictions
        crops, box_features, codes, logits = self._classify_regions(
            features,
            proposals.boxes,
            self.feature_extractor.padded_size(*dimensions(images, 1, 2)),
            training,
            _fold_in(seeds, _DROPOUT),
        )
        predictions |= {
            'box_classifier_features': box_features,
            'refined_box_encodings': tf.cast(codes, tf.float32),
            'class_predictions_with_background': tf.cast(logits, tf.float32),
        }
        if self._outputs.raw_detections:
            predictions |= raw_detections(self.box_stage, predictions, proposals, true_shapes)
        if self.mask_stage is not None and groundtruth is not None:
            targets = self.box_stage.assign(
                proposals.boxes, _absolute(groundtruth.boxes, images), groundtruth
            )
            shared = crops if self.mask_stage.from_crops else box_features
            predictions |= self._predict_masks_of_proposals(predictions, targets, shared, training)
        return predictions

    def postprocess(
        self, predictions: dict[str, Any], true_shapes: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        proposals = _proposals(predictions)
        if self.box_stage is None:
            return proposals_as_detections(self.rpn, predictions, proposals, true_shapes)
        detections = self.box_stage.detect(predictions, proposals, true_shapes)
        return self._add_to_detections(detections, predictions, true_shapes)

    def predict_masks_from_boxes(
        self, predictions: dict[str, Any], true_shapes: tf.Tensor, boxes: tf.Tensor
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
        if self.box_stage is None:
            raise UserError(
                f'{self.name}: classes and masks of given boxes need number_of_stages of 2 or 3. '
                'Received: 1.'
            )
        batch, count = dimensions(boxes, 0, 1)
        regions = self._classify_regions(
            predictions['rpn_features_to_crop'],
            _absolute_detections({DetectionFields.BOXES: boxes}, true_shapes),
            self._features_frame(predictions),
            training=False,
        )
        scores = self.box_stage.scores(tf.cast(regions.class_logits, tf.float32), batch, count)
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
        self,
        detections: dict[str, tf.Tensor],
        predictions: dict[str, Any],
        true_shapes: tf.Tensor,
    ) -> dict[str, tf.Tensor]:
        """Adds masks, and what `outputs` asks for."""
        boxes = _absolute_detections(detections, true_shapes)
        shares_crops = self.mask_stage is not None and self.mask_stage.cropper is None
        if self.mask_stage is not None and not shares_crops:
            features = self._crop_for_masks(predictions, boxes, training=False)
            detections['detection_masks'] = self._predict_masks(features, detections)
        if not shares_crops and not self._outputs.need_crops:
            return detections
        crops = self._cropper(
            predictions['rpn_features_to_crop'], boxes, *self._features_frame(predictions)
        )
        pooled = self._pool_crops(crops)
        uses_crops = shares_crops and self.mask_stage.from_crops
        if self._outputs.box_features or (shares_crops and not uses_crops):
            features = self.feature_extractor.box_classifier_features(pooled, training=False)
        if shares_crops:
            detections['detection_masks'] = self._predict_masks(
                crops if uses_crops else features, detections
            )
        if self._outputs.box_features:
            detections[DetectionFields.FEATURES] = _of_detections(features, detections)
        if self._outputs.cropped_features:
            detections[DetectionFields.CROPPED_FEATURES] = _of_detections(pooled, detections)
        return detections

    def loss(
        self,
        predictions: dict[str, Any],
        groundtruth: Groundtruth,
        seeds: tf.Tensor | None = None,
    ) -> dict[str, tf.Tensor]:
        image_shape = predictions['image_shape']
        boxes = box_ops.normalized_to_absolute(groundtruth.boxes, image_shape[1], image_shape[2])
        losses = self.rpn.loss(predictions, boxes, groundtruth, _fold_in(seeds, _ANCHOR_SAMPLE))
        if self.box_stage is None:
            return losses
        proposals = _proposals(predictions)
        targets = self.box_stage.assign(proposals.boxes, boxes, groundtruth)
        losses |= self.box_stage.loss(predictions, proposals, targets)
        if 'mask_predictions' in predictions:
            rows = predictions['mask_rows']
            losses |= self.mask_stage.loss(
                predictions['mask_predictions'],
                tf.gather(predictions['proposal_boxes_normalized'], rows, batch_dims=1),
                self._mask_targets(predictions, proposals, targets),
                groundtruth,
            )
        return losses

    def loss_normalizers(
        self, predictions: dict[str, Any], groundtruth: Groundtruth
    ) -> dict[str, tf.Tensor]:
        """Returns the numbers of positive regions, where losses are means of these.

        The mask loss is one, the localization loss by configuration.
        """
        has_masks = 'mask_predictions' in predictions
        counts_boxes = self.box_stage is not None and self.box_stage.params.mean_over_coordinates
        if not has_masks and not counts_boxes:
            return {}
        image_shape = predictions['image_shape']
        boxes = box_ops.normalized_to_absolute(groundtruth.boxes, image_shape[1], image_shape[2])
        proposals = _proposals(predictions)
        targets = self.box_stage.assign(proposals.boxes, boxes, groundtruth)
        normalizers = {}
        if counts_boxes:
            name = 'Loss/BoxClassifierLoss/localization_loss'
            normalizers[name] = num_positives(proposals, targets)
        if has_masks:
            targets = self._mask_targets(predictions, proposals, targets)
            positives = tf.cast(targets.box_weights > 0, tf.float32)
            normalizers['Loss/BoxClassifierLoss/mask_loss'] = tf.reduce_sum(positives)
        return normalizers

    def _mask_targets(
        self, predictions: dict[str, Any], proposals: Proposals, targets: Targets
    ) -> Targets:
        """The targets of the rows whose masks were predicted; padding has no weight."""
        is_valid = tf.cast(proposals.is_valid(), tf.float32)
        targets = targets._replace(box_weights=targets.box_weights * is_valid)
        return take_rows(targets, predictions['mask_rows'], self.box_stage.params.use_matmul_gather)

    def _classify_regions(
        self,
        features: list[tf.Tensor],
        boxes: tf.Tensor,
        frame: tuple[Any, Any],
        training: bool,
        seeds: tf.Tensor | None = None,
    ) -> RegionPredictions:
        """Runs the second stage's networks.

        Args:
          features: levels, fine to coarse, [B, Hl, Wl, C].
          boxes: float32 [B, P, 4], absolute.
          frame: height and width in pixels that the features cover.
          training: whether dropout and norms act as in training.
          seeds: of dropout, int32 [B, 2].
        """
        # Training stops gradients at the proposals; elsewhere all is differentiable.
        crops = self._cropper(features, boxes, *frame, box_gradients=not training)
        box_features = self.feature_extractor.box_classifier_features(
            self._pool_crops(crops), training
        )
        codes, logits = self.box_stage.head(box_features, training=training, seeds=seeds)
        return RegionPredictions(crops, box_features, codes, logits)

    def _pool_crops(self, crops: tf.Tensor) -> tf.Tensor:
        return self._pool(crops) if self._pools else crops

    def _features_frame(self, predictions: dict[str, Any]) -> tuple[tf.Tensor, tf.Tensor]:
        """The height and width in pixels that the feature maps of predictions cover."""
        image_shape = predictions['image_shape']
        return self.feature_extractor.padded_size(image_shape[1], image_shape[2])

    def _crop_for_masks(
        self, predictions: dict[str, Any], boxes: tf.Tensor, training: bool
    ) -> tf.Tensor:
        """Makes the mask stage's own crops of absolute boxes [B, S, 4]: [B * S, h, w, C]."""
        frame = self._features_frame(predictions)
        maps = predictions['rpn_features_to_crop']
        crops = self.mask_stage.cropper(maps, boxes, *frame, box_gradients=not training)
        if self.mask_stage.from_crops:
            return crops
        return self.feature_extractor.box_classifier_features(crops, training)

    def _predict_masks_of_proposals(
        self,
        predictions: dict[str, Any],
        targets: Targets,
        shared: tf.Tensor,
        training: bool,
    ) -> dict[str, tf.Tensor]:
        """Predicts masks of the proposals that a mask loss needs.

        Args:
          predictions: with P proposals an image.
          targets: what they are matched to.
          shared: features [B * P, h, w, C], for a mask stage that does not crop for itself.
          training: a sample holds no more than `max_positives` positives, and only so many rows are
            predicted, or as many as the mask stage is limited to; else all are.
        """
        proposals = _proposals(predictions)
        batch, count = dimensions(proposals.scores, 0, 1)
        size = count
        if training:
            limit = self.mask_stage.max_regions or count
            size = min(self.box_stage.params.max_positives, limit, count)
        pads = self.mask_stage.pad_regions or not training
        rows = positive_rows(targets, proposals.is_valid(), size, pad=pads)
        features = shared
        if self.mask_stage.cropper is not None:
            boxes = tf.gather(proposals.boxes, rows, batch_dims=1)
            features = self._crop_for_masks(predictions, boxes, training)
        elif training and (size < count or not pads):
            shape = shared.shape[1:]
            features = tf.reshape(shared, [batch, count, *shape])
            features = tf.reshape(tf.gather(features, rows, batch_dims=1), [-1, *shape])
        logits = self.mask_stage.head(features, training=training)
        return {'mask_predictions': tf.cast(logits, tf.float32), 'mask_rows': rows}

    def _predict_masks(self, features: tf.Tensor, detections: dict[str, tf.Tensor]) -> tf.Tensor:
        """Predicts the masks of final detections: float32 [B, T, h, w], probabilities."""
        logits = tf.cast(self.mask_stage.head(features, training=False), tf.float32)
        classes = tf.cast(detections['detection_classes'], tf.int32)
        masks = tf.sigmoid(self.mask_stage.select_class(logits, classes))
        return _of_detections(masks, detections)


def _absolute_detections(detections: dict[str, tf.Tensor], true_shapes: tf.Tensor) -> tf.Tensor:
    """The final boxes, float32 [B, T, 4], absolute."""
    sizes = tf.cast(true_shapes[:, :2], tf.float32)
    return detections['detection_boxes'] * tf.concat([sizes, sizes], axis=1)[:, tf.newaxis]


def _of_detections(rows: tf.Tensor, detections: dict[str, tf.Tensor]) -> tf.Tensor:
    """[B * T, ...] -> float32 [B, T, ...], zero in unused slots."""
    batch, slots = dimensions(detections['detection_scores'], 0, 1)
    rows = tf.reshape(rows, tf.concat([[batch, slots], tf.shape(rows)[1:]], axis=0))
    counts = detections['num_detections'][:, tf.newaxis]
    is_used = tf.cast(tf.range(slots), tf.float32) < counts
    is_used = tf.reshape(is_used, [batch, slots] + [1] * (len(rows.shape) - 2))
    return tf.where(is_used, tf.cast(rows, tf.float32), 0.0)


def _proposals(predictions: dict[str, Any]) -> Proposals:
    return Proposals(
        predictions['proposal_boxes'], predictions['proposal_scores'], predictions['num_proposals']
    )


def _absolute(boxes: tf.Tensor, images: tf.Tensor) -> tf.Tensor:
    return box_ops.normalized_to_absolute(boxes, *dimensions(images, 1, 2))


def _fold_in(seeds: tf.Tensor | None, use: tuple[int, int]) -> tf.Tensor | None:
    """Derives the seeds of one use from an image's seeds, int32 [B, 2]."""
    return None if seeds is None else seeds * 2 + tf.constant(use)
