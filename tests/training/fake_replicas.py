"""Trains the fake detector on one and on two replicas, in a process that has two CPU devices.

Prints, as JSON, the losses of each step and the weights and their averages at the end, of either.
"""

import json

import numpy as np
import tensorflow as tf

from object_detection.optimizers import schedules
from object_detection.optimizers.gradients import DynamicLossScale
from object_detection.optimizers.moving_averages import Averaging, swapped
from object_detection.optimizers.optimizers import Momentum
from object_detection.training import step
from tests.training import fakes

NUM_STEPS = 4
CLIP_NORM = 0.05


def train(strategy: tf.distribute.Strategy) -> dict:
    """Trains from fixed weights, with clipped gradients."""
    data = fakes.dataset(8, 4, repeat=True)
    with strategy.scope():
        batches = iter(strategy.experimental_distribute_dataset(data))
        detector = fakes.FakeDetector()
        detector.build_variables()
        for index, variable in enumerate(detector.variables):
            value = tf.random.stateless_normal(variable.shape, [index, 5])
            variable.assign(value)
        optimizer = Averaging(Momentum(schedules.constant(0.1), momentum=0.9), decay=0.9)
        trained = detector.named_trainable_variables()
        optimizer.build(trained, multipliers={'box_head/dense/bias': 0.5})
        train_step = step.TrainStep(
            detector,
            optimizer,
            element_spec=batches.element_spec,
            clip_norm=CLIP_NORM,
            loss_scale=DynamicLossScale(initial=1024.0, growth_steps=2),
        )
        # Both ways of doing steps.
        losses = [train_step(next(batches)), train_step.repeat(batches, NUM_STEPS - 1)]
        with swapped(trained, optimizer.averages()):
            averages = [_on_every_replica(variable, strategy) for variable in trained.values()]
        weights = [_on_every_replica(variable, strategy) for variable in trained.values()]
    return {
        'replicas': strategy.num_replicas_in_sync,
        'step': int(train_step.step.numpy()),
        'losses': [{name: float(loss) for name, loss in each.items()} for each in losses],
        'weights': weights + averages,
    }


def _on_every_replica(variable: tf.Variable, strategy: tf.distribute.Strategy) -> list:
    first, *others = [copy.numpy() for copy in strategy.experimental_local_results(variable)]
    for other in others:
        np.testing.assert_array_equal(other, first)
    return first.tolist()


if __name__ == '__main__':
    (device,) = tf.config.list_physical_devices('CPU')
    tf.config.set_logical_device_configuration(device, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategies = [
        tf.distribute.get_strategy(),
        tf.distribute.MirroredStrategy(['CPU:0', 'CPU:1']),
    ]
    print(json.dumps([train(strategy) for strategy in strategies]))
