"""Reads the images and annotation files of a `coco_input_reader`."""

import logging
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from object_detection.data import coco_points, coco_records, label_map
from object_detection.data.coco_records import CocoRecords
from object_detection.protos import input_reader_pb2

_log = logging.getLogger(__name__)


def build(reader: input_reader_pb2.InputReader, where: str) -> list[CocoRecords]:
    """Reads the annotation files of a reader, in their order; those already read are kept.

    Raises:
      ValueError: if there is no folder for each file, or a file cannot be read or used.
    """
    config = reader.coco_input_reader
    folders, files = list(config.image_dir), list(config.annotation_file)
    if not files or len(folders) != len(files):
        raise ValueError(
            f'{where}.coco_input_reader: expected one image_dir for each annotation_file. '
            f'Received: {len(folders)} image_dir and {len(files)} annotation_file.'
        )
    records = []
    for i, (folder, file) in enumerate(zip(folders, files, strict=True)):
        try:
            records.append(
                coco_records.load(
                    folder,
                    file,
                    by_text=bool(reader.label_map_path),
                    masks=reader.load_instance_masks,
                    keypoints=reader.num_keypoints > 0,
                )
            )
        except ValueError as error:
            raise ValueError(f'{where}.coco_input_reader.annotation_file[{i}]: {error}') from error
        _check_keypoints(reader, where, records[-1])
    return records


def read(
    reader: input_reader_pb2.InputReader,
    where: str,
    *,
    shuffle: bool,
    num_epochs: int | None,
    seed: int | None,
    input_context: tf.distribute.InputContext | None,
    leave_out_empty: bool,
) -> tf.data.Dataset:
    """Makes the serialized examples that records of the same images would hold.

    Images are read as they are needed, in parallel; what waits in the shuffle buffer is only their
    numbers.

    Args:
      reader: with a `coco_input_reader`.
      where: its path in the config.
      shuffle: whether the order is drawn.
      num_epochs: None repeats for ever.
      seed: of the order.
      input_context: which part of the images this input pipeline reads.
      leave_out_empty: whether images without an object that can be used are left out.

    Raises:
      ValueError: as `build`; or if `sample_from_datasets_weights` has not one weight a file.
    """
    sources = build(reader, where)
    numbers = [_numbers(len(source), reader, input_context) for source in sources]
    weights = list(reader.sample_from_datasets_weights)
    if weights and len(weights) != len(sources):
        raise ValueError(
            f'{where}.sample_from_datasets_weights needs one weight for each of the '
            f'{len(sources)} entries of annotation_file. Received: {weights}.'
        )
    if not weights:
        # One set: parts are cut out of the whole.
        lengths = [len(source) for source in sources]
        offsets = np.cumsum([0, *lengths])
        everything = _numbers(int(offsets[-1]), reader, input_context)
        numbers = [
            everything[(everything >= start) & (everything < start + length)] - start
            for start, length in zip(offsets, lengths, strict=False)
        ]
    if leave_out_empty:
        numbers = _without_empty(sources, numbers, reader, where)
    places = [
        np.stack([np.full_like(rows, i), rows], axis=1)  # [n, 2]
        for i, rows in enumerate(numbers)
    ]
    sets = places if weights else [np.concatenate(places)]
    datasets = [
        _in_order(rows, reader, shuffle=shuffle, seed=seed).repeat(num_epochs) for rows in sets
    ]
    order = (
        tf.data.Dataset.sample_from_datasets(datasets, weights, seed=seed)
        if weights
        else datasets[0]
    )

    def example(place: np.ndarray) -> bytes:
        return sources[place[0]].example(int(place[1]))

    def load(place: tf.Tensor) -> tf.Tensor:
        return tf.ensure_shape(tf.numpy_function(example, [place], tf.string), [])

    return order.map(load, num_parallel_calls=tf.data.AUTOTUNE)


def _numbers(
    count: int,
    reader: input_reader_pb2.InputReader,
    input_context: tf.distribute.InputContext | None,
) -> np.ndarray:
    """The images of `count` that this pipeline reads; the same ones in every pass."""
    numbers = np.arange(count)
    if input_context is not None:
        numbers = numbers[input_context.input_pipeline_id :: input_context.num_input_pipelines]
    return numbers[:: max(1, reader.sample_1_of_n_examples)]


def _in_order(
    rows: np.ndarray, reader: input_reader_pb2.InputReader, *, shuffle: bool, seed: int | None
) -> tf.data.Dataset:
    """One pass over `rows`; all of them are shuffled unless `shuffle_buffer_size` is set."""
    dataset = tf.data.Dataset.from_tensor_slices(rows)
    if not shuffle:
        return dataset
    size = reader.shuffle_buffer_size if reader.HasField('shuffle_buffer_size') else len(rows)
    return dataset.shuffle(max(1, size), seed=seed)


def _without_empty(
    sources: Sequence[CocoRecords],
    numbers: Sequence[np.ndarray],
    reader: input_reader_pb2.InputReader,
    where: str,
) -> list[np.ndarray]:
    known = None
    if reader.label_map_path:
        texts = label_map.load(reader.label_map_path).text_to_id
        known = {text for text, class_id in texts.items() if class_id > 0}
    kept = [
        rows[source.usable(rows, known=known, skip_crowd=reader.skip_crowd)]
        for source, rows in zip(sources, numbers, strict=True)
    ]
    _log.info(
        '%s.filter_empty_images: %d images without a usable object are left out of each '
        'pass over the data',
        where,
        sum(map(len, numbers)) - sum(map(len, kept)),
    )
    return kept


def _check_keypoints(
    reader: input_reader_pb2.InputReader, where: str, records: CocoRecords
) -> None:
    if not reader.num_keypoints:
        return
    names = coco_points.keypoint_layout(records.index.file).names
    if len(names) != reader.num_keypoints:
        raise ValueError(
            f'{where}.num_keypoints: expected {len(names)}, the keypoints of the categories of '
            f'{records.index.path}. Received: {reader.num_keypoints}.'
        )
