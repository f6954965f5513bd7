"""Downloads COCO 2017 into the folder structure of its publishers.

FOLDER/train2017/*.jpg    FOLDER/val2017/*.jpg    FOLDER/annotations/instances_train2017.json ...
"""

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from object_detection.dataset_tools.downloads import archives, known_files
from object_detection.dataset_tools.downloads.download import Downloader, RemoteFile, Report
from object_detection.system import disk

DEFAULT_SPLITS = ('train2017', 'val2017')

# Bounds for the first check of disk space; the exact sizes are read from each archive before it is
# unpacked. JPEG files have the same size in an archive, JSON shrinks to about a quarter.
_UNPACKED_BY_FOLDER = {'zips': 1.02, 'annotations': 5.0}


def download(
    folder: str,
    splits: Sequence[str] = DEFAULT_SPLITS,
    *,
    base_urls: Sequence[str] = known_files.COCO_BASE_URLS,
    keep_archives: bool = False,
    show: Callable[[str], AbstractContextManager[Report]],
    print_line: Callable[[str], None] = lambda line: None,
) -> None:
    """Downloads and unpacks the missing archives of splits of COCO 2017, one by one.

    Args:
      folder: target folder, which also contains the archives until they are unpacked.
      splits: splits of `known_files.COCO2017`.
      base_urls: addresses that replace the publisher's.
      keep_archives: whether archives are kept after unpacking.
      show: opens a display of the progress of a task, given its name.
      print_line: called with a line when a step is skipped or differs from the plan.

    Raises:
      DownloadError: if a file cannot be downloaded, is corrupt, or does not fit on the disk.
        Received bytes are kept.
    """
    missing = _missing(folder, splits, print_line)
    needed = disk.peak_bytes([_space(file, folder) for file in missing], keep_archives)
    disk.require_space(folder, needed, 'downloading and unpacking')
    for file in missing:
        with show(f'downloading {file.name}') as report:
            archive = Downloader(report=report, print_line=print_line).fetch(
                file, folder, base_urls
            )
        with show(f'unpacking {file.name}') as report:
            archives.unpack(archive, folder, report)
        if not keep_archives:
            os.remove(archive)


def _missing(
    folder: str, splits: Sequence[str], print_line: Callable[[str], None]
) -> list[RemoteFile]:
    """Returns the archives of the splits, without duplicates, of which files are missing."""
    wanted = dict.fromkeys(file for split in splits for file in known_files.COCO2017[split])
    missing = []
    for file in wanted:
        if archives.is_unpacked(file.name, folder):
            print_line(f'{file.name}: all its files are there.')
        else:
            missing.append(file)
    return missing


def _space(file: RemoteFile, folder: str) -> disk.ArchiveSpace:
    size = file.size or 0
    path = os.path.join(folder, file.name)
    there = [os.path.getsize(name) for name in (path, f'{path}.part') if os.path.exists(name)]
    factor = _UNPACKED_BY_FOLDER[os.path.dirname(file.path)]
    return disk.ArchiveSpace(size, min(sum(there), size), int(size * factor))
