"""How long the batches of an evaluation take."""

import time
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import tensorflow as tf

from object_detection.training.evaluation.inference import PredictFunction
from object_detection.training.monitoring.speed import Latencies

Batch = Mapping[str, tf.Tensor]


class EvaluationTimes:
    """Takes the times of evaluations; the first batch of all, which builds graphs, is left out."""

    def __init__(self):
        self._input = Latencies()
        self._step = Latencies()
        self._has_begun = False

    def clear(self) -> None:
        """Forgets the times of the evaluations so far."""
        self._input.clear()
        self._step.clear()

    def batches(self, dataset: Iterable[Batch]) -> Iterator[Batch]:
        """Yields the batches, and takes the time that each is waited for."""
        iterator = iter(dataset)
        while True:
            started = time.perf_counter()
            batch = next(iterator, None)
            if batch is None:
                return
            if self._has_begun:
                self._input.add(time.perf_counter() - started)
            yield batch

    def predict(self, function: PredictFunction) -> PredictFunction:
        """Returns the function with NumPy arrays of detections, and takes the time until then."""

        def timed(batch: Batch):
            started = time.perf_counter()
            detections, *others = function(batch)
            # Waits for devices, which may be behind the host.
            detections = {name: np.asarray(value) for name, value in detections.items()}
            if self._has_begun:
                self._step.add(time.perf_counter() - started)
            self._has_begun = True
            return detections, *others

        return timed

    def describe(self) -> dict[str, dict[str, float]]:
        """Returns `Latencies.describe` of 'input' and 'step', a batch each; {} without any."""
        if not self._step.count:
            return {}
        return {'input': self._input.describe(), 'step': self._step.describe()}
