"""Restarts, polynomials, cycles and warm-ups at points computed by hand."""

import math

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders import optimizer_builder
from object_detection.errors import UserError
from object_detection.protos import optimizer_pb2
from object_detection.protos.train_pb2 import TrainConfig
from object_detection.validation import train_config as train_config_rules
from tests import rows

# Half a cosine at a quarter, half and three quarters of its way down from 1 to 0.
QUARTER, HALF, THREE_QUARTERS = (1 + math.sqrt(0.5)) / 2, 0.5, (1 - math.sqrt(0.5)) / 2


def _rates(text, steps):
    config = text_format.Parse(text, optimizer_pb2.LearningRate())
    schedule = tf.function(
        optimizer_builder.build_schedule(config), input_signature=[tf.TensorSpec([], tf.int64)]
    )
    return [float(schedule(tf.constant(step, tf.int64))) for step in steps]


@rows.parametrize(
    ('text', 'expected'),
    [
        # Equal periods.
        (
            'cosine_restarts_learning_rate { learning_rate_base: 2 first_period_steps: 4 }',
            {0: 2, 1: 2 * QUARTER, 2: 1, 3: 2 * THREE_QUARTERS, 4: 2, 6: 1, 4 * 10**6 + 1: 1.7071},
        ),
        # Periods of 4, 8 and 16 steps, with 1, 1/2 and 1/4 of the highest rate, down to 0.2.
        (
            """cosine_restarts_learning_rate { learning_rate_base: 1.2 first_period_steps: 4
              period_multiplier: 2 restart_factor: 0.5 min_learning_rate: 0.2 }""",
            {
                0: 1.2,
                2: 0.7,
                3: 0.2 + THREE_QUARTERS,
                4: 0.6,
                6: 0.2 + 0.4 * QUARTER,
                8: 0.4,
                11: 0.2 + 0.4 * (1 + math.cos(7 / 8 * math.pi)) / 2,
                12: 0.3,
                20: 0.25,
                28: 0.2,  # 0.15 at first, which is less than the lowest
                2**31: 0.2,
            },
        ),
        (
            'polynomial_learning_rate { learning_rate_base: 1 total_steps: 8 }',
            {0: 1, 2: 0.75, 4: 0.5, 7: 0.125, 8: 0, 9: 0, 10**9: 0},
        ),
        (
            """polynomial_learning_rate { learning_rate_base: 1.5 total_steps: 4
              end_learning_rate: 0.5 power: 2 }""",
            {0: 1.5, 1: 0.5 + 9 / 16, 2: 0.75, 3: 0.5 + 1 / 16, 4: 0.5, 5: 0.5},
        ),
        # It may rise.
        (
            """polynomial_learning_rate { learning_rate_base: 0 total_steps: 2
              end_learning_rate: 1 }""",
            {0: 0, 1: 0.5, 2: 1, 3: 1},
        ),
        # Up in 4 steps from 0.1 to 1, down in 8 to 0.01.
        (
            """one_cycle_learning_rate { learning_rate_base: 1 total_steps: 12
              warmup_share: 0.33333334 initial_share: 0.1 final_share: 0.01 }""",
            {
                0: 0.1,
                1: 0.1 + 0.9 * THREE_QUARTERS,
                2: 0.55,
                4: 1,
                6: 0.01 + 0.99 * QUARTER,
                8: 0.505,
                12: 0.01,
                13: 0.01,
            },
        ),
        (
            'one_cycle_learning_rate { learning_rate_base: 3 total_steps: 10 }',
            {0: 0.12, 3: 3, 10: 1.2e-5},
        ),
        # A line to the rate that the schedule has at its end.
        (
            """constant_learning_rate { learning_rate: 1 } warmup { steps: 4 }""",
            {0: 0, 1: 0.25, 3: 0.75, 4: 1, 5: 1},
        ),
        (
            """polynomial_learning_rate { learning_rate_base: 1 total_steps: 8 }
              warmup { learning_rate: 0.1 steps: 2 }""",
            {0: 0.1, 1: 0.425, 2: 0.75, 3: 0.625, 8: 0},
        ),
        (
            """exponential_decay_learning_rate { initial_learning_rate: 1 decay_steps: 2
              decay_factor: 0.5 } warmup { steps: 4 }""",
            {0: 0, 2: 0.125, 4: 0.25, 6: 0.125},
        ),
        (
            """manual_step_learning_rate { initial_learning_rate: 1
              schedule { step: 4 learning_rate: 0.5 } } warmup { learning_rate: 0.5 steps: 2 }""",
            {0: 0.5, 1: 0.75, 2: 1, 3: 1, 4: 0.5},
        ),
        (
            """cosine_decay_learning_rate { learning_rate_base: 1 total_steps: 4 warmup_steps: 0 }
              warmup { steps: 2 }""",
            {0: 0, 1: 0.25, 2: 0.5, 3: THREE_QUARTERS, 4: 0},
        ),
        (
            """cosine_restarts_learning_rate { learning_rate_base: 1 first_period_steps: 4 }
              warmup { steps: 1 }""",
            {0: 0, 1: QUARTER, 2: 0.5, 4: 1},
        ),
    ],
)
def test_rates_by_hand(text, expected):
    found = _rates(text, expected)
    np.testing.assert_allclose(found, list(expected.values()), rtol=2e-5, atol=1e-6)


@rows.parametrize(
    ('text', 'message'),
    [
        (
            'cosine_decay_learning_rate {} warmup { steps: 2 }',
            r'LearningRate\.warmup: expected none, as cosine_decay_learning_rate has a warm-up of '
            r'its own \(warmup_steps\). Received: warmup_steps: 10000',
        ),
        (
            'manual_step_learning_rate { warmup: true schedule { step: 1 } } warmup { steps: 2 }',
            'Received: warmup: True',
        ),
        (
            'exponential_decay_learning_rate { burnin_steps: 2 } warmup { steps: 2 }',
            'Received: burnin_steps: 2',
        ),
        ('one_cycle_learning_rate { total_steps: 9 } warmup { steps: 2 }', 'warmup_share: 0.3'),
        ('constant_learning_rate {} warmup {}', 'warmup, steps: expected at least 1. Received: 0'),
        ('polynomial_learning_rate {}', 'polynomial, total_steps: expected at least 1'),
        ('polynomial_learning_rate { total_steps: 2 power: 0 }', 'power: expected above 0'),
        ('one_cycle_learning_rate {}', 'one cycle, total_steps: expected at least 1'),
        ('one_cycle_learning_rate { total_steps: 2 warmup_share: 1 }', 'warmup_share: expected'),
        ('cosine_restarts_learning_rate {}', 'first_period_steps: expected at least 1'),
        (
            """cosine_restarts_learning_rate { learning_rate_base: 1 min_learning_rate: 2
              first_period_steps: 2 }""",
            r'learning_rate_base: expected at least min_learning_rate \(2.0\). Received: 1',
        ),
    ],
)
def test_contradictions_are_reported(text, message):
    with pytest.raises(UserError, match=message):
        _rates(text, [0])


def _optimizer(schedule, others=''):
    text = f'adamw_optimizer {{ learning_rate {{ {schedule} }} }} {others}'
    return text_format.Parse(text, optimizer_pb2.Optimizer())


@rows.parametrize(
    ('epochs', 'steps'),
    [
        (
            'cosine_restarts_learning_rate { first_period_steps: 2 period_multiplier: 3 }',
            'cosine_restarts_learning_rate { first_period_steps: 20 period_multiplier: 3 }',
        ),
        (
            'polynomial_learning_rate { total_steps: 12 } warmup { epochs: 0.25 }',
            'polynomial_learning_rate { total_steps: 120 } warmup { steps: 3 }',
        ),
        (
            'constant_learning_rate {} warmup { steps: 2 learning_rate: 0.5 }',
            'constant_learning_rate {} warmup { steps: 20 learning_rate: 0.5 }',
        ),
        (
            'one_cycle_learning_rate { total_steps: 3 }',
            'one_cycle_learning_rate { total_steps: 30 }',
        ),
    ],
)
def test_lengths_in_epochs(epochs, steps):
    config = _optimizer(epochs, 'learning_rate_unit: EPOCHS moving_average_ramp: 2000')
    optimizer_builder.check(config)
    found = optimizer_builder.in_steps(config, 10.0)
    # The ramp of the averages is in steps.
    assert found == _optimizer(steps, 'moving_average_ramp: 2000')


@rows.parametrize(
    'name',
    ['cosine_restarts_learning_rate', 'polynomial_learning_rate', 'one_cycle_learning_rate'],
)
def test_lengths_in_epochs_must_be_set(name):
    with pytest.raises(UserError, match='_steps: expected a number of epochs'):
        optimizer_builder.in_steps(_optimizer(f'{name} {{}}', 'learning_rate_unit: EPOCHS'), 10.0)


@rows.parametrize(
    ('schedule', 'message'),
    [
        (
            'polynomial_learning_rate { total_steps: 120 }',
            'total_steps is 120, but train_config.num_steps is 100: the schedule does not come to '
            'its end.',
        ),
        (
            'one_cycle_learning_rate { total_steps: 80 }',
            'total_steps is 80, but train_config.num_steps is 100: the last 20 steps have its last '
            'rate.',
        ),
        (
            'cosine_restarts_learning_rate { first_period_steps: 30 period_multiplier: 2 }',
            'first_period_steps is 30, but train_config.num_steps is 100: the training ends within '
            'a period; with 90 or 210 steps it would end where the rate is lowest.',
        ),
        ('cosine_restarts_learning_rate { first_period_steps: 50 }', ''),
        ('polynomial_learning_rate { total_steps: 100 }', ''),
        (
            'constant_learning_rate {} warmup { steps: 100 }',
            'warmup.steps is 100, but train_config.num_steps is 100: the training ends within the '
            'warm-up.',
        ),
        ('constant_learning_rate {} warmup { steps: 99 }', ''),
    ],
)
def test_schedules_of_another_length_than_the_training(schedule, message):
    config = TrainConfig(num_steps=100, optimizer=_optimizer(schedule))
    found = list(train_config_rules.schedule_warnings(config))
    assert found == (
        [f'train_config.optimizer.adamw_optimizer.learning_rate.{rest}']
        if (rest := _path(schedule, message))
        else []
    )


def _path(schedule, message):
    is_warmup = message.startswith('warmup')
    return message and (message if is_warmup else f'{schedule.partition(" ")[0]}.{message}')
