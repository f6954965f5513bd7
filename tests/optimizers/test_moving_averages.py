import contextlib

import numpy as np
import pytest
import tensorflow as tf

from object_detection.optimizers.moving_averages import swapped
from tests import rows

SCOPES = {
    'default': contextlib.nullcontext,
    'mirrored': lambda: tf.distribute.MirroredStrategy(['CPU:0']).scope(),
    'one_device': lambda: tf.distribute.OneDeviceStrategy('CPU:0').scope(),
}


@rows.parametrize('scope', SCOPES)
def test_variables_hold_their_averages_inside_and_their_values_afterwards(scope):
    with SCOPES[scope]():
        # Numbers without a finite binary form: they come back to the bit.
        kernel, bias = tf.Variable([0.1, 0.2]), tf.Variable(0.3)
        average = tf.Variable([0.7, 0.9], trainable=False)
        doubled = tf.function(lambda: 2 * kernel)
        with swapped({'a/kernel': kernel, 'a/bias': bias}, {'a/kernel': average}):
            np.testing.assert_array_equal(kernel.numpy(), np.float32([0.7, 0.9]))
            np.testing.assert_array_equal(doubled().numpy(), np.float32([1.4, 1.8]))
            assert bias.numpy() == np.float32(0.3)
        np.testing.assert_array_equal(kernel.numpy(), np.float32([0.1, 0.2]))
        np.testing.assert_array_equal(average.numpy(), np.float32([0.7, 0.9]))


def test_values_are_back_after_an_error():
    first, second = tf.Variable(1.0), tf.Variable([2.0])
    averages = {'a': tf.Variable(5.0), 'b': tf.Variable([6.0, 6.0])}
    with pytest.raises(RuntimeError, match='inside'), swapped({'a': first}, {'a': averages['a']}):
        raise RuntimeError('inside')
    assert (first.numpy(), averages['a'].numpy()) == (1.0, 5.0)
    # The second does not fit; the first is put back all the same.
    with pytest.raises(ValueError), swapped({'a': first, 'b': second}, averages):  # noqa: PT011
        pass
    assert (first.numpy(), averages['a'].numpy()) == (1.0, 5.0)


def test_no_averages_change_nothing():
    variable = tf.Variable(1.0)
    with swapped({'a': variable}, {}):
        assert variable.numpy() == 1.0


def test_averages_of_other_variables_are_reported():
    with (
        pytest.raises(ValueError, match=r"Received averages of: \['b'\]"),
        swapped({'a': tf.Variable(1.0)}, {'b': tf.Variable(1.0)}),
    ):
        pass
