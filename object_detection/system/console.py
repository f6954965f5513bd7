"""What a program shows on stderr while it works: nothing if quiet, a spinner or lines otherwise.

Imports no TensorFlow.
"""

import contextlib
import datetime
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import TextIO

import rich.console
import rich.progress

# Shorter phases show nothing; longer ones show a line as often as this where there is no terminal.
SECONDS_UNTIL_SHOWN = 2.0
SECONDS_BETWEEN_LINES = 30.0

_LOGGER = logging.getLogger('object_detection')
# Held by what is drawn on the terminal: two displays would overwrite each other.
_terminal = threading.Lock()


def be_quiet() -> None:
    """Makes this process show no progress, and log warnings and errors only."""
    _LOGGER.setLevel(logging.WARNING)


def is_quiet() -> bool:
    """Whether the log of this package is limited to warnings, which `be_quiet` does."""
    return _LOGGER.level > logging.INFO


def redirects() -> dict[str, bool]:
    """Returns the arguments of a live display on stderr: only terminals are redirected to it."""
    return {'redirect_stdout': sys.stdout.isatty(), 'redirect_stderr': True}


@contextlib.contextmanager
def drawing() -> Iterator[bool]:
    """A context that draws on the terminal; yields False if another display does so already."""
    is_free = _terminal.acquire(blocking=False)
    try:
        yield is_free
    finally:
        if is_free:
            _terminal.release()


@contextlib.contextmanager
def phase(what: str) -> Iterator[None]:
    """Shows that a part of the work runs, and for how long, from its third second on.

    On a terminal this is a line with a spinner that disappears in the end; elsewhere a line at two
    seconds, and one each half minute.

    Args:
      what: the activity, e.g. 'building the model'.
    """
    if is_quiet() or sys.stderr is None:
        yield
        return
    with contextlib.ExitStack() as opened:
        stream = opened.enter_context(_stderr())
        done = threading.Event()
        thread = threading.Thread(target=_show, args=(what, stream, done), daemon=True)
        thread.start()
        # In this order: the stream is closed after the last line.
        opened.callback(thread.join)
        opened.callback(done.set)
        yield


@contextlib.contextmanager
def _stderr() -> Iterator[TextIO]:
    """Yields a copy of stderr that remains when the descriptor is redirected for a while."""
    try:
        descriptor = os.dup(2) if sys.stderr.fileno() == 2 else None
    except (AttributeError, OSError, ValueError):
        descriptor = None
    if descriptor is None:
        yield sys.stderr
        return
    with open(descriptor, 'w', encoding='utf-8', errors='replace') as copy:
        yield copy


def _show(what: str, stream: TextIO, done: threading.Event) -> None:
    started = time.monotonic()
    if done.wait(SECONDS_UNTIL_SHOWN):
        return
    # Nobody may look any more: the terminal or the reader of a pipe is gone.
    with contextlib.suppress(OSError, ValueError):
        _show_until(what, stream, done, started)


def _show_until(what: str, stream: TextIO, done: threading.Event, started: float) -> None:
    console = rich.console.Console(file=stream)
    if not console.is_terminal:
        _print_lines(what, stream, done, started)
        return
    with drawing() as is_free:
        if is_free:
            _spin(what, console, done)


def _print_lines(what: str, stream: TextIO, done: threading.Event, started: float) -> None:
    text = f'{what} ...'
    while True:
        print(text, file=stream, flush=True)
        if done.wait(SECONDS_BETWEEN_LINES):
            return
        seconds = round(time.monotonic() - started)
        text = f'{what}: {datetime.timedelta(seconds=seconds)}'


def _spin(what: str, console: rich.console.Console, done: threading.Event) -> None:
    # The main thread may print meanwhile: its streams are not replaced from here.
    with rich.progress.Progress(
        rich.progress.SpinnerColumn(),
        rich.progress.TextColumn('{task.description}'),
        rich.progress.TimeElapsedColumn(),
        console=console,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    ) as display:
        display.add_task(what, total=None)
        done.wait()
