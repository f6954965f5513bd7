"""MobileDet (https://arxiv.org/abs/2004.14525) for CPUs, DSPs, EdgeTPUs and GPUs, as tables."""

import functools
import math

import keras

from object_detection.models.activations import hard_swish
from object_detection.models.backbones.mobile_blocks import (
    FUSED,
    INVERTED,
    INVERTED_WITHOUT_EXPANSION,
    TUCKER,
    Block,
    Network,
)
from object_detection.models.hyperparams import L2, LayerHyperparams
from object_detection.models.normalization import BatchNormParams

# Standard deviation of a normal distribution that is cut off at two of them.
_TRUNCATED_STDDEV = 0.87962566103423978

# Rows: kernel size, strides, filters, expansion.
_inverted = functools.partial(Block, INVERTED)
_squeezed = functools.partial(_inverted, squeezes=True)
_fused = functools.partial(Block, FUSED)
_tucker = functools.partial(Block, TUCKER, 3, 1)

_CPU = (
    Block(INVERTED_WITHOUT_EXPANSION, 3, 1, 8, squeezes=True, has_skip=False),
    _squeezed(3, 2, 16, 4),
    _squeezed(3, 2, 32, 8),
    *[_squeezed(3, 1, 32, 4)] * 3,
    _squeezed(5, 2, 72, 8),
    _squeezed(3, 1, 72, 8),
    _squeezed(5, 1, 72, 4),
    _squeezed(3, 1, 72, 4),
    _squeezed(3, 1, 72, 8, has_skip=False),
    *[_squeezed(3, 1, 72, 8)] * 3,
    _squeezed(5, 2, 104, 8),
    *[_squeezed(5, 1, 104, 4)] * 2,
    _squeezed(3, 1, 104, 4),
    _squeezed(3, 1, 144, 8, has_skip=False),
)
_DSP = (
    Block(INVERTED_WITHOUT_EXPANSION, 3, 1, 24, has_skip=False),
    _fused(3, 2, 32, 4),
    _fused(3, 1, 32, 4),
    _inverted(3, 1, 32, 4),
    _tucker(32, 0.25, 0.75),
    _fused(3, 2, 64, 8),
    _inverted(3, 1, 64, 4),
    *[_fused(3, 1, 64, 4)] * 2,
    _fused(3, 2, 120, 8),
    _inverted(3, 1, 120, 4),
    *[_inverted(3, 1, 120, 8)] * 2,
    _fused(3, 1, 144, 8, has_skip=False),
    *[_inverted(3, 1, 144, 8)] * 3,
    _inverted(3, 2, 160, 4),
    _inverted(3, 1, 160, 4),
    _fused(3, 1, 160, 4),
    _tucker(160, 0.75, 0.75),
    _inverted(3, 1, 240, 8, has_skip=False),
)
_EDGETPU = (
    _tucker(16, 0.25, 0.75, has_skip=False),
    _fused(3, 2, 16, 8),
    _fused(3, 1, 16, 4),
    _fused(3, 1, 16, 8),
    _fused(3, 1, 16, 4),
    _fused(5, 2, 40, 8),
    *[_fused(3, 1, 40, 4)] * 3,
    _inverted(3, 2, 72, 8),
    _inverted(3, 1, 72, 8),
    *[_fused(3, 1, 72, 4)] * 2,
    _inverted(5, 1, 96, 8, has_skip=False),
    _inverted(5, 1, 96, 8),
    *[_inverted(3, 1, 96, 8)] * 2,
    _inverted(5, 2, 120, 8),
    _inverted(3, 1, 120, 8),
    _inverted(5, 1, 120, 4),
    _inverted(3, 1, 120, 8),
    _inverted(5, 1, 384, 8, has_skip=False),
)
_GPU = (
    _tucker(16, 0.25, 0.25, has_skip=False),
    _fused(3, 2, 32, 8),
    *[_tucker(32, 0.25, 0.25)] * 3,
    _fused(3, 2, 64, 8),
    *[_fused(3, 1, 64, 8)] * 2,
    _fused(3, 1, 64, 4),
    _fused(3, 2, 128, 8),
    *[_fused(3, 1, 128, 4)] * 3,
    _fused(3, 1, 128, 8, has_skip=False),
    *[_fused(3, 1, 128, 8)] * 3,
    _fused(3, 2, 128, 4),
    *[_fused(3, 1, 128, 4)] * 3,
    _inverted(3, 1, 384, 8, has_skip=False),
)


def _round_half_up(channels: float, least: int) -> int:
    """Returns the multiple of 8 nearest to `channels`, at least 8; the least one is ignored."""
    del least
    return max(8, int(channels / 8 + 0.5) * 8)


def _depthwise(kernel_size: int) -> dict[str, keras.initializers.Initializer]:
    """Initializes as He's, but for inputs of one channel."""
    stddev = math.sqrt(2.0) / kernel_size / _TRUNCATED_STDDEV
    return {'initializer': keras.initializers.TruncatedNormal(stddev=stddev)}


_network = functools.partial(
    Network,
    rounded=_round_half_up,
    hyperparams=LayerHyperparams(
        initializer=keras.initializers.HeNormal(),
        regularizer=L2(0.5 * 4e-5),
        batch_norm=BatchNormParams(momentum=0.99, epsilon=0.01, scale=True),
    ),
    depthwise=_depthwise,
    activation='relu6',
)

MOBILEDET_CPU = _network(
    16, _CPU, activation=hard_swish, squeeze=((hard_swish,), ('sigmoid',))
).row()
MOBILEDET_DSP, MOBILEDET_EDGETPU, MOBILEDET_GPU = (
    _network(32, blocks).row() for blocks in (_DSP, _EDGETPU, _GPU)
)
