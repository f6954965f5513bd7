"""Reads and writes the features of tf.Examples, without TensorFlow, and the time of an image."""

import datetime
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError

from object_detection.core import tf_example_keys as keys
from object_detection.data import tf_examples, tf_record_files
from object_detection.errors import DataError
from object_detection.protos.tf_example_pb2 import TfExample

DATE_FORMAT = '%Y-%m-%d %H:%M:%S'


class Place(NamedTuple):
    """Where a record is.

    Attributes:
      path: path of its TFRecord file.
      offset: offset of its content in bytes.
    """

    path: str
    offset: int


def places(path: str) -> Iterator[Place]:
    """Yields the records of a file in order; reads only their headers."""
    for position in tf_record_files.positions(path):
        yield Place(path, position.offset)


def read(place: Place) -> 'Example':
    """Reads one record.

    Raises:
      DataError: if it is corrupt, or is no tf.Example.
      OSError: if the file cannot be read.
    """
    return parse(tf_record_files.read_record(place.path, place.offset), place)


class Example:
    """The features of a tf.Example; the methods return the values of a key, none if it is absent.

    Args:
      message: the parsed record.
      place: where the record is, for errors; None if it is in no file.
    """

    def __init__(self, message: TfExample, place: Place | None = None):
        self._features = message.features.feature
        self._place = place

    def __contains__(self, key: str) -> bool:
        return key in self._features

    def __str__(self) -> str:
        place = f' ({self._place.path}, byte {self._place.offset})' if self._place else ''
        return f'image {self.text(keys.SOURCE_ID)!r}{place}'

    def texts(self, key: str) -> Sequence[bytes]:
        return self._values(key, 'bytes_list')

    def floats(self, key: str) -> np.ndarray:
        """Returns float32 [n]."""
        return np.asarray(self._values(key, 'float_list'), np.float32)

    def count(self, key: str) -> int:
        """Returns the number of floats of a key."""
        return len(self._values(key, 'float_list'))

    def integers(self, key: str) -> Sequence[int]:
        return self._values(key, 'int64_list')

    def text(self, key: str) -> str:
        """Returns the first text of a key; '' if there is none."""
        return next((value.decode(errors='backslashreplace') for value in self.texts(key)), '')

    def raw(self) -> dict[str, bytes]:
        """Returns key -> serialized `Feature`, for `tf_examples.serialize`."""
        return {
            key: feature.SerializeToString(deterministic=True)
            for key, feature in self._features.items()
        }

    def with_features(self, features: Mapping[str, bytes]) -> bytes:
        """Returns the record with further, or other, features."""
        return tf_examples.serialize(self.raw() | features)

    def _values(self, key: str, kind: str) -> Any:
        # Looking up an absent key of a map would add it.
        if key not in self._features:
            return ()
        feature = self._features[key]
        found = feature.WhichOneof('kind')
        if found not in (None, kind):
            raise DataError(f'{self}: expected {key} to be a {kind}. Received: a {found}.')
        return getattr(feature, kind).value


def parse(serialized: bytes, place: Place | None = None) -> Example:
    """Parses a serialized tf.Example.

    Raises:
      DataError: if it is none.
    """
    try:
        return Example(TfExample.FromString(serialized), place)
    except DecodeError as error:
        where = f'{place.path}, byte {place.offset}: ' if place else ''
        raise DataError(f'{where}expected a tf.Example. Received: other bytes.') from error


def time_of(date: str) -> datetime.datetime | None:
    """Returns the time that image/date_captured states, as UTC; None if it is not such a time."""
    try:
        time = datetime.datetime.strptime(date, DATE_FORMAT)
    except ValueError:
        return None
    return time.replace(tzinfo=datetime.UTC)
