"""Saves that fail lose nothing; old checkpoints go, and some are kept for good."""

import contextlib
import errno
import logging
import os
import resource
import subprocess
import time

import pytest
import tensorflow as tf

from object_detection.errors import CheckpointError
from object_detection.system import disk
from object_detection.training.checkpoints import recovery
from object_detection.weights import checkpoint_files
from tests.weights.tiny_checkpoints import (
    files_of,
    make_checkpoints,
    make_variables,
    names_in,
    state_of,
)


@contextlib.contextmanager
def _largest_file(size):
    """No file may grow beyond `size` bytes in here: writing fails inside the system."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def _large_checkpoints(directory, **options):
    """2 MB each, with the optimizer's state."""
    return make_checkpoints(directory, make_variables(shape=(500, 500)), **options)


def _check_one_whole(directory, saver):
    assert names_in(directory) == files_of(1)
    assert state_of(directory) == [1]
    assert saver.latest == str(directory / 'ckpt-1')
    checkpoint_files.read_through(saver.latest)
    assert recovery.sweep(str(directory)) == []


def test_a_write_that_fails_is_one_sentence_and_loses_nothing(tmp_path):
    saver = _large_checkpoints(tmp_path)
    saver.save()
    with _largest_file(1_000_000), pytest.raises(CheckpointError) as error:
        saver.save()
    text = str(error.value)
    assert text.startswith(f'A checkpoint could not be written to {tmp_path}: ')
    assert '\n' not in text
    assert 'Op:' not in text
    assert '{' not in text
    assert 'free there, 2.0 MB needed' in text
    assert text.endswith(f'The newest checkpoint is {tmp_path / "ckpt-1"}.')
    _check_one_whole(tmp_path, saver)
    # And when there is room again.
    assert os.path.exists(f'{saver.save()}.index')


def test_a_state_file_that_cannot_be_written_commits_nothing(tmp_path, monkeypatch):
    saver = _large_checkpoints(tmp_path)
    saver.save()

    def limit(prefix):
        # The data are written by now; only the state file meets it.
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (40, hard))

    with _largest_file(2**40), monkeypatch.context() as patch:
        patch.setattr(checkpoint_files, 'make_durable', limit)
        with pytest.raises(CheckpointError, match='could not be written'):
            saver.save()
    _check_one_whole(tmp_path, saver)


def test_a_disk_that_cannot_flush_commits_nothing(tmp_path, monkeypatch):
    saver = _large_checkpoints(tmp_path)
    saver.save()

    def fail(descriptor):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, 'fsync', fail)
        with pytest.raises(CheckpointError, match='Input/output error'):
            saver.save()
    _check_one_whole(tmp_path, saver)


@pytest.fixture
def small_disk(tmp_path):
    """A folder on a disk of 3 MB."""
    folder = tmp_path / 'disk'
    folder.mkdir()
    command = ['mount', '-t', 'tmpfs', '-o', 'size=3m', 'tmpfs', str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True, timeout=20).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        pytest.skip('mounting a file system of its own is not permitted here')
    yield folder
    subprocess.run(['umount', '-l', str(folder)], check=True)


def test_a_full_disk_is_reported_before_and_in_a_save(small_disk):
    directory = small_disk / 'model'
    saver = _large_checkpoints(directory)
    recovery.prepare(str(directory))
    saver.check_room()
    saver.save()
    with pytest.raises(CheckpointError, match=r'needs 2\.0 MB of disk space\. Received: 1\.\d MB'):
        saver.check_room()
    with pytest.raises(CheckpointError, match=r'No space left on device.*1\.\d MB free there'):
        saver.save()
    _check_one_whole(directory, saver)
    _large_checkpoints(directory).restore_latest()


def test_a_read_only_disk_is_reported(small_disk):
    directory = small_disk / 'model'
    saver = make_checkpoints(directory, make_variables())
    saver.save()
    remount = ['mount', '-o', 'remount,ro', str(small_disk)]
    subprocess.run(remount, check=True, capture_output=True)
    with pytest.raises(CheckpointError, match=r'could not be written.*ead-only file system'):
        saver.save()
    with pytest.raises(CheckpointError, match=r'can be written\. Received: Read-only file'):
        recovery.prepare(str(directory))
    assert state_of(directory) == [1]


def test_a_folder_that_cannot_be_made_is_reported(tmp_path):
    (tmp_path / 'file').write_text('')
    for path in (tmp_path / 'file', tmp_path / 'file' / 'model'):
        with pytest.raises(CheckpointError, match=f'{path}: expected a folder that can be'):
            disk.check_writable(str(path))
    with pytest.raises(CheckpointError, match=r'needs 1000000\.0 GB of disk space'):
        disk.check_writable(str(tmp_path), 10**15)
    disk.check_writable(str(tmp_path), 1000)
    assert names_in(tmp_path) == ['file']


def test_too_little_room_for_all_that_are_kept_is_a_warning(tmp_path, monkeypatch, caplog):
    saver = _large_checkpoints(tmp_path, max_to_keep=4)
    monkeypatch.setattr(disk, 'free_bytes', lambda directory: 8_500_000)
    saver.save()
    saver.check_room()
    assert not caplog.records
    monkeypatch.setattr(disk, 'free_bytes', lambda directory: 7_500_000)
    saver.check_room()
    assert '7.5 MB of disk space are free, and 4 checkpoints to be kept will need 8.0 MB' in (
        caplog.text
    )


def test_checkpoints_that_wait_to_be_evaluated_need_room_too(tmp_path, monkeypatch, caplog):
    saver = _large_checkpoints(tmp_path, max_to_keep=4)
    monkeypatch.setattr(disk, 'free_bytes', lambda directory: 18_500_000)
    saver.save()
    saver.check_room(5)
    assert not caplog.records
    monkeypatch.setattr(disk, 'free_bytes', lambda directory: 17_500_000)
    saver.check_room(5)
    assert '4 checkpoints to be kept and 5 that wait to be evaluated will need 18.0 MB' in (
        caplog.text
    )


def test_a_restart_that_keeps_fewer_deletes_the_older(tmp_path):
    saver = make_checkpoints(tmp_path, make_variables(), max_to_keep=4)
    for _ in range(4):
        saver.save()
    again = make_checkpoints(tmp_path, make_variables(), max_to_keep=2)
    again.restore_latest()
    again.save()
    assert state_of(tmp_path) == [4, 5]
    assert names_in(tmp_path) == files_of(4, 5)


def test_a_restart_that_keeps_more_deletes_none(tmp_path):
    for count in (1, 2):
        saver = make_checkpoints(tmp_path, make_variables(), max_to_keep=5 * count)
        saver.restore_latest()
        for _ in range(4):
            saver.save()
    assert state_of(tmp_path) == list(range(1, 9))


def test_one_in_so_many_hours_is_kept_for_good_over_restarts(tmp_path, monkeypatch):
    """One save and one restart every 40 minutes: of every two old ones, one stays."""
    now = time.time()
    for number in range(8):
        monkeypatch.setattr(time, 'time', lambda number=number: now + 2400.0 * number)
        recovery.prepare(str(tmp_path))
        saver = make_checkpoints(tmp_path, make_variables(), max_to_keep=2, keep_every_n_hours=1.0)
        saver.restore_latest()
        saver.save()
    assert state_of(tmp_path) == [7, 8]
    kept = {int(path.stem.rpartition('-')[2]) for path in tmp_path.glob('*.index')}
    assert kept == {3, 5, 7, 8}
    assert recovery.sweep(str(tmp_path)) == []


def test_failures_outside_the_files_are_reported_too(tmp_path):
    told = pytest.raises(CheckpointError, match=r'^The log could not be written to .*: broken; ')
    with told, disk.writing(str(tmp_path), 'The log'):
        raise tf.errors.UnknownError(None, None, 'broken\nat line 3')


def test_only_a_full_disk_is_named(tmp_path):
    directory = str(tmp_path)
    node = '{{function_node x}} /a/b; No space left on device\n\tFailed to flush 8 events [Op:X]'
    full = [
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
        tf.errors.ResourceExhaustedError(None, None, node),
    ]
    told = f'^Results could not be written to {tmp_path}: No space left on device; .* free there'
    for error in full:
        with pytest.raises(CheckpointError, match=told), disk.full_disk_named(directory):
            raise error
    others = [
        OSError(errno.ENOENT, os.strerror(errno.ENOENT)),
        tf.errors.ResourceExhaustedError(None, None, 'OOM when allocating a tensor'),
    ]
    for error in others:
        with pytest.raises(type(error)) as raised, disk.full_disk_named(directory):
            raise error
        assert raised.value is error


def test_the_log_of_a_save_is_quiet(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        make_checkpoints(tmp_path, make_variables()).save()
    assert not caplog.records
