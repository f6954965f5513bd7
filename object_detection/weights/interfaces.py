"""Interfaces between files of weights and detectors; this module does not load TensorFlow.

A file is opened as `Arrays`. A `WeightSource` interprets its names and returns an `Entry` for each
variable of a `Detector`.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, Self

import numpy as np

from object_detection.core.detector import Detector

# The values of `train_config.fine_tune_checkpoint_type`, in increasing order of restored layers.
CHECKPOINT_TYPES = ('classification', 'detection', 'full')
# The file with the weights in the folder of a preset of KerasHub.
PRESET_WEIGHTS = 'model.weights.h5'


def check_type(checkpoint_type: str) -> Iterator[str]:
    """Yields an error message if a non-empty `fine_tune_checkpoint_type` is not valid."""
    if checkpoint_type not in CHECKPOINT_TYPES:
        hint = "; what CenterNet called so is 'detection'" if checkpoint_type == 'fine_tune' else ''
        yield (
            'train_config.fine_tune_checkpoint_type: expected one of '
            f'{", ".join(CHECKPOINT_TYPES)}. Received: {checkpoint_type!r}{hint}.'
        )


class Arrays(Protocol):
    """An open file of named arrays.

    Attributes:
      path: path of the file, for messages.
      shapes, dtypes: name of an array -> its shape or dtype.
    """

    path: str
    shapes: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, str]

    def read(self, name: str) -> np.ndarray:
        """Returns one array; raises CheckpointError if the file is corrupt there."""

    def close(self) -> None:
        """Closes the file."""


class Entry(NamedTuple):
    """The value of one variable of a detector, as a file holds it.

    Attributes:
      keys: the names in the file of all arrays from which the value is computed.
      shape: shape of the value.
      read: returns the value; raises a CheckpointError if the file is corrupt there.
    """

    keys: tuple[str, ...]
    shape: tuple[int, ...]
    read: Callable[[], np.ndarray]


class WeightSource(abc.ABC):
    """An open file of weights with known names; leaving its context closes it.

    Args:
      arrays: the open file, which this object closes.
      description: description of the file for the log.
      shapes: shapes of all variables of the model in the file, by their names there.
      types: the checkpoint types that the file supports.
    """

    def __init__(
        self,
        arrays: Arrays,
        description: str,
        shapes: Mapping[str, tuple[int, ...]],
        types: Sequence[str] = CHECKPOINT_TYPES[:1],
    ):
        self._arrays = arrays
        self.description = description
        self.shapes = shapes
        self.types = tuple(types)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._arrays.close()

    @abc.abstractmethod
    def entries(self, detector: Detector) -> dict[str, Entry]:
        """Returns the file's entries for a detector, by the detector's names."""

    def further_layers(self, unused: Collection[str]) -> list[str]:
        """Returns the names in the file of layers that a detector lacks, and computes less without.

        Args:
          unused: the names in the file that no variable of the detector uses.
        """
        del unused  # Most files are of one depth, or have backbones that are compared by layers.
        return []

    def _entry(self, name: str) -> Entry:
        """Returns one array of the file."""
        return Entry((name,), self.shapes[name], lambda: self._arrays.read(name))
