"""Reads the images and annotation files of a `coco_input_reader`."""

import functools
import logging
import sys
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from object_detection.builders.input_readers import rules
from object_detection.data import label_map
from object_detection.data.coco import keypoints as coco_keypoints
from object_detection.data.coco import records as coco_records
from object_detection.data.coco.records import CocoRecords
from object_detection.data.pipeline import record_order
from object_detection.data.python_calls import PythonCalls
from object_detection.errors import UserError, raise_if_any
from object_detection.protos import input_reader_pb2

_log = logging.getLogger(__name__)
_calls = PythonCalls()


def build(reader: input_reader_pb2.InputReader, where: str) -> list[CocoRecords]:
    """Reads the annotation files of a reader, in their order; those already read are kept.

    Raises:
      ValueError: if the reader breaks a rule, or a file cannot be read or used.
    """
    raise_if_any(rules.check(reader, where))
    config = reader.coco_input_reader
    records = []
    for i, (folder, file) in enumerate(zip(config.image_dir, config.annotation_file, strict=True)):
        try:
            records.append(
                coco_records.load(
                    folder,
                    file,
                    by_text=bool(reader.label_map_path),
                    masks=reader.load_instance_masks,
                    keypoints=reader.num_keypoints > 0,
                    max_pixels=reader.max_image_pixels or sys.maxsize,
                )
            )
        except ValueError as error:
            raise UserError(f'{where}.coco_input_reader.annotation_file[{i}]: {error}') from error
        _check_keypoints(reader, where, records[-1])
    return records


def read(
    reader: input_reader_pb2.InputReader,
    where: str,
    *,
    shuffle: bool,
    num_epochs: int | None,
    seed: int,
    input_context: tf.distribute.InputContext | None,
    leave_out_empty: bool,
    start: np.ndarray,
) -> tf.data.Dataset:
    """Builds the serialized examples that records of the same images would contain.

    Images are read when they are needed, in parallel; the shuffle buffer contains only their
    numbers.

    Args:
      reader: a reader with a `coco_input_reader`.
      where: path of the reader in the config.
      shuffle: whether the order is random.
      num_epochs: number of epochs; None repeats for ever.
      seed: seed of the order, which also depends on the epoch and the input pipeline.
      input_context: the part of the images that this input pipeline reads.
      leave_out_empty: whether images without a usable object are left out.
      start: int64 [1 + W, R], the cursors of the first images, see `record_order`.

    Returns:
      (cursors int64 [2, R], string): each example with the cursors before and after it.

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
            f'{len(sources)} entries of annotation_file. Received: {weights}.'
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
    # Images that are left out keep their position, as records do.
    positions = [
        np.stack([np.full_like(rows, i), rows, is_usable], axis=1)  # [n, 3]
        for i, (rows, is_usable) in enumerate(zip(numbers, usable, strict=True))
    ]
    pipeline_id = input_context.input_pipeline_id if input_context else 0
    key = functools.partial(record_order.key_of, seed, pipeline_id)

    def source(rows: np.ndarray, index: int):
        return functools.partial(_in_order, rows, reader, shuffle, num_epochs, key(index))

    if weights:
        sets = [source(rows, index) for index, rows in enumerate(positions)]
        order = record_order.mixture(sets, weights, key=key(len(sets)), start=start)
    else:
        order = record_order.alone(source(np.concatenate(positions), 0), start)

    def example(position: np.ndarray) -> bytes:
        _calls.begin()
        return sources[position[0]].example(int(position[1]))

    def load(cursors: tf.Tensor, position: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return cursors, tf.ensure_shape(
            tf.numpy_function(example, [position], tf.string, stateful=False), []
        )

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
    rows: np.ndarray,
    reader: input_reader_pb2.InputReader,
    shuffle: bool,
    num_epochs: int | None,
    key: int,
    start: int,
) -> tf.data.Dataset:
    """(position, row) of all passes; all rows are shuffled unless `shuffle_buffer_size` is set.

    Args:
      rows: int64 [n, 3]: the file, the image's number in it, and whether it is wanted.
      reader, shuffle, num_epochs: see `read`.
      key: key of the order.
      start: position of the first row.
    """
    dataset = tf.data.Dataset.from_tensor_slices(rows)
    size = reader.shuffle_buffer_size if reader.HasField('shuffle_buffer_size') else len(rows)

    def read_epoch(seeds: tf.Tensor | None) -> tf.data.Dataset:
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
        is_usable=lambda row: row[2] > 0,
    )


def _usable(
    sources: Sequence[CocoRecords],
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


def _check_keypoints(
    reader: input_reader_pb2.InputReader, where: str, records: CocoRecords
) -> None:
    if not reader.num_keypoints:
        return
    names = coco_keypoints.keypoint_layout(records.index.file).names
    if len(names) != reader.num_keypoints:
        raise UserError(
            f'{where}.num_keypoints: expected {len(names)}, the keypoints of the categories of '
            f'{records.index.path}. Received: {reader.num_keypoints}.'
        )
