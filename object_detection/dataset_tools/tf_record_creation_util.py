"""Opens sets of TFRecord files for scripts that write records of their own.

The name and the function are those of the reference system, whose scripts pass `contextlib2`'s
`ExitStack`; that of the standard library does as well:

    with contextlib2.ExitStack() as close_stack:
        writers = open_sharded_output_tfrecords(close_stack, 'data/train.record', 10)
        for index, example in enumerate(examples):
            writers[index % 10].write(example.SerializeToString())
"""

import contextlib

import contextlib2
import tensorflow as tf

from object_detection.errors import UserError


def open_sharded_output_tfrecords(
    exit_stack: contextlib.ExitStack | contextlib2.ExitStack, base_path: str, num_shards: int
) -> list[tf.io.TFRecordWriter]:
    """Opens the files BASE_PATH-00000-of-00010 and so on for writing, and empties those there are.

    Args:
      exit_stack: closes the files when it is left, whatever happens in it.
      base_path: beginning of the paths of all files; their folder must exist.
      num_shards: number of files, at least 1.

    Returns:
      One writer a file, in the order of their names; `write` takes a serialized example.

    Raises:
      ValueError: if `num_shards` is less than 1.
    """
    if num_shards < 1:
        raise UserError(
            f'open_sharded_output_tfrecords: num_shards must be at least 1. Received: {num_shards}.'
        )
    return [
        exit_stack.enter_context(
            tf.io.TFRecordWriter(f'{base_path}-{shard:05d}-of-{num_shards:05d}')
        )
        for shard in range(num_shards)
    ]
