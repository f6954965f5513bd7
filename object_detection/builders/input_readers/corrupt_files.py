"""Finds the corrupt input file or record, which the error of TensorFlow does not name."""

import contextlib
import logging
import os
import re
from collections.abc import Iterator

import tensorflow as tf

from object_detection.builders.input_readers import examples as examples_builder
from object_detection.core import tf_example_keys as keys
from object_detection.data import tf_record_files
from object_detection.data.image_item import TOO_MANY_PIXELS
from object_detection.data.pipeline import record_cache
from object_detection.data.pipeline.bad_records import IMAGE_ERRORS, TooManyBadRecordsError
from object_detection.data.pipeline.bad_records import plain_message as _plain
from object_detection.errors import ConfigError
from object_detection.protos.input_reader_pb2 import InputReader

# Errors that are about an image of a record.
_DECODES_IMAGES = re.compile(f'{IMAGE_ERRORS}|{re.escape(TOO_MANY_PIXELS)}')
# How TensorFlow's error begins where there were too many bad records; a traceback follows.
_TOO_MANY = re.compile(rf'{TooManyBadRecordsError.__name__}: (.*?)\n(?:Traceback|\s*$)', re.DOTALL)

_log = logging.getLogger(__name__)


@contextlib.contextmanager
def named(reader: InputReader, where: str) -> Iterator[None]:
    """Converts TensorFlow's error about a corrupt record or image to one that names the files.

    Args:
      reader: the reader whose records or images are read in the block.
      where: path of the reader in the config, e.g. 'train_input_reader'.

    Raises:
      ConfigError: names the field and the corrupt files or record. Only after an error are all
        files read again to find them; TensorFlow's error is logged before.
      TooManyBadRecordsError: if the readers have skipped too many records.
    """
    try:
        yield
    except tf.errors.DataLossError as error:
        _log_search(where, error)
        damage = [found for name in _read_files(reader) if (found := _damage(name))]
        raise ConfigError(
            f'{where}.tf_record_input_reader.input_path: expected whole TFRecord files. Received '
            f'damaged or cut-off ones: {"; ".join(damage) or "none of them now"} '
            f'({_plain(error.message)}).'
        ) from error
    except tf.errors.InvalidArgumentError as error:
        if match := _TOO_MANY.search(error.message):
            raise TooManyBadRecordsError(match[1]) from None
        # Only a data service's records get here; other readers skip those that they cannot decode.
        damaged = _corrupt_record(reader, where, error)
        if damaged is None:
            raise
        raise ConfigError.expected(
            f'{where}.tf_record_input_reader.input_path', 'records that can be decoded', damaged
        ) from error


def _log_search(where: str, error: tf.errors.OpError) -> None:
    _log.error(
        '%s: %s. The files are read once more to find where that is.', where, _plain(error.message)
    )


def _read_files(reader: InputReader) -> Iterator[str]:
    """Yields the files of records and their copies on disk."""
    folder = reader.record_cache.directory
    for pattern in reader.tf_record_input_reader.input_path:
        for name in sorted(tf.io.gfile.glob(pattern)):
            yield name
            copy = os.path.join(folder, record_cache.file_state(name).copy_name)
            if folder and os.path.exists(copy):
                yield copy


def _damage(name: str) -> str | None:
    """Returns where a file is corrupt; None if it is intact."""
    try:
        for _ in tf_record_files.records(name):
            pass
    except tf_record_files.CorruptFileError as error:
        return str(error)
    return None


def _corrupt_record(reader: InputReader, where: str, error: tf.errors.OpError) -> str | None:
    """Describes the record that cannot be decoded; None if the error has another cause."""
    if not _DECODES_IMAGES.search(error.message):
        return None
    _log_search(where, error)
    decode = examples_builder.decoder(reader)
    for name in _read_files(reader):
        for number, record in enumerate(tf_record_files.records(name)):
            try:
                decode(tf.constant(record))
            except tf.errors.InvalidArgumentError as found:
                source_id = _source_id(record)
                return (
                    f'record {number} of {name} (source id {source_id!r}): {_plain(found.message)}'
                )
    return None


def _source_id(record: bytes) -> str:
    features = tf.train.Example.FromString(record).features.feature
    values = features[keys.SOURCE_ID].bytes_list.value
    return values[0].decode(errors='replace') if values else ''
