"""Whether a folder's disk has room for what is to be written there."""

import os
import shutil
from collections.abc import Iterable
from typing import NamedTuple

from object_detection.errors import DownloadError


class ArchiveSpace(NamedTuple):
    """Bytes of an archive, of those that are there already, and of its contents."""

    size: int
    present: int
    unpacked: int


def require(folder: str, needed: int, purpose: str) -> None:
    """Checks that `needed` bytes are free where `folder` is, or will be.

    Raises:
      DownloadError: if they are not.
    """
    place = os.path.abspath(folder)
    while not os.path.exists(place):
        place = os.path.dirname(place)
    free = shutil.disk_usage(place).free
    if free < needed:
        raise DownloadError(
            f'{folder}: {purpose} needs {gigabytes(needed)} of free disk space. Received: '
            f'{gigabytes(free)}.'
        )


def peak(archives: Iterable[ArchiveSpace], keep_archives: bool) -> int:
    """Returns the most bytes taken at once, beyond those present, while archives are unpacked.

    One archive is downloaded, unpacked and, unless `keep_archives`, deleted after the other.
    """
    highest = held = 0
    for archive in archives:
        held += archive.size - archive.present + archive.unpacked
        highest = max(highest, held)
        if not keep_archives:
            held -= archive.size
    return highest


def gigabytes(size: int) -> str:
    """Returns a number of bytes in words: '1.25 GB'."""
    return f'{size / 1e9:.2f} GB'
