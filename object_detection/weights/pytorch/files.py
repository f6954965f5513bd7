"""Files of tensors of PyTorch and detectron2, read without PyTorch; nothing in them is run.

`torch.save` writes (since PyTorch 1.6) an uncompressed zip archive of a pickle and of a member for
each storage, or (before) several pickles and the storages after them. detectron2 publishes pickles
of NumPy arrays (.pkl). `safetensors` (https://huggingface.co/docs/safetensors) is a header of JSON
and the numbers after it. Sizes are compared with those of the file before memory is allocated.
"""

import contextlib
import io
import json
import math
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO

import numpy as np

from object_detection.errors import CheckpointError, UserError, format_list
from object_detection.system import files as system_files
from object_detection.weights.pytorch import pickles
from object_detection.weights.pytorch.pickles import BFLOAT16, Array, Storage, brief

# Where a checkpoint of a training may have tensors by name, and which of them is taken.
_STATES = (('model_ema',), ('ema', 'module'), ('model',), ('state_dict',))
# What torch.nn.DataParallel puts before all names, and the counter of averaged models beside them.
_WRAPPED, _COUNTER = 'module.', 'n_averaged'

_ZIP_BEGIN = b'PK\x03\x04'
_PICKLE_BEGIN = tuple(bytes([0x80, protocol]) for protocol in range(2, 6))
_MAGIC = 0x1950A86A20F9469CFC6C  # of PyTorch before 1.6
_VERSION = 1001
_MEMBER = '/data.pkl'
_ERRORS = (OSError, ValueError, EOFError, LookupError, RuntimeError, TypeError)
_ERRORS += (zipfile.BadZipFile, OverflowError)

# The bytes of all tensors that share storages, by those of the file.
_MOST_SHARED = 8
_LONGEST_HEADER = 10_000_000  # of JSON, which takes a multiple of it; enough for 50,000 tensors
_SAFETENSORS = {
    **{'F64': '<f8', 'F32': '<f4', 'F16': '<f2', 'BF16': BFLOAT16, 'BOOL': '|b1'},
    **{'I64': '<i8', 'I32': '<i4', 'I16': '<i2', 'I8': '|i1'},
    **{'U64': '<u8', 'U32': '<u4', 'U16': '<u2', 'U8': '|u1'},
}


def is_pickle(head: bytes) -> bool:
    """Whether a file that begins with these bytes may be a pickle, also of torch.save."""
    return head.startswith(_PICKLE_BEGIN)


def is_torch_zip(path: str) -> bool:
    """Whether a zip archive is one of torch.save."""
    with contextlib.suppress(*_ERRORS), _open(path) as file, zipfile.ZipFile(file) as archive:
        return any(name.endswith(_MEMBER) for name in archive.namelist())
    return False


def is_safetensors(head: bytes) -> bool:
    """Whether a file that begins with these bytes, at least 9, may be one of safetensors."""
    return head[8:9] == b'{'


class _FileArrays:
    """An open file whose arrays are described, and read on demand; see `interfaces.Arrays`.

    Attributes:
      taken: where in the file the arrays are, for messages; '' if they are all that it holds.
    """

    _kind: str
    _read_storage: Callable[[Storage], bytes]

    def __init__(self, path: str):
        self.path, self.taken = path, ''
        with self._reading(), contextlib.ExitStack() as after_failure:
            self._file = after_failure.enter_context(_open(path))
            self._num_bytes = self._file.seek(0, os.SEEK_END)
            self._file.seek(0)
            self._arrays = self._describe()
            after_failure.pop_all()
        self.shapes: Mapping[str, tuple[int, ...]] = {k: v.shape for k, v in self._arrays.items()}
        self.dtypes: Mapping[str, str] = {
            name: array.dtype if array.dtype == BFLOAT16 else np.dtype(array.dtype).name
            for name, array in self._arrays.items()
        }

    def read(self, name: str) -> np.ndarray:
        """Returns one array, bfloat16 as float32; raises CheckpointError if it is damaged."""
        with self._reading():
            array = self._arrays[name]
            data = array.data
            data = self._read_storage(data) if isinstance(data, Storage) else data
            return _to_numpy(array, data.encode('latin1') if isinstance(data, str) else data)

    def close(self) -> None:
        self._file.close()

    def _describe(self) -> dict[str, Array]:
        """Returns the arrays by name."""
        raise NotImplementedError

    def _read_at(self, begin: int, size: int) -> bytes:
        if begin + size > self._num_bytes:
            raise UserError(f'{size} bytes from {begin} on in a file of {self._num_bytes}')
        self._file.seek(begin)
        return self._file.read(size)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except _ERRORS as error:
            reason = str(error).strip() or type(error).__name__
            raise CheckpointError.expected(self.path, f'a whole {self._kind}', reason) from error


class TorchArrays(_FileArrays):
    """A file of torch.save (.pth, .pt), or a pickle of NumPy arrays (.pkl).

    Of the checkpoint of a training the arrays are those of one model: its moving average if there
    is one, as in checkpoints of this toolkit.

    Raises:
      CheckpointError: if it is corrupt, or holds anything except tensors, arrays, numbers and
        strings.
    """

    _kind = 'file of tensors of torch.save (.pth, .pt) or pickle of arrays (.pkl)'

    def _describe(self) -> dict[str, Array]:
        head = self._file.read(len(_ZIP_BEGIN))
        self._file.seek(0)
        read = self._read_zip if head == _ZIP_BEGIN else self._read_stream
        # Of each storage its key and the bytes that it has in the file.
        self._sizes: dict[str, int] = {}
        self.taken, arrays = _chosen(read())
        total = 0
        for array in arrays.values():
            total += math.prod(array.shape) * pickles.itemsize(array.dtype)
            if isinstance(array.data, Storage):
                size, received = _size_of(array.data), self._sizes.get(array.data.key)
                if size != received:
                    raise UserError(
                        f'{received} bytes for the {size} of the storage {brief(array.data.key)}'
                    )
        if total > _MOST_SHARED * self._num_bytes:
            raise UserError(f'arrays of {total} bytes in a file of {self._num_bytes}')
        return arrays

    def _read_zip(self) -> Any:
        """Reads a zip archive: a folder of any name, with `data.pkl` and `data/<key>`."""
        archive = zipfile.ZipFile(self._file)
        members = archive.infolist()
        names = [member.filename for member in members]
        if len(set(names)) < len(names):
            raise UserError('two members of one name')
        # Else a small file could be made large, by compression or by members that overlap.
        if any(member.compress_type != zipfile.ZIP_STORED for member in members):
            raise UserError('compressed members, which torch.save does not write')
        if sum(member.file_size for member in members) > self._num_bytes:
            raise UserError('members that are larger than the file')
        (pickle,) = (name for name in names if name.endswith(_MEMBER))
        folder = pickle.removesuffix(_MEMBER)
        order = f'{folder}/byteorder'
        if order in names and archive.read(order) != b'little':
            raise UserError('numbers of the other byte order')
        begin = f'{folder}/data/'
        self._sizes = {
            member.filename.removeprefix(begin): member.file_size
            for member in members
            if member.filename.startswith(begin)
        }
        self._read_storage = lambda storage: archive.read(f'{begin}{storage.key}')
        data = archive.read(pickle)
        return pickles.load(io.BytesIO(data), len(data), {})

    def _read_stream(self) -> Any:
        """Reads a pickle of arrays, or what torch.save wrote before PyTorch 1.6.

        That is five pickles (a number, a version, the system, what is saved, the keys of the
        storages), and for each key the number of its numbers as int64, and these.
        """
        tree = self._load()
        if tree != _MAGIC:
            return tree
        version, _ = self._load(), self._load()
        if version != _VERSION:
            raise UserError(f'the version {brief(version)} of torch.save')
        storages: dict[str, Storage] = {}
        tree, keys = self._load(storages), self._load()
        begins, begin = {}, self._file.tell()
        for key in keys:
            count = int.from_bytes(self._read_at(begin, 8), 'little')
            if type(key) is not str or key in begins or key not in storages:
                raise UserError(f'the storage {brief(key)}')
            if count != storages[key].size:
                raise UserError(f'{count} numbers in the storage {brief(key)}')
            begins[key] = begin + 8
            self._sizes[key] = _size_of(storages[key])
            begin += 8 + self._sizes[key]
            if begin > self._num_bytes:
                raise UserError(f'{self._num_bytes} bytes, where a storage ends at {begin}')
        self._read_storage = lambda storage: self._read_at(begins[storage.key], _size_of(storage))
        return tree

    def _load(self, storages: dict[str, Storage] | None = None) -> Any:
        return pickles.load(self._file, self._num_bytes - self._file.tell(), storages)


class SafetensorsArrays(_FileArrays):
    """A file of safetensors.

    Raises:
      CheckpointError: if it is corrupt.
    """

    _kind = 'file of safetensors'

    def _describe(self) -> dict[str, Array]:
        length = int.from_bytes(self._file.read(8), 'little')
        if length > min(_LONGEST_HEADER, self._num_bytes - 8):
            raise UserError(f'a header of {length} bytes in a file of {self._num_bytes}')
        header = json.loads(self._file.read(length), object_pairs_hook=_without_repetition)
        header.pop('__metadata__', None)
        spans = {}
        arrays = {}
        for name, entry in header.items():
            begin, end = spans[name] = pickles.sizes(tuple(entry['data_offsets']))
            shape = pickles.sizes(tuple(entry['shape']))
            dtype = _SAFETENSORS.get(entry['dtype'])
            if dtype is None:
                raise UserError(f'{brief(name)} of the dtype {brief(entry["dtype"])}')
            size = math.prod(shape)
            if end - begin != size * pickles.itemsize(dtype):
                raise UserError(f'{end - begin} bytes for the shape {list(shape)} of {brief(name)}')
            storage = Storage(name, dtype, size)
            arrays[name] = Array(storage, dtype, 0, shape, pickles.row_major(shape))
        data = 8 + length
        at = 0
        for begin, end in sorted(spans.values()):
            if begin != at:
                raise UserError(f'an array from {begin} on, where the one before ends at {at}')
            at = end
        if data + at != self._num_bytes:
            raise UserError(f'{self._num_bytes} bytes, where the arrays end at {data + at}')
        self._read_storage = lambda storage: self._read_at(
            data + spans[storage.key][0], _size_of(storage)
        )
        return arrays


def _open(path: str) -> BinaryIO:
    return io.BytesIO(system_files.read_bytes(path)) if '://' in path else open(path, 'rb')


def _size_of(storage: Storage) -> int:
    """Returns its bytes."""
    return storage.size * pickles.itemsize(storage.dtype)


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise UserError('a name twice in the header')
    return found


def _chosen(tree: Any) -> tuple[str, dict[str, Array]]:
    """Returns the tensors of one model by name, and where they were if not at the top."""
    for path in _STATES:
        state = tree
        for key in path:
            state = state.get(key) if isinstance(state, dict) else None
        if arrays := _arrays_of(state):
            return '.'.join(path), arrays
    if arrays := _arrays_of(tree):
        return '', arrays
    received = format_list(map(brief, tree)) if isinstance(tree, dict) else brief(tree)
    places = ', '.join('.'.join(path) for path in _STATES)
    raise UserError(f'no tensors by name, neither at the top nor at {places}; it has: {received}')


def _arrays_of(state: Any) -> dict[str, Array]:
    """Returns the tensors of a state_dict; {} if it is none."""
    if not isinstance(state, dict):
        return {}
    arrays = {k: v for k, v in state.items() if isinstance(k, str) and isinstance(v, Array)}
    if all(name.startswith(_WRAPPED) or name == _COUNTER for name in arrays):
        arrays = {name.removeprefix(_WRAPPED): array for name, array in arrays.items()}
    return arrays


def _to_numpy(array: Array, data: bytes) -> np.ndarray:
    """Returns a copy of an array in the byte order of the machine."""
    is_brief = array.dtype == BFLOAT16
    dtype = np.dtype('<u2' if is_brief else array.dtype)
    native = dtype.newbyteorder('=')
    if 0 in array.shape:
        return np.zeros(array.shape, np.float32 if is_brief else native)
    numbers = np.frombuffer(data, dtype, count=len(data) // dtype.itemsize)
    pickles.checked(array, numbers.size)
    strides = [stride * dtype.itemsize for stride in array.strides]
    view = np.lib.stride_tricks.as_strided(
        numbers[array.offset :], array.shape, strides, writeable=False
    )
    if is_brief:  # The upper half of a float32.
        return np.asarray(view.astype(np.uint32) << 16, np.uint32).view(np.float32)
    return view.astype(native)
