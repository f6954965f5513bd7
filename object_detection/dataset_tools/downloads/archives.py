"""Unpacks zip and tar archives into a folder, either completely or not at all.

    FOLDER/.unpacked/NAME.tsv     the files that came out of the archive NAME, with their sizes

With that list a later run can check, without the archive, whether all files still exist.
"""

import contextlib
import errno
import gzip
import os
import pathlib
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import IO, NamedTuple

from object_detection.dataset_tools.downloads.download import Report
from object_detection.errors import DownloadError
from object_detection.system import disk, files

_CHUNK_BYTES = 1 << 20
_TAR_NAMES = ('.tar', '.tar.gz', '.tgz')
_DAMAGES = (zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError)


class _Member(NamedTuple):
    """A file in an open archive, or something else that is neither a file nor a folder."""

    name: str
    size: int
    is_file: bool
    open: Callable[[], IO[bytes]]


def unpack(archive: str, folder: str, report: Report) -> None:
    """Unpacks an archive; files of the same names are replaced, others are kept.

    Args:
      archive: path of a zip file, or of a tar file by its name (.tar, .tar.gz, .tgz).
      folder: target folder.
      report: called with the number of unpacked bytes and the total.

    Raises:
      DownloadError: if the archive is corrupt, has members outside of `folder`, or does not fit on
        the disk; the folder is then unchanged.
    """
    temporary = os.path.join(folder, f'.unpacking-{os.path.basename(archive)}')
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        with _opened(archive) as members:
            _check(members, archive)
            total = sum(member.size for member in members)
            disk.require_space(folder, total, f'unpacking {os.path.basename(archive)}')
            _extract(members, temporary, report, total)
        _write_list(_list_path(archive, folder), members)
        _move(temporary, folder, [member.name for member in members])
    except _DAMAGES as error:
        raise DownloadError(f'{archive}: damaged ({error}). Delete it and start again.') from error
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise DownloadError(
            f'{folder}: the disk became full while {os.path.basename(archive)} was unpacked. The '
            'archive is kept; free some space and start again.'
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def is_unpacked(archive: str, folder: str) -> bool:
    """Whether `folder` contains all files of an archive with the right sizes."""
    try:
        with open(_list_path(archive, folder), encoding='utf-8') as file:
            entries = [line.rstrip('\n').split('\t', 1) for line in file]
        return all(
            os.path.getsize(os.path.join(folder, name)) == int(size) for size, name in entries
        )
    except (OSError, ValueError):
        return False


@contextlib.contextmanager
def _opened(archive: str) -> Iterator[list[_Member]]:
    """Yields the members of an archive that are not folders."""
    if archive.endswith(_TAR_NAMES):
        with tarfile.open(archive) as tar:
            yield [
                _Member(
                    each.name, each.size, each.isfile(), lambda each=each: tar.extractfile(each)
                )
                for each in tar.getmembers()
                if not each.isdir()
            ]
        return
    with zipfile.ZipFile(archive) as file:
        yield [
            _Member(
                each.filename,
                each.file_size,
                not stat.S_ISLNK(each.external_attr >> 16),
                partial(file.open, each),
            )
            for each in file.infolist()
            if not each.is_dir()
        ]


def _check(members: list[_Member], archive: str) -> None:
    """Checks that all members are files below the folder to unpack to."""
    for member in members:
        path = pathlib.PureWindowsPath(member.name)  # knows both separators, and drives
        if path.anchor or '..' in path.parts or not member.is_file or not path.parts:
            raise DownloadError.expected(
                archive, 'files below the folder they are unpacked to', repr(member.name)
            )


def _extract(members: list[_Member], temporary: str, report: Report, total: int) -> None:
    """Writes all members; reading them completely verifies their checksums."""
    os.makedirs(temporary)
    done = 0
    for member in members:
        target = os.path.join(temporary, member.name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with member.open() as source, open(target, 'wb') as sink:
            shutil.copyfileobj(source, sink, _CHUNK_BYTES)
        done += member.size
        report(done, total)


def _write_list(path: str, members: list[_Member]) -> None:
    """Writes the list before the files are moved; it is valid only when all of them exist."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, 'w', encoding='utf-8') as file:
        file.writelines(f'{member.size}\t{member.name}\n' for member in members)


def _move(temporary: str, folder: str, names: list[str]) -> None:
    """Moves files to their target: a new folder as a whole, into existing folders file by file."""
    for top in os.listdir(temporary):
        if not os.path.lexists(os.path.join(folder, top)):
            os.rename(os.path.join(temporary, top), os.path.join(folder, top))
    for name in names:
        target = os.path.join(folder, name)
        with contextlib.suppress(FileNotFoundError):  # moved with its folder
            os.makedirs(os.path.dirname(target), exist_ok=True)
            _replace(os.path.join(temporary, name), target)


def _replace(source: str, target: str) -> None:
    """Moves a file, also to another disk; the target is never incomplete."""
    try:
        os.replace(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        with files.replacing(target) as draft:
            shutil.copyfile(source, draft)
        os.remove(source)


def _list_path(archive: str, folder: str) -> str:
    return os.path.join(folder, '.unpacked', f'{os.path.basename(archive)}.tsv')
