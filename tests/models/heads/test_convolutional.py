import keras
import numpy as np
import pytest
import tensorflow as tf

from object_detection.models.heads.convolutional import (
    ConvolutionalBoxPredictor,
    ConvolutionalOptions,
)
from object_detection.models.hyperparams import L2, LayerHyperparams
from object_detection.models.normalization import BatchNormParams
from tests.models.heads.dense_heads import maps, weights


def build(num_anchors=(3, 2), *, hyperparams=None, **options) -> ConvolutionalBoxPredictor:
    return ConvolutionalBoxPredictor(
        4,
        num_anchors,
        hyperparams=hyperparams or LayerHyperparams(activation='relu6'),
        options=ConvolutionalOptions(**options),
    )


def test_rows_are_in_the_order_level_y_x_anchor():
    predictor, levels = build(), maps((4, 5, 6), (2, 3, 8))
    codes, logits = predictor(levels)
    assert codes.shape == (2, 4 * 5 * 3 + 2 * 3 * 2, 4)
    assert logits.shape == (2, 72, 4)
    kernels = weights(predictor)
    for name, output in (('box_codes_1', codes), ('classes_1', logits)):
        # Level 1, y 1, x 2, anchor 1: the anchors of level 0 come before.
        expected = levels[1][0, 1, 2].numpy() @ kernels[f'{name}/kernel'][0, 0]
        np.testing.assert_allclose(output[0, 60 + (1 * 3 + 2) * 2 + 1], expected[4:], rtol=1e-4)


def test_layers_before_the_heads_have_the_depth_within_the_bounds():
    hyperparams = LayerHyperparams(batch_norm=BatchNormParams())
    predictor = build(num_layers=2, min_depth=5, max_depth=7, hyperparams=hyperparams)
    predictor(maps((2, 2, 4), (1, 1, 9)))
    shapes = {name: tuple(value.shape) for name, value in weights(predictor).items()}
    assert shapes['shared_0_0/kernel'] == (1, 1, 4, 5)
    assert shapes['shared_0_1/kernel'] == (1, 1, 5, 5)
    assert shapes['shared_1_0/kernel'] == (1, 1, 9, 7)
    assert shapes['shared_1_1_bn/moving_mean'] == (7,)
    assert shapes['classes_1/kernel'] == (1, 1, 7, 8)
    assert 'shared_0_0/bias' not in shapes


def test_without_bounds_there_are_no_layers_before_the_heads():
    predictor = build(num_layers=2)
    predictor(maps((2, 2, 4), (1, 1, 9)))
    assert not [name for name in weights(predictor) if name.startswith('shared')]


def test_depthwise_heads_lack_initializer_penalty_and_class_bias():
    hyperparams = LayerHyperparams(
        initializer=keras.initializers.Constant(3.0),
        regularizer=L2(0.1),
        batch_norm=BatchNormParams(),
    )
    predictor = build(use_depthwise=True, kernel_size=3, class_bias=-4.6, hyperparams=hyperparams)
    predictor(maps((2, 2, 4), (1, 1, 9)))
    values = weights(predictor)
    assert values['classes_1_depthwise/depthwise_kernel'].shape == (3, 3, 9, 1)
    assert np.all(values['classes_1_depthwise/depthwise_kernel'] != 3)
    assert np.all(values['box_codes_0/kernel'] == 3)
    assert np.all(values['classes_0/bias'] == 0)
    assert 'classes_0_depthwise_bn/moving_mean' in values
    assert len(predictor.losses) == 4


def test_a_depthwise_head_is_two_convolutions():
    predictor, levels = build((1,), use_depthwise=True, kernel_size=3), maps((4, 5, 3))
    values = weights(predictor, levels)
    x = tf.nn.depthwise_conv2d(
        levels[0], values['classes_0_depthwise/depthwise_kernel'], [1] * 4, 'SAME'
    )
    expected = tf.nn.conv2d(tf.nn.relu6(x), values['classes_0/kernel'], 1, 'SAME')
    _, logits = predictor(levels)
    np.testing.assert_allclose(logits, tf.reshape(expected, [2, 20, 4]), rtol=1e-4, atol=1e-5)


def test_class_bias():
    predictor = build(class_bias=-4.5)
    codes, logits = predictor([tf.zeros_like(level) for level in maps((2, 2, 4), (1, 1, 9))])
    assert np.all(logits == -4.5)
    assert np.all(codes == 0)


def test_codes_are_clipped():
    predictor, levels = build(clip_range=(-0.5, 0.25)), maps((4, 5, 6), (2, 3, 8))
    codes, logits = predictor([100 * level for level in levels])
    assert (np.min(codes), np.max(codes)) == (-0.5, 0.25)
    assert np.max(logits) > 1


def test_dropout_is_of_classes_in_training_and_depends_on_seeds_alone():
    predictor, levels = build(dropout_rate=0.5), maps((4, 5, 6), (2, 3, 8))
    codes, logits = predictor(levels)
    seeds = tf.constant([[1, 2], [3, 4]])
    trained_codes, trained = predictor(levels, training=True, seeds=seeds)
    np.testing.assert_array_equal(codes, trained_codes)
    assert np.mean(logits != trained) > 0.9
    np.testing.assert_array_equal(trained, predictor(levels, training=True, seeds=seeds)[1])
    second = [level[1:] for level in levels]
    np.testing.assert_allclose(
        trained[1:], predictor(second, training=True, seeds=seeds[1:])[1], rtol=1e-5, atol=1e-5
    )
    assert np.any(predictor(levels, training=True)[1] != trained)


def test_the_number_of_maps_must_be_that_of_the_anchors():
    with pytest.raises(ValueError, match='expected 2 maps'):
        build()(maps((2, 2, 4)))
