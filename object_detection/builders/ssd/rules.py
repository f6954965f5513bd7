"""What has to hold within an Ssd message, found without TensorFlow.

`build.build` raises what `problems_of_parts` yields; the validation lists all problems.
"""

import math
from collections.abc import Iterator

from google.protobuf.message import Message

from object_detection.builders.ssd import extractor_types
from object_detection.protos.ssd_pb2 import Ssd

ROOT = 'model.ssd'

_AT_LEAST_ONE = (1, math.inf)
_NOT_NEGATIVE = (0, math.inf)
_SHARE = (0, 1)
_RANGES = {
    'num_classes': _AT_LEAST_ONE,
    'negative_class_weight': _NOT_NEGATIVE,
    'implicit_example_weight': _NOT_NEGATIVE,
}
_LOSS_RANGES = {'localization_weight': _NOT_NEGATIVE, 'classification_weight': _NOT_NEGATIVE}
_NMS_RANGES = {
    'iou_threshold': _SHARE,
    'max_detections_per_class': _AT_LEAST_ONE,
    'max_total_detections': _AT_LEAST_ONE,
}
_PREDICTORS = ('convolutional_box_predictor', 'weight_shared_convolutional_box_predictor')
# Message -> its `oneof` and an option of it.
_ONEOFS = {
    'image_resizer': ('image_resizer_oneof', 'fixed_shape_resizer'),
    'anchor_generator': ('anchor_generator_oneof', 'ssd_anchor_generator'),
    'box_coder': ('box_coder_oneof', 'faster_rcnn_box_coder'),
    'matcher': ('matcher_oneof', 'argmax_matcher'),
    'similarity_calculator': ('region_similarity', 'iou_similarity'),
    'box_predictor': ('box_predictor_oneof', 'convolutional_box_predictor'),
}
# Numbers of a box code; a keypoint adds two.
_CODE_SIZES = {'faster_rcnn_box_coder': 4, 'mean_stddev_box_coder': 4, 'square_box_coder': 3}


def check(config: Ssd) -> Iterator[str]:
    """Yields one sentence for each problem that is found without TensorFlow."""
    yield from _ranges(config, _RANGES, ROOT)
    for name, (oneof, example) in _ONEOFS.items():
        if getattr(config, name).WhichOneof(oneof) is None:
            yield f'{ROOT}.{name} is not set; expected e.g. {example}.'
    yield from _feature_extractor(config)
    yield from problems_of_parts(config)
    yield from _ranges(config.loss, _LOSS_RANGES, f'{ROOT}.loss')
    for name in ('localization_loss', 'classification_loss'):
        if getattr(config.loss, name).WhichOneof(name) is None:
            yield f'{ROOT}.loss.{name} is not set; expected one of its options.'
    yield from _suppression(config)


def problems_of_parts(config: Ssd) -> Iterator[str]:
    """Yields one sentence for each pair of options that do not fit each other."""
    if config.add_background_class and config.explicit_background_class:
        yield (
            f'{ROOT}.explicit_background_class is true, which says that class 1 of the label map '
            f'is background, but {ROOT}.add_background_class adds one; set one of them to false.'
        )
    yield from _box_code(config)
    yield from _confidences(config)


def _box_code(config: Ssd) -> Iterator[str]:
    predictor, coder = (
        config.box_predictor.WhichOneof('box_predictor_oneof'),
        config.box_coder.WhichOneof('box_coder_oneof'),
    )
    if predictor not in _PREDICTORS or coder is None:
        return
    size = _CODE_SIZES.get(coder, 4 + 2 * config.box_coder.keypoint_box_coder.num_keypoints)
    predicted = getattr(config.box_predictor, predictor).box_code_size
    if predicted != size:
        yield (
            f'{ROOT}.box_predictor.{predictor}.box_code_size: expected {size}, the numbers that '
            f'{ROOT}.box_coder.{coder} codes a box with. Received: {predicted}.'
        )


def _confidences(config: Ssd) -> Iterator[str]:
    if config.use_confidences_as_targets and config.explicit_background_class:
        yield (
            f'{ROOT}.use_confidences_as_targets: expected add_background_class: true or no '
            'background, as confidences are of classes of objects. '
            'Received: explicit_background_class: true.'
        )


def _feature_extractor(config: Ssd) -> Iterator[str]:
    path = f'{ROOT}.feature_extractor.type'
    if not config.feature_extractor.type:
        yield f'{path} is not set; expected e.g. ssd_mobilenet_v2_keras.'
        return
    problem = extractor_types.problem(config.feature_extractor.type)
    if problem:
        yield f'{path}: {problem}'


def _suppression(config: Ssd) -> Iterator[str]:
    path = f'{ROOT}.post_processing.batch_non_max_suppression'
    nms = config.post_processing.batch_non_max_suppression
    yield from _ranges(nms, _NMS_RANGES, path)
    if nms.max_detections_per_class > nms.max_total_detections:
        yield (
            f'{path}.max_detections_per_class ({nms.max_detections_per_class}) must not exceed '
            f'{path}.max_total_detections ({nms.max_total_detections}).'
        )


def _ranges(config: Message, ranges: dict[str, tuple[float, float]], path: str) -> Iterator[str]:
    for name, (low, high) in ranges.items():
        value = getattr(config, name)
        if not low <= value <= high:
            expected = f'at least {low}' if high == math.inf else f'{low} to {high}'
            received = f'{value:g}' if config.HasField(name) else f'{value:g} (not set)'
            yield f'{path}.{name}: expected {expected}. Received: {received}.'
