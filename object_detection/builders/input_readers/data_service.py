"""Builds training data that a data service prepares; see `data.data_service`."""

import secrets

import numpy as np
import tensorflow as tf

from object_detection.builders.input_readers import batches as batches_builder
from object_detection.builders.input_readers import examples as examples_builder
from object_detection.builders.input_readers import tf_records
from object_detection.data.pipeline import data_service, partners
from object_detection.data.pipeline.left_out import EmptyImageFilter
from object_detection.data.pipeline.transform import ExampleTransform
from object_detection.protos import input_reader_pb2

_WHERE = 'train_input_reader'
# A launcher restarts a training at once; its data service may take longer to restart.
_SECONDS_TO_ANSWER = 120.0


def build(
    reader: input_reader_pb2.InputReader,
    transform: ExampleTransform,
    *,
    batch_size: int,
    replicas: int,
    seed: int,
    job: int | None,
) -> tf.data.Dataset:
    """Builds training batches that a data service prepares, without `STREAM_STATE`.

    Args:
      reader: a reader with a `data_service` and a tf_record_input_reader.
      transform: transform of its examples.
      batch_size: images per batch.
      replicas: number of replicas that receive batches from one input pipeline.
      seed: seed of the order in which files are assigned.
      job: number of the job; jobs of the same number share one stream. None draws one.

    Raises:
      ValueError: if an input path matches no file, or the service does not answer.
    """
    decoder = examples_builder.decoder(reader, transform.resizer.value_range)
    first, *further = transform.stages

    def load(serialized: tf.Tensor) -> dict[str, tf.Tensor]:
        # Records arrive in any order, so that their positions cannot be seeds.
        noise = tf.random.uniform([2], maxval=tf.int64.max, dtype=tf.int64)
        example = first.change(decoder(serialized), noise, ())
        return {**example, partners.SEED: noise} if further else example

    records = _read(reader, seed, examples_builder.empty_image_filter(reader, _WHERE))
    examples = records.map(load, num_parallel_calls=tf.data.AUTOTUNE)
    if further:
        examples = partners.apply(examples, further)
    # Batches of several processes arrive mixed: those of all replicas are one batch until here, so
    # that they have one size.
    has_sizes = len(reader.aspect_ratio_buckets) > 1
    together = batch_size * replicas if has_sizes else batch_size
    batches = batches_builder.batch(
        examples, reader, together, drop_remainder=reader.drop_remainder, replicas=1
    )
    data_service.check_answers(reader.data_service, f'{_WHERE}.data_service', _SECONDS_TO_ANSWER)
    # The name does not depend on the data and options: the service keeps the first dataset of a
    # name, for a while even if nobody reads it.
    name = f'training-{secrets.randbits(62) if job is None else job:016x}'
    batches = data_service.through(batches, reader.data_service, name)
    if together != batch_size:
        batches = batches.rebatch(batch_size, drop_remainder=reader.drop_remainder)
    batches = batches.map(batches_builder.log_dropped_objects(reader))
    return batches_builder.ahead(batches, reader)


def _read(
    reader: input_reader_pb2.InputReader, seed: int, empty: EmptyImageFilter | None
) -> tf.data.Dataset:
    """Reads the serialized examples, strings."""
    patterns = reader.tf_record_input_reader.input_path
    files = sorted(
        {name for pattern in patterns for name in tf_records.matching_files(pattern, _WHERE)}
    )
    if reader.shuffle:
        files = np.random.default_rng(seed).permutation(files).tolist()
    return data_service.records(
        files,
        num_readers=reader.num_readers,
        block_length=reader.read_block_length,
        shuffle_buffer=reader.shuffle_buffer_size if reader.shuffle else 0,
        num_epochs=reader.num_epochs or None,
        is_usable=None if empty is None else empty.is_usable,
    )
