"""Inception v2, batch-normalised Inception (https://arxiv.org/abs/1502.03167), as a table.

It is the network of TF-Slim: its first convolution is separable, every padding is SAME, and some
kernels have initializers of their own, which those of a config do not replace. See `inception` for
the names of layers: they are the scopes of TF-Slim and places in them. The stem has `conv_1a`,
`conv_2b` and `conv_2c`.
"""

from collections.abc import Mapping, Sequence

import keras

from object_detection.models.backbones.inception import inception
from object_detection.models.backbones.inception.inception import Block, Conv, Pool
from object_detection.models.backbones.table import Backbone, BackboneOptions
from object_detection.models.image_values import scale_to_unit


def _block(
    *branches: Sequence[int], after_pool: int | None = None, pool: Pool = Block.pool
) -> Block:
    """Returns a block of convolutions of these filters: the first of size 1, the others 3x3."""
    steps = [[(filters, 3 if i else 1) for i, filters in enumerate(branch)] for branch in branches]
    return Block(steps, after_pool, pool, first_stddev=0.09, last_stddev=0.1)


NETWORK: Mapping[str, inception.Row] = {
    'conv_1a': Conv(64, 7, 2, stddev=1.0, is_separable=True),
    'pool_2a': Pool(),
    'conv_2b': Conv(64, 1, stddev=0.1),
    'conv_2c': Conv(192, 3),
    'pool_3a': Pool(),
    'mixed_3b': _block((64,), (64, 64), (64, 96, 96), after_pool=32),
    'mixed_3c': _block((64,), (64, 96), (64, 96, 96), after_pool=64),
    'mixed_4a': _block((128, 160), (64, 96, 96), pool=Pool()),
    'mixed_4b': _block((224,), (64, 96), (96, 128, 128), after_pool=128),
    'mixed_4c': _block((192,), (96, 128), (96, 128, 128), after_pool=128),
    'mixed_4d': _block((160,), (128, 160), (128, 160, 160), after_pool=96),
    'mixed_4e': _block((96,), (128, 192), (160, 192, 192), after_pool=96),
    'mixed_5a': _block((128, 192), (192, 256, 256), pool=Pool()),
    'mixed_5b': _block((352,), (192, 320), (160, 224, 224), after_pool=128),
    'mixed_5c': _block((352,), (192, 320), (192, 224, 224), after_pool=128, pool=Pool(1)),
}
# Level l, of stride 2**l -> the last layer of that stride.
LEVELS = {2: 'conv_2c', 3: 'mixed_3c', 4: 'mixed_4e', 5: 'mixed_5c'}


def _row(ends: Mapping[int, str]) -> Backbone:
    def network(levels: Sequence[int], options: BackboneOptions) -> keras.Model:
        return inception.trunk(NETWORK, [ends[level] for level in levels], options)

    return Backbone(
        network,
        range(2, 6),
        scale_to_unit,
        inception.default_hyperparams(),
        uses=inception.USES,
        crop_stage=lambda options: inception.crop_stage(NETWORK, ends[4], options),
    )


INCEPTION_V2 = _row(LEVELS)
INCEPTION_V2_MIXED_4C = _row(LEVELS | {4: 'mixed_4c'})
