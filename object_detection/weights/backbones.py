"""Compares the backbones of detectors and of weights files by the names of their layers.

A ResNet's layers are named `conv4_block2_3_conv`, and so on. The stages of a detector's backbone
may belong to several components (`VariableNames.backbone_parts`); in an image classifier they all
belong to one.
"""

import logging
import re
from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np
import tensorflow as tf

from object_detection.models.backbones.resnet_v1 import Options, Padding, options_of
from object_detection.models.feature_extractors.feature_extractor import subtract_means
from object_detection.weights.interfaces import Detector

# (Blocks of the stages 2-5, whether they are bottlenecks) -> depth.
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


def name_in_detector(layer_path: str, names: Collection[str], parts: Sequence[str]) -> str:
    """Returns the name of a backbone variable in a detector.

    Args:
      layer_path: 'conv5_block1_1_conv/kernel'.
      names: names of the detector's variables.
      parts: components of the detector that may contain layers of its backbone.

    Returns:
      The matching one of `names`, else the name in the first of `parts`.
    """
    candidates = [f'{part}/{layer_path}' for part in parts]
    return next((name for name in candidates if name in names), candidates[0])


def bottleneck_layers(num_convolutions: int, *, shortcut_first: bool = False) -> Iterator[str]:
    """Yields the layers of a bottleneck ResNet in the order of their numbers.

    Args:
      num_convolutions: number of convolutions of the whole network; nothing is yielded if no ResNet
        has this number.
      shortcut_first: whether a stage begins with its shortcut; in Keras the shortcut is its third
        convolution.
    """
    first_block = (0, 1, 2, 3) if shortcut_first else (1, 2, 0, 3)
    for (blocks, has_bottlenecks), _ in _DEPTHS.items():
        # Three convolutions per block, one shortcut per stage, and the first convolution.
        if has_bottlenecks and 3 * sum(blocks) + len(blocks) + 1 == num_convolutions:
            yield 'conv1'
            for stage, count in enumerate(blocks, start=2):
                for block in range(1, count + 1):
                    order = first_block if block == 1 else (1, 2, 3)
                    yield from (f'conv{stage}_block{block}_{i}' for i in order)


def differing_backbones(here: Iterable[str], there: Iterable[str]) -> tuple[str, str] | None:
    """Describes two backbones whose common stages have different blocks; None if they agree.

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
    """Returns stage -> number of blocks, and whether the blocks are bottlenecks."""
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
    """Logs differences between two networks that no conversion of weights can compensate.

    Args:
      description: description of the file.
      theirs: options of the file's network; `frozen_stages` is ignored.
      detector: detector that receives the weights.
      remark: text to append to the message.
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
    """Logs if a ResNet detector normalises images differently than by ImageNet's means.

    Args:
      description: description of a file whose network subtracts ImageNet's means, such as files of
        Keras and of the reference.
      detector: detector that receives the weights.
    """
    names = detector.variable_names
    backbone = detector.parts().get(names.backbone_parts[0])
    if backbone is None or options_of(backbone) is None:
        return
    ends = tf.constant([0.0, 255.0])[:, tf.newaxis, tf.newaxis, tf.newaxis] * tf.ones([1, 1, 1, 3])
    # Differences in further digits of the means do not matter.
    if np.allclose(detector.normalize(ends), subtract_means(ends), atol=1.0):
        return
    _logger.warning(
        '%s is of a network that sees images less the means of ImageNet, which %s.preprocess '
        'changes: leave that field out, or train all stages with these weights.',
        description,
        names.backbone_field,
    )
