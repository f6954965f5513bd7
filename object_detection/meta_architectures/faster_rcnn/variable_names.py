"""What the names of the variables of Faster R-CNN, Mask R-CNN and R-FCN mean."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from object_detection.core.variable_names import (
    PROJECTION,
    ReferenceGroup,
    Shapes,
    VariableNames,
    by_number,
    pyramid_groups,
)

# Paths in checkpoints of the TensorFlow Object Detection API (TF 2).
_EXTRACTOR = 'model/_feature_extractor_for_proposal_features/'
_CROPS = 'model/_feature_extractor_for_box_classifier_features/layer_with_weights-'
_RPN_HEADS = 'model/_first_stage_box_predictor/_prediction_heads/'
_HEADS = 'model/_mask_rcnn_box_predictor/'
_RFCN = 'model/_rfcn_box_predictor/'

_RPN_GROUPS = (
    (r'rpn/conv(_bn)?', 'model/_first_stage_box_predictor_first_conv/layer_with_weights-'),
    (r'rpn/box_codes_(\d+)', rf'{_RPN_HEADS}box_encodings/\1/_box_encoder_layers/'),
    (
        r'rpn/objectness_(\d+)',
        rf'{_RPN_HEADS}class_predictions_with_background/\1/_class_predictor_layers/',
    ),
)
_BOX_GROUPS = (
    (r'box_head/box_codes(_bn)?', f'{_HEADS}_box_prediction_head/_box_encoder_layers/'),
    (r'box_head/classes(_bn)?', f'{_HEADS}_class_prediction_head/_class_predictor_layers/'),
    (r'mask_head/.+', f'{_HEADS}_third_stage_heads/mask_predictions/_mask_predictor_layers/'),
)
# No detector of the zoo has them: not compared with a checkpoint.
_RFCN_GROUPS = (
    (r'box_head/reduce_depth(_bn)?', f'{_RFCN}_shared_conv_layers/'),
    (r'box_head/box_codes(_bn)?', f'{_RFCN}_box_encoder_layers/'),
    (r'box_head/classes(_bn)?', f'{_RFCN}_class_predictor_layers/'),
)
# Those of one head and one layer of attention, which are all that the reference has.
_CONTEXT = 'model/_context_feature_extract_fn/'
_CONTEXT_PROJECTIONS = {
    'context_memory/layer_1_head_1/key': '_key_proj',
    'context_memory/layer_1_head_1/value': '_val_proj',
    'context_attention/layer_1_head_1/query': '_query_proj',
    'context_attention/layer_1_head_1/output': '_feature_proj',
}
_CONTEXT_LAYERS = {'dense': 'projection', 'dense_bn': 'batch_norm'}
_RFCN_LAYER = 'box_head/reduce_depth'

# Scopes in checkpoints of TensorFlow 1.
_FIRST, _SECOND = 'FirstStageBoxPredictor', 'SecondStageBoxPredictor'
_SLIM_HEADS = {
    'rpn/conv': 'Conv',
    'rpn/box_codes_0': f'{_FIRST}/BoxEncodingPredictor',
    'rpn/objectness_0': f'{_FIRST}/ClassPredictor',
    'box_head/box_codes': f'{_SECOND}/BoxEncodingPredictor',
    'box_head/classes': f'{_SECOND}/ClassPredictor',
}
_SLIM_RFCN_HEADS = {
    _RFCN_LAYER: f'{_SECOND}/reduce_depth',
    'box_head/box_codes': f'{_SECOND}/refined_locations',
    'box_head/classes': f'{_SECOND}/class_predictions',
}
_SLIM_MASK_CONV = re.compile(rf'{_SECOND}/(Conv(?:_(\d+))?)/weights')

# Layer -> how many classes it has outputs for beside the K.
_CLASS_LAYERS = {
    'box_head/classes': 1,
    'box_head/classes_bn': 1,
    'box_head/box_codes': 0,
    'box_head/box_codes_bn': 0,
}
# Parts that a trained detector may get; a cascade numbers those of its stages after the first.
_ADDITIONS = ('context_memory', 'context_attention', 'box_classifier_', 'box_head_')
# That of a stage of a cascade, in the name of a part.
_NUMBER = re.compile(r'(?<=box_head)_\d+/')
_CLASS_KERNEL = 'box_head/classes/kernel'
# An automatic depth of its convolutions depends on K, too.
_MASK_HEAD = 'mask_head/'
_MASK_FEATURES = 'mask_head/conv_1/kernel'
# The layer that sees the features is the first of these that there is.
_MASK_LAYERS = ('conv_1', 'conv_upsampled', 'masks')
_MASKS_FIELD = 'model.faster_rcnn.masks_from_crops'


class FasterRcnnNames(VariableNames):
    """The names of a two-stage detector: backbone, fpn, box_classifier, rpn, box and mask head."""

    # The last stages of a backbone without a pyramid run on crops.
    backbone_parts = ('backbone', 'box_classifier')
    backbone_field = 'model.faster_rcnn.feature_extractor'

    def is_addition(self, part: str) -> bool:
        return part.startswith(_ADDITIONS)

    def checkpoint_scopes(self, variables: Collection[str]) -> Mapping[str, tuple[str, ...]]:
        return {
            'classification': (
                ('backbone/',) if _has_pyramid(variables) else ('backbone/', 'box_classifier/')
            ),
            'detection': ('backbone/', 'fpn/', 'box_classifier/', 'box_classifier_'),
            'full': ('',),
        }

    def num_classes(self, here: Shapes, there: Shapes, num_classes: int) -> int | None:
        if _CLASS_KERNEL not in here or _CLASS_KERNEL not in there:
            return None
        # One, or with R-FCN a map for each bin.
        outputs_per_class = here[_CLASS_KERNEL][-1] // (num_classes + 1)
        return there[_CLASS_KERNEL][-1] // outputs_per_class - 1

    def depends_on_classes(
        self, name: str, theirs: tuple[Sequence[int], int], ours: tuple[Sequence[int], int]
    ) -> bool:
        (shape, classes), (other_shape, other_classes) = theirs, ours
        if name == _MASK_FEATURES:
            # The depth of the features does not.
            return shape[2] == other_shape[2]
        if name.startswith(_MASK_HEAD):
            return True
        layer = _NUMBER.sub('/', name.rpartition('/')[0])
        background = _CLASS_LAYERS.get(layer)
        return (
            background is not None
            and shape[:-1] == other_shape[:-1]
            and shape[-1] * (other_classes + background) == other_shape[-1] * (classes + background)
        )

    def advice(self, there: Shapes, here: Shapes) -> str:
        theirs, ours = _mask_input_depth(there), _mask_input_depth(here)
        if None in (theirs, ours) or theirs == ours:
            return ''
        if theirs == _pyramid_depth(there):
            return (
                f'Its masks are predicted from crops of the feature pyramid: set {_MASKS_FIELD}: '
                'true to predict them so.'
            )
        if ours == _pyramid_depth(here):
            return (
                'Its masks are predicted from what the box classifier makes of crops: set '
                f'{_MASKS_FIELD}: false and remove model.faster_rcnn.mask_roi_align to predict '
                'them so.'
            )
        return ''

    def reference_groups(self, layers: Sequence[str]) -> Iterator[ReferenceGroup]:
        patterns = _RPN_GROUPS + (_RFCN_GROUPS if _RFCN_LAYER in layers else _BOX_GROUPS)
        if _has_pyramid(layers):
            yield from pyramid_groups(layers, _EXTRACTOR)
            patterns += ((r'box_classifier/.+', _CROPS),)
        grouped: dict[str, list[str]] = {}
        for pattern, path in patterns:
            for layer in sorted(layers, key=by_number):
                if found := re.fullmatch(pattern, layer):
                    grouped.setdefault(found.expand(path), []).append(layer)
        yield from ((names, path) for path, names in grouped.items())

    def reference_paths(self, layers: Sequence[str]) -> Mapping[str, str]:
        return {
            f'{ours}/{layer}': f'{_CONTEXT}{theirs}/{their_layer}/'
            for ours, theirs in _CONTEXT_PROJECTIONS.items()
            for layer, their_layer in _CONTEXT_LAYERS.items()
            if f'{ours}/{layer}' in layers
        }

    def slim_layers(
        self, layers: Collection[str], keys: Collection[str]
    ) -> Iterator[tuple[str, str]]:
        yield from (_SLIM_HEADS | (_SLIM_RFCN_HEADS if _RFCN_LAYER in layers else {})).items()
        # There they are merely counted.
        masks = [layer for layer in layers if layer.startswith(_MASK_HEAD)]
        masks = [layer for layer in masks if not layer.endswith('_bn')]
        found = [match for key in keys if (match := _SLIM_MASK_CONV.fullmatch(key))]
        found.sort(key=lambda match: int(match[2] or 0))
        yield from (
            (ours, f'{_SECOND}/{match[1]}') for ours, match in zip(masks, found, strict=False)
        )


FASTER_RCNN_NAMES = FasterRcnnNames()


def _has_pyramid(names: Collection[str]) -> bool:
    return any(name.startswith('fpn/') for name in names)


def _mask_input_depth(shapes: Shapes) -> int | None:
    """Channels of the features that masks are predicted from; None without a mask head."""
    for layer in _MASK_LAYERS:
        for name, shape in shapes.items():
            if name.endswith(f'mask_head/{layer}/kernel') and len(shape) == 4:
                return shape[2]
    return None


def _pyramid_depth(shapes: Shapes) -> int | None:
    for name, shape in shapes.items():
        if PROJECTION in name and name.endswith('/kernel'):
            return shape[-1]
    return None
