"""Builds the similarity that a RegionSimilarityCalculator proto describes."""

from typing import Any

from object_detection.config.oneof import build_oneof
from object_detection.errors import UserError
from object_detection.protos import region_similarity_calculator_pb2
from object_detection.targets.similarities import (
    IoaSimilarity,
    IouSimilarity,
    NegSqDistSimilarity,
    ThresholdedIouSimilarity,
)

Similarity = IouSimilarity | IoaSimilarity | NegSqDistSimilarity | ThresholdedIouSimilarity


def _thresholded(config: Any) -> ThresholdedIouSimilarity:
    if not 0 <= config.iou_threshold <= 1:
        raise UserError(
            f'{config.DESCRIPTOR.full_name}.iou_threshold: expected 0 to 1. '
            f'Received: {config.iou_threshold:g}.'
        )
    return ThresholdedIouSimilarity(config.iou_threshold)


BUILDERS = {
    'iou_similarity': lambda config: IouSimilarity(),
    'ioa_similarity': lambda config: IoaSimilarity(),
    'neg_sq_dist_similarity': lambda config: NegSqDistSimilarity(),
    'thresholded_iou_similarity': _thresholded,
}


def build(config: region_similarity_calculator_pb2.RegionSimilarityCalculator) -> Similarity:
    """Returns the similarity; raises a ValueError if none is set."""
    return build_oneof(config, 'region_similarity', BUILDERS)
