"""What long work shows on stderr."""

import contextlib
import io
import logging
import os
import pty
import re
import threading
import time

import pytest

from object_detection.system import console


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(console, 'SECONDS_UNTIL_SHOWN', 0.05)
    monkeypatch.setattr(console, 'SECONDS_BETWEEN_LINES', 0.1)
    monkeypatch.setattr(console, '_terminal', threading.Lock())


@pytest.fixture
def level():
    """Restores the level of the package's log."""
    logger = logging.getLogger('object_detection')
    before = logger.level
    yield
    logger.setLevel(before)


def test_short_work_shows_nothing(capsys, monkeypatch):
    monkeypatch.setattr(console, 'SECONDS_UNTIL_SHOWN', 10.0)
    started = time.monotonic()
    with console.phase('building'):
        pass
    assert time.monotonic() - started < 5
    assert capsys.readouterr() == ('', '')


def test_lines_where_there_is_no_terminal(capsys):
    shown = []
    deadline = time.monotonic() + 60
    with console.phase('building'):
        while len(shown) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.02)
            out, err = capsys.readouterr()
            assert not out
            shown += err.splitlines()
    first, *others = shown
    assert first == 'building ...'
    assert all(re.fullmatch(r'building: 0:00:\d\d', line) for line in others)


def test_an_error_ends_the_lines(capsys):
    with contextlib.suppress(ArithmeticError), console.phase('building'):
        raise ArithmeticError
    time.sleep(0.2)
    assert capsys.readouterr().err == ''


def test_nothing_if_quiet(capsys, level):
    console.be_quiet()
    assert console.is_quiet()
    with console.phase('building'):
        time.sleep(0.2)
    assert capsys.readouterr().err == ''


@contextlib.contextmanager
def terminal(monkeypatch):
    """Makes stderr a terminal; yields a list, to which what it showed is added in the end."""
    outside, inside = pty.openpty()
    os.set_blocking(outside, False)
    monkeypatch.setenv('TERM', 'xterm')
    shown = []
    with open(inside, 'w', encoding='utf-8') as stream, contextlib.redirect_stderr(stream):
        yield shown
        with contextlib.suppress(BlockingIOError):
            shown.append(re.sub(r'\x1b\[[0-9;?]*[a-zA-Z]', '', os.read(outside, 10**5).decode()))
    os.close(outside)


def test_a_spinner_on_a_terminal(monkeypatch):
    with terminal(monkeypatch) as shown, console.phase('building'):
        time.sleep(1.5)
    assert 'building 0:00:0' in shown[0]


def test_no_spinner_beside_another_display(monkeypatch):
    with terminal(monkeypatch) as shown, console.drawing() as is_free, console.phase('building'):
        time.sleep(0.2)
    assert is_free
    assert shown == []


def test_the_stream_is_that_of_the_start():
    stream = io.StringIO()
    elsewhere = contextlib.redirect_stderr(io.StringIO())
    deadline = time.monotonic() + 60
    with contextlib.redirect_stderr(stream), console.phase('building'), elsewhere:
        while not stream.getvalue():
            assert time.monotonic() < deadline
            time.sleep(0.02)
    assert stream.getvalue().startswith('building ...\n')
