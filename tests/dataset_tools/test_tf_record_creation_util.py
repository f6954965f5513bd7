import contextlib

import contextlib2
import pytest
import tensorflow as tf

from object_detection.dataset_tools import tf_record_creation_util
from tests import rows


@rows.parametrize('stack', [contextlib.ExitStack, contextlib2.ExitStack])
def test_files_have_the_reference_s_names_and_are_closed(tmp_path, stack):
    records = [f'record {index}'.encode() for index in range(25)]
    with stack() as close_stack:
        writers = tf_record_creation_util.open_sharded_output_tfrecords(
            close_stack, str(tmp_path / 'out.record'), 10
        )
        for index, record in enumerate(records):
            writers[index % 10].write(record)
    names = [f'out.record-0000{shard}-of-00010' for shard in range(10)]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    for shard, name in enumerate(names):
        dataset = tf.data.TFRecordDataset(str(tmp_path / name))
        assert list(dataset.as_numpy_iterator()) == records[shard::10]
    with pytest.raises(tf.errors.FailedPreconditionError):
        writers[0].write(b'after the end')


def test_files_are_closed_after_an_error(tmp_path):
    with contextlib.suppress(KeyError), contextlib2.ExitStack() as close_stack:
        (writer,) = tf_record_creation_util.open_sharded_output_tfrecords(
            close_stack, str(tmp_path / 'a'), 1
        )
        writer.write(b'kept')
        raise KeyError
    dataset = tf.data.TFRecordDataset(str(tmp_path / 'a-00000-of-00001'))
    assert list(dataset.as_numpy_iterator()) == [b'kept']


def test_a_set_has_a_file(tmp_path):
    with (
        contextlib.ExitStack() as stack,
        pytest.raises(ValueError, match=r'at least 1\. Received: 0'),
    ):
        tf_record_creation_util.open_sharded_output_tfrecords(stack, str(tmp_path / 'a'), 0)
