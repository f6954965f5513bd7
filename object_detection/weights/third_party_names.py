"""Names of ResNet v1 weights in the checkpoints of other systems, as layers of our backbones.

A format is recognised by its names alone.
"""

import re
from collections.abc import Callable, Collection
from typing import NamedTuple

from object_detection.models.backbones.resnet_v1 import Options, Padding
from object_detection.models.image_values import VGG_MEANS
from object_detection.weights import networks

FIRST = 'conv1_conv/kernel'

_NORM = r'(?:beta|gamma|moving_mean|moving_variance)'
# Suffix of a variable in the other system -> suffix here.
_VARIABLES = {
    **dict.fromkeys(('kernel', 'conv2d/kernel', 'weights', 'W'), 'conv/kernel'),
    'bn/mean/EMA': 'bn/moving_mean',
    'bn/variance/EMA': 'bn/moving_variance',
    # Of PyTorch, where the layer before a norm names it.
    'weight': 'conv/kernel',
    **{'norm.weight': 'bn/gamma', 'norm.bias': 'bn/beta'},
    **{'norm.running_mean': 'bn/moving_mean', 'norm.running_var': 'bn/moving_variance'},
    **{
        f'{norm}/{name}': f'bn/{name}'
        for norm in ('BatchNorm', 'bn')
        for name in ('beta', 'gamma', 'moving_mean', 'moving_variance')
    },
}
# A function of the names in a file; returns our name 'conv2_block1_1_conv/kernel' -> their name,
# for the names that belong to the format.
Translation = Callable[[Collection[str]], dict[str, str]]


class Pixels(NamedTuple):
    """The normalisation of a network's input: (image - mean) / std of images in 0..255.

    Attributes:
      mean, std: values of red, green and blue.
      is_bgr: whether the first channel of its images is blue.
    """

    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    is_bgr: bool = False


class First(NamedTuple):
    """The first layers of a network, in our names.

    Attributes:
      kernel: of the first convolution.
      norm: the batch norm after it; '' if there is none.
    """

    kernel: str
    norm: str


class Format(NamedTuple):
    """Checkpoints of one system.

    Attributes:
      title: title of its checkpoints.
      example: one of its names.
      translate: finds the names of the format.
      pixels: normalisation of its images.
      options: options of its networks, whose differences no conversion of weights can compensate.
      remark: remark on these options, if its networks differ among each other.
      epsilon: epsilon of its batch norms.
      first: its first layers.
    """

    title: str
    example: str
    translate: Translation
    pixels: Pixels
    options: Options
    remark: str = ''
    epsilon: float = 1e-5
    first: First = First(FIRST, 'conv1_bn')


def structured(stem: str, unit: str, *, first_stage: int, first_block: int) -> Translation:
    """Translates names that contain stage, block and convolution.

    Args:
      stem: pattern of the variables of the first convolution and its norm; the group `variable`
        holds a key of `_VARIABLES`.
      unit: pattern of the variables of the stages, with the groups `stage`, `block`, `conv` (1-3,
        or none for the shortcut) and `variable`.
      first_stage: the other system's number of our stage 2.
      first_block: the other system's number of the first block of a stage.
    """
    stem_pattern, unit_pattern = re.compile(stem), re.compile(unit)

    def translate(names: Collection[str]) -> dict[str, str]:
        found = {}
        # Sorted, so that variables of a detector's second stage replace those of its first stage.
        for name in sorted(names):
            layer = 'conv1'
            match = stem_pattern.fullmatch(name)
            if match is None:
                match = unit_pattern.fullmatch(name)
                if match is None:
                    continue
                stage = int(match['stage']) - first_stage + 2
                block = int(match['block']) - first_block + 1
                layer = f'conv{stage}_block{block}_{match["conv"] or 0}'  # 0: the shortcut
            found[f'{layer}_{_VARIABLES[match["variable"]]}'] = name
        return found

    return translate


_COUNTED = re.compile(
    r'(?:resnet\d+/)?(?:(?P<conv>conv2d)|batch_normalization)(?:_(?P<number>\d+))?'
    rf'/(?P<variable>(?(conv)kernel|{_NORM}))'
)


def _counted(names: Collection[str]) -> dict[str, str]:
    """Translates names that number the layers; {} if no ResNet has this number of layers."""
    matches = [match for name in names if (match := _COUNTED.fullmatch(name))]
    count = sum(match['conv'] is not None for match in matches)
    order = list(networks.bottleneck_layers(count, shortcut_first=True))
    found = {}
    for match in matches:
        number = int(match['number'] or 0)
        if number < len(order):
            kind = 'conv' if match['conv'] else 'bn'
            found[f'{order[number]}_{kind}/{match["variable"]}'] = match.string
    return found


IMAGENET = Pixels(mean=(123.675, 116.28, 103.53), std=(58.395, 57.12, 57.375))

_NVIDIA = rf'(?P<variable>conv2d/kernel|BatchNorm/{_NORM})'
_SLIM_SCOPE = r'(?:(?:FirstStage|SecondStage)?FeatureExtractor/)?(?:resnet_v1_\d+/)?resnet_v1_\d+'
_SLIM = rf'(?P<variable>weights|BatchNorm/{_NORM})'
_TENSORPACK = r'(?P<variable>W|bn/(?:beta|gamma|mean/EMA|variance/EMA))(?::0)?'

# In TF-Slim the stride is at the end of a stage, here at the beginning of the next one. Both give
# the same result, since the positions in between that are left out are not used.
SLIM_RESNET = Format(
    'TF-Slim ResNet v1',
    'resnet_v1_50/block1/unit_1/bottleneck_v1/conv1/weights',
    structured(
        rf'{_SLIM_SCOPE}/conv1/{_SLIM}',
        rf'{_SLIM_SCOPE}/block(?P<stage>\d)/unit_(?P<block>\d+)/bottleneck_v1/'
        rf'(?:conv(?P<conv>[123])|shortcut)/{_SLIM}',
        first_stage=1,
        first_block=1,
    ),
    Pixels(mean=VGG_MEANS, std=(1.0, 1.0, 1.0)),
    Options(),
)
NAME_BASED = (
    Format(
        'NVIDIA ResNet v1.5',
        'resnet50/btlnck_block_0_0/bottleneck_1/conv2d/kernel',
        structured(
            rf'(?:[^/]+/)?conv2d/{_NVIDIA}',
            r'(?:[^/]+/)?btlnck_block_(?P<stage>\d)_(?P<block>\d+)/'
            rf'(?:bottleneck_(?P<conv>[123])|shortcut/conv2d)/{_NVIDIA}',
            first_stage=0,
            first_block=0,
        ),
        IMAGENET,
        Options(stride_in_1x1=False, padding=Padding.SAME),
    ),
    Format(
        'TPU or Habana ResNet', 'conv2d_1/kernel', _counted, IMAGENET, Options(stride_in_1x1=False)
    ),
    SLIM_RESNET,
)
TENSORPACK = Format(
    'tensorpack ResNet',
    'group0/block0/conv1/W',
    structured(
        rf'conv0/{_TENSORPACK}',
        r'group(?P<stage>\d)/block(?P<block>\d+)/'
        rf'conv(?:(?P<conv>[123])|shortcut)/{_TENSORPACK}',
        first_stage=0,
        first_block=0,
    ),
    IMAGENET._replace(is_bgr=True),
    Options(stride_in_1x1=False, padding=Padding.SYMMETRIC_ALL),
    ' (MSRA variants have their stride at the 1x1)',
)
