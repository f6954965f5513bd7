"""Backbones of detectors and of weights files: the names of their layers, and how they differ.

A ResNet's layers are named `conv4_block2_3_conv`, and so on. The stages of a detector's backbone
may lie in several parts (`VariableNames.backbone_parts`); an image classifier has them all in one.
"""

import logging
import re
from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np
import tensorflow as tf

from object_detection.models.backbones.resnet_v1 import Options, Padding, options_of
from object_detection.models.feature_extractors.two_stage import subtract_means
from object_detection.weights.interfaces import Detector

# Depth by the blocks of the stages 2-5, and whether they are bottlenecks.
_DEPTHS = {
    ((2, 2, 2, 2), False): 18,
    ((3, 4, 6, 3), False): 34,
    ((3, 4, 6, 3), True): 50,
    ((3, 4, 23, 3), True): 101,
    ((3, 8, 36, 3), True): 152,
    ((3, 24, 36, 3), True): 200,
}
_BLOCK = re.compile(r'/conv(\d)_block(\d+)_(\d)_conv/')

_logger = logging.getLogger(__name__)

_MORE_BELOW = 'more at the bottom and on the right'
_PADDED = {
    Padding.SYMMETRIC: f'alike on all sides and the first pooling {_MORE_BELOW}',
    Padding.SAME: f'{_MORE_BELOW}, and so is the first pooling',
    Padding.SYMMETRIC_ALL: 'alike on all sides, and so is the first pooling',
}


def place(layer_path: str, names: Collection[str], parts: Sequence[str]) -> str:
    """Returns the name in a detector of a layer's variable.

    Args:
      layer_path: 'conv5_block1_1_conv/kernel'.
      names: names of the detector's variables.
      parts: parts of the detector that layers of its backbone may lie in.

    Returns:
      The one of `names` that has it, else its name in the first of `parts`.
    """
    candidates = [f'{part}/{layer_path}' for part in parts]
    return next((name for name in candidates if name in names), candidates[0])


def bottleneck_layers(num_convolutions: int, *, shortcut_first: bool = False) -> Iterator[str]:
    """Yields the layers of a bottleneck ResNet in the order that they are numbered in.

    Args:
      num_convolutions: number of convolutions of the whole network; nothing is yielded where no
        ResNet has so many.
      shortcut_first: whether a stage begins with its shortcut; in Keras it is the third.
    """
    first_block = (0, 1, 2, 3) if shortcut_first else (1, 2, 0, 3)
    for (blocks, has_bottlenecks), _ in _DEPTHS.items():
        # Three a block, a shortcut a stage, and the first one.
        if has_bottlenecks and 3 * sum(blocks) + len(blocks) + 1 == num_convolutions:
            yield 'conv1'
            for stage, count in enumerate(blocks, start=2):
                for block in range(1, count + 1):
                    order = first_block if block == 1 else (1, 2, 3)
                    yield from (f'conv{stage}_block{block}_{i}' for i in order)


def differing_backbones(here: Iterable[str], there: Iterable[str]) -> tuple[str, str] | None:
    """Describes two backbones whose common stages have other blocks; None if they agree.

    Args:
      here, there: names of variables, such as 'backbone/conv4_block2_3_conv/kernel'.
    """
    (stages, bottleneck), (other_stages, other_bottleneck) = _blocks(here), _blocks(there)
    common = stages.keys() & other_stages.keys()
    same = all(stages[stage] == other_stages[stage] for stage in common)
    if not common or (same and bottleneck == other_bottleneck):
        return None
    return _describe(stages, bottleneck), _describe(other_stages, other_bottleneck)


def _blocks(names: Iterable[str]) -> tuple[dict[int, int], bool]:
    """Stage -> number of blocks, and whether the blocks are bottlenecks."""
    found = [match for name in names if (match := _BLOCK.search(name))]
    stages: dict[int, int] = {}
    for match in found:
        stage, block, _ = map(int, match.groups())
        stages[stage] = max(stages.get(stage, 0), block)
    return stages, any(match.group(3) == '3' for match in found)


def _describe(stages: dict[int, int], bottleneck: bool) -> str:
    counts = tuple(stages[stage] for stage in sorted(stages))
    blocks = f'{", ".join(map(str, counts))} {"bottleneck" if bottleneck else "basic"} blocks'
    for (known, has_bottlenecks), depth in _DEPTHS.items():
        if has_bottlenecks == bottleneck and known[: len(counts)] == counts and len(counts) > 2:
            return f'ResNet-{depth} ({blocks})'
    return f'a ResNet of {blocks}'


def warn_of_differences(
    description: str, theirs: Options, detector: Detector, remark: str = ''
) -> None:
    """Logs what no change of weights makes up for, if there is anything.

    Args:
      description: description of the file.
      theirs: how its network computes; `frozen_stages` do not count.
      detector: that gets the weights.
      remark: what is to be said in addition.
    """
    names = detector.variable_names
    backbone = detector.parts().get(names.backbone_parts[0])
    ours = options_of(backbone) if backbone is not None else None
    if ours is None:
        return
    differences, fields = [], []
    if theirs.stride_in_1x1 != ours.stride_in_1x1:
        there, here = '3x3 convolution', '1x1 before'
        if theirs.stride_in_1x1:
            there, here = '1x1 convolution', '3x3 after it'
        differences.append(
            f'there the stages 3 to 5 have their stride at the first {there}, here at the {here}'
        )
        fields.append(f'stride_in_1x1: {str(theirs.stride_in_1x1).lower()}')
    if theirs.padding is not ours.padding:
        differences.append(
            f'there strided convolutions are padded {_PADDED[theirs.padding]}, '
            f'here {_PADDED[ours.padding]}'
        )
        fields.append(f'padding_mode: {theirs.padding.name}')
    if differences:
        _logger.warning(
            '%s is of a network that differs from the backbone here: %s%s. Set %s { %s }, or train '
            'all stages with these weights; frozen ones do not give the features that they were '
            'made for.',
            description,
            '; '.join(differences),
            remark,
            names.backbone_field,
            ' '.join(fields),
        )


def warn_of_images(description: str, detector: Detector) -> None:
    """Logs where a detector on a ResNet normalises images otherwise than by ImageNet's means.

    Args:
      description: description of a file whose network does that, as Keras's and the reference's.
      detector: that gets the weights.
    """
    names = detector.variable_names
    backbone = detector.parts().get(names.backbone_parts[0])
    if backbone is None or options_of(backbone) is None:
        return
    ends = tf.constant([0.0, 255.0])[:, tf.newaxis, tf.newaxis, tf.newaxis] * tf.ones([1, 1, 1, 3])
    # Other digits of the means do not matter.
    if np.allclose(detector.normalize(ends), subtract_means(ends), atol=1.0):
        return
    _logger.warning(
        '%s is of a network that sees images less the means of ImageNet, which %s.preprocess '
        'changes: leave that field out, or train all stages with these weights.',
        description,
        names.backbone_field,
    )
