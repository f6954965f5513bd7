"""Deterministic operations, in a process of their own: nothing switches them off again.

With TensorFlow's own determinism alone, each of the cases was seen to differ.
"""

import time

import numpy as np
import pytest
import tensorflow as tf

from object_detection.core import determinism
from tests import forks

_SHAPE = (9, 64)


def _values(count):
    rng = np.random.default_rng(1)
    return [tf.constant(rng.normal(size=_SHAPE), tf.float32) for _ in range(count)]


def _of_parts_in_use() -> tuple[np.ndarray, ...]:
    """A gradient of three parts: alone, and where the first and the last part have other users."""
    weight, first, last = _values(3)

    def gradients(*sources):
        with tf.GradientTape() as tape:
            tape.watch(sources)
            loss = sum(
                tf.reduce_sum(tf.exp(each)) for each in (weight + first, weight**2, weight + last)
            )
        return tape.gradient(loss, sources)

    alone = tf.function(lambda: gradients(weight))()
    in_use = tf.function(lambda: gradients(weight, first, last))()
    return alone[0].numpy(), in_use[0].numpy()


def _of_a_late_part() -> tuple[np.ndarray, ...]:
    """A gradient of three parts, of which another one is ready last each time.

    Part of a graph that needs more memory than TensorFlow takes a CPU to have.
    """
    (weight,) = _values(1)
    repeats = 80_000

    @tf.custom_gradient
    def late_backwards(tensor, is_late):
        def wait(gradient, is_late):
            time.sleep(0.3 * float(is_late))
            return gradient

        def gradient(upstream):
            waited = tf.numpy_function(wait, [upstream, is_late], tf.float32)
            return tf.ensure_shape(waited, _SHAPE), None

        return tf.identity(tensor), gradient

    @tf.function
    def gradient(late):
        with tf.GradientTape() as tape:
            tape.watch(weight)
            loss = 0.3 * tf.nn.l2_loss(weight)
            for index in range(3):
                is_late = tf.cast(late == index, tf.float32)
                part = tf.exp(late_backwards(weight, is_late) * (0.7 + index))
                loss += tf.reduce_mean(tf.tile(part[tf.newaxis], [repeats, 1, 1]) ** 2)
        return tape.gradient(loss, weight)

    return tuple(gradient(tf.constant(late)).numpy() for late in range(3))


def _of_a_sum() -> tuple[np.ndarray, ...]:
    """A sum of four parts, of which two may or may not be needed afterwards."""
    parts = [tf.Variable(value) for value in _values(4)]

    @tf.function
    def total(are_shared):
        own = [tf.exp(part) for part in parts]
        whole = determinism.sum_in_order(own)
        return (whole, *own[:2]) if are_shared else (whole,)

    return total(False)[0].numpy(), total(True)[0].numpy()


_CASES = {'parts in use': _of_parts_in_use, 'a late part': _of_a_late_part, 'a sum': _of_a_sum}


def _compute() -> dict[str, tuple[np.ndarray, ...]]:
    determinism.switch_on()
    return {name: case() for name, case in _CASES.items()}


@pytest.fixture(scope='module')
def computed():
    return forks.call(_compute)


@pytest.mark.parametrize('case', _CASES)
def test_sums_do_not_depend_on_who_else_needs_their_parts_or_which_is_ready_last(computed, case):
    expected, *others = computed[case]
    assert np.all(np.isfinite(expected))
    assert np.any(expected)
    for other in others:
        np.testing.assert_array_equal(other, expected)
