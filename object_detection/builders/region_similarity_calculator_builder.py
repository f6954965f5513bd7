"""Builds the similarity that a RegionSimilarityCalculator proto describes."""

from object_detection.config.oneof import build_named
from object_detection.protos import region_similarity_calculator_pb2
from object_detection.targets.similarities import (
    IoaSimilarity,
    IouSimilarity,
    NegSqDistSimilarity,
    ThresholdedIouSimilarity,
)

Similarity = IouSimilarity | IoaSimilarity | NegSqDistSimilarity | ThresholdedIouSimilarity


BUILDERS = {
    'iou_similarity': lambda config: IouSimilarity(),
    'ioa_similarity': lambda config: IoaSimilarity(),
    'neg_sq_dist_similarity': lambda config: NegSqDistSimilarity(),
    'thresholded_iou_similarity': lambda config: ThresholdedIouSimilarity(config.iou_threshold),
}


def build(config: region_similarity_calculator_pb2.RegionSimilarityCalculator) -> Similarity:
    """Returns the similarity; raises a ValueError if none is set."""
    return build_named(config, 'region_similarity', BUILDERS)
