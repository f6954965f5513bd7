import keras
import numpy as np
import pytest
import tensorflow as tf

from object_detection.models.heads.box_classifier import BoxClassifier
from object_detection.models.hyperparams import LayerHyperparams
from object_detection.models.normalization import BatchNormParams, GroupNormParams
from tests import rows

CROPS = tf.random.stateless_normal([3, 2, 4, 6], [1, 2])


def build(num_convs: int, num_fcs: int, **options) -> BoxClassifier:
    defaults = {'conv_hyperparams': LayerHyperparams(), 'fc_hyperparams': LayerHyperparams()}
    return BoxClassifier(
        num_convs=num_convs, conv_depth=8, num_fcs=num_fcs, fc_depth=5, **(defaults | options)
    )


def weights(layer: BoxClassifier) -> dict[str, np.ndarray]:
    return {v.path.removeprefix('box_classifier/'): v.numpy() for v in layer.weights}


def test_two_fully_connected_layers_by_numpy():
    layer = build(0, 2)
    features = layer(CROPS)
    w = weights(layer)
    assert {name: value.shape for name, value in w.items()} == {
        'dense_1/kernel': (48, 5),
        'dense_1/bias': (5,),
        'dense_2/kernel': (5, 5),
        'dense_2/bias': (5,),
    }
    expected = np.reshape(CROPS, [3, 48])
    for name in ('dense_1', 'dense_2'):
        expected = np.maximum(expected @ w[f'{name}/kernel'], 0)
    np.testing.assert_allclose(features, expected[:, None, None], atol=1e-5)


def test_convolutions_with_group_norm_by_numpy():
    norm = LayerHyperparams(group_norm=GroupNormParams(groups=4))
    layer = build(1, 1, conv_hyperparams=norm)
    features = layer(CROPS)
    w = weights(layer)
    assert set(w) == {
        'conv_1/kernel',
        'conv_1_bn/gamma',
        'conv_1_bn/beta',
        'dense_1/kernel',
        'dense_1/bias',
    }
    padded = np.pad(CROPS, ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))
    x = np.einsum('bhwcij,ijcd->bhwd', windows, w['conv_1/kernel'])
    groups = x.reshape(3, 2, 4, 4, 2)
    mean = groups.mean(axis=(1, 2, 4), keepdims=True)
    variance = groups.var(axis=(1, 2, 4), keepdims=True)
    x = np.maximum((groups - mean) / np.sqrt(variance + 1e-5), 0).reshape(3, 64)
    expected = np.maximum(x @ w['dense_1/kernel'], 0)
    np.testing.assert_allclose(features[:, 0, 0], expected, atol=1e-4)


def test_without_fully_connected_layers_the_maps_are_returned():
    assert build(2, 0)(CROPS).shape == (3, 2, 4, 8)


def test_set_up_of_both_kinds_of_layers():
    norm = BatchNormParams()
    layer = build(
        1,
        1,
        conv_hyperparams=LayerHyperparams(regularizer=keras.regularizers.L2(0.1)),
        fc_hyperparams=LayerHyperparams(activation=None, batch_norm=norm, force_use_bias=True),
        batch_norm_trainable=False,
    )
    features = layer(CROPS, training=True)
    assert np.min(features) < 0  # no activation
    assert len(layer.losses) == 1
    w = weights(layer)
    assert 'dense_1/bias' in w
    assert not w['dense_1_bn/moving_mean'].any()  # frozen


def test_an_unknown_number_of_crops_and_none():
    layer = build(1, 1)

    @tf.function(input_signature=[tf.TensorSpec([None, 2, 4, 6])], autograph=False)
    def traced(crops):
        return layer(crops)

    np.testing.assert_allclose(traced(CROPS), layer(CROPS), atol=1e-6)
    assert traced(CROPS[:0]).shape == (0, 1, 1, 5)


@rows.parametrize(
    ('options', 'message'),
    [
        ({'num_convs': 2, 'conv_hyperparams': None}, 'needs conv_hyperparams. Received: 2'),
        ({'num_convs': 1, 'conv_depth': 0}, 'conv_depth: expected at least 1 for num_convs: 1'),
        ({'num_fcs': 2, 'fc_depth': 0}, 'fc_depth: expected at least 1 for num_fcs: 2'),
    ],
)
def test_errors(options, message):
    defaults = {'num_convs': 0, 'conv_depth': 1, 'num_fcs': 0, 'fc_depth': 1}
    hyperparams = {'conv_hyperparams': LayerHyperparams(), 'fc_hyperparams': LayerHyperparams()}
    with pytest.raises(ValueError, match=message):
        BoxClassifier(**(hyperparams | defaults | options))


def test_crops_of_an_unknown_size_are_refused():
    with pytest.raises(ValueError, match='expected crops of known size'):
        build(1, 1).build((None, None, 4, 6))
