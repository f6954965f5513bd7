"""What has to hold within the `model` part of a config."""

import math
from collections.abc import Iterator

from google.protobuf.message import Message

from object_detection.protos.box_predictor_pb2 import MaskRCNNBoxPredictor, RfcnBoxPredictor
from object_detection.protos.faster_rcnn_pb2 import FasterRcnn, FasterRcnnFeatureExtractor
from object_detection.protos.model_pb2 import DetectionModel
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig

ROOT = 'model.faster_rcnn'
_BOX_CODE_SIZE = 4
# Of a feature pyramid where the config has no `fpn` message.
_DEFAULT_LEVELS = (2, 6)

_AT_LEAST_ONE = (1, math.inf)
_NOT_NEGATIVE = (0, math.inf)
_SHARE = (0, 1)
_RANGES = {
    'number_of_stages': (1, 3),
    'num_classes': _AT_LEAST_ONE,
    'first_stage_atrous_rate': _AT_LEAST_ONE,
    'first_stage_box_predictor_kernel_size': _AT_LEAST_ONE,
    'first_stage_box_predictor_depth': _AT_LEAST_ONE,
    'first_stage_minibatch_size': _AT_LEAST_ONE,
    'first_stage_positive_balance_fraction': _SHARE,
    'first_stage_nms_iou_threshold': _SHARE,
    'first_stage_max_proposals': _AT_LEAST_ONE,
    'first_stage_localization_loss_weight': _NOT_NEGATIVE,
    'first_stage_objectness_loss_weight': _NOT_NEGATIVE,
}
_CROP_RANGES = {
    'initial_crop_size': _AT_LEAST_ONE,
    'maxpool_kernel_size': _AT_LEAST_ONE,
    'maxpool_stride': _AT_LEAST_ONE,
}
_SECOND_STAGE_RANGES = {
    'second_stage_batch_size': _AT_LEAST_ONE,
    'second_stage_balance_fraction': _SHARE,
    'second_stage_localization_loss_weight': _NOT_NEGATIVE,
    'second_stage_classification_loss_weight': _NOT_NEGATIVE,
    'second_stage_mask_prediction_loss_weight': _NOT_NEGATIVE,
}
_RFCN_RANGES = {
    'num_spatial_bins_height': _AT_LEAST_ONE,
    'num_spatial_bins_width': _AT_LEAST_ONE,
    'depth': _AT_LEAST_ONE,
}
_MINER_RANGES = {
    'num_hard_examples': _NOT_NEGATIVE,
    'iou_threshold': _SHARE,
    'max_negatives_per_positive': _NOT_NEGATIVE,
    'min_negatives_per_image': _NOT_NEGATIVE,
}
_NMS_RANGES = {
    'iou_threshold': _SHARE,
    'max_detections_per_class': _AT_LEAST_ONE,
    'max_total_detections': _AT_LEAST_ONE,
}
# Outputs that R-FCN has not.
_BOX_FEATURES = ('output_final_box_features', 'output_final_box_rpn_features')
# Without an entry in each there are no anchors.
_ANCHOR_LISTS = {
    'grid_anchor_generator': ('scales', 'aspect_ratios'),
    'multiscale_anchor_generator': ('aspect_ratios',),
    'flexible_grid_anchor_generator': ('anchor_grid',),
}


def has_masks(model: DetectionModel) -> bool:
    """Whether the model trains and predicts instance masks."""
    return model.faster_rcnn.number_of_stages == 3


def has_pyramid(extractor: FasterRcnnFeatureExtractor) -> bool:
    """Whether the feature extractor's type is one with a feature pyramid."""
    return '_fpn' in extractor.type


def is_rfcn(config: FasterRcnn) -> bool:
    """Whether the second stage is R-FCN's."""
    kind = config.second_stage_box_predictor.WhichOneof('box_predictor_oneof')
    return config.number_of_stages > 1 and kind == 'rfcn_box_predictor'


def check(pipeline: TrainEvalPipelineConfig) -> Iterator[str]:
    """Yields one sentence a problem of `pipeline.model` that is found without the builders."""
    kind = pipeline.model.WhichOneof('model')
    if kind is None:
        yield 'model is not set; expected model { faster_rcnn { ... } }.'
    elif kind == 'faster_rcnn':
        config = pipeline.model.faster_rcnn
        yield from _ranges(config, _RANGES, ROOT)
        yield from _resizer(config)
        yield from _feature_extractor(config)
        yield from _anchors(config)
        if config.number_of_stages in (2, 3):
            yield from _second_stage(config)
            yield from _box_predictor(config)


def _ranges(config: Message, ranges: dict[str, tuple[float, float]], path: str) -> Iterator[str]:
    for name, (low, high) in ranges.items():
        value = getattr(config, name)
        if not low <= value <= high:
            expected = f'at least {low}' if high == math.inf else f'{low} to {high}'
            received = f'{value:g}' if config.HasField(name) else f'{value:g} (not set)'
            yield f'{path}.{name}: expected {expected}. Received: {received}.'


def _resizer(config: FasterRcnn) -> Iterator[str]:
    path = f'{ROOT}.image_resizer'
    kind = config.image_resizer.WhichOneof('image_resizer_oneof')
    if kind is None:
        yield f'{path} is not set; expected e.g. fixed_shape_resizer.'
        return
    keeps_aspect = config.image_resizer.keep_aspect_ratio_resizer
    is_static = kind == 'fixed_shape_resizer' or keeps_aspect.pad_to_max_dimension
    if config.use_static_shapes and not is_static:
        yield (
            f'{ROOT}.use_static_shapes needs images of one size: use fixed_shape_resizer, or '
            f'keep_aspect_ratio_resizer with pad_to_max_dimension. Received: {path}.{kind}.'
        )


def _feature_extractor(config: FasterRcnn) -> Iterator[str]:
    path = f'{ROOT}.feature_extractor.type'
    if not config.feature_extractor.type:
        yield f'{path} is not set; expected e.g. faster_rcnn_resnet50_fpn_keras.'


def _anchors(config: FasterRcnn) -> Iterator[str]:
    path = f'{ROOT}.first_stage_anchor_generator'
    generator = config.first_stage_anchor_generator
    kind = generator.WhichOneof('anchor_generator_oneof')
    if kind is None:
        yield f'{path} is not set; expected e.g. multiscale_anchor_generator.'
        return
    path, option = f'{path}.{kind}', getattr(generator, kind)
    for name in _ANCHOR_LISTS.get(kind, ()):
        if not getattr(option, name):
            yield f'{path}.{name} is empty; without any there are no anchors.'
    if getattr(option, 'normalize_coordinates', False):
        yield (
            f'{path}.normalize_coordinates is true; Faster R-CNN needs anchors in pixels, set it '
            'to false.'
        )
    levels = _pyramid_levels(config)
    if levels is None:
        return
    if kind == 'grid_anchor_generator':
        yield (
            f'{path} makes anchors for one feature map, but {ROOT}.feature_extractor.type '
            f'{config.feature_extractor.type} has a pyramid; use multiscale_anchor_generator.'
        )
    elif kind == 'multiscale_anchor_generator' and (option.min_level, option.max_level) != levels:
        yield (
            f'{path}: anchors are made for levels {option.min_level} to {option.max_level}, but '
            f'the feature pyramid ({ROOT}.feature_extractor.fpn) has levels {levels[0]} to '
            f'{levels[1]}; set min_level and max_level alike.'
        )


def _pyramid_levels(config: FasterRcnn) -> tuple[int, int] | None:
    extractor = config.feature_extractor
    if not has_pyramid(extractor):
        return None
    if not extractor.HasField('fpn'):
        return _DEFAULT_LEVELS
    return extractor.fpn.min_level, extractor.fpn.max_level


def _second_stage(config: FasterRcnn) -> Iterator[str]:
    yield from _ranges(config, _SECOND_STAGE_RANGES, ROOT)
    if config.HasField('hard_example_miner'):
        yield from _ranges(config.hard_example_miner, _MINER_RANGES, f'{ROOT}.hard_example_miner')
    elif config.second_stage_batch_size > config.first_stage_max_proposals:
        yield (
            f'{ROOT}.second_stage_batch_size ({config.second_stage_batch_size}) must not exceed '
            f'{ROOT}.first_stage_max_proposals ({config.first_stage_max_proposals}): it is a '
            'sample of them.'
        )
    if not is_rfcn(config):
        yield from _crops(config)
    yield from _post_processing(config)


def _crops(config: FasterRcnn) -> Iterator[str]:
    yield from _ranges(config, _CROP_RANGES, ROOT)
    if config.maxpool_kernel_size > config.initial_crop_size > 0:
        yield (
            f'{ROOT}.maxpool_kernel_size ({config.maxpool_kernel_size}) must not exceed '
            f'{ROOT}.initial_crop_size ({config.initial_crop_size}).'
        )


def _post_processing(config: FasterRcnn) -> Iterator[str]:
    path = f'{ROOT}.second_stage_post_processing.batch_non_max_suppression'
    nms = config.second_stage_post_processing.batch_non_max_suppression
    yield from _ranges(nms, _NMS_RANGES, path)
    if nms.max_detections_per_class > nms.max_total_detections:
        yield (
            f'{path}.max_detections_per_class ({nms.max_detections_per_class}) must not exceed '
            f'{path}.max_total_detections ({nms.max_total_detections}).'
        )


def _box_predictor(config: FasterRcnn) -> Iterator[str]:
    path = f'{ROOT}.second_stage_box_predictor'
    kind = config.second_stage_box_predictor.WhichOneof('box_predictor_oneof')
    if kind is None:
        yield f'{path} is not set; expected mask_rcnn_box_predictor or rfcn_box_predictor.'
    rules = {'mask_rcnn_box_predictor': _mask_rcnn_head, 'rfcn_box_predictor': _rfcn_head}
    if kind not in rules:
        return
    path, predictor = f'{path}.{kind}', getattr(config.second_stage_box_predictor, kind)
    if predictor.box_code_size != _BOX_CODE_SIZE:
        yield (
            f'{path}.box_code_size: Faster R-CNN codes a box with {_BOX_CODE_SIZE} numbers. '
            f'Received: {predictor.box_code_size}.'
        )
    yield from rules[kind](config, predictor, path)


def _mask_rcnn_head(
    config: FasterRcnn, predictor: MaskRCNNBoxPredictor, path: str
) -> Iterator[str]:
    is_mask_stage = config.number_of_stages == 3
    if is_mask_stage != predictor.predict_instance_masks:
        said = str(predictor.predict_instance_masks).lower()
        yield (
            f'{path}.predict_instance_masks is {said}, but {ROOT}.number_of_stages is '
            f'{config.number_of_stages}; masks are predicted by stage 3, and by it alone.'
        )
    if is_mask_stage:
        yield from _ranges(
            predictor, {'mask_height': _AT_LEAST_ONE, 'mask_width': _AT_LEAST_ONE}, path
        )


def _rfcn_head(config: FasterRcnn, predictor: RfcnBoxPredictor, path: str) -> Iterator[str]:
    if config.number_of_stages == 3:
        yield (
            f'{ROOT}.number_of_stages is 3, but {path} predicts no masks; set it to 2, or use '
            'mask_rcnn_box_predictor.'
        )
    if has_pyramid(config.feature_extractor):
        yield (
            f'{path} needs a feature extractor of one feature map, but '
            f'{ROOT}.feature_extractor.type {config.feature_extractor.type} has a pyramid.'
        )
    for name in _BOX_FEATURES:
        if getattr(config, name):
            yield f'{ROOT}.{name} is true, but {path} makes no features of single boxes.'
    yield from _ranges(predictor, _RFCN_RANGES, path)
    for side in ('height', 'width'):
        crop, bins = f'crop_{side}', f'num_spatial_bins_{side}'
        size, number = getattr(predictor, crop), getattr(predictor, bins)
        if number > 0 and (size < 1 or size % number):
            yield f'{path}.{crop}: expected a multiple of {bins}, {number}. Received: {size}.'
