"""Reads and writes the features of images, without TensorFlow.

An image is a tf.Example, or a frame of a tf.SequenceExample, which is read as a tf.Example.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError

from object_detection.core import tf_example_keys as keys
from object_detection.data import tf_examples, tf_record_files
from object_detection.errors import DataError
from object_detection.protos.tf_example_pb2 import TfFeature, TfFeatureList, TfSequenceExample

# Key of the list in a tf.SequenceExample -> key in a tf.Example; other keys are the same.
_LIST_KEYS = {
    **dict(zip(keys.SEQUENCE_BOX_SIDES, keys.BOX_SIDES, strict=True)),
    keys.SEQUENCE_LABEL: keys.CLASS_TEXT,
    keys.SEQUENCE_LABEL_INDEX: keys.CLASS_LABEL,
    keys.SEQUENCE_CONFIDENCE: keys.WEIGHT,
    keys.SEQUENCE_CONTEXT_INDICES: keys.CONTEXT_INDICES,
}


class Place(NamedTuple):
    """Where an image is.

    Attributes:
      path: path of its TFRecord file.
      offset: offset of the content of its record in bytes.
      frame: number of the frame in a tf.SequenceExample; 0 for a tf.Example.
    """

    path: str
    offset: int
    frame: int = 0

    def __str__(self) -> str:
        frame = f', frame {self.frame}' if self.frame else ''
        return f'{self.path}, byte {self.offset}{frame}'


def places(path: str) -> Iterator[Place]:
    """Yields the records of a file in order; reads only their headers."""
    for position in tf_record_files.positions(path):
        yield Place(path, position.offset)


def read(place: Place) -> 'Example':
    """Reads one image.

    Raises:
      DataError: if its record is corrupt, or neither a tf.Example nor a tf.SequenceExample that has
        the frame.
      OSError: if the file cannot be read.
    """
    return Reader().read(place)


class Reader:
    """Reads images; keeps the last record, as frames of a sequence mostly follow each other."""

    def __init__(self) -> None:
        self._place: Place | None = None
        self._images: Sequence[Example] = ()

    def read(self, place: Place) -> 'Example':
        """Reads one image, see `records.read`."""
        images = self.read_all(place)
        if place.frame >= len(images):
            raise DataError(f'{place}: expected a frame. Received: {len(images)} of them.')
        return images[place.frame]

    def read_all(self, place: Place) -> Sequence['Example']:
        """Reads the one image of a tf.Example, or the frames of a tf.SequenceExample, in order."""
        first = place._replace(frame=0)
        if first != self._place:
            # Two records at a time would take twice the memory.
            self._images = ()
            self._place = None
            serialized = tf_record_files.read_record(place.path, place.offset)
            self._images = _images(_message(serialized, first), first)
            self._place = first
        return self._images


class Example:
    """The features of a tf.Example; the methods return the values of a key, none if it is absent.

    Args:
      features: key -> its values.
      place: where the image is, for errors; None if it is in no file.
    """

    def __init__(self, features: Mapping[str, TfFeature], place: Place | None = None):
        self._features = features
        self._place = place

    def __contains__(self, key: str) -> bool:
        return key in self._features

    def __str__(self) -> str:
        place = f' ({self._place})' if self._place else ''
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

    def encoded(self) -> bytes:
        """Returns the file of the image; b'' without one."""
        return b''.join(self.texts(keys.ENCODED)[:1])

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
    message = _message(serialized, place)
    if message.feature_lists.feature_list:
        where = f'{place}: ' if place else ''
        raise DataError(f'{where}expected a tf.Example. Received: a tf.SequenceExample.')
    return Example(message.context.feature, place)


def _message(serialized: bytes, place: Place | None) -> TfSequenceExample:
    """Parses a record of either kind; a tf.Example has a context only."""
    try:
        return TfSequenceExample.FromString(serialized)
    except DecodeError as error:
        where = f'{place}: ' if place else ''
        raise DataError(f'{where}expected a tf.Example. Received: other bytes.') from error


def _images(message: TfSequenceExample, place: Place) -> list[Example]:
    """Returns the images of a record; frames have the features of their sequence too."""
    context, entries = message.context.feature, message.feature_lists.feature_list
    if not entries:
        return [Example(context, place)]
    lists: dict[str, TfFeatureList] = {key: entries[key] for key in entries}
    # An optional list without an entry is one that the sequence does not have.
    lengths = {key: len(found.feature) for key, found in lists.items() if len(found.feature)}
    count = lengths.get(keys.ENCODED, 0)
    if not count:
        raise DataError.expected(place, f'{keys.ENCODED} for each frame of a tf.SequenceExample')
    if wrong := {key: length for key, length in lengths.items() if length != count}:
        raise DataError.expected(
            place, f'{count} entries of each list of a tf.SequenceExample, one a frame', wrong
        )
    return [
        Example(
            {key: context[key] for key in context}
            | {_LIST_KEYS.get(key, key): lists[key].feature[number] for key in lengths},
            place._replace(frame=number),
        )
        for number in range(count)
    ]
