"""Opens files of weights of every format, and lists their contents.

`recognize` detects the format by the names in a file.
"""

import contextlib
import math
import os
from collections.abc import Collection, Sequence
from typing import NamedTuple

import tensorflow as tf

from object_detection.core.detector import Detector
from object_detection.errors import CheckpointError
from object_detection.weights import arrays as named_arrays
from object_detection.weights import (
    backbones,
    checkpoint_files,
    checkpoints,
    reference,
    slim,
    third_party_names,
    third_party_resnets,
)
from object_detection.weights.arrays import CheckpointArrays, NpzArrays
from object_detection.weights.checkpoint_contents import AVERAGES, check_is_ours, is_weight
from object_detection.weights.checkpoint_files import VALUE_SUFFIX
from object_detection.weights.interfaces import (
    CHECKPOINT_TYPES,
    PRESET_WEIGHTS,
    Arrays,
    Entry,
    WeightSource,
)
from object_detection.weights.keras_applications import (
    KERAS_MODEL,
    KerasArrays,
    KerasWeights,
    is_hdf5,
)
from object_detection.weights.pytorch import detectors as torch_detectors
from object_detection.weights.pytorch import files as torch_files
from object_detection.weights.pytorch.files import SafetensorsArrays, TorchArrays

_MODEL = 'model/'
_BESIDE_VARIABLES = ('_CHECKPOINTABLE_OBJECT_GRAPH', 'save_counter')


class OwnCheckpoint(WeightSource):
    """A checkpoint of a training of this toolkit, or of an exported model.

    Variables with a moving average are restored from it, since evaluation and export use it.
    """

    def __init__(self, arrays: CheckpointArrays):
        shapes = {
            key.removesuffix(VALUE_SUFFIX): shape
            for key, shape in sorted(arrays.shapes.items())
            if not key.startswith(_BESIDE_VARIABLES)
        }
        averaged = any(name.startswith(AVERAGES) for name in shapes)
        description = f'checkpoint {arrays.path}{", its moving averages" if averaged else ""}'
        super().__init__(arrays, description, shapes, CHECKPOINT_TYPES)

    def entries(self, detector: Detector) -> dict[str, Entry]:
        """Returns the checkpoint's entries for a detector, by the detector's names.

        Raises:
          CheckpointError: if it was written by another program.
        """
        check_is_ours(self._arrays.path)
        names = detector.named_variables()
        own = [name.removeprefix(_MODEL) for name in self.shapes if name.startswith(_MODEL)]
        parts = detector.variable_names.backbone_parts
        return {_placed(name, names, parts): self._entry(name) for name in own}

    def _entry(self, name: str) -> Entry:
        keys = [key for key in (f'{AVERAGES}{name}', f'{_MODEL}{name}') if key in self.shapes]
        return Entry(
            tuple(keys), self.shapes[keys[0]], lambda: self._arrays.read(keys[0] + VALUE_SUFFIX)
        )


def open_source(path: str) -> WeightSource:
    """Opens a file of weights, or the newest checkpoint of a folder.

    The format is detected from the content.

    Raises:
      CheckpointError: if there is no such file, or its format is not known.
    """
    with contextlib.ExitStack() as after_failure:
        arrays = after_failure.enter_context(contextlib.closing(open_arrays(path)))
        source = recognize(arrays)
        after_failure.pop_all()
    return source


def open_arrays(path: str) -> Arrays:
    """Opens a file like `open_source`, but accepts any names in it.

    Raises:
      CheckpointError: if there is no such file, or it is corrupt or not a file of weights.
    """
    path = path.removesuffix('.index')
    if tf.io.gfile.exists(in_preset := os.path.join(path, PRESET_WEIGHTS)):
        path = in_preset
    is_file = tf.io.gfile.exists(path) and not tf.io.gfile.isdir(path)
    if not is_file or checkpoint_files.exists(path):
        return CheckpointArrays(checkpoints.find(path))
    with tf.io.gfile.GFile(path, 'rb') as file:
        head = file.read(16)
    if is_hdf5(head) or path.endswith(KERAS_MODEL):
        return KerasArrays(path)
    if torch_files.is_pickle(head) or torch_files.is_torch_zip(path):
        return TorchArrays(path)
    if named_arrays.is_npz(head):
        return NpzArrays(path)
    if named_arrays.is_single_file_checkpoint(path):
        return CheckpointArrays(path)
    if torch_files.is_safetensors(head):
        return SafetensorsArrays(path)
    raise CheckpointError(
        f'{path}: expected the prefix of a checkpoint, such as DIR/ckpt-3, a folder of them, a '
        'Keras weights file (.h5, .keras), a NumPy archive (.npz), or a file of PyTorch (.pth, '
        f'.pt), detectron2 (.pkl) or safetensors. Received: a file of another kind, beginning '
        f'{head!r}.'
    )


def recognize(arrays: Arrays) -> WeightSource:
    """Returns an open file as a source of weights, which closes the file.

    Raises:
      CheckpointError: if no known format has the names in the file.
    """
    if isinstance(arrays, KerasArrays):
        return KerasWeights(arrays)
    if isinstance(arrays, (TorchArrays, SafetensorsArrays)):
        return torch_detectors.recognize(arrays)
    if isinstance(arrays, NpzArrays):
        return third_party_resnets.recognize(arrays, (third_party_names.TENSORPACK,))
    if reference.is_reference(arrays.shapes):
        return reference.ReferenceCheckpoint(arrays)
    if any(key.endswith(VALUE_SUFFIX) for key in arrays.shapes):
        return OwnCheckpoint(arrays)
    if slim.is_detector(arrays.shapes) or slim.is_known(arrays.shapes):
        return slim.SlimCheckpoint(arrays)
    return third_party_resnets.recognize(arrays, third_party_names.NAME_BASED)


def _placed(name: str, names: Collection[str], parts: Sequence[str]) -> str:
    """Returns the name with another component if a stage of the backbone runs on crops there."""
    part, _, layer_path = name.partition('/')
    if name in names or part not in parts or not layer_path.startswith('conv'):
        return name
    return backbones.name_in_detector(layer_path, names, parts)


class ListedVariable(NamedTuple):
    """One variable of a file.

    Attributes:
      name: name in the file.
      shape, dtype: shape and dtype of the variable.
      is_weight: whether it is a weight of the model, not optimizer state or a counter.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    is_weight: bool

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)


class Listing(NamedTuple):
    """The contents of a file.

    Attributes:
      description: description of the format; for an unknown format, the expected formats.
      types: the values of `fine_tune_checkpoint_type` that the file supports; none if the format is
        unknown.
      variables: the variables, sorted by name.
    """

    description: str
    types: tuple[str, ...]
    variables: list[ListedVariable]


def list_file(path: str) -> Listing:
    """Lists a checkpoint, the newest checkpoint of a folder, a Keras file or a NumPy archive.

    Files with unknown names are listed too.

    Raises:
      CheckpointError: if there is no such file, or it is corrupt.
    """
    with contextlib.closing(open_arrays(path)) as arrays:
        description, types, is_ours = _kind(arrays)
        return Listing(
            description,
            types,
            [
                ListedVariable(
                    name.removesuffix(VALUE_SUFFIX) if is_ours else name,
                    shape,
                    arrays.dtypes[name],
                    is_weight(name),
                )
                for name, shape in sorted(arrays.shapes.items())
                if not name.startswith(_BESIDE_VARIABLES)
            ],
        )


def _kind(arrays: Arrays) -> tuple[str, tuple[str, ...], bool]:
    """Returns description and types of a source, and whether it is a checkpoint of this toolkit."""
    try:
        source = recognize(arrays)
        is_ours = isinstance(source, OwnCheckpoint)
        if is_ours:
            check_is_ours(arrays.path)
        return source.description, source.types, is_ours
    except CheckpointError as error:
        return str(error), (), False
