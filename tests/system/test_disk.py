import pytest

from object_detection.errors import DownloadError
from object_detection.system import disk
from object_detection.system.disk import ArchiveSpace


def test_the_peak_is_while_the_last_or_the_largest_is_unpacked():
    archives = [ArchiveSpace(100, 0, 100), ArchiveSpace(10, 0, 30)]
    assert disk.peak_bytes(archives, keep_archives=False) == 200
    assert disk.peak_bytes(archives, keep_archives=True) == 240
    assert disk.peak_bytes(archives[::-1], keep_archives=False) == 230
    assert disk.peak_bytes([], keep_archives=False) == 0


def test_what_is_there_already_needs_no_space():
    assert disk.peak_bytes([ArchiveSpace(100, 60, 100)], keep_archives=False) == 140
    # The archive that is deleted makes room for the next one.
    archives = [ArchiveSpace(100, 100, 10), ArchiveSpace(50, 0, 50)]
    assert disk.peak_bytes(archives, keep_archives=False) == 10


def test_checks_the_disk_of_a_future_folder(tmp_path):
    folder = tmp_path / 'not' / 'yet'
    disk.require_space(str(folder), 1, 'this')
    with pytest.raises(DownloadError, match=r'this needs 1000000000\.0 GB .* Received: '):
        disk.require_space(str(folder), 10**18, 'this')
    assert not folder.exists()
