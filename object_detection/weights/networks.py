"""The layers of known image classifiers, by which files of weights and backbones are recognised.

Names are those of `keras.applications`, as in our backbones. Some files have the order of the
layers only; a network is then recognised by the numbers of its layers of each kind.
"""

import functools
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

CONV, DEPTHWISE, NORM = 'conv2d', 'depthwise_conv2d', 'batch_normalization'

# (Blocks of the stages 2-5, whether they are bottlenecks) -> depth.
_RESNETS = {
    ((2, 2, 2, 2), False): 18,
    ((3, 4, 6, 3), False): 34,
    ((3, 4, 6, 3), True): 50,
    ((3, 4, 23, 3), True): 101,
    ((3, 8, 36, 3), True): 152,
    ((3, 24, 36, 3), True): 200,
}
# Blocks of the seven stages; B1 and B2 differ by their numbers of channels alone.
_EFFICIENTNETS = {
    'B0': (1, 2, 2, 3, 3, 4, 1),
    'B1 or B2': (2, 3, 3, 4, 4, 5, 2),
    'B3': (2, 3, 3, 5, 5, 6, 2),
    'B4': (2, 4, 4, 6, 6, 8, 2),
    'B5': (3, 5, 5, 7, 7, 9, 3),
    'B6': (3, 6, 6, 8, 8, 11, 3),
    'B7': (4, 7, 7, 10, 10, 13, 4),
}
_MOBILENET_V1_BLOCKS, _MOBILENET_V2_BLOCKS = 13, 16

_RESNET_LAYER = re.compile(r'/conv(\d)_block(\d+)_(\d)_conv/')
_EFFICIENTNET_LAYER = re.compile(r'/block(\d)([a-z])_dwconv/')
# Pattern of a layer that only one network has -> the network.
_SIGNATURES = (
    (re.compile(r'/conv_dw_\d+/'), 'MobileNet v1'),
    (re.compile(r'/(block_\d+_depthwise|expanded_conv_depthwise)/'), 'MobileNet v2'),
    (re.compile(r'/(mixed_|block35_|conv_7b)'), 'Inception'),
    (re.compile(r'/expanded_conv_\d+_squeeze/'), 'MobileNet v3'),
    (re.compile(r'/expanded_conv_17_'), 'MobileNet EdgeTPU'),
    (re.compile(r'/(ibn|fused|tucker)_\d+_'), 'MobileDet'),
)


class Network(NamedTuple):
    """A network.

    Attributes:
      title: name of the network.
      layers: (name of a layer, CONV, DEPTHWISE or NORM), in the order of a sequential computation;
        the shortcut of a ResNet's block comes third, where Keras numbers it. The top is left out.
    """

    title: str
    layers: tuple[tuple[str, str], ...]

    def of_kind(self, kind: str) -> list[str]:
        """Returns the names of the layers of one kind."""
        return [name for name, each in self.layers if each == kind]


def by_counts(num_convolutions: int, num_depthwise: int) -> Network | None:
    """Returns the network with these numbers of layers, or None if none is known to have them."""
    return _known().get((num_convolutions, num_depthwise))


@functools.cache
def _known() -> dict[tuple[int, int], Network]:
    networks = [
        Network('MobileNet v1', tuple(_mobilenet_v1())),
        Network('MobileNet v2', tuple(_mobilenet_v2())),
    ]
    for (blocks, has_bottlenecks), depth in _RESNETS.items():
        if has_bottlenecks:
            networks.append(Network(f'ResNet-{depth}', tuple(_with_norms(_resnet(blocks)))))
    for size, repeats in _EFFICIENTNETS.items():
        networks.append(Network(f'EfficientNet-{size}', tuple(_efficientnet(repeats))))
    return {
        (len(network.of_kind(CONV)), len(network.of_kind(DEPTHWISE))): network
        for network in networks
    }


def norm_after(layer: str) -> str:
    """Returns the name of the norm after a layer; both may have a component before them."""
    scope, slash, name = layer.rpartition('/')
    return f'{scope}{slash}{_norms().get(name, f"{name}_bn")}'


@functools.cache
def _norms() -> dict[str, str]:
    return {
        layer: norm
        for network in _known().values()
        for (layer, _), (norm, kind) in itertools.pairwise(network.layers)
        if kind == NORM
    }


@functools.cache
def depthwise_layers() -> frozenset[str]:
    """Returns the names of the depthwise convolutions of all known networks."""
    return frozenset(name for each in _known().values() for name in each.of_kind(DEPTHWISE))


def _mobilenet_v1() -> Iterator[tuple[str, str]]:
    yield from (('conv1', CONV), ('conv1_bn', NORM))
    for block in range(1, _MOBILENET_V1_BLOCKS + 1):
        for layer, kind in ((f'conv_dw_{block}', DEPTHWISE), (f'conv_pw_{block}', CONV)):
            yield from ((layer, kind), (f'{layer}_bn', NORM))


def _mobilenet_v2() -> Iterator[tuple[str, str]]:
    yield from (('Conv1', CONV), ('bn_Conv1', NORM))
    for block in range(_MOBILENET_V2_BLOCKS + 1):
        name = f'block_{block}' if block else 'expanded_conv'
        parts = (('expand', CONV), ('depthwise', DEPTHWISE), ('project', CONV))
        for part, kind in parts if block else parts[1:]:
            yield from ((f'{name}_{part}', kind), (f'{name}_{part}_BN', NORM))
    yield from (('Conv_1', CONV), ('Conv_1_bn', NORM))


def _efficientnet(repeats: Sequence[int]) -> Iterator[tuple[str, str]]:
    yield from (('stem_conv', CONV), ('stem_bn', NORM))
    for stage, count in enumerate(repeats, start=1):
        for letter in itertools.islice('abcdefghijklmnopqrstuvwxyz', count):
            block = f'block{stage}{letter}'
            if stage > 1:
                yield from ((f'{block}_expand_conv', CONV), (f'{block}_expand_bn', NORM))
            yield from ((f'{block}_dwconv', DEPTHWISE), (f'{block}_bn', NORM))
            yield from ((f'{block}_se_{part}', CONV) for part in ('reduce', 'expand'))
            yield from ((f'{block}_project_conv', CONV), (f'{block}_project_bn', NORM))
    yield from (('top_conv', CONV), ('top_bn', NORM))


def bottleneck_layers(num_convolutions: int, *, shortcut_first: bool = False) -> Iterator[str]:
    """Yields the layers of a bottleneck ResNet in the order of their numbers.

    Args:
      num_convolutions: number of convolutions of the whole network; nothing is yielded if no ResNet
        has this number.
      shortcut_first: whether a stage begins with its shortcut; in Keras the shortcut is its third
        convolution.
    """
    for (blocks, has_bottlenecks), _ in _RESNETS.items():
        # Three convolutions per block, one shortcut per stage, and the first convolution.
        if has_bottlenecks and 3 * sum(blocks) + len(blocks) + 1 == num_convolutions:
            yield from _resnet(blocks, shortcut_first=shortcut_first)


def _resnet(blocks: Sequence[int], *, shortcut_first: bool = False) -> Iterator[str]:
    first_block = (0, 1, 2, 3) if shortcut_first else (1, 2, 0, 3)
    yield 'conv1'
    for stage, count in enumerate(blocks, start=2):
        for block in range(1, count + 1):
            order = first_block if block == 1 else (1, 2, 3)
            yield from (f'conv{stage}_block{block}_{i}' for i in order)


def _with_norms(layers: Iterable[str]) -> Iterator[tuple[str, str]]:
    for layer in layers:
        yield from ((f'{layer}_conv', CONV), (f'{layer}_bn', NORM))


def differing(here: Iterable[str], there: Iterable[str]) -> tuple[str, str] | None:
    """Describes two different backbones; None if they agree or one of them is not known.

    Two ResNets are compared by the stages that both have, two EfficientNets by all of theirs.

    Args:
      here, there: names of variables, such as 'backbone/conv4_block2_3_conv/kernel'.
    """
    ours, theirs = _recognized(here), _recognized(there)
    if ours is None or theirs is None:
        return None
    if ours.kind == theirs.kind:
        common = ours.stages.keys() & theirs.stages.keys()
        if all(ours.stages[stage] == theirs.stages[stage] for stage in common):
            return None
    return ours.title, theirs.title


class _Recognized(NamedTuple):
    """A backbone by its layers: its kind, the number of blocks of its stages, and its title."""

    kind: str
    stages: dict[int, int]
    title: str


def _recognized(names: Iterable[str]) -> _Recognized | None:
    names = list(names)
    if found := [match for name in names if (match := _RESNET_LAYER.search(name))]:
        bottleneck = any(match[3] == '3' for match in found)
        stages = _stages((int(match[1]), int(match[2])) for match in found)
        kind = f'{"bottleneck" if bottleneck else "basic"} ResNet'
        return _Recognized(kind, stages, _resnet_title(stages, bottleneck))
    if found := [match for name in names if (match := _EFFICIENTNET_LAYER.search(name))]:
        stages = _stages((int(match[1]), ord(match[2]) - ord('a') + 1) for match in found)
        counts = tuple(stages[stage] for stage in sorted(stages))
        sizes = [size for size, known in _EFFICIENTNETS.items() if known == counts]
        title = f'EfficientNet{"".join(f"-{size}" for size in sizes)}'
        return _Recognized('EfficientNet', stages, f'{title} ({_joined(counts)} blocks)')
    for pattern, title in _SIGNATURES:
        if any(pattern.search(name) for name in names):
            return _Recognized(title, {}, title)
    return None


def _stages(blocks: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Returns stage -> its number of blocks, from pairs of a stage and a block, counted from 1."""
    stages: dict[int, int] = {}
    for stage, block in blocks:
        stages[stage] = max(stages.get(stage, 0), block)
    return stages


def _resnet_title(stages: dict[int, int], bottleneck: bool) -> str:
    counts = tuple(stages[stage] for stage in sorted(stages))
    blocks = f'{_joined(counts)} {"bottleneck" if bottleneck else "basic"} blocks'
    for (known, has_bottlenecks), depth in _RESNETS.items():
        if has_bottlenecks == bottleneck and known[: len(counts)] == counts and len(counts) > 2:
            return f'ResNet-{depth} ({blocks})'
    return f'a ResNet of {blocks}'


def _joined(counts: Iterable[int]) -> str:
    return ', '.join(map(str, counts))
