import keras
import numpy as np
import pytest
import tensorflow as tf

from object_detection.models.heads.mask_head import MaskHead, automatic_depth
from object_detection.models.hyperparams import LayerHyperparams
from object_detection.models.normalization import BatchNormParams
from tests import rows

FEATURES = tf.random.stateless_normal([2, 2, 3, 4], [1, 2])


def build(num_classes: int = 3, **options) -> MaskHead:
    defaults = {'hyperparams': LayerHyperparams(), 'mask_size': (4, 9), 'conv_depth': 5}
    return MaskHead(num_classes, **(defaults | options))


@rows.parametrize('upsample', [False, True])
@rows.parametrize(('agnostic', 'masks'), [(False, 3), (True, 1)])
def test_shape(upsample, agnostic, masks):
    head = build(class_agnostic=agnostic, convolve_then_upsample=upsample)
    assert head(FEATURES).shape == (2, masks, 4, 9)


def weights(head: MaskHead) -> dict[str, np.ndarray]:
    return {v.path.removeprefix('mask_head/'): v.numpy() for v in head.variables}


def conv(x: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """3x3 convolution of [N, H, W, C], padded with zeros."""
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))
    return np.einsum('bhwcij,ijcd->bhwd', windows, kernel)


def test_resize_then_convolve_by_numpy():
    head = build()
    logits = head(FEATURES)
    x = FEATURES.numpy()
    # Corners aligned: the first and last samples lie on the first and last pixels.
    for axis, size in ((1, 4), (2, 9)):
        pixels = np.arange(x.shape[axis])
        positions = np.linspace(0, x.shape[axis] - 1, size)
        tents = np.maximum(0, 1 - np.abs(positions[:, None] - pixels))
        x = np.moveaxis(np.tensordot(tents, x, (1, axis)), 0, axis)
    hidden = np.maximum(conv(x, weights(head)['conv_1/kernel']), 0)
    expected = conv(hidden, weights(head)['masks/kernel'])
    np.testing.assert_allclose(logits, expected.transpose(0, 3, 1, 2), atol=1e-5)


def test_convolve_then_upsample_by_numpy():
    head = build(convolve_then_upsample=True)
    logits = head(FEATURES)
    hidden = np.maximum(conv(FEATURES.numpy(), weights(head)['conv_1/kernel']), 0)
    enlarged = hidden.repeat(2, axis=1).repeat(3, axis=2)
    enlarged = np.maximum(conv(enlarged, weights(head)['conv_upsampled/kernel']), 0)
    expected = conv(enlarged, weights(head)['masks/kernel'])
    np.testing.assert_allclose(logits, expected.transpose(0, 3, 1, 2), atol=1e-5)


@pytest.mark.parametrize('policy', ['float32', 'mixed_bfloat16'])
def test_deconvolution_by_keras(policy):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        head = build(mask_size=(4, 6), deconvolve=True)
        logits = head(FEATURES)
    finally:
        keras.config.set_dtype_policy(before)
    found = weights(head)
    assert {name: value.shape for name, value in found.items()} == {
        'conv_1/kernel': (3, 3, 4, 5),
        'conv_1/bias': (5,),
        'deconv/kernel': (2, 2, 5, 5),
        'deconv/bias': (5,),
        'masks/kernel': (1, 1, 5, 3),
        'masks/bias': (3,),
    }
    for layer, bias in ((head._deconv, np.arange(-2.0, 3.0)), (head._last, [0.5, -0.5, 0.25])):
        layer.bias.assign(bias)
    logits = head(FEATURES)
    assert logits.dtype == tf.float32
    x = tf.nn.relu(conv(FEATURES.numpy(), found['conv_1/kernel']))
    x = keras.ops.conv_transpose(x, found['deconv/kernel'], 2, padding='valid')
    x = tf.nn.relu(x + np.arange(-2.0, 3.0, dtype=np.float32))
    expected = tf.matmul(x, found['masks/kernel'][0]) + [0.5, -0.5, 0.25]
    tolerance = 1e-5 if policy == 'float32' else 0.05
    np.testing.assert_allclose(logits, tf.transpose(expected, [0, 3, 1, 2]), atol=tolerance)


def test_the_deconvolution_is_penalised_but_not_normalised():
    hyperparams = LayerHyperparams(
        regularizer=keras.regularizers.L2(0.1), batch_norm=BatchNormParams()
    )
    head = build(hyperparams=hyperparams, mask_size=(4, 6), deconvolve=True, num_conv_layers=5)
    head(FEATURES)
    norms = {name.partition('/')[0] for name in weights(head) if '_bn/' in name}
    assert norms == {f'conv_{i}_bn' for i in range(1, 5)}
    assert len(head.losses) == 6


def test_the_automatic_depth_is_by_classes_also_for_one_mask_for_all():
    for agnostic in (False, True):
        head = build(num_classes=90, class_agnostic=agnostic, conv_depth=0)
        head(FEATURES)
        # 2 ** round((2 * log2(4) + 3 * log2(90)) / 5)
        assert weights(head)['conv_1/kernel'].shape[-1] == 32


def test_layers():
    hyperparams = LayerHyperparams(
        regularizer=keras.regularizers.L2(0.1), batch_norm=BatchNormParams()
    )
    head = build(hyperparams=hyperparams, num_conv_layers=3)
    head(FEATURES, training=True)
    shapes = {name: value.shape for name, value in weights(head).items()}
    norm = dict.fromkeys(('beta', 'moving_mean', 'moving_variance'), (5,))
    assert shapes == {
        'conv_1/kernel': (3, 3, 4, 5),
        'conv_2/kernel': (3, 3, 5, 5),
        'masks/kernel': (3, 3, 5, 3),
        'masks/bias': (3,),
        **{f'conv_{i}_bn/{name}': shape for i in (1, 2) for name, shape in norm.items()},
    }
    assert len(head.losses) == 3
    assert np.abs(weights(head)['conv_2_bn/moving_mean']).max() > 0


def test_frozen_norm():
    head = build(
        hyperparams=LayerHyperparams(batch_norm=BatchNormParams()), batch_norm_trainable=False
    )
    head(FEATURES, training=True)
    assert np.abs(weights(head)['conv_1_bn/moving_mean']).max() == 0


def test_one_layer_is_the_masks_own():
    head = build(num_conv_layers=1)
    head(FEATURES)
    assert set(weights(head)) == {'masks/kernel', 'masks/bias'}


# 2 ** round((2 * log2(channels) + 3 * log2(masks)) / 5), by hand.
@rows.parametrize(
    ('channels', 'masks', 'depth'),
    [(2048, 12, 128), (1024, 90, 256), (256, 1, 8), (2048, 1, 16), (1024, 3, 32)],
)
def test_automatic_depth(channels, masks, depth):
    assert automatic_depth(channels, masks) == depth


def test_automatic_depth_is_used():
    head = build(conv_depth=0)
    head(FEATURES)
    # (2 * 2 + 3 * 1.58) / 5 = 1.75, so 2 ** 2.
    assert weights(head)['masks/kernel'].shape == (3, 3, 4, 3)


@pytest.mark.parametrize('upsample', [False, True])
def test_traced_with_an_unknown_number_of_boxes(upsample):
    head = build(convolve_then_upsample=upsample)

    @tf.function(input_signature=[tf.TensorSpec([None, 2, 3, 4])], autograph=False)
    def traced(features):
        return head(features)

    np.testing.assert_allclose(traced(FEATURES), head(FEATURES), atol=1e-5)


def test_outputs_are_float32_in_mixed_precision():
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy('mixed_bfloat16')
    try:
        logits = build()(tf.cast(FEATURES, tf.bfloat16))
    finally:
        keras.config.set_dtype_policy(before)
    assert logits.dtype == tf.float32


def test_errors():
    with pytest.raises(ValueError, match=r'a multiple of \(2, 3\)'):
        build(mask_size=(4, 10), convolve_then_upsample=True)(FEATURES)
    with pytest.raises(ValueError, match=r'twice \(2, 3\)'):
        build(mask_size=(4, 9), deconvolve=True)(FEATURES)
    with pytest.raises(ValueError, match='convolve_then_upsample_masks or mask_head_deconv'):
        build(convolve_then_upsample=True, deconvolve=True)
    with pytest.raises(ValueError, match='Received: num_conv_layers 0'):
        build(num_conv_layers=0)
    with pytest.raises(ValueError, match='conv_depth -1'):
        build(conv_depth=-1)
