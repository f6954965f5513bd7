"""Checkpoints of the TensorFlow Object Detection API (TF 2), and of its image classifiers.

In these checkpoints a variable is named by the attributes and list positions that lead to it. The
lists also contain layers without variables (activations, dropout, norms that are not configured),
so layers are identified by their order among the layers with variables. Paths in this module end
before the position.
"""

import re
from collections.abc import Collection, Iterable, Mapping

from object_detection.core.detector import Detector
from object_detection.core.variable_names import VariableNames
from object_detection.errors import CheckpointError, format_list
from object_detection.weights import backbones, networks
from object_detection.weights.arrays import CheckpointArrays
from object_detection.weights.checkpoint_files import VALUE_SUFFIX
from object_detection.weights.comparison import check_backbones
from object_detection.weights.interfaces import CHECKPOINT_TYPES, Entry, WeightSource

_DETECTOR, _CLASSIFIER = 'model/', 'feature_extractor/'
_SLOTS = '/.OPTIMIZER_SLOT/'
_AVERAGE = f'{_SLOTS}optimizer/average{VALUE_SUFFIX}'

# Layers of a classifier, and of a detector's extractor: either directly below the extractor, where
# several extractors hold consecutive stages, or below its networks, which share their numbers.
_CLASSIFIER_LAYERS = 'feature_extractor/layer_with_weights-'
# Those of a classifier that is the first layer of the network that was saved.
_NESTED_LAYERS = f'{_CLASSIFIER_LAYERS}0/layer_with_weights-'
_EXTRACTOR_LAYERS = re.compile(
    r'(?P<extractor>model/_feature_extractor\w*/)(?:[\w-]+/){0,2}layer_with_weights-'
)
_KEY = re.compile(rf'(?P<path>.*?)(?P<position>\d+)/(?P<variable>[^/]+){re.escape(VALUE_SUFFIX)}')

# Variable -> key, of one layer.
_Layer = dict[str, str]


def is_reference(keys: Collection[str]) -> bool:
    """Whether a checkpoint with these keys is one of the TensorFlow Object Detection API."""
    beginnings = (f'{_DETECTOR}_', f'{_CLASSIFIER}layer')
    return any(k.startswith(beginnings) and k.endswith(VALUE_SUFFIX) for k in keys)


class ReferenceCheckpoint(WeightSource):
    """An open checkpoint of that program, of a detector or of a backbone.

    Args:
      arrays: the open file, which this object closes.
      averages: whether variables are restored from their moving averages, as in that program's
        evaluation; its fine-tuning uses the weights of the last step.
    """

    def __init__(self, arrays: CheckpointArrays, *, averages: bool = False):
        self._takes_averages = averages
        shapes = {key: shape for key, shape in sorted(arrays.shapes.items()) if _is_weight(key)}
        is_detector = any(key.startswith(_DETECTOR) for key in shapes)
        types = CHECKPOINT_TYPES if is_detector else CHECKPOINT_TYPES[:1]
        description = f'checkpoint {arrays.path} of the TensorFlow Object Detection API'
        if any(key.endswith(_AVERAGE) for key in arrays.shapes):
            description += f', {"its" if averages else "without its"} moving averages'
        super().__init__(arrays, description, shapes, types)

    def entries(self, detector: Detector) -> dict[str, Entry]:
        """Returns the checkpoint's entries for a detector, by the detector's names.

        Raises:
          CheckpointError: if the backbones differ.
        """
        names = detector.named_variables()
        self._check_backbone(names, detector.variable_names)
        backbones.warn_of_images(self.description, detector)
        keys = match(names, self.shapes, detector.variable_names)
        return {name: self._entry(key) for name, key in keys.items()}

    def _check_backbone(self, variables: Collection[str], names: VariableNames) -> None:
        """Compares depths, since layers that are identified by their order could be mixed up."""
        layers = backbone(self.shapes)
        kernels = [self.shapes[layer['kernel']] for layer in layers if 'kernel' in layer]
        network = networks.by_counts(
            # The top of a classifier is not a convolution.
            sum(len(shape) == 4 for shape in kernels),
            sum('depthwise_kernel' in layer for layer in layers),
        )
        theirs = network.layers if network else ()
        there = [f'{names.backbone_parts[0]}/{name}/' for name, _ in theirs]
        check_backbones(variables, there, self._arrays.path, names)
        expected = len(backbone_layers(variables, names))
        if len(layers) < expected:
            raise CheckpointError(
                f'{self._arrays.path}: expected the backbone of '
                f'{names.backbone_field}.type, of {expected} layers with variables. Received: '
                f'{len(layers)} of a backbone; it holds {format_list(self.shapes)}.'
            )

    def _entry(self, key: str) -> Entry:
        average = key.removesuffix(VALUE_SUFFIX) + _AVERAGE
        if not self._takes_averages or average not in self._arrays.shapes:
            return super()._entry(key)
        shape = self._arrays.shapes[average]
        return Entry((average, key), shape, lambda: self._arrays.read(average))


def _is_weight(key: str) -> bool:
    """Whether a key is neither optimizer state nor bookkeeping."""
    return key.startswith((_DETECTOR, _CLASSIFIER)) and (
        key.endswith(VALUE_SUFFIX) and _SLOTS not in key
    )


def match(
    variables: Collection[str], keys: Collection[str], names: VariableNames
) -> dict[str, str]:
    """Finds the variables of a detector in a checkpoint.

    Args:
      variables: names in our detector; names of the backbone in the order of its layers.
      keys: full keys of the checkpoint.
      names: names of the detector's family.

    Returns:
      Name -> key. It includes variables that only the checkpoint has, if the detector has their
      layer, under the name that they would have in the detector.
    """
    found = _by_path(keys)
    # Further layers in the checkpoint's backbone are a top, or stages without use in the detector.
    pairs = list(zip(backbone_layers(variables, names), backbone(keys), strict=False))
    for layers, path in names.reference_groups(_layers(variables)):
        theirs = found.get(path, [])
        layers = [*layers, *[f'{layers[-1]}_bn'] * (len(theirs) - len(layers))]
        pairs += zip(layers, theirs, strict=False)
    matched = {
        f'{ours}/{variable}': key for ours, theirs in pairs for variable, key in theirs.items()
    }
    paths = names.reference_paths(_layers(variables))
    for name in variables:
        layer, _, variable = name.rpartition('/')
        key = f'{paths.get(layer)}{variable}{VALUE_SUFFIX}'
        if layer in paths and key in keys:
            matched[name] = key
    return matched


def backbone(keys: Collection[str]) -> list[_Layer]:
    """Returns the layers of a checkpoint's backbone, each as variable -> key.

    The largest network of an extractor is the first one: later stages run on crops, or are a part
    that the detector does not use.
    """
    found = _by_path(keys)
    for path in (_NESTED_LAYERS, _CLASSIFIER_LAYERS):
        if path in found:
            return found[path]
    paths = [path for path in found if _EXTRACTOR_LAYERS.fullmatch(path)]
    paths.sort(key=lambda path: -len(found[path]))
    extractor = _EXTRACTOR_LAYERS.fullmatch(paths[0])['extractor'] if paths else ''
    if paths[:1] != [f'{extractor}layer_with_weights-']:
        paths = [path for path in paths if path.startswith(extractor)]
    return [layer for path in paths for layer in found[path]]


def backbone_layers(variables: Collection[str], names: VariableNames) -> list[str]:
    """Returns the backbone layers of a detector that checkpoints number."""
    scope = names.checkpoint_scopes(variables)['classification']
    layers = _layers(variables)
    named = names.reference_paths(layers)
    return [layer for layer in layers if layer.startswith(scope) and layer not in named]


def _layers(variables: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(name.rpartition('/')[0] for name in variables))


def _by_path(keys: Collection[str]) -> Mapping[str, list[_Layer]]:
    """Returns path -> its layers with variables, in the order of their positions."""
    found: dict[str, dict[int, _Layer]] = {}
    for key in keys:
        if parts := _KEY.fullmatch(key):
            layers = found.setdefault(parts['path'], {})
            layers.setdefault(int(parts['position']), {})[parts['variable']] = key
    return {
        path: [layers[position] for position in sorted(layers)] for path, layers in found.items()
    }
