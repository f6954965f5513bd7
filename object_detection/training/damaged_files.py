"""Tells which input file is damaged, which TensorFlow's error does not."""

import contextlib
import os
import re
from collections.abc import Iterator

import tensorflow as tf

from object_detection.builders import coco_records_builder
from object_detection.config.errors import ConfigError
from object_detection.data import record_cache
from object_detection.data.coco_records import ImageFileError
from object_detection.protos.input_reader_pb2 import InputReader

# How TensorFlow's error begins where Python code of the input pipeline raised this one.
_IMAGE_FILE_ERROR = re.compile(rf'{ImageFileError.__name__}: (.*)')


@contextlib.contextmanager
def named(reader: InputReader, where: str) -> Iterator[None]:
    """Turns TensorFlow's error over a damaged record or image into one that names the files.

    Args:
      reader: whose records or images are read in the block.
      where: its path in the config, e.g. 'train_input_reader'.

    Raises:
      ConfigError: naming the field and the damaged files. They are looked for only then, by
        reading all files once more.
    """
    try:
        yield
    except tf.errors.DataLossError as error:
        files = [name for name in _read_files(reader) if _is_damaged(name)]
        raise ConfigError(
            f'{where}.tf_record_input_reader.input_path: expected whole TFRecord files. Received '
            f'damaged or cut-off ones: {", ".join(files) or "none of them now"} ({error.message}).'
        ) from error
    except tf.errors.InvalidArgumentError as error:
        damaged = _damaged_image(reader, where, error)
        if damaged is None:
            raise
        raise ConfigError(
            f'{where}.coco_input_reader.image_dir: expected whole images. Received: {damaged}.'
        ) from error


def _read_files(reader: InputReader) -> Iterator[str]:
    """The files of records, and their copies on disk."""
    folder = reader.record_cache.directory
    for pattern in reader.tf_record_input_reader.input_path:
        for name in sorted(tf.io.gfile.glob(pattern)):
            yield name
            copy = os.path.join(folder, record_cache.look_at(name).copy_name)
            if folder and os.path.exists(copy):
                yield copy


def _is_damaged(name: str) -> bool:
    try:
        for _ in tf.data.TFRecordDataset(name):
            pass
    except tf.errors.DataLossError:
        return True
    return False


def _damaged_image(reader: InputReader, where: str, error: tf.errors.OpError) -> str | None:
    """What is wrong with the image that the error is about; None if it is about something else."""
    if not reader.HasField('coco_input_reader'):
        return None
    match = _IMAGE_FILE_ERROR.search(error.message)
    if match:
        return match[1]
    if 'DecodeImage' not in error.message:
        return None
    found = (records.first_damaged_image() for records in coco_records_builder.build(reader, where))
    return next(filter(None, found), None)
