"""Trains the fake detector slowly, as one of the workers that the environment names.

Arguments: MODEL_DIR NUM_STEPS [WORKER_TIMEOUT [START_TIMEOUT]]. Prints its steps.
"""

import sys
import time
from unittest import mock

import tensorflow as tf

from object_detection.cli.main import exit_status
from object_detection.config.job_options import TrainOptions
from object_detection.errors import ConfigError, DivergenceError, WorkerError
from object_detection.training import jobs
from object_detection.training.distribution import strategies, strategy_choice
from object_detection.training.loop import train
from object_detection.training.monitoring.run_types import Intervals
from tests.training import fakes


class _SlowDetector(fakes.FakeDetector):
    def normalize(self, images):
        tf.py_function(lambda: time.sleep(0.02), [], [])
        return super().normalize(images)


def main(model_dir: str, num_steps: int, worker_timeout: int = 10, start_timeout: int = 60) -> int:
    jobs.show_log()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    fakes.patch_builders(
        lambda target, value: mock.patch(target, value).start(), detector=_SlowDetector
    )
    options = TrainOptions(worker_timeout=worker_timeout, start_timeout=start_timeout)
    result = train(
        fakes.pipeline_config(batch_size=6),
        model_dir,
        num_steps=num_steps,
        intervals=Intervals(checkpoint=5, log=5),
        record_summaries=False,
        seed=1,
        strategy=strategies.build(strategy_choice.choose(options)),
    )
    return result.exit_status


if __name__ == '__main__':
    try:
        sys.exit(main(sys.argv[1], *map(int, sys.argv[2:])))
    except (ConfigError, DivergenceError, WorkerError) as error:
        print(f'Error: {error}', file=sys.stderr)
        sys.exit(exit_status(error))
