"""Builds the matcher that a Matcher proto describes."""

from typing import Any

from object_detection.config.oneof import build_oneof
from object_detection.protos import matcher_pb2
from object_detection.targets.hungarian import HungarianMatcher
from object_detection.targets.matchers import ArgMaxMatcher, BipartiteMatcher, Matcher


def build(config: matcher_pb2.Matcher) -> Matcher:
    """Returns the matcher; raises a ValueError if none is set or its thresholds do not fit."""
    return build_oneof(config, 'matcher_oneof', BUILDERS)


def _build_argmax(config: Any) -> ArgMaxMatcher:
    thresholds = (config.matched_threshold, config.unmatched_threshold)
    return ArgMaxMatcher(
        *((None, None) if config.ignore_thresholds else thresholds),
        negatives_lower_than_unmatched=config.negatives_lower_than_unmatched,
        force_match_for_each_row=config.force_match_for_each_row,
        use_matmul_gather=config.use_matmul_gather,
    )


BUILDERS = {
    'argmax_matcher': _build_argmax,
    'bipartite_matcher': lambda config: BipartiteMatcher(
        use_matmul_gather=config.use_matmul_gather
    ),
    'hungarian_matcher': lambda config: HungarianMatcher(
        use_matmul_gather=config.use_matmul_gather
    ),
}
