"""The losses of one batch on one replica and on two logical devices.

As a program it prints for each way of normalizing, as JSON: the losses and the gradient of their
sum by a factor of all outputs, of the whole batch and of two replicas with an image each.
"""

import json

import numpy as np
import tensorflow as tf

from object_detection.core.groundtruth import Groundtruth
from object_detection.meta_architectures.ssd import build
from object_detection.meta_architectures.ssd.predictions import Predictions
from tests.meta_architectures.ssd.configs import tiny

ANCHORS = np.array([[0, 0, 0.2, 0.2], [0, 0.3, 0.2, 0.5], [0.5, 0, 0.7, 0.2]], np.float32)
# The second image has no object, and the first one two.
WEIGHTS = np.array([[1, 1], [0, 0]], np.float32)


def losses_of(changes: str, first: tf.Tensor, count: int) -> dict[str, tf.Tensor]:
    """Returns the losses of `count` images from `first` on, and the gradient."""
    losses = build.build_losses(tiny(changes).ssd)
    rng = np.random.default_rng(0)
    codes = tf.constant(rng.normal(size=[2, 3, 4]), tf.float32)
    logits = tf.constant(rng.normal(size=[2, 3, 4]), tf.float32)
    truth = Groundtruth(
        boxes=tf.constant(ANCHORS[:2] * WEIGHTS[..., np.newaxis]),
        classes=tf.one_hot([[0, 2], [0, 0]], 3),
        weights=tf.constant(WEIGHTS),
    )
    part = [
        tf.slice(x, [first] + [0] * (len(x.shape) - 1), [count] + [-1] * (len(x.shape) - 1))
        for x in (codes, logits, *truth[:3])
    ]
    factor = tf.constant(1.5)
    with tf.GradientTape() as tape:
        tape.watch(factor)
        predictions = Predictions(
            images=tf.zeros([count, 8, 8, 3]),
            features=[],
            anchors=tf.constant(ANCHORS),
            box_codes=part[0] * factor,
            class_logits=part[1] * factor,
        )
        targets = losses.assign(predictions.anchors, Groundtruth(*part[2:]))
        named = losses.compute(predictions, targets)
        total = tf.add_n(list(named.values()))
    return named | {'gradient': tape.gradient(total, factor)}


def compare(changes: str) -> list[dict[str, float]]:
    """Returns the values of the whole batch, and their means over two replicas."""
    strategy = tf.distribute.MirroredStrategy(['CPU:0', 'CPU:1'])

    def of_replica():
        index = tf.distribute.get_replica_context().replica_id_in_sync_group
        return losses_of(changes, tf.cast(index, tf.int32), 1)

    shared = tf.function(lambda: strategy.run(of_replica), autograph=False)()
    mean = tf.distribute.ReduceOp.MEAN
    return [
        {name: float(value) for name, value in losses_of(changes, tf.constant(0), 2).items()},
        {name: float(strategy.reduce(mean, value, None)) for name, value in shared.items()},
    ]


if __name__ == '__main__':
    (device,) = tf.config.list_physical_devices('CPU')
    tf.config.set_logical_device_configuration(device, [tf.config.LogicalDeviceConfiguration()] * 2)
    ways = ('normalize_loss_by_num_matches: true', 'normalize_loss_by_num_matches: false')
    print(json.dumps([compare(way) for way in ways]))
