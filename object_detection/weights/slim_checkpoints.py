"""Checkpoints of the TensorFlow Object Detection API under TensorFlow 1, and Inception networks of
TF-Slim.
"""

from typing import Self

from object_detection.weights import foreign_names, slim_names
from object_detection.weights.checkpoint_contents import is_weight
from object_detection.weights.foreign_resnets import ForeignCheckpoint
from object_detection.weights.interfaces import CHECKPOINT_TYPES, Arrays, Detector, Entry


class SlimCheckpoint:
    """A two-stage detector or an Inception network, as a `sources.WeightSource`.

    Args:
      arrays: closed with this.
    """

    def __init__(self, arrays: Arrays):
        self._arrays = arrays
        self.shapes = {k: shape for k, shape in sorted(arrays.shapes.items()) if is_weight(k)}
        is_detector = slim_names.is_detector(self.shapes)
        self.types = CHECKPOINT_TYPES if is_detector else ('classification',)
        what = 'detector of TensorFlow 1' if is_detector else 'TF-Slim Inception network'
        self.description = f'{what} {arrays.path}'

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._arrays.close()

    def entries(self, detector: Detector) -> dict[str, Entry]:
        """Returns what the file holds for a detector, by the detector's names."""
        entries: dict[str, Entry] = {}
        if foreign_names.FIRST in foreign_names.SLIM_RESNET.translate(self.shapes):
            resnet = ForeignCheckpoint(self._arrays, foreign_names.SLIM_RESNET)
            entries = resnet.entries(detector)
        names = slim_names.match(detector.named_variables(), self.shapes)
        return entries | {ours: self._entry(theirs) for ours, theirs in names.items()}

    def _entry(self, name: str) -> Entry:
        return Entry((name,), self.shapes[name], lambda: self._arrays.read(name))
