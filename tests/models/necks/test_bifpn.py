import keras
import numpy as np
import pytest
import tensorflow as tf

from object_detection.models.hyperparams import L2, LayerHyperparams
from object_detection.models.necks import bifpn
from object_detection.models.necks.bifpn import Options
from object_detection.models.normalization import BatchNormParams
from tests import goldens, rows

HYPERPARAMS = LayerHyperparams(
    regularizer=L2(0.1),
    activation='swish',
    batch_norm=BatchNormParams(momentum=0.9, scale=True),
    force_use_bias=True,
)


def build(
    channels=(12, 16, 20), options: Options | None = None, batch_norm_trainable: bool = True
) -> keras.Model:
    return bifpn.bidirectional_pyramid(
        channels,
        hyperparams=HYPERPARAMS,
        batch_norm_trainable=batch_norm_trainable,
        name='fpn',
        options=options or Options(3, 7, 2, 16),
    )


@goldens.rows('pyramids', without=('custom_min3_max5',))
def test_nodes(case_name):
    params = goldens.load('pyramids', case_name).params
    fields = ('min_level', 'max_level', 'num_iterations', 'num_filters')
    options = Options(**{field: params[field] for field in fields})
    levels = [int(node['name'].rpartition('_')[2]) for node in params['input_nodes']]
    assert levels[0] == options.min_level
    found = list(bifpn.nodes(options, levels[-1]))
    recorded = params['nodes']
    assert [node.name for node in found] == [node['name'] for node in recorded]
    assert [list(node.inputs) for node in found] == [node['inputs'] for node in recorded]
    assert [2**node.level for node in found] == [node['scale'] for node in recorded]
    assert [node.is_combined for node in found] == [node['has_post_combine'] for node in recorded]
    assert bifpn.output_names(options) == params['output_nodes']


def test_no_coarse_levels():
    case = goldens.load('pyramids', 'custom_min3_max5')
    assert case.raises == 'IndexError'
    num_iterations, num_filters, low, high, top = case.params['args']
    options = Options(low, high, num_iterations, num_filters)
    assert next(bifpn.nodes(options, top)) == bifpn.Node(
        '1_dn_lvl_4', 4, ('0_up_lvl_4', '0_up_lvl_5')
    )
    features = [tf.zeros([1, 8, 8, 12]), tf.zeros([1, 4, 4, 16]), tf.zeros([1, 2, 2, 20])]
    maps = build(options=options)(features)
    assert [tuple(level.shape) for level in maps] == [
        (1, 8, 8, 64), (1, 4, 4, 64), (1, 2, 2, 64),
    ]  # fmt: skip


def test_odd_sizes_known_and_unknown():
    model = build()
    rng = np.random.default_rng(0)
    features = [
        rng.normal(size=[2, *size]).astype('float32')
        for size in [(9, 5, 12), (5, 3, 16), (3, 2, 20)]
    ]
    maps = model(features)
    assert [tuple(level.shape) for level in maps] == [
        (2, 9, 5, 16), (2, 5, 3, 16), (2, 3, 2, 16), (2, 2, 1, 16), (2, 1, 1, 16),
    ]  # fmt: skip
    signature = [[tf.TensorSpec([None, None, None, c]) for c in (12, 16, 20)]]
    unknown = tf.function(model, input_signature=signature, autograph=False)(features)
    for ours, level in zip(unknown, maps, strict=True):
        np.testing.assert_allclose(ours, level, atol=1e-5)


def test_layers():
    model = build(options=Options(3, 6, 1, 16))
    layers = list(dict.fromkeys(v.path.rpartition('/')[0] for v in model.weights))
    # The backbone's map of level 4 has the channels of the pyramid.
    inputs = ['node_0_input_0', 'node_1_input_0', 'node_3_input_0', 'node_5_input_0']
    assert {layer for layer in layers if '_input_' in layer} == {
        f'{name}_{layer}' for name in inputs for layer in ('conv', 'conv_bn')
    }
    nodes = [layer for layer in layers if '_input_' not in layer]
    assert set(nodes) == {
        f'node_{number}_{layer}'
        for number in range(1, 7)
        for layer in ('weights', 'conv', 'conv_bn')
    }
    conv = model.get_layer('node_1_conv')
    assert conv.use_bias
    assert conv.depthwise_regularizer.l2 == 0.1
    assert conv.pointwise_regularizer.l2 == 0.1
    shapes = [tuple(model.get_layer(f'node_{n}_weights').weights[0].shape) for n in (1, 4, 6)]
    assert shapes == [(2, 1), (3, 1), (2, 1)]


@rows.parametrize(
    ('method', 'expected'),
    [
        ('sum', 16.0),
        ('weighted_sum', 1.0 * 2 - 0.5 * 4 + 3.0 * 10),
        ('attention', np.dot(np.exp([1, -0.5, 3]) / np.exp([1, -0.5, 3]).sum(), [2, 4, 10])),
        ('fast_attention', (1.0 * 2 + 3.0 * 10) / (4 + 1e-4)),
    ],
)
def test_ways_to_combine(method, expected):
    layer = bifpn.Combination(method, name='weights')
    maps = [tf.fill([1, 2, 2, 3], value) for value in (2.0, 4.0, 10.0)]
    layer.build([x.shape for x in maps])
    assert len(layer.weights) == (method != 'sum')
    for weights in layer.weights:
        np.testing.assert_array_equal(weights, np.ones([3, 1]))
        assert weights.path == 'weights/bifpn_combine_weights'
        weights.assign([[1.0], [-0.5], [3.0]])
    np.testing.assert_allclose(layer(maps), np.full([1, 2, 2, 3], expected), rtol=1e-6)


def test_modes():
    features = [tf.random.stateless_normal([2, 8 // 2**i, 8 // 2**i, c], [i, 0])
                for i, c in enumerate((12, 16, 20))]  # fmt: skip
    for trainable in (True, False):
        model = build(options=Options(3, 6, 1, 16), batch_norm_trainable=trainable)
        before = model.get_layer('node_1_conv_bn').moving_mean.numpy()
        model(features, training=True)
        after = model.get_layer('node_1_conv_bn').moving_mean.numpy()
        assert np.array_equal(before, after) != trainable


@rows.parametrize(
    ('fields', 'message'),
    [
        ({'min_level': 7}, 'min_level < max_level'),
        ({'num_iterations': 0}, 'bifpn.num_iterations: expected at least 1'),
        ({'num_filters': 0}, 'bifpn.num_filters: expected at least 1'),
        ({'combine_method': 'mean'}, 'combine_method: expected one of sum, weighted_sum'),
    ],
)
def test_errors(fields, message):
    with pytest.raises(ValueError, match=message):
        build(options=Options(**fields))
