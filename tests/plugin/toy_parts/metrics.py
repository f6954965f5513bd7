"""A set of metrics: whether as many objects are found in an image as there are, in any place."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from object_detection.builders.evaluator_builder import MetricSet

_MIN_SCORE = 0.5


class CountEvaluator:
    """The share of images with as many detections as objects; see `Evaluator`."""

    notes: Sequence[str] = ()

    def __init__(self):
        self._is_right: list[bool] = []

    def add_batch(self, batch: Mapping[str, np.ndarray], detections: Mapping[str, np.ndarray]):
        """Adds the images of a batch."""
        found = (detections['detection_scores'] >= _MIN_SCORE).sum(axis=1)
        self._is_right += (found == batch['num_evaluation_boxes']).tolist()

    def add_image(self, source_id, size, annotated, detected, *classes):
        """Adds an image of files."""
        found = (detected.scores >= _MIN_SCORE).sum()
        self._is_right.append(found == len(annotated.classes))

    def part(self) -> list[bool]:
        """Returns what another worker `merge`s."""
        return self._is_right

    def merge(self, part: list[bool]) -> None:
        """Adds the images of another worker."""
        self._is_right += part

    def evaluate(self) -> dict[str, float]:
        """Returns the metrics; greater ones are better."""
        return {'Counts/Accuracy': float(np.mean(self._is_right)) if self._is_right else -1.0}


def build(eval_config: Any, categories: Any, annotations: Any) -> CountEvaluator:
    """Builds the evaluator."""
    return CountEvaluator()


COUNTS = MetricSet(build, 'Counts/Accuracy')
