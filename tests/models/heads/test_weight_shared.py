import keras
import numpy as np
import pytest
import tensorflow as tf

from object_detection.models.heads.weight_shared import (
    WeightSharedConvolutionalBoxPredictor,
    WeightSharedOptions,
)
from object_detection.models.hyperparams import L2, LayerHyperparams
from object_detection.models.normalization import BatchNormParams, GroupNormParams
from tests import rows
from tests.models.heads.dense_heads import maps, weights

NORM = BatchNormParams(epsilon=0.1, scale=True)
LEVELS = ((4, 5, 6), (2, 3, 6))


def build(
    num_anchors=(2, 2), *, hyperparams=None, batch_norm_trainable=True, **options
) -> WeightSharedConvolutionalBoxPredictor:
    return WeightSharedConvolutionalBoxPredictor(
        4,
        num_anchors,
        hyperparams=hyperparams or LayerHyperparams(activation='relu6', batch_norm=NORM),
        options=WeightSharedOptions(**({'num_layers': 2, 'depth': 5} | options)),
        batch_norm_trainable=batch_norm_trainable,
    )


def names(predictor) -> set[str]:
    return {name.rpartition('/')[0] for name in weights(predictor, maps(*LEVELS))}


def test_levels_share_convolutions_but_not_norms():
    predictor = build(num_layers=1)
    assert names(predictor) == {
        *('box_tower_0', 'box_tower_0_bn_0', 'box_tower_0_bn_1', 'box_codes'),
        *('class_tower_0', 'class_tower_0_bn_0', 'class_tower_0_bn_1', 'classes'),
    }
    assert 'box_tower_0/bias' not in weights(predictor)
    shared = build(num_layers=1, share_tower=True)
    assert names(shared) == {'tower_0', 'tower_0_bn_0', 'tower_0_bn_1', 'box_codes', 'classes'}


def test_levels_may_share_their_norms_too():
    groups = LayerHyperparams(group_norm=GroupNormParams(groups=1), force_use_bias=True)
    predictor = build(num_layers=1, share_norms=True, depth=4, hyperparams=groups)
    assert names(predictor) == {
        *('box_tower_0', 'box_tower_0_bn', 'box_codes'),
        *('class_tower_0', 'class_tower_0_bn', 'classes'),
    }
    values, levels = weights(predictor), maps(*LEVELS)
    assert len(predictor.trainable_variables) == len(values) == 12
    # Both levels change with the scale of the one norm.
    before, _ = predictor(levels)
    (gamma,) = (v for v in predictor.variables if v.path.endswith('box_tower_0_bn/gamma'))
    gamma.assign(2 * gamma)
    after, _ = predictor(levels)
    for level in (slice(0, 40), slice(40, 52)):
        assert not np.allclose(before[:, level], after[:, level])


@pytest.mark.parametrize('in_graph', [False, True])
def test_predictions_are_those_of_the_layers_one_after_the_other(in_graph):
    predictor, levels = build(num_layers=1), maps(*LEVELS)
    predictor(levels)
    for variable in predictor.variables:
        if 'moving' in variable.path or 'gamma' in variable.path:
            variable.assign(tf.random.stateless_uniform(variable.shape, [len(variable.path), 1]))
    values = weights(predictor)
    codes, logits = (tf.function(predictor) if in_graph else predictor)(levels)
    assert codes.shape == (2, 4 * 5 * 2 + 2 * 3 * 2, 4)
    for kind, name, output in (('box', 'box_codes', codes), ('class', 'classes', logits)):
        norm = {v: values[f'{kind}_tower_0_bn_1/{v}'] for v in ('moving_mean', 'gamma', 'beta')}
        x = tf.nn.conv2d(levels[1], values[f'{kind}_tower_0/kernel'], 1, 'SAME')
        x = (x - norm['moving_mean']) * norm['gamma'] + norm['beta'] * np.sqrt(
            values[f'{kind}_tower_0_bn_1/moving_variance'] + 0.1
        )
        x /= np.sqrt(values[f'{kind}_tower_0_bn_1/moving_variance'] + 0.1)
        x = tf.nn.conv2d(tf.nn.relu6(x), values[f'{name}/kernel'], 1, 'SAME')
        # The anchors of level 0 come before.
        expected = tf.reshape(x, [2, 12, 4])
        np.testing.assert_allclose(output[:, 40:], expected, rtol=1e-4, atol=1e-5)


def test_maps_of_different_depths_are_projected_to_the_most_frequent_one():
    predictor = build((2, 2, 2), num_layers=1)
    values = weights(predictor, maps((4, 5, 6), (2, 3, 8), (1, 1, 8)))
    assert values['projection_0/kernel'].shape == (1, 1, 6, 8)
    assert values['projection_1/kernel'].shape == (1, 1, 8, 8)
    assert values['projection_2_bn/moving_mean'].shape == (8,)
    assert values['box_tower_0/kernel'].shape == (3, 3, 8, 5)


CONSTANT = LayerHyperparams(
    initializer=keras.initializers.Constant(3.0), regularizer=L2(0.1), batch_norm=NORM
)


@rows.parametrize(
    ('options', 'set_up'),
    [
        ({}, {'box_tower_0/depthwise_kernel'}),
        (
            {'hyperparams_pointwise': True},
            {'box_tower_0/depthwise_kernel', 'box_tower_0/pointwise_kernel'},
        ),
        (
            {'hyperparams_of_heads': True},
            {
                'box_tower_0/depthwise_kernel',
                'box_codes/depthwise_kernel',
                'box_codes/pointwise_kernel',
            },
        ),
    ],
)
def test_kernels_of_separable_convolutions_with_initializer_and_penalty(options, set_up):
    predictor = build(num_layers=1, use_depthwise=True, hyperparams=CONSTANT, **options)
    values = weights(predictor, maps(*LEVELS))
    of_boxes = {name for name in values if name.startswith('box') and name.endswith('kernel')}
    assert {name for name in of_boxes if np.all(values[name] == 3)} == set_up
    assert len(predictor.losses) == 2 * len(set_up)


def test_all_other_convolutions_have_initializer_and_penalty():
    predictor = build(hyperparams=CONSTANT)
    predictor(maps(*LEVELS))
    assert len(predictor.losses) == 6
    assert np.all(weights(predictor)['classes/kernel'] == 3)


@rows.parametrize(
    ('hyperparams', 'bias', 'norms'),
    [
        (LayerHyperparams(batch_norm=NORM), False, 4),
        (LayerHyperparams(batch_norm=NORM, force_use_bias=True), True, 4),
        (LayerHyperparams(batch_norm=BatchNormParams(center=False)), False, 4),
        (LayerHyperparams(batch_norm=BatchNormParams(synchronized=True)), False, 4),
        (LayerHyperparams(group_norm=GroupNormParams(groups=5)), False, 4),
        (LayerHyperparams(), True, 0),
    ],
)
def test_biases_and_norms_of_the_towers(hyperparams, bias, norms):
    predictor = build(num_layers=1, hyperparams=hyperparams)
    found = names(predictor)
    assert len([name for name in found if '_bn_' in name]) == norms
    assert ('class_tower_0/bias' in weights(predictor)) == bias


def test_frozen_norms_keep_their_statistics():
    for trainable in (True, False):
        predictor = build(batch_norm_trainable=trainable)
        predictor(maps(*LEVELS), training=True)
        means = [v.numpy() for v in predictor.variables if 'moving_mean' in v.path]
        assert len(means) == 8
        assert np.any(np.concatenate(means)) == trainable


@pytest.mark.parametrize('use_depthwise', [False, True])
def test_class_bias(use_depthwise):
    predictor = build(class_bias=-2.0, use_depthwise=use_depthwise)
    levels = [tf.zeros_like(level) for level in maps(*LEVELS)]
    assert np.all(predictor(levels)[1] == -2)


def test_dropout_is_of_classes_in_training():
    predictor, levels = build(dropout_rate=0.5, batch_norm_trainable=False), maps(*LEVELS)
    codes, logits = predictor(levels)
    trained_codes, trained = predictor(levels, training=True, seeds=tf.constant([[1, 2], [3, 4]]))
    np.testing.assert_array_equal(codes, trained_codes)
    assert np.mean(logits != trained) > 0.9


def test_codes_are_clipped():
    codes, _ = build(clip_range=(-0.5, 0.25))([100 * level for level in maps(*LEVELS)])
    assert (np.min(codes), np.max(codes)) == (-0.5, 0.25)


def test_outputs_are_float32_under_any_policy():
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy('mixed_bfloat16')
    try:
        outputs = build()(maps(*LEVELS))
    finally:
        keras.config.set_dtype_policy(policy)
    assert {output.dtype for output in outputs} == {tf.float32}


def test_levels_with_different_numbers_of_anchors_are_refused():
    with pytest.raises(ValueError, match=r'as many anchors.*\[3, 2\]'):
        build((3, 2))
