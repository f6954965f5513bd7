"""MnasFPN, by a computation that follows the facts on the reference alone."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.config import reading
from object_detection.errors import UserError
from object_detection.meta_architectures.ssd.build import build_extractor
from object_detection.meta_architectures.ssd.variable_names import SSD_NAMES
from object_detection.models.backbones.table import find
from object_detection.models.feature_extractor import ExtractorOptions, FeatureExtractor
from object_detection.models.necks import mnasfpn
from object_detection.models.necks.table import NeckOptions
from object_detection.models.normalization import FrozenBatchNorm
from object_detection.protos.ssd_pb2 import SsdFeatureExtractor
from object_detection.weights import slim
from tests import rows
from tests.weights import slim_keys

TYPE = "type: 'ssd_mobilenet_v2_mnasfpn'"
FPN = 'fpn { min_level: 3 max_level: 6 additional_layer_depth: 48 }'
SCOPE = 'FeatureExtractor/MnasFPN/'


def parse(text: str) -> SsdFeatureExtractor:
    return text_format.Parse(text, SsdFeatureExtractor())


def build(text: str) -> FeatureExtractor:
    return build_extractor(parse(text), True)


def neck(channels=(8, 12, 20), depth=16, **fields) -> keras.Model:
    options = NeckOptions(
        mnasfpn.HYPERPARAMS,
        batch_norm_trainable=True,
        levels=range(3, 7),
        inputs=range(3, 6),
        nominal_depth=depth,
        **fields,
    )
    return mnasfpn.mnasfpn(channels, options)


class Reference:
    """The cells, of random weights by the names of the reference."""

    def __init__(self, channels, depth, *, explicit_padding: bool):
        random = np.random.default_rng(0)
        self._explicit_padding = explicit_padding
        self.arrays = {}
        for key, shape in slim_keys.within(SCOPE[:-1], slim_keys.mnasfpn(channels, depth)).items():
            if len(shape) == 4:
                fan_in = math.prod(shape[:2] if 'depthwise' in key else shape[:3])
                value = random.normal(0, 1 / math.sqrt(fan_in), shape)
            else:
                low = -0.5 if key.endswith(('beta', 'mean')) else 0.5
                value = random.uniform(low, low + 1, shape)
            self.arrays[key] = value.astype(np.float32)

    def __call__(self, maps):
        nodes = [*maps, self._conv(self._pool(maps[-1], 2), 'C6_Conv1x1')]
        for cell in range(4):
            nodes = self._cell(nodes, f'cell_{cell}')
        return nodes

    def _cell(self, inputs, scope):
        nodes = list(inputs)
        for i, (used, levels, level, _, _) in enumerate(slim_keys.MNASFPN):
            terms = []
            for j, (node, there) in enumerate(zip(used, levels, strict=True)):
                x = nodes[node]
                if there < level:
                    x = self._pool(x, 2 ** (level - there))
                x = self._conv(x, f'{scope}/block_{i}/input_{j}/Conv1x1')
                if there > level:
                    x = np.repeat(np.repeat(x, 2 ** (there - level), 1), 2 ** (there - level), 2)
                terms.append(x)
            x = np.clip(terms[0] + terms[1], 0, 6)
            name = f'{SCOPE}{scope}/block_{i}/SepConv'
            depthwise, pointwise = (
                self.arrays[f'{name}/{kind}_weights'] for kind in ('depthwise', 'pointwise')
            )
            x = tf.nn.separable_conv2d(x, depthwise, pointwise, [1, 1, 1, 1], 'SAME').numpy()
            nodes.append(self._norm(x, name))
        return [
            old + new if old.shape == new.shape else new
            for old, new in zip(inputs, nodes[-4:], strict=True)
        ]

    def _pool(self, x, stride):
        if not self._explicit_padding:
            return tf.nn.max_pool2d(x, 3, stride, 'SAME').numpy()
        x = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
        return tf.nn.max_pool2d(x, 3, stride, 'VALID').numpy()

    def _conv(self, x, scope):
        name = f'{SCOPE}{scope}'
        return self._norm(x @ self.arrays[f'{name}/weights'][0, 0], name)

    def _norm(self, x, name):
        beta, gamma, mean, variance = (
            self.arrays[f'{name}/BatchNorm/{each}'] for each in slim_keys.NORM
        )
        return (x - mean) / np.sqrt(variance + 0.01) * gamma + beta


@pytest.fixture(scope='module')
def models() -> dict[bool, keras.Model]:
    return {explicit: neck(explicit_padding=explicit) for explicit in (False, True)}


@rows.parametrize('explicit', [False, True])
def test_equals_the_computation_of_the_reference(models, explicit):
    channels, model = (8, 12, 20), models[explicit]
    reference = Reference(channels, 16, explicit_padding=explicit)
    variables = {f'fpn/{v.path.removeprefix("fpn/")}': v for v in model.variables}
    keys = slim.match(variables, reference.arrays, SSD_NAMES)
    assert keys.keys() == variables.keys()
    assert sorted(keys.values()) == sorted(reference.arrays)
    for name, variable in variables.items():
        variable.assign(reference.arrays[keys[name]])
    random = np.random.default_rng(1)
    maps = [
        random.normal(0, 1, (2, 64 >> level, 128 >> level, count)).astype(np.float32)
        for level, count in zip((3, 4, 5), channels, strict=True)
    ]
    expected = reference(maps)
    for ours, theirs in zip(model(maps), expected, strict=True):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4 * np.abs(theirs).max())


def test_padding_with_zeros_differs(models):
    """Of negative maps, the maximum at the border is a zero of the padding."""
    pools = [models[explicit].get_layer('top_pool') for explicit in (False, True)]
    assert [pool.padding for pool in pools] == ['same', 'valid']
    names = {layer.name for layer in models[True].layers}
    assert sum(name.endswith('_pool_pad') for name in names) == 1 + 3 * 4


def test_the_table_is_a_graph_whose_last_nodes_are_the_levels():
    levels = [3, 4, 5, 6]
    for i, block in enumerate(mnasfpn.CELL):
        assert all(node < 4 + i for node in block.inputs)
        assert tuple(levels[node] for node in block.inputs) == slim_keys.MNASFPN[i][1]
        levels.append(block.level)
    assert levels[-4:] == [3, 4, 5, 6]


@pytest.mark.parametrize('multiplier', [2**-12, pytest.param(1.0, marks=pytest.mark.slow)])
def test_channels_and_sizes(multiplier):
    extractor = build(f'{TYPE} {FPN} depth_multiplier: {multiplier} min_depth: 16')
    depth = 48 if multiplier == 1 else 16
    for padded, size in (((320, 320), (320, 320)), ((128, 64), (128, 64))):
        assert extractor.map_shapes(*size) == [
            (1, padded[0] >> level, padded[1] >> level, depth) for level in range(3, 7)
        ]
    assert extractor.strides == [8, 16, 32, 64]
    channels = [output.shape[-1] for output in extractor.backbone.outputs]
    assert channels == ([32, 96, 320] if multiplier == 1 else [16, 16, 16])
    sums = [each.name for each in extractor.pyramid.layers if '_add_' in each.name]
    # In the first cell only one map has as many channels before.
    assert len(sums) == (1 + 3 * 4 if multiplier == 1 else 16)
    # No activation follows the last blocks.
    maps = tf.nest.flatten(extractor.feature_stacks(tf.ones([1, 64, 64, 3])))
    assert all(np.min(each) < 0 for each in maps)
    count = sum(math.prod(variable.shape) for variable in extractor.variables)
    if multiplier == 1:
        shapes = slim_keys.mobilenet_v2() | slim_keys.mnasfpn((32, 96, 320), 48)
        assert count == sum(map(math.prod, shapes.values()))
    else:
        # Skips of the network are between all blocks of stride 1 and equal numbers of channels.
        skips = [each for each in extractor.backbone.layers if each.name.endswith('_add')]
        assert len(skips) == 13


def test_hyperparameters_are_its_own():
    config = reading.tracked(
        parse(
            f'{TYPE} {FPN} depth_multiplier: 0.01 '
            'override_base_feature_extractor_hyperparams: true conv_hyperparams { batch_norm {} } '
            'use_explicit_padding: true'
        )
    )
    extractor = build_extractor(config, False)
    unread = dict(reading.unread(config))
    assert unread == {
        'conv_hyperparams': 'as in the reference, backbone and neck keep their own',
        'override_base_feature_extractor_hyperparams': 'as in the reference, the backbone keeps '
        'its own',
    }
    backbone, cells = extractor.backbone, extractor.pyramid
    for model, norm in ((backbone, 'block_3_expand_BN'), (cells, 'cell_2_block_3_conv_bn')):
        layer = model.get_layer(norm)
        assert isinstance(layer, FrozenBatchNorm)
        assert (layer.momentum, layer.epsilon, layer.scale) == (0.99, 0.01, True)
    conv, depthwise = (backbone.get_layer(f'block_3_{n}') for n in ('expand', 'depthwise'))
    assert isinstance(conv.kernel_initializer, keras.initializers.HeNormal)
    assert depthwise.depthwise_initializer.stddev == 0.536
    # Penalties of the reference count half of the sum of squares.
    assert conv.kernel_regularizer.l2 == depthwise.depthwise_regularizer.l2 == 2e-5
    assert depthwise.padding == 'valid'
    top, cell = cells.get_layer('top'), cells.get_layer('cell_2_block_3_conv')
    assert top.kernel_regularizer is None
    assert cell.kernel_size == (5, 5)
    for kind in ('depthwise', 'pointwise'):
        assert getattr(cell, f'{kind}_initializer').stddev == 0.536
        assert getattr(cell, f'{kind}_regularizer').l2 == 5e-5
    entry = cells.get_layer('cell_2_block_3_input_1')
    assert isinstance(entry.kernel_initializer, keras.initializers.HeNormal)
    assert entry.kernel_regularizer.l2 == 5e-5


@rows.parametrize(
    ('text', 'message'),
    [
        (
            'fpn { min_level: 3 max_level: 7 }',
            'fpn: expected min_level 3 and max_level 6.* 3 and 7',
        ),
        ('', 'fpn: expected min_level 3 and max_level 6.* Received: 3 and 7'),
        ('fpn { min_level: 4 max_level: 6 }', 'Received: 4 and 6'),
        (f'{FPN} use_depthwise: true', 'use_depthwise: expected false, as the neck mnasfpn does'),
        (f'{FPN} num_layers: 4', 'num_layers: expected'),
        (f"{FPN} neck: 'fpn'", "neck: Received: 'fpn'; did you mean 'mnasfpn'"),
    ],
)
def test_errors(text, message):
    with pytest.raises(UserError, match=message):
        build(f'{TYPE} {text}')


@pytest.mark.slow
def test_fields_of_other_pyramids_have_no_effect():
    text = 'fpn { min_level: 3 max_level: 6 upsample_type: BILINEAR extra_level_type: MAX_POOL }'
    config = reading.tracked(parse(f"{TYPE} depth_multiplier: 0.01 neck: 'mnasfpn' {text}"))
    build_extractor(config, True)
    assert dict(reading.unread(config)) == dict.fromkeys(
        ('fpn.extra_level_type', 'fpn.upsample_type'), 'there is one kind of mnasfpn'
    )


def test_maps_must_halve_exactly(models):
    maps = [tf.zeros([1, *size, c]) for size, c in (((5, 8), 8), ((3, 4), 12), ((2, 2), 20))]
    with pytest.raises(UserError, match=r'multiples of 64.* Received: maps of 5, 3, 2, 1 cells'):
        models[False](maps)


def test_channels_of_the_backbone_are_rounded_as_by_slim():
    """16 * 0.56 = 8.96 becomes 16, as 8 is less than 90 % of it."""
    row = find('mobilenet_v2_mnasfpn')
    options = ExtractorOptions(batch_norm_trainable=False).for_backbone(row, depth_multiplier=0.56)
    network = row.trunk((3, 4, 5), options)
    assert [each.shape[-1] for each in network.outputs] == [24, 56, 176]
    assert network.get_layer('expanded_conv_project').kernel.shape[-1] == 16
