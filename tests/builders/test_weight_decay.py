"""The penalty of all weights, by hand."""

import logging

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.errors import ConfigError
from object_detection.meta_architectures import trainable_variables
from object_detection.optimizers.gradients import REGULARIZATION_LOSS, TOTAL_LOSS
from object_detection.protos.train_pb2 import TrainConfig
from object_detection.training import setup
from object_detection.training.loop import train
from object_detection.training.monitoring.progress import Silent
from tests import rows
from tests.training import fakes

KERNEL, BIAS = 'box_head/dense/kernel', 'box_head/dense/bias'


def _detector(text: str):
    detector = fakes.FakeDetector()
    detector.build_variables()
    detector.head.bias.assign([1.0, 2.0, 3.0, 4.0])
    trainable_variables.install_weight_decay(detector, text_format.Parse(text, TrainConfig()))
    return detector


def _sum_of_squares(detector, *names: str) -> float:
    variables = detector.named_variables()
    return sum(float(np.square(variables[name].numpy()).sum()) for name in names)


@rows.parametrize(
    ('text', 'names'),
    [
        ('weight_decay { weight: 0.25 }', [KERNEL]),
        ("weight_decay { weight: 0.25 exclude_pattern: '' }", [KERNEL, BIAS]),
        ("weight_decay { weight: 0.25 exclude_pattern: 'kern' }", [BIAS]),
        (
            "weight_decay { weight: 0.25 exclude_pattern: '' } freeze_variables: 'nel$'",
            [BIAS],
        ),
        (
            "weight_decay { weight: 0.25 exclude_pattern: '' } "
            "update_trainable_variables: 'kernel'",
            [KERNEL],
        ),
    ],
)
def test_the_penalty_takes_the_place_of_regularizers(text, names):
    detector = _detector(text)
    (penalty,) = detector.regularization_losses()
    expected = 0.5 * 0.25 * _sum_of_squares(detector, *names)
    assert float(penalty) == pytest.approx(expected, rel=1e-6)


def test_without_it_regularizers_count():
    (penalty,) = (detector := _detector('')).regularization_losses()
    assert float(penalty) == pytest.approx(0.01 * _sum_of_squares(detector, KERNEL), rel=1e-5)


@rows.parametrize(
    ('text', 'message'),
    [
        ('weight_decay { }', 'weight_decay.weight is not set'),
        ('weight_decay { weight: -1 }', 'weight_decay.weight: expected at least 0'),
        ("weight_decay { weight: 1 exclude_pattern: '(' }", 'expected a regular expression'),
        ("weight_decay { weight: 1 exclude_pattern: 'box' }", 'leaves trained variables'),
    ],
)
def test_mistakes_are_reported(text, message):
    with pytest.raises(ConfigError, match=message):
        _detector(text)


def test_a_training_and_the_log(tmp_path, monkeypatch, caplog):
    """The learning rate follows the batch size; the penalty is in the losses, and the gradient."""
    fakes.patch_builders(monkeypatch.setattr)
    config = fakes.pipeline_config(batch_size=2)
    text = 'weight_decay { weight: 0.5 } auto_scale_lr { reference_batch_size: 8 }'
    text_format.Merge(text, config.train_config)
    made = []
    build = setup.build_step

    def record(*args, **options):
        made.append(build(*args, **options))
        return made[-1]

    monkeypatch.setattr(setup, 'build_step', record)
    with caplog.at_level(logging.INFO):
        result = train(
            config, tmp_path, num_steps=1, seed=1, record_summaries=False, progress=Silent()
        )
    assert 'weight decay 0.5 of 12 parameters in 1 variables' in caplog.text
    assert 'learning rates are multiplied by 0.25: batch size 2' in caplog.text
    (train_step,) = made
    schedule = config.train_config.optimizer.momentum_optimizer.learning_rate
    rate = schedule.constant_learning_rate.learning_rate
    assert float(train_step.optimizer.learning_rate(tf.constant(0))) == pytest.approx(rate / 4)
    penalty = result.losses[REGULARIZATION_LOSS]
    after = 0.25 * _sum_of_squares(train_step.detector, KERNEL)
    assert penalty == pytest.approx(after, rel=0.2)
    assert penalty != pytest.approx(after, rel=1e-6)
    others = [v for n, v in result.losses.items() if n not in (TOTAL_LOSS, REGULARIZATION_LOSS)]
    assert result.losses[TOTAL_LOSS] == pytest.approx(penalty + sum(others), rel=1e-6)
