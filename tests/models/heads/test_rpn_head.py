import keras
import numpy as np
import pytest
import tensorflow as tf

from object_detection.models.heads.rpn_head import RpnHead
from object_detection.models.hyperparams import LayerHyperparams
from object_detection.models.normalization import BatchNormParams


def features(*sizes: tuple[int, int], channels: int = 3) -> list[tf.Tensor]:
    return [
        tf.random.stateless_normal([2, *size, channels], [i, 0]) for i, size in enumerate(sizes)
    ]


def build(anchors: list[int], **options) -> RpnHead:
    defaults = {'hyperparams': LayerHyperparams(), 'depth': 5}
    return RpnHead(anchors, **(defaults | options))


def test_rows_are_in_the_order_level_y_x_anchor():
    head = build([3, 2])
    maps = features((4, 5), (2, 3))
    predictions = head(maps)
    assert predictions.box_codes.shape == (2, 4 * 5 * 3 + 2 * 3 * 2, 4)
    assert predictions.objectness_logits.shape == (2, 72, 2)
    for kind, size, output in (
        ('box_codes', 4, predictions.box_codes),
        ('objectness', 2, predictions.objectness_logits),
    ):
        layer = {weight.path: weight.numpy() for weight in head.variables}
        # Level 1, y 1, x 2, anchor 1: the anchors of level 0 come before.
        hidden = predictions.features[1][0, 1, 2].numpy()
        kernel = layer[f'rpn_head/{kind}_1/kernel'][0, 0]
        expected = (hidden @ kernel)[size : 2 * size]
        np.testing.assert_allclose(output[0, 60 + (1 * 3 + 2) * 2 + 1], expected, rtol=1e-4)


def test_one_logit_an_anchor():
    head = build([3, 2], num_logits=1)
    maps = features((4, 5), (2, 3))
    predictions = head(maps)
    assert predictions.objectness_logits.shape == (2, 72, 1)
    assert predictions.box_codes.shape == (2, 72, 4)
    kernels = {weight.path: weight for weight in head.variables}
    hidden = predictions.features[1][0, 1, 2]
    expected = hidden.numpy() @ kernels['rpn_head/objectness_1/kernel'].numpy()[0, 0]
    np.testing.assert_allclose(predictions.objectness_logits[0, 70:, 0], expected, rtol=1e-4)


@pytest.mark.parametrize(('activation', 'most'), [('relu6', 6), ('relu', None)])
def test_first_convolution_is_shared_and_ends_with_the_activation(activation, most):
    head = build([1, 1], hyperparams=LayerHyperparams(activation=activation))
    level = 100 * features((6, 6))[0]
    hidden = head([level, level[:, :3]]).features
    assert tf.reduce_min(hidden[0]) == 0
    largest = tf.reduce_max(hidden[0])
    assert largest == most if most else largest > 6
    np.testing.assert_allclose(hidden[0][:, :2], hidden[1][:, :2], rtol=1e-5, atol=1e-4)
    assert len(head.variables) == 2 * (1 + 2 * 2)


def test_further_convolutions_follow_the_first_one():
    head = build([1, 1], hyperparams=LayerHyperparams(batch_norm=BatchNormParams()), num_convs=3)
    maps = features((6, 6), (3, 3))
    hidden = head(maps).features
    named = {weight.path.removeprefix('rpn_head/'): weight for weight in head.variables}
    for level, found in zip(maps, hidden, strict=True):
        for name in ('conv', 'conv_2', 'conv_3'):
            level = tf.nn.conv2d(level, named[f'{name}/kernel'], 1, 'SAME')
            # The norm of moving statistics as they begin: mean 0, variance 1.
            level = tf.nn.relu(level / np.sqrt(1 + BatchNormParams().epsilon))
        np.testing.assert_allclose(found, level, rtol=1e-4, atol=1e-5)
    assert named['conv_2/kernel'].shape == (3, 3, 5, 5)


def test_dilation():
    hyperparams = LayerHyperparams(activation='relu6')
    head = build([1], hyperparams=hyperparams, atrous_rate=2, kernel_size=3)
    level = features((7, 7))[0]
    hidden = head([level]).features[0]
    kernel = next(v for v in head.variables if v.path == 'rpn_head/conv/kernel')
    expected = tf.nn.relu6(tf.nn.conv2d(level, kernel, 1, 'SAME', dilations=2))
    np.testing.assert_allclose(hidden, expected, atol=1e-5)


@pytest.mark.parametrize('trainable', [True, False])
def test_norm_and_penalty(trainable):
    hyperparams = LayerHyperparams(
        regularizer=keras.regularizers.L2(0.1), batch_norm=BatchNormParams()
    )
    head = build([2], hyperparams=hyperparams, batch_norm_trainable=trainable)
    head(features((3, 3)), training=True)
    assert len(head.losses) == 3
    names = {variable.path.removeprefix('rpn_head/') for variable in head.variables}
    assert names == {
        'conv/kernel', 'conv_bn/beta', 'conv_bn/moving_mean', 'conv_bn/moving_variance',
        'box_codes_0/kernel', 'box_codes_0/bias', 'objectness_0/kernel', 'objectness_0/bias',
    }  # fmt: skip
    mean = next(v for v in head.variables if v.path.endswith('moving_mean'))
    assert bool(np.abs(mean.numpy()).max() > 0) is trainable


def test_traced_with_unknown_sizes():
    head = build([3, 2])
    maps = features((4, 5), (2, 3))
    eager = head(maps)

    @tf.function(input_signature=[[tf.TensorSpec([None, None, None, 3])] * 2], autograph=False)
    def traced(maps):
        return head(maps)

    ours = traced(maps)
    np.testing.assert_allclose(ours.box_codes, eager.box_codes, atol=1e-5)
    np.testing.assert_allclose(ours.objectness_logits, eager.objectness_logits, atol=1e-5)


def test_static_number_of_anchors():
    head = build([3])

    @tf.function(input_signature=[[tf.TensorSpec([None, 4, 5, 3])]], autograph=False)
    def traced(maps):
        predictions = head(maps)
        assert predictions.box_codes.shape == (None, 60, 4)
        return predictions.box_codes

    traced.get_concrete_function()


def test_outputs_are_float32_in_mixed_precision():
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy('mixed_bfloat16')
    try:
        predictions = build([3])(features((2, 2)))
    finally:
        keras.config.set_dtype_policy(before)
    assert predictions.box_codes.dtype == predictions.objectness_logits.dtype == tf.float32
    assert predictions.features[0].dtype == tf.bfloat16


def test_errors():
    with pytest.raises(ValueError, match='expected 2 maps'):
        build([3, 3])(features((2, 2)))
    with pytest.raises(ValueError, match=r'expected feature maps of one depth. Received: \[3, 4\]'):
        build([3, 3])([*features((2, 2)), *features((1, 1), channels=4)])
