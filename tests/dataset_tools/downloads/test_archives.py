import errno
import io
import pathlib
import shutil
import tarfile
import zipfile

import pytest

from object_detection.dataset_tools.downloads import archives
from object_detection.errors import DownloadError
from object_detection.system import disk
from tests import rows

FILES = {'photos/a.jpg': b'a' * 5000, 'photos/b.jpg': b'b', 'lists/sub/c.json': b'{}'}


def write_zip(folder: pathlib.Path, files: dict[str, bytes] = FILES, name: str = 'x.zip') -> str:
    path = folder / name
    with zipfile.ZipFile(path, 'w') as archive:
        archive.mkdir('photos')
        for member, content in files.items():
            archive.writestr(member, content)
    return str(path)


def unpack(archive: str, folder: pathlib.Path) -> list[tuple[int, int]]:
    reports = []
    archives.unpack(archive, str(folder), lambda *report: reports.append(report))
    return reports


def visible(folder: pathlib.Path) -> set[str]:
    paths = (path for path in folder.rglob('*') if path.is_file())
    names = (path.relative_to(folder).as_posix() for path in paths)
    return {name for name in names if not name.startswith('.unpacked/')}


def test_unpacks_and_remembers(tmp_path):
    archive = write_zip(tmp_path)
    out = tmp_path / 'out'
    out.mkdir()
    assert not archives.is_unpacked(archive, str(out))
    assert unpack(archive, out)[-1] == (5003, 5003)
    assert visible(out) == set(FILES)
    assert (out / 'photos' / 'a.jpg').read_bytes() == FILES['photos/a.jpg']
    pathlib.Path(archive).unlink()
    assert archives.is_unpacked('x.zip', str(out))


@rows.parametrize('change', ['absent', 'short'])
def test_notices_files_that_are_lost_or_cut(tmp_path, change):
    archive = write_zip(tmp_path)
    unpack(archive, tmp_path)
    path = tmp_path / 'photos' / 'a.jpg'
    path.unlink() if change == 'absent' else path.write_bytes(b'a')
    assert not archives.is_unpacked(archive, str(tmp_path))
    unpack(archive, tmp_path)
    assert archives.is_unpacked(archive, str(tmp_path))


def test_joins_a_folder_that_exists(tmp_path):
    (tmp_path / 'lists').mkdir()
    (tmp_path / 'lists' / 'mine.json').write_text('mine')
    unpack(write_zip(tmp_path), tmp_path)
    assert visible(tmp_path) == {'x.zip', 'lists/mine.json', *FILES}


@rows.parametrize('name', ['../out.txt', 'a/../../out.txt', '/out.txt', 'C:\\out.txt', '..\\o'])
def test_refuses_members_outside_of_the_folder(tmp_path, name):
    inner = tmp_path / 'inner'
    inner.mkdir()
    archive = write_zip(inner, {'photos/a.jpg': b'a', name: b'bad'})
    with pytest.raises(DownloadError, match='expected files below the folder'):
        unpack(archive, inner)
    assert visible(tmp_path) == {'inner/x.zip'}


def test_refuses_links(tmp_path):
    path = tmp_path / 'x.zip'
    with zipfile.ZipFile(path, 'w') as archive:
        link = zipfile.ZipInfo('link')
        link.external_attr = 0o120777 << 16
        archive.writestr(link, '/etc')
    with pytest.raises(DownloadError, match="Received: 'link'"):
        unpack(str(path), tmp_path)


@rows.parametrize('damage', ['cut', 'changed'])
def test_a_corrupt_archive_leaves_the_folder_as_it_was(tmp_path, damage):
    path = pathlib.Path(write_zip(tmp_path))
    content = path.read_bytes()
    middle = content.index(b'aaaa') + 100
    changed = content[:middle] + b'z' + content[middle + 1 :]
    path.write_bytes(content[:-30] if damage == 'cut' else changed)
    with pytest.raises(DownloadError, match='damaged'):
        unpack(str(path), tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ['x.zip']


def test_a_disk_that_becomes_full_is_reported_and_cleaned(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(errno.ENOSPC, 'No space left on device')

    archive = write_zip(tmp_path)
    monkeypatch.setattr(shutil, 'copyfileobj', fail)
    with pytest.raises(DownloadError, match=r'the disk became full while x\.zip was unpacked'):
        unpack(archive, tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ['x.zip']


def test_checks_free_space_before_unpacking(tmp_path, monkeypatch):
    archive = write_zip(tmp_path)
    usage = shutil.disk_usage(tmp_path)._replace(free=5002)
    monkeypatch.setattr(disk.shutil, 'disk_usage', lambda path: usage)
    with pytest.raises(DownloadError, match=r'unpacking x\.zip needs'):
        unpack(archive, tmp_path)


def test_sweeps_what_a_killed_run_left(tmp_path):
    left = tmp_path / '.unpacking-x.zip'
    left.mkdir()
    (left / 'stray.jpg').write_bytes(b'')
    unpack(write_zip(tmp_path), tmp_path)
    assert visible(tmp_path) == {'x.zip', *FILES}


def test_an_interruption_leaves_no_half_folder(tmp_path):
    def interrupt(*_):
        raise KeyboardInterrupt

    archive = write_zip(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        archives.unpack(archive, str(tmp_path), interrupt)
    assert [entry.name for entry in tmp_path.iterdir()] == ['x.zip']


def test_unpacks_into_a_folder_on_another_disk(tmp_path, monkeypatch):
    out, disk = tmp_path / 'out', tmp_path / 'disk'
    out.mkdir()
    disk.mkdir()
    (out / 'photos').symlink_to(disk)
    replace = archives.os.replace

    def replace_within_a_disk(source, target):
        places = [pathlib.Path(path).resolve().is_relative_to(disk) for path in (source, target)]
        if places[0] != places[1]:
            raise OSError(errno.EXDEV, 'Invalid cross-device link')
        replace(source, target)

    monkeypatch.setattr(archives.os, 'replace', replace_within_a_disk)
    archive = write_zip(tmp_path)
    unpack(archive, out)
    assert archives.is_unpacked(archive, str(out))
    assert sorted(path.name for path in disk.iterdir()) == ['a.jpg', 'b.jpg']
    assert (disk / 'a.jpg').read_bytes() == FILES['photos/a.jpg']
    assert (out / 'lists/sub/c.json').read_bytes() == b'{}'


def write_tar(folder: pathlib.Path, files: dict[str, bytes] = FILES, link: str = '') -> str:
    path = folder / 'x.tar.gz'
    with tarfile.open(path, 'w:gz') as archive:
        photos = tarfile.TarInfo('photos')
        photos.type = tarfile.DIRTYPE
        archive.addfile(photos)
        for member, content in files.items():
            info = tarfile.TarInfo(member)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        if link:
            info = tarfile.TarInfo(link)
            info.type, info.linkname = tarfile.SYMTYPE, '/etc'
            archive.addfile(info)
    return str(path)


def test_unpacks_tar_archives(tmp_path):
    archive = write_tar(tmp_path)
    out = tmp_path / 'out'
    out.mkdir()
    assert unpack(archive, out)[-1] == (5003, 5003)
    assert visible(out) == set(FILES)
    assert (out / 'photos' / 'a.jpg').read_bytes() == FILES['photos/a.jpg']
    assert archives.is_unpacked('x.tar.gz', str(out))


@rows.parametrize('name', ['../out.txt', '/out.txt', 'link'])
def test_refuses_tar_members_that_are_no_files_of_the_folder(tmp_path, name):
    inner = tmp_path / 'inner'
    inner.mkdir()
    is_link = name == 'link'
    archive = write_tar(inner, {} if is_link else {name: b'bad'}, name if is_link else '')
    with pytest.raises(DownloadError, match='expected files below the folder'):
        unpack(archive, inner)
    assert visible(tmp_path) == {'inner/x.tar.gz'}


@rows.parametrize('end', [-30, 5, 0])
def test_a_damaged_tar_archive_is_reported(tmp_path, end):
    path = pathlib.Path(write_tar(tmp_path))
    path.write_bytes(path.read_bytes()[:end])
    with pytest.raises(DownloadError, match='damaged'):
        unpack(str(path), tmp_path)
    assert visible(tmp_path) == {'x.tar.gz'}
