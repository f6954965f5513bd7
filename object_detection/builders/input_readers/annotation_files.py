"""Reads images and their annotation files, of the readers in `rules.ANNOTATION_READERS`."""

import functools
import hashlib
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from object_detection.builders.input_readers import repeat_factors, rules
from object_detection.data import label_map, tf_examples
from object_detection.data.formats import formats
from object_detection.data.formats import records as file_records
from object_detection.data.formats.records import ImageRecords
from object_detection.data.formats.voc import VocSource
from object_detection.data.formats.yolo import YoloSource
from object_detection.data.pipeline import bad_records, record_order, repeats
from object_detection.data.pipeline.record_files import Record
from object_detection.data.python_calls import PythonCalls
from object_detection.errors import UserError, expected, raise_if_any
from object_detection.protos import input_reader_pb2
from object_detection.system import file_errors

_log = logging.getLogger(__name__)
_calls = PythonCalls()


def build(reader: input_reader_pb2.InputReader, where: str) -> list[ImageRecords]:
    """Opens the data sets of a reader, in their order; those already read are kept.

    Raises:
      ValueError: if the reader breaks a rule, or a file cannot be read or used.
    """
    raise_if_any(rules.check(reader, where))
    records = []
    for i, load in enumerate(_loaders(reader, where)):
        try:
            records.append(load())
        except (ValueError, OSError) as error:
            text = file_errors.describe(error, ())
            raise UserError(f'{fields(reader, where, i).annotations}: {text}') from error
        _check_keypoints(reader, where, records[-1])
        _check_contents(reader, where, records[-1])
    return records


class Fields(NamedTuple):
    """The paths in a config of the fields that name the annotations and images of a data set."""

    annotations: str
    images: str


def fields(reader: input_reader_pb2.InputReader, where: str, index: int | None = None) -> Fields:
    """Returns the fields of a reader's data set of this index; None for those of all data sets."""
    kind = reader.WhichOneof('input_reader')
    names = {
        'coco_input_reader': ('annotation_file', 'image_dir'),
        'voc_input_reader': ('data_dir', 'data_dir'),
        'yolo_input_reader': ('data', 'data'),
        'annotation_input_reader': ('options', 'options'),
    }[kind]
    number = '' if index is None or kind != 'coco_input_reader' else f'[{index}]'
    return Fields(*(f'{where}.{kind}.{name}{number}' for name in names))


def described(reader: input_reader_pb2.InputReader) -> Iterator[str]:
    """Yields a line for each data set without a file of all annotations: its images."""
    for records in build(reader, 'input_reader'):
        digest = hashlib.sha256()
        for image_id in records.image_ids():
            digest.update(tf_examples.encoded(f'{image_id}\n'))
        name = os.path.basename(os.path.normpath(records.path))
        yield f'{name}, {len(records)} images, sha256 {digest.hexdigest()[:16]}'


def _loaders(reader: input_reader_pb2.InputReader, where: str) -> list[Callable[[], ImageRecords]]:
    """Returns a function for each data set of a reader, which opens it."""
    limit = reader.max_image_pixels or sys.maxsize
    masks = reader.load_instance_masks
    if reader.HasField('voc_input_reader'):
        config = reader.voc_input_reader
        source, path = (
            VocSource(
                config.data_dir,
                config.year,
                config.set,
                config.annotations_dir,
                config.images_dir,
                config.ignore_difficult,
                masks,
                max_pixels=limit,
            ),
            config.data_dir,
        )
        return [functools.partial(file_records.load, source, path, reader.label_map_path)]
    if reader.HasField('yolo_input_reader'):
        path = reader.yolo_input_reader.data
        source = YoloSource(path, reader.yolo_input_reader.set, masks, max_pixels=limit)
        return [functools.partial(file_records.load, source, path, reader.label_map_path)]
    if reader.HasField('annotation_input_reader'):
        config = reader.annotation_input_reader
        field = f'{where}.annotation_input_reader'
        source = formats.source_of(
            config.format, config.options, field, masks=masks, max_pixels=limit
        )
        first = next(each for each in formats.fields(source) if each.metadata['required'])
        path = getattr(source, first.name)
        return [functools.partial(file_records.load, source, path, reader.label_map_path)]
    options = {
        'by_text': bool(reader.label_map_path),
        'label_map_path': reader.label_map_path,
        'masks': masks,
        'keypoints': reader.num_keypoints > 0,
        'max_pixels': limit,
    }
    config = reader.coco_input_reader
    return [
        functools.partial(file_records.load_coco, folder, file, **options)
        for folder, file in zip(config.image_dir, config.annotation_file, strict=True)
    ]


def read(
    reader: input_reader_pb2.InputReader,
    where: str,
    *,
    shuffle: bool,
    num_epochs: int | None,
    seed: int,
    input_context: tf.distribute.InputContext | None,
    leave_out_empty: bool,
    repeats_rare: bool = False,
    start: np.ndarray,
) -> tf.data.Dataset:
    """Builds the serialized examples that records of the same images would contain.

    Images are read when they are needed, in parallel; the shuffle buffer contains only their
    numbers.

    Args:
      reader: a reader of `rules.ANNOTATION_READERS`.
      where: path of the reader in the config.
      shuffle: whether the order is random.
      num_epochs: number of epochs; None repeats for ever.
      seed: seed of the order, which also depends on the epoch and the input pipeline.
      input_context: the part of the images that this input pipeline reads.
      leave_out_empty: whether images without a usable object are left out.
      repeats_rare: whether images are repeated as `repeat_factor_sampling` says.
      start: int64 [1 + W, R], the cursors of the first images, see `record_order`.

    Returns:
      (cursors int64 [2, R], `record_files.Record`): each example with the cursors before and
      after it. An image that cannot be read is a record that cannot be decoded.

    Raises:
      ValueError: in the cases of `build`, or if `sample_from_datasets_weights` does not have one
        weight per file.
    """
    sources = build(reader, where)
    numbers = [_numbers(len(source), reader, input_context) for source in sources]
    weights = list(reader.sample_from_datasets_weights)
    if weights and len(weights) != len(sources):
        raise UserError(
            f'{where}.sample_from_datasets_weights needs one weight for each of the '
            f'{len(sources)} entries of {fields(reader, where).annotations.rpartition(".")[2]}. '
            f'Received: {weights}.'
        )
    if not weights:
        # One set: parts are cut out of the whole.
        lengths = [len(source) for source in sources]
        offsets = np.cumsum([0, *lengths])
        everything = _numbers(int(offsets[-1]), reader, input_context)
        numbers = [
            everything[(everything >= first) & (everything < first + length)] - first
            for first, length in zip(offsets, lengths, strict=False)
        ]
    usable = [np.ones(len(rows), bool) for rows in numbers]
    if leave_out_empty:
        usable = _usable(sources, numbers, reader, where)
    factors = [np.ones(len(source), np.float32) for source in sources]
    if repeats_rare:
        factors = repeat_factors.of_images(reader, where, sources)
    # Images that are left out keep their position, as records do.
    positions = [
        np.stack([np.full_like(rows, i), rows, is_usable], axis=1)  # [n, 3]
        for i, (rows, is_usable) in enumerate(zip(numbers, usable, strict=True))
    ]
    pipeline_id = input_context.input_pipeline_id if input_context else 0
    key = functools.partial(record_order.key_of, seed, pipeline_id)

    of_rows = [of_source[rows] for of_source, rows in zip(factors, numbers, strict=True)]
    order_of = functools.partial(_in_order, reader, shuffle, num_epochs)
    if weights:
        sets = [
            functools.partial(order_of, *each, key(index))
            for index, each in enumerate(zip(positions, of_rows, strict=True))
        ]
        order = record_order.mixture(sets, weights, key=key(len(sets)), start=start)
    else:
        whole = np.concatenate(positions), np.concatenate(of_rows)
        order = record_order.alone(functools.partial(order_of, *whole, key(0)), start)

    def example(position: np.ndarray) -> tuple[bytes, bytes]:
        _calls.begin()
        records, number = sources[position[0]], int(position[1])
        try:
            return records.example(number), tf_examples.encoded(records.file_name(number))
        except file_records.ImageFileError as error:
            marker = bad_records.marker('image_file', str(error))
            return marker, tf_examples.encoded(records.file_name(number))

    def load(cursors: tf.Tensor, position: tf.Tensor) -> tuple[tf.Tensor, Record]:
        dtypes = [tf.string, tf.string]
        serialized, name = tf.numpy_function(example, [position], dtypes, stateful=False)
        record = {'serialized': tf.ensure_shape(serialized, []), 'file': tf.ensure_shape(name, [])}
        return cursors, {**record, 'offset': position[1]}

    return order.map(load, num_parallel_calls=tf.data.AUTOTUNE)


def _numbers(
    count: int,
    reader: input_reader_pb2.InputReader,
    input_context: tf.distribute.InputContext | None,
) -> np.ndarray:
    """Returns which of `count` images this pipeline reads, the same ones in every epoch."""
    numbers = np.arange(count)
    if input_context is not None:
        numbers = numbers[input_context.input_pipeline_id :: input_context.num_input_pipelines]
    return numbers[:: max(1, reader.sample_1_of_n_examples)]


def _in_order(
    reader: input_reader_pb2.InputReader,
    shuffle: bool,
    num_epochs: int | None,
    rows: np.ndarray,
    factors: np.ndarray,
    key: int,
    start: int,
) -> tf.data.Dataset:
    """(position, row) of all passes; all rows are shuffled unless `shuffle_buffer_size` is set.

    Args:
      reader, shuffle, num_epochs: see `read`.
      rows: int64 [n, 3]: the file, the image's number in it, and whether it is wanted.
      factors: float32 [n], how often a pass has each row on average.
      key: key of the order.
      start: position of the first row.
    """
    size = int(np.ceil(factors).sum())
    if reader.HasField('shuffle_buffer_size'):
        size = reader.shuffle_buffer_size

    def read_epoch(seeds: tf.Tensor | None) -> tf.data.Dataset:
        repeated = rows
        if seeds is not None and (factors > 1).any():
            repeated = tf.repeat(rows, repeats.times(factors, seeds), axis=0)
        dataset = tf.data.Dataset.from_tensor_slices(repeated)
        if not shuffle or seeds is None:
            return dataset
        return record_order.shuffle(dataset, size, seeds[1])

    def keep(placed: tf.data.Dataset, is_whole: tf.Tensor) -> tf.data.Dataset:
        del is_whole
        return placed.filter(lambda position, row: row[2] > 0)

    return record_order.epochs(
        read_epoch,
        key=key,
        start=start,
        num_epochs=num_epochs,
        keep=None if rows[:, 2].all() else keep,
        wanted=lambda rows: rows.filter(lambda row: row[2] > 0),
    )


def _usable(
    sources: Sequence[ImageRecords],
    numbers: Sequence[np.ndarray],
    reader: input_reader_pb2.InputReader,
    where: str,
) -> list[np.ndarray]:
    known = None
    if reader.label_map_path:
        texts = label_map.load(reader.label_map_path).text_to_id
        known = {text for text, class_id in texts.items() if class_id > 0}
    usable = [
        source.usable(rows, known=known, skip_crowd=reader.skip_crowd)
        for source, rows in zip(sources, numbers, strict=True)
    ]
    _log.info(
        '%s.filter_empty_images: %d images without a usable object are left out of each '
        'pass over the data',
        where,
        sum(map(len, numbers)) - sum(int(each.sum()) for each in usable),
    )
    return usable


def _check_contents(
    reader: input_reader_pb2.InputReader, where: str, records: ImageRecords
) -> None:
    provided = records.data.reader.provided
    if provided.clips:
        raise UserError(
            f'{where}.annotation_input_reader: {records.path} has clips, which are read from '
            'records only; without option `clips` of cvat, or with option `examples` of ava, their '
            'frames are read.'
        )
    if reader.load_instance_masks and not provided.masks:
        raise expected(f'{where}.load_instance_masks', f'false, as {records.path} has none', 'true')


def _check_keypoints(
    reader: input_reader_pb2.InputReader, where: str, records: ImageRecords
) -> None:
    if not reader.num_keypoints:
        return
    names = records.data.keypoints.names if records.data.keypoints else ()
    if len(names) != reader.num_keypoints:
        raise expected(
            f'{where}.num_keypoints', f'{len(names)}, those of {records.path}', reader.num_keypoints
        )
