"""Checkpoints of TensorFlow 1: detectors of the TensorFlow Object Detection API, and Inception
networks and MobileNets of TF-Slim.

The scopes of a detector end with `FeatureExtractor`, below which its networks lie, or with
`BoxPredictor`, which may have a number. Networks are in `slim_networks`, except for the names of
ResNets, which are in `third_party_names`.
"""

import re
from collections.abc import Collection
from typing import Self

from object_detection.weights import networks, slim_networks, third_party_names
from object_detection.weights.checkpoint_contents import is_weight
from object_detection.weights.interfaces import CHECKPOINT_TYPES, Arrays, Detector, Entry
from object_detection.weights.third_party_resnets import ThirdPartyResnet
from object_detection.weights.variable_names import VariableNames

_SCOPE = re.compile(r'\w*(?:FeatureExtractor|BoxPredictor(?:_\d+)?)/')
# Suffix of a variable here -> suffix in TF-Slim, where a norm lies within the layer before it.
_OF_LAYER = {
    'kernel': 'weights',
    'bias': 'biases',
    'depthwise_kernel': 'depthwise_weights',
    'pointwise_kernel': 'pointwise_weights',
}
_OF_NORM = ('gamma', 'beta', 'moving_mean', 'moving_variance')


class SlimCheckpoint:
    """A detector, an Inception network or a MobileNet, as a `sources.WeightSource`.

    Args:
      arrays: the open file, which this object closes.
    """

    def __init__(self, arrays: Arrays):
        self._arrays = arrays
        self.shapes = {k: shape for k, shape in sorted(arrays.shapes.items()) if is_weight(k)}
        has_detector = is_detector(self.shapes)
        self.types = CHECKPOINT_TYPES if has_detector else ('classification',)
        what = 'detector of TensorFlow 1' if has_detector else 'TF-Slim network'
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
    """Whether a checkpoint with these keys is a detector, by its scopes."""
    return any(_SCOPE.match(key) for key in keys)


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
    layers = [*slim_networks.match(own, keys, names.backbone_parts), *names.slim_layers(own, keys)]
    found = {
        f'{ours}/{name}': f'{theirs}/{there}'
        for ours, theirs in layers
        for name, there in _OF_LAYER.items()
    }
    found |= {
        f'{networks.norm_after(ours)}/{name}': f'{theirs}/BatchNorm/{name}'
        for ours, theirs in layers
        for name in _OF_NORM
    }
    # In towers that several maps share, each map has norms of its own.
    found |= {f'{ours}/{name}': f'{theirs}/{name}' for ours, theirs in layers for name in _OF_NORM}
    return {name: key for name, key in found.items() if key in keys}
