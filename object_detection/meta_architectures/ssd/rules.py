"""What has to hold within an Ssd message, found without TensorFlow.

`build.build_detector` raises what `problems_of_parts` yields; the validation lists all problems.
"""

from collections.abc import Iterator, Mapping

from google.protobuf import text_format

from object_detection.config import model_rules, overrides
from object_detection.meta_architectures.ssd.extractors import EXTRACTORS, num_maps
from object_detection.models import extractors
from object_detection.protos.post_processing_pb2 import PostProcessing
from object_detection.protos.ssd_pb2 import Ssd

_SIX_MAPS = 'ssd_mobilenet_v2_keras'
_SSDLITE = f'{_SIX_MAPS} with use_depthwise: true'

# Types of the reference implementation that are not built here -> what comes nearest in size and
# in the strides of its maps.
NEAREST: Mapping[str, str] = {
    'ssd_pnasnet': 'ssd_resnet101_v1_fpn_keras',
    'ssd_spaghettinet': _SSDLITE,
}


def type_problem(type_name: str) -> str | None:
    """Returns what is wrong with a feature extractor's type, or None.

    It continues the name of the field, such as 'expected ...'.
    """
    if type_name in EXTRACTORS:
        return None
    note = ''
    if type_name in NEAREST:
        note = f'{overrides.NOT_BUILT}; the nearest one is {NEAREST[type_name]}'
    return overrides.unknown_choice(type_name, list(EXTRACTORS), note=note)


ROOT = 'model.ssd'

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
# Generator -> what says for how many maps it has anchors.
_LEVELS = {
    'flexible_grid_anchor_generator': ', the number of its anchor_grid',
    'grid_anchor_generator': '',
    'multiscale_anchor_generator': ', from its min_level to its max_level',
    'ssd_anchor_generator': ', its num_layers',
}
# Neck -> the field that describes its pyramid.
_PYRAMIDS = {'bifpn': 'bifpn', 'fpn': 'fpn', 'mnasfpn': 'fpn'}
# Numbers of a box code; a keypoint adds two.
_CODE_SIZES = {
    **{'distance_box_coder': 4, 'faster_rcnn_box_coder': 4},
    **{'mean_stddev_box_coder': 4, 'square_box_coder': 3},
}


def padding_multiple(config: Ssd) -> int:
    """Returns the multiple to which the extractor pads sides of images; 1 means no padding."""
    extractor = config.feature_extractor
    given = max(extractor.pad_to_multiple, 1)
    if extractor.type not in EXTRACTORS:
        return given
    return extractors.padding_multiple(EXTRACTORS[extractor.type], extractor.backbone, given)


def check(config: Ssd) -> Iterator[str]:
    """Yields one sentence for each problem that is found without TensorFlow."""
    has_points = _matches_points(config)
    for name, (oneof, example) in _ONEOFS.items():
        if has_points and name == 'similarity_calculator':
            continue
        if getattr(config, name).WhichOneof(oneof) is None:
            yield f'{ROOT}.{name} is not set; expected e.g. {example}.'
    yield from _feature_extractor(config)
    yield from problems_of_parts(config)
    for name in ('localization_loss', 'classification_loss'):
        if getattr(config.loss, name).WhichOneof(name) is None:
            yield f'{ROOT}.loss.{name} is not set; expected one of its options.'
    yield from _anchors(config)
    yield from _post_processing(config)


def problems_of_parts(config: Ssd) -> Iterator[str]:
    """Yields one sentence for each pair of options that do not fit each other."""
    if config.add_background_class and config.explicit_background_class:
        yield (
            f'{ROOT}.explicit_background_class is true, which says that class 1 of the label map '
            f'is background, but {ROOT}.add_background_class adds one; set one of them to false.'
        )
    yield from _box_code(config)
    yield from _confidences(config)
    if config.detect_background and not config.add_background_class:
        yield (
            f'{ROOT}.detect_background: expected false with add_background_class: false, as the '
            'class head has no column for background. Received: true.'
        )
    if config.normalize_loss_per_image and not config.normalize_loss_by_num_matches:
        yield (
            f'{ROOT}.normalize_loss_per_image: expected false with normalize_loss_by_num_matches: '
            'false, which divides by nothing. Received: true.'
        )
    if config.feature_extractor.freeze_affine and not config.freeze_batchnorm:
        yield (
            f'{ROOT}.feature_extractor.freeze_affine: expected {ROOT}.freeze_batchnorm: true, as '
            'frozen norms stop both. Received: false.'
        )
    yield from _points(config)
    yield from _centerness(config)


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
        keypoints = '' if coder in _CODE_SIZES else ' with its num_keypoints'
        yield (
            f'{ROOT}.box_predictor.{predictor}.box_code_size: expected {size}, the numbers that '
            f'{ROOT}.box_coder.{coder}{keypoints} codes a box with. Received: {predicted}.'
        )


def _matches_points(config: Ssd) -> bool:
    return config.matcher.WhichOneof('matcher_oneof') == 'point_matcher'


def _points(config: Ssd) -> Iterator[str]:
    if not _matches_points(config):
        return
    path, matcher = f'{ROOT}.matcher.point_matcher', config.matcher.point_matcher
    if matcher.min_distance >= matcher.max_distance:
        yield (
            f'{path}.min_distance: expected less than max_distance ({matcher.max_distance:g}). '
            f'Received: {matcher.min_distance:g}.'
        )
    kind = config.anchor_generator.WhichOneof('anchor_generator_oneof')
    if kind is None:
        return
    grid = config.anchor_generator.multiscale_anchor_generator
    is_square = list(grid.aspect_ratios) == [1.0]
    received = text_format.MessageToString(config.anchor_generator, as_one_line=True)
    if kind != 'multiscale_anchor_generator' or not is_square or grid.scales_per_octave != 1:
        yield (
            f'{ROOT}.anchor_generator: expected multiscale_anchor_generator {{ aspect_ratios: 1 '
            f'scales_per_octave: 1 }} with {path}, which matches the centre of one square anchor '
            f'a cell. Received: {received}.'
        )


def _centerness(config: Ssd) -> Iterator[str]:
    if not config.HasField('centerness'):
        return
    for name, oneof, option in (
        ('matcher', 'matcher_oneof', 'point_matcher'),
        ('box_coder', 'box_coder_oneof', 'distance_box_coder'),
    ):
        kind = getattr(config, name).WhichOneof(oneof)
        if kind not in (option, None):
            yield f'{ROOT}.centerness: expected {ROOT}.{name}.{option} with it. Received: {kind}.'
    heads = config.box_predictor.weight_shared_convolutional_box_predictor
    converts = heads.score_converter == heads.SIGMOID
    if config.post_processing.score_converter == PostProcessing.IDENTITY and not converts:
        yield (
            f'{ROOT}.post_processing.score_converter: expected SIGMOID with {ROOT}.centerness, '
            'which multiplies scores, not logits. Received: IDENTITY.'
        )


def _confidences(config: Ssd) -> Iterator[str]:
    if config.use_confidences_as_targets and config.explicit_background_class:
        yield (
            f'{ROOT}.use_confidences_as_targets: expected add_background_class: true or no '
            'background, as confidences are of classes of objects. '
            'Received: explicit_background_class: true.'
        )


def _feature_extractor(config: Ssd) -> Iterator[str]:
    extractor = config.feature_extractor
    yield from extractors.type_problems(
        EXTRACTORS, extractor, ROOT, type_problem(extractor.type), 'ssd_mobilenet_v2_keras'
    )


def _anchors(config: Ssd) -> Iterator[str]:
    kind = config.anchor_generator.WhichOneof('anchor_generator_oneof')
    if kind is None:
        return
    path, option = f'{ROOT}.anchor_generator.{kind}', getattr(config.anchor_generator, kind)
    yield from model_rules.anchor_lists(option, kind, path)
    maps, received = _num_maps(config), num_anchor_levels(config)
    if maps is not None and received != maps:
        yield (
            f'{path}: expected anchors for the {maps} feature maps of {ROOT}.feature_extractor. '
            f'Received: anchors for {received}{_LEVELS[kind]}.'
        )


def _num_maps(config: Ssd) -> int | None:
    """Returns the number of feature maps; None if the type or its levels are not valid."""
    extractor = config.feature_extractor
    if extractor.type not in EXTRACTORS:
        return None
    row = EXTRACTORS[extractor.type]
    field = _PYRAMIDS.get(row.neck)
    if any(extractor.HasField(name) for name in _PYRAMIDS.values() if name != field):
        return None  # The builder refuses it.
    if field is None:
        return extractor.num_layers if extractor.HasField('num_layers') else num_maps(row)
    pyramid = getattr(extractor, field)
    count = pyramid.max_level - pyramid.min_level + 1
    return count if count > 0 else None


def num_anchor_levels(config: Ssd) -> int:
    """Returns the number of feature maps that there are anchors for."""
    kind = config.anchor_generator.WhichOneof('anchor_generator_oneof')
    if kind is None:
        return 1  # It is refused anyway.
    option = getattr(config.anchor_generator, kind)
    if kind == 'multiscale_anchor_generator':
        return option.max_level - option.min_level + 1
    if kind == 'ssd_anchor_generator':
        return option.num_layers
    return len(option.anchor_grid) if kind == 'flexible_grid_anchor_generator' else 1


def _post_processing(config: Ssd) -> Iterator[str]:
    path = f'{ROOT}.post_processing.batch_non_max_suppression'
    nms = config.post_processing.batch_non_max_suppression
    yield from model_rules.suppression(nms, path)
    columns = range(config.num_classes and config.num_classes + config.add_background_class)
    yield from model_rules.calibration(
        config.post_processing.calibration_config,
        f'{ROOT}.post_processing.calibration_config',
        columns,
        f'columns of the scores, from 0 to {len(columns) - 1}',
    )
