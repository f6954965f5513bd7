"""One process at a time, with the file system's locks and without."""

import errno
import fcntl
import os

import pytest

from object_detection.errors import CheckpointError
from object_detection.system import folder_lock


def test_one_training_at_a_time(tmp_path):
    directory = str(tmp_path)
    with (
        folder_lock.occupied(directory),
        pytest.raises(CheckpointError, match='another training'),
    ):
        folder_lock.occupied(directory).__enter__()
    with folder_lock.occupied(directory):
        assert [path.name for path in tmp_path.iterdir()] == [folder_lock.TRAINING_LOCK]


def test_a_held_lock_ends_in_a_timeout(tmp_path):
    path = tmp_path / 'lock'
    with folder_lock.exclusive(path, 0.0), pytest.raises(TimeoutError, match='has held'):
        folder_lock.exclusive(path, 0.0).__enter__()
    with folder_lock.exclusive(path, 0.0):
        pass


@pytest.fixture
def no_locks(monkeypatch):
    """A file system without locks, on which little time is waited."""

    def flock(file, operation):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, 'flock', flock)
    monkeypatch.setattr(folder_lock, '_SECONDS_TO_SETTLE', 0.0)
    monkeypatch.setattr(folder_lock, '_BETWEEN_ATTEMPTS', 0.001)


def test_without_locks_a_training_that_lives_keeps_others_out(tmp_path, no_locks, monkeypatch):
    # The second one looks until it sees the first one's next sign of life.
    monkeypatch.setattr(folder_lock, '_HEARTBEAT', 0.01)
    directory = str(tmp_path)
    with (
        folder_lock.occupied(directory),
        pytest.raises(CheckpointError, match='another training'),
    ):
        folder_lock.occupied(directory).__enter__()
    with folder_lock.occupied(directory):
        assert (tmp_path / folder_lock.TRAINING_LOCK).read_text()
    assert (tmp_path / folder_lock.TRAINING_LOCK).read_text() == ''


def test_a_sign_of_life_is_never_missing(tmp_path, monkeypatch):
    path = tmp_path / 'file'
    folder_lock._write(str(path), 'a long name 1')
    seen = []
    for name in ('pwrite', 'ftruncate', 'fsync'):
        function = getattr(os, name)

        def look(*arguments, function=function):
            seen.append(path.read_text())
            return function(*arguments)

        monkeypatch.setattr(os, name, look)
    folder_lock._write(str(path), 'name 2')
    assert seen == ['a long name 1', 'name 2 name 1', 'name 2']
    folder_lock._write(str(path), '')
    assert path.read_text() == ''


def test_without_locks_one_that_was_killed_does_not_keep_others_out(
    tmp_path, no_locks, monkeypatch, caplog
):
    (tmp_path / folder_lock.TRAINING_LOCK).write_text('killed 7')
    monkeypatch.setattr(folder_lock, '_HOLDER_TIMEOUT', 0.05)
    with folder_lock.occupied(str(tmp_path)):
        assert not (tmp_path / folder_lock.TRAINING_LOCK).read_text().startswith('killed')
    assert 'its file system has no locks (No locks available)' in caplog.text
