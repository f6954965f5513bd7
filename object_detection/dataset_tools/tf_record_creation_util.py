"""Opens sets of TFRecord files for users' scripts that write records.

Module and function have the same names as in the reference system, whose scripts pass the
`ExitStack` of `contextlib2`; the one of the standard library works too:

    with contextlib2.ExitStack() as close_stack:
        writers = open_sharded_output_tfrecords(close_stack, 'data/train.record', 10)
        for index, example in enumerate(examples):
            writers[index % 10].write(example.SerializeToString())
"""

import contextlib

import contextlib2
import tensorflow as tf

from object_detection.errors import expected


def open_sharded_output_tfrecords(
    exit_stack: contextlib.ExitStack | contextlib2.ExitStack, base_path: str, num_shards: int
) -> list[tf.io.TFRecordWriter]:
    """Opens the files BASE_PATH-00000-of-00010 and so on for writing; existing files are truncated.

    Args:
      exit_stack: context that closes the files.
      base_path: prefix of the paths of all files; their folder must exist.
      num_shards: number of files, at least 1.

    Returns:
      One writer per file, in the order of their names; `write` takes a serialized example.

    Raises:
      ValueError: if `num_shards` is less than 1.
    """
    if num_shards < 1:
        raise expected('open_sharded_output_tfrecords', 'num_shards of at least 1', num_shards)
    return [
        exit_stack.enter_context(
            tf.io.TFRecordWriter(f'{base_path}-{shard:05d}-of-{num_shards:05d}')
        )
        for shard in range(num_shards)
    ]
