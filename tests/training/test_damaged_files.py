import pytest
import tensorflow as tf

from object_detection.config.errors import ConfigError
from object_detection.protos.input_reader_pb2 import InputReader
from object_detection.training import damaged_files


def read_all(pattern):
    for _ in tf.data.TFRecordDataset(sorted(tf.io.gfile.glob(pattern))):
        pass


def test_the_damaged_file_is_named(tmp_path):
    for shard in range(2):
        with tf.io.TFRecordWriter(str(tmp_path / f'train-{shard}')) as writer:
            writer.write(b'record' * 100)
    broken = tmp_path / 'train-1'
    broken.write_bytes(broken.read_bytes()[:-50])
    pattern = str(tmp_path / 'train-*')
    reader = InputReader()
    reader.tf_record_input_reader.input_path.append(pattern)
    with (
        pytest.raises(ConfigError, match=r'^train_input_reader\..*cut-off ones: .*train-1 \('),
        damaged_files.named(reader, 'train_input_reader'),
    ):
        read_all(pattern)


def test_nothing_else_is_touched():
    with pytest.raises(KeyError), damaged_files.named(InputReader(), 'train_input_reader'):
        raise KeyError('other')
