"""Records that are read through a cache."""

import os
import threading

import numpy as np
import pytest
import tensorflow as tf

from object_detection.builders.input_readers import tf_records
from object_detection.data.pipeline import record_cache
from object_detection.protos import input_reader_pb2
from object_detection.system import folder_lock
from tests import slow_cases
from tests.validation.pipelines import sound_pipeline
from tests.validation.test_validate import problems


@pytest.fixture
def reader(tmp_path, monkeypatch):
    # Whatever is free on the machine of the tests.
    for store in (record_cache.DiskStore, record_cache.MemoryStore):
        monkeypatch.setattr(store, 'room', lambda self: 1 << 20)
    for index in range(4):
        with tf.io.TFRecordWriter(str(tmp_path / f'{index}.record')) as writer:
            for number in range(6):
                writer.write(f'{index}/{number}'.encode())
    reader = input_reader_pb2.InputReader(num_readers=3, read_block_length=2)
    reader.shuffle_buffer_size = 5
    reader.tf_record_input_reader.input_path.append(str(tmp_path / '*.record'))
    return reader


def _read(reader, count, context=None, start=None):
    records = tf_records.read(
        reader,
        'train_input_reader',
        shuffle=True,
        num_epochs=None,
        seed=3,
        input_context=context,
        start=start,
    )
    return [record['serialized'].decode() for _, record in records.take(count).as_numpy_iterator()]


@slow_cases.parametrize(1, 'directory', ['', 'cache'])
def test_the_order_is_that_without_a_cache(reader, directory, tmp_path):
    expected = _read(reader, 60)
    if directory:
        directory = str(tmp_path / directory)
    reader.record_cache.directory = directory
    assert _read(reader, 60) == expected
    names = sorted(str(path) for path in tmp_path.glob('*.record'))
    copies = record_cache.build_cache(names, directory)
    copies.start()
    copies.wait()
    # Other records of the same length at the places of the files: the copies are read.
    for index in range(4):
        path = tmp_path / f'{index}.record'
        state = path.stat()
        content = path.read_bytes()
        path.write_bytes(b'\0' * len(content))
        os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert _read(reader, 60) == expected
    start = np.array([[30]], np.int64)
    assert len(_read(reader, 10, start=start)) == 10


@pytest.mark.parametrize(('workers', 'files'), [(2, 2), (8, 4)])
def test_a_worker_copies_the_files_that_it_reads(reader, tmp_path, workers, files):
    reader.record_cache.directory = str(tmp_path / 'cache')
    context = tf.distribute.InputContext(workers, 1, workers)
    _read(reader, 3, context)
    for thread in threading.enumerate():
        if thread.name == 'record_cache':
            thread.join()
    assert len(os.listdir(tmp_path / 'cache')) == files


@pytest.mark.parametrize('folder', ['gs://bucket/cache', '/data/[a]', '/data/*'])
def test_folders_that_cannot_be_are_reported(tmp_path, folder):
    pipeline = sound_pipeline(tmp_path)
    pipeline.train_input_reader.record_cache.directory = folder
    (problem,) = problems(pipeline)
    assert problem.startswith(
        'train_input_reader.record_cache.directory: expected a folder of this machine'
    )
    assert repr(folder) in problem


@pytest.mark.slow
def test_without_locks_of_files_nothing_is_copied(reader, monkeypatch, caplog):
    expected = _read(reader, 24)
    reader.record_cache.directory = ''
    monkeypatch.setattr(folder_lock, 'fcntl', None)
    assert _read(reader, 24) == expected
    assert 'nothing is copied' in caplog.text
