"""What has to hold within a FasterRcnn message, found without TensorFlow.

`build.build` raises what `stage_problems` yields; the validation lists all problems.
"""

import math
from collections.abc import Iterator

from object_detection.builders.faster_rcnn import (
    anchor_rules,
    context_rules,
    crop_rules,
    extractor_types,
)
from object_detection.config import model_rules
from object_detection.config.model_rules import AT_LEAST_ONE, NOT_NEGATIVE, SHARE
from object_detection.protos.box_predictor_pb2 import MaskRCNNBoxPredictor, RfcnBoxPredictor
from object_detection.protos.faster_rcnn_pb2 import FasterRcnn, FasterRcnnFeatureExtractor

ROOT = 'model.faster_rcnn'
_MASK_RCNN = f'{ROOT}.second_stage_box_predictor.mask_rcnn_box_predictor'
_RFCN = f'{ROOT}.second_stage_box_predictor.rfcn_box_predictor'
_BOX_CODE_SIZE = 4
# Of a feature pyramid where the config has no `fpn` message.
_DEFAULT_LEVELS = (2, 6)
# Stride of the coarsest map of a backbone, to a multiple of which a pyramid pads by default.
_PYRAMID_MULTIPLE = 32

_RANGES = {
    'num_classes': AT_LEAST_ONE,
    'first_stage_atrous_rate': AT_LEAST_ONE,
    'first_stage_box_predictor_kernel_size': AT_LEAST_ONE,
    'first_stage_box_predictor_depth': AT_LEAST_ONE,
    'first_stage_minibatch_size': AT_LEAST_ONE,
    'first_stage_positive_balance_fraction': SHARE,
    'first_stage_nms_iou_threshold': SHARE,
    'first_stage_max_proposals': AT_LEAST_ONE,
    'first_stage_localization_loss_weight': NOT_NEGATIVE,
    'first_stage_objectness_loss_weight': NOT_NEGATIVE,
    'first_stage_crowd_ioa_threshold': SHARE,
    'first_stage_min_box_size': NOT_NEGATIVE,
}
_CROP_RANGES = {
    'initial_crop_size': AT_LEAST_ONE,
    'maxpool_kernel_size': AT_LEAST_ONE,
    'maxpool_stride': AT_LEAST_ONE,
}
_SECOND_STAGE_RANGES = {
    'second_stage_batch_size': AT_LEAST_ONE,
    'second_stage_balance_fraction': SHARE,
    'second_stage_localization_loss_weight': NOT_NEGATIVE,
    'second_stage_classification_loss_weight': NOT_NEGATIVE,
    'second_stage_mask_prediction_loss_weight': NOT_NEGATIVE,
    'mask_target_binarize_threshold': SHARE,
    'second_stage_keypoint_loss_weight': NOT_NEGATIVE,
}
_RFCN_RANGES = {
    'num_spatial_bins_height': AT_LEAST_ONE,
    'num_spatial_bins_width': AT_LEAST_ONE,
    'depth': AT_LEAST_ONE,
}
_MINER_RANGES = {
    'num_hard_examples': NOT_NEGATIVE,
    'iou_threshold': SHARE,
    'max_negatives_per_positive': NOT_NEGATIVE,
    'min_negatives_per_image': NOT_NEGATIVE,
}
# Outputs of the second stage, the first ones not of R-FCN's.
_BOX_FEATURES = ('output_final_box_features', 'output_final_box_rpn_features')
_BOX_OUTPUTS = (*_BOX_FEATURES, 'return_raw_detections_during_predict')
# Functions of single classes, by class id.
_CLASS_CALIBRATIONS = {
    'class_id_function_approximations': 'class_id_xy_pairs_map',
    'class_id_sigmoid_calibrations': 'class_id_sigmoid_parameters_map',
}


def has_pyramid(extractor: FasterRcnnFeatureExtractor) -> bool:
    """Returns whether the feature extractor has a feature pyramid."""
    return '_fpn' in extractor.type


def padding_multiple(config: FasterRcnn) -> int:
    """Returns the multiple to which the extractor pads sides of images; 1 means no padding."""
    extractor = config.feature_extractor
    multiple = extractor.pad_to_multiple if extractor.HasField('pad_to_multiple') else 0
    return multiple or (_PYRAMID_MULTIPLE if has_pyramid(extractor) else 1)


def predicts_masks_from_crops(config: FasterRcnn) -> bool:
    """Returns whether masks are predicted from crops of a pyramid, not from box features."""
    asks = config.masks_from_crops or config.HasField('mask_roi_align')
    return has_pyramid(config.feature_extractor) and asks


def is_rfcn(config: FasterRcnn) -> bool:
    """Returns whether the second stage is the one of R-FCN."""
    kind = config.second_stage_box_predictor.WhichOneof('box_predictor_oneof')
    return config.number_of_stages > 1 and kind == 'rfcn_box_predictor'


def predicts_keypoints(config: FasterRcnn) -> bool:
    """Returns whether there is a keypoint head."""
    predictor = config.second_stage_box_predictor
    kind = predictor.WhichOneof('box_predictor_oneof')
    has_boxes = config.number_of_stages > 1 and kind == 'mask_rcnn_box_predictor'
    return has_boxes and predictor.mask_rcnn_box_predictor.predict_keypoints


def check(config: FasterRcnn) -> Iterator[str]:
    """Yields one sentence for each problem that is found without TensorFlow."""
    yield from stage_problems(config)
    yield from model_rules.ranges(config, _RANGES, ROOT)
    yield from _resizer(config)
    yield from _feature_extractor(config)
    yield from anchor_rules.check(config.first_stage_anchor_generator, ROOT)
    if config.feature_extractor.type in extractor_types.TYPES:
        yield from _feature_maps(config)
    if config.number_of_stages in (2, 3):
        yield from _second_stage(config)
        yield from _box_predictor(config)


def stage_problems(config: FasterRcnn) -> Iterator[str]:
    """Yields one sentence for each option that the stages of the detector do not have."""
    yield from model_rules.ranges(config, {'number_of_stages': (1, 3)}, ROOT)
    if config.number_of_stages == 1:
        yield from _first_stage_alone(config)
    if config.number_of_stages == 3:
        yield from _mask_head(config)
    yield from context_rules.check(config, ROOT, is_rfcn=is_rfcn(config))
    if is_rfcn(config):
        for name in _BOX_FEATURES:
            if getattr(config, name):
                yield f'{ROOT}.{name} is true, but {_RFCN} makes no features of single boxes.'
    if config.feature_extractor.type in extractor_types.TYPES:
        yield from _options_of_pyramids(config)


def _mask_head(config: FasterRcnn) -> Iterator[str]:
    kind = config.second_stage_box_predictor.WhichOneof('box_predictor_oneof')
    predictor = config.second_stage_box_predictor.mask_rcnn_box_predictor
    if kind == 'mask_rcnn_box_predictor' and not predictor.predict_instance_masks:
        yield (
            f'{_MASK_RCNN}.predict_instance_masks is false, but {ROOT}.number_of_stages is 3, '
            'whose third stage predicts masks; set it to true, or number_of_stages to 2.'
        )
    if is_rfcn(config):
        yield (
            f'{ROOT}.number_of_stages is 3, but {_RFCN} predicts no masks; set it to 2, or use '
            'mask_rcnn_box_predictor.'
        )


def _options_of_pyramids(config: FasterRcnn) -> Iterator[str]:
    if has_pyramid(config.feature_extractor):
        return
    if config.number_of_stages == 3 and config.masks_from_crops and not is_rfcn(config):
        yield (
            f'{ROOT}.masks_from_crops: expected a feature extractor with a pyramid, as one '
            'without predicts masks from the last stage of its backbone. '
            f'Received: {config.feature_extractor.type}.'
        )
    if config.second_stage_box_predictor.mask_rcnn_box_predictor.HasField('box_head'):
        yield (
            f'{_MASK_RCNN}.box_head: expected a feature extractor with a pyramid, as one without '
            'classifies by the last stage of its backbone. '
            f'Received: {config.feature_extractor.type}.'
        )


def _feature_maps(config: FasterRcnn) -> Iterator[str]:
    """Yields mismatches with the feature maps; the type of the extractor must be known."""
    levels = _levels(config.feature_extractor)
    if levels is not None:
        yield from anchor_rules.check_levels(config.first_stage_anchor_generator, ROOT, levels)
        if config.number_of_stages > 1 and not is_rfcn(config):
            yield from crop_rules.check_levels(config, ROOT, levels)
    if config.number_of_stages == 3:
        yield from _upsampling(config)


def _resizer(config: FasterRcnn) -> Iterator[str]:
    path = f'{ROOT}.image_resizer'
    kind = config.image_resizer.WhichOneof('image_resizer_oneof')
    if kind is None:
        yield f'{path} is not set; expected e.g. fixed_shape_resizer.'
        return
    keeps_aspect = config.image_resizer.keep_aspect_ratio_resizer
    pads = keeps_aspect.pad_to_max_dimension or keeps_aspect.pad_height > 0
    is_static = kind == 'fixed_shape_resizer' or pads
    if config.use_static_shapes and not is_static:
        yield (
            f'{ROOT}.use_static_shapes needs images of one size: use fixed_shape_resizer, or '
            f'keep_aspect_ratio_resizer with pad_height and pad_width. Received: {path}.{kind}.'
        )


def _feature_extractor(config: FasterRcnn) -> Iterator[str]:
    path = f'{ROOT}.feature_extractor.type'
    if not config.feature_extractor.type:
        yield f'{path} is not set; expected e.g. faster_rcnn_resnet50_fpn_keras.'
        return
    problem = extractor_types.problem(config.feature_extractor.type)
    if problem:
        yield f'{path}: {problem}'


def _levels(extractor: FasterRcnnFeatureExtractor) -> tuple[int, int] | None:
    """Returns the first and last level of the feature maps; None if options are invalid."""
    if not has_pyramid(extractor):
        level = max(extractor.first_stage_features_stride, 1).bit_length() - 1
        return (level, level) if 2**level == extractor.first_stage_features_stride else None
    if not extractor.HasField('fpn'):
        return _DEFAULT_LEVELS
    low, high = extractor.fpn.min_level, extractor.fpn.max_level
    return (low, high) if low <= high else None


def _first_stage_alone(config: FasterRcnn) -> Iterator[str]:
    for name in _BOX_OUTPUTS:
        if getattr(config, name):
            yield (
                f'{ROOT}.{name} is true, but {ROOT}.number_of_stages: 1 has no box classifier, '
                'which it is about; set it to false.'
            )


def _second_stage(config: FasterRcnn) -> Iterator[str]:
    yield from model_rules.ranges(config, _SECOND_STAGE_RANGES, ROOT)
    yield from _sample_size(config)
    if config.HasField('hard_example_miner'):
        yield from model_rules.ranges(
            config.hard_example_miner, _MINER_RANGES, f'{ROOT}.hard_example_miner'
        )
    if not is_rfcn(config):
        yield from _crops(config)
    yield from _post_processing(config)


def _sample_size(config: FasterRcnn) -> Iterator[str]:
    size, proposals = config.second_stage_batch_size, config.first_stage_max_proposals
    if size > proposals and not config.HasField('hard_example_miner'):
        yield (
            f'{ROOT}.second_stage_batch_size ({size}) must not exceed '
            f'{ROOT}.first_stage_max_proposals ({proposals}): it is a sample of them.'
        )


def _crops(config: FasterRcnn) -> Iterator[str]:
    yield from crop_rules.check(config, ROOT)
    if config.HasField('roi_align'):
        return
    yield from model_rules.ranges(config, _CROP_RANGES, ROOT)
    if config.maxpool_kernel_size > config.initial_crop_size > 0:
        yield (
            f'{ROOT}.maxpool_kernel_size ({config.maxpool_kernel_size}) must not exceed '
            f'{ROOT}.initial_crop_size ({config.initial_crop_size}).'
        )


def _post_processing(config: FasterRcnn) -> Iterator[str]:
    path = f'{ROOT}.second_stage_post_processing.batch_non_max_suppression'
    nms = config.second_stage_post_processing.batch_non_max_suppression
    yield from model_rules.suppression(nms, path)
    yield from _calibration(config)


def _calibration(config: FasterRcnn) -> Iterator[str]:
    calibration = config.second_stage_post_processing.calibration_config
    kind = calibration.WhichOneof('calibrator')
    if kind not in _CLASS_CALIBRATIONS or config.num_classes < 1:
        return
    name = _CLASS_CALIBRATIONS[kind]
    ids = sorted(getattr(getattr(calibration, kind), name))
    unknown = [str(number) for number in ids if not 0 <= number <= config.num_classes]
    if unknown:
        path = f'{ROOT}.second_stage_post_processing.calibration_config.{kind}.{name}'
        yield (
            f'{path}: expected class ids from 0, the background, to {config.num_classes} '
            f'({ROOT}.num_classes). Received: {", ".join(unknown)}.'
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
    keep = predictor.dropout_keep_probability
    if not 0 < keep <= 1:
        yield f'{path}.dropout_keep_probability: expected above 0, up to 1. Received: {keep:g}.'
    if config.number_of_stages == 3:
        yield from model_rules.ranges(
            predictor, {'mask_height': AT_LEAST_ONE, 'mask_width': AT_LEAST_ONE}, path
        )


def _upsampling(config: FasterRcnn) -> Iterator[str]:
    predictor = config.second_stage_box_predictor.mask_rcnn_box_predictor
    sides = (predictor.mask_height, predictor.mask_width)
    size = _mask_features_size(config)
    path = f'{ROOT}.second_stage_box_predictor.mask_rcnn_box_predictor'
    if predictor.mask_head_deconv and size and sides != (2 * size, 2 * size):
        yield (
            f'{path}.mask_head_deconv: expected a mask_height and mask_width of {2 * size}, twice '
            f'the size of the features. Received: {sides[0]} and {sides[1]}.'
        )
    if predictor.convolve_then_upsample_masks and size and any(side % size for side in sides):
        yield (
            f'{path}.convolve_then_upsample_masks: expected mask_height and mask_width to be '
            f'multiples of {size}, the size of the features that they are enlarged from. '
            f'Received: {sides[0]} and {sides[1]}.'
        )


def _mask_features_size(config: FasterRcnn) -> int | None:
    """Returns the side of the features for masks; None if the crop options are invalid."""
    aligned = crop_rules.mask_crop_size(config)
    crop, kernel = config.initial_crop_size, config.maxpool_kernel_size
    if aligned is None and (min(crop, kernel, config.maxpool_stride) < 1 or kernel > crop):
        return None
    if predicts_masks_from_crops(config):
        return aligned or crop
    return _classified_size(config, aligned or (crop - kernel) // config.maxpool_stride + 1)


def _classified_size(config: FasterRcnn, crop_size: int) -> int:
    """Returns the side of the output of the box classifier for crops."""
    if has_pyramid(config.feature_extractor):
        predictor = config.second_stage_box_predictor.mask_rcnn_box_predictor
        has_convs_alone = predictor.HasField('box_head') and not predictor.box_head.num_fcs
        return crop_size if has_convs_alone else 1
    halves = extractor_types.halves_crops(config.feature_extractor.type)
    return math.ceil(crop_size / 2) if halves else crop_size


def _rfcn_head(config: FasterRcnn, predictor: RfcnBoxPredictor, path: str) -> Iterator[str]:
    if has_pyramid(config.feature_extractor):
        yield (
            f'{path} needs a feature extractor of one feature map, but '
            f'{ROOT}.feature_extractor.type {config.feature_extractor.type} has a pyramid.'
        )
    yield from model_rules.ranges(predictor, _RFCN_RANGES, path)
    for side in ('height', 'width'):
        crop, bins = f'crop_{side}', f'num_spatial_bins_{side}'
        size, number = getattr(predictor, crop), getattr(predictor, bins)
        if number > 0 and (size < 1 or size % number):
            yield f'{path}.{crop}: expected a multiple of {bins}, {number}. Received: {size}.'
