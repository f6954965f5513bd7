import math

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders import optimizer_builder
from object_detection.optimizers.gradients import DynamicLossScale, LossScale
from object_detection.protos.train_pb2 import LossScale as LossScaleProto
from object_detection.protos.train_pb2 import TrainConfig
from tests.schema import missing_options

GRADIENTS = {'a': tf.constant([2.0, -4.0]), 'b': tf.constant([8.0], tf.float16)}


def updated(scale, outcomes, run=lambda function: function):
    """The values after each outcome: True is a step with finite gradients."""
    update = run(scale.update)
    values = []
    for is_finite in outcomes:
        update(tf.constant(is_finite))
        values.append(float(scale.value))
    return values


@pytest.mark.parametrize('scale', [LossScale(8.0), DynamicLossScale(8.0)])
def test_unscaled_undoes_scaled_in_float32(scale):
    assert float(scale.scaled(tf.constant(3.0))) == 24.0
    unscaled = scale.unscaled(GRADIENTS)
    assert {values.dtype for values in unscaled.values()} == {tf.float32}
    np.testing.assert_array_equal(unscaled['a'], [0.25, -0.5])
    np.testing.assert_array_equal(unscaled['b'], [1.0])


def test_unscaling_keeps_what_is_not_finite():
    unscaled = LossScale(1024.0).unscaled({'a': tf.constant([math.inf, math.nan])})['a']
    assert np.isinf(unscaled[0])
    assert np.isnan(unscaled[1])


@pytest.mark.parametrize('run', [lambda f: f, tf.function], ids=['eager', 'graph'])
def test_a_dynamic_scale_grows_and_halves(run):
    scale = DynamicLossScale(16.0, growth_steps=3)
    outcomes = [True, True, True, True, True, False, True, True, True]
    # The failure halves and starts the count anew.
    assert updated(scale, outcomes, run) == [16, 16, 32, 32, 32, 16, 16, 16, 32]


def test_a_dynamic_scale_falls_down_to_1():
    scale = DynamicLossScale(3.0)
    assert bool(scale.can_fall())
    assert updated(scale, [False] * 3) == [1.5, 1, 1]
    assert not bool(scale.can_fall())


def test_a_dynamic_scale_stays_finite():
    scale = DynamicLossScale(2.0**126, growth_steps=1)
    assert updated(scale, [True] * 3) == [2.0**127] * 3


def test_a_static_scale_never_changes_and_has_nothing_to_save():
    scale = LossScale(16.0)
    assert updated(scale, [True, False] * 3, tf.function) == [16] * 6
    assert scale.state() == {}
    assert not bool(scale.can_fall())


def test_a_restored_scale_resumes():
    first, second = DynamicLossScale(16.0, 4), DynamicLossScale(2.0, 4)
    updated(first, [False, True, True, True])
    assert first.state().keys() == {'scale', 'finite_steps'}
    for name, variable in second.state().items():
        variable.assign(first.state()[name])
    assert updated(first, [True]) == updated(second, [True]) == [16]


@pytest.mark.parametrize('place', ['replica', 'cross-replica'])
def test_under_a_strategy_each_replica_has_the_same(place):
    strategy = tf.distribute.MirroredStrategy(['CPU:0'])
    with strategy.scope():
        scale = DynamicLossScale(8.0, growth_steps=1)

        def step(is_finite):
            gradients = scale.unscaled({'a': scale.scaled(tf.constant(5.0))})
            if place == 'replica':
                scale.update(is_finite)
            return gradients['a']

        @tf.function(autograph=False)
        def run(is_finite):
            gradient = strategy.run(step, args=(is_finite,))
            if place != 'replica':
                scale.update(is_finite)
            return gradient

        for is_finite, expected in [(True, 16), (True, 32), (False, 16)]:
            assert float(run(tf.constant(is_finite))) == 5.0
            for copy in strategy.experimental_local_results(scale.state()['scale']):
                assert float(copy) == expected


def test_steps_that_overflow_leave_the_weights_and_the_scale_finds_its_place():
    scale = DynamicLossScale(2.0**20, growth_steps=100)
    weight = tf.Variable(1.0)

    @tf.function(autograph=False)
    def step():
        with tf.GradientTape() as tape:
            half = tf.cast(weight, tf.float16)
            objective = scale.scaled(tf.cast(half * half, tf.float32))
        gradient = scale.unscaled({'w': tape.gradient(objective, weight)})['w']
        is_finite = tf.math.is_finite(gradient)
        weight.assign_sub(tf.where(is_finite, 0.25 * gradient, 0.0))
        scale.update(is_finite)
        return is_finite

    finite = [bool(step()) for _ in range(8)]
    # 2^20 to 2^15 overflow: 2 w times the scale has to be below 65504.
    assert finite == [False] * 6 + [True] * 2
    assert float(scale.value) == 2.0**14
    assert float(weight) == pytest.approx(0.25)


def test_the_builder():
    def build(text):
        return optimizer_builder.build_loss_scale(text_format.Parse(text, TrainConfig()))

    assert not missing_options(LossScaleProto, 'kind', optimizer_builder.LOSS_SCALE_BUILDERS)
    assert build('precision: MIXED_BFLOAT16') is None
    default = build('precision: MIXED_FLOAT16')
    assert isinstance(default, DynamicLossScale)
    assert float(default.value) == 32768
    dynamic = build(
        'precision: MIXED_FLOAT16 loss_scale { dynamic { initial: 4 growth_steps: 1 } }'
    )
    assert updated(dynamic, [True]) == [8]
    static = build('precision: MIXED_FLOAT16 loss_scale { static: 7 }')
    assert updated(static, [True, False]) == [7, 7]
    with pytest.raises(ValueError, match=r'LossScale\.kind is not set'):
        build('precision: MIXED_FLOAT16 loss_scale {}')


def test_the_default_of_two_thousand_steps():
    assert LossScaleProto.Dynamic().growth_steps == 2000
    scale = DynamicLossScale()
    scale.state()['finite_steps'].assign(1998)
    assert updated(scale, [True, True]) == [32768, 65536]
