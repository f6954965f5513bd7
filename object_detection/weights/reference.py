"""Checkpoints of the TensorFlow Object Detection API (TF 2), and of its image classifiers.

There a variable is named by the attributes and the positions in lists that lead to it. The lists
also hold layers without variables (activations, dropout, norms that are not configured), so layers
are identified by their order among those that have variables. Paths end where the position follows.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Self

from object_detection.errors import CheckpointError
from object_detection.weights import (
    backbones,
    checkpoint_files,
)
from object_detection.weights.arrays import CheckpointArrays
from object_detection.weights.checkpoint_contents import format_names
from object_detection.weights.checkpoint_files import VALUE_SUFFIX
from object_detection.weights.comparison import check_backbones
from object_detection.weights.interfaces import CHECKPOINT_TYPES, Detector, Entry

_DETECTOR, _CLASSIFIER = 'model/', 'feature_extractor/'
_STEP = f'step{VALUE_SUFFIX}'
_SLOTS = '/.OPTIMIZER_SLOT/'
_AVERAGE = f'{_SLOTS}optimizer/average{VALUE_SUFFIX}'

_PROPOSALS = 'model/_feature_extractor_for_proposal_features/'
_CROPS = 'model/_feature_extractor_for_box_classifier_features/layer_with_weights-'
_PYRAMID = f'{_PROPOSALS}fpn_features_generator/'
_COARSE = f'{_PROPOSALS}coarse_feature_layers/'
_RPN_HEADS = 'model/_first_stage_box_predictor/_prediction_heads/'
_HEADS = 'model/_mask_rcnn_box_predictor/'
_RFCN = 'model/_rfcn_box_predictor/'

# The first of these that a checkpoint has is its backbone, in parts that follow each other.
_BACKBONES = (
    ('feature_extractor/layer_with_weights-',),  # an image classifier's
    (f'{_PROPOSALS}classification_backbone/layer_with_weights-',),  # under a pyramid
    ('model/_feature_extractor/classification_backbone/layer_with_weights-',),  # of SSD
    (f'{_PROPOSALS}layer_with_weights-', _CROPS),
)
_RPN_LISTS = (
    (r'rpn/conv(_bn)?', 'model/_first_stage_box_predictor_first_conv/layer_with_weights-'),
    (r'rpn/box_codes_(\d+)', rf'{_RPN_HEADS}box_encodings/\1/_box_encoder_layers/'),
    (
        r'rpn/objectness_(\d+)',
        rf'{_RPN_HEADS}class_predictions_with_background/\1/_class_predictor_layers/',
    ),
)
_BOX_LISTS = (
    (r'box_head/box_codes(_bn)?', f'{_HEADS}_box_prediction_head/_box_encoder_layers/'),
    (r'box_head/classes(_bn)?', f'{_HEADS}_class_prediction_head/_class_predictor_layers/'),
    (r'mask_head/.+', f'{_HEADS}_third_stage_heads/mask_predictions/_mask_predictor_layers/'),
)
# No detector of the zoo has them: not compared with a checkpoint.
_RFCN_LISTS = (
    (r'box_head/reduce_depth(_bn)?', f'{_RFCN}_shared_conv_layers/'),
    (r'box_head/box_codes(_bn)?', f'{_RFCN}_box_encoder_layers/'),
    (r'box_head/classes(_bn)?', f'{_RFCN}_class_predictor_layers/'),
)
_RFCN_LAYER = 'box_head/reduce_depth'

_KEY = re.compile(rf'(?P<path>.*?)(?P<position>\d+)/(?P<variable>[^/]+){re.escape(VALUE_SUFFIX)}')

# Variable -> key, of one layer.
_Layer = dict[str, str]


def is_reference(keys: Collection[str]) -> bool:
    """Tells these checkpoints by their keys."""
    beginnings = (f'{_DETECTOR}_', f'{_CLASSIFIER}layer')
    return any(k.startswith(beginnings) and k.endswith(VALUE_SUFFIX) for k in keys)


def read_step(prefix: str) -> int:
    """Returns the step of a checkpoint of a training; 0 of one that does not say."""
    reader = checkpoint_files.open_reader(prefix)
    if _STEP not in reader.get_variable_to_shape_map():
        return 0
    with checkpoint_files.reading(prefix):
        return int(reader.get_tensor(_STEP))


class ReferenceCheckpoint:
    """An open checkpoint of that program, of a two-stage detector or of a backbone.

    Args:
      arrays: closed with this.
      averages: whether a variable gets the moving average that the checkpoint holds of it, as in
        that program's evaluation; its fine-tuning takes the weights of the last step.

    Attributes:
      description: for the log.
      types: the checkpoint types that it can serve.
      shapes: key -> shape, of all weights of its model.
    """

    def __init__(self, arrays: CheckpointArrays, *, averages: bool = False):
        self._arrays = arrays
        self._takes_averages = averages
        self.shapes: Mapping[str, tuple[int, ...]] = {
            key: shape for key, shape in sorted(arrays.shapes.items()) if _is_weight(key)
        }
        is_detector = any(key.startswith(_DETECTOR) for key in self.shapes)
        self.types = CHECKPOINT_TYPES if is_detector else ('classification',)
        self.description = f'checkpoint {arrays.path} of the TensorFlow Object Detection API'
        if any(key.endswith(_AVERAGE) for key in arrays.shapes):
            self.description += f', {"its" if averages else "without its"} moving averages'

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._arrays.close()

    def entries(self, detector: Detector) -> dict[str, Entry]:
        """Returns what the checkpoint holds for a detector, by the detector's names.

        Raises:
          CheckpointError: if its backbone is another one.
        """
        names = detector.named_variables()
        self._check_backbone(names)
        backbones.warn_of_images(self.description, detector)
        keys = match(names, self.shapes)
        return {name: self._entry(key) for name, key in keys.items()}

    def _check_backbone(self, names: Collection[str]) -> None:
        """Compares depths: layers that are merely counted would be taken for others."""
        layers = backbone(self.shapes)
        kernels = [self.shapes[layer['kernel']] for layer in layers if 'kernel' in layer]
        # A classifier's top is no convolution.
        resnet = backbones.bottleneck_layers(sum(len(shape) == 4 for shape in kernels))
        there = [f'backbone/{layer}_conv/kernel' for layer in resnet]
        check_backbones(names, there, self._arrays.path)
        expected = len(backbone_layers(names))
        if len(layers) < expected:
            raise CheckpointError(
                f'{self._arrays.path}: expected the backbone of '
                f'model.faster_rcnn.feature_extractor.type, of {expected} layers with variables. '
                f'Received: {len(layers)} of a backbone; it holds {format_names(self.shapes)}.'
            )

    def _entry(self, key: str) -> Entry:
        average = key.removesuffix(VALUE_SUFFIX) + _AVERAGE
        if not self._takes_averages or average not in self._arrays.shapes:
            return Entry((key,), self.shapes[key], lambda: self._arrays.read(key))
        shape = self._arrays.shapes[average]
        return Entry((average, key), shape, lambda: self._arrays.read(average))


def _is_weight(key: str) -> bool:
    """Whether a key is neither of an optimizer nor of the bookkeeping."""
    return key.startswith((_DETECTOR, _CLASSIFIER)) and (
        key.endswith(VALUE_SUFFIX) and _SLOTS not in key
    )


def match(variables: Collection[str], keys: Collection[str]) -> dict[str, str]:
    """Finds the variables of a detector in a checkpoint.

    Args:
      variables: names in our detector; those of the backbone in the order of its layers.
      keys: of the checkpoint, whole.

    Returns:
      Name -> key. A variable that only the checkpoint has, of a layer that both have, is among
      them under the name that it would have here.
    """
    found = _by_path(keys)
    # What follows in the checkpoint's backbone is a top, or stages that are not used here.
    pairs = list(zip(backbone_layers(variables), backbone(keys), strict=False))
    for names, path in _lists(_layers(variables)):
        theirs = found.get(path, [])
        names = [*names, *[f'{names[-1]}_bn'] * (len(theirs) - len(names))]
        pairs += zip(names, theirs, strict=False)
    return {f'{ours}/{variable}': key for ours, theirs in pairs for variable, key in theirs.items()}


def backbone(keys: Collection[str]) -> list[_Layer]:
    """Returns the layers, variable -> key, of the backbone that a checkpoint holds."""
    found = _by_path(keys)
    for paths in _BACKBONES:
        if paths[0] in found:
            return [layer for path in paths for layer in found.get(path, ())]
    return []


def backbone_layers(variables: Collection[str]) -> list[str]:
    """Returns a detector's layers of the backbone; without a pyramid, the last run on crops."""
    layers = _layers(variables)
    parts = ('backbone/',) if _has_pyramid(layers) else ('backbone/', 'box_classifier/')
    return [layer for layer in layers if layer.startswith(parts)]


def _layers(variables: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(name.rpartition('/')[0] for name in variables))


def _has_pyramid(layers: Sequence[str]) -> bool:
    return any(layer.startswith('fpn/') for layer in layers)


def _lists(layers: Sequence[str]) -> Iterator[tuple[Sequence[str], str]]:
    """Yields layers that do not belong to the backbone, with the path that they are under."""
    rows = _RPN_LISTS + (_RFCN_LISTS if _RFCN_LAYER in layers else _BOX_LISTS)
    if _has_pyramid(layers):
        yield from _pyramid(layers)
        rows += ((r'box_classifier/.+', _CROPS),)
    grouped: dict[str, list[str]] = {}
    for pattern, path in rows:
        for layer in sorted(layers, key=_by_number):
            if found := re.fullmatch(pattern, layer):
                grouped.setdefault(found.expand(path), []).append(layer)
    yield from ((names, path) for path, names in grouped.items())


def _pyramid(layers: Sequence[str]) -> Iterator[tuple[Sequence[str], str]]:
    """Yields the layers of the pyramid, which the checkpoint counts from the coarsest level."""
    levels = {int(layer.rpartition('_')[2]) for layer in layers if 'fpn/projection_' in layer}
    top = max(levels)
    yield [f'fpn/projection_{top}'], f'{_PYRAMID}top_layers/'

    def with_norm(layer: str) -> list[str]:
        return [name for name in (layer, f'{layer}_bn') if name in layers]

    for i, level in enumerate(sorted(levels - {top}, reverse=True)):
        yield [f'fpn/projection_{level}'], f'{_PYRAMID}residual_blocks/{i}/'
        yield with_norm(f'fpn/smoothing_{level}'), f'{_PYRAMID}conv_layers/{i}/'
    level = top + 1
    while coarse := with_norm(f'fpn/coarse_{level}'):
        yield coarse, f'{_COARSE}{level - top - 1}/'
        level += 1


def _by_path(keys: Collection[str]) -> Mapping[str, list[_Layer]]:
    """Path -> the layers with variables under it, by their positions."""
    found: dict[str, dict[int, _Layer]] = {}
    for key in keys:
        if parts := _KEY.fullmatch(key):
            layers = found.setdefault(parts['path'], {})
            layers.setdefault(int(parts['position']), {})[parts['variable']] = key
    return {
        path: [layers[position] for position in sorted(layers)] for path, layers in found.items()
    }


def _by_number(name: str) -> list[str | int]:
    """Sorts `conv_2` before `conv_10`."""
    return [int(part) if part.isdigit() else part for part in re.split(r'(\d+)', name)]
