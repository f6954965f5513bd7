import threading

import pytest

from object_detection.dataset_tools import sharded_writer, written_records


def _append(path, *records: bytes) -> None:
    with open(path, 'ab') as file:
        for record in records:
            sharded_writer.write_record(file, record)


def test_records_of_a_growing_file_are_counted_when_they_are_complete(tmp_path):
    path = tmp_path / 'shard'
    _append(path, b'a', b'')
    assert sharded_writer.count_records(str(path)) == (2, 2 * 16 + 1)
    whole = path.read_bytes()
    _append(path, b'x' * 100)
    longer = path.read_bytes()
    # The length alone, then all but the last byte.
    for cut in (len(whole) + 5, len(whole) + 14, len(longer) - 1):
        path.write_bytes(longer[:cut])
        assert sharded_writer.count_records(str(path), len(whole)) == (0, len(whole))
    path.write_bytes(longer)
    assert sharded_writer.count_records(str(path), len(whole)) == (1, len(longer))


def test_shards_are_read_on_and_count_when_they_are_gone(tmp_path):
    prefix = str(tmp_path / 'data')
    first, second = (sharded_writer.temporary_path(prefix, shard, 2) for shard in range(2))
    records = written_records.GrowingShards(prefix)
    assert records.count() == 0
    _append(first, b'a', b'b')
    assert records.count() == 2
    _append(first, b'c')
    _append(second, b'd')
    assert records.count() == 4
    sharded_writer.publish({0: first, 1: second}, prefix, 2)
    assert records.count() == 4


def test_progress_is_told_while_the_block_runs(tmp_path):
    prefix = str(tmp_path / 'data')
    told, is_told = [], threading.Event()

    def progress(done, total):
        told.append((done, total))
        if done:
            is_told.set()

    with written_records.watched(prefix, 2, progress, interval=0.01):
        _append(sharded_writer.temporary_path(prefix, 0, 1), b'a', b'b', b'c')
        assert is_told.wait(10)
    # Never more than there are, even if a shard is written twice.
    assert told[-1] == (2, 2)
    assert not [thread for thread in threading.enumerate() if thread.name == 'progress']


@pytest.mark.parametrize('prefix', ['', 'gs://bucket/data'])
def test_nothing_is_watched_unasked_or_on_other_machines(prefix):
    progress = None if not prefix else lambda done, total: None
    with written_records.watched(prefix, 2, progress):
        assert not [thread for thread in threading.enumerate() if thread.name == 'progress']
