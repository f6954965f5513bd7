"""Builds the matcher that a Matcher proto describes."""

from typing import Any

from object_detection.config import reading
from object_detection.config.oneof import build_named
from object_detection.protos import matcher_pb2
from object_detection.targets.hungarian import HungarianMatcher
from object_detection.targets.matchers import ArgMaxMatcher, BipartiteMatcher, Matcher


def build(config: matcher_pb2.Matcher) -> Matcher:
    """Returns the matcher; raises a ValueError if none is set or its thresholds do not fit."""
    return build_named(config, 'matcher_oneof', BUILDERS)


def _build_argmax(config: Any) -> ArgMaxMatcher:
    if config.ignore_thresholds:
        names = ('matched_threshold', 'unmatched_threshold')
        reading.unused(config, names, 'ignore_thresholds is true')
        thresholds = (None, None)
    else:
        thresholds = (config.matched_threshold, config.unmatched_threshold)
    if not config.force_match_for_each_row:
        reading.unused(config, 'low_quality_matches', 'force_match_for_each_row is false')
    return ArgMaxMatcher(
        *thresholds,
        negatives_lower_than_unmatched=config.negatives_lower_than_unmatched,
        force_match_for_each_row=config.force_match_for_each_row,
        low_quality_matches=config.low_quality_matches,
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
