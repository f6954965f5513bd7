"""Rules of messages that several families of detectors have; they need no TensorFlow.

Each function yields one sentence for each problem.
"""

from collections.abc import Iterator

from google.protobuf.message import Message

from object_detection.protos.calibration_pb2 import CalibrationConfig
from object_detection.protos.losses_pb2 import FederatedLoss
from object_detection.protos.matcher_pb2 import Matcher
from object_detection.protos.post_processing_pb2 import BatchNonMaxSuppression

# Generators of anchors in pixels -> their lists, without which there are no anchors.
ANCHOR_LISTS = {
    'grid_anchor_generator': ('scales', 'aspect_ratios'),
    'multiscale_anchor_generator': ('aspect_ratios',),
    'flexible_grid_anchor_generator': ('anchor_grid',),
}
# Functions of single columns of the scores -> their maps from the id of a column.
_CALIBRATIONS = {
    'class_id_function_approximations': 'class_id_xy_pairs_map',
    'class_id_sigmoid_calibrations': 'class_id_sigmoid_parameters_map',
}


def suppression(nms: BatchNonMaxSuppression, path: str) -> Iterator[str]:
    """Checks the non-maximum suppression at `path`."""
    if nms.max_detections_per_class > nms.max_total_detections:
        yield (
            f'{path}.max_detections_per_class ({nms.max_detections_per_class}) must not exceed '
            f'{path}.max_total_detections ({nms.max_total_detections}).'
        )


def calibration(
    config: CalibrationConfig, path: str, columns: range, what_is_expected: str
) -> Iterator[str]:
    """Checks the ids of columns of the scores in the calibration at `path`.

    Args:
      config: the message.
      path: of the message.
      columns: the ids that there are; empty if the number of classes is not set.
      what_is_expected: the same in words.
    """
    kind = config.WhichOneof('calibrator')
    if kind not in _CALIBRATIONS or not columns:
        return
    name = _CALIBRATIONS[kind]
    ids = sorted(getattr(getattr(config, kind), name))
    unknown = [str(number) for number in ids if number not in columns]
    if unknown:
        yield (
            f'{path}.{kind}.{name}: expected {what_is_expected}. Received: {", ".join(unknown)}.'
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


def flags_of_federated(config: FederatedLoss, loss: str) -> dict[str, str]:
    """Returns the option of readers that a federated loss needs -> its field in the message."""
    field = f'{loss}.federated_loss.use_image_labels'
    return {'load_image_labels': field} if config.use_image_labels else {}


def matched_threshold(matcher: Matcher, default: float) -> float:
    """Returns the threshold of a matcher: 0 for one that matches every object at any IoU."""
    kind = matcher.WhichOneof('matcher_oneof')
    if kind is None:
        return default
    argmax = matcher.argmax_matcher
    return 0.0 if kind != 'argmax_matcher' or argmax.ignore_thresholds else argmax.matched_threshold
