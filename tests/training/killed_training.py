"""A training in a process of its own that a test may kill: a real loop around a fake detector.

Importing this module imports all that a training needs and runs no operation, so that a fork
server which has done it starts each training in a fraction of the time.
"""

import logging
import os
from unittest import mock

import tensorflow as tf

from object_detection.training.loop import train
from object_detection.training.monitoring.run_types import Intervals
from tests.training import fakes

# 8 MB of weights, so that a save takes a while.
_FROZEN_INPUTS = 2_000_000


class LargeDetector(fakes.FakeDetector):
    def build_variables(self):
        self.head.build([None, 3])
        self.frozen.build([None, _FROZEN_INPUTS])


def run(directory: str, num_steps: int, log_path: str) -> None:
    """Trains on, with a checkpoint after every step; the log is added to `log_path`."""
    with open(log_path, 'a') as log:
        os.dup2(log.fileno(), 2)
    logging.basicConfig(
        force=True, level=logging.INFO, format='%(levelname)s %(name)s: %(message)s'
    )
    # As many threads as the machine has cores do no good to many small steps.
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    fakes.patch_builders(
        lambda target, value: mock.patch(target, value).start(), detector=LargeDetector
    )
    result = train(
        fakes.pipeline_config(),
        directory,
        num_steps=num_steps,
        intervals=Intervals(log=1, checkpoint=1),
        max_to_keep=2,
        record_summaries=False,
        seed=1,
    )
    raise SystemExit(result.exit_status)
