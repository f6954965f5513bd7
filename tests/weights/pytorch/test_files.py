"""Files of PyTorch, detectron2 and safetensors: what is read, and what is refused unread."""

import builtins
import contextlib
import os
import pathlib
import pickle
import re
import struct
import zipfile

import numpy as np
import pytest

from object_detection.errors import CheckpointError
from object_detection.weights import sources
from object_detection.weights.pytorch.files import SafetensorsArrays, TorchArrays
from tests.weights.pytorch import writers
from tests.weights.pytorch.writers import Storage, Tensor

RNG = np.random.default_rng(0)
ARRAYS = {
    'conv.weight': RNG.normal(size=(4, 3, 2, 2)).astype(np.float32),
    'half': RNG.normal(size=5).astype(np.float16),
    'steps': np.asarray(7, np.int64),
    'small': np.array([-3, 100], np.int8),
    'empty': np.zeros((0, 2), np.float32),
}


def opened(path):
    return contextlib.closing(sources.open_arrays(path))


def check_all(arrays, expected=ARRAYS):
    assert dict(arrays.shapes) == {name: array.shape for name, array in expected.items()}
    for name, array in expected.items():
        read = arrays.read(name)
        assert read.dtype == array.dtype == np.dtype(arrays.dtypes[name])
        np.testing.assert_array_equal(read, array)


@pytest.mark.parametrize('write', [writers.write_zip, writers.write_stream])
def test_a_state_dict_is_read_from_both_formats_of_torch_save(tmp_path, write):
    path = write(tmp_path / 'model.pth', writers.tensors(ARRAYS))
    with opened(path) as arrays:
        check_all(arrays)


@pytest.mark.parametrize('protocol', [2, 3, 4, 5])
def test_a_pickle_of_arrays_is_read(tmp_path, protocol):
    arrays = ARRAYS | {'fortran': np.asfortranarray(RNG.normal(size=(2, 3))), 'one': np.float32(3)}
    tree = {'model': arrays, '__author__': 'somebody', 'matching_heuristics': True}
    path = writers.write_pickle(tmp_path / 'model_final.pkl', tree, protocol)
    with opened(path) as read:
        assert read.taken == 'model'
        check_all(read, arrays)


def test_safetensors_are_read(tmp_path):
    header, data = writers.header_of(ARRAYS)
    path = writers.write_safetensors(tmp_path / 'model.safetensors', header, data)
    with opened(path) as arrays:
        check_all(arrays)


def test_bfloat16_is_read_as_float32(tmp_path):
    bits = np.array([0x3FC0, 0xC049, 0x7F80], np.uint16)  # 1.5, -3.140625, infinity
    expected = np.array([1.5, -3.140625, np.inf], np.float32)
    tree = {'a': Tensor(Storage(bits, '0', kind='BFloat16'))}
    header = {'a': {'dtype': 'BF16', 'shape': [3], 'data_offsets': [0, 6]}}
    for path in (
        writers.write_zip(tmp_path / 'a.pth', tree),
        writers.write_safetensors(tmp_path / 'a.safetensors', header, bits.tobytes()),
    ):
        with opened(path) as arrays:
            assert arrays.dtypes['a'] == 'bfloat16'
            np.testing.assert_array_equal(arrays.read('a'), expected)


def test_views_of_one_storage_are_read(tmp_path):
    numbers = np.arange(24, dtype=np.float32)
    storage = Storage(numbers, '0')
    tree = {
        'permuted': Tensor(storage, (4, 2, 3), (1, 12, 4)),
        'part': Tensor(storage, (2, 2), (12, 4), offset=5),
    }
    cube = numbers.reshape(2, 3, 4)
    with opened(writers.write_zip(tmp_path / 'a.pth', tree)) as arrays:
        np.testing.assert_array_equal(arrays.read('permuted'), cube.transpose(2, 0, 1))
        np.testing.assert_array_equal(arrays.read('part'), cube[:, 1:, 1])


@pytest.mark.parametrize(
    ('keys', 'taken'),
    [
        (('optimizer', 'model'), 'model'),
        (('model', 'model_ema'), 'model_ema'),
        (('state_dict',), 'state_dict'),
    ],
)
def test_of_a_checkpoint_one_model_is_taken(tmp_path, keys, taken):
    tree = {key: {f'module.of_{key}': Tensor(Storage(np.ones(2, np.float32), key))} for key in keys}
    tree['epoch'] = 3
    with opened(writers.write_zip(tmp_path / 'a.pth', tree)) as arrays:
        assert (arrays.taken, list(arrays.shapes)) == (taken, [f'of_{taken}'])


def text(value):
    return b'X' + struct.pack('<I', len(value)) + value.encode()


class Reduced:
    """What is pickled as a call."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def hostile(folder):
    """Pickles that would leave a file in a folder, by the function that the error names."""
    sign = folder / 'was_run'
    command = f'touch {sign}'
    get = Reduced(getattr, Reduced(__import__, 'os'), 'system')
    return {
        'posix.system': pickle.dumps({'model': Reduced(os.system, command)}, 2),
        'builtins.eval': pickle.dumps(Reduced(builtins.eval, f'open({str(sign)!r}, "w")'), 4),
        '__builtin__.getattr': pickle.dumps(get, 2),
        # Older instructions that call, and a name that nothing calls yet.
        'instruction INST': b'\x80\x02(' + text(command) + b'ios\nsystem\n.',
        'os.system': b'\x80\x02(cos\nsystem\n' + text(command) + b'o.',
        'builtins.__import__': b'\x80\x02cbuiltins\n__import__\n.',
    }


@pytest.mark.parametrize('reason', hostile(pathlib.Path('/')))
def test_a_call_in_a_pickle_is_refused_and_not_run(tmp_path, reason):
    data = hostile(tmp_path)[reason]
    (tmp_path / 'c.pkl').write_bytes(data)
    for path in (
        writers.write_zip(tmp_path / 'a.pth', {}, data=data),
        writers.write_stream(tmp_path / 'b.pth', {}, data=data),
        str(tmp_path / 'c.pkl'),
    ):
        with pytest.raises(CheckpointError, match=re.escape(reason)) as error:
            TorchArrays(path)
        assert path in str(error.value)
    assert not (tmp_path / 'was_run').exists()


SIX = np.arange(6, dtype=np.float32)


def tensor(size=None, key='0', **options):
    return {'a': Tensor(Storage(SIX, key, size=size), **options)}


@pytest.mark.parametrize('write', [writers.write_zip, writers.write_stream])
@pytest.mark.parametrize(
    ('tree', 'reason'),
    [
        (tensor(size=10**12, shape=(10**12,)), 'storage|numbers'),
        (tensor(size=-1), '-1 where'),
        (tensor(shape=(2, 4)), r'shape \[2, 4\]'),
        (tensor(shape=(3,), strides=(-1,)), '-1 where'),
        (tensor(shape=(3,), strides=(3,)), r'strides \[3\]'),
        (tensor(shape=(3,), offset=4), 'from 4 on, of 6'),
        (tensor(shape=(3,), offset=-1), '-1 where'),
        (tensor(shape=(10**9,), strides=(0,)), r'strides \[0\]'),
        (tensor(shape=(2**62, 2**62), strides=(1, 1)), 'where a number'),
        (tensor(shape=(True,)), 'True where'),
        (tensor(shape=(1,) * 9, strides=(1,) * 9), '9 dimensions'),
    ],
    ids=lambda value: value if isinstance(value, str) else '',
)
def test_a_tensor_outside_of_its_storage_is_refused(tmp_path, write, tree, reason):
    with pytest.raises(CheckpointError, match=reason) as error:
        TorchArrays(write(tmp_path / 'a.pth', tree))
    assert str(tmp_path / 'a.pth') in str(error.value)


def instructions(*parts):
    return b'\x80\x02' + b''.join(parts) + b'.'


PICKLES = {
    'the key': instructions(b'}', b'(', text('a'), b'K\x01', text('a'), b'K\x02', b'u'),
    'no tensors by name': instructions(b'}'),
    'FloatStorage, which was not run': instructions(b'ctorch\nFloatStorage\n', b')R'),
    'tuple as a key': instructions(b'}', b')' + b'\x85' * 200_000, b'K\x01', b's'),
    'int as a key': instructions(b'}', b'\x8a\x09', bytes(8), b'\x01', b'K\x01s'),
    'an array of the dtype .O': instructions(
        b'cnumpy._core.multiarray\nscalar\n',
        b'cnumpy\ndtype\n',
        text('O8'),
        b'\x85R',
        b'U\x00',
        b'\x86R',
    ),
    'no mark': instructions(b'K\x01' * 100, b't'),
    'bytes where': instructions(b'B\xff\xff\xff\xff'),
    'cut off': instructions(b'\x8e', struct.pack('<Q', 2**60)),
    'BYTEARRAY8|cut off': instructions(b'\x96', struct.pack('<Q', 2**62)),
    'int in place of tuple': instructions(b'ccollections\nOrderedDict\n', b'K\x01R'),
    'IndexError': instructions(b'0' * 0, b's'),
    'KeyError': instructions(b'h\x07'),
    'NEXT_BUFFER': instructions(b'\x97'),
    'PERSID': instructions(b'P0\n'),
    'a state of': instructions(b'cnumpy\nndarray\n', b'}b'),
}


@pytest.mark.parametrize('reason', PICKLES)
def test_a_damaged_pickle_is_refused(tmp_path, reason):
    (tmp_path / 'a.pkl').write_bytes(PICKLES[reason])
    with pytest.raises(CheckpointError, match=reason):
        TorchArrays(str(tmp_path / 'a.pkl'))


@pytest.mark.parametrize(
    'identifier',
    [
        ('storage', 'FloatStorage', '../../outside', 'cpu', 6),
        ('file', 'FloatStorage', '0', 'cpu', 6),
        ('storage', 'FloatStorage', 0, 'cpu', 6),
        ('storage', 'FloatStorage', '0', 'cpu', 6, ('0', 0, 6)),
        ('storage', None, '0', 'cpu', 6),
        ('storage',),
    ],
)
def test_a_persistent_identifier_finds_storages_of_the_file_alone(tmp_path, identifier):
    (tmp_path / 'outside').write_bytes(SIX.tobytes())

    def written():
        _, kind, *others = identifier if len(identifier) > 1 else (*identifier, None)
        module = __import__('sys').modules['torch']
        values = [identifier[0], getattr(module, kind) if kind else kind, *others]
        return tuple(values[: len(identifier) - 1])

    storage = Storage(SIX, '0', size=identifier[-1])
    storage.identifier = written
    for write in (writers.write_zip, writers.write_stream):
        with pytest.raises(CheckpointError, match=r'storage|damaged'):
            TorchArrays(write(tmp_path / 'a.pth', {'a': Tensor(storage, (6,))}))


def test_a_pickle_without_storages_names_none(tmp_path):
    data = writers.dumps({'a': Tensor(Storage(SIX, '0'))})
    (tmp_path / 'a.pkl').write_bytes(data)
    with pytest.raises(CheckpointError, match='BINPERSID'):
        TorchArrays(str(tmp_path / 'a.pkl'))


def test_a_compressed_archive_is_refused_before_it_is_unpacked(tmp_path):
    bomb = [('archive/data/1', bytes(10**7))]
    path = writers.write_zip(
        tmp_path / 'a.pth', tensor(), compression=zipfile.ZIP_DEFLATED, further=bomb
    )
    assert os.path.getsize(path) < 50_000
    with pytest.raises(CheckpointError, match='compressed members'):
        TorchArrays(path)


@pytest.mark.filterwarnings('ignore:Duplicate name')
def test_two_members_of_one_name_are_refused(tmp_path):
    path = writers.write_zip(tmp_path / 'a.pth', tensor(), further=[('archive/data/0', bytes(24))])
    with pytest.raises(CheckpointError, match='two members of one name'):
        TorchArrays(path)


def test_members_that_overlap_are_refused(tmp_path):
    path = writers.write_zip(tmp_path / 'a.pth', tensor(), further=[('b', bytes(5000))])
    data = bytearray((tmp_path / 'a.pth').read_bytes())
    at = data.rindex(b'PK\x01\x02')  # of the member in the directory at the end
    data[at + 20 : at + 28] = struct.pack('<II', 10**6, 10**6)
    (tmp_path / 'a.pth').write_bytes(data)
    with pytest.raises(CheckpointError, match='larger than the file'):
        TorchArrays(path)


def test_many_tensors_of_one_storage_are_refused(tmp_path):
    storage = Storage(np.zeros(1000, np.float32), '0')
    tree = {str(i): Tensor(storage) for i in range(500)}
    with pytest.raises(CheckpointError, match='arrays of 2000000 bytes in a file of'):
        TorchArrays(writers.write_zip(tmp_path / 'a.pth', tree))


@pytest.mark.parametrize('write', [writers.write_zip, writers.write_stream])
def test_a_file_that_was_cut_off_is_refused(tmp_path, write):
    path = write(tmp_path / 'a.pth', writers.tensors(ARRAYS))
    whole = (tmp_path / 'a.pth').read_bytes()
    for size in range(4, len(whole) - 1, 61):
        (tmp_path / 'a.pth').write_bytes(whole[:size])
        with pytest.raises(CheckpointError, match=r'a\.pth'):
            TorchArrays(path)


def test_a_damaged_storage_is_refused(tmp_path):
    path = writers.write_zip(tmp_path / 'a.pth', tensor())
    whole = bytearray((tmp_path / 'a.pth').read_bytes())
    whole[whole.index(SIX.tobytes())] ^= 1
    (tmp_path / 'a.pth').write_bytes(whole)
    with opened(path) as arrays, pytest.raises(CheckpointError, match='CRC'):
        arrays.read('a')


def test_damage_anywhere_is_an_error_of_the_file_or_changes_numbers_alone(tmp_path):
    tree = writers.tensors(ARRAYS)
    header, data = writers.header_of(ARRAYS)
    paths = [
        writers.write_zip(tmp_path / 'a.pth', tree),
        writers.write_stream(tmp_path / 'b.pth', tree),
        writers.write_pickle(tmp_path / 'c.pkl', {'model': ARRAYS}),
        writers.write_safetensors(tmp_path / 'd.safetensors', header, data),
    ]
    rng = np.random.default_rng(0)
    errors = []
    for path in paths:
        kind = SafetensorsArrays if path.endswith('.safetensors') else TorchArrays
        whole = pathlib.Path(path).read_bytes()
        for _ in range(150):
            damaged = bytearray(whole)
            for place in rng.integers(0, len(whole), rng.integers(1, 4)):
                damaged[place] = rng.integers(0, 256)
            pathlib.Path(path).write_bytes(damaged)
            try:
                with contextlib.closing(kind(path)) as arrays:
                    for name in arrays.shapes:
                        arrays.read(name)
            except CheckpointError as error:
                errors.append((path, str(error)))
    assert all(path in text for path, text in errors)
    assert 300 < len(errors) < 600


def entry(dtype='F32', shape=(6,), offsets=(0, 24)):
    return {'dtype': dtype, 'shape': list(shape), 'data_offsets': list(offsets)}


@pytest.mark.parametrize(
    ('header', 'reason'),
    [
        ({'a': entry(offsets=(0, 32))}, '32 bytes for the shape'),
        ({'a': entry(shape=(2**40, 2**40))}, 'where a number|bytes for the shape'),
        ({'a': entry(shape=(-6,))}, '-6 where'),
        ({'a': entry(offsets=(-24, 0))}, '-24 where'),
        ({'a': entry(shape=(3,), offsets=(0, 12)), 'b': entry()}, 'from 0 on'),
        ({'a': entry(shape=(3,), offsets=(12, 24))}, 'from 12 on'),
        ({'a': entry(shape=(3,), offsets=(0, 12))}, 'where the arrays end'),
        ({'a': entry(shape=(12,), offsets=(0, 48))}, 'where the arrays end'),
        ({'a': entry(dtype='F128')}, "dtype 'F128'"),
        ({'a': {'dtype': 'F32'}}, 'data_offsets'),
        ({'a': 3}, 'not subscriptable'),
        ({'a': entry(shape=(6.0,))}, 'float where|6.0 where'),
        ({'a': entry(offsets=(0, 1e400))}, 'inf where'),
        ({'a': entry(shape=(1,) * 9)}, '9 dimensions'),
        ('{"a": ' + '9' * 5000 + '}', 'digits'),
        ('{"a": 1, "a": 2}', 'a name twice'),
        ('[' * 100_000, 'recursion|Expecting'),
        ('{"a": ', 'Expecting'),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 40 else '',
)
def test_a_damaged_file_of_safetensors_is_refused(tmp_path, header, reason):
    path = writers.write_safetensors(tmp_path / 'a.safetensors', header, SIX.tobytes())
    with pytest.raises(CheckpointError, match=reason) as error:
        SafetensorsArrays(path)
    assert path in str(error.value)


def test_a_header_of_10_gigabytes_is_refused(tmp_path):
    path = writers.write_safetensors(
        tmp_path / 'a.safetensors', {'a': entry()}, SIX.tobytes(), length=10**10
    )
    with pytest.raises(CheckpointError, match='a header of 10000000000 bytes'):
        sources.open_arrays(path)
