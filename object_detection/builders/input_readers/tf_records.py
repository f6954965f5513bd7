"""Builds the datasets of serialized examples that an input reader describes."""

import functools
import hashlib
import logging
import os
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from object_detection.builders.input_readers import annotation_files, repeat_factors, rules
from object_detection.data import shard_names, tf_examples
from object_detection.data.pipeline import record_cache, record_files, record_order
from object_detection.data.pipeline.left_out import EmptyImageFilter
from object_detection.data.pipeline.repeats import RecordRepeats
from object_detection.errors import UserError, backslash_hint, expected
from object_detection.protos import input_reader_pb2

_log = logging.getLogger(__name__)

# Fields that the order of the records depends on, in addition to the files.
_ORDERING_FIELDS = (
    'shuffle',
    'shuffle_buffer_size',
    'filenames_shuffle_buffer_size',
    'sample_1_of_n_examples',
    'num_readers',
    'read_block_length',
    'sample_from_datasets_weights',
    'filter_empty_images',
    'skip_crowd',
    'aspect_ratio_buckets',
)


def read(
    reader: input_reader_pb2.InputReader,
    where: str,
    *,
    shuffle: bool,
    num_epochs: int | None,
    seed: int,
    input_context: tf.distribute.InputContext | None = None,
    empty: EmptyImageFilter | None = None,
    repeats_rare: bool = False,
    start: np.ndarray | None = None,
) -> tf.data.Dataset:
    """Reads the serialized examples of a reader's files; `num_epochs` None repeats for ever.

    The order of an epoch is a function of the seed, the epoch and the input pipeline.

    Args:
      reader: the reader.
      where: path of the reader in the config.
      shuffle: whether the order is random.
      num_epochs: number of epochs; None repeats for ever.
      seed: seed of the order.
      input_context: the part of the records that this input pipeline reads.
      empty: filter that leaves out images without a usable object.
      repeats_rare: whether images are repeated as `repeat_factor_sampling` says.
      start: int64 [1 + W, R], the cursors of the first records, see `record_order`; None starts at
        the beginning.

    Returns:
      (cursors int64 [2, R], `record_files.Record`): each record with the cursors before and after
      it. `record_files.fetch` completes it.

    Raises:
      ValueError: if an input path matches no file, or `sample_from_datasets_weights` does not
        have one weight per input path.
    """
    if start is None:
        start = np.zeros([1, cursor_size(reader)], np.int64)
    options = {'shuffle': shuffle, 'num_epochs': num_epochs, 'input_context': input_context}
    if rules.reads_annotations(reader):
        return annotation_files.read(
            reader,
            where,
            leave_out_empty=empty is not None,
            repeats_rare=repeats_rare,
            seed=seed,
            start=start,
            **options,
        )
    patterns = list(reader.tf_record_input_reader.input_path)
    files = [matching_files(pattern, where) for pattern in patterns]
    weights = list(reader.sample_from_datasets_weights)
    key = functools.partial(record_order.key_of, seed, pipeline_of(input_context)[0])
    all_files = sorted({name for names in files for name in names})
    repeats = repeat_factors.of_records(reader, where, all_files) if repeats_rare else None
    options |= {'empty': empty, 'repeats': repeats}

    def source(names: Sequence[str], index: int):
        return functools.partial(_read_files, names, reader, key(index), **options)

    if not weights:
        return record_order.alone(source(all_files, 0), start)
    if len(weights) != len(patterns):
        raise expected(
            f'{where}.sample_from_datasets_weights', f'{len(patterns)} (one an input_path)', weights
        )
    sources = [source(names, index) for index, names in enumerate(files)]
    return record_order.mixture(sources, weights, key=key(len(files)), start=start)


def cursor_size(reader: input_reader_pb2.InputReader) -> int:
    """Returns R, the size of a cursor of this reader; see `record_order`."""
    weights = reader.sample_from_datasets_weights
    return 1 + len(weights) if weights else 1


def fingerprint(reader: input_reader_pb2.InputReader, *, by_sizes: bool = True) -> int:
    """Returns a number that identifies everything that determines the order, except for the seed.

    Args:
      reader: the reader.
      by_sizes: whether the sizes of files count in addition to their names; folders do not count,
        so that they can be moved. False gives the number in checkpoints of earlier versions.
    """
    kind = reader.WhichOneof('input_reader')
    texts = [kind or '', *(f'{name}={getattr(reader, name)}' for name in _ORDERING_FIELDS)]
    texts += repeat_factors.described(reader)
    if kind == 'tf_record_input_reader':
        patterns = reader.tf_record_input_reader.input_path
        groups = [['|', *sorted(tf.io.gfile.glob(pattern))] for pattern in patterns]
        files = [name for group in groups for name in group]
    else:
        files = list(reader.coco_input_reader.annotation_file)
    if rules.reads_annotations(reader) and not files:
        texts += annotation_files.described(reader)
    texts += map(os.path.basename, files)
    if by_sizes:
        texts += [str(tf.io.gfile.stat(name).length) for name in files if name != '|']
    digest = hashlib.sha256(tf_examples.encoded('\n'.join(texts))).digest()
    return int.from_bytes(digest[:7], 'big')


def pipeline_of(input_context: tf.distribute.InputContext | None) -> tuple[int, int]:
    """Returns the index of this input pipeline and the number of input pipelines."""
    if input_context is None:
        return 0, 1
    return input_context.input_pipeline_id, input_context.num_input_pipelines


def _read_files(
    files: Sequence[str],
    reader: input_reader_pb2.InputReader,
    key: int,
    start: int,
    *,
    shuffle: bool,
    num_epochs: int | None,
    input_context: tf.distribute.InputContext | None,
    empty: EmptyImageFilter | None,
    repeats: RecordRepeats | None,
) -> tf.data.Dataset:
    """Interleaves files, takes this pipeline's part and shuffles, epoch after epoch.

    Subsets (every n-th record; this pipeline's records, where there are fewer files than
    pipelines) are taken before anything is shuffled, so that they are the same in every epoch.

    Args:
      files: names of the files.
      reader: the reader.
      key: key of the order.
      start: position of the first record.
      shuffle, num_epochs, input_context, empty: see `read`.
      repeats: what repeats the records of an epoch.

    Returns:
      (position, record).
    """
    pipeline_id, pipelines = pipeline_of(input_context)
    takes_whole_files = len(files) >= pipelines
    has_subsets = reader.sample_1_of_n_examples > 1 or not takes_whole_files
    if takes_whole_files:
        files = files[pipeline_id::pipelines]
    names = tf.data.Dataset.from_tensor_slices(_with_copies(files, reader))

    def read_epoch(seeds: tf.Tensor | None) -> tf.data.Dataset:
        shuffles = shuffle and seeds is not None
        ordered = names
        if shuffles and not has_subsets:
            size = reader.filenames_shuffle_buffer_size
            ordered = record_order.shuffle(names, size, seeds[0])
        # Not in parallel: that would keep `read_block_length` records of every file in memory (0.8
        # GB of COCO's), and reading is fast beside decoding.
        records = ordered.interleave(
            lambda name: record_files.read(_nearest(name)),
            cycle_length=max(1, min(reader.num_readers, len(files))),
            block_length=max(1, reader.read_block_length),
        )
        if not takes_whole_files:
            records = records.shard(pipelines, pipeline_id)
        if reader.sample_1_of_n_examples > 1:
            records = records.shard(reader.sample_1_of_n_examples, 0)
        if repeats is not None and seeds is not None:
            records = repeats(records, seeds[1])
        if shuffles:
            records = record_order.shuffle(records, reader.shuffle_buffer_size, seeds[1])
        return records

    wanted = {} if empty is None else {'keep': empty, 'wanted': empty.wanted}
    return record_order.epochs(read_epoch, key=key, start=start, num_epochs=num_epochs, **wanted)


def _with_copies(files: Sequence[str], reader: input_reader_pb2.InputReader) -> list[list[str]]:
    """Returns each file and, with a `record_cache`, its copy."""
    if not reader.HasField('record_cache'):
        return [[name] for name in files]
    if not record_cache.is_available():
        _log.warning('record_cache: this system has no locks of files; nothing is copied.')
        return [[name] for name in files]
    cache = record_cache.build_cache(files, reader.record_cache.directory)
    cache.start()
    return [list(pair) for pair in zip(files, cache.copies(), strict=True)]


def _nearest(names: tf.Tensor) -> tf.Tensor:
    """Returns the name of the file to read for an entry of `_with_copies`."""
    return names[0] if names.shape[0] == 1 else record_cache.choose(names[0], names[1])


def matching_files(pattern: str, where: str) -> list[str]:
    """Returns the files that match a pattern, sorted.

    Raises:
      ValueError: if there is no file, or a pattern with wildcards matches files of a set
        `PREFIX-00000-of-00010` ... that is incomplete, or that a conversion is replacing.
    """
    files = sorted(tf.io.gfile.glob(pattern))
    if not files:
        raise UserError(
            f'{where}.tf_record_input_reader.input_path matches no file{backslash_hint(pattern)}. '
            f'Received: {pattern!r}.'
        )
    problem = shard_names.problem(files, pattern, glob=tf.io.gfile.glob, exists=tf.io.gfile.exists)
    if problem:
        raise UserError(f'{where}.tf_record_input_reader.input_path: {problem}')
    return files
