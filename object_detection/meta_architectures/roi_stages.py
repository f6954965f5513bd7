"""The second stage of Faster R-CNN (boxes and classes) and the third of Mask R-CNN (masks).

Faster R-CNN, https://arxiv.org/abs/1506.01497; Mask R-CNN, https://arxiv.org/abs/1703.06870.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from object_detection.core import boxes as box_ops
from object_detection.core import execution, replicas, roi_align, sampling
from object_detection.core import masks as mask_ops
from object_detection.core.groundtruth import Groundtruth
from object_detection.core.post_processing import Detections
from object_detection.meta_architectures.region_proposals import (
    Proposals,
    true_image_windows,
)
from object_detection.target_assigners.target_assigner import TargetAssigner, Targets


class RoiCropper:
    """Crops the features of regions to one size.

    Args:
      crop_size: height and width of a crop.
      use_matmul: crop by matrix products where XLA compiles; TensorFlow's kernel does it elsewhere.
    """

    def __init__(self, *, crop_size: int, use_matmul: bool):
        self._crop_size = (crop_size, crop_size)
        self._use_matmul = use_matmul

    def __call__(
        self, features: list[tf.Tensor], boxes: tf.Tensor, height: Any, width: Any
    ) -> tf.Tensor:
        """Crops each box from the pyramid level that fits its size.

        Args:
          features: levels, fine to coarse, [B, Hl, Wl, C].
          boxes: float32 [B, P, 4], absolute.
          height, width: size of the images that the features cover.

        Returns:
          [B * P, crop_size, crop_size, C].
        """
        normalized = tf.stop_gradient(box_ops.absolute_to_normalized(boxes, height, width))
        use_matmul = self._use_matmul and execution.is_compiled()
        if len(features) == 1:
            crops = roi_align.crop_and_resize(
                features[0], normalized, self._crop_size, use_matmul=use_matmul
            )
        else:
            levels = roi_align.fpn_levels(normalized, height, width, len(features))
            crops = roi_align.multilevel_crop_and_resize(
                features, normalized, levels, self._crop_size, use_matmul=use_matmul
            )
        return tf.reshape(crops, [-1, *self._crop_size, features[0].shape[-1]])


@dataclasses.dataclass(frozen=True)
class BoxStageParams:
    """Numbers of the second stage.

    Attributes:
      batch_size: proposals an image that training samples.
      positive_fraction: at most this share of them is positive.
      localization_weight, classification_weight: factors of the losses.
      use_matmul_gather: gather rows by one-hot products where XLA compiles.
    """

    batch_size: int
    positive_fraction: float
    localization_weight: float
    classification_weight: float
    use_matmul_gather: bool

    @property
    def max_positives(self) -> int:
        """Most positive proposals that training samples in an image."""
        return int(self.batch_size * self.positive_fraction)


class BoxStage(keras.layers.Layer):
    """Classifies proposals and refines their boxes.

    Args:
      head: `(features [R, h, w, C], training) -> (codes [R, K or 1, 4], logits [R, K + 1])`.
      target_assigner: matches proposals to ground truth; its coder decodes the codes too.
      localization_loss: `(codes, targets, weights [B, P]) -> [B, P]`.
      classification_loss: `(logits, targets, weights [B, P, 1]) -> [B, P] or [B, P, K + 1]`.
      nms: multi-class non-maximum suppression.
      score_converter: logits -> scores.
      params: the numbers.
      num_classes: K.
    """

    def __init__(
        self,
        *,
        head: keras.layers.Layer,
        target_assigner: TargetAssigner,
        localization_loss: Callable,
        classification_loss: Callable,
        nms: Callable[..., Detections],
        score_converter: Callable[[tf.Tensor], tf.Tensor],
        params: BoxStageParams,
        num_classes: int,
        name: str = 'box_stage',
    ):
        super().__init__(name=name)
        self.head = head
        self.target_assigner = target_assigner
        self.params = params
        self._localization_loss = localization_loss
        self._classification_loss = classification_loss
        self._nms = nms
        self._score_converter = score_converter
        self._num_classes = num_classes

    def assign(
        self, boxes: tf.Tensor, groundtruth_boxes: tf.Tensor, groundtruth: Groundtruth
    ) -> Targets:
        """Matches proposals float32 [B, P, 4] to ground truth [B, M, 4], both absolute."""
        background = tf.zeros_like(groundtruth.weights)[..., tf.newaxis]
        unmatched = tf.one_hot(0, self._num_classes + 1)
        return self.target_assigner.assign(
            boxes,
            groundtruth_boxes,
            tf.concat([background, groundtruth.classes], axis=-1),
            groundtruth.weights,
            unmatched,
        )

    def sample(
        self,
        proposals: Proposals,
        groundtruth_boxes: tf.Tensor,
        groundtruth: Groundtruth,
        seeds: tf.Tensor | None,
    ) -> Proposals:
        """Draws `batch_size` proposals an image to train on, in the order of the proposals."""
        batch, rows = tf.unstack(tf.shape(proposals.scores))
        targets = self.assign(proposals.boxes, groundtruth_boxes, groundtruth)
        sampled = sampling.sample_balanced(
            proposals.is_valid() & (targets.class_weights > 0),
            _is_positive(targets),
            self.params.batch_size,
            self.params.positive_fraction,
            sampling.sampling_noise(seeds, rows, batch),
        )
        indices, is_valid = sampling.sampled_indices(sampled, self.params.batch_size)
        keep = tf.cast(is_valid, tf.float32)

        def take(rows: tf.Tensor) -> tf.Tensor:
            use_matmul = self.params.use_matmul_gather and execution.is_compiled()
            return sampling.gather_rows(rows, indices, use_matmul)

        return Proposals(
            boxes=take(proposals.boxes) * keep[..., tf.newaxis],
            scores=take(proposals.scores) * keep,
            count=tf.reduce_sum(tf.cast(is_valid, tf.int32), axis=1),
        )

    def loss(
        self, predictions: dict[str, Any], proposals: Proposals, targets: Targets
    ) -> dict[str, tf.Tensor]:
        """Returns the localization and classification losses of `proposals`."""
        batch, rows = tf.unstack(tf.shape(proposals.scores))
        count = tf.cast(proposals.count, tf.float32)[:, tf.newaxis]
        share = tf.cast(proposals.is_valid(), tf.float32)
        share /= tf.maximum(count, 1.0) * tf.cast(batch, tf.float32)
        codes = predictions['refined_box_encodings']
        codes = tf.reshape(codes, [batch, rows, *codes.shape[1:]])
        if codes.shape[2] == 1:
            codes = codes[:, :, 0]
        else:
            target_class = tf.argmax(targets.class_targets, axis=-1)
            # Background (-1 after the shift) selects no row: zeros, of weight zero.
            rows_of_class = tf.one_hot(target_class - 1, self._num_classes)
            codes = tf.einsum('bpk,bpkd->bpd', rows_of_class, codes)
        logits = predictions['class_predictions_with_background']
        logits = tf.reshape(logits, [batch, rows, self._num_classes + 1])
        localization = self._localization_loss(
            codes, targets.box_targets, targets.box_weights * share
        )
        classification = self._classification_loss(
            logits, targets.class_targets, (targets.class_weights * share)[..., tf.newaxis]
        )
        return {
            'Loss/BoxClassifierLoss/localization_loss': self.params.localization_weight
            * tf.reduce_sum(localization),
            'Loss/BoxClassifierLoss/classification_loss': self.params.classification_weight
            * tf.reduce_sum(classification),
        }

    def detect(
        self,
        predictions: dict[str, Any],
        proposals: Proposals,
        true_shapes: tf.Tensor,
    ) -> dict[str, tf.Tensor]:
        """Decodes, suppresses and re-frames the boxes to the true images."""
        batch, rows = tf.unstack(tf.shape(proposals.scores))
        codes = predictions['refined_box_encodings']
        codes = tf.reshape(codes, [batch, rows, *codes.shape[1:]])
        boxes = self.target_assigner.box_coder.decode(codes, proposals.boxes[:, :, tf.newaxis])
        logits = predictions['class_predictions_with_background']
        scores = self._score_converter(tf.reshape(logits, [batch, rows, self._num_classes + 1]))
        windows = true_image_windows(true_shapes)
        anchor_indices = tf.tile(tf.range(rows, dtype=tf.int32)[tf.newaxis], [batch, 1])
        detections = self._nms(
            boxes,
            scores[..., 1:],
            clip_window=windows,
            num_valid_boxes=proposals.count,
            change_coordinate_frame=True,
            additional_fields={'multiclass_scores': scores, 'anchor_indices': anchor_indices},
        )
        return {
            'detection_boxes': detections.boxes,
            'detection_scores': detections.scores,
            'detection_classes': detections.classes,
            'detection_multiclass_scores': detections.additional_fields['multiclass_scores'],
            'detection_anchor_indices': tf.cast(
                detections.additional_fields['anchor_indices'], tf.float32
            ),
            'num_detections': tf.cast(detections.num_detections, tf.float32),
            'raw_detection_boxes': _best_class_boxes(boxes, scores, windows),
            'raw_detection_scores': scores,
        }


class MaskStage(keras.layers.Layer):
    """Predicts a mask inside each region.

    Args:
      head: `(features [R, h, w, C], training) -> logits [R, K or 1, mask height, mask width]`.
      loss_weight: factor of the loss.
      use_matmul: crop targets by matrix products where XLA compiles.
    """

    def __init__(
        self,
        *,
        head: keras.layers.Layer,
        loss_weight: float,
        use_matmul: bool,
        name: str = 'mask_stage',
    ):
        super().__init__(name=name)
        self.head = head
        self._loss_weight = loss_weight
        self._use_matmul = use_matmul

    def loss(
        self, logits: tf.Tensor, boxes: tf.Tensor, targets: Targets, groundtruth: Groundtruth
    ) -> dict[str, tf.Tensor]:
        """Returns the mask loss: the mean over the pixels of all positive regions of the batch.

        The mean is over the batches of all replicas. Mean over images, as the losses of boxes are,
        it would weigh an object by how few others its image has.

        Args:
          logits: float32 [B * S, K or 1, h, w].
          boxes: float32 [B, S, 4], normalized to the padded image.
          targets: what the regions are matched to.
          groundtruth: gives the masks.

        Raises:
          ValueError: if the ground truth holds no masks.
        """
        if groundtruth.masks is None:
            raise ValueError(
                'The mask loss needs ground truth masks, but there are none: set '
                'load_instance_masks: true in the input reader.'
            )
        size = tuple(logits.shape[2:4])
        matches = tf.maximum(targets.matches, 0)
        if groundtruth.masks_are_crops:
            wanted = mask_ops.mask_targets_from_crops(
                groundtruth.masks,
                groundtruth.boxes,
                boxes,
                matches,
                size,
                use_matmul=self._use_matmul and execution.is_compiled(),
            )
        else:
            wanted = mask_ops.mask_targets_from_images(groundtruth.masks, boxes, matches, size)
        predicted = self.select_class(logits, _target_class(targets))
        predicted = tf.reshape(predicted, tf.shape(wanted))
        weights = tf.cast(targets.box_weights > 0, tf.float32)
        losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=wanted, logits=predicted)
        total = tf.reduce_sum(losses * weights[:, :, tf.newaxis, tf.newaxis])
        normalizer = replicas.global_normalizer(tf.reduce_sum(weights) * size[0] * size[1])
        return {'Loss/BoxClassifierLoss/mask_loss': self._loss_weight * total / normalizer}

    @staticmethod
    def select_class(logits: tf.Tensor, classes: tf.Tensor) -> tf.Tensor:
        """Takes each region's channel: [R, K or 1, h, w] and int32 [B, S] -> [R, h, w]."""
        if logits.shape[1] == 1:
            return logits[:, 0]
        return tf.gather(logits, tf.reshape(classes, [-1]), axis=1, batch_dims=1)


def positive_rows(targets: Targets, is_valid: tf.Tensor, size: int) -> tf.Tensor:
    """Chooses the rows whose masks train: all positives, filled up with other rows.

    Args:
      targets: of P regions an image.
      is_valid: bool [B, P].
      size: S, at least the number of positives of any image.

    Returns:
      Row indices int32 [B, S] in ascending order.
    """
    rows = tf.shape(is_valid)[1]
    order = tf.range(rows, dtype=tf.int32)[tf.newaxis]
    rank = tf.where(_is_positive(targets) & is_valid, order - rows, order)
    return tf.sort(tf.math.top_k(-rank, size, sorted=True).indices, axis=1)


def take_rows(targets: Targets, indices: tf.Tensor, use_matmul: bool) -> Targets:
    """Gathers rows [B, S] of every field [B, P, ...]; by products only where XLA compiles."""
    use_matmul = use_matmul and execution.is_compiled()
    return Targets(
        *(
            # Matches may be negative, which only the plain gather keeps at any size.
            tf.gather(field, indices, batch_dims=1)
            if field.dtype.is_integer
            else sampling.gather_rows(field, indices, use_matmul)
            for field in targets
        )
    )


def _is_positive(targets: Targets) -> tf.Tensor:
    """bool [B, P]: matched to an object of a class other than background."""
    return tf.argmax(targets.class_targets, axis=-1) > 0


def _target_class(targets: Targets) -> tf.Tensor:
    """int32 [B, P], 0-based without background; 0 for background (its weight is zero)."""
    with_background = tf.argmax(targets.class_targets, axis=-1, output_type=tf.int32)
    return tf.maximum(with_background - 1, 0)


def _best_class_boxes(boxes: tf.Tensor, scores: tf.Tensor, windows: tf.Tensor) -> tf.Tensor:
    """[B, P, K or 1, 4], [B, P, K + 1] -> [B, P, 4], normalized to the true images and clipped."""
    if boxes.shape[2] == 1:
        best = boxes[:, :, 0]
    else:
        best = tf.gather(boxes, tf.argmax(scores[..., 1:], axis=-1), axis=2, batch_dims=2)
    best = box_ops.clip(best, windows)
    return box_ops.change_frame(best, windows)
