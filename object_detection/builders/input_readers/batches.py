"""Builds batches of records: decodes, transforms, batches and prefetches them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from object_detection.builders.input_readers import examples as examples_builder
from object_detection.core.fields import InputFields
from object_detection.data import objects
from object_detection.data.pipeline import bad_records, partners, record_files, record_order
from object_detection.data.pipeline import transform as pipeline
from object_detection.data.pipeline.bad_records import BadRecords, Place
from object_detection.data.pipeline.left_out import DroppedObjectsReport, UnknownClassReport
from object_detection.data.pipeline.record_files import Record
from object_detection.data.pipeline.transform import ExampleTransform
from object_detection.data.python_calls import PythonCalls
from object_detection.protos import input_reader_pb2

# Of an example that could not be loaded: '!' and the record; '' of others.
_BAD_RECORD = 'bad_record'
# Images that a thread loads in turn. Two thirds of what more of them would save are saved.
_LOADED_IN_TURN = 4
# What says which objects are lost, and of which records, which batches lose.
_PLACES = (InputFields.RECORD_FILE, InputFields.RECORD_OFFSET, InputFields.RECORD_NUMBER)

_calls = PythonCalls()


def build(
    records: tf.data.Dataset,
    left_out: BadRecords,
    reader: input_reader_pb2.InputReader,
    transform: ExampleTransform,
    *,
    batch_size: int,
    drop_remainder: bool,
    replicas: int = 1,
    key: int,
    start: np.ndarray | None = None,
) -> tf.data.Dataset:
    """Decodes, transforms and batches records.

    Args:
      records: (cursors, record), as `tf_records.read` returns them; where augmentations need other
        images, all from the earliest of `start` on, see `record_order.earliest`.
      left_out: counts the records that are skipped, because they cannot be decoded, and the objects
        that others lose.
      reader, transform, batch_size, drop_remainder, replicas: options of the batches.
      key: key of the random numbers.
      start: cursors of the first records, for training; None omits `STREAM_STATE`.
    """
    decoder = examples_builder.decoder(reader, transform.resizer.value_range)
    has_buffers = len(reader.aspect_ratio_buckets) > 1
    first, *further = transform.stages

    def load(cursors: tf.Tensor, serialized: tf.Tensor) -> dict[str, tf.Tensor]:
        # The seed depends only on the position of the record, so the number of threads does not
        # matter.
        seed = tf.stack([key, cursors[0, 0]])
        example = first.change(decoder(serialized), seed, ())
        if further:
            example[partners.SEED] = seed
        if start is None:
            return example
        return {**example, InputFields.STREAM_STATE: cursors if has_buffers else cursors[1]}

    examples = skip_bad(records, load, left_out)
    if further:
        examples = partners.apply(examples, further)
    if further and has_buffers:
        examples = examples.filter(
            lambda example: record_order.is_wanted(start, example[InputFields.STREAM_STATE])
        )
    sizes = examples_builder.bucket_sizes(reader)
    if has_buffers and start is not None:
        examples = record_order.with_buffered(examples, sizes, batch_size * replicas, start)
    batches = batch(examples, reader, batch_size, drop_remainder=drop_remainder, replicas=replicas)
    batches = batches.map(log_dropped_objects(reader, left_out))
    if start is not None:
        batches = batches.map(record_order.of_batch)
        if has_buffers and not drop_remainder:
            batches = record_order.without_left_over(batches, sizes, batch_size, start.shape[1])
    return ahead(batches, reader)


def skip_bad(
    records: tf.data.Dataset,
    load: Callable[[tf.Tensor, tf.Tensor], dict[str, tf.Tensor]],
    left_out: BadRecords,
) -> tf.data.Dataset:
    """Loads records in parallel, in their order, without those for which `load` fails."""
    explain = _explainer(load, records.element_spec[0])
    spec: dict[str, tf.TensorSpec] = {}

    def noted(number: tf.Tensor, element: tuple[tf.Tensor, Record]) -> tuple[Any, tf.Tensor]:
        del number
        cursors, record = element
        example = load(cursors, record_files.fetch(record)['serialized'])
        # It is traced before `instead`.
        spec.update({name: tf.TensorSpec.from_tensor(value) for name, value in example.items()})
        return example, tf.constant('')

    def instead(number: tf.Tensor, element: tuple[tf.Tensor, Record]) -> tuple[Any, tf.Tensor]:
        del number
        serialized = record_files.fetch(element[1])['serialized']
        return bad_records.empty(spec), tf.strings.join(['!', serialized])

    @tf.autograph.experimental.do_not_convert
    def placed(element: tuple[Any, ...], result: tuple[Any, tf.Tensor]) -> dict[str, tf.Tensor]:
        number, (_, record) = element
        example, bad = result
        return {
            **example,
            InputFields.RECORD_FILE: record['file'],
            InputFields.RECORD_OFFSET: record['offset'],
            InputFields.RECORD_NUMBER: number,
            _BAD_RECORD: bad,
        }

    def report(bad: bytes, file: bytes, offset: np.int64, number: np.int64) -> np.int32:
        with _calls.running():
            source_id = bad_records.source_id(bad[1:])
            place = Place(file.decode(errors='replace'), int(offset), source_id)
            left_out.add_record(place, int(number), bad[1:], explain)
        return np.int32(0)

    def is_good(example: dict[str, tf.Tensor]) -> tf.Tensor:
        bad = example[_BAD_RECORD]
        fields = (InputFields.RECORD_FILE, InputFields.RECORD_OFFSET, InputFields.RECORD_NUMBER)
        # Python is called only for records that are skipped.
        tf.cond(
            bad == '',
            lambda: tf.constant(0),
            lambda: tf.numpy_function(report, [bad, *map(example.get, fields)], tf.int32),
        )
        return bad == ''

    loaded = bad_records.map_guarded(
        records.enumerate(), noted, instead, chunk=_LOADED_IN_TURN, parallel=True
    )
    return loaded.map(placed).filter(is_good)


def _explainer(
    load: Callable[[tf.Tensor, tf.Tensor], Any], cursors: tf.TensorSpec
) -> Callable[[bytes], str]:
    """Returns a function that says why a record cannot be loaded."""

    def explain(serialized: bytes) -> str:
        try:
            with tf.device('CPU:0'):
                load(tf.zeros(cursors.shape, cursors.dtype), tf.constant(serialized))
        except tf.errors.OpError as error:
            return bad_records.plain_message(error.message)
        except UnicodeDecodeError as error:
            # The message of TensorFlow, which has a part of the record in it.
            return bad_records.plain_message(error.object.decode(errors='replace'))
        except Exception as error:  # Of any kind: the record has been left out already.
            return f'{type(error).__name__}: {error}'
        return 'it could not be decoded when it was read, but can be now'

    return explain


def batch(
    examples: tf.data.Dataset,
    reader: input_reader_pb2.InputReader,
    size: int,
    *,
    drop_remainder: bool,
    replicas: int,
) -> tf.data.Dataset:
    """Batches examples; with several buckets, the examples of each bucket together."""
    if len(reader.aspect_ratio_buckets) > 1:
        return pipeline.batch_by_size(examples, size, drop_remainder=drop_remainder, group=replicas)
    return pipeline.batch(examples, size, drop_remainder=drop_remainder)


def ahead(batches: tf.data.Dataset, reader: input_reader_pb2.InputReader) -> tf.data.Dataset:
    """Makes batches before they are asked for, in threads of their own if the reader says so."""
    batches = batches.prefetch(max(0, reader.num_prefetch_batches))
    if not reader.private_threadpool_size:
        return batches
    options = tf.data.Options()
    options.threading.private_threadpool_size = reader.private_threadpool_size
    return batches.with_options(options)


def log_dropped_objects(
    reader: input_reader_pb2.InputReader, left_out: BadRecords | None = None
) -> Callable[[dict[str, tf.Tensor]], dict[str, tf.Tensor]]:
    """Returns a map over batches that logs lost objects and unknown classes.

    It removes from the batch what only says which records these are, and changes nothing else.
    """
    report, unknown = DroppedObjectsReport(), UnknownClassReport(reader.label_map_path)
    fields = (InputFields.INVALID_OBJECTS, InputFields.NUM_EXCESS_OBJECTS, InputFields.SOURCE_ID)

    def update(texts: np.ndarray, *values: np.ndarray) -> np.int32:
        _calls.begin()
        unknown.update(texts)
        report.update(dict(zip(fields, values[: len(fields)], strict=True)))
        if left_out is not None and len(values) > len(fields):
            invalid, _, source_ids, *places = values
            _add_objects(left_out, texts, source_ids, invalid, *places)
        return np.int32(0)

    def log(entries: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        invalid, excess, source_ids = (entries[field] for field in fields)
        # Without a label map, no class can be missing from it.
        texts = entries.get(InputFields.UNKNOWN_CLASSES, tf.fill(tf.shape(source_ids), ''))
        values = [texts, invalid, excess, source_ids]
        if InputFields.RECORD_FILE in entries:
            values += [entries[field] for field in _PLACES]
        # Python is called only for the few batches that have something to log.
        tf.cond(
            tf.reduce_any(invalid > 0) | tf.reduce_any((excess > 0) | (texts != '')),
            lambda: tf.numpy_function(update, values, tf.int32),
            lambda: tf.constant(0),
        )
        removed = (InputFields.UNKNOWN_CLASSES, _BAD_RECORD, *_PLACES)
        return {k: v for k, v in entries.items() if k not in removed}

    return log


def _add_objects(
    left_out: BadRecords,
    texts: np.ndarray,
    source_ids: np.ndarray,
    invalid: np.ndarray,
    files: np.ndarray,
    offsets: np.ndarray,
    numbers: np.ndarray,
) -> None:
    """Adds the objects that the images of a batch lost, and the classes that no label map has."""
    for i in np.flatnonzero(invalid.any(axis=1)):
        file, source_id, unknown = (
            bytes(each[i]).decode(errors='replace') for each in (files, source_ids, texts)
        )
        place = Place(file, int(offsets[i]), source_id)
        for text in filter(None, unknown.split('\n')):
            left_out.add_class(place, text)
        counts = zip(objects.INVALID_KINDS, map(int, invalid[i]), strict=True)
        counts = {kind: count for kind, count in counts if count}
        left_out.add_objects(place, int(numbers[i]), counts)
