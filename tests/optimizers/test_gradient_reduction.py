"""The sum of gradients over replicas, and runs whose number of replicas changes."""

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders import optimizer_builder
from object_detection.optimizers.gradients import GradientReduction
from object_detection.protos import train_pb2
from tests import forks, rows
from tests.training import reduction_runs


@pytest.fixture(scope='module')
def runs(tmp_path_factory):
    """What a process with two logical devices has written, by file and name."""
    output = tmp_path_factory.mktemp('reduction')
    forks.call(reduction_runs.main, str(output))
    return {path.stem: dict(np.load(path)) for path in output.glob('*.npz')}


@pytest.mark.parametrize('kind', ['plain', 'packs'])
def test_gradients_are_added_up(runs, kind):
    np.testing.assert_array_equal(runs['two'][kind], reduction_runs.VALUES.sum(axis=0))


def test_bfloat16_has_8_bits(runs):
    summed = runs['two']['bfloat16']
    assert summed.dtype == np.float32
    np.testing.assert_array_equal(summed, [3.0, 2.0, 3.0])


def test_one_replica_rounds_nothing(runs):
    for kind in reduction_runs.KINDS:
        np.testing.assert_array_equal(runs['one'][kind], reduction_runs.VALUES[0])


def test_another_number_of_replicas_keeps_batch_and_schedule(runs):
    changed, unchanged = runs['changed'], runs['unchanged']
    np.testing.assert_array_equal(changed['steps'], range(1, reduction_runs.NUM_STEPS + 1))
    np.testing.assert_array_equal(changed['rates'], unchanged['rates'])
    assert len(set(changed['rates'])) > 5
    np.testing.assert_allclose(changed['losses'], unchanged['losses'], rtol=1e-5)
    assert changed['losses'][-1] < changed['losses'][0]


def test_a_config_chooses(monkeypatch):
    made = {}
    monkeypatch.setattr(optimizer_builder, 'GradientReduction', lambda **given: made.update(given))
    optimizer_builder.build_reduction(train_pb2.TrainConfig())
    assert made == {'bytes_per_pack': 0, 'implementation': 'AUTO', 'in_bfloat16': False}
    text = 'gradient_reduction { bytes_per_pack: 1000 implementation: NCCL in_bfloat16: true }'
    optimizer_builder.build_reduction(text_format.Parse(text, train_pb2.TrainConfig()))
    assert made == {'bytes_per_pack': 1000, 'implementation': 'NCCL', 'in_bfloat16': True}


@rows.parametrize('kind', train_pb2.GradientReduction.Implementation.keys())
def test_tensorflow_knows_each_implementation(kind):
    reduction = GradientReduction(implementation=kind)
    assert isinstance(reduction([tf.constant(1.0)]), list)
