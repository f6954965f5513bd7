"""What a config says of single variables reaches the training step."""

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.training.loop import train
from object_detection.training.monitoring.progress import Silent
from tests.training import fakes

KERNEL, BIAS = 'box_head/dense/kernel', 'box_head/dense/bias'


@pytest.fixture(autouse=True)
def _fakes(monkeypatch):
    fakes.patch_builders(monkeypatch.setattr)


def _after_a_step(directory, text: str) -> dict[str, np.ndarray]:
    config = fakes.pipeline_config()
    text_format.Merge(text, config.train_config)
    result = train(
        config, directory, num_steps=1, seed=1, record_summaries=False, progress=Silent()
    )
    reader = tf.train.load_checkpoint(result.checkpoint)
    suffix = '/.ATTRIBUTES/VARIABLE_VALUE'
    return {name: reader.get_tensor(f'model/{name}{suffix}') for name in (KERNEL, BIAS)}


def test_freezing_and_factors_reach_the_step(tmp_path):
    """From the same seed, what a step adds to a variable is known from the others."""
    first = {
        KERNEL: _after_a_step(tmp_path / 'a', "freeze_variables: '/kernel'")[KERNEL],
        BIAS: _after_a_step(tmp_path / 'b', "update_trainable_variables: '/kernel'")[BIAS],
    }
    plain = _after_a_step(tmp_path / 'c', '')
    slow = "optimizer { learning_rate_multiplier { variables: '^box_head' multiplier: 0.5 } }"
    halved = _after_a_step(tmp_path / 'd', slow)
    tripled = _after_a_step(tmp_path / 'e', 'bias_grad_multiplier: 3')
    for name, factor in ((KERNEL, 1), (BIAS, 3)):
        update = plain[name] - first[name]
        assert np.abs(update).max() > 1e-4
        np.testing.assert_allclose(halved[name] - first[name], 0.5 * update, atol=1e-6)
        np.testing.assert_allclose(tripled[name] - first[name], factor * update, atol=1e-6)
