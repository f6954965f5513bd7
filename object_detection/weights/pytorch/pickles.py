"""Reads pickles of tensors and arrays as data; nothing that a pickle names is imported or run.

A pickle is a program: it may name any function and call it. This is an interpreter of the few
instructions that `torch.save` and pickled NumPy arrays need. The names that a pickle may use are
those of `_GLOBALS`, and stand for functions of this module. Arrays are only described; their
numbers are read by whoever knows where they are.
"""

import dataclasses
import math
import pickletools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, BinaryIO, NamedTuple

from object_detection.errors import UserError

# A file of 10,000 tensors has about 400,000 instructions.
_MOST_INSTRUCTIONS = 4_000_000
_LONGEST_LINE = 1024
_MOST_DIMENSIONS = 8
BFLOAT16 = 'bfloat16'
# The kinds and sizes of NumPy's dtypes that are numbers.
_NUMBERS = frozenset({'b1', *(f'{k}{n}' for k in 'iu' for n in (1, 2, 4, 8)), 'f2', 'f4', 'f8'})
# Larger keys of dicts can be chosen so that they all have one hash.
_LARGEST_KEY = 2**60


class Storage(NamedTuple):
    """A block of numbers beside the pickle.

    Attributes:
      key: its name.
      dtype: the dtype of its numbers; see `Array`.
      size: how many they are.
    """

    key: str
    dtype: str
    size: int


@dataclasses.dataclass(eq=False)
class Array:
    """An array as a pickle describes it.

    Attributes:
      data: where its numbers are: a storage, or the bytes themselves, which older protocols write
        as text of as many characters. None until it is known.
      dtype: dtype of NumPy with its byte order, such as '<f4', or BFLOAT16, which NumPy lacks.
      offset: the position of the first number in the data, counted in numbers.
      shape, strides: size of each dimension, and the distance of its neighbours in numbers.
    """

    data: Storage | bytes | bytearray | str | None = None
    dtype: str = ''
    offset: int = 0
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()


@dataclasses.dataclass(eq=False)
class _DType:
    """A dtype of NumPy."""

    code: str
    order: str = '<'


class _Global(NamedTuple):
    """A name that a pickle may use.

    Attributes:
      name: 'module.name'.
      call: takes the arguments, and returns what the pickle goes on with; None: not to be called.
      dtype: the dtype of a storage of this class; '' for other names.
    """

    name: str
    call: Callable[..., Any] | None = None
    dtype: str = ''


def itemsize(dtype: str) -> int:
    """Returns the bytes of a number of a dtype of an `Array`."""
    return 2 if dtype == BFLOAT16 else int(dtype[2:])


def load(file: BinaryIO, num_bytes: int, storages: dict[str, Storage] | None = None) -> Any:
    """Reads one pickle, and leaves the file behind it.

    Args:
      file: at the beginning of the pickle.
      num_bytes: size of the rest of the file; the pickle is no larger.
      storages: gets the storages beside it that it names, by key; None: it may name none.

    Returns:
      A tree of dict, list, tuple, numbers, strings, bytes, None and `Array`. It may be of any
      depth, and refer to itself.

    Raises:
      UserError: if it holds anything else, or is cut off.
    """
    stream = _Stream(file, num_bytes)
    machine = _Machine(storages)
    count = 0
    try:
        for instruction, argument, _ in pickletools.genops(stream):
            count += 1
            if count > _MOST_INSTRUCTIONS:
                raise UserError(f'a pickle of more than {_MOST_INSTRUCTIONS:,} instructions')
            machine.run(instruction.name, argument)
        return machine.result()
    except (IndexError, KeyError, TypeError) as error:
        raise UserError(f'a damaged pickle ({type(error).__name__})') from error
    except UserError:
        raise
    except ValueError as error:
        raise UserError(f'a damaged pickle ({error})') from error


class _Stream:
    """The part of a file interface that is read by, which never reads more than there is."""

    def __init__(self, file: BinaryIO, num_bytes: int):
        self._file, self._left = file, num_bytes

    def read(self, size: int) -> bytes:
        # Otherwise memory would be allocated that nothing would fill.
        if not 0 <= size <= self._left:
            raise UserError(f'a pickle cut off: {size} bytes where {self._left} are left')
        self._left -= size
        return self._file.read(size)

    def readline(self) -> bytes:
        line = self._file.readline(min(self._left, _LONGEST_LINE))
        self._left -= len(line)
        return line


_MARK = object()
_CONSTANTS = {'NONE': None, 'NEWTRUE': True, 'NEWFALSE': False}
# Instructions that put their argument on the stack.
_LITERALS = frozenset(
    {'BININT', 'BININT1', 'BININT2', 'LONG1', 'BINFLOAT', 'BINBYTES', 'SHORT_BINBYTES'}
    | {'BINBYTES8', 'BYTEARRAY8', 'SHORT_BINUNICODE', 'BINUNICODE', 'BINUNICODE8'}
    | {'BINSTRING', 'SHORT_BINSTRING'}  # Of Python 2, which wrote bytes so, too.
)
_TUPLES = {'EMPTY_TUPLE': 0, 'TUPLE1': 1, 'TUPLE2': 2, 'TUPLE3': 3}
_EMPTY = {'EMPTY_LIST': list, 'EMPTY_DICT': dict}
_IGNORED = frozenset({'PROTO', 'FRAME', 'STOP'})


class _Machine:
    """The stack of a pickle, and what it memorizes."""

    def __init__(self, storages: dict[str, Storage] | None):
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self._storages = storages

    def result(self) -> Any:
        (tree,) = self._stack
        return tree

    def run(self, name: str, argument: Any) -> None:
        """Runs one instruction of the names of `pickletools`."""
        stack = self._stack
        if name in _LITERALS:
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _EMPTY:
            stack.append(_EMPTY[name]())
        elif name in ('BINPUT', 'LONG_BINPUT', 'MEMOIZE'):
            self._memo[len(self._memo) if argument is None else argument] = stack[-1]
        elif name in ('BINGET', 'LONG_BINGET'):
            stack.append(self._memo[argument])
        elif name == 'MARK':
            stack.append(_MARK)
        elif name in _TUPLES:
            count = _TUPLES[name]
            stack.append(tuple(stack.pop() for _ in range(count))[::-1])
        elif name == 'TUPLE':
            stack.append(tuple(self._pop_to_mark()))
        elif name not in _IGNORED:
            self._change(name, argument)

    def _change(self, name: str, argument: Any) -> None:
        """Runs an instruction that fills a container, or names or calls something."""
        stack = self._stack
        if name in ('APPEND', 'APPENDS'):
            items = [stack.pop()] if name == 'APPEND' else self._pop_to_mark()
            _required(stack[-1], list).extend(items)
        elif name in ('SETITEM', 'SETITEMS'):
            if name == 'SETITEM':
                value, key = stack.pop(), stack.pop()
                items = [key, value]
            else:
                items = self._pop_to_mark()
            _fill(_required(stack[-1], dict), zip(items[::2], items[1::2], strict=True))
        elif name == 'GLOBAL':
            stack.append(_find(*argument.split(' ', 1)))
        elif name == 'STACK_GLOBAL':
            attribute, module = _required(stack.pop(), str), _required(stack.pop(), str)
            stack.append(_find(module, attribute))
        elif name == 'REDUCE':
            arguments, function = _required(stack.pop(), tuple), _required(stack.pop(), _Global)
            if function.call is None:
                raise UserError(f'a call of {function.name}, which was not run')
            stack.append(function.call(*arguments))
        elif name == 'BUILD':
            state = stack.pop()
            _set_state(stack[-1], state)
        elif name == 'BINPERSID' and self._storages is not None:
            storage = _storage(*_required(stack.pop(), tuple))
            if self._storages.setdefault(storage.key, storage) != storage:
                raise UserError(f'two sizes of the storage {brief(storage.key)}')
            stack.append(storage)
        else:
            raise UserError(f'the instruction {name}, which no file of arrays needs')

    def _pop_to_mark(self) -> list[Any]:
        at = len(self._stack) - 1
        while self._stack[at] is not _MARK:
            at -= 1
            if at < 0:
                raise UserError('a damaged pickle (no mark)')
        items = self._stack[at + 1 :]
        del self._stack[at:]
        return items


def brief(value: Any) -> str:
    """Returns a value for a message; of a container, which may be of any depth, the class."""
    if type(value) is str:
        return repr(value[:80])
    return repr(value) if type(value) in (int, float, bool) else type(value).__name__


def _required(value: Any, kind: type) -> Any:
    """Returns a value of exactly this class."""
    if type(value) is not kind:
        raise UserError(f'a damaged pickle ({type(value).__name__} in place of {kind.__name__})')
    return value


def _fill(mapping: dict, items: Iterable[tuple[Any, Any]]) -> None:
    for key, value in items:
        # The hash of a tuple would be computed by recursion of any depth.
        if type(key) is not str and not (type(key) is int and abs(key) <= _LARGEST_KEY):
            raise UserError(f'a damaged pickle ({type(key).__name__} as a key)')
        if key in mapping:
            raise UserError(f'the key {brief(key)} twice')
        mapping[key] = value


def _find(module: str, name: str) -> _Global:
    path = f'{module}.{name}'
    if path not in _GLOBALS:
        raise UserError(
            f'{path:.200}, which was neither imported nor run. Only tensors, arrays, numbers and '
            "strings are read: save these alone, as torch.save(model.state_dict(), 'FILE')"
        )
    return _GLOBALS[path]


def _storage(
    kind: Any, storage: Any, key: Any, location: Any, size: Any, view: Any = None
) -> Storage:
    """Returns the storage of a persistent identifier."""
    del location
    if kind != 'storage' or not _required(storage, _Global).dtype or view is not None:
        raise UserError('a damaged pickle (a storage of an unknown kind)')
    return Storage(_required(key, str), storage.dtype, _whole(size))


def _whole(value: Any) -> int:
    """Returns an integer of 0 or more."""
    if type(value) is not int or not 0 <= value < 2**62:
        raise UserError(f'{brief(value)} where a number or a size of numbers is expected')
    return value


def sizes(values: Any) -> tuple[int, ...]:
    """Returns a tuple of integers of 0 or more; raises UserError if it is anything else."""
    if len(_required(values, tuple)) > _MOST_DIMENSIONS:
        raise UserError(f'an array of {len(values)} dimensions')
    return tuple(_whole(value) for value in values)


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the strides of an array whose last dimension changes fastest."""
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


def checked(array: Array, available: int) -> Array:
    """Returns the array; raises UserError unless its numbers are among the first `available`."""
    count = math.prod(array.shape)
    reach = sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True))
    if count > available or (count and array.offset + reach >= available):
        raise UserError(
            f'an array of the shape {list(array.shape)} and the strides {list(array.strides)} '
            f'from {array.offset} on, of {available} numbers in all'
        )
    return array


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any, *further: Any) -> Array:
    """The arguments of torch._utils._rebuild_tensor, or _v2, which has further ones."""
    del further
    storage = _required(storage, Storage)
    array = Array(storage, storage.dtype, _whole(offset), sizes(shape), sizes(strides))
    return checked(array, storage.size)


def _parameter(data: Any, *further: Any) -> Array:
    del further
    return _required(data, Array)


def _ordered() -> dict:
    return {}


def _dtype(code: Any, *further: Any) -> _DType:
    del further
    order, code = (code[0], code[1:]) if code[:1] in ('<', '>', '|', '=') else ('<', code)
    return _DType(_required(code, str), order)


def _numpy_array(data: Any, dtype: Any, shape: Any, is_fortran: bool, array: Array) -> Array:
    """Fills an array whose bytes are within the pickle."""
    dtype = _required(dtype, _DType)
    if dtype.code not in _NUMBERS:
        raise UserError(f'an array of the dtype {brief(dtype.code)}')
    if type(data) not in (bytes, bytearray, str):
        raise UserError(f'an array of {type(data).__name__}')
    array.data, array.dtype, array.shape = (
        data,
        f'{"<" if dtype.order == "=" else dtype.order}{dtype.code}',
        sizes(shape),
    )
    array.strides = row_major(array.shape[::-1])[::-1] if is_fortran else row_major(array.shape)
    return checked(array, len(data) // itemsize(array.dtype))


def _scalar(dtype: Any, data: Any) -> Array:
    return _numpy_array(data, dtype, (), False, Array())


def _from_buffer(data: Any, dtype: Any, shape: Any, order: Any) -> Array:
    return _numpy_array(data, dtype, shape, order == 'F', Array())


def _no_bytes() -> bytes:
    return b''


def _encoded(text: Any, encoding: Any) -> str:
    """The text of bytes. It is encoded when it is read: many arrays may have the same bytes."""
    if encoding != 'latin1':
        raise UserError(f'text of the encoding {brief(encoding)}')
    return _required(text, str)


def _set_state(value: Any, state: Any) -> None:
    """Completes what was called before; attributes of dicts are left out."""
    if type(value) is Array and value.data is None:
        version, shape, dtype, is_fortran, data = _required(state, tuple)
        del version
        _numpy_array(data, dtype, shape, bool(is_fortran), value)
    elif type(value) is _DType:
        order = _required(state, tuple)[1]
        if order not in ('<', '>', '|', '='):
            raise UserError(f'an array of the byte order {brief(order)}')
        value.order = order
    elif type(value) is not dict:
        raise UserError(f'a damaged pickle (a state of {type(value).__name__})')


def _named(call: Callable[..., Any] | None, *names: str) -> Mapping[str, _Global]:
    return {name: _Global(name, call) for name in names}


_STORAGES = {
    **{'Double': '<f8', 'Float': '<f4', 'Half': '<f2', 'BFloat16': BFLOAT16},
    **{'Long': '<i8', 'Int': '<i4', 'Short': '<i2', 'Char': '|i1', 'Byte': '|u1', 'Bool': '|b1'},
}
# 'module.name' -> what it stands for.
_GLOBALS: dict[str, _Global] = {
    **_named(_ordered, 'collections.OrderedDict'),
    **_named(_encoded, '_codecs.encode'),
    **_named(_no_bytes, '__builtin__.bytes', 'builtins.bytes'),
    **_named(_tensor, 'torch._utils._rebuild_tensor', 'torch._utils._rebuild_tensor_v2'),
    **_named(_parameter, 'torch._utils._rebuild_parameter'),
    **_named(None, 'numpy.ndarray'),
    **_named(_dtype, 'numpy.dtype'),
    **{
        f'torch.{name}Storage': _Global(f'torch.{name}Storage', dtype=dtype)
        for name, dtype in _STORAGES.items()
    },
}
# NumPy 2 moved its modules.
for _core in ('numpy.core', 'numpy._core'):
    _GLOBALS |= _named(lambda *_: Array(), f'{_core}.multiarray._reconstruct')
    _GLOBALS |= _named(_scalar, f'{_core}.multiarray.scalar')
    _GLOBALS |= _named(_from_buffer, f'{_core}.numeric._frombuffer')
