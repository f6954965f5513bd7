"""Counts the records of a job while it writes them."""

import contextlib
import os
import struct
import threading
from collections.abc import Callable, Iterator

from object_detection.data import tf_record_files
from object_detection.dataset_tools.converters import sharded_writer

_POLL_SECONDS = 0.5


def count_records(path: str, start: int = 0) -> tuple[int, int]:
    """Counts the complete records of a local file that may still grow; reads only their lengths.

    Args:
      path: path of the file.
      start: position of a record, or the end of the last one.

    Returns:
      The number of records from `start` on, and the position from which to continue later.
    """
    count, size = 0, os.path.getsize(path)
    with open(path, 'rb') as file:
        while start + tf_record_files.FRAME_SIZE <= size:
            file.seek(start)
            end = start + tf_record_files.FRAME_SIZE + struct.unpack('<Q', file.read(8))[0]
            if end > size:
                break
            count, start = count + 1, end
    return count, start


@contextlib.contextmanager
def watched(
    output: sharded_writer.Output,
    total: int,
    progress: Callable[[int, int], None] | None,
    *,
    interval: float = _POLL_SECONDS,
) -> Iterator[None]:
    """Calls `progress` with the number of records so far, and `total`, while the block runs.

    Only the sizes of the files are read, so any process may write them. Files of other machines are
    not polled, as each poll would cost requests.

    Args:
      output: the output of a job.
      total: maximum number of records.
      progress: called from another thread; None disables polling.
      interval: seconds between two polls.
    """
    if progress is None or '://' in output.prefix:
        yield
        return
    done = threading.Event()
    records = GrowingShards(output)

    def poll() -> None:
        while not done.wait(interval):
            # If the runner repeats a step, a shard is written twice.
            progress(min(records.count(), total), total)

    thread = threading.Thread(target=poll, name='progress', daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


class GrowingShards:
    """Counts the records of a job's temporary shards, incrementally.

    Args:
      output: a local output.
    """

    def __init__(self, output: sharded_writer.Output):
        self._output = output
        # Path -> number of records, position after them.
        self._read: dict[str, tuple[int, int]] = {}

    def count(self) -> int:
        """Returns the number of complete records, including published shards."""
        for path in self._output.temporary_files():
            if sharded_writer.SCRATCH in path:
                continue
            count, position = self._read.get(path, (0, 0))
            # It may have been published since the folder was listed.
            with contextlib.suppress(FileNotFoundError):
                more, position = count_records(path, position)
                self._read[path] = count + more, position
        return sum(count for count, _ in self._read.values())
