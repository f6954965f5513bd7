"""Inception networks and MobileNets in checkpoints of TF-Slim, alone or within a detector."""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from object_detection.weights import backbones

_INCEPTION = re.compile(
    r'(?:(?:FirstStage|SecondStage)FeatureExtractor/)?'
    r'(?:InceptionV2|InceptionResnetV2)/(?:InceptionV2/|InceptionResnetV2/)?'
    r'(?P<path>.+?)/(?:depthwise_weights|weights)'
)
_STEM = re.compile(r'Conv2d_(\d[a-z])_\dx\d')
_IN_BRANCH = re.compile(r'(?:Repeat(?:_\d)?/)?(?P<block>\w+?)/Branch_(?P<branch>\d)/Conv2d_\w+')
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
_V1_PARTS = {'depthwise': 'conv_dw', 'pointwise': 'conv_pw'}
_V2_ENDS = {'Conv': 'Conv1', 'Conv_1': 'Conv_1'}


def is_known(keys: Iterable[str]) -> bool:
    """Whether the checkpoint of a classifier or detector holds one of these networks."""
    patterns = (_INCEPTION, _MOBILENET_V1, _MOBILENET_V2)
    return any(pattern.fullmatch(key) for key in keys for pattern in patterns)


def match(
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
        name = _mobilenet_layer(key)
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
