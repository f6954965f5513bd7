"""What computes the metrics of a data set: the protocol that an evaluation calls."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

Batch = Mapping[str, np.ndarray]


class Evaluator(Protocol):
    """Collects the detections of a data set, batch by batch, and computes metrics of them.

    Workers that each see a part of the images have one evaluator each; the chief merges theirs into
    its own.
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
        """Returns all images so far, as a value that can be pickled and that `merge` takes."""

    def merge(self, part: Any) -> None:
        """Adds the images of another evaluator that was built with the same arguments."""

    def evaluate(self) -> dict[str, float]:
        """Returns name -> value of the metrics of all images so far."""
