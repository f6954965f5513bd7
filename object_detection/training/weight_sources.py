"""Files that weights are taken from, under one interface; `open_source` looks which one it is.

A source is a context manager with `description`, `types` (of `fine_tune_checkpoint_type` that it
can serve), `shapes` (all its variables by their names in the file) and `entries(names)`: what it
holds for a detector with variables of these names.
"""

from collections.abc import Collection, Mapping
from typing import Protocol, Self

import numpy as np
import tensorflow as tf

from object_detection.config.fine_tune_rules import CHECKPOINT_TYPES
from object_detection.training import checkpoint_files, checkpoints, resnet_names
from object_detection.training.checkpoint_contents import AVERAGES, check_is_ours
from object_detection.training.errors import CheckpointError
from object_detection.training.keras_weights import KerasWeights, is_hdf5
from object_detection.training.weight_entry import Entry

_SUFFIX = '/.ATTRIBUTES/VARIABLE_VALUE'
_MODEL = 'model/'
_BESIDE_VARIABLES = ('_CHECKPOINTABLE_OBJECT_GRAPH', 'save_counter')


class WeightSource(Protocol):
    """An open file of weights; see the module."""

    description: str
    types: tuple[str, ...]
    shapes: Mapping[str, tuple[int, ...]]

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def entries(self, names: Collection[str]) -> dict[str, Entry]: ...


class OwnCheckpoint:
    """A checkpoint of a training here, or beside an exported model.

    Of variables that have a moving average the average is taken: it is what was evaluated and
    exported.

    Raises:
      CheckpointError: if it is absent or damaged.
    """

    types = CHECKPOINT_TYPES

    def __init__(self, prefix: str):
        self._prefix = prefix
        self._reader = checkpoint_files.open_reader(prefix)
        self.shapes: Mapping[str, tuple[int, ...]] = {
            key.removesuffix(_SUFFIX): tuple(shape)
            for key, shape in sorted(self._reader.get_variable_to_shape_map().items())
            if not key.startswith(_BESIDE_VARIABLES)
        }
        averaged = any(name.startswith(AVERAGES) for name in self.shapes)
        self.description = f'checkpoint {prefix}{", its moving averages" if averaged else ""}'

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def entries(self, names: Collection[str]) -> dict[str, Entry]:
        """Returns what the checkpoint holds for a detector, by the detector's names.

        Raises:
          CheckpointError: if it was written by another program.
        """
        check_is_ours(self._prefix)
        own = [name.removeprefix(_MODEL) for name in self.shapes if name.startswith(_MODEL)]
        return {_placed(name, names): self._entry(name) for name in own}

    def _entry(self, name: str) -> Entry:
        keys = [key for key in (f'{AVERAGES}{name}', f'{_MODEL}{name}') if key in self.shapes]
        return Entry(tuple(keys), self.shapes[keys[0]], lambda: self._read(keys[0]))

    def _read(self, key: str) -> np.ndarray:
        with checkpoint_files.reading(self._prefix):
            return self._reader.get_tensor(key + _SUFFIX)


def open_source(path: str) -> WeightSource:
    """Opens the file, or the newest checkpoint of a folder, that a path names.

    Raises:
      CheckpointError: if there is none, or none of a kind that is known.
    """
    path = path.removesuffix('.index')
    is_file = tf.io.gfile.exists(path) and not tf.io.gfile.isdir(path)
    if is_file and not checkpoint_files.exists(path):
        with tf.io.gfile.GFile(path, 'rb') as file:
            head = file.read(16)
        if is_hdf5(head):
            return KerasWeights(path)
        raise CheckpointError(
            f'{path}: expected the prefix of a checkpoint, such as DIR/ckpt-3, a folder of them, '
            f'or a Keras weights file (.h5). Received: a file of another kind, beginning {head!r}.'
        )
    return OwnCheckpoint(checkpoints.find(path))


def _placed(name: str, names: Collection[str]) -> str:
    """A stage of the backbone lies in another part where it runs on crops."""
    part, _, layer_path = name.partition('/')
    if name in names or part not in resnet_names.PARTS or not layer_path.startswith('conv'):
        return name
    return resnet_names.place(layer_path, names)
