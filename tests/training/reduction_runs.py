"""Reductions of gradients, and trainings on other numbers of replicas, in a process of its own.

Two logical CPU devices stand for the devices of a machine.
"""

import os
import pathlib
from unittest import mock

import numpy as np
import tensorflow as tf

from object_detection.optimizers.gradients import GradientReduction
from object_detection.training import loop
from object_detection.training.distribution import strategies
from object_detection.training.distribution.strategy_choice import Choice
from object_detection.training.monitoring import history
from object_detection.training.monitoring.run_types import Intervals
from tests.training import fakes

VALUES = np.float32([[1.0, 1.0 + 2**-9, 3.0], [2.0, 1.0, 2.0**-20]])  # of each replica
KINDS = {
    'plain': {},
    'packs': {'bytes_per_pack': 8, 'implementation': 'RING'},
    'bfloat16': {'in_bfloat16': True},
}
BATCH, NUM_IMAGES, NUM_STEPS = 4, 8, 9


def reduce_all(strategy: tf.distribute.Strategy) -> dict[str, np.ndarray]:
    """Returns the sum by each kind of reduction."""
    sums = {}
    for name, options in KINDS.items():
        reduction = GradientReduction(**options)

        @tf.function(autograph=False)
        def run(reduction=reduction):
            def one():
                index = tf.distribute.get_replica_context().replica_id_in_sync_group
                gradients = list(tf.unstack(tf.constant(VALUES)[index]))
                return tf.stack(reduction(gradients))

            return strategy.run(one)

        results = strategy.experimental_local_results(run())
        assert all((result.numpy() == results[0].numpy()).all() for result in results)
        sums[name] = results[0].numpy()
    return sums


def batches(config, input_context, seed, start):
    """The same global batches for any number of replicas."""
    size = input_context.get_per_replica_batch_size(config.train_config.batch_size)
    return fakes.dataset(NUM_IMAGES, size, repeat=True)


def train(directory: pathlib.Path, replicas: list[tf.distribute.Strategy]) -> None:
    """Trains in equal parts, each with its strategy, in one model_dir."""
    config = fakes.pipeline_config(batch_size=BATCH)
    rate = config.train_config.optimizer.momentum_optimizer.learning_rate
    rate.cosine_decay_learning_rate.learning_rate_base = 0.05
    rate.cosine_decay_learning_rate.total_steps = NUM_STEPS
    rate.cosine_decay_learning_rate.warmup_steps = 2
    rate.cosine_decay_learning_rate.warmup_learning_rate = 0.01
    each = NUM_STEPS // len(replicas)
    for part, strategy in enumerate(replicas, 1):
        # Data go on where they are: three steps see a batch and a half of an epoch of two.
        skipped = (part - 1) * each

        def go_on(config, input_context, seed, start, left_out, step=0, skipped=skipped):
            taken = skipped * input_context.num_replicas_in_sync
            return batches(config, input_context, seed, start).skip(taken)

        with mock.patch('object_detection.builders.dataset_builder.build_train', go_on):
            loop.train(
                config,
                directory,
                num_steps=part * each,
                intervals=Intervals(log=1, checkpoint=0),
                record_summaries=False,
                seed=1,
                strategy=strategy,
            )
    entries = history.read(directory / 'train' / history.FILE_NAME)
    np.savez(
        directory.with_suffix('.npz'),
        losses=[entry['losses']['Loss/total_loss'] for entry in entries],
        rates=[entry['learning_rate'] for entry in entries],
        steps=[entry['step'] for entry in entries],
    )


def main(output: str) -> None:
    """Writes results and records of all of them as .npz files into a folder."""
    (device,) = tf.config.list_physical_devices('CPU')
    tf.config.set_logical_device_configuration(device, [tf.config.LogicalDeviceConfiguration()] * 2)
    fakes.patch_builders(lambda target, value: mock.patch(target, value).start())
    two = strategies.build(Choice('mirrored'))
    np.savez(os.path.join(output, 'two.npz'), **reduce_all(two))
    one = strategies.build(Choice('one_device'))
    np.savez(os.path.join(output, 'one.npz'), **reduce_all(one))
    folder = pathlib.Path(output)
    train(folder / 'unchanged', [one])
    train(folder / 'changed', [one, two, one])
