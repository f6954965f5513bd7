"""Collects the images of several requests into batches, which one thread runs.

Imports no TensorFlow.
"""

import collections
import itertools
import logging
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from object_detection.serving.limits import RequestError, ServeOptions

_logger = logging.getLogger(__name__)


class _Job(NamedTuple):
    row: Any
    future: Future
    number: int  # in order of arrival
    arrival: float


class Batcher:
    """A queue in front of a function that runs batches, and the one thread that calls it.

    The rows of a batch are of one kind, such as the shape of the image, in order of arrival. A
    batch starts when it is full or its first row has waited for `max_wait_ms`. If it fails, its
    rows are run one by one, so that a row that cannot be computed does not concern others.

    Args:
      run: from rows of one kind to their results, in the same order.
      options: sizes of batches and of the queue, and the time to wait.
      observe: called after each batch with the number of its rows and its seconds.
    """

    def __init__(
        self,
        run: Callable[[list[Any]], Sequence[Any]],
        options: ServeOptions,
        observe: Callable[[int, float], None] = lambda rows, seconds: None,
    ):
        self._run, self._options, self._observe = run, options, observe
        self._queues: dict[Hashable, collections.deque[_Job]] = {}
        self._changed = threading.Condition()
        self._numbers, self._count = itertools.count(), 0
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name='model', daemon=True)
        self._thread.start()

    @property
    def count(self) -> int:
        """Rows that wait or are computed."""
        return self._count

    @property
    def is_accepting(self) -> bool:
        return not self._is_closed and self._thread.is_alive()

    def check_room(self, count: int) -> None:
        """Raises RequestError, with status 503, unless so many rows could be accepted now."""
        if not self.is_accepting:
            raise RequestError(503, 'the server is stopping.')
        if self._count + count > self._options.max_queue:
            raise RequestError(
                503,
                f'{self._count} images are being computed or waiting, of at most '
                f'{self._options.max_queue}; try again later.',
            )

    def submit(self, rows: Sequence[tuple[Hashable, Any]]) -> list[Future]:
        """Accepts all rows of a request, or none.

        Args:
          rows: kind and row of each. A row whose future is cancelled before it is computed is
            left out.

        Returns:
          the futures of the results.

        Raises:
          RequestError: with status 503, as `check_room`.
        """
        with self._changed:
            self.check_room(len(rows))
            now = time.monotonic()
            futures = []
            for kind, row in rows:
                job = _Job(row, Future(), next(self._numbers), now)
                self._queues.setdefault(kind, collections.deque()).append(job)
                futures.append(job.future)
            self._count += len(rows)
            self._changed.notify()
        return futures

    def close(self) -> None:
        """Accepts no more rows, and returns when all that were accepted are computed."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while jobs := self._next_batch():
            # A future that was cancelled, because its request has ended, is not computed.
            wanted = [job for job in jobs if job.future.set_running_or_notify_cancel()]
            try:
                if wanted:
                    self._compute(wanted)
            finally:
                with self._changed:
                    self._count -= len(jobs)

    def _next_batch(self) -> list[_Job]:
        """Waits for a batch and takes it from the queue; [] when all is done."""
        with self._changed:
            while True:
                if not self._queues:
                    if self._is_closed:
                        return []
                    self._changed.wait()
                    continue
                kind, queue = min(self._queues.items(), key=lambda item: item[1][0].number)
                left = queue[0].arrival + self._options.max_wait_ms / 1000 - time.monotonic()
                if len(queue) < self._options.max_batch_size and left > 0 and not self._is_closed:
                    self._changed.wait(left)
                    continue
                size = min(len(queue), self._options.max_batch_size)
                jobs = [queue.popleft() for _ in range(size)]
                if not queue:
                    del self._queues[kind]
                return jobs

    def _compute(self, jobs: list[_Job]) -> None:
        start = time.monotonic()
        try:
            results = self._run([job.row for job in jobs])
        except Exception as error:
            if len(jobs) > 1:
                _logger.warning('a batch of %d failed and is run one by one: %s', len(jobs), error)
                for job in jobs:
                    self._compute([job])
            else:
                jobs[0].future.set_exception(error)
            return
        self._observe(len(jobs), time.monotonic() - start)
        for job, result in zip(jobs, results, strict=True):
            job.future.set_result(result)
