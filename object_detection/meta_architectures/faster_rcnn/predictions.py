"""The predictions of the stages of Faster R-CNN, as typed values.

All are NamedTuples, which a `tf.function` can return.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from object_detection.core.fields import DetectionFields
from object_detection.meta_architectures.faster_rcnn.loss_names import numbered
from object_detection.meta_architectures.faster_rcnn.proposals import Proposals
from object_detection.models.heads.context_attention import Memory
from object_detection.targets.targets import Targets


class AnchorPredictions(NamedTuple):
    """The predictions of the first stage for N anchors.

    Attributes:
      boxes: float32 [N, 4], the anchors, absolute.
      box_codes: float32 [B, N, 4].
      objectness_logits: float32 [B, N, 1 or 2]; see `objectness`.
      level_sizes: number of anchors of each level, integers or int32 scalars.
      is_training: bool scalar, whether they were made for training.
      in_use: bool [N], False for anchors that neither train nor propose; None: all are used.
      head_features: features from which the head predicts, one entry per level.
    """

    boxes: tf.Tensor
    box_codes: tf.Tensor
    objectness_logits: tf.Tensor
    level_sizes: list[Any]
    is_training: tf.Tensor
    in_use: tf.Tensor | None = None
    head_features: list[tf.Tensor] | None = None


class RegionPredictions(NamedTuple):
    """The predictions of the second stage for P regions per image.

    Attributes:
      box_codes: float32 [B * P, K or 1, D].
      class_logits: float32 [B * P, K + 1], background first.
      features: features from which both are predicted: [B * P, h, w, C], or the maps [B, H, W, C]
        of whole images.
      crops: crops of the feature maps, [B * P, h, w, C]; None if there are none.
    """

    box_codes: tf.Tensor
    class_logits: tf.Tensor
    features: tf.Tensor | None = None
    crops: tf.Tensor | None = None


class BoxPredictions(NamedTuple):
    """What a box stage sees and predicts.

    Attributes:
      proposals: P per image; in predictions for training, the sample that trains.
      regions: its predictions for them.
      targets: targets of the proposals, from the ground truth given to `predict`; None without.
    """

    proposals: Proposals
    regions: RegionPredictions
    targets: Targets | None = None


class MaskPredictions(NamedTuple):
    """The predictions of the third stage for S of the P regions of an image.

    Attributes:
      logits: float32 [B * S, K or 1, h, w].
      rows: int32 [B, S], indices of the regions.
    """

    logits: tf.Tensor
    rows: tf.Tensor


class KeypointPredictions(NamedTuple):
    """The predictions of keypoints for S of the P regions of an image, and what they train on.

    Attributes:
      logits: float32 [B * S, K, h, w], of the cells of each keypoint's heat map.
      rows: int32 [B, S], indices of the regions.
      cells: int32 [B, S, K], the cell of each keypoint, row * w + column.
      weights: float32 [B, S, K], 0 for keypoints that do not train.
    """

    logits: tf.Tensor
    rows: tf.Tensor
    cells: tf.Tensor
    weights: tf.Tensor


class Predictions(NamedTuple):
    """The result of `FasterRcnn.predict`. Fields of stages that were not run are None.

    Attributes:
      image_shape: int32 [4], of the preprocessed images.
      features: the feature maps, fine to coarse, [B, Hl, Wl, C].
      anchors: predictions of the first stage.
      proposals: those of the first stage, P per image; in predictions for training, the sample that
        trains.
      proposals_normalized: float32 [B, P, 4], their boxes normalized to the padded image.
      final_anchors: float32 [B, P, 4], under the reference's name: the proposals, normalized;
        absolute in R-FCN.
      box_stages: what each box stage sees and predicts, the first stage the proposals above.
      raw_boxes: float32 [B, P, K or 1, 4], refined boxes before suppression, clipped and normalized
        to the true images, if the config requests them.
      masks: predictions of the third stage.
      keypoints: predictions of keypoints, with their targets.
      memory: the memory of the images that regions attend to, if there is one.
    """

    image_shape: tf.Tensor
    features: list[tf.Tensor]
    anchors: AnchorPredictions
    proposals: Proposals
    proposals_normalized: tf.Tensor
    final_anchors: tf.Tensor
    box_stages: Sequence[BoxPredictions] = ()
    raw_boxes: tf.Tensor | None = None
    masks: MaskPredictions | None = None
    keypoints: KeypointPredictions | None = None
    memory: Memory | None = None

    @property
    def regions(self) -> RegionPredictions | None:
        """The predictions of the first box stage; None if there is none."""
        return self.box_stages[0].regions if self.box_stages else None

    @property
    def targets(self) -> Targets | None:
        """The targets of the proposals; None without ground truth or box stage."""
        return self.box_stages[0].targets if self.box_stages else None

    def to_dict(self) -> dict[str, Any]:
        """Returns the predictions by the names of the reference, or by own names if it has none."""
        named = {
            'image_shape': self.image_shape,
            'rpn_features_to_crop': self.features,
            'feature_maps': self.features,
            'is_training': self.anchors.is_training,
            'rpn_box_predictor_features': self.anchors.head_features,
            'rpn_box_encodings': self.anchors.box_codes,
            'rpn_objectness_predictions_with_background': self.anchors.objectness_logits,
            'rpn_level_sizes': self.anchors.level_sizes,
            'anchors': self.anchors.boxes,
            'rpn_anchors_in_use': self.anchors.in_use,
            'proposal_boxes': self.proposals.boxes,
            'proposal_scores': self.proposals.scores,
            'num_proposals': self.proposals.count,
            'proposal_boxes_normalized': self.proposals_normalized,
            'final_anchors': self.final_anchors,
        }
        for number, stage in enumerate(self.box_stages, 1):
            of_stage = {
                'box_classifier_features': stage.regions.features,
                'refined_box_encodings': stage.regions.box_codes,
                'class_predictions_with_background': stage.regions.class_logits,
            }
            if number > 1:
                of_stage['proposal_boxes'] = stage.proposals.boxes
            named |= {numbered(name, number): value for name, value in of_stage.items()}
        if self.raw_boxes is not None:
            named |= {
                DetectionFields.RAW_BOXES: self.raw_boxes,
                # Zero, as in the reference.
                'raw_detection_feature_map_indices': tf.zeros(
                    tf.shape(self.raw_boxes)[:3], tf.int32
                ),
            }
        if self.masks is not None:
            named |= {'mask_predictions': self.masks.logits, 'mask_rows': self.masks.rows}
        if self.keypoints is not None:
            named |= {
                'keypoint_predictions': self.keypoints.logits,
                'keypoint_rows': self.keypoints.rows,
            }
        return {name: value for name, value in named.items() if value is not None}

    def items(self):
        """Returns the names and values of `to_dict`, for scripts for the reference."""
        return self.to_dict().items()
