import dataclasses
import hashlib
import pathlib
import random
import resource

import pytest

from object_detection.dataset_tools.downloads.download import (
    Downloader,
    PartialFile,
    RemoteFile,
    RetryPolicy,
)
from object_detection.errors import DownloadError
from object_detection.system import disk
from tests.dataset_tools.downloads import file_server

CONTENT = random.Random(0).randbytes(300_000)
OTHER = random.Random(1).randbytes(300_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
MD5 = hashlib.md5(CONTENT).hexdigest()
FILE = RemoteFile('sub/a.bin', len(CONTENT), SHA256)
UNSIGNED = RemoteFile('sub/a.bin')
FAST = RetryPolicy(connect_seconds=2.0, read_seconds=2.0, attempts=3, pause_seconds=0.001)


@pytest.fixture
def server(monkeypatch):
    file_server.without_proxies(monkeypatch)
    with file_server.serving() as server:
        server.files['/sub/a.bin'] = CONTENT
        server.tags['/sub/a.bin'] = '"one"'
        yield server


@pytest.fixture
def told():
    return []


@pytest.fixture
def fetch(server, tmp_path, told):
    def run(file: RemoteFile = FILE, *base_urls: str, patience: RetryPolicy = FAST) -> pathlib.Path:
        downloader = Downloader(print_line=told.append, patience=patience)
        return pathlib.Path(downloader.fetch(file, str(tmp_path), base_urls or [server.url]))

    return run


def ranges(server: file_server.FileServer) -> list[str | None]:
    return [request.get('Range') for request in server.requests]


def names(folder: pathlib.Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize('checksum', [SHA256, MD5, ''])
def test_downloads_and_leaves_nothing_else(fetch, tmp_path, told, checksum):
    path = fetch(dataclasses.replace(FILE, checksum=checksum))
    assert path.read_bytes() == CONTENT
    assert names(tmp_path) == ['a.bin']
    assert told == (
        [] if checksum else ['a.bin: no checksum is published; only its length is checked.']
    )


def test_an_existing_file_is_verified_and_not_requested(server, fetch):
    fetch()
    assert fetch().read_bytes() == CONTENT
    assert len(server.requests) == 1


@pytest.mark.parametrize('content', [CONTENT[:-1], OTHER])
def test_an_existing_other_file_is_neither_taken_nor_replaced(server, fetch, tmp_path, content):
    (tmp_path / 'a.bin').write_bytes(content)
    with pytest.raises(DownloadError, match=r'a\.bin: expected .* Delete it'):
        fetch()
    assert (tmp_path / 'a.bin').read_bytes() == content
    assert not server.requests


def test_resumes_after_each_dropped_connection(server, fetch, told):
    # As many drops as attempts: those that brought bytes do not count.
    server.plan = ['drop', 'drop', '']
    assert fetch(patience=dataclasses.replace(FAST, attempts=2)).read_bytes() == CONTENT
    assert ranges(server)[0] is None
    starts = [int(text[6:-1]) for text in ranges(server)[1:]]
    # Half of the file but for an unfinished chunk, then more.
    assert 80_000 < starts[0] <= 150_000
    assert starts[0] < starts[1]
    assert {request.get('If-Range') for request in server.requests[1:]} == {'"one"'}
    assert len(told) == 2
    assert 'trying again' in told[0]


def test_the_next_run_resumes_too(server, fetch, tmp_path):
    server.plan = ['drop', 503, 503, 503]
    with pytest.raises(DownloadError, match='answers 503'):
        fetch()
    kept = (tmp_path / 'a.bin.part').stat().st_size
    assert kept > 80_000
    assert fetch().read_bytes() == CONTENT
    assert ranges(server)[-1] == f'bytes={kept}-'
    assert names(tmp_path) == ['a.bin']


def test_a_complete_part_needs_no_request(server, fetch, tmp_path):
    (tmp_path / 'a.bin.part').write_bytes(CONTENT)
    assert fetch().read_bytes() == CONTENT
    assert not server.requests


def test_a_complete_part_of_unknown_size_is_recognised_by_the_server(server, fetch, tmp_path):
    (tmp_path / 'a.bin.part').write_bytes(CONTENT)
    assert fetch(RemoteFile('sub/a.bin', None, MD5)).read_bytes() == CONTENT
    assert ranges(server) == [f'bytes={len(CONTENT)}-']


def test_a_server_without_ranges_starts_anew(server, fetch):
    server.ranges = False
    server.plan = ['drop', '']
    assert fetch().read_bytes() == CONTENT
    assert ranges(server)[1] is not None


def test_a_server_that_always_breaks_off_and_starts_anew_is_given_up(server, fetch):
    server.ranges = False
    server.plan = ['drop'] * 100
    with pytest.raises(DownloadError, match='broke off'):
        fetch()
    assert len(server.requests) < 10


@pytest.mark.parametrize('honours_if_range', [True, False])
@pytest.mark.parametrize('file', [FILE, UNSIGNED])
def test_a_file_that_changed_meanwhile_is_not_glued(
    server, fetch, tmp_path, honours_if_range, file
):
    server.files['/sub/a.bin'] = OTHER
    server.plan = ['drop', 503, 503, 503]
    with pytest.raises(DownloadError):
        fetch(file)
    server.files['/sub/a.bin'], server.tags['/sub/a.bin'] = CONTENT, '"two"'
    server.honours_if_range = honours_if_range
    assert fetch(file).read_bytes() == CONTENT


def test_without_checksum_and_version_nothing_is_joined(server, fetch):
    server.tags.clear()
    server.plan = ['drop', '']
    assert fetch(UNSIGNED).read_bytes() == CONTENT
    assert ranges(server) == [None, None]


def test_a_corrupt_part_is_noticed_and_fetched_anew(server, fetch, tmp_path, told):
    (tmp_path / 'a.bin.part').write_bytes(OTHER[:1000])
    assert fetch().read_bytes() == CONTENT
    assert 'joined parts have a wrong checksum' in told[0]


def test_a_wrong_checksum_is_reported_and_nothing_kept(server, fetch, tmp_path):
    server.files['/sub/a.bin'] = OTHER
    with pytest.raises(DownloadError, match=f'expected the checksum {SHA256}. Received: '):
        fetch()
    assert names(tmp_path) == []
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ('plan', 'match'),
    [
        ([404], 'answers 404 Not Found'),
        ([403], 'answers 403'),
        ([500] * 3, r'answers 500 .* \(3 attempts\)'),
    ],
)
def test_refusals_name_the_address_and_the_reason(server, fetch, plan, match):
    server.plan = list(plan)
    with pytest.raises(DownloadError, match=match) as error:
        fetch()
    assert f'{server.url}/sub/a.bin' in str(error.value)
    assert len(server.requests) == len(plan)


def test_another_length_than_published_is_refused_before_the_download(server, fetch, tmp_path):
    server.files['/sub/a.bin'] = CONTENT + b'x'
    with pytest.raises(DownloadError, match=r'expected 300000 bytes. Received: 300001\.'):
        fetch()
    assert names(tmp_path) == []


def test_a_length_that_is_announced_too_small(server, fetch):
    server.plan = ['short']
    with pytest.raises(DownloadError, match=r'expected 300000 bytes. Received: 299999\.'):
        fetch()


def test_a_response_without_length(server, fetch):
    server.plan = ['chunked']
    assert fetch().read_bytes() == CONTENT


def test_silence_ends_in_another_attempt(server, fetch):
    server.plan = ['stall', '']
    patience = dataclasses.replace(FAST, read_seconds=0.2)
    assert fetch(patience=patience).read_bytes() == CONTENT
    assert ranges(server)[1] is not None


def test_the_next_address_continues_what_the_first_began(server, fetch):
    server.plan = ['drop', 404, '']
    server.files['/mirror/sub/a.bin'] = CONTENT
    assert fetch(FILE, server.url, f'{server.url}/mirror/').read_bytes() == CONTENT
    assert server.requests[-1]['path'] == '/mirror/sub/a.bin'
    assert server.requests[-1]['Range'] is not None
    assert 'If-Range' not in server.requests[-1]


def test_no_server_is_reported(server, fetch):
    with pytest.raises(DownloadError, match='the connection to the server failed'):
        fetch(FILE, 'http://127.0.0.1:1')


def test_the_proxy_of_the_environment_is_used(server, fetch, monkeypatch):
    monkeypatch.setenv('http_proxy', server.url)
    assert fetch(FILE, 'http://files.invalid').read_bytes() == CONTENT
    assert server.requests[0]['path'] == 'http://files.invalid/sub/a.bin'


def test_too_little_space_is_reported_before_the_download(fetch, tmp_path, monkeypatch):
    usage = disk.shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(disk.shutil, 'disk_usage', lambda path: usage)
    with pytest.raises(DownloadError, match=r'a.bin needs 300\.0 kB of free disk space'):
        fetch()


def test_a_full_disk_keeps_what_has_arrived(server, fetch, tmp_path):
    _, hard = limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(DownloadError, match=r'a\.bin\.part: .*What has arrived is kept'):
            fetch()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (tmp_path / 'a.bin.part').read_bytes() == CONTENT[:100_000]
    assert fetch().read_bytes() == CONTENT
    assert ranges(server)[-1] == 'bytes=100000-'


def test_two_at_once_do_not_mix(fetch, tmp_path):
    target = str(tmp_path / 'a.bin')
    with (
        PartialFile(target, SHA256, lambda done, total: None),
        pytest.raises(DownloadError, match='another process'),
    ):
        fetch()


def test_progress_counts_all_bytes_of_a_resumed_file(server, tmp_path):
    (tmp_path / 'a.bin.part').write_bytes(CONTENT[:200_000])
    reports = []
    downloader = Downloader(report=lambda *report: reports.append(report), patience=FAST)
    downloader.fetch(FILE, str(tmp_path), [server.url])
    assert (200_000, 300_000) in reports
    assert reports[-1] == (300_000, 300_000)


def test_a_checksum_of_no_known_kind_is_an_error(fetch):
    with pytest.raises(ValueError, match='expected an MD5, a SHA-256'):
        fetch(RemoteFile('sub/a.bin', None, 'abc'))


def test_the_beginning_of_a_checksum_is_verified(fetch, tmp_path):
    path = fetch(RemoteFile('sub/a.bin', None, SHA256[:8]))
    assert pathlib.Path(path).read_bytes() == CONTENT
    assert fetch(RemoteFile('sub/a.bin', None, SHA256[:8])) == path
    other = 8 * ('1' if SHA256[0] != '1' else '2')
    with pytest.raises(DownloadError, match=f'expected the checksum {other}'):
        fetch(RemoteFile('sub/a.bin', None, other))
    pathlib.Path(path).unlink()
    with pytest.raises(DownloadError, match=f'expected the checksum {other}'):
        fetch(RemoteFile('sub/a.bin', None, other))
    assert not pathlib.Path(path).exists()
