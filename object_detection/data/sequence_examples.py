"""Takes the frames out of tf.SequenceExamples: videos, and clips of camera traps."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

from object_detection.core import tf_example_keys as keys
from object_detection.data import tf_examples
from object_detection.data.pipeline import bad_records, record_files
from object_detection.data.pipeline.record_files import Record
from object_detection.data.python_calls import PythonCalls
from object_detection.errors import UserError, expected

_calls = PythonCalls()

# Key in a sequence -> key in a tf.Example, with one value for each object.
_FLOATS = {
    **dict(zip(keys.SEQUENCE_BOX_SIDES, keys.BOX_SIDES, strict=True)),
    keys.SEQUENCE_CONFIDENCE: keys.WEIGHT,
}
_NEEDED = (keys.SOURCE_ID, keys.IS_ANNOTATED, *keys.SEQUENCE_BOX_SIDES)
_CONTEXT = (keys.FORMAT, keys.CONTEXT_FEATURES, keys.CONTEXT_FEATURE_LENGTH, keys.CONTEXT_IMAGE_IDS)

Lists = Mapping[str, Sequence[tf.train.Feature]]


def all_frames(records: tf.data.Dataset, frame_index: int) -> tf.data.Dataset:
    """Replaces sequences by their annotated frames, in order.

    Args:
      records: (cursors, `record_files.Record`) of sequences.
      frame_index: a frame of each sequence to take alone, or -1.

    Returns:
      (cursors, record of a tf.Example): the cursors and the place of the sequence with each of its
      frames. A sequence that cannot be used is a record that cannot be decoded.
    """

    def read(serialized: bytes) -> np.ndarray:
        _calls.begin()
        found = frames(serialized)
        taken = [found[_checked(found, frame_index)]] if frame_index >= 0 else found
        return np.array([frame for frame in taken if frame is not None], object)

    def of_sequence(cursors: tf.Tensor, record: Record) -> tf.data.Dataset:
        record = record_files.fetch(record)
        read_it = functools.partial(_marked, read, lambda marker: np.array([marker], object))
        texts = tf.numpy_function(read_it, [record['serialized']], tf.string)
        texts = tf.data.Dataset.from_tensor_slices(tf.ensure_shape(texts, [None]))
        return texts.map(lambda text: (cursors, {**record, 'serialized': text}))

    return records.flat_map(of_sequence)


def one_frame(records: tf.data.Dataset, frame_index: int, key: int) -> tf.data.Dataset:
    """Replaces each sequence by one of its annotated frames.

    Args:
      records: (cursors, `record_files.Record`) of sequences.
      frame_index: which frame; -1 draws it, by `key` and the position of the sequence alone.
      key: key of the random numbers.

    Returns:
      (cursors, record of a tf.Example). A sequence that cannot be used is a record that cannot be
      decoded.
    """

    def read(serialized: bytes, position: np.ndarray) -> bytes:
        _calls.begin()
        found = frames(serialized)
        if frame_index >= 0:
            return found[_checked(found, frame_index)]
        annotated = [frame for frame in found if frame is not None]
        if not annotated:
            raise UserError('A sequence needs at least one annotated frame. Received: none.')
        return annotated[np.random.default_rng([key, int(position)]).integers(len(annotated))]

    def of_sequence(cursors: tf.Tensor, record: Record) -> tuple[tf.Tensor, Record]:
        record = record_files.fetch(record)
        read_it = functools.partial(_marked, read, bytes)
        inputs = [record['serialized'], cursors[0, 0]]
        text = tf.numpy_function(read_it, inputs, tf.string, stateful=False)
        return cursors, {**record, 'serialized': tf.ensure_shape(text, [])}

    return records.map(of_sequence, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)


def _marked(
    read: Callable[..., Any], of_marker: Callable[[bytes], Any], serialized: bytes, *options: Any
) -> Any:
    """Calls `read`, or returns what stands for a sequence that cannot be used."""
    if bad_records.is_marker(serialized):
        return of_marker(serialized)
    try:
        return read(serialized, *options)
    except UserError as error:
        return of_marker(bad_records.marker('not_a_sequence', str(error)))


def frames(serialized: bytes) -> list[bytes | None]:
    """Returns a serialized tf.Example for each frame; None for a frame that is not annotated.

    Confidences of labels become weights of objects; all frames have the context of the sequence.

    Raises:
      ValueError: if it is no tf.SequenceExample, or its lists have different numbers of frames, or
        of objects in a frame.
    """
    try:
        sequence = tf.train.SequenceExample.FromString(serialized)
    except DecodeError as error:
        raise UserError('A record is no tf.SequenceExample.') from error
    entries = sequence.feature_lists.feature_list
    lists = {key: entries[key].feature for key in entries}
    num_frames = len(lists.get(keys.ENCODED, ()))
    name = f'A sequence of {num_frames} frames, {_first_id(lists)}'
    if not num_frames:
        raise UserError(f'{name}: expected {keys.ENCODED} for each frame. Received: none.')
    absent = [key for key in _NEEDED if key not in lists]
    if absent:
        raise UserError(f'{name}: expected lists of {", ".join(_NEEDED)}. Missing: {absent}.')
    known = [keys.ENCODED, *_NEEDED, keys.SEQUENCE_LABEL, keys.SEQUENCE_CONFIDENCE]
    lengths = {key: len(lists[key]) for key in known if key in lists}
    if set(lengths.values()) != {num_frames}:
        raise UserError(f'{name}: expected one entry of each list a frame. Received: {lengths}.')
    context = {
        key: sequence.context.feature[key].SerializeToString()
        for key in _CONTEXT
        if key in sequence.context.feature
    }
    return [
        tf_examples.serialize({**context, **dict(_frame(lists, i, f'{name}, frame {i}'))})
        if _one(lists[keys.IS_ANNOTATED][i].int64_list.value, keys.IS_ANNOTATED, name)
        else None
        for i in range(num_frames)
    ]


def _frame(lists: Lists, index: int, name: str) -> Iterator[tuple[str, bytes]]:
    """Yields the features of a frame."""
    for key in (keys.ENCODED, keys.SOURCE_ID):
        value = _one(lists[key][index].bytes_list.value, key, name)
        yield key, tf_examples.bytes_feature([value])
    values = {key: lists[key][index].float_list.value for key in _FLOATS if key in lists}
    labels = lists.get(keys.SEQUENCE_LABEL)
    values[keys.SEQUENCE_LABEL] = labels[index].bytes_list.value if labels else []
    counts = {key: len(numbers) for key, numbers in values.items()}
    if len(set(counts.values())) > 1:
        raise UserError(f'{name}: expected one value for each object. Received: {counts}.')
    yield keys.CLASS_TEXT, tf_examples.bytes_feature(values.pop(keys.SEQUENCE_LABEL))
    for key, numbers in values.items():
        yield _FLOATS[key], tf_examples.float_feature(numbers)


def _one(values: Sequence, key: str, name: str) -> bytes | int:
    if len(values) != 1:
        raise UserError(f'{name}: expected one value of {key}. Received: {len(values)}.')
    return values[0]


def _first_id(lists: Lists) -> str:
    features = lists.get(keys.SOURCE_ID, ())
    values = features[0].bytes_list.value if features else ()
    first = values[0].decode(errors='replace') if values else ''
    return f'the first with source id {first!r}'


def _checked(found: Sequence[bytes | None], index: int) -> int:
    if index < len(found) and found[index] is not None:
        return index
    raise expected('frame_index', f'an annotated frame of a sequence of {len(found)} frames', index)
