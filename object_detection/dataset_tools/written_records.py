"""Tells how many records a job has written, from the shards that grow on this machine."""

import contextlib
import threading
from collections.abc import Callable, Iterator

from object_detection.dataset_tools import sharded_writer

_SECONDS_BETWEEN_LOOKS = 0.5


@contextlib.contextmanager
def watched(
    prefix: str,
    total: int,
    progress: Callable[[int, int], None] | None,
    *,
    interval: float = _SECONDS_BETWEEN_LOOKS,
) -> Iterator[None]:
    """Calls `progress` with the number of records so far, and `total`, while the block runs.

    Whichever processes write the shards, and however: only the files are looked at. Those on other
    machines are not, as each look would cost requests.

    Args:
      prefix: of the shards; see `sharded_writer`.
      total: how many there will be at most.
      progress: called from another thread; None watches nothing.
      interval: seconds between two looks.
    """
    if progress is None or '://' in prefix:
        yield
        return
    done = threading.Event()
    records = GrowingShards(prefix)

    def look() -> None:
        while not done.wait(interval):
            # A step that the runner repeats writes its shard twice.
            progress(min(records.count(), total), total)

    thread = threading.Thread(target=look, name='progress', daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


class GrowingShards:
    """Counts the records of a prefix's temporary shards; each look reads on from the last one.

    Args:
      prefix: a local one; see `sharded_writer`.
    """

    def __init__(self, prefix: str):
        self._prefix = prefix
        # Path -> number of records, position after them.
        self._read: dict[str, tuple[int, int]] = {}

    def count(self) -> int:
        """Returns the number of complete records, those of shards that are gone included."""
        for path in sharded_writer.temporary_files(self._prefix):
            count, position = self._read.get(path, (0, 0))
            # Between the listing and now it may have been published.
            with contextlib.suppress(FileNotFoundError):
                more, position = sharded_writer.count_records(path, position)
                self._read[path] = count + more, position
        return sum(count for count, _ in self._read.values())
