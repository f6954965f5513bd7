"""What has to hold within a FasterRcnn message, found without TensorFlow.

`build.build_detector` raises what `stage_problems` yields; the validation lists all problems: those
of the feature extractor, of the anchors, of the context and of the crops, too.
"""

import math
import re
from collections.abc import Iterator

from object_detection.config import model_rules, overrides
from object_detection.meta_architectures.faster_rcnn.extractors import EXTRACTORS
from object_detection.models import extractors
from object_detection.protos import faster_rcnn_pb2
from object_detection.protos.anchor_generator_pb2 import AnchorGenerator
from object_detection.protos.box_predictor_pb2 import RfcnBoxPredictor
from object_detection.protos.faster_rcnn_pb2 import Context, FasterRcnn, FasterRcnnFeatureExtractor
from object_detection.protos.flexible_grid_anchor_generator_pb2 import FlexibleGridAnchorGenerator
from object_detection.protos.grid_anchor_generator_pb2 import GridAnchorGenerator
from object_detection.protos.multiscale_anchor_generator_pb2 import MultiscaleAnchorGenerator

Levels = tuple[int, int]


def check_anchors(generator: AnchorGenerator, root: str) -> Iterator[str]:
    """Yields one sentence per problem of the generator itself.

    Args:
      generator: `first_stage_anchor_generator`.
      root: path of the message that contains the generator.
    """
    path = f'{root}.first_stage_anchor_generator'
    kind = generator.WhichOneof('anchor_generator_oneof')
    if kind is None:
        yield f'{path} is not set; expected e.g. multiscale_anchor_generator.'
        return
    path, option = f'{path}.{kind}', getattr(generator, kind)
    if kind not in model_rules.ANCHOR_LISTS:
        yield (
            f'{path} makes anchors relative to the image, but Faster R-CNN needs them in pixels; '
            'use multiscale_anchor_generator, flexible_grid_anchor_generator or, without a '
            'feature pyramid, grid_anchor_generator.'
        )
        return
    yield from model_rules.anchor_lists(option, kind, path)
    if getattr(option, 'normalize_coordinates', False):
        yield (
            f'{path}.normalize_coordinates is true; Faster R-CNN needs anchors in pixels, set it '
            'to false.'
        )


def check_levels(generator: AnchorGenerator, root: str, levels: Levels) -> Iterator[str]:
    """Yields one sentence per mismatch between anchors and feature maps.

    Args:
      generator, root: see `check_anchors`.
      levels: first and last level of the feature extractor; (4, 4) for one map of stride 16.
    """
    kind = generator.WhichOneof('anchor_generator_oneof')
    if kind in _FITS:
        path = f'{root}.first_stage_anchor_generator.{kind}'
        yield from _FITS[kind](getattr(generator, kind), path, root, levels)


def _grid(option: GridAnchorGenerator, path: str, root: str, levels: Levels) -> Iterator[str]:
    if levels[0] < levels[1]:
        yield (
            f'{path} makes anchors for one feature map, but {root}.feature_extractor has '
            f'{_format_levels(levels)}; use multiscale_anchor_generator or '
            'flexible_grid_anchor_generator.'
        )


def _multiscale(
    option: MultiscaleAnchorGenerator, path: str, root: str, levels: Levels
) -> Iterator[str]:
    if (option.min_level, option.max_level) != levels:
        yield (
            f'{path}: anchors are made for levels {option.min_level} to {option.max_level}, but '
            f'{root}.feature_extractor has {_format_levels(levels)}; set min_level to '
            f'{levels[0]} and max_level to {levels[1]}.'
        )


def _flexible(
    option: FlexibleGridAnchorGenerator, path: str, root: str, levels: Levels
) -> Iterator[str]:
    count = levels[1] - levels[0] + 1
    if option.anchor_grid and len(option.anchor_grid) != count:
        yield (
            f'{path}.anchor_grid: expected one for each feature map; {root}.feature_extractor has '
            f'{_format_levels(levels)}. Received: {len(option.anchor_grid)}.'
        )


def _format_levels(levels: Levels) -> str:
    low, high = levels
    if low == high:
        return f'one feature map, of level {low} (stride {2**low})'
    return f'a pyramid of levels {low} to {high}'


_FITS = {
    'grid_anchor_generator': _grid,
    'multiscale_anchor_generator': _multiscale,
    'flexible_grid_anchor_generator': _flexible,
}


FIELD = 'context_config'
# What only the attention to other images has.
MEMORY_FIELDS = (
    'max_num_context_features',
    'context_feature_length',
    'num_attention_heads',
    'num_attention_layers',
)


def has_memory(config: FasterRcnn) -> bool:
    """Returns whether boxes attend to features of other images, which a batch then needs."""
    return config.HasField(FIELD) and config.context_config.use_long_term_attention


def check_context(config: FasterRcnn, root: str, *, is_rfcn: bool) -> Iterator[str]:
    """Yields one sentence for each problem of `context_config` of the message at `root`."""
    if not config.HasField(FIELD):
        return
    context, path = config.context_config, f'{root}.{FIELD}'
    if config.number_of_stages == 1:
        yield (
            f'{path}: expected number_of_stages of 2 or 3, as the second stage attends to the '
            'context. Received: 1.'
        )
    if is_rfcn:
        yield f'{path}: expected a mask_rcnn_box_predictor. Received: rfcn_box_predictor.'
    if not (context.use_long_term_attention or context.use_self_attention):
        yield (
            f'{path}: expected use_long_term_attention or use_self_attention, since boxes attend '
            'to nothing else. Received: both false.'
        )
    if context.attention_position == faster_rcnn_pb2.ATTENTION_DEFAULT:
        yield (
            f'{path}.attention_position: expected POST_BOX_CLASSIFIER or POST_RPN. Received: '
            'ATTENTION_DEFAULT, for which the TensorFlow Object Detection API builds no attention; '
            f'remove {FIELD} for a model without.'
        )


def without_effect(context: Context) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yields names of fields that other fields leave without an effect, and the reason."""
    if not context.use_long_term_attention:
        yield MEMORY_FIELDS, 'use_long_term_attention is false'
    if not (context.use_self_attention and context.use_long_term_attention):
        yield ('self_attention_in_sequence',), 'there is one attention'


# Default number of bins along each axis.
OUTPUT_SIZES = {'roi_align': 7, 'mask_roi_align': 14, 'keypoint_roi_align': 14}
_POOLING = ('maxpool_kernel_size', 'maxpool_stride')


def check_crops(config: FasterRcnn, root: str) -> Iterator[str]:
    """Yields a sentence for each pooling of crops that RoIAlign makes."""
    if config.HasField('roi_align'):
        for name in _POOLING:
            if config.HasField(name) and getattr(config, name) != 1:
                yield (
                    f'{root}.{name}: expected 1 or none, as the crops of {root}.roi_align are not '
                    f'pooled. Received: {getattr(config, name)}.'
                )


def check_crop_levels(config: FasterRcnn, root: str, levels: tuple[int, int]) -> Iterator[str]:
    """Yields a sentence for each limit that is not a level of the feature maps.

    Args:
      config: the model's message.
      root: its path.
      levels: first and last level of the feature maps.
    """
    for field in _set_fields(config):
        message = getattr(config, field)
        low = message.min_level if message.HasField('min_level') else levels[0]
        high = message.max_level if message.HasField('max_level') else levels[1]
        if not levels[0] <= low <= high <= levels[1]:
            yield (
                f'{root}.{field}: expected {levels[0]} <= min_level <= max_level <= {levels[1]}, '
                f'the levels of the feature maps. Received: min_level {low}, max_level {high}.'
            )


def mask_crop_size(config: FasterRcnn) -> int | None:
    """Returns the side of the crops for masks; None if RoIAlign does not make them."""
    for field in ('mask_roi_align', 'roi_align'):
        if config.HasField(field):
            message = getattr(config, field)
            size = message.output_size if message.HasField('output_size') else OUTPUT_SIZES[field]
            return max(size, 1)
    return None


def _set_fields(config: FasterRcnn) -> list[str]:
    return [field for field in OUTPUT_SIZES if config.HasField(field)]


# The backbone whose stage over crops halves them without padding.
_VALID_STRIDE = 'inception_resnet_v2_slim'

# Types of the reference implementation that have no counterpart here.
_NOT_BUILT = ('faster_rcnn_pnas', 'faster_rcnn_mobilenet_v1')
_NETWORK = re.compile(r'inception_resnet_v2|inception_v2|resnet\d+')


def type_problem(type_name: str) -> str | None:
    """Returns what is wrong with a feature extractor's type, or None.

    A type is suggested only if it is the same network, since another network needs other weights.
    """
    if type_name in EXTRACTORS:
        return None
    note = overrides.NOT_BUILT if type_name in _NOT_BUILT else ''
    same = [name for name in EXTRACTORS if _network(name) == _network(type_name)]
    return overrides.unknown_choice(type_name, list(EXTRACTORS), similar=same, cutoff=0, note=note)


def _network(type_name: str) -> str | None:
    """Returns the network in the name of a type, such as 'resnet50', or the whole name."""
    found = _NETWORK.search(type_name)
    return found[0] if found else type_name


ROOT = 'model.faster_rcnn'
_MASK_RCNN = f'{ROOT}.second_stage_box_predictor.mask_rcnn_box_predictor'
_RFCN = f'{ROOT}.second_stage_box_predictor.rfcn_box_predictor'
_BOX_CODE_SIZE = 4
# Of a feature pyramid where the config has no `fpn` message.
_DEFAULT_LEVELS = (2, 6)

# Needed where crops are pooled.
_CROP_FIELDS = ('initial_crop_size', 'maxpool_kernel_size', 'maxpool_stride')
# Outputs of the second stage, the first ones not of R-FCN's.
_BOX_FEATURES = ('output_final_box_features', 'output_final_box_rpn_features')
_BOX_OUTPUTS = (*_BOX_FEATURES, 'return_raw_detections_during_predict')


def has_pyramid(extractor: FasterRcnnFeatureExtractor) -> bool:
    """Returns whether the feature extractor has a feature pyramid."""
    return extractor.type in EXTRACTORS and EXTRACTORS[extractor.type].neck is not None


def padding_multiple(config: FasterRcnn) -> int:
    """Returns the multiple to which the extractor pads sides of images; 1 means no padding."""
    extractor = config.feature_extractor
    given = extractor.pad_to_multiple if extractor.HasField('pad_to_multiple') else None
    if extractor.type not in EXTRACTORS:
        return given or 1
    return extractors.padding_multiple(EXTRACTORS[extractor.type], extractor.backbone, given)


def predicts_masks_from_crops(config: FasterRcnn) -> bool:
    """Returns whether masks are predicted from crops of a pyramid, not from box features."""
    asks = config.masks_from_crops or config.HasField('mask_roi_align')
    return has_pyramid(config.feature_extractor) and asks


def is_rfcn(config: FasterRcnn) -> bool:
    """Returns whether the second stage is the one of R-FCN."""
    if config.number_of_stages == 1:
        return False
    kind = config.second_stage_box_predictor.WhichOneof('box_predictor_oneof')
    return kind == 'rfcn_box_predictor'


def predicts_keypoints(config: FasterRcnn) -> bool:
    """Returns whether there is a keypoint head."""
    if config.number_of_stages == 1:
        return False
    predictor = config.second_stage_box_predictor
    has_boxes = predictor.WhichOneof('box_predictor_oneof') == 'mask_rcnn_box_predictor'
    return has_boxes and predictor.mask_rcnn_box_predictor.predict_keypoints


def check(config: FasterRcnn) -> Iterator[str]:
    """Yields one sentence for each problem that is found without TensorFlow."""
    yield from stage_problems(config)
    yield from _resizer(config)
    yield from _feature_extractor(config)
    yield from check_anchors(config.first_stage_anchor_generator, ROOT)
    if config.feature_extractor.type in EXTRACTORS:
        yield from _feature_maps(config)
    if config.number_of_stages in (2, 3):
        yield from _second_stage(config)
        yield from _box_predictor(config)


def stage_problems(config: FasterRcnn) -> Iterator[str]:
    """Yields one sentence for each option that the stages of the detector do not have."""
    if config.number_of_stages == 1:
        yield from _first_stage_alone(config)
    if config.number_of_stages == 3:
        yield from _mask_head(config)
    if config.number_of_stages > 1:
        yield from _cascade(config)
    yield from check_context(config, ROOT, is_rfcn=is_rfcn(config))
    if is_rfcn(config):
        for name in _BOX_FEATURES:
            if getattr(config, name):
                yield f'{ROOT}.{name} is true, but {_RFCN} makes no features of single boxes.'
    if config.feature_extractor.type in EXTRACTORS:
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


def _cascade(config: FasterRcnn) -> Iterator[str]:
    predictor = config.second_stage_box_predictor.mask_rcnn_box_predictor
    if config.cascade_stages and not predictor.HasField('box_head'):
        yield (
            f'{ROOT}.cascade_stages: expected {_MASK_RCNN}.box_head, the layers over the crops '
            'that each stage has. Received: none.'
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
        yield from check_levels(config.first_stage_anchor_generator, ROOT, levels)
        if config.number_of_stages > 1 and not is_rfcn(config):
            yield from check_crop_levels(config, ROOT, levels)
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
    extractor = config.feature_extractor
    yield from extractors.type_problems(
        EXTRACTORS, extractor, ROOT, type_problem(extractor.type), 'faster_rcnn_resnet50_fpn_keras'
    )


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
    yield from _sample_size(config)
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
    yield from check_crops(config, ROOT)
    if config.HasField('roi_align'):
        return
    for name in _CROP_FIELDS:
        if getattr(config, name) < 1:
            received = '0' if config.HasField(name) else '0 (not set)'
            yield f'{ROOT}.{name}: expected at least 1. Received: {received}.'
    if config.maxpool_kernel_size > config.initial_crop_size > 0:
        yield (
            f'{ROOT}.maxpool_kernel_size ({config.maxpool_kernel_size}) must not exceed '
            f'{ROOT}.initial_crop_size ({config.initial_crop_size}).'
        )


def _post_processing(config: FasterRcnn) -> Iterator[str]:
    path = f'{ROOT}.second_stage_post_processing.batch_non_max_suppression'
    nms = config.second_stage_post_processing.batch_non_max_suppression
    yield from model_rules.suppression(nms, path)
    yield from model_rules.calibration(
        config.second_stage_post_processing.calibration_config,
        f'{ROOT}.second_stage_post_processing.calibration_config',
        range(config.num_classes and config.num_classes + 1),
        f'class ids from 0, the background, to {config.num_classes} ({ROOT}.num_classes)',
    )


def _box_predictor(config: FasterRcnn) -> Iterator[str]:
    path = f'{ROOT}.second_stage_box_predictor'
    kind = config.second_stage_box_predictor.WhichOneof('box_predictor_oneof')
    if kind is None:
        yield f'{path} is not set; expected mask_rcnn_box_predictor or rfcn_box_predictor.'
    if kind not in ('mask_rcnn_box_predictor', 'rfcn_box_predictor'):
        return
    path, predictor = f'{path}.{kind}', getattr(config.second_stage_box_predictor, kind)
    if predictor.box_code_size != _BOX_CODE_SIZE:
        yield (
            f'{path}.box_code_size: Faster R-CNN codes a box with {_BOX_CODE_SIZE} numbers. '
            f'Received: {predictor.box_code_size}.'
        )
    if kind == 'rfcn_box_predictor':
        yield from _rfcn_head(config, predictor, path)


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
    aligned = mask_crop_size(config)
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
    # The rules of the types report those that are unknown.
    extractor = EXTRACTORS.get(config.feature_extractor.type)
    if extractor and extractor.settings.get('keeps_crops', False):
        return crop_size
    backbone = (extractor and extractor.backbone) or config.feature_extractor.backbone
    # Its layer of stride 2 has a kernel of 3 and no padding.
    return (crop_size - 1) // 2 if backbone == _VALID_STRIDE else math.ceil(crop_size / 2)


def _rfcn_head(config: FasterRcnn, predictor: RfcnBoxPredictor, path: str) -> Iterator[str]:
    if has_pyramid(config.feature_extractor):
        yield (
            f'{path} needs a feature extractor of one feature map, but '
            f'{ROOT}.feature_extractor.type {config.feature_extractor.type} has a pyramid.'
        )
    for side in ('height', 'width'):
        crop, bins = f'crop_{side}', f'num_spatial_bins_{side}'
        size, number = getattr(predictor, crop), getattr(predictor, bins)
        if number > 0 and (size < 1 or size % number):
            yield f'{path}.{crop}: expected a multiple of {bins}, {number}. Received: {size}.'
