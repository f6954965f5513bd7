"""Sums over replicas; with several replicas in training/distribution/test_replicas.py."""

import pytest
import tensorflow as tf

from object_detection.core import replicas


@pytest.mark.parametrize('strategy', [tf.distribute.get_strategy(), None])
def test_one_replica_keeps_its_own(strategy):
    strategy = strategy or tf.distribute.MirroredStrategy(['CPU:0'])
    for value, expected in ((3.0, 3.0), (0.25, 1.0)):
        assert float(replicas.global_normalizer(tf.constant(value))) == expected
        inside = strategy.run(replicas.global_normalizer, args=(tf.constant(value),))
        assert float(inside) == expected
    # Across the replicas, as in an evaluation.
    with strategy.scope():
        assert float(replicas.global_sum(tf.constant(3.0))) == 3.0


def test_no_gradient_flows_through():
    value = tf.Variable(2.0)
    with tf.GradientTape() as tape:
        normalized = value / replicas.global_normalizer(value)
    assert float(tape.gradient(normalized, value)) == 0.5
