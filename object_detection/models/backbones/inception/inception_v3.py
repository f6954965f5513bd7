"""Inception v3 (https://arxiv.org/abs/1512.00567) as a table.

It is the network of TF-Slim. Most layers of the stem and those of stride 2 are not padded: maps
have fewer cells than the size of the image over their stride, and the centres of their cells are
not at multiples of it. See `inception` for the names of layers: they are the scopes of TF-Slim and
places in them. The stem has `conv_1a`, `conv_2a`, `conv_2b`, `conv_3b` and `conv_4a`.
"""

from collections.abc import Mapping, Sequence

import keras

from object_detection.models.backbones.inception import inception
from object_detection.models.backbones.inception.inception import Block, Conv, Pool
from object_detection.models.backbones.table import Backbone, BackboneOptions
from object_detection.models.image_values import scale_to_unit

_UNPADDED = Pool(padding='valid')
_ROW, _COLUMN = (1, 7), (7, 1)
# A row and a column of three cells, side by side.
_CROSS = ((384, (1, 3)), (384, (3, 1)))


def _block_35(after_pool: int) -> Block:
    return Block(
        [[(64, 1)], [(48, 1), (64, 5)], [(64, 1), (96, 3), (96, 3)]],
        after_pool,
    )


def _block_17(filters: int) -> Block:
    lines = [(filters, line) for line in (_COLUMN, _ROW, _COLUMN)]
    return Block(
        [
            [(192, 1)],
            [(filters, 1), (filters, _ROW), (192, _COLUMN)],
            [(filters, 1), *lines, (192, _ROW)],
        ],
        192,
    )


_BLOCK_8 = Block([[(320, 1)], [(384, 1), _CROSS], [(448, 1), (384, 3), _CROSS]], 192)

NETWORK: Mapping[str, inception.Row] = {
    'conv_1a': Conv(32, 3, 2, 'valid'),
    'conv_2a': Conv(32, 3, padding='valid'),
    'conv_2b': Conv(64, 3),
    'pool_3a': _UNPADDED,
    'conv_3b': Conv(80),
    'conv_4a': Conv(192, 3, padding='valid'),
    'pool_5a': _UNPADDED,
    'mixed_5b': _block_35(32),
    'mixed_5c': _block_35(64),
    'mixed_5d': _block_35(64),
    'mixed_6a': Block([[(384, 3)], [(64, 1), (96, 3), (96, 3)]], pool=_UNPADDED),
    'mixed_6b': _block_17(128),
    'mixed_6c': _block_17(160),
    'mixed_6d': _block_17(160),
    'mixed_6e': _block_17(192),
    'mixed_7a': Block(
        [[(192, 1), (320, 3)], [(192, 1), (192, _ROW), (192, _COLUMN), (192, 3)]], pool=_UNPADDED
    ),
    'mixed_7b': _BLOCK_8,
    'mixed_7c': _BLOCK_8,
}
# Level l, of stride 2**l -> the last layer of that stride.
LEVELS = {3: 'mixed_5d', 4: 'mixed_6e', 5: 'mixed_7c'}


def _network(levels: Sequence[int], options: BackboneOptions) -> keras.Model:
    return inception.trunk(NETWORK, [LEVELS[level] for level in levels], options)


INCEPTION_V3 = Backbone(
    _network,
    range(3, 6),
    scale_to_unit,
    inception.default_hyperparams(),
    uses=inception.USES,
    is_aligned=False,
    least_side=75,
)
