"""Rules of messages that several families of detectors have; they need no TensorFlow.

Each function yields one sentence for each problem.
"""

import math
from collections.abc import Iterator, Mapping

from google.protobuf.message import Message

from object_detection.protos.matcher_pb2 import Matcher
from object_detection.protos.post_processing_pb2 import BatchNonMaxSuppression

AT_LEAST_ONE = (1, math.inf)
NOT_NEGATIVE = (0, math.inf)
SHARE = (0, 1)

# Generators of anchors in pixels -> their lists, without which there are no anchors.
ANCHOR_LISTS = {
    'grid_anchor_generator': ('scales', 'aspect_ratios'),
    'multiscale_anchor_generator': ('aspect_ratios',),
    'flexible_grid_anchor_generator': ('anchor_grid',),
}
_SUPPRESSION_RANGES = {
    'iou_threshold': SHARE,
    'max_detections_per_class': AT_LEAST_ONE,
    'max_total_detections': AT_LEAST_ONE,
}


def ranges(config: Message, bounds: Mapping[str, tuple[float, float]], path: str) -> Iterator[str]:
    """Checks fields of the message at `path`: name of a field -> its least and greatest value."""
    for name, (low, high) in bounds.items():
        value = getattr(config, name)
        if not low <= value <= high:
            expected = f'at least {low}' if high == math.inf else f'{low} to {high}'
            received = f'{value:g}' if config.HasField(name) else f'{value:g} (not set)'
            yield f'{path}.{name}: expected {expected}. Received: {received}.'


def suppression(nms: BatchNonMaxSuppression, path: str) -> Iterator[str]:
    """Checks the non-maximum suppression at `path`."""
    yield from ranges(nms, _SUPPRESSION_RANGES, path)
    if nms.max_detections_per_class > nms.max_total_detections:
        yield (
            f'{path}.max_detections_per_class ({nms.max_detections_per_class}) must not exceed '
            f'{path}.max_total_detections ({nms.max_total_detections}).'
        )


def anchor_lists(generator: Message, kind: str, path: str) -> Iterator[str]:
    """Checks the lists of the generator of anchors at `path`, whose option is named `kind`."""
    for name in ANCHOR_LISTS.get(kind, ()):
        if not getattr(generator, name):
            yield f'{path}.{name} is empty; without any there are no anchors.'
    for index, grid in enumerate(getattr(generator, 'anchor_grid', ())):
        if not grid.base_sizes:
            place = f'{path}.anchor_grid[{index}]'
            yield f'{place}.base_sizes is empty; without any there are no anchors.'


def matched_threshold(matcher: Matcher, default: float) -> float:
    """Returns the threshold of a matcher: 0 for one that matches every object, whatever its IoU."""
    kind = matcher.WhichOneof('matcher_oneof')
    if kind is None:
        return default
    argmax = matcher.argmax_matcher
    return 0.0 if kind != 'argmax_matcher' or argmax.ignore_thresholds else argmax.matched_threshold
