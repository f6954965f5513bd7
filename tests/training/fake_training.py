"""Trains the fake detector slowly in a process of its own: MODEL_DIR NUM_STEPS."""

import sys
import time
from unittest import mock

import tensorflow as tf

from object_detection.training.intervals import Intervals
from object_detection.training.loop import train
from tests.training import fakes


class _SlowDetector(fakes.FakeDetector):
    def normalize(self, images):
        tf.py_function(lambda: time.sleep(0.02), [], [])
        return super().normalize(images)


def _patch(target: str, value: object) -> None:
    mock.patch(target, value).start()


if __name__ == '__main__':
    fakes.patch_builders(_patch, detector=_SlowDetector)
    result = train(
        fakes.pipeline_config(),
        sys.argv[1],
        num_steps=int(sys.argv[2]),
        intervals=Intervals(checkpoint=5, log=5),
        seed=1,
    )
    sys.exit(result.exit_status)
