"""Learning rates by hand and against the reference's numbers."""

import math

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders import optimizer_builder
from object_detection.errors import UserError
from object_detection.optimizers import schedules
from object_detection.protos import optimizer_pb2
from tests import goldens, rows
from tests.schema import missing_options


# Left out: a helper that no config reaches; a config's burn-in is constant.
@goldens.rows('learning_rates', without=('exponential_decay_with_warmup',))
def test_reference_numbers(case_name):
    case = goldens.load('learning_rates', case_name)
    config = text_format.Parse(case.config, optimizer_pb2.LearningRate())
    if case.raises:
        with pytest.raises(ValueError):  # noqa: PT011 (each text is tested below)
            optimizer_builder.build_schedule(config)
        return
    schedule = tf.function(
        optimizer_builder.build_schedule(config), input_signature=[tf.TensorSpec([], tf.int64)]
    )
    rates = [schedule(step).numpy() for step in case.inputs['steps']]
    # Near the end of a cosine the rate is the difference of two numbers close to one.
    np.testing.assert_allclose(rates, case.outputs['learning_rate'], rtol=1e-5, atol=1e-8)


def test_eager_equals_graph_and_takes_python_steps():
    schedule = schedules.manual_steps(boundaries=[2, 5], rates=[1.0, 0.5, 0.1], warmup=True)
    eager = [float(schedule(step)) for step in range(7)]
    graph = [float(tf.function(schedule)(tf.constant(step, tf.int64))) for step in range(7)]
    np.testing.assert_allclose(eager, [1.0, 0.75, 0.5, 0.5, 0.5, 0.1, 0.1], rtol=1e-6)
    assert eager == graph
    assert schedule(3).dtype == tf.float32


def test_cosine_by_hand():
    schedule = schedules.cosine_decay(
        base=2.0, total_steps=10, warmup_rate=1.0, warmup_steps=2, hold_steps=2
    )
    rates = [float(schedule(step)) for step in (0, 1, 2, 3, 4, 7, 10, 11)]
    np.testing.assert_allclose(rates, [1.0, 1.5, 2.0, 2.0, 2.0, 1.0, 0.0, 0.0], atol=1e-6)


def _in_steps(schedule, steps_per_epoch=10.0):
    text = f'momentum_optimizer {{ learning_rate {{ {schedule} }} }} learning_rate_unit: EPOCHS'
    config = text_format.Parse(text, optimizer_pb2.Optimizer())
    optimizer_builder.check(config)
    converted = optimizer_builder.in_steps(config, steps_per_epoch)
    assert converted.learning_rate_unit == optimizer_pb2.Optimizer.STEPS
    assert config.learning_rate_unit == optimizer_pb2.Optimizer.EPOCHS
    return converted.momentum_optimizer.learning_rate


@rows.parametrize(
    ('epochs', 'steps'),
    [
        (
            'cosine_decay_learning_rate '
            '{ total_steps: 12 warmup_steps: 2 hold_base_rate_steps: 1 }',
            'cosine_decay_learning_rate '
            '{ total_steps: 120 warmup_steps: 20 hold_base_rate_steps: 10 }',
        ),
        (
            'cosine_decay_learning_rate { total_steps: 12 warmup_epochs: 0.3 }',
            'cosine_decay_learning_rate '
            '{ total_steps: 120 warmup_steps: 3 hold_base_rate_steps: 0 }',
        ),
        (
            'cosine_decay_learning_rate { total_steps: 1 }',
            'cosine_decay_learning_rate '
            '{ total_steps: 10 warmup_steps: 0 hold_base_rate_steps: 0 }',
        ),
        (
            'exponential_decay_learning_rate { decay_steps: 2 }',
            'exponential_decay_learning_rate { decay_steps: 20 burnin_steps: 0 }',
        ),
        (
            """manual_step_learning_rate { initial_learning_rate: 0 warmup: true
              schedule { epoch: 0.3 learning_rate: 0.01 }
              schedule { step: 8 learning_rate: 0.001 } schedule { epoch: 10.25 } }""",
            """manual_step_learning_rate { initial_learning_rate: 0 warmup: true
              schedule { step: 3 learning_rate: 0.01 }
              schedule { step: 80 learning_rate: 0.001 } schedule { step: 103 } }""",
        ),
        ('constant_learning_rate { }', 'constant_learning_rate { }'),
    ],
)
def test_schedules_in_epochs(epochs, steps):
    assert _in_steps(epochs) == text_format.Parse(steps, optimizer_pb2.LearningRate())


@rows.parametrize(
    ('schedule', 'message'),
    [
        ('cosine_decay_learning_rate { }', 'total_steps: expected a number of epochs'),
        ('exponential_decay_learning_rate { }', 'decay_steps: expected a number of epochs'),
        (
            'manual_step_learning_rate { schedule { epoch: 2 } schedule { epoch: 1 } }',
            'must be positive and increasing',
        ),
        ('cosine_decay_learning_rate { total_steps: 2 warmup_epochs: 3 }', 'at least warmup_steps'),
    ],
)
def test_schedules_in_epochs_that_contradict_themselves(schedule, message):
    with pytest.raises(ValueError, match=message):
        _in_steps(schedule)


def test_epochs_are_not_taken_for_steps():
    text = 'momentum_optimizer { } learning_rate_unit: EPOCHS'
    with pytest.raises(ValueError, match='learning_rate_unit: expected STEPS'):
        optimizer_builder.build(text_format.Parse(text, optimizer_pb2.Optimizer()))


def test_cosine_that_is_all_warmup_stays_finite():
    schedule = schedules.cosine_decay(base=1.0, total_steps=4, warmup_rate=0.0, warmup_steps=4)
    assert [float(schedule(step)) for step in (0, 2, 4, 5)] == [0.0, 0.5, 1.0, 0.0]


def test_exponential_by_hand():
    schedule = schedules.exponential_decay(
        initial=1.0, decay_steps=2, decay_factor=0.5, burnin_rate=0.1, burnin_steps=1, minimum=0.3
    )
    rates = [float(schedule(step)) for step in range(6)]
    np.testing.assert_allclose(rates, [0.3, 1.0, 1.0, 0.5, 0.5, 0.3], rtol=1e-6)
    smooth = schedules.exponential_decay(
        initial=1.0, decay_steps=2, decay_factor=0.5, staircase=False
    )
    assert float(smooth(1)) == pytest.approx(math.sqrt(0.5))


@rows.parametrize(
    ('build', 'text'),
    [
        (lambda: schedules.constant(-1.0), r'at least 0. Received: -1.0'),
        (
            lambda: schedules.exponential_decay(initial=1.0, decay_steps=0, decay_factor=0.5),
            'decay_steps must be positive',
        ),
        (
            lambda: schedules.manual_steps(boundaries=[5, 5], rates=[1.0, 1.0, 1.0]),
            r'increasing.*Received: \[5, 5\]',
        ),
        (lambda: schedules.manual_steps(boundaries=[], rates=[1.0]), 'at least one'),
        (
            lambda: schedules.manual_steps(boundaries=[5], rates=[1.0]),
            'expected 2 learning rates',
        ),
        (
            lambda: schedules.cosine_decay(base=1.0, total_steps=3, warmup_steps=4),
            'total_steps must be at least warmup_steps',
        ),
        (
            lambda: schedules.cosine_decay(
                base=1.0, total_steps=9, warmup_steps=4, warmup_rate=2.0
            ),
            'learning_rate_base must be at least warmup_learning_rate',
        ),
    ],
)
def test_contradictions_are_reported(build, text):
    with pytest.raises(ValueError, match=text):
        build()


def test_every_schedule_of_the_schema_has_a_builder():
    missing = missing_options(
        optimizer_pb2.LearningRate, 'learning_rate', optimizer_builder.SCHEDULE_BUILDERS
    )
    assert not missing


@rows.parametrize('epochs', [1e9, float('inf'), float('nan')])
def test_more_steps_than_a_field_holds_are_an_error(epochs):
    with pytest.raises(UserError, match='epochs of 100 steps: expected at most 4294967295 steps'):
        schedules.steps_in(epochs, 100)
