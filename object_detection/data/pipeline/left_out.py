"""Tells a user which images lost objects on their way into the batches."""

import logging
from collections.abc import Mapping

import numpy as np

from object_detection.core.fields import InputFields

_log = logging.getLogger(__name__)

_REASONS = {
    InputFields.NUM_INVALID_OBJECTS: (
        'have an unknown class, or a box without area or outside the image'
    ),
    InputFields.NUM_EXCESS_OBJECTS: 'are more than max_number_of_boxes',
}


class DroppedObjectsReport:
    """Logs one warning an image and reason, for the first images, and counts on silently.

    Args:
      max_warnings: images to name a reason; what comes after is said once.

    Attributes:
      counts: objects dropped so far, by reason (the batch's keys), each image counted once.
    """

    def __init__(self, max_warnings: int = 10):
        self._max_warnings = max_warnings
        self._seen: dict[str, set[bytes]] = {reason: set() for reason in _REASONS}
        self.counts = dict.fromkeys(_REASONS, 0)

    def update(self, batch: Mapping[str, np.ndarray]) -> None:
        """Takes the counters of a batch (of `pipeline.ExampleTransform`), as NumPy arrays."""
        for reason in _REASONS:
            dropped = np.asarray(batch[reason])
            for i in np.flatnonzero(dropped):
                self._add(reason, bytes(batch[InputFields.SOURCE_ID][i]), int(dropped[i]))

    def _add(self, reason: str, source_id: bytes, count: int) -> None:
        seen = self._seen[reason]
        if source_id in seen:
            return
        seen.add(source_id)
        self.counts[reason] += count
        if len(seen) <= self._max_warnings:
            _log.warning(
                'Image %s: %d objects %s; they are left out.',
                source_id.decode(errors='replace'),
                count,
                _REASONS[reason],
            )
        if len(seen) == self._max_warnings + 1:
            _log.warning('Further images whose objects %s are not named.', _REASONS[reason])


class UnknownClassReport:
    """Logs the class texts of records that a label map lacks, each once, and only the first few.

    Args:
      label_map_path: names the label map in the warnings.
      max_warnings: texts to name; what comes after is said once.
    """

    def __init__(self, label_map_path: str, max_warnings: int = 10):
        self._label_map_path = label_map_path
        self._max_warnings = max_warnings
        self._seen: set[bytes] = set()

    def update(self, texts: np.ndarray) -> None:
        """Takes the unknown class texts of each image, bytes [n], with line breaks between them."""
        for text in filter(None, b'\n'.join(map(bytes, texts)).split(b'\n')):
            if text in self._seen or len(self._seen) > self._max_warnings:
                continue
            self._seen.add(text)
            if len(self._seen) <= self._max_warnings:
                _log.warning(
                    'Class %r of the records is not in the label map %s; its objects are left out.',
                    text.decode(errors='replace'),
                    self._label_map_path,
                )
            else:
                _log.warning('Further classes that are not in the label map are not named.')
