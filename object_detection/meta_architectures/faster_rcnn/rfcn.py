"""R-FCN (https://arxiv.org/abs/1605.06409)."""

from typing import Any

import tensorflow as tf

from object_detection.core import boxes as box_ops
from object_detection.core.groundtruth import Groundtruth
from object_detection.errors import expected
from object_detection.meta_architectures.faster_rcnn.box_stage import BoxStage
from object_detection.meta_architectures.faster_rcnn.context_stage import RegionContext
from object_detection.meta_architectures.faster_rcnn.faster_rcnn import FasterRcnn
from object_detection.meta_architectures.faster_rcnn.predictions import (
    Predictions,
    RegionPredictions,
)


class Rfcn(FasterRcnn):
    """Faster R-CNN whose second stage runs once an image, not once a proposal.

    The extractor's box classifier sees the whole feature map, and the head crops score maps. All
    else (proposals, samples, losses, detections) is Faster R-CNN's, but `final_anchors` of the
    predictions, which are absolute here. There are two stages, always.

    Args:
      feature_extractor: has one feature map.
      **options: arguments of `FasterRcnn`. Its stages are those of boxes alone, with heads
        `(features [B, H, W, C], boxes [B, P, 4], training, box_gradients) -> (codes [B * P, K, D],
        logits [B * P, K + 1])`, as RfcnHead is.

    Raises:
      ValueError: if the extractor has a pyramid.
    """

    def __init__(self, *, feature_extractor: Any, name: str = 'rfcn', **options: Any):
        if feature_extractor.num_levels != 1:
            raise expected(
                'R-FCN', 'a feature extractor of one map', f'{feature_extractor.num_levels} levels'
            )
        super().__init__(feature_extractor=feature_extractor, name=name, **options)

    def forward(
        self,
        images: tf.Tensor,
        true_shapes: tf.Tensor,
        training: bool,
        groundtruth: Groundtruth | None,
        seeds: tf.Tensor | None,
    ) -> Predictions:
        predictions = super().forward(images, true_shapes, training, groundtruth, seeds)
        return predictions._replace(final_anchors=predictions.proposals.boxes)

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
        del seeds, context  # nothing is dropped; there are no features of single boxes
        maps = self.feature_extractor.box_classifier_features(features[0], training)
        normalized = box_ops.absolute_to_normalized(boxes, *frame)
        # As in Faster R-CNN: training stops gradients at the proposals.
        codes, logits = stage.head(maps, normalized, training=training, box_gradients=not training)
        return RegionPredictions(tf.cast(codes, tf.float32), tf.cast(logits, tf.float32), maps)
