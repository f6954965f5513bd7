"""Factors of the learning rate that fall on plateaus, by hand."""

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders import optimizer_builder
from object_detection.optimizers.plateau import Plateau
from object_detection.protos import optimizer_pb2
from tests import rows


def _factors(scores, **options):
    """The factor after each score, of evaluations at the steps 10, 20, ..."""
    plateau = Plateau(**{'factor': 0.5, 'patience': 2, **options})
    found = []
    for index, score in enumerate(scores, start=1):
        before = float(plateau.factor)
        lowered = plateau.update(10 * index, score)
        found.append(float(plateau.factor))
        assert lowered == (found[-1] < before)
        assert plateau.step == 10 * index
    return found


@rows.parametrize(
    ('scores', 'options', 'expected'),
    [
        ([1, 2, 3, 4], {}, [1, 1, 1, 1]),
        # The first counts as an improvement, also of losses, whose scores are negative.
        ([-5, -5, -5, -5, -5], {}, [1, 1, 0.5, 0.5, 0.25]),
        # One improvement begins the count again.
        ([1, 1, 2, 2, 1, 3, 2, 2], {}, [1, 1, 1, 1, 0.5, 0.5, 0.5, 0.25]),
        # What is not defined is no improvement, also as the first.
        ([None, None, 1, None], {}, [1, 0.5, 0.5, 0.5]),
        ([1, 1.05, 1.09, 1.2], {'min_delta': 0.125}, [1, 1, 0.5, 0.5]),
        ([1] * 6, {'patience': 1, 'cooldown': 1}, [1, 0.5, 0.5, 0.25, 0.25, 0.125]),
        ([1] * 6, {'patience': 2, 'cooldown': 1}, [1, 1, 0.5, 0.5, 0.5, 0.25]),
        ([1] * 5, {'patience': 1, 'min_factor': 0.2}, [1, 0.5, 0.25, 0.2, 0.2]),
    ],
)
def test_factors_by_hand(scores, options, expected):
    np.testing.assert_allclose(_factors(scores, **options), expected, rtol=1e-6)


def test_a_restored_state_continues_to_the_bit():
    scores = np.random.default_rng(0).normal(size=12).tolist()
    options = {'factor': 0.7, 'patience': 1, 'min_delta': 0.1, 'cooldown': 1}
    whole = Plateau(**options)
    for step, score in enumerate(scores):
        whole.update(step, score)
    first, second = Plateau(**options), Plateau(**options)
    for step, score in enumerate(scores[:5]):
        first.update(step, score)
    for name, variable in second.state().items():
        variable.assign(first.state()[name])
    for step, score in enumerate(scores[5:], start=5):
        second.update(step, score)
    assert float(whole.factor) < 0.5
    for name, variable in second.state().items():
        assert variable.numpy() == whole.state()[name].numpy(), name


def test_the_rate_of_a_compiled_step_falls():
    text = """adamw_optimizer { learning_rate { constant_learning_rate { learning_rate: 0.5 } } }
      reduce_on_plateau { patience: 1 factor: 0.25 }"""
    config = text_format.Parse(text, optimizer_pb2.Optimizer())
    strategy = tf.distribute.MirroredStrategy(['CPU:0'])
    with strategy.scope():
        plateau = optimizer_builder.build_plateau(config)
        optimizer = optimizer_builder.build(config, rate_factor=2.0, plateau=plateau)
    rate = tf.function(
        lambda: strategy.run(optimizer.learning_rate, args=(tf.constant(0, tf.int64),))
    )
    rates = [float(rate())]
    for step, score in ((1, 0.5), (2, 0.5), (3, 0.4)):
        plateau.update(step, score)
        rates.append(float(rate()))
    assert rates == [1.0, 1.0, 0.25, 0.0625]
    config.ClearField('reduce_on_plateau')
    assert optimizer_builder.build_plateau(config) is None


@pytest.mark.parametrize('name', ['factor', 'best', 'best_step', 'step', 'waited', 'cooldown'])
def test_the_state_is_finite_from_the_start(name):
    """Checkpoints with other numbers are not saved."""
    assert np.isfinite(Plateau(factor=0.5, patience=1).state()[name].numpy())
