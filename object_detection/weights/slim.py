"""Checkpoints of TensorFlow 1: detectors of the TensorFlow Object Detection API, and Inception
networks of TF-Slim.

The scopes of a detector are FirstStageFeatureExtractor, Conv (of the proposals),
FirstStageBoxPredictor, SecondStageFeatureExtractor and SecondStageBoxPredictor; the networks lie
below the extractors. The names of ResNets are in `third_party_names`.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Self

from object_detection.weights import backbones, third_party_names
from object_detection.weights.checkpoint_contents import is_weight
from object_detection.weights.interfaces import CHECKPOINT_TYPES, Arrays, Detector, Entry
from object_detection.weights.third_party_resnets import ThirdPartyResnet
from object_detection.weights.variable_names import VariableNames

_SCOPES = (
    'FirstStageFeatureExtractor/',
    'FirstStageBoxPredictor/',
    'SecondStageFeatureExtractor/',
    'SecondStageBoxPredictor/',
)
# Suffix of a variable here -> suffix in TF-Slim, for batch norms, which are separate layers here.
_OF_LAYER = {
    'kernel': 'weights',
    'bias': 'biases',
    'depthwise_kernel': 'depthwise_weights',
    'pointwise_kernel': 'pointwise_weights',
}
_OF_NORM = {name: name for name in ('gamma', 'beta', 'moving_mean', 'moving_variance')}

_NETWORK = re.compile(
    r'(?:(?:FirstStage|SecondStage)FeatureExtractor/)?'
    r'(?:InceptionV2|InceptionResnetV2)/(?:InceptionV2/|InceptionResnetV2/)?'
    r'(?P<path>.+?)/(?:depthwise_weights|weights)'
)
_STEM = re.compile(r'Conv2d_(\d[a-z])_\dx\d')
_IN_BRANCH = re.compile(r'(?:Repeat(?:_\d)?/)?(?P<block>\w+?)/Branch_(?P<branch>\d)/Conv2d_\w+')
_EXPANSION = re.compile(r'(?:Repeat(?:_\d)?/)?(?P<block>\w+?)/Conv2d_1x1')
# The last block of each kind has a separate scope.
_BLOCKS = {'Block8': 'block8_10'}


class SlimCheckpoint:
    """A two-stage detector or an Inception network, as a `sources.WeightSource`.

    Args:
      arrays: the open file, which this object closes.
    """

    def __init__(self, arrays: Arrays):
        self._arrays = arrays
        self.shapes = {k: shape for k, shape in sorted(arrays.shapes.items()) if is_weight(k)}
        has_detector = is_detector(self.shapes)
        self.types = CHECKPOINT_TYPES if has_detector else ('classification',)
        what = 'detector of TensorFlow 1' if has_detector else 'TF-Slim Inception network'
        self.description = f'{what} {arrays.path}'

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._arrays.close()

    def entries(self, detector: Detector) -> dict[str, Entry]:
        """Returns the file's entries for a detector, by the detector's names."""
        entries: dict[str, Entry] = {}
        if third_party_names.FIRST in third_party_names.SLIM_RESNET.translate(self.shapes):
            resnet = ThirdPartyResnet(self._arrays, third_party_names.SLIM_RESNET)
            entries = resnet.entries(detector)
        keys = match(detector.named_variables(), self.shapes, detector.variable_names)
        return entries | {ours: self._entry(theirs) for ours, theirs in keys.items()}

    def _entry(self, name: str) -> Entry:
        return Entry((name,), self.shapes[name], lambda: self._arrays.read(name))


def is_detector(keys: Collection[str]) -> bool:
    """Whether a checkpoint with these keys is a two-stage detector, by its scopes."""
    return any(key.startswith(_SCOPES) for key in keys)


def is_inception(keys: Iterable[str]) -> bool:
    """Whether the checkpoint of a classifier or detector holds an Inception network."""
    return any(_NETWORK.fullmatch(key) for key in keys)


def match(
    variables: Collection[str], keys: Collection[str], names: VariableNames
) -> dict[str, str]:
    """Finds the variables of a detector in a checkpoint, except the variables of a ResNet.

    Args:
      variables: names in our detector.
      keys: keys of the checkpoint.
      names: names of the detector's family.

    Returns:
      Name -> key. It includes variables that only the checkpoint has, if the detector has their
      layer, under the name that they would have in the detector.
    """
    own = list(dict.fromkeys(name.rpartition('/')[0] for name in variables))
    layers = [*_inception(own, keys, names.backbone_parts), *names.slim_layers(own, keys)]
    return {
        f'{ours}{suffix}/{name}': f'{theirs}/{norm}{there}'
        for ours, theirs in layers
        for suffix, norm, table in (('', '', _OF_LAYER), ('_bn', 'BatchNorm/', _OF_NORM))
        for name, there in table.items()
        if f'{theirs}/{norm}{there}' in keys
    }


def _inception(
    own: Collection[str], keys: Collection[str], parts: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Yields pairs of a layer of the detector and the matching layer of an Inception network."""
    branches: dict[tuple[str, str], list[str]] = {}
    # Sorted, so that variables of a detector's second stage replace those of its first stage.
    for key in sorted(keys):
        network = _NETWORK.fullmatch(key)
        if network is None:
            continue
        layer, path = key.rpartition('/')[0], network['path']
        if found := _STEM.fullmatch(path):
            yield backbones.name_in_detector(f'conv_{found[1]}', own, parts), layer
        elif found := _IN_BRANCH.fullmatch(path):
            scope = layer.rpartition('/')[0]
            branches.setdefault((f'{_block(found)}_branch{found["branch"]}', scope), []).append(
                layer
            )
        elif found := _EXPANSION.fullmatch(path):
            yield backbones.name_in_detector(f'{_block(found)}_conv', own, parts), layer
    for (branch, _), layers in branches.items():
        for number, layer in enumerate(layers, start=1):
            yield backbones.name_in_detector(f'{branch}_{number}', own, parts), layer


def _block(found: re.Match) -> str:
    return _BLOCKS.get(found['block'], found['block'][0].lower() + found['block'][1:])
