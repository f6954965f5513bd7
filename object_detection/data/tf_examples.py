"""Serialises tf.train.Example without TensorFlow.

A Beam worker that imports TensorFlow starts five seconds later and takes half a gigabyte more; the
message itself is a map from a name to a list of one of three types.
(https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/example/feature.proto)
"""

from collections.abc import Iterable, Mapping

import numpy as np

# Field numbers in the message `Feature`.
_BYTES_LIST, _FLOAT_LIST, _INT64_LIST = 1, 2, 3
_LENGTH_DELIMITED = 2
_INT64_MASK = (1 << 64) - 1


def bytes_feature(values: Iterable[bytes]) -> bytes:
    """Returns a serialised `Feature` that holds byte strings."""
    return _field(_BYTES_LIST, b''.join(_field(1, value) for value in values))


def float_feature(values: Iterable[float]) -> bytes:
    """Returns a serialised `Feature` that holds float32 numbers."""
    packed = np.array(list(values), np.dtype('<f4')).tobytes()
    return _field(_FLOAT_LIST, _field(1, packed) if packed else b'')


def int64_feature(values: Iterable[int]) -> bytes:
    """Returns a serialised `Feature` that holds int64 numbers."""
    packed = b''.join(_varint(int(value) & _INT64_MASK) for value in values)
    return _field(_INT64_LIST, _field(1, packed) if packed else b'')


def serialize(features: Mapping[str, bytes]) -> bytes:
    """Returns a serialised `Example`; equal features give equal bytes.

    Args:
      features: key -> what one of the functions above returned.
    """
    entries = (
        _field(1, _field(1, key.encode()) + _field(2, feature))
        for key, feature in sorted(features.items())
    )
    return _field(1, b''.join(entries))


def _field(number: int, payload: bytes) -> bytes:
    return _varint(number << 3 | _LENGTH_DELIMITED) + _varint(len(payload)) + payload


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)
