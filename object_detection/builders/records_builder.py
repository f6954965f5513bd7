"""Builds the datasets of serialized examples that an input reader describes."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from object_detection.builders import coco_records_builder
from object_detection.protos import input_reader_pb2

# Bytes that are read of a TFRecord file at a time; each of the `num_readers` open files holds so
# many in memory.
_READ_BUFFER = 1 << 20


def read(
    reader: input_reader_pb2.InputReader,
    where: str,
    *,
    shuffle: bool,
    num_epochs: int | None,
    seed: int | None,
    input_context: tf.distribute.InputContext | None = None,
    keep: Callable[[tf.data.Dataset], tf.data.Dataset] | None = None,
) -> tf.data.Dataset:
    """Reads the serialized examples of a reader's files; `num_epochs` None repeats for ever.

    `keep` takes the records of one pass, not yet shuffled, and returns those that are wanted.

    Raises:
      ValueError: if an input path matches no file, or `sample_from_datasets_weights` has not one
        weight an input path.
    """
    if reader.HasField('coco_input_reader'):
        return coco_records_builder.read(
            reader,
            where,
            shuffle=shuffle,
            num_epochs=num_epochs,
            seed=seed,
            input_context=input_context,
            leave_out_empty=keep is not None,
        )
    patterns = list(reader.tf_record_input_reader.input_path)
    files = [_matching_files(pattern, where) for pattern in patterns]
    weights = list(reader.sample_from_datasets_weights)
    options: dict[str, Any] = {
        'reader': reader,
        'shuffle': shuffle,
        'num_epochs': num_epochs,
        'seed': seed,
        'input_context': input_context,
        'keep': keep,
    }
    if not weights:
        return _read_files(sorted({name for names in files for name in names}), **options)
    if len(weights) != len(patterns):
        raise ValueError(
            f'{where}.sample_from_datasets_weights needs one weight for each of the '
            f'{len(patterns)} entries of input_path. Received: {weights}.'
        )
    return tf.data.Dataset.sample_from_datasets(
        [_read_files(names, **options) for names in files], weights, seed=seed
    )


def _read_files(
    files: Sequence[str],
    *,
    reader: input_reader_pb2.InputReader,
    shuffle: bool,
    num_epochs: int | None,
    seed: int | None,
    input_context: tf.distribute.InputContext | None,
    keep: Callable[[tf.data.Dataset], tf.data.Dataset] | None,
) -> tf.data.Dataset:
    """Interleaves files, takes this pipeline's part, shuffles and repeats.

    Subsets (every n-th record; this pipeline's records, where there are fewer files than
    pipelines) are taken before anything is shuffled, so that they are the same in every epoch.
    """
    pipelines = input_context.num_input_pipelines if input_context else 1
    pipeline_id = input_context.input_pipeline_id if input_context else 0
    takes_whole_files = len(files) >= pipelines
    has_subsets = reader.sample_1_of_n_examples > 1 or not takes_whole_files
    names = tf.data.Dataset.from_tensor_slices(list(files))
    if takes_whole_files:
        names = names.shard(pipelines, pipeline_id)
    if shuffle and not has_subsets:
        names = names.shuffle(reader.filenames_shuffle_buffer_size, seed=seed)
    # Not in parallel: that would keep `read_block_length` records of every file in memory (0.8 GB
    # of COCO's), and reading is fast beside decoding.
    records = names.interleave(
        lambda name: tf.data.TFRecordDataset(name, buffer_size=_READ_BUFFER),
        cycle_length=max(1, min(reader.num_readers, len(files))),
        block_length=max(1, reader.read_block_length),
    )
    if not takes_whole_files:
        records = records.shard(pipelines, pipeline_id)
    if reader.sample_1_of_n_examples > 1:
        records = records.shard(reader.sample_1_of_n_examples, 0)
    if keep is not None:
        records = keep(records)
    if shuffle:
        records = records.shuffle(max(1, reader.shuffle_buffer_size), seed=seed)
    return records.repeat(num_epochs)


def _matching_files(pattern: str, where: str) -> list[str]:
    files = sorted(tf.io.gfile.glob(pattern))
    if not files:
        raise ValueError(
            f'{where}.tf_record_input_reader.input_path matches no file. Received: {pattern!r}.'
        )
    return files
