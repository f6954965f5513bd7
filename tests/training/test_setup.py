"""The data of a training, as its replicas get them."""

import types

import pytest
import tensorflow as tf

from object_detection.builders import dataset_builder
from object_detection.training import setup
from tests.training import fakes


@pytest.mark.parametrize(
    ('replicas', 'expected'), [(1, tf.data.UNKNOWN_CARDINALITY), (2, tf.data.INFINITE_CARDINALITY)]
)
def test_data_of_several_replicas_have_no_end(monkeypatch, replicas, expected):
    # Of unknown length, as datasets of records are.
    records = tf.data.Dataset.range(3).filter(lambda number: number >= 0)
    monkeypatch.setattr(dataset_builder, 'build_train', lambda *_, **__: records)
    strategy = types.SimpleNamespace(
        num_replicas_in_sync=replicas,
        distribute_datasets_from_function=lambda build: [build(tf.distribute.InputContext())],
    )
    (data,) = setup.training_data(fakes.pipeline_config(), strategy, seed=1)
    assert data.cardinality() == expected
