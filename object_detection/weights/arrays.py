"""Files of named arrays: checkpoints of TensorFlow, and NumPy archives.

Conversion of names with '/' to nested dicts, which determine the keys of checkpoints.
"""

import contextlib
import io
import math
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from object_detection.errors import CheckpointError, UserError
from object_detection.system import files
from object_detection.weights import checkpoint_files

# The last bytes of a LevelDB table, the format of checkpoints of a single file.
_TABLE_END = bytes.fromhex('57fb808b247547db')
_ZIP_BEGIN = b'PK\x03\x04'
_MEMBER = '.npy'  # ends the names in an archive
_NPZ_ERRORS = (
    *(OSError, ValueError, EOFError, LookupError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error),
)


def is_npz(head: bytes) -> bool:
    """Whether a file that begins with these bytes may be a NumPy archive."""
    return head.startswith(_ZIP_BEGIN)


def is_single_file_checkpoint(path: str) -> bool:
    """Whether a file is a checkpoint of the oldest, single-file format (used by TF-Slim)."""
    with tf.io.gfile.GFile(path, 'rb') as file:
        size = file.size()
        file.seek(max(0, size - len(_TABLE_END)))
        return file.read(len(_TABLE_END)) == _TABLE_END


class CheckpointArrays:
    """A checkpoint of TensorFlow, of either format, as arrays by their names in the file.

    Args:
      prefix: prefix of the checkpoint, or the path of a single-file checkpoint.

    Attributes:
      path: path of the checkpoint, for messages.
      shapes, dtypes: name of an array -> its shape or dtype.

    Raises:
      CheckpointError: if the checkpoint is absent or corrupt.
    """

    def __init__(self, prefix: str):
        self.path = prefix
        self._reader = _open(prefix)
        self.shapes: Mapping[str, tuple[int, ...]] = {
            name: tuple(shape) for name, shape in self._reader.get_variable_to_shape_map().items()
        }
        self.dtypes: Mapping[str, str] = {
            name: dtype.name for name, dtype in self._reader.get_variable_to_dtype_map().items()
        }

    def read(self, name: str) -> np.ndarray:
        """Returns one array; raises CheckpointError if the file is damaged there."""
        with checkpoint_files.reading(self.path):
            return self._reader.get_tensor(name)

    def close(self) -> None:
        """Does nothing: TensorFlow closes the file with its reader."""


class NpzArrays:
    """A NumPy archive, whose arrays are read on demand.

    Attributes:
      path: path of the archive, for messages.
      shapes, dtypes: name of an array -> its shape or dtype.

    Raises:
      CheckpointError: if the archive is corrupt, or holds anything except arrays of numbers.
    """

    def __init__(self, path: str):
        self.path = path
        with self._reading(), contextlib.ExitStack() as after_failure:
            source = io.BytesIO(files.read_bytes(path)) if '://' in path else path
            self._file = after_failure.enter_context(zipfile.ZipFile(source))
            headers = {
                member.filename.removesuffix(_MEMBER): self._header(member)
                for member in self._file.infolist()
            }
            after_failure.pop_all()
        self.shapes: Mapping[str, tuple[int, ...]] = {
            name: tuple(shape) for name, (shape, _) in headers.items()
        }
        self.dtypes: Mapping[str, str] = {
            name: np.dtype(dtype).name for name, (_, dtype) in headers.items()
        }

    def read(self, name: str) -> np.ndarray:
        """Returns one array; raises CheckpointError if the file is damaged there."""
        with self._reading(), self._file.open(f'{name}{_MEMBER}') as member:
            return np.lib.format.read_array(member, allow_pickle=False)

    def close(self) -> None:
        self._file.close()

    def _header(self, info: zipfile.ZipInfo) -> tuple[tuple[int, ...], np.dtype]:
        """Reads only shape and dtype, and compares them with the size of the data."""
        formats = np.lib.format
        with self._file.open(info) as member:
            is_first = formats.read_magic(member) == (1, 0)
            read = formats.read_array_header_1_0 if is_first else formats.read_array_header_2_0
            shape, _, dtype = read(member)
            num_bytes = info.file_size - member.tell()
        if dtype.hasobject:
            raise UserError(f'Python objects in {info.filename}')
        # Otherwise memory would be allocated that nothing would fill.
        if math.prod(shape) * dtype.itemsize > num_bytes:
            raise UserError(f'{num_bytes} bytes for the shape {list(shape)} of {info.filename}')
        return shape, dtype

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except _NPZ_ERRORS as error:
            reason = str(error).strip() or type(error).__name__
            raise CheckpointError(
                f'{self.path}: expected a whole NumPy archive (.npz). Received: {reason}.'
            ) from error


def _open(prefix: str) -> Any:
    """Returns a `tf.train.CheckpointReader`."""
    if checkpoint_files.exists(prefix):
        return checkpoint_files.open_reader(prefix)
    with checkpoint_files.reading(prefix, checkpoint_files.READ_ERRORS):
        return tf.train.load_checkpoint(prefix)


def nest(variables: Mapping[str, tf.Variable]) -> dict[str, Any]:
    """Converts names with '/' to nested dicts, which determine the keys of checkpoints.

    Raises:
      ValueError: if one name is a prefix of another.
    """
    tree: dict[str, Any] = {}
    for name, variable in variables.items():
        *parents, leaf = name.split('/')
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
            if not isinstance(node, dict):
                raise UserError(f'{name!r} begins with the name of another variable.')
        if leaf in node:
            raise UserError(f"{name!r} is the beginning of another variable's name.")
        node[leaf] = variable
    return tree
