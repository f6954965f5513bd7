"""Processes of their own for tests that are not about how a program starts.

They are forks of one process that has imported what a training needs, which takes seconds, and has
run no operation. Each process of pytest has one such server, for all of its tests.
"""

import concurrent.futures
import functools
import multiprocessing
import tempfile
from collections.abc import Callable
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from typing import Any
from unittest import mock

# Between them they import all that the tests' processes need; none of them runs an operation.
_IMPORTED = (
    'tests.rare_garbage_collection',
    'tests.training.killed_training',
    'tests.training.distribution.replica_runs',
    'tests.training.resumed_training',
    'tests.frozen_objects',
)
# Seconds, on a busy machine; alone, most take less than a minute.
TIME_LIMIT = 300


@functools.cache
def context() -> ForkServerContext:
    """What starts processes; the same server for all who ask."""
    server = multiprocessing.get_context('forkserver')
    server.set_forkserver_preload(list(_IMPORTED))
    with mock.patch.dict('os.environ', TMPDIR=_temporary_folder().name):
        forkserver.ensure_running()
    return server


@functools.cache
def _temporary_folder() -> tempfile.TemporaryDirectory:
    """Of the processes, which may be killed; it is removed when this process ends."""
    return tempfile.TemporaryDirectory(prefix='tests-of-forks-')


def call(function: Callable[..., Any], *arguments: Any, time_limit: float = TIME_LIMIT) -> Any:
    """Calls a function in a process of its own, and returns or raises what it does."""
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context()) as pool:
        called = pool.submit(function, *arguments)
        try:
            return called.result(time_limit)
        except TimeoutError:
            # It would be waited for.
            for process in multiprocessing.active_children():
                process.kill()
            raise
