"""Opens files of weights of every format; `recognize` finds the format by the names in a file."""

import contextlib
from collections.abc import Collection, Mapping
from typing import Self

import tensorflow as tf

from object_detection.errors import CheckpointError
from object_detection.weights import arrays as named_arrays
from object_detection.weights import (
    checkpoint_files,
    checkpoints,
    foreign_names,
    foreign_resnets,
    reference,
    resnet_names,
    slim_checkpoints,
    slim_names,
)
from object_detection.weights.arrays import CheckpointArrays, NpzArrays
from object_detection.weights.checkpoint_contents import AVERAGES, check_is_ours
from object_detection.weights.checkpoint_files import VALUE_SUFFIX
from object_detection.weights.interfaces import (
    CHECKPOINT_TYPES,
    Arrays,
    Detector,
    Entry,
    WeightSource,
)
from object_detection.weights.keras_applications import KerasWeights, is_hdf5

_MODEL = 'model/'
_BESIDE_VARIABLES = ('_CHECKPOINTABLE_OBJECT_GRAPH', 'save_counter')


class OwnCheckpoint:
    """A checkpoint of a training here, or beside an exported model.

    Of variables that have a moving average the average is taken: it is what was evaluated and
    exported.
    """

    types = CHECKPOINT_TYPES

    def __init__(self, arrays: CheckpointArrays):
        self._arrays = arrays
        self.shapes: Mapping[str, tuple[int, ...]] = {
            key.removesuffix(VALUE_SUFFIX): shape
            for key, shape in sorted(arrays.shapes.items())
            if not key.startswith(_BESIDE_VARIABLES)
        }
        averaged = any(name.startswith(AVERAGES) for name in self.shapes)
        self.description = f'checkpoint {arrays.path}{", its moving averages" if averaged else ""}'

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._arrays.close()

    def entries(self, detector: Detector) -> dict[str, Entry]:
        """Returns what the checkpoint holds for a detector, by the detector's names.

        Raises:
          CheckpointError: if it was written by another program.
        """
        check_is_ours(self._arrays.path)
        names = detector.named_variables()
        own = [name.removeprefix(_MODEL) for name in self.shapes if name.startswith(_MODEL)]
        return {_placed(name, names): self._entry(name) for name in own}

    def _entry(self, name: str) -> Entry:
        keys = [key for key in (f'{AVERAGES}{name}', f'{_MODEL}{name}') if key in self.shapes]
        return Entry(
            tuple(keys), self.shapes[keys[0]], lambda: self._arrays.read(keys[0] + VALUE_SUFFIX)
        )


def open_source(path: str) -> WeightSource:
    """Opens the file, or the newest checkpoint of a folder, that a path names.

    Of which kind it is, its content says.

    Raises:
      CheckpointError: if there is none, or none of a kind that is known.
    """
    with contextlib.ExitStack() as after_failure:
        arrays = after_failure.enter_context(contextlib.closing(open_arrays(path)))
        source = recognize(arrays)
        after_failure.pop_all()
    return source


def open_arrays(path: str) -> Arrays:
    """Opens what `open_source` does, whatever names are in it.

    Raises:
      CheckpointError: if there is none, or it is damaged or no file of weights.
    """
    path = path.removesuffix('.index')
    is_file = tf.io.gfile.exists(path) and not tf.io.gfile.isdir(path)
    if not is_file or checkpoint_files.exists(path):
        return CheckpointArrays(checkpoints.find(path))
    with tf.io.gfile.GFile(path, 'rb') as file:
        head = file.read(16)
    if is_hdf5(head):
        return KerasWeights(path)
    if named_arrays.is_npz(head):
        return NpzArrays(path)
    if named_arrays.is_single_file_checkpoint(path):
        return CheckpointArrays(path)
    raise CheckpointError(
        f'{path}: expected the prefix of a checkpoint, such as DIR/ckpt-3, a folder of them, a '
        'Keras weights file (.h5) or a NumPy archive (.npz). Received: a file of another kind, '
        f'beginning {head!r}.'
    )


def recognize(arrays: Arrays) -> WeightSource:
    """Returns the source of weights that an open file is; it closes the file.

    Raises:
      CheckpointError: if the names in it are of no kind that is known.
    """
    if isinstance(arrays, KerasWeights):
        return arrays
    if isinstance(arrays, NpzArrays):
        return foreign_resnets.recognize(arrays, (foreign_names.TENSORPACK,))
    if reference.is_reference(arrays.shapes):
        return reference.ReferenceCheckpoint(arrays)
    if any(key.endswith(VALUE_SUFFIX) for key in arrays.shapes):
        return OwnCheckpoint(arrays)
    if slim_names.is_detector(arrays.shapes) or slim_names.is_inception(arrays.shapes):
        return slim_checkpoints.SlimCheckpoint(arrays)
    return foreign_resnets.recognize(arrays, foreign_names.NAME_BASED)


def _placed(name: str, names: Collection[str]) -> str:
    """A stage of the backbone lies in another part where it runs on crops."""
    part, _, layer_path = name.partition('/')
    if name in names or part not in resnet_names.PARTS or not layer_path.startswith('conv'):
        return name
    return resnet_names.place(layer_path, names)
