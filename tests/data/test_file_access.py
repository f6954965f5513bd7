import errno
import tracemalloc

import pytest
from apache_beam.io.filesystem import FileMetadata, MatchResult
from apache_beam.io.filesystems import FileSystems

from object_detection.data import file_access
from object_detection.data.file_access import LocalFiles, path_within
from object_detection.data.formats import csv_files
from object_detection.dataset_tools.converters.sharded_writer import BeamFiles
from tests import rows


@pytest.fixture(params=[LocalFiles, BeamFiles])
def files(request):
    return request.param()


def test_lists_files_and_no_folders(files, tmp_path):
    (tmp_path / 'a/b').mkdir(parents=True)
    for name in ('2.txt', '1.txt', 'a/3.txt', 'a/b/[4].txt'):
        (tmp_path / name).write_text(name)
    assert files.list(str(tmp_path)) == ['1.txt', '2.txt']
    everything = ['1.txt', '2.txt', 'a/3.txt', 'a/b/[4].txt']
    assert files.list(str(tmp_path), recursive=True) == everything
    assert files.list(f'{tmp_path}/', recursive=True) == everything
    assert files.list(str(tmp_path / 'absent')) == []
    assert files.list(str(tmp_path / 'absent'), recursive=True) == []
    assert files.exists(str(tmp_path / 'a'))
    assert files.exists(str(tmp_path / 'a/3.txt'))
    assert not files.exists(str(tmp_path / 'absent'))
    assert files.read(str(tmp_path / 'a/b/[4].txt')) == b'a/b/[4].txt'


def test_long_files_are_refused(files, tmp_path):
    path = tmp_path / 'a.gz'  # Not decompressed either.
    path.write_bytes(b'12345')
    assert files.read(str(path), 5) == b'12345'
    with pytest.raises(OSError, match='more than 4 bytes') as error:
        files.read(str(path), 4)
    assert error.value.errno == errno.EFBIG
    with pytest.raises(OSError, match='absent'):
        files.read(str(tmp_path / 'absent'))


def test_a_file_is_held_once(tmp_path):
    path = tmp_path / 'a'
    path.write_bytes(b'x' * (8 << 20))
    for limit in (None, 8 << 20):
        tracemalloc.start()
        assert len(LocalFiles().read(str(path), limit)) == 8 << 20
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 12 << 20
    # Files without a size are read to their end.
    assert LocalFiles().head('/dev/zero', 3 << 20) == bytes(3 << 20)


def test_tables_are_read_piece_by_piece(tmp_path):
    path = tmp_path / 'a.csv'
    path.write_bytes((b'a' * 999 + b'\n') * 4000)
    tracemalloc.start()
    assert sum(1 for _ in csv_files.rows(str(path), LocalFiles())) == 4000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20
    with pytest.raises(OSError, match='more than 9 bytes'):
        file_access.open_to_read(str(path), LocalFiles(), 9)


@pytest.mark.parametrize('name', ['exists', 'read'])
def test_unknown_kinds_of_urls_are_named(files, name):
    with pytest.raises(OSError, match='ab://c/d'):
        getattr(files, name)('ab://c/d')


def test_object_stores_have_no_folders(monkeypatch):
    asked = []

    def match(patterns, limits=None):
        asked.extend(patterns)
        found = [FileMetadata(f'gs://b/d/{name}', 1) for name in ('2.txt', '1.txt')]
        return [MatchResult(patterns[0], found)]

    monkeypatch.setattr(FileSystems, 'match', match)
    monkeypatch.setattr(FileSystems, 'exists', lambda path: False)
    assert BeamFiles().list('gs://b/d') == ['1.txt', '2.txt']
    assert BeamFiles().list('gs://b/d/', recursive=True) == ['1.txt', '2.txt']
    assert BeamFiles().exists('gs://b/d')
    assert asked == ['gs://b/d/*', 'gs://b/d/**', 'gs://b/d/*']


@rows.parametrize('name', ['../a', 'b/../../a', '/etc/passwd', 'a\0', '.'])
@rows.parametrize('folder', ['images', '/images'])
def test_paths_stay_within_their_folder(folder, name):
    with pytest.raises(ValueError, match='leads out of the folder'):
        path_within(folder, name)
    assert path_within(folder, 'a/b.jpg') == f'{folder}/a/b.jpg'


def test_a_limit_is_not_allocated(tmp_path):
    path = tmp_path / 'a'
    path.write_bytes(b'x' * (3 << 20))
    # More than the memory of any machine.
    assert len(LocalFiles().read(str(path), 1 << 60)) == 3 << 20
    assert len(LocalFiles().head(str(path), (1 << 20) + 5)) == (1 << 20) + 5
    with pytest.raises(OSError, match='a'):
        LocalFiles().read(str(path), 1 << 20)


def test_images_are_listed_under_every_spelling_of_their_names(tmp_path):
    for name in ('ü ö.jpg', 'd#1.jpg', '100%.jpg', 'other.jpg'):
        (tmp_path / name).touch()
    names = ['%C3%BC%20%C3%B6.jpg', 'x\\d%231.JPG', '100%.jpg']
    assert file_access.unlisted(str(tmp_path), names, file_access.LocalFiles()) == ['other.jpg']


@pytest.mark.parametrize(
    ('names', 'expected'),
    [
        # Of two files of one name, the annotations name one, or both, or only say the name.
        (['a/x.jpg', 'r.jpg'], ['b/x.jpg']),
        (['a/x.jpg', 'b/x.jpg', 'r.jpg'], []),
        (['C:\\u\\a\\x.jpg', '/home/u/b/x.JPG', 'r.jpg'], []),
        (['x.jpg', 'r.jpg'], ['b/x.jpg']),
        (['other/x.jpg', 'another/x.jpg', 'r'], []),
        (['a/x', 'b/x', 'far/r.png'], []),
    ],
)
def test_a_name_stands_for_one_image_only(tmp_path, names, expected):
    for name in ('a/x.jpg', 'b/x.jpg', 'r.jpg'):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert file_access.unlisted(str(tmp_path), names, file_access.LocalFiles()) == expected
    (tmp_path / 'r.png').touch()
    found = file_access.unlisted(str(tmp_path), names, file_access.LocalFiles())
    assert found == [*expected, 'r.png']
