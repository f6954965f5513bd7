"""MobileNet v3 (https://arxiv.org/abs/1905.02244) and MobileNet EdgeTPU, as tables of blocks.

The networks are those of the reference's detectors: from the last stride on, MobileNet v3 has half
the channels of a classifier, and neither has the layers after the last map. MobileNet v3 also is
there as torchvision has it: padded alike on both sides, with other norms, and with an exact hard
sigmoid.
"""

import dataclasses
import functools

from object_detection.models.activations import exact_sixth, hard_swish, shifted_relu6, sixth
from object_detection.models.backbones import mobilenet
from object_detection.models.backbones.mobile_blocks import FUSED, INVERTED, Block, Network

_inverted = functools.partial(Block, INVERTED)
_relu = functools.partial(_inverted, activation='relu')
_squeezed = functools.partial(_inverted, squeezes=True)
_squeezed_relu = functools.partial(_squeezed, activation='relu')
_fused = functools.partial(Block, FUSED)

# Kernel size, strides, filters, expansion.
_LARGE_TO_16 = (
    _relu(3, 1, 16, 1),
    _relu(3, 2, 24, 4),
    _relu(3, 1, 24, 3),
    _squeezed_relu(5, 2, 40, 3),
    *[_squeezed_relu(5, 1, 40, 3)] * 2,
    _inverted(3, 2, 80, 6),
    _inverted(3, 1, 80, 2.5),
    *[_inverted(3, 1, 80, 184 / 80)] * 2,
    *[_squeezed(3, 1, 112, 6)] * 2,
)


def _large_blocks(filters: int) -> tuple[Block, ...]:
    """Returns the blocks, of which those of stride 32 have `filters` channels."""
    return (*_LARGE_TO_16, _squeezed(5, 2, filters, 6), *[_squeezed(5, 1, filters, 6)] * 2)


_SMALL = (
    _squeezed_relu(3, 2, 16, 1),
    _relu(3, 2, 24, 72 / 16),
    _relu(3, 1, 24, 88 / 24),
    _squeezed(5, 2, 40, 4),
    *[_squeezed(5, 1, 40, 6)] * 2,
    *[_squeezed(5, 1, 48, 3)] * 2,
    _squeezed(5, 2, 48, 6),
    *[_squeezed(5, 1, 48, 6)] * 2,
)
_EDGETPU = (
    _fused(3, 1, 16, 1),
    _fused(3, 2, 32, 8),
    *[_fused(3, 1, 32, 4)] * 3,
    _fused(3, 2, 48, 8),
    *[_fused(3, 1, 48, 4)] * 3,
    _inverted(3, 2, 96, 8),
    *[_inverted(3, 1, 96, 4)] * 3,
    _inverted(3, 1, 96, 8, has_skip=False),
    *[_inverted(3, 1, 96, 4)] * 3,
    _inverted(5, 2, 160, 8),
    *[_inverted(5, 1, 160, 4)] * 3,
    _inverted(3, 1, 192, 8),
)

_network = functools.partial(
    Network,
    rounded=mobilenet.round_to_eights,
    hyperparams=mobilenet.default_hyperparams(),
    depthwise=lambda kernel_size: {'regularizer': None},
    squeeze=(('relu',), (shifted_relu6, sixth)),
    scope='expanded_conv',
    padding='the reference pads whole blocks by it, which changes the sizes of its maps',
)
_large = _network(16, _large_blocks(80), last_filters=480, activation=hard_swish)
_small = _network(16, _SMALL, last_filters=288, activation=hard_swish)
_edgetpu = _network(32, _EDGETPU)

MOBILENET_V3_LARGE, MOBILENET_V3_SMALL, MOBILENET_EDGETPU = (
    each.row() for each in (_large, _small, _edgetpu)
)
# With an expansion as the map of level 4: that of the next stride, or of the stride's last block.
MOBILENET_V3_LARGE_EXPANDED = _large.row({4: 'expanded_conv_12_expand'})
MOBILENET_V3_SMALL_EXPANDED = _small.row({4: 'expanded_conv_8_expand'})
MOBILENET_EDGETPU_EXPANDED = _edgetpu.row({4: 'expanded_conv_16_expand'})


def _exact(filters: int, epsilon: float) -> Network:
    """Returns torchvision's network, with `filters` channels in the blocks of stride 32."""
    norm = dataclasses.replace(mobilenet.default_hyperparams().batch_norm, epsilon=epsilon)
    return _network(
        16,
        _large_blocks(filters),
        last_filters=6 * filters,
        activation=hard_swish,
        hyperparams=dataclasses.replace(mobilenet.default_hyperparams(), batch_norm=norm),
        squeeze=(('relu',), (shifted_relu6, exact_sixth)),
        padding='padding_mode says how its convolutions are padded',
        pads_alike=True,
    )


# The first block of stride 32 and, as level 6, the last convolution, of the same stride.
MOBILENET_V3_LARGE_FULL = _exact(160, 1e-5).row({5: 'expanded_conv_12', 6: 'last_conv'}, {6: 32})
MOBILENET_V3_LARGE_HALVED = _exact(80, 1e-3).row({4: 'expanded_conv_12_expand'})
