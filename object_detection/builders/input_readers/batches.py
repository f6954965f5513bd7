"""Builds batches of records: decodes, transforms, batches and prefetches them."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from object_detection.builders.input_readers import examples as examples_builder
from object_detection.core.fields import InputFields
from object_detection.data.pipeline import iterator_state
from object_detection.data.pipeline import transform as pipeline
from object_detection.data.pipeline.left_out import DroppedObjectsReport, UnknownClassReport
from object_detection.data.pipeline.transform import ExampleTransform
from object_detection.protos import input_reader_pb2


def build(
    records: tf.data.Dataset,
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
      records: (cursors, serialized example), as `tf_records.read` returns them.
      reader, transform, batch_size, drop_remainder, replicas: options of the batches.
      key: key of the random numbers.
      start: cursors of the first records, for training; None omits `STREAM_STATE`.
    """
    decoder = examples_builder.decoder(reader)
    has_buffers = len(reader.aspect_ratio_buckets) > 1

    def load(cursors: tf.Tensor, serialized: tf.Tensor) -> dict[str, tf.Tensor]:
        # The seed depends only on the position of the record, so the number of threads does not
        # matter.
        example = transform(decoder(serialized), tf.stack([key, cursors[0, 0]]))
        if start is None:
            return example
        return {**example, InputFields.STREAM_STATE: cursors if has_buffers else cursors[1]}

    examples = records.map(load, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    sizes = examples_builder.bucket_sizes(reader)
    if has_buffers and start is not None:
        examples = iterator_state.with_buffered(examples, sizes, batch_size * replicas, start)
    batches = batch(examples, reader, batch_size, drop_remainder=drop_remainder, replicas=replicas)
    batches = batches.map(log_dropped_objects(reader))
    if start is not None:
        batches = batches.map(iterator_state.of_batch)
        if has_buffers and not drop_remainder:
            batches = iterator_state.without_left_over(batches, sizes, batch_size, start.shape[1])
    return ahead(batches, reader)


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
    reader: input_reader_pb2.InputReader,
) -> Callable[[dict[str, tf.Tensor]], dict[str, tf.Tensor]]:
    """Returns a map over batches that logs lost objects and unknown classes.

    It removes the texts of unknown classes from the batch and changes nothing else.
    """
    report, unknown = DroppedObjectsReport(), UnknownClassReport(reader.label_map_path)
    fields = (
        InputFields.NUM_INVALID_OBJECTS,
        InputFields.NUM_EXCESS_OBJECTS,
        InputFields.SOURCE_ID,
    )

    def update(texts: np.ndarray, *values: np.ndarray) -> np.int32:
        unknown.update(texts)
        report.update(dict(zip(fields, values, strict=True)))
        return np.int32(0)

    def log(entries: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        invalid, excess, source_ids = (entries[field] for field in fields)
        # Without a label map, no class can be missing from it.
        texts = entries.get(InputFields.UNKNOWN_CLASSES, tf.fill(tf.shape(source_ids), ''))
        # Python is called only for the few batches that have something to log.
        tf.cond(
            tf.reduce_any((invalid > 0) | (excess > 0) | (texts != '')),
            lambda: tf.numpy_function(update, [texts, invalid, excess, source_ids], tf.int32),
            lambda: tf.constant(0),
        )
        return {k: v for k, v in entries.items() if k != InputFields.UNKNOWN_CLASSES}

    return log
