"""Trains the fake detector slowly in a process of its own."""

import time
from unittest import mock

import tensorflow as tf

from object_detection.training.loop import train
from object_detection.training.monitoring.run_types import Intervals
from tests.training import fakes


class _SlowDetector(fakes.FakeDetector):
    def normalize(self, images):
        tf.py_function(lambda: time.sleep(0.02), [], [])
        return super().normalize(images)


def _patch(target: str, value: object) -> None:
    mock.patch(target, value).start()


def run(model_dir: str, num_steps: int) -> None:
    fakes.patch_builders(_patch, detector=_SlowDetector)
    train(
        fakes.pipeline_config(),
        model_dir,
        num_steps=num_steps,
        intervals=Intervals(checkpoint=5, log=5),
        seed=1,
    )
