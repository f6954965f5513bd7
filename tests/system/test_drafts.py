"""Drafts of exports, above all those of processes that were killed."""

import concurrent.futures
import errno
import os
import pathlib
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from object_detection.errors import CheckpointError
from object_detection.system import publishing
from tests import rows

# A folder, a plain file, a file in a folder that keeps other files, and the last one.
ITEMS = ('checkpoint/ckpt', 'model.bin', 'sub/weights', 'sub/last')
NAMES = ('checkpoint', *ITEMS[1:])


def write(folder: pathlib.Path, text: str) -> None:
    for item in ITEMS:
        (folder / item).parent.mkdir(exist_ok=True)
        (folder / item).write_text(text)


def export(output: pathlib.Path, text: str) -> None:
    with publishing.open_draft(output) as draft:
        write(draft.folder, text)
        draft.publish(NAMES)


def texts(output: pathlib.Path) -> list[str | None]:
    paths = [output / item for item in ITEMS]
    return [path.read_text() if path.exists() else None for path in paths]


def kill_at(move: int, output: pathlib.Path) -> None:
    """Exports 'second' in a process that is killed before its move of this number."""
    code = f"""
        import os, pathlib, signal
        from tests.system import test_drafts
        real, count = os.replace, [0]
        def replace(*paths):
            if count[0] == {move}:
                os.kill(os.getpid(), signal.SIGKILL)
            count[0] += 1
            real(*paths)
        os.replace = replace
        test_drafts.export(pathlib.Path({str(output)!r}), 'second')
    """
    run = subprocess.run([sys.executable, '-c', textwrap.dedent(code)], check=False)
    assert run.returncode == -signal.SIGKILL


@rows.parametrize('move', [0, 2, 5, 7])
def test_what_a_killed_process_moved_comes_back(move, tmp_path):
    export(tmp_path, 'first')
    (tmp_path / 'sub' / 'other').write_text('of the user')
    kill_at(move, tmp_path)
    assert list(tmp_path.glob('.export-*'))
    assert (texts(tmp_path) == ['first'] * 4) == (move == 0)
    with publishing.open_draft(tmp_path):
        assert texts(tmp_path) == ['first'] * 4
        assert len(list(tmp_path.glob('.export-*'))) == 1
    assert not list(tmp_path.glob('.export-*'))
    assert (tmp_path / 'sub' / 'other').exists()


def test_a_draft_whose_moves_are_all_done_is_only_removed(tmp_path):
    export(tmp_path, 'second')
    leftover = tmp_path / '.export-x'
    for folder in ('new/sub', 'old'):
        (leftover / folder).mkdir(parents=True)
    write(leftover / 'old', 'first')
    with publishing.open_draft(tmp_path):
        assert texts(tmp_path) == ['second'] * 4
        assert not leftover.exists()


def test_what_a_killed_process_moved_is_settled_before_another_draft_is_published(tmp_path):
    export(tmp_path, 'first')
    with publishing.open_draft(tmp_path) as draft:
        write(draft.folder, 'third')
        kill_at(5, tmp_path)
        draft.publish(NAMES)
    with publishing.open_draft(tmp_path):
        assert texts(tmp_path) == ['third'] * 4


def test_drafts_that_are_published_at_the_same_time_are_whole(tmp_path, monkeypatch):
    real, threads = os.replace, 4
    barrier = threading.Barrier(threads)

    def replace(*paths):
        time.sleep(0.0005)  # Lets another thread move.
        real(*paths)

    def publish(text: str) -> None:
        with publishing.open_draft(tmp_path) as draft:
            write(draft.folder, text)
            barrier.wait(20)
            draft.publish(NAMES)

    monkeypatch.setattr(os, 'replace', replace)
    for _ in range(5):
        with concurrent.futures.ThreadPoolExecutor(threads) as pool:
            list(pool.map(publish, 'abcd'))
        assert len(set(texts(tmp_path))) == 1
        assert set(texts(tmp_path)) < set('abcd')
        assert not list(tmp_path.glob('.export-*'))


def test_a_full_disk_is_named_without_the_scratch_folder(tmp_path):
    def fill() -> None:
        with publishing.open_draft(tmp_path) as draft:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(draft.folder / 'checkpoint'))

    message = f'could not be written to {re.escape(str(tmp_path))}: No space left on device'
    with pytest.raises(CheckpointError, match=message):
        fill()


def test_a_draft_of_a_living_process_stays(tmp_path):
    with publishing.open_draft(tmp_path) as first:
        write(first.folder, 'first')
        with publishing.open_draft(tmp_path) as second:
            assert first.folder.is_dir()
        # The second one has gone, and the first one still holds the folder.
        export(tmp_path, 'third')
        assert first.folder.is_dir()
        assert not second.folder.exists()
        first.publish(NAMES)
    assert texts(tmp_path) == ['first'] * 4
    assert os.listdir(tmp_path / 'sub') in (['last', 'weights'], ['weights', 'last'])


def test_a_draft_of_another_user_is_left_alone(tmp_path, monkeypatch):
    left = tmp_path / f'{publishing.PREFIX}other'
    left.mkdir()
    opened = os.open

    def open_own(path, *others, **options):
        if path == left:
            raise PermissionError(errno.EACCES, 'Permission denied', path)
        return opened(path, *others, **options)

    monkeypatch.setattr(os, 'open', open_own)
    with publishing.open_draft(tmp_path) as draft:
        (draft.folder / 'a').write_text('new')
        draft.publish(['a'])
    assert (tmp_path / 'a').read_text() == 'new'
    assert left.is_dir()
