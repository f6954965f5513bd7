"""The mean of moving statistics of one replica; of several in test_replicas.py."""

import tensorflow as tf

from object_detection.training.distribution.collectives import StatisticsAverage


def test_statistics_of_one_replica_stay():
    variable = tf.Variable(2.0)
    average = StatisticsAverage(tf.distribute.get_strategy(), {'a/moving_mean': variable})
    average.update()
    assert float(variable) == 2.0
