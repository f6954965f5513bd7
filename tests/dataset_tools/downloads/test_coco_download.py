import contextlib

import pytest

from object_detection.dataset_tools.downloads import coco_download, known_files
from object_detection.errors import DownloadError
from object_detection.system import disk
from tests.dataset_tools import miniature_coco
from tests.dataset_tools.downloads import file_server

ARCHIVES = ['/zips/train2017.zip', '/annotations/annotations_trainval2017.zip', '/zips/val2017.zip']


@pytest.fixture
def server(monkeypatch, tmp_path):
    file_server.without_proxies(monkeypatch)
    with file_server.serving() as server:
        miniature_coco.put(server, tmp_path / 'source', monkeypatch)
        yield server


@pytest.fixture
def download(server, tmp_path):
    def run(*splits: str, print_line=lambda line: None, **options):
        coco_download.download(
            str(tmp_path / 'coco'),
            splits or coco_download.DEFAULT_SPLITS,
            base_urls=[server.url],
            show=lambda what: contextlib.nullcontext(lambda done, total: None),
            print_line=print_line,
            **options,
        )
        return tmp_path / 'coco'

    return run


def paths(server: file_server.FileServer) -> list[str]:
    return [request['path'] for request in server.requests]


def test_lays_it_out_as_published(download):
    folder = download()
    assert {path.name for path in folder.iterdir()} == {
        *('train2017', 'val2017', 'annotations', '.unpacked')
    }
    assert len(list((folder / 'train2017').iterdir())) == 3
    assert {path.name for path in (folder / 'annotations').iterdir()} == {
        *('instances_train2017.json', 'instances_val2017.json')
    }


def test_each_archive_is_requested_once(server, download):
    download()
    assert sorted(paths(server)) == sorted(ARCHIVES)
    lines = []
    download(print_line=lines.append)
    assert len(server.requests) == 3
    assert lines[0] == 'train2017.zip: all its files are there.'


def test_only_what_is_missing_is_fetched_again(server, download):
    folder = download()
    next((folder / 'val2017').iterdir()).unlink()
    server.requests.clear()
    download()
    assert paths(server) == ['/zips/val2017.zip']
    assert len(list((folder / 'val2017').iterdir())) == 2


def test_splits_are_fetched_by_themselves(server, download):
    folder = download('val2017')
    assert '/zips/train2017.zip' not in paths(server)
    assert not (folder / 'train2017').exists()


def test_archives_are_kept_on_request(download):
    folder = download('val2017', keep_archives=True)
    assert (folder / 'val2017.zip').exists()
    assert (folder / 'annotations_trainval2017.zip').exists()


def test_space_for_everything_is_checked_first(server, download, monkeypatch, tmp_path):
    train, annotations = known_files.COCO2017['train2017']
    # Two times the images, and the annotations beside the unpacked images.
    needed = max(2.02 * train.size, 1.02 * train.size + 6 * annotations.size)
    usage = disk.shutil.disk_usage(tmp_path)
    for free, enough in ((needed - 10, False), (needed + 10, True)):
        monkeypatch.setattr(
            disk.shutil, 'disk_usage', lambda path, free=free: usage._replace(free=int(free))
        )
        context = contextlib.nullcontext() if enough else pytest.raises(DownloadError)
        with context:
            download('train2017')
        assert bool(server.requests) is enough
