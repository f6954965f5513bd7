"""Tells which TFRecord file is damaged, which TensorFlow's error does not."""

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from object_detection.config.errors import ConfigError
from object_detection.protos.input_reader_pb2 import InputReader


@contextlib.contextmanager
def named(reader: InputReader, where: str) -> Iterator[None]:
    """Turns TensorFlow's error over a damaged record into one that names the files.

    Args:
      reader: whose records are read in the block.
      where: its path in the config, e.g. 'train_input_reader'.

    Raises:
      ConfigError: naming the field and the damaged files. They are looked for only then, by
        reading all files once more.
    """
    try:
        yield
    except tf.errors.DataLossError as error:
        files = [
            name
            for pattern in reader.tf_record_input_reader.input_path
            for name in sorted(tf.io.gfile.glob(pattern))
            if _is_damaged(name)
        ]
        raise ConfigError(
            f'{where}.tf_record_input_reader.input_path: expected whole TFRecord files. Received '
            f'damaged or cut-off ones: {", ".join(files) or "none of them now"} ({error.message}).'
        ) from error


def _is_damaged(name: str) -> bool:
    try:
        for _ in tf.data.TFRecordDataset(name):
            pass
    except tf.errors.DataLossError:
        return True
    return False
