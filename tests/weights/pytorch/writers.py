"""Writes what torch.save, detectron2 and safetensors write, without PyTorch."""

import collections
import contextlib
import io
import json
import pickle
import sys
import types
import zipfile
from unittest import mock

import numpy as np

MAGIC, VERSION = 0x1950A86A20F9469CFC6C, 1001
_CLASSES = {
    **{'f8': 'Double', 'f4': 'Float', 'f2': 'Half', 'i8': 'Long', 'i4': 'Int', 'i2': 'Short'},
    **{'i1': 'Char', 'u1': 'Byte', 'b1': 'Bool'},
}


class Storage:
    """A block of numbers beside the pickle; `size` and `kind` may lie."""

    def __init__(self, array, key, *, size=None, kind=''):
        self.array, self.key = np.array(array, order='C'), key
        self.size = self.array.size if size is None else size
        self.kind = kind or _CLASSES[self.array.dtype.str[1:]]

    def identifier(self):
        return ('storage', getattr(sys.modules['torch'], f'{self.kind}Storage'), self.key, 'cpu')


class Tensor:
    """A tensor of a storage; it is pickled by torch's name of the function that makes it."""

    def __init__(self, storage, shape=None, strides=None, offset=0):
        shape = storage.array.shape if shape is None else shape
        if strides is None:
            strides = tuple(int(np.prod(shape[i + 1 :])) for i in range(len(shape)))
        self.storage, self.arguments = storage, (offset, tuple(shape), tuple(strides), False)

    def __reduce__(self):
        build = sys.modules['torch._utils']._rebuild_tensor_v2
        return build, (self.storage, *self.arguments, collections.OrderedDict())


class _Pickler(pickle.Pickler):
    def persistent_id(self, value):
        return (*value.identifier(), value.size) if isinstance(value, Storage) else None


@contextlib.contextmanager
def _torch():
    torch, utils = types.ModuleType('torch'), types.ModuleType('torch._utils')
    for name in (*_CLASSES.values(), 'BFloat16'):
        setattr(torch, f'{name}Storage', type(f'{name}Storage', (), {'__module__': 'torch'}))

    def build():
        raise AssertionError

    for name in ('_rebuild_tensor_v2', '_rebuild_parameter'):
        function = types.FunctionType(build.__code__, {}, name)
        function.__module__, function.__qualname__ = 'torch._utils', name
        setattr(utils, name, function)
    with mock.patch.dict(sys.modules, {'torch': torch, 'torch._utils': utils}):
        yield


def dumps(tree, protocol=2):
    """The pickle of a tree with `Tensor`s."""
    with _torch():
        buffer = io.BytesIO()
        _Pickler(buffer, protocol).dump(tree)
        return buffer.getvalue()


def tensors(arrays):
    """Name -> array as an ordered state_dict of tensors, each with a storage of its own."""
    return collections.OrderedDict(
        (name, Tensor(Storage(array, str(i)))) for i, (name, array) in enumerate(arrays.items())
    )


def _storages(tree):
    found = {}
    for value in tree.values():
        if isinstance(value, Tensor):
            found[value.storage.key] = value.storage
        elif isinstance(value, dict):
            found |= _storages(value)
    return found


def write_zip(path, tree, *, data=None, compression=zipfile.ZIP_STORED, further=()):
    """What torch.save writes; `data` replaces the pickle, `further` are pairs of name, bytes."""
    with zipfile.ZipFile(path, 'w', compression) as file:
        file.writestr('archive/data.pkl', dumps(tree) if data is None else data)
        file.writestr('archive/byteorder', 'little')
        for key, storage in _storages(tree).items():
            file.writestr(f'archive/data/{key}', storage.array.tobytes())
        for name, content in further:
            file.writestr(name, content)
    return str(path)


def write_stream(path, tree, *, data=None):
    """What torch.save wrote before PyTorch 1.6."""
    storages = _storages(tree)
    parts = [pickle.dumps(each, 2) for each in (MAGIC, VERSION, {'little_endian': True})]
    parts += [dumps(tree) if data is None else data, pickle.dumps(sorted(storages), 2)]
    for _, storage in sorted(storages.items()):
        parts += [storage.array.size.to_bytes(8, 'little'), storage.array.tobytes()]
    path.write_bytes(b''.join(parts))
    return str(path)


def write_pickle(path, tree, protocol=4):
    """What detectron2 writes."""
    path.write_bytes(pickle.dumps(tree, protocol))
    return str(path)


_DTYPES = {'f4': 'F32', 'f2': 'F16', 'i8': 'I64', 'i1': 'I8'}


def header_of(arrays):
    """The header of a file of safetensors, and the numbers."""
    header, data = {'__metadata__': {'format': 'pt'}}, b''
    for name, array in arrays.items():
        begin = len(data)
        data += array.tobytes()
        header[name] = {
            'dtype': _DTYPES[array.dtype.str[1:]],
            'shape': list(array.shape),
            'data_offsets': [begin, len(data)],
        }
    return header, data


def write_safetensors(path, header, data, *, length=None):
    """`header` is a dict or text; `length` may lie."""
    text = header if isinstance(header, str) else json.dumps(header)
    text = text.encode()
    length = len(text) if length is None else length
    path.write_bytes(length.to_bytes(8, 'little') + text + data)
    return str(path)
