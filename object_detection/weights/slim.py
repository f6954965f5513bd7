"""Checkpoints of TensorFlow 1: detectors of the TensorFlow Object Detection API, and Inception
networks, MobileNets and NASNets of TF-Slim.

The scopes of a detector end with `FeatureExtractor`, below which its networks lie, or with
`BoxPredictor`, which may have a number. Networks are in `slim_networks`, except for the names of
ResNets, which are in `third_party_names`.

Networks in checkpoints of TF-Slim are alone or within a detector.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np

from object_detection.core.detector import Detector
from object_detection.core.variable_names import VariableNames
from object_detection.weights import backbones, networks, third_party_names
from object_detection.weights.checkpoint_contents import is_weight
from object_detection.weights.interfaces import CHECKPOINT_TYPES, Arrays, Entry, WeightSource
from object_detection.weights.third_party_resnets import ThirdPartyResnet

_INCEPTION = re.compile(
    r'(?:(?:FirstStage|SecondStage|)FeatureExtractor/)?'
    r'(?:Inception(?:V2|V3|ResnetV2)/)+'
    r'(?P<path>.+?)/(?:depthwise_weights|weights)'
)
_STEM = re.compile(r'Conv2d_(\d[a-z])_\dx\d')
_IN_BRANCH = re.compile(r'(?:Repeat(?:_\d)?/)?(?P<block>\w+?)/Branch_(?P<branch>\d)/Conv\w+')
_EXPANSION = re.compile(r'(?:Repeat(?:_\d)?/)?(?P<block>\w+?)/Conv2d_1x1')
# The last block of each kind has a separate scope.
_BLOCKS = {'Block8': 'block8_10'}

_MOBILENET_V1 = re.compile(
    r'(?:FeatureExtractor/)?(?:MobilenetV1/)+Conv2d_(?P<block>\d+)(?:_(?P<part>depthwise|pointwise))?'
    r'/(?:depthwise_weights|weights)'
)
_MOBILENET_V2 = re.compile(
    r'(?:FeatureExtractor/)?(?:MobilenetV2/)+'
    r'(?:(?P<end>Conv|Conv_1)|expanded_conv(?:_(?P<block>\d+))?/(?P<part>expand|depthwise|project))'
    r'/(?:depthwise_weights|weights)'
)
_MOBILENET_V3 = re.compile(
    r'(?:FeatureExtractor/)?(?:MobilenetV3|MobilenetEdgeTPU)/'
    r'(?:(?P<end>Conv|Conv_1)|expanded_conv(?:_(?P<block>\d+))?/'
    r'(?P<part>expand|depthwise|project|squeeze_excite/Conv(?:_1)?))/(?:depthwise_weights|weights)'
)
_MOBILEDET = re.compile(
    r'(?:FeatureExtractor/)?MobileDet(?:CPU|DSP|EdgeTPU|GPU)/'
    r'(?:Conv|(?P<kind>IBNNoExpansion|IBN|FusedConv|TuckerConv)(?:_(?P<block>\d+))?/'
    r'(?P<part>(?:SqueezeExcite/)?Conv(?:_[12])?|SeparableConv2d))/(?:depthwise_weights|weights)'
)
_NASNET = re.compile(
    r'(?:(?:First|Second)StageFeatureExtractor/)?'
    r'(?P<path>conv0(?:_bn)?|(?:cell(?:_stem)?|reduction_cell)_\d+/.+)/'
    r'(?:(?:depthwise_|pointwise_|)weights|gamma|beta|moving_mean|moving_variance)'
)
# Ends the names in checkpoints of NASNet alone, which hold the averages of its weights only.
_AVERAGE = '/ExponentialMovingAverage'
_V1_PARTS = {'depthwise': 'conv_dw', 'pointwise': 'conv_pw'}
_V2_ENDS = {'Conv': 'Conv1', 'Conv_1': 'Conv_1'}
_V3_ENDS = {'Conv': 'first_conv', 'Conv_1': 'last_conv'}
_V3_SQUEEZES = {'squeeze_excite/Conv': 'squeeze', 'squeeze_excite/Conv_1': 'excite'}
# Kind of block -> its kind here, and its convolutions.
_MOBILEDET_BLOCKS = {
    'IBNNoExpansion': ('ibn_no_expansion', {'Conv': 'project'}),
    'IBN': ('ibn', {'Conv': 'expand', 'Conv_1': 'project'}),
    'FusedConv': ('fused', {'Conv': 'expand', 'Conv_1': 'project'}),
    'TuckerConv': ('tucker', {'Conv': 'reduce', 'Conv_1': 'core', 'Conv_2': 'project'}),
}
_MOBILEDET_PARTS = {
    'SeparableConv2d': 'depthwise',
    'SqueezeExcite/Conv': 'squeeze',
    'SqueezeExcite/Conv_1': 'excite',
}


def is_known(keys: Iterable[str]) -> bool:
    """Whether the checkpoint of a classifier or detector holds one of these networks."""
    mobile = (_MOBILENET_V1, _MOBILENET_V2, _MOBILENET_V3, _MOBILEDET)
    patterns = (_INCEPTION, *mobile, _NASNET)
    names = [key.removesuffix(_AVERAGE) for key in keys]
    return any(pattern.fullmatch(name) for name in names for pattern in patterns)


def match_network(
    own: Collection[str], keys: Collection[str], parts: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Yields pairs of a layer of a detector and the matching layer of a network.

    Args:
      own: names of the layers of the detector.
      keys: keys of the checkpoint.
      parts: components of the detector that may contain layers of its backbone.
    """
    yield from _inception(own, keys, parts)
    for key in keys:
        found = _NASNET.fullmatch(key)
        name = found['path'].replace('/', '_') if found else _mobilenet_layer(key)
        if name is not None:
            yield backbones.name_in_detector(name, own, parts), key.rpartition('/')[0]


def _mobilenet_layer(key: str) -> str | None:
    """Returns our name of the layer of a MobileNet that a kernel belongs to."""
    if found := _MOBILENET_V1.fullmatch(key):
        part = found['part']
        return f'{_V1_PARTS[part]}_{found["block"]}' if part else 'conv1'
    if found := _MOBILENET_V2.fullmatch(key):
        if found['end']:
            return _V2_ENDS[found['end']]
        block = f'block_{found["block"]}' if found['block'] else 'expanded_conv'
        return f'{block}_{found["part"]}'
    if found := _MOBILENET_V3.fullmatch(key):
        if found['end']:
            return _V3_ENDS[found['end']]
        part = _V3_SQUEEZES.get(found['part'], found['part'])
        return f'expanded_conv_{found["block"] or 0}_{part}'
    if found := _MOBILEDET.fullmatch(key):
        if not found['kind']:
            return 'first_conv'
        block, convolutions = _MOBILEDET_BLOCKS[found['kind']]
        part = (convolutions | _MOBILEDET_PARTS).get(found['part'])
        return part and f'{block}_{found["block"] or 0}_{part}'
    return None


def _inception(
    own: Collection[str], keys: Collection[str], parts: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Yields pairs of a layer of the detector and the matching layer of an Inception network."""
    branches: dict[tuple[str, str], list[str]] = {}
    # Sorted, so that variables of a detector's second stage replace those of its first stage.
    for key in sorted(keys):
        network = _INCEPTION.fullmatch(key)
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


_SCOPE = re.compile(r'\w*(?:FeatureExtractor|BoxPredictor(?:_\d+)?)/')
# Suffix of a variable here -> suffix in TF-Slim, where a norm lies within the layer before it.
_LAYERS = {
    'kernel': 'weights',
    'bias': 'biases',
    'depthwise_kernel': 'depthwise_weights',
    'pointwise_kernel': 'pointwise_weights',
}
_NORMS = ('gamma', 'beta', 'moving_mean', 'moving_variance')


class SlimCheckpoint(WeightSource):
    """A detector, an Inception network, a MobileNet or a NASNet."""

    def __init__(self, arrays: Arrays):
        has_detector = is_detector(arrays.shapes)
        keys = {k: k for k in sorted(arrays.shapes) if is_weight(k)}
        if not has_detector:
            averages = [k for k in sorted(arrays.shapes) if k.endswith(_AVERAGE)]
            names = {k.removesuffix(_AVERAGE): k for k in averages}
            keys |= {name: k for name, k in names.items() if _NASNET.fullmatch(name)}
        # Name of a variable -> its key in the file.
        self._keys = keys
        shapes = {k: arrays.shapes[k] for k in keys.values()}
        what = 'detector of TensorFlow 1' if has_detector else 'TF-Slim network'
        types = CHECKPOINT_TYPES if has_detector else CHECKPOINT_TYPES[:1]
        super().__init__(arrays, f'{what} {arrays.path}', shapes, types)

    def entries(self, detector: Detector) -> dict[str, Entry]:
        """Returns the file's entries for a detector, by the detector's names."""
        entries: dict[str, Entry] = {}
        if third_party_names.FIRST in third_party_names.SLIM_RESNET.translate(self.shapes):
            resnet = ThirdPartyResnet(self._arrays, third_party_names.SLIM_RESNET)
            entries = resnet.entries(detector)
        variables = detector.named_variables()
        keys = match(variables, self._keys, detector.variable_names)
        entries |= {ours: self._entry(self._keys[theirs]) for ours, theirs in keys.items()}
        for name in variables:
            layer, _, variable = name.rpartition('/')
            if variable == 'gamma' and name not in entries and f'{layer}/beta' in entries:
                entries[name] = _ones(entries[f'{layer}/beta'])
        return entries


def _ones(beta: Entry) -> Entry:
    """Returns the scale of a norm that has an offset alone, as in Inception networks of TF-Slim."""
    return beta._replace(read=lambda: np.ones(beta.shape, np.float32))


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
    layers = [*match_network(own, keys, names.backbone_parts), *names.slim_layers(own, keys)]
    found = {
        f'{ours}/{name}': f'{theirs}/{there}'
        for ours, theirs in layers
        for name, there in _LAYERS.items()
    }
    found |= {
        f'{networks.norm_after(ours)}/{name}': f'{theirs}/BatchNorm/{name}'
        for ours, theirs in layers
        for name in _NORMS
    }
    # In towers that several maps share, each map has norms of its own.
    found |= {f'{ours}/{name}': f'{theirs}/{name}' for ours, theirs in layers for name in _NORMS}
    return {name: key for name, key in found.items() if key in keys}
