"""Trains the tiny recipe in several ways, in a process of its own: OUTPUT WAY...

Writes the losses of each step and the weights after the last of each way, as OUTPUT/WAY.npz. A way
is 'plain' or of the parts 'two' (replicas), 'jit', and a number of parts, e.g. 'two-jit-2'.
"""

import os
import sys

import numpy as np
import tensorflow as tf

from object_detection.optimizers.gradients import Execution
from tests.training import step_runs

BATCH, NUM_STEPS = 4, 3
# All anchors are proposed and trained on. Else rounding would choose between proposals of nearly
# the same score, and trainings that differ in their last digits would soon differ in more.
NO_CHOICES = """
model {
  faster_rcnn {
    image_resizer { fixed_shape_resizer { height: 32 width: 32 } }
    first_stage_nms_iou_threshold: 1.0
    first_stage_pre_nms_topk_per_level: 256
    first_stage_max_proposals_per_level: 256
    first_stage_max_proposals: 256
    second_stage_batch_size: 300
    second_stage_balance_fraction: 1.0
    max_num_mask_rois: 0
  }
}
"""


def train(way: str) -> dict[str, np.ndarray]:
    """Returns 'losses/<name>' [steps] and the variables by name."""
    words = way.split('-')
    parts = next((int(word) for word in words if word.isdigit()), 1)
    strategy = tf.distribute.get_strategy()
    if 'two' in words:
        strategy = tf.distribute.MirroredStrategy(['CPU:0', 'CPU:1'])
    pipeline = step_runs.tiny_recipe(NO_CHOICES)
    anchors = pipeline.model.faster_rcnn.first_stage_anchor_generator.multiscale_anchor_generator
    anchors.aspect_ratios[:] = [1.0]
    data = step_runs.batches(BATCH, sizes=((32, 32),), count=NUM_STEPS)
    examples = {name: tf.concat([batch[name] for batch in data], axis=0) for name in data[0]}
    dataset = tf.data.Dataset.from_tensor_slices(examples).batch(BATCH, drop_remainder=True)
    with strategy.scope():
        iterator = iter(strategy.experimental_distribute_dataset(dataset))
        train_step = step_runs.make_step(
            pipeline, iterator.element_spec, Execution('jit' in words, parts)
        )
        records = [train_step(next(iterator)) for _ in range(NUM_STEPS)]
    losses = {
        f'losses/{name}': np.array([record[name].numpy() for record in records])
        for name in records[0]
    }
    variables = train_step.detector.named_variables()
    return losses | {name: variable.numpy() for name, variable in variables.items()}


if __name__ == '__main__':
    output, *ways = sys.argv[1:]
    if any('two' in way for way in ways):
        (device,) = tf.config.list_physical_devices('CPU')
        tf.config.set_logical_device_configuration(
            device, [tf.config.LogicalDeviceConfiguration()] * 2
        )
    for way in ways:
        np.savez(os.path.join(output, way), **train(way))
