"""Strides of the maps of backbones of any size: the stem's, then each stage's; no TensorFlow."""

import itertools
import math
from collections.abc import Sequence

_RESNET_STEM = 4


def resnet(stages: int, downsample_in_first_stage: bool) -> list[int]:
    """Returns the strides of a ResNet; see `resnet_d.ResNetSpec`."""
    return _rising(_RESNET_STEM, [1 + downsample_in_first_stage, *[2] * (stages - 1)])


def hgnet_v2(
    stem_strides: Sequence[int],
    stage_downsample: Sequence[bool],
    stage_downsample_strides: Sequence[int],
) -> list[int]:
    """Returns the strides of an HGNetV2; see `hgnet_v2.HgNetV2Spec`."""
    stages = zip(stage_downsample, stage_downsample_strides, strict=True)
    factors = [stride if halves else 1 for halves, stride in stages]
    return _rising(math.prod(stem_strides), factors)


def _rising(stem: int, factors: Sequence[int]) -> list[int]:
    return list(itertools.accumulate(factors, lambda a, b: a * b, initial=stem))
