import threading

import pytest
import tensorflow as tf
from apache_beam.io.filesystems import FileSystems

from object_detection.dataset_tools.converters import sharded_writer


def _write(prefix: str, num_shards: int, records: list[bytes]) -> dict[int, str]:
    paths = {}
    for shard in range(num_shards):
        paths[shard] = sharded_writer.temporary_path(prefix, shard, num_shards)
        with sharded_writer.open_for_writing(paths[shard]) as file:
            for record in records:
                sharded_writer.write_record(file, record)
    return paths


def _names(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_tensorflow_reads_what_was_written(tmp_path):
    records = [b'', b'one', bytes(range(256)) * 1000]
    prefix = str(tmp_path / 'a.record')
    sharded_writer.publish(_write(prefix, 1, records), prefix, 1)
    # Checksums are verified on reading.
    dataset = tf.data.TFRecordDataset(f'{prefix}-00000-of-00001')
    assert list(dataset.as_numpy_iterator()) == records


def test_suffix_does_not_compress(tmp_path):
    prefix = str(tmp_path / 'a.gz')
    with sharded_writer.open_for_writing(prefix) as file:
        file.write(b'plain')
    assert (tmp_path / 'a.gz').read_bytes() == b'plain'


def test_publish_replaces_earlier_sets_and_nothing_else(tmp_path):
    kept = ['data', 'data-00000-of-00003.bak', 'data-2', 'data2-00000-of-00003', 'x']
    gone = ['data-00000-of-00003', 'data-00001-of-00003', f'data-00001-of-00003.tmp-{"0" * 32}']
    for name in kept + gone + ['data-00000-of-00002']:
        (tmp_path / name).write_text('old')
    (tmp_path / 'data-x').mkdir()
    (tmp_path / 'data-x' / 'data-00000-of-00003').write_text('old')
    prefix = str(tmp_path / 'data')
    paths = _write(prefix, 2, [b'new'])
    sharded_writer.publish(paths, prefix, 2)
    new = ['data-00000-of-00002', 'data-00001-of-00002']
    assert _names(tmp_path) == sorted(kept + new + ['data-x'])
    assert _names(tmp_path / 'data-x') == ['data-00000-of-00003']
    assert all((tmp_path / name).read_bytes() != b'old' for name in new)
    assert all((tmp_path / name).read_bytes() == b'old' for name in kept)
    # As a runner that repeats a step would.
    sharded_writer.publish(paths, prefix, 2)
    assert _names(tmp_path) == sorted(kept + new + ['data-x'])


def test_temporary_files_are_not_shards(tmp_path):
    prefix = str(tmp_path / 'data')
    _write(prefix, 2, [b'new'])
    assert len(_names(tmp_path)) == 2
    assert not list(tmp_path.glob('data-?????-of-?????'))
    sharded_writer.remove_temporary_files(prefix)
    assert not _names(tmp_path)


def test_prepare_output_makes_the_folder_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    prefix = sharded_writer.prepare_output('new/folder/data', 3)
    assert prefix == str(tmp_path / 'new' / 'folder' / 'data')
    assert (tmp_path / 'new' / 'folder').is_dir()
    (tmp_path / f'data-00000-of-00003.tmp-{"0" * 32}').touch()
    assert sharded_writer.prepare_output('data', 3) == str(tmp_path / 'data')
    assert _names(tmp_path) == ['new']


@pytest.mark.parametrize(
    ('prefix', 'num_shards', 'match'),
    [
        ('a', 0, 'number of shards must be between 1 and 99999. Received: 0'),
        ('a', 100_000, 'Received: 100000'),
        ('folder/', 1, 'output prefix'),
        ('a*', 1, 'output prefix'),
    ],
)
def test_output_that_cannot_be_used(tmp_path, monkeypatch, prefix, num_shards, match):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=match):
        sharded_writer.prepare_output(prefix, num_shards)
    assert not _names(tmp_path)


def test_a_failure_while_publishing_loses_nothing_of_the_new_set(tmp_path, monkeypatch):
    prefix = str(tmp_path / 'data')
    sharded_writer.publish(_write(prefix, 4, [b'old']), prefix, 4)
    paths = _write(prefix, 4, [b'new'])
    rename, calls = FileSystems.rename, []

    def fail_at_the_third(sources, destinations):
        calls.append(sources)
        if len(calls) == 3:
            raise OSError('lost the connection')
        rename(sources, destinations)

    monkeypatch.setattr(FileSystems, 'rename', fail_at_the_third)
    with pytest.raises(OSError, match='lost the connection'):
        sharded_writer.publish(paths, prefix, 4)
    assert sharded_writer.is_publishing(prefix)
    assert len(sharded_writer.temporary_files(prefix)) == 2
    # As a runner that tries again, or a user with `mv`, would.
    sharded_writer.publish(paths, prefix, 4)
    assert not sharded_writer.is_publishing(prefix)
    assert _names(tmp_path) == [f'data-0000{shard}-of-00004' for shard in range(4)]
    files = [str(tmp_path / name) for name in _names(tmp_path)]
    assert list(tf.data.TFRecordDataset(files).as_numpy_iterator()) == [b'new'] * 4


def test_text_appears_when_it_is_complete(tmp_path, monkeypatch):
    path = str(tmp_path / 'a.json')
    sharded_writer.write_text(path, 'first')
    sharded_writer.write_text(path, 'ü')
    assert (tmp_path / 'a.json').read_text() == 'ü'
    monkeypatch.setattr(sharded_writer, 'open_for_writing', _full)
    with pytest.raises(OSError, match='full'):
        sharded_writer.write_text(path, 'third')
    assert _names(tmp_path) == ['a.json']
    assert (tmp_path / 'a.json').read_text() == 'ü'


def _full(path: str):
    raise OSError('the disk is full')


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
    records = sharded_writer.GrowingShards(prefix)
    assert records.count() == 0
    _append(first, b'a', b'b')
    assert records.count() == 2
    _append(first, b'c')
    _append(second, b'd')
    assert records.count() == 4
    sharded_writer.publish({0: first, 1: second}, prefix, 2)
    assert records.count() == 4


def test_progress_is_reported_while_the_block_runs(tmp_path):
    prefix = str(tmp_path / 'data')
    told, is_told = [], threading.Event()

    def progress(done, total):
        told.append((done, total))
        if done:
            is_told.set()

    with sharded_writer.watched(prefix, 2, progress, interval=0.01):
        _append(sharded_writer.temporary_path(prefix, 0, 1), b'a', b'b', b'c')
        assert is_told.wait(10)
    # Never more than there are, even if a shard is written twice.
    assert told[-1] == (2, 2)
    assert not [thread for thread in threading.enumerate() if thread.name == 'progress']


@pytest.mark.parametrize('prefix', ['', 'gs://bucket/data'])
def test_nothing_is_watched_unasked_or_on_other_machines(prefix):
    progress = None if not prefix else lambda done, total: None
    with sharded_writer.watched(prefix, 2, progress):
        assert not [thread for thread in threading.enumerate() if thread.name == 'progress']


def test_scratch_files_are_removed_and_not_counted(tmp_path):
    prefix = sharded_writer.prepare_output(str(tmp_path / 'a'), 1)
    path = sharded_writer.scratch_path(prefix)
    with sharded_writer.open_for_writing(path) as file:
        sharded_writer.write_record(file, b'bank')
    assert sharded_writer.GrowingShards(prefix).count() == 0
    assert sharded_writer.temporary_files(prefix) == [path]
    sharded_writer.remove_temporary_files(prefix)
    assert not list(tmp_path.iterdir())
