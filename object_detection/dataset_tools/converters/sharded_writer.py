"""Sets of TFRecord files, `PREFIX-00000-of-00010` to `PREFIX-00009-of-00010`.

A shard is written under a temporary name in its final folder, and a set is published when all of
its shards are complete. Paths may be of any file system that Beam knows.
"""

import contextlib
import os
import re
import struct
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import BinaryIO

from apache_beam.io.filesystem import CompressionTypes, FileMetadata
from apache_beam.io.filesystems import FileSystems

from object_detection.data import shard_names, tf_record_files
from object_detection.errors import UserError

_SHARD = re.compile(r'-\d{5}-of-\d{5}')
_TEMPORARY_SHARD = re.compile(r'-\d{5}-of-\d{5}\.tmp-[0-9a-f]{32}')
# No shard has this name, as there are no sets of 0 shards.
_SCRATCH = '-00000-of-00000.tmp-'
# Bytes of a record's framing: its length and two checksums.
_FRAME = 8 + 4 + 4
# Suffix of the marker file, which readers check too.
PUBLISHING = shard_names.PUBLISHING
_WILDCARDS = frozenset('*?[]')
_MAX_SHARDS = 99_999
_POLL_SECONDS = 0.5


def shard_path(prefix: str, shard: int, num_shards: int) -> str:
    """Returns the final path of a shard, `PREFIX-SSSSS-of-NNNNN`."""
    return f'{prefix}-{shard:05d}-of-{num_shards:05d}'


def temporary_path(prefix: str, shard: int, num_shards: int) -> str:
    """Returns a path that no other attempt to write the shard uses, in the same folder."""
    return f'{shard_path(prefix, shard, num_shards)}.tmp-{uuid.uuid4().hex}'


def scratch_path(prefix: str) -> str:
    """Returns a path for a file that a job needs only while it runs.

    It is removed with the temporary shards, and is not counted among them.
    """
    return f'{prefix}{_SCRATCH}{uuid.uuid4().hex}'


def prepare_output(prefix: str, num_shards: int) -> str:
    """Creates the folder and removes temporary files of a killed job; earlier sets are kept.

    Returns:
      The prefix as an absolute path, if it is a local one.

    Raises:
      ValueError: if the number of shards or the prefix cannot be used.
    """
    if not 1 <= num_shards <= _MAX_SHARDS:
        raise UserError(
            f'The number of shards must be between 1 and {_MAX_SHARDS}. Received: {num_shards}.'
        )
    folder, name = os.path.split(prefix)
    if not name or _WILDCARDS & set(prefix):
        raise UserError(
            'The output prefix must be a folder and the beginning of a file name, without any of '
            f'* ? [ ]. Received: {prefix!r}.'
        )
    if '://' not in prefix:
        folder = os.path.abspath(folder)
    if not FileSystems.exists(folder):
        FileSystems.mkdirs(folder)
    prefix = FileSystems.join(folder, name)
    remove_temporary_files(prefix)
    return prefix


def open_for_writing(path: str) -> BinaryIO:
    """Opens a file for writing without compression, regardless of its suffix."""
    return FileSystems.create(
        path, 'application/octet-stream', compression_type=CompressionTypes.UNCOMPRESSED
    )


def write_record(file: BinaryIO, record: bytes) -> None:
    """Appends one record in TFRecord framing: length, its checksum, the record, its checksum."""
    tf_record_files.write_record(file, record)


def publish(
    temporary_paths: Mapping[int, str],
    prefix: str,
    num_shards: int,
    texts: Mapping[str, str] | None = None,
) -> None:
    """Replaces the set of this prefix by complete shards; a second call changes nothing.

    Shards of an earlier set, of any number, and all temporary files of the prefix are removed.
    While `PREFIX.publishing` exists, the files may belong to two sets, and readers refuse them. If
    this function fails, this marker and the temporary files that are not moved yet are kept.

    Args:
      temporary_paths: shard -> path of its temporary file, for each of `num_shards`.
      prefix: see `shard_path`.
      num_shards: see `shard_path`.
      texts: path -> content of further files of the set, such as its label map.
    """
    marker = marker_path(prefix)
    with open_for_writing(marker) as file:
        file.write(b'The shards beside this file belong to two sets.\n')
    final_paths = {shard_path(prefix, shard, num_shards) for shard in temporary_paths}
    _delete(path for path in _matching(prefix, _SHARD) if path not in final_paths)
    for shard, source in sorted(temporary_paths.items()):
        destination = shard_path(prefix, shard, num_shards)
        # A runner may repeat a step that has already been executed.
        if not FileSystems.exists(source) and FileSystems.exists(destination):
            continue
        delete_if_exists(destination)
        FileSystems.rename([source], [destination])
    for path, text in (texts or {}).items():
        write_text(path, text)
    remove_temporary_files(prefix)
    delete_if_exists(marker)


def replaced_paths(prefix: str, num_shards: int) -> list[str]:
    """Returns the paths that `publish` writes, and those of earlier sets that it removes."""
    written = [shard_path(prefix, shard, num_shards) for shard in range(num_shards)]
    return [*written, *_matching(prefix, _SHARD)]


def marker_path(prefix: str) -> str:
    """Returns the path of the file that exists while a set is replaced by another."""
    return prefix + PUBLISHING


def write_text(path: str, text: str) -> None:
    """Writes a text file atomically."""
    draft = f'{path}.tmp-{uuid.uuid4().hex}'
    try:
        with open_for_writing(draft) as file:
            file.write(text.encode())
        delete_if_exists(path)
        FileSystems.rename([draft], [path])
    except BaseException:
        with contextlib.suppress(Exception):
            delete_if_exists(draft)
        raise


def temporary_files(prefix: str) -> list[str]:
    """Returns the paths of temporary shards: currently being written, or left by killed jobs."""
    return _matching(prefix, _TEMPORARY_SHARD)


def remove_temporary_files(prefix: str) -> None:
    """Removes the temporary files of an unfinished job."""
    _delete(temporary_files(prefix))


def is_publishing(prefix: str) -> bool:
    """Whether the replacement of a set has started and not finished."""
    return FileSystems.exists(marker_path(prefix))


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
        while start + _FRAME <= size:
            file.seek(start)
            end = start + _FRAME + struct.unpack('<Q', file.read(8))[0]
            if end > size:
                break
            count, start = count + 1, end
    return count, start


@contextlib.contextmanager
def watched(
    prefix: str,
    total: int,
    progress: Callable[[int, int], None] | None,
    *,
    interval: float = _POLL_SECONDS,
) -> Iterator[None]:
    """Calls `progress` with the number of records so far, and `total`, while the block runs.

    Only the sizes of the files are read, so any process may write them. Files of other machines are
    not polled, as each poll would cost requests.

    Args:
      prefix: prefix of the shards, see `shard_path`.
      total: maximum number of records.
      progress: called from another thread; None disables polling.
      interval: seconds between two polls.
    """
    if progress is None or '://' in prefix:
        yield
        return
    done = threading.Event()
    records = GrowingShards(prefix)

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
    """Counts the records of a prefix's temporary shards, incrementally.

    Args:
      prefix: a local prefix, see `shard_path`.
    """

    def __init__(self, prefix: str):
        self._prefix = prefix
        # Path -> number of records, position after them.
        self._read: dict[str, tuple[int, int]] = {}

    def count(self) -> int:
        """Returns the number of complete records, including published shards."""
        for path in temporary_files(self._prefix):
            if _SCRATCH in path:
                continue
            count, position = self._read.get(path, (0, 0))
            # It may have been published since the folder was listed.
            with contextlib.suppress(FileNotFoundError):
                more, position = count_records(path, position)
                self._read[path] = count + more, position
        return sum(count for count, _ in self._read.values())


def delete_if_exists(path: str) -> None:
    if FileSystems.exists(path):
        FileSystems.delete([path])


def _matching(prefix: str, rest: re.Pattern) -> list[str]:
    """Returns the paths of existing files that consist of `prefix` and a match of `rest`."""
    folder, name = FileSystems.split(prefix)
    found = [FileSystems.split(match.path) for match in _files_that_begin_with(prefix)]
    return [
        FileSystems.join(folder, found_name)
        for found_folder, found_name in found
        if found_folder == folder
        and found_name.startswith(name)
        and rest.fullmatch(found_name[len(name) :])
    ]


def _files_that_begin_with(prefix: str) -> list[FileMetadata]:
    return FileSystems.match([f'{prefix}-*'])[0].metadata_list


def _delete(paths: Iterable[str]) -> None:
    paths = list(paths)
    if paths:
        FileSystems.delete(paths)
