"""The protocol of classes that compute the metrics of a data set."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from object_detection.metrics.instances import Instances

Batch = Mapping[str, np.ndarray]


class Evaluator(Protocol):
    """Collects the detections of a data set batch by batch and computes metrics.

    If several workers share the images, each has its own evaluator, and the chief merges the others
    into its own.

    Attributes:
      notes: what a user should know of the metrics of the images added so far.
    """

    notes: Sequence[str]

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

    def add_image(
        self,
        source_id: str,
        size: tuple[int, int],
        annotated: Instances,
        detected: Instances,
        image_classes: np.ndarray | None = None,
        not_exhaustive_classes: np.ndarray | None = None,
    ) -> None:
        """Adds one image whose objects are known in its own pixels, as those of files are.

        Args:
          source_id: id of the image; '' counts in any case.
          size: (height, width) in pixels; read only where masks are compared.
          annotated: its objects, with masks or keypoints where the metrics need them.
          detected: its detections, with scores, and as `annotated`.
          image_classes: int64 [n], 1-based ids of the classes of which it was verified whether the
            image contains them; read only by metrics that leave out other classes.
          not_exhaustive_classes: the same, of the classes not all of whose objects are annotated.

        Raises:
          ValueError: if something that the metrics need is missing.
        """

    def part(self) -> Any:
        """Returns the images added so far as a picklable value for `merge`."""

    def merge(self, part: Any) -> None:
        """Adds the images of another evaluator that was built with the same arguments."""

    def evaluate(self) -> dict[str, float]:
        """Returns the metrics of the images added so far: name -> value."""
