"""Losses as sums; several replicas are in test_loss_families.py."""

import numpy as np
import pytest
import tensorflow as tf

from object_detection.core import loss_sum
from object_detection.core.loss_sum import LossSum


def test_sums_are_divided_by_at_least_one():
    sums = {'a': LossSum(tf.constant(6.0), tf.constant(4.0)), 'b': LossSum(3.0, 0.25)}
    assert {name: float(loss) for name, loss in loss_sum.divide(sums).items()} == {
        'a': 1.5,
        'b': 3.0,
    }


def test_the_limit_holds_for_the_whole_batch_alone():
    parts = [{'a': LossSum(6.0, 4.0)}, {'a': LossSum(2.0, 0.0)}, {'a': LossSum(0.0, 0.5)}]
    losses = [loss_sum.divide(part, {'a': tf.constant(4.5)})['a'] for part in parts]
    assert float(sum(losses)) == pytest.approx(8.0 / 4.5)


def test_a_mean_over_images():
    assert [float(each) for each in loss_sum.over_images(tf.constant([1.0, 2.0, 6.0]))] == [9, 3]


def test_stacks_are_averaged():
    stacks = [tf.constant([[1.0, 2.0]]), tf.constant([[4.0, 8.0]])]
    found = loss_sum.add(stacks, tf.constant(5.0), 3.0)
    # 3 * (3 + 12) / 2; each stack has the same objects.
    assert [float(each) for each in found] == [22.5, 5.0]


@pytest.mark.parametrize('strategy', [tf.distribute.get_strategy(), None])
def test_one_replica_keeps_its_own(strategy):
    strategy = strategy or tf.distribute.MirroredStrategy(['CPU:0'])
    numbers = {'a': tf.constant(3.0), 'b': tf.constant(0.25)}
    inside = strategy.run(loss_sum.over_replicas, args=(numbers,))
    # Across the replicas, as in an evaluation.
    with strategy.scope():
        across = loss_sum.over_replicas(numbers)
    for found in (inside, across):
        assert {name: float(value) for name, value in found.items()} == {'a': 3.0, 'b': 0.25}


def test_no_gradient_flows_through_the_normalizer():
    value = tf.Variable(2.0)
    with tf.GradientTape() as tape:
        (loss,) = loss_sum.divide({'a': LossSum(value, value)}).values()
    np.testing.assert_equal(float(tape.gradient(loss, value)), 0.5)
