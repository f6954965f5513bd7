"""The protocol of classes that compute the metrics of a data set."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

Batch = Mapping[str, np.ndarray]


class Evaluator(Protocol):
    """Collects the detections of a data set batch by batch and computes metrics.

    If several workers share the images, each has its own evaluator, and the chief merges the others
    into its own.
    """

    def add_batch(self, batch: Batch, detections: Batch) -> None:
        """Adds the images of a batch.

        Args:
          batch: numpy arrays [B, ...] of an evaluation data set, by the keys of `InputFields`:
            source_id, original_image_spatial_shape and the evaluation_* entries.
          detections: what `DetectionModel.postprocess` returns for it, as numpy arrays [B, ...], by
            the keys of `DetectionFields`.

        Raises:
          ValueError: if an entry that the metrics need is missing or has a wrong shape.
        """

    def part(self) -> Any:
        """Returns the images added so far as a picklable value for `merge`."""

    def merge(self, part: Any) -> None:
        """Adds the images of another evaluator that was built with the same arguments."""

    def evaluate(self) -> dict[str, float]:
        """Returns the metrics of the images added so far: name -> value."""
