"""The keypoints of regions (Mask R-CNN, https://arxiv.org/abs/1703.06870, section 5)."""

from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from object_detection.core.fields import DetectionFields
from object_detection.core.fields import InputFields as F
from object_detection.core.groundtruth import Groundtruth
from object_detection.core.keypoints import box_pixels, heat_maps
from object_detection.core.loss_sum import LossSum
from object_detection.core.shapes import dimensions
from object_detection.errors import expected
from object_detection.meta_architectures.faster_rcnn import loss_names
from object_detection.meta_architectures.faster_rcnn.croppers import RoiAlignCropper
from object_detection.meta_architectures.faster_rcnn.extra_outputs import of_detections
from object_detection.meta_architectures.faster_rcnn.mask_stage import positive_rows
from object_detection.meta_architectures.faster_rcnn.predictions import (
    KeypointPredictions,
    Predictions,
)
from object_detection.models.heads.keypoint_head import KeypointHead
from object_detection.targets.targets import Targets


class KeypointStage(keras.layers.Layer):
    """Predicts a heat map of each keypoint in each region, from its own crops.

    Args:
      head: predicts the heat maps of K keypoints.
      cropper: crops the features of regions.
      loss_weight: factor of the loss.
      max_regions: maximum number of positive regions per image whose keypoints train; None: no
        limit.
      pad_regions: whether training predicts the keypoints of a fixed number of regions.
      of_classes: for each class, the indices of its keypoints; None: each class has all.
      in_pixels: whether points are pixels of the boxes and scores are logits, see
        `box_pixels.decode_in_pixels`; else they are more exact than cells and scores are of 0 to 1,
        see `heat_maps.decode_heat_maps`.
    """

    def __init__(
        self,
        *,
        head: KeypointHead,
        cropper: RoiAlignCropper,
        loss_weight: float = 1.0,
        max_regions: int | None = None,
        pad_regions: bool = True,
        of_classes: Sequence[Sequence[int]] | None = None,
        in_pixels: bool = False,
        name: str = 'keypoint_stage',
    ):
        super().__init__(name=name)
        self.head = head
        self._cropper = cropper
        self._size = head.output_size(*cropper.output_size)
        self._loss_weight = loss_weight
        self._max_regions = max_regions
        self._pad_regions = pad_regions
        self._in_pixels = in_pixels
        self._has_keypoint = None
        if of_classes is not None:
            # [number of classes, K]
            has_keypoint = np.zeros((len(of_classes), head.num_keypoints), np.float32)
            for row, indices in zip(has_keypoint, of_classes, strict=True):
                row[list(indices)] = 1
            self._has_keypoint = has_keypoint

    def heat_maps(
        self, maps: list[tf.Tensor], boxes: tf.Tensor, *, training: bool = False
    ) -> tf.Tensor:
        """Predicts the logits [B * S, K, height, width] of boxes [B, S, 4], absolute."""
        with tf.name_scope('keypoint_roi_align'):
            # It crops by strides, not by the size of the image.
            crops = self._cropper(maps, boxes, None, None, box_gradients=not training)
        return tf.cast(self.head(crops, training=training), tf.float32)

    def predict(
        self,
        predictions: Predictions,
        groundtruth: Groundtruth,
        *,
        training: bool,
        max_positives: int,
    ) -> KeypointPredictions:
        """Predicts heat maps of the proposals that the loss needs, and returns their targets.

        These are the positive proposals with a labelled keypoint inside.

        Args:
          predictions: of the second stage, with targets.
          groundtruth: ground truth with keypoints.
          training: whether the proposals are a sample with at most `max_positives` positives;
            otherwise any number may be positive.
          max_positives: see above.

        Raises:
          ValueError: if the ground truth has no keypoints, or another number of them.
        """
        proposals = predictions.proposals
        cells, weights = self._targets(predictions, groundtruth)
        (count,) = dimensions(proposals.scores, 1)
        size = min(max_positives, self._max_regions or count, count) if training else count
        rows = positive_rows(
            predictions.targets,
            tf.reduce_any(weights > 0, axis=-1),
            size,
            pad=self._pad_regions and training,
        )
        boxes = tf.gather(proposals.boxes, rows, batch_dims=1)
        return KeypointPredictions(
            logits=self.heat_maps(predictions.features, boxes, training=training),
            rows=rows,
            cells=tf.gather(cells, rows, batch_dims=1),
            weights=tf.gather(weights, rows, batch_dims=1),
        )

    def loss_sums(self, predictions: KeypointPredictions) -> dict[str, LossSum]:
        """Returns the loss: the mean softmax cross entropy over the cells of the heat maps.

        It is the weighted mean over the labelled keypoints inside of the positive regions.
        """
        cells = predictions.cells
        logits = tf.reshape(predictions.logits, [*dimensions(cells, 0, 1, 2), np.prod(self._size)])
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=cells, logits=logits)
        total = tf.reduce_sum(losses * predictions.weights)
        number = tf.reduce_sum(predictions.weights)
        return {loss_names.KEYPOINTS: LossSum(self._loss_weight * total, number)}

    def detect(
        self,
        maps: list[tf.Tensor],
        boxes: tf.Tensor,
        detections: dict[str, tf.Tensor],
        frame: tuple[int | tf.Tensor, int | tf.Tensor],
    ) -> dict[str, tf.Tensor]:
        """Returns the keypoints of final detections and their scores.

        Args:
          maps: levels, fine to coarse, [B, Hl, Wl, C].
          boxes: float32 [B, T, 4], the boxes of the detections, absolute.
          detections: what is known of them.
          frame: height and width in pixels that the maps cover, and so no box exceeds.

        Returns:
          Keypoints float32 [B, T, K, 2], normalized to the true image like the boxes, and scores
          [B, T, K]; 0 in unused slots, and for keypoints that a class does not have.
        """
        normalized = tf.reshape(detections[DetectionFields.BOXES], [-1, 4])
        logits = self.heat_maps(maps, boxes)
        if self._in_pixels:
            absolute = tf.reshape(boxes, [-1, 4])
            points, scores = box_pixels.decode_in_pixels(logits, normalized, absolute, frame)
        else:
            points, scores = heat_maps.decode_heat_maps(logits, normalized)
        if self._has_keypoint is not None:
            classes = tf.cast(detections[DetectionFields.CLASSES], tf.int32)
            has_keypoint = tf.gather(self._has_keypoint, tf.reshape(classes, [-1]))
            scores *= has_keypoint
            points *= has_keypoint[..., tf.newaxis]
        return {
            DetectionFields.KEYPOINTS: of_detections(points, detections),
            DetectionFields.KEYPOINT_SCORES: of_detections(scores, detections),
        }

    def _targets(
        self, predictions: Predictions, groundtruth: Groundtruth
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the cells of keypoints, int32 [B, P, K], and weights, float32 [B, P, K]."""
        count = self.head.num_keypoints
        received = 'none' if groundtruth.keypoints is None else groundtruth.keypoints.shape[2]
        if received not in (count, None):  # None: it is only traced
            raise expected(
                'num_keypoints of the input reader', f'{count}, as the keypoint loss', received
            )
        targets: Targets = predictions.targets
        matches = tf.maximum(targets.matches, 0)
        boxes = predictions.proposals_normalized
        found = heat_maps.heat_map_targets(groundtruth.keypoints, boxes, matches, self._size)
        is_valid = predictions.proposals.is_valid() & (targets.box_weights > 0)
        weights = tf.cast(found.is_inside & is_valid[..., tf.newaxis], tf.float32)
        given = groundtruth.fields.get(F.GROUNDTRUTH_KEYPOINT_WEIGHTS)
        if given is not None:
            # 0 where there is no object: no target is inside there.
            weights *= heat_maps.gather_rows(given, matches, 0.0)
        return found.cells, weights
