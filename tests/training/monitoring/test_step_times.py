"""What steps wait for, and how long they take."""

import time

import numpy as np
import tensorflow as tf

from object_detection.optimizers import optimizers, schedules
from object_detection.training import step
from object_detection.training.monitoring.speed import CallTimes, Stopwatch, Window
from tests import slow_cases
from tests.training import fakes


def _call(asked, ready, ended):
    return CallTimes(asked, tf.constant(ready, tf.float64), tf.constant(ended, tf.float64))


def test_the_times_of_a_call():
    stopwatch = Stopwatch()
    # The second batch came while the first step was computed, the third one after the second step.
    stopwatch.add(_call(10.0, [11.0, 12.0, 17.0], [13.0, 15.0, 18.0]))
    waited, computed = stopwatch.take()
    np.testing.assert_allclose(waited, [1.0, 0.0, 2.0])
    np.testing.assert_allclose(computed, [2.0, 2.0, 1.0])
    assert stopwatch.last == (15.0, 17.0, 18.0)
    assert not stopwatch.take().size


def test_a_device_behind_the_host_does_not_wait_and_pauses_between_calls_do_not_count():
    stopwatch = Stopwatch()
    stopwatch.add(_call(0.0, 1.0, 5.0), timed=False)
    # Given to the device while it computed the step before.
    stopwatch.add(_call(2.0, 3.0, 9.0))
    # After an evaluation.
    stopwatch.add(_call(100.0, 100.5, 102.0))
    waited, computed = stopwatch.take()
    np.testing.assert_allclose(waited, [0.0, 0.5])
    assert stopwatch.last == (100.0, 100.5, 102.0)
    np.testing.assert_allclose(computed, [4.0, 1.5])


def test_a_clock_that_is_set_back():
    stopwatch = Stopwatch()
    stopwatch.add(_call(10.0, [11.0, 5.0], [12.0, 6.0]))
    waited, computed = stopwatch.take()
    assert waited.min() >= 0.0
    assert computed.min() >= 0.0


def _sleep(seconds):
    def sleep(value):
        time.sleep(seconds)
        return value

    return sleep


class _SlowDetector(fakes.FakeDetector):
    def normalize(self, images):
        slow = tf.numpy_function(_sleep(0.03), [images], tf.float32)
        return super().normalize(tf.ensure_shape(slow, images.shape))


def slow_batches():
    """30 ms a batch, made when it is asked for."""

    def slow(batch):
        image = tf.numpy_function(_sleep(0.03), [batch['image']], tf.float32)
        return {**batch, 'image': tf.ensure_shape(image, batch['image'].shape)}

    batches = fakes.dataset(6, 2, repeat=True)
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    options.experimental_optimization.map_parallelization = False
    return batches.map(slow).with_options(options)


@slow_cases.parametrize(
    2, ('slow', 'steps_per_call'), [('input', 1), ('input', 5), ('step', 1), ('step', 5)]
)
def test_which_side_waits(slow, steps_per_call):
    detector = _SlowDetector() if slow == 'step' else fakes.FakeDetector()
    detector.build_variables()
    batches = slow_batches() if slow == 'input' else fakes.dataset(6, 2, repeat=True)
    train_step = step.TrainStep(
        detector,
        optimizers.Momentum(schedules.constant(0.01), momentum=0.9),
        element_spec=batches.element_spec,
    )
    iterator, stopwatch, window = iter(batches), Stopwatch(), Window()
    train_step.repeat(iterator, steps_per_call)
    for _ in range(10 // steps_per_call):
        train_step.repeat(iterator, steps_per_call)
        stopwatch.add(train_step.times)
    window.add_times(stopwatch.take())
    described = window.describe(2)
    latencies = described['latencies']
    assert latencies['step']['count'] == latencies['input']['count'] == 10
    slow_side = latencies[slow]
    assert slow_side['p50'] >= 0.03 * 0.99
    share = described['waiting_share']
    assert share > 0.6 if slow == 'input' else share < 0.3
