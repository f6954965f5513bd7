"""What the names of the variables of single-shot detectors mean."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from object_detection.core.variable_names import (
    PROJECTION,
    ReferenceGroup,
    Shapes,
    VariableNames,
    by_number,
    pyramid_groups,
    pyramid_levels,
)

# Paths in checkpoints of the TensorFlow Object Detection API (TF 2).
_EXTRACTOR = 'model/_feature_extractor/'
_BIFPN = f'{_EXTRACTOR}_bifpn_stage/'
_PREDICTOR = 'model/_box_predictor/'
_TOWERS = f'{_PREDICTOR}_head_scope_conv_layers/'
_TOWER_NORMS = f'{_PREDICTOR}_base_tower_layers_for_heads/'
_HEADS = f'{_PREDICTOR}_prediction_heads/'
_BOXES, _CLASSES = 'box_encodings', 'class_predictions_with_background'

# Layers -> their path.
_GROUPS = (
    # The attribute is private for one of the two MobileNets.
    (r'fpn/map_(\d+)_.+', rf'{_EXTRACTOR}feature_map_generator/convolutions/\1/'),
    (r'fpn/map_(\d+)_.+', rf'{_EXTRACTOR}_feature_map_generator/convolutions/\1/'),
    # Of the bidirectional pyramid.
    (r'fpn/node_\d+_weights', f'{_BIFPN}node_combine_op/'),
    (r'fpn/node_(\d+)_conv(?:_bn)?', rf'{_BIFPN}node_post_combine_block/\1/'),
    (r'fpn/node_(\d+)_input_(\d+)_conv(?:_bn)?', rf'{_BIFPN}node_input_blocks/\1/\2/1/'),
    # Of the predictor whose levels have heads of their own.
    (r'box_predictor/shared_(\d+)_.+', rf'{_PREDICTOR}_shared_nets/\1/'),
    (
        r'box_predictor/box_codes_(\d+)(?:_depthwise(?:_bn)?)?',
        rf'{_HEADS}{_BOXES}/\1/_box_encoder_layers/',
    ),
    (
        r'box_predictor/classes_(\d+)(?:_depthwise(?:_bn)?)?',
        rf'{_HEADS}{_CLASSES}/\1/_class_predictor_layers/',
    ),
    # Of the predictor whose levels share their heads.
    (r'box_predictor/projection_(\d+)(?:_bn)?', rf'{_PREDICTOR}_additional_projection_layers/\1/'),
    (r'box_predictor/tower_\d+', f'{_TOWERS}PredictionTower/'),
    (r'box_predictor/box_tower_\d+', f'{_TOWERS}BoxPredictionTower/'),
    (r'box_predictor/class_tower_\d+', f'{_TOWERS}ClassPredictionTower/'),
    (r'box_predictor/(?:box_)?tower_\d+_bn_(\d+)', rf'{_TOWER_NORMS}{_BOXES}/\1/'),
    (r'box_predictor/class_tower_\d+_bn_(\d+)', rf'{_TOWER_NORMS}{_CLASSES}/\1/'),
    (r'box_predictor/box_codes', f'{_PREDICTOR}_box_prediction_head/_box_encoder_layers/'),
    (r'box_predictor/classes', f'{_HEADS}{_CLASSES}/_class_predictor_layers/'),
)
# The order of the layers of a block, whose other layers have no such ending.
_ENDINGS = ('_projection', '_projection_bn', '_depthwise', '_depthwise_bn', '_conv', '_conv_bn')

# Scopes in checkpoints of TensorFlow 1; numbers there count from the finest map of the pyramid.
_NETWORK = r'FeatureExtractor/(?:\w+/)*'
_SHARED = 'WeightSharedConvolutionalBoxPredictor/'
_SLIM_LAYERS = (
    (rf'{_NETWORK}\w+_1_Conv2d_(\d+)_1x1_\d+', r'fpn/map_\1_projection'),
    (rf'{_NETWORK}\w+_2_Conv2d_(\d+)_\dx\d_s2_\d+', r'fpn/map_\1_conv'),
    (rf'{_NETWORK}\w+_2_Conv2d_(\d+)_\dx\d_s2_\d+_depthwise', r'fpn/map_\1_depthwise'),
    (rf'{_NETWORK}Base_Conv2d_1x1_\d+', 'fpn/base'),
    # Of MnasFPN.
    (rf'{_NETWORK}C6_Conv1x1', 'fpn/top'),
    (rf'{_NETWORK}cell_(\d)/block_(\d)/input_(\d)/Conv1x1', r'fpn/cell_\1_block_\2_input_\3'),
    (rf'{_NETWORK}cell_(\d)/block_(\d)/SepConv', r'fpn/cell_\1_block_\2_conv'),
    (r'BoxPredictor_(\d+)/BoxEncodingPredictor', r'box_predictor/box_codes_\1'),
    (r'BoxPredictor_(\d+)/BoxEncodingPredictor_depthwise', r'box_predictor/box_codes_\1_depthwise'),
    (r'BoxPredictor_(\d+)/ClassPredictor', r'box_predictor/classes_\1'),
    (r'BoxPredictor_(\d+)/ClassPredictor_depthwise', r'box_predictor/classes_\1_depthwise'),
    (r'BoxPredictor_(\d+)/Conv2d_(\d+)_1x1_\d+', r'box_predictor/shared_\1_\2'),
    (rf'{_SHARED}BoxPredictor', 'box_predictor/box_codes'),
    (rf'{_SHARED}ClassPredictor', 'box_predictor/classes'),
)
_SLIM_TOWER = re.compile(rf'{_SHARED}(Box|Class|)PredictionTower/conv2d_(\d+)')
_SLIM_TOWER_NORM = re.compile(rf'({_SLIM_TOWER.pattern})/BatchNorm/feature_(\d+)')
_SLIM_PYRAMID = re.compile(
    rf'{_NETWORK}fpn/(?:(?P<kind>projection|smoothing)|bottom_up_(?:block|Conv2d))_?(?P<number>\d+)'
)

_CLASS_LAYER = re.compile(r'(?P<layer>box_predictor/classes(?:_\d+)?)/(?P<variable>.+)')
_KERNELS = ('kernel', 'pointwise_kernel')
# Numbers of a box code of every coder but the one of keypoints.
_CODE_SIZE = 4


class SsdNames(VariableNames):
    """The names of a single-shot detector: backbone, fpn (of any kind) and box_predictor."""

    backbone_field = 'model.ssd.feature_extractor'

    def checkpoint_scopes(self, variables: Collection[str]) -> Mapping[str, tuple[str, ...]]:
        del variables
        return {'classification': ('backbone/',), 'detection': ('backbone/', 'fpn/'), 'full': ('',)}

    def num_classes(self, here: Shapes, there: Shapes, num_classes: int) -> int | None:
        for name in here:
            found = _CLASS_LAYER.fullmatch(name)
            if not found or found['variable'] not in _KERNELS or name not in there:
                continue
            boxes = name.replace('/classes', '/box_codes')
            if boxes not in here or boxes not in there:
                return None
            outputs = here[name][-1] / (here[boxes][-1] / _CODE_SIZE)
            other_outputs = there[name][-1] / (there[boxes][-1] / _CODE_SIZE)
            # Both have a background class, or neither.
            num_others = other_outputs - outputs + num_classes
            return int(num_others) if num_others.is_integer() else None
        return None

    def depends_on_classes(
        self, name: str, theirs: tuple[Sequence[int], int], ours: tuple[Sequence[int], int]
    ) -> bool:
        (shape, classes), (other_shape, other_classes) = theirs, ours
        return (
            _CLASS_LAYER.fullmatch(name) is not None
            and shape[:-1] == other_shape[:-1]
            and any(
                shape[-1] * (other_classes + background) == other_shape[-1] * (classes + background)
                for background in (0, 1)
            )
        )

    def is_dispensable(self, name: str) -> bool:
        # The classifier of an EfficientNet, which files of backbones leave out.
        return name.startswith('backbone/predictions/')

    def reference_groups(self, layers: Sequence[str]) -> Iterator[ReferenceGroup]:
        if any(layer.startswith(PROJECTION) for layer in layers):
            yield from pyramid_groups(layers, _EXTRACTOR, '_')
        grouped: dict[str, list[str]] = {}
        for layer in sorted(layers, key=_by_block):
            for pattern, path in _GROUPS:
                if found := re.fullmatch(pattern, layer):
                    grouped.setdefault(found.expand(path), []).append(layer)
        yield from ((names, path) for path, names in grouped.items())

    def slim_layers(
        self, layers: Collection[str], keys: Collection[str]
    ) -> Iterator[tuple[str, str]]:
        scopes = {key.rpartition('/')[0].removesuffix('/BatchNorm') for key in keys}
        for scope in scopes:
            for pattern, layer in _SLIM_LAYERS:
                if found := re.fullmatch(pattern, scope):
                    yield found.expand(layer), scope
            if found := _SLIM_TOWER.fullmatch(scope):
                yield _tower(found[1], found[2]), scope
            elif found := _SLIM_TOWER_NORM.fullmatch(scope):
                yield f'{_tower(found[2], found[3])}_bn_{found[4]}', scope
        yield from _slim_pyramid(layers, scopes)


SSD_NAMES = SsdNames()


def _by_block(layer: str) -> tuple[list[str | int], int]:
    """Sorts the layers of the reference's lists, in which a block's layers have an order."""
    for position, ending in enumerate(_ENDINGS):
        if layer.endswith(ending):
            return by_number(layer.removesuffix(ending)), position
    return by_number(layer), len(_ENDINGS)


def _tower(kind: str, number: str) -> str:
    """Returns the name of a convolution of the tower of 'Box', 'Class' or, shared, ''."""
    return f'box_predictor/{kind.lower()}{"_" if kind else ""}tower_{number}'


def _slim_pyramid(layers: Collection[str], scopes: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yields the layers of a feature pyramid, whose levels count from 1 in checkpoints."""
    levels = pyramid_levels(layers)
    found = [match for scope in scopes if (match := _SLIM_PYRAMID.fullmatch(scope))]
    coarse = sorted(int(match['number']) for match in found if not match['kind'])
    for match in found:
        number = int(match['number'])
        if not match['kind'] and levels:
            yield f'fpn/coarse_{levels[-1] + 1 + coarse.index(number)}', match.string
        elif 1 <= number <= len(levels):
            yield f'fpn/{match["kind"]}_{levels[number - 1]}', match.string
