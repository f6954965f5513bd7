"""Copies of record files."""

import logging
import os
import subprocess
import sys

import pytest
import tensorflow as tf

from object_detection.data.pipeline import record_cache
from object_detection.data.pipeline.record_cache import DiskStore, MemoryStore, RecordCache
from object_detection.system import cpu


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    """Of memory and disk, half is free, whatever is free on the machine of the tests."""
    monkeypatch.setattr(cpu, 'total', lambda: 100 << 30)
    monkeypatch.setattr(cpu, 'available', lambda: 50 << 30)
    usage = record_cache.shutil.disk_usage('/')
    monkeypatch.setattr(
        record_cache.shutil,
        'disk_usage',
        lambda _: usage._replace(total=100 << 30, free=50 << 30),
    )


@pytest.fixture
def files(tmp_path):
    """Three files of five records each."""
    folder = tmp_path / 'records'
    folder.mkdir()
    paths = [str(folder / f'{name}.record') for name in 'abc']
    for path in paths:
        _write(path, 'first')
    return paths


@pytest.fixture(params=['disk', 'memory'])
def store(request, tmp_path):
    return DiskStore(str(tmp_path / 'cache')) if request.param == 'disk' else MemoryStore()


def _write(path, text):
    with tf.io.TFRecordWriter(path) as writer:
        for index in range(5):
            writer.write(f'{os.path.basename(path)} {index} {text}'.encode())


def _fill(files, store):
    cache = RecordCache(files, store)
    cache.start()
    cache.wait()
    return cache


def _read(files, cache):
    pairs = [list(pair) for pair in zip(files, cache.copies(), strict=True)]
    names = tf.data.Dataset.from_tensor_slices(pairs)
    records = names.interleave(
        lambda pair: tf.data.TFRecordDataset(record_cache.choose(pair[0], pair[1])),
        cycle_length=2,
        block_length=2,
    )
    return [record.decode() for record in records.as_numpy_iterator()]


def test_records_and_their_order_do_not_depend_on_the_copies(files, store):
    cache = RecordCache(files, store)
    before = _read(files, cache)
    cache.start()
    cache.wait()
    assert _read(files, cache) == before
    for path in files:
        os.remove(path)
    assert _read(files, cache) == before
    assert _read(files, cache) == before


def test_a_file_that_changed_is_copied_anew(files, store):
    _fill(files, store)
    _write(files[1], 'second')
    cache = RecordCache(files, store)
    assert 'b.record 0 second' in _read(files, cache)
    cache.start()
    cache.wait()
    os.remove(files[1])
    assert 'b.record 0 second' in _read(files, cache)


def test_of_a_changed_file_the_old_copy_is_removed_from_the_disk(files, tmp_path):
    store = DiskStore(str(tmp_path / 'cache'))
    old = _fill(files, store).copies()
    _write(files[1], 'second')
    new = _fill(files, store).copies()
    assert sorted(os.listdir(store.folder)) == sorted(map(os.path.basename, new))
    assert [a == b for a, b in zip(old, new, strict=True)] == [True, False, True]


def test_copies_on_disk_are_found_by_later_runs(files, tmp_path, caplog):
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            _fill(files, DiskStore(str(tmp_path / 'cache')))
    assert 'of 3 files, 3 (' in caplog.messages[0]
    assert 'of 3 files, 0 (0 GB) are copied' in caplog.messages[1]


def test_what_has_no_room_is_read_from_where_it_is(files, store, monkeypatch, caplog):
    # At the start, for the first file, for its one part, and for the second file.
    rooms = iter([10_000, 10_000, 10_000, 10])
    monkeypatch.setattr(store, 'room', lambda: next(rooms))
    cache = _fill(files, store)
    assert [os.path.exists(copy) for copy in cache.copies()] == [True, False, False]
    assert len(_read(files, cache)) == 15
    assert 'has no room for more; 2 of 3 files are read from where they are' in caplog.text


def test_a_copy_is_given_up_when_others_take_its_room(files, store, monkeypatch, caplog):
    monkeypatch.setattr(record_cache, '_CHUNK', 50)
    assert os.path.getsize(files[0]) > 100
    # At the start, for the file, and for two of its parts: what is left of it has no room.
    rooms = iter([10_000, 10_000, 10_000, 10])
    monkeypatch.setattr(store, 'room', lambda: next(rooms))
    cache = _fill(files, store)
    assert os.listdir(store.folder) == []
    assert len(_read(files, cache)) == 15
    assert 'has no room for more; 3 of 3 files are read from where they are' in caplog.text


def test_memory_leaves_a_quarter_free(monkeypatch):
    store = MemoryStore()
    monkeypatch.setattr(cpu, 'available', lambda: 40 << 30)
    assert store.room() == 15 << 30
    monkeypatch.setattr(cpu, 'available', lambda: 20 << 30)
    assert store.room() < 0


def test_memory_leaves_half_of_the_open_files_free(files, monkeypatch):
    store = MemoryStore()
    _fill(files, store)
    monkeypatch.setattr('resource.getrlimit', lambda kind: (6, 6))
    assert store.room() == 0


def test_a_failure_leaves_no_part_and_ends_nothing(files, store, monkeypatch, caplog):
    class Broken:
        def __init__(self, *_):
            raise OSError('the network is gone')

    monkeypatch.setattr(tf.io.gfile, 'GFile', Broken)
    cache = _fill(files, store)
    assert os.listdir(store.folder) == []
    assert 'are read from where they are: the network is gone' in caplog.text
    assert len(_read(files, cache)) == 15


def test_a_file_that_changes_while_it_is_copied_is_not_kept(files, store, monkeypatch, caplog):
    states = [record_cache.file_state(path) for path in files]
    cache = RecordCache(files, store)
    changed = states[0]._replace(modified=1)
    monkeypatch.setattr(record_cache, 'file_state', lambda path: changed)
    cache.start()
    cache.wait()
    assert os.listdir(store.folder) == []
    assert 'has changed while it was copied' in caplog.text


def test_a_part_of_a_killed_process_is_written_anew(files, tmp_path):
    store = DiskStore(str(tmp_path / 'cache'))
    name = record_cache.file_state(files[0]).copy_name
    (tmp_path / 'cache' / f'.{name}.part').write_bytes(b'garbage' * 1000)
    cache = _fill(files, store)
    assert (tmp_path / 'cache' / name).read_bytes() == (
        tmp_path / 'records' / 'a.record'
    ).read_bytes()
    assert sorted(os.listdir(store.folder)) == sorted(map(os.path.basename, cache.copies()))


_OTHER_PROCESS = """
import fcntl, sys
file = open(sys.argv[1], 'ab')
fcntl.flock(file, fcntl.LOCK_EX)
print('locked', flush=True)
sys.stdin.read()
"""


def test_what_another_process_is_copying_is_left_to_it(files, tmp_path):
    store = DiskStore(str(tmp_path / 'cache'))
    name = record_cache.file_state(files[0]).copy_name
    part = str(tmp_path / 'cache' / f'.{name}.part')
    command = [sys.executable, '-c', _OTHER_PROCESS, part]
    pipes = {'stdin': subprocess.PIPE, 'stdout': subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as other:
        other.stdout.readline()
        cache = _fill(files, store)
        assert [os.path.exists(copy) for copy in cache.copies()] == [False, True, True]
        other.communicate()
    _fill(files, store)
    assert os.path.exists(cache.copies()[0])


def test_two_caches_of_the_same_files_at_once(files, store):
    caches = [RecordCache(files, store) for _ in range(2)]
    for cache in caches:
        cache.start()
    for cache in caches:
        cache.wait()
    assert len(_read(files, caches[0])) == 15
    assert not [name for name in os.listdir(store.folder) if name.startswith('.')]


def test_a_killed_process_leaves_no_folder_for_long(tmp_path, monkeypatch):
    monkeypatch.setattr(record_cache.tempfile, 'tempdir', str(tmp_path))
    living = MemoryStore()
    killed = MemoryStore()
    # What the end of a process does, without what it does before.
    os.close(killed._lock)
    for store in (living, killed):
        os.utime(store.folder, (1, 1))
    being_made = tmp_path / 'record_cache_new'
    being_made.mkdir()
    third = MemoryStore()
    expected = {living.folder, third.folder, str(being_made)}
    assert {str(path) for path in tmp_path.iterdir()} == expected


@pytest.mark.slow
def test_a_system_without_locks_of_files_can_read_records():
    program = (
        'import sys\n'
        "sys.modules['fcntl'] = sys.modules['resource'] = None\n"
        'from object_detection.data.pipeline import record_cache\n'
        'print(record_cache.is_available())'
    )
    done = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True)
    assert done.stdout.strip() == 'False', done.stderr
