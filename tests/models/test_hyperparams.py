import keras
import numpy as np
import pytest
import tensorflow as tf

from object_detection.models.hyperparams import L2, LayerHyperparams, SeparableSetup
from object_detection.models.normalization import BatchNormParams
from tests import rows


def test_layers_of_the_same_shape_start_different():
    hyperparams = LayerHyperparams(initializer=keras.initializers.RandomNormal())
    kernels = []
    for i in range(2):
        layer = hyperparams.conv(4, 3, name=f'conv_{i}')
        layer.build((None, None, None, 2))
        kernels.append(layer.kernel.numpy())
    assert np.abs(kernels[0] - kernels[1]).max() > 1e-3


@rows.parametrize(
    ('batch_norm', 'force', 'expected'),
    [
        (None, False, True),
        (BatchNormParams(), False, False),
        (BatchNormParams(), True, True),
        (BatchNormParams(center=False), False, True),
    ],
)
def test_use_bias(batch_norm, force, expected):
    hyperparams = LayerHyperparams(batch_norm=batch_norm, force_use_bias=force)
    assert hyperparams.use_bias is expected
    assert hyperparams.conv(1, 1, name='conv').use_bias is expected
    assert hyperparams.conv(1, 1, name='conv', use_bias=True).use_bias is True


def test_no_norm_is_the_identity():
    norm = LayerHyperparams().norm(frozen=False, name='norm')
    values = tf.constant([[1.0, -2.0]])
    np.testing.assert_array_equal(norm(values, training=True), values)
    assert not norm.variables


@pytest.mark.parametrize('train', [True, False])
def test_norm_that_may_not_train_is_frozen(train):
    hyperparams = LayerHyperparams(batch_norm=BatchNormParams(momentum=0.5, train=train))
    norm = hyperparams.norm(frozen=False, name='norm')
    norm(tf.constant([[2.0], [4.0]]), training=True)
    np.testing.assert_allclose(norm.moving_mean, [1.5 if train else 0.0])


@rows.parametrize('frozen', [True, False])
@rows.parametrize('freeze_affine', [True, False])
def test_offset_and_scale_of_frozen_norms(frozen, freeze_affine):
    params = BatchNormParams(scale=True, freeze_affine=freeze_affine)
    norm = LayerHyperparams(batch_norm=params).norm(frozen=frozen, name='norm')
    norm.build((None, 4))
    assert len(norm.trainable_variables) == (0 if frozen and freeze_affine else 2)
    assert len(norm.variables) == 4


@pytest.mark.parametrize('regularize_depthwise', [False, True])
def test_depthwise_convolutions(regularize_depthwise):
    hyperparams = LayerHyperparams(
        initializer=keras.initializers.Constant(0.5),
        regularizer=L2(0.1),
        regularize_depthwise=regularize_depthwise,
        batch_norm=BatchNormParams(),
    )
    layer = hyperparams.depthwise_conv(3, strides=2, name='conv')
    outputs = layer(tf.ones([1, 6, 6, 4]))
    assert outputs.shape == (1, 3, 3, 4)
    np.testing.assert_allclose(outputs[:, :2, :2], np.full([1, 2, 2, 4], 4.5))
    assert [variable.path for variable in layer.variables] == ['conv/depthwise_kernel']
    assert [float(loss) for loss in layer.losses] == pytest.approx([0.1 * 36 * 0.25])


@rows.parametrize(
    ('setup', 'regularize_depthwise', 'constant', 'penalties'),
    [
        (SeparableSetup.SLIM, False, {'depthwise', 'pointwise'}, {'pointwise'}),
        (SeparableSetup.SLIM, True, {'depthwise', 'pointwise'}, {'depthwise', 'pointwise'}),
        (SeparableSetup.DEPTHWISE, False, {'depthwise'}, {'depthwise'}),
        (SeparableSetup.BOTH, False, {'depthwise', 'pointwise'}, {'depthwise', 'pointwise'}),
        (SeparableSetup.NEITHER, True, set(), set()),
    ],
)
def test_which_kernels_of_a_separable_convolution_are_set_up(
    setup, regularize_depthwise, constant, penalties
):
    hyperparams = LayerHyperparams(
        initializer=keras.initializers.Constant(0.5),
        regularizer=L2(0.1),
        regularize_depthwise=regularize_depthwise,
    )
    layer = hyperparams.separable_conv(4, 3, name='conv', setup=setup)
    layer.build((None, None, None, 2))
    kernels = {'depthwise': layer.depthwise_kernel, 'pointwise': layer.pointwise_kernel}
    for kind, kernel in kernels.items():
        assert (np.ptp(kernel.numpy()) == 0.0) == (kind in constant)
    expected = [0.1 * np.square(kernels[kind].numpy()).sum() for kind in sorted(penalties)]
    assert [float(loss) for loss in layer.losses] == pytest.approx(expected)
