"""Sets of TFRecord files, `PREFIX-00000-of-00010` to `PREFIX-00009-of-00010`.

A job writes a shard under a temporary name in its final folder, and publishes the set when all of
its shards are complete. One job at a time writes to a prefix, and a job moves and removes only its
own files. Paths may be of any file system that Beam knows.

Files of data sets by Beam's file systems, for `data.file_access.Files`.
"""

import contextlib
import dataclasses
import errno
import os
import re
import time
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import BinaryIO, NamedTuple

from apache_beam.io.filesystem import CompressionTypes, FileMetadata
from apache_beam.io.filesystems import FileSystems

from object_detection.data import file_access, shard_names, tf_record_files
from object_detection.dataset_tools.converters import output_lock
from object_detection.errors import expected

_SHARD = re.compile(r'-\d{5}-of-\d{5}')
_TEMPORARY_SHARD = re.compile(r'-\d{5}-of-\d{5}\.tmp-([0-9a-f]{32})(-[0-9a-f]{8})?')
# No shard has this name, as there are no sets of 0 shards.
SCRATCH = '-00000-of-00000.tmp-'
_WILDCARDS = frozenset('*?[]')
_MAX_SHARDS = 99_999
# Where there are no locks, temporary files of this age are those of a killed job.
_SECONDS_UNTIL_LEFT_BEHIND = 7 * 24 * 3600
_BLOCK = 1 << 20


class Draft(NamedTuple):
    """A shard that is complete, under a temporary name.

    Attributes:
      path: its temporary name.
      size: number of bytes.
      checksum: CRC-32 of them.
    """

    path: str
    size: int
    checksum: int


class DraftFile:
    """A shard that is being written, see `Output.writing`."""

    def __init__(self, path: str, file: BinaryIO):
        self._path, self._file = path, file
        self._size = self._checksum = 0

    def write(self, content: bytes) -> None:
        self._file.write(content)
        self._size += len(content)
        self._checksum = zlib.crc32(content, self._checksum)

    def draft(self) -> Draft:
        """Returns what has been written."""
        return Draft(self._path, self._size, self._checksum)


@dataclasses.dataclass(frozen=True)
class Output:
    """The output of one job, see `open_output`; it is pickled.

    Attributes:
      prefix: prefix of all paths.
      num_shards: number of shards.
      job: hexadecimal id of the job, which is in the names of its temporary files.
      is_single_file: whether the only shard is named PREFIX.
    """

    prefix: str
    num_shards: int
    job: str
    is_single_file: bool = False

    @property
    def report_path(self) -> str:
        return f'{self.prefix}.report.json'

    def shard_path(self, shard: int) -> str:
        """Returns the final path of a shard, `PREFIX-SSSSS-of-NNNNN`."""
        if self.is_single_file:
            return self.prefix
        return f'{self.prefix}-{shard:05d}-of-{self.num_shards:05d}'

    def scratch_path(self) -> str:
        """Returns a path for a file that the job needs only while it runs.

        It is removed with the temporary shards, and is not counted among them.
        """
        return f'{self.prefix}{SCRATCH}{self._unique()}'

    @contextlib.contextmanager
    def writing(self, shard: int) -> Iterator[DraftFile]:
        """Opens a temporary file that no other attempt to write the shard uses."""
        place = f'-{shard:05d}-of-{self.num_shards:05d}'
        path = f'{self.prefix}{place}.tmp-{self._unique()}'
        with open_for_writing(path) as file:
            yield DraftFile(path, file)

    def temporary_files(self) -> list[str]:
        """Returns the paths of the job's temporary files."""
        return temporary_files(self.prefix, self.job)

    def replaced_paths(self) -> list[str]:
        """Returns the paths that `publish` writes, and those of earlier sets that it removes."""
        written = [self.shard_path(shard) for shard in range(self.num_shards)]
        return [*written, *self._earlier_shards()]

    def publish(self, drafts: Mapping[int, Draft], texts: Mapping[str, str] | None = None) -> None:
        """Replaces the set of this prefix by complete shards; a second call changes nothing.

        Shards of an earlier set, of any number, are removed. While `PREFIX.publishing` exists, the
        files may belong to two sets, and readers refuse them. If this function fails, this marker
        and the temporary files that are not moved yet are kept.

        Args:
          drafts: shard -> its complete file, for each of `num_shards`.
          texts: path -> content of further files of the set, such as its label map.

        Raises:
          OSError: if a file cannot be written, or another job has taken the prefix, or removed a
            file of this one. In the last two cases nothing is changed.
        """
        self._check_owner()
        is_moved = {shard: self._is_moved(shard, draft) for shard, draft in drafts.items()}
        marker = marker_path(self.prefix)
        with open_for_writing(marker) as file:
            file.write(self.job.encode())
        final_paths = set(map(self.shard_path, drafts))
        _delete(path for path in self._earlier_shards() if path not in final_paths)
        for shard, draft in sorted(drafts.items()):
            if not is_moved[shard]:
                _move(draft.path, self.shard_path(shard))
        for path, text in (texts or {}).items():
            self.write_text(path, text)
        self.remove_temporary_files()
        # On a file system without locks, another job may have begun meanwhile.
        self._check_owner()
        _delete_if_exists(marker)

    def write_text(self, path: str, text: str) -> None:
        """Writes a text file atomically.

        Raises:
          OSError: if it cannot be written, or another job has taken the prefix.
        """
        self._check_owner()
        draft = self.scratch_path()
        try:
            with open_for_writing(draft) as file:
                file.write(text.encode())
            _move(draft, path)
        except BaseException:
            with contextlib.suppress(Exception):
                _delete_if_exists(draft)
            raise

    def remove_temporary_files(self) -> None:
        """Removes the temporary files of this job."""
        _delete(self.temporary_files())

    def state_after_failure(self) -> str:
        """Returns what has become of the outputs if the job failed, without a full stop."""
        marker = marker_path(self.prefix)
        if not FileSystems.exists(marker):
            return 'Nothing was published'
        return (
            f'The earlier set is replaced in part, and readers refuse it while {marker} exists; '
            'convert again'
        )

    def is_being_published(self) -> bool:
        """Whether this job has begun to replace the earlier set, and has not finished."""
        return output_lock.read(marker_path(self.prefix)) == self.job

    def _unique(self) -> str:
        return f'{self.job}-{uuid.uuid4().hex[:8]}'

    def _earlier_shards(self) -> list[str]:
        return [] if self.is_single_file else [path for path, _ in _matching(self.prefix, _SHARD)]

    def _check_owner(self) -> None:
        if output_lock.read(output_lock.path_of(self.prefix)) != self.job:
            raise OSError(errno.EBUSY, 'this job has ended, or another one began', self.prefix)

    def _is_moved(self, shard: int, draft: Draft) -> bool:
        """Whether a draft has its final name already: a runner may repeat a step.

        Raises:
          OSError: if it is neither there, nor under its temporary name.
        """
        if FileSystems.exists(draft.path):
            return False
        path = self.shard_path(shard)
        if FileSystems.exists(path) and _is_copy(path, draft):
            return True
        raise OSError(errno.ENOENT, 'another program removed it before it was complete', draft.path)


@contextlib.contextmanager
def open_output(prefix: str, num_shards: int, *, is_single_file: bool = False) -> Iterator[Output]:
    """Yields the output of a new job; no other job can write to the prefix during the block.

    Creates the folder and removes temporary files of killed jobs; earlier sets are kept. At the end
    those of this job are removed, unless it was interrupted while it published its set: then they
    are the only copy of it. On file systems without locks the job that began last publishes.

    Args:
      prefix: prefix of all paths.
      num_shards: number of shards.
      is_single_file: whether the only shard is named PREFIX.

    Raises:
      UserError: if the number of shards or the prefix cannot be used, or another job writes to it.
    """
    job = uuid.uuid4().hex
    output = Output(_checked_prefix(prefix, num_shards), num_shards, job, is_single_file)
    with output_lock.held(output.prefix, job) as is_exclusive:
        _remove_left_behind(output.prefix, is_exclusive)
        try:
            yield output
        finally:
            if not output.is_being_published():
                output.remove_temporary_files()


def _checked_prefix(prefix: str, num_shards: int) -> str:
    """Creates the folder; returns the prefix as an absolute path, if it is a local one."""
    if not 1 <= num_shards <= _MAX_SHARDS:
        raise expected('The number of shards', f'1 to {_MAX_SHARDS}', num_shards)
    folder, name = os.path.split(prefix)
    if not name or _WILDCARDS & set(prefix):
        what = 'a folder and the beginning of a file name, without any of * ? [ ]'
        raise expected('The output prefix', what, repr(prefix))
    if '://' not in prefix:
        folder = os.path.abspath(folder)
    if not FileSystems.exists(folder):
        FileSystems.mkdirs(folder)
    return FileSystems.join(folder, name)


def open_for_writing(path: str) -> BinaryIO:
    """Opens a file for writing without compression, regardless of its suffix."""
    return FileSystems.create(
        path, 'application/octet-stream', compression_type=CompressionTypes.UNCOMPRESSED
    )


def write_record(file: BinaryIO | DraftFile, record: bytes) -> None:
    """Appends one record in TFRecord framing: length, its checksum, the record, its checksum."""
    tf_record_files.write_record(file, record)


def marker_path(prefix: str) -> str:
    """Returns the path of the file that exists while a set is replaced by another."""
    return prefix + shard_names.PUBLISHING


def temporary_files(prefix: str, job: str = '') -> list[str]:
    """Returns the paths of temporary files: currently being written, or left by killed jobs.

    Args:
      prefix: see `Output`.
      job: only those of this job; '' is all.
    """
    found = _matching(prefix, _TEMPORARY_SHARD)
    return [path for path, match in found if job in ('', match[1])]


def _remove_left_behind(prefix: str, is_exclusive: bool) -> None:
    """Removes the temporary files of killed jobs: all, or if others may run, old ones."""
    paths = temporary_files(prefix)
    if not is_exclusive:
        limit = time.time() - _SECONDS_UNTIL_LEFT_BEHIND
        ages = {file.path: file.last_updated_in_seconds for file in _files_that_begin_with(prefix)}
        paths = [path for path in paths if ages.get(path, limit) < limit]
    _delete(paths)


def _is_copy(path: str, draft: Draft) -> bool:
    """Whether a file has the content of a draft."""
    size = checksum = 0
    with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
        while block := file.read(_BLOCK):
            size, checksum = size + len(block), zlib.crc32(block, checksum)
    return (size, checksum) == draft[1:]


def _move(source: str, destination: str) -> None:
    # A local file is replaced in one step; other file systems may refuse to replace one.
    if '://' in destination:
        _delete_if_exists(destination)
    FileSystems.rename([source], [destination])


def _delete_if_exists(path: str) -> None:
    if FileSystems.exists(path):
        FileSystems.delete([path])


def _matching(prefix: str, rest: re.Pattern) -> list[tuple[str, re.Match]]:
    """Returns the paths of existing files that consist of `prefix` and a match of `rest`."""
    folder, name = FileSystems.split(prefix)
    found = [FileSystems.split(match.path) for match in _files_that_begin_with(prefix)]
    matches = [
        (FileSystems.join(folder, found_name), rest.fullmatch(found_name[len(name) :]))
        for found_folder, found_name in found
        if found_folder == folder and found_name.startswith(name)
    ]
    return [(path, match) for path, match in matches if match]


def _files_that_begin_with(prefix: str) -> list[FileMetadata]:
    return FileSystems.match([f'{prefix}-*'])[0].metadata_list


def _delete(paths: Iterable[str]) -> None:
    paths = list(paths)
    if paths:
        FileSystems.delete(paths)


class BeamFiles:
    """Files of this machine, and of every object store that Beam knows; it is pickled."""

    def read(self, path: str, limit: int | None = None) -> bytes:
        # Beam's errors are subclasses of OSError.
        with (
            _of_a_known_kind(path),
            FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as file,
        ):
            content = file_access.read_at_most(file, -1 if limit is None else limit + 1)
        return file_access.checked_length(content, path, limit)

    def head(self, path: str, length: int) -> bytes:
        with (
            _of_a_known_kind(path),
            FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as file,
        ):
            return file_access.read_at_most(file, length)

    def list(self, folder: str, *, recursive: bool = False) -> list[str]:
        # Beam reads all folders below a local one even if the pattern has one level.
        if not file_access.is_url(folder):
            return file_access.list_local(folder, recursive=recursive)
        root = file_access.join(folder, '')
        pattern = root + ('**' if recursive else '*')
        with _of_a_known_kind(folder):
            found = FileSystems.match([pattern])[0].metadata_list
        return sorted(file.path.removeprefix(root) for file in found)

    def exists(self, path: str) -> bool:
        with _of_a_known_kind(path):
            if FileSystems.exists(path):
                return True
        if not file_access.is_url(path):
            return False
        # There are no folders in an object store, only objects.
        pattern = file_access.join(path, '*')
        return bool(FileSystems.match([pattern], limits=[1])[0].metadata_list)


@contextlib.contextmanager
def _of_a_known_kind(path: str) -> Iterator[None]:
    """Makes an OSError of Beam's ValueError about a URL for which it has no file system."""
    try:
        yield
    except ValueError as error:
        raise OSError(errno.EIO, str(error), path) from error
