"""Evaluation of snapshots in another process, so that the training does not wait.

The training gives a checkpoint to `AsyncEvaluation` and continues. One process (`worker`), started
with the first checkpoint, evaluates one after the other and writes the files that an in-process
evaluation writes. It is given one at a time, so that nothing after a result that ends the training
is evaluated. If it dies, that is logged, another one is started, and no checkpoint is lost. What
would go wrong each time, such as a mistake in the config, ends the training.
"""

import contextlib
import logging
import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import object_detection
from object_detection.errors import CheckpointError, ConfigError, CorruptCheckpointError
from object_detection.system import files
from object_detection.training.checkpoints.following import Snapshot, Snapshots
from object_detection.training.evaluation import worker
from object_detection.training.evaluation.worker import DONE, FAILED, Job

_logger = logging.getLogger(__name__)

# Starts in a row without a completed evaluation, after which no other is tried.
_MAX_STARTS = 3
_SECONDS_TO_END = 2.0
# Seconds without a message after which a running evaluation counts as hanging. It logs its progress
# every few seconds; building a large graph and computing metrics of many images take the longest.
_SILENCE_TIMEOUT = 1800.0
_POLL_SECONDS = 0.2
_MODULE = worker.__name__
# Variables of a cluster, which the evaluation does not belong to.
_NOT_INHERITED = ('TF_CONFIG',)
# Errors that would occur again after another start.
_FINAL = {kind.__name__: kind for kind in (ConfigError, CheckpointError, CorruptCheckpointError)}


class AsyncResult(NamedTuple):
    """A result: the step, reader's name -> metrics, and how long the evaluation took."""

    step: int
    metrics: Mapping[str, Mapping[str, float]]
    seconds: float


class AsyncEvaluation:
    """Evaluates the snapshots of a training, in the order of their steps.

    Args:
      job: what is evaluated; the snapshots are queued in its `output_dir`.
      max_waiting: how many snapshots may be queued beside the one that is evaluated; beyond that,
        the oldest is left out.
    """

    def __init__(self, job: Job, *, max_waiting: int):
        self._job = job
        self._max_waiting = max_waiting
        self._snapshots = Snapshots(job.output_dir)
        # The process evaluates the first one while `_is_busy`.
        self._queue: deque[Snapshot] = deque()
        self._is_busy = False
        self._process: _Process | None = None
        self._starts = 0
        self._failures = 0
        self._has_succeeded = False
        self._results: list[AsyncResult] = []
        self._last_message_time = 0.0

    @property
    def is_idle(self) -> bool:
        """Whether nothing is left to be evaluated, or nothing can be."""
        return not self._queue or self._has_given_up

    @property
    def _has_given_up(self) -> bool:
        return self._process is None and self._starts >= _MAX_STARTS

    def recover(
        self, step: int, is_evaluated: Callable[[int], bool] = lambda step: False
    ) -> list[int]:
        """Queues what an earlier run left.

        Args:
          step: the step that the training resumes from.
          is_evaluated: whether the results of a step exist: a run can end before it takes them.

        Returns:
          The steps of the queued snapshots.
        """
        self._queue.clear()
        for snapshot in self._snapshots.recover(step):
            if is_evaluated(snapshot.step):
                self._snapshots.remove(snapshot)
            else:
                self._queue.append(snapshot)
        if self._queue:
            _logger.info(
                'evaluations that an earlier run left are done now: steps %s', self._steps()
            )
        return self._steps()

    def add(self, checkpoint: str, step: int) -> bool:
        """Has a checkpoint evaluated as it is, also if it is changed or deleted afterwards.

        Args:
          checkpoint: its prefix.
          step: the step that it was saved at.

        Returns:
          False if there is no room for it.

        Raises:
          ConfigError, CheckpointError: as `poll` does.
        """
        try:
            self._queue.append(self._snapshots.add(checkpoint, step))
        except OSError as error:
            _logger.warning('step %d is not evaluated: %s', step, error)
            return False
        while len(self._queue) > self._max_waiting + 1:
            self._leave_out_oldest()
        self._communicate()
        return True

    def poll(self) -> list[AsyncResult]:
        """Returns the results that have arrived, without waiting, and keeps the process at work.

        Raises:
          ConfigError, CheckpointError: if no evaluation can be done.
        """
        self._communicate()
        results, self._results = self._results, []
        return results

    def wait(self, should_stop: Callable[[], bool] = lambda: False) -> Iterator[AsyncResult]:
        """Waits for all that is left, and yields the results as they arrive.

        Raises:
          ConfigError, CheckpointError: as `poll` does.
        """
        yield from self.poll()
        if not self.is_idle:
            _logger.info('waiting for the evaluations of steps %s', self._steps())

        def is_over() -> bool:
            return self.is_idle or should_stop()

        for _ in files.attempts(_POLL_SECONDS, should_stop=is_over):
            yield from self.poll()
        if self._queue and self._has_given_up:
            _logger.warning(
                'steps %s are not evaluated, as the evaluation process was given up; they are when '
                'the training is started again',
                self._steps(),
            )

    def drop(self) -> None:
        """Leaves out all that is left: for a training that a result has ended."""
        self.close()
        self._queue.clear()
        self._snapshots.clear()

    def close(self) -> str:
        """Ends the process, and returns its status as text.

        What it has not done stays queued in model_dir for the next start.
        """
        status = '' if self._process is None else self._process.end()
        self._process = None
        self._is_busy = False
        return status

    def _steps(self) -> list[int]:
        return [snapshot.step for snapshot in self._queue]

    def _leave_out_oldest(self) -> None:
        """Removes the oldest snapshot that is not being evaluated."""
        left_out = self._queue[int(self._is_busy)]
        self._queue.remove(left_out)
        self._snapshots.remove(left_out)
        _logger.warning(
            'step %d is not evaluated: more than %d snapshots wait, as %s '
            '(eval_config.async_evaluation.max_waiting)',
            left_out.step,
            self._max_waiting,
            'the evaluation process was given up'
            if self._has_given_up
            else 'evaluations take longer than the steps between them',
        )

    def _communicate(self) -> None:
        """Takes the answers that have arrived, and gives the process its next snapshot."""
        try:
            while self._process is not None and self._process.connection.poll():
                kind, *answer = self._process.connection.recv()
                self._last_message_time = time.monotonic()
                if kind == DONE:
                    self._on_result(AsyncResult(*answer))
                elif kind == FAILED:
                    self._on_failure(*answer)
                else:
                    level, text = answer
                    _logger.log(level, '[evaluation] %s', text)
            silence = time.monotonic() - self._last_message_time
            if self._is_busy and silence > _SILENCE_TIMEOUT:
                raise TimeoutError(f'it has said nothing for {_SILENCE_TIMEOUT:g} s')
            if self._queue and not self._is_busy and not self._has_given_up:
                self._start_next()
        except (EOFError, OSError) as error:
            self._on_process_end(error)

    def _start_next(self) -> None:
        if self._process is None:
            self._starts += 1
            self._process = _Process(self._job)
            self._process.connection.send(self._job)
        self._is_busy = True
        self._process.connection.send(self._queue[0].prefix)
        self._last_message_time = time.monotonic()

    def _on_result(self, result: AsyncResult) -> None:
        self._results.append(result)
        self._snapshots.remove(self._queue.popleft())
        self._is_busy = False
        self._starts = self._failures = 0
        self._has_succeeded = True

    def _on_failure(self, kind: str, text: str) -> None:
        """Logs an error of the process.

        Raises:
          ConfigError, CheckpointError: if it would occur again.
        """
        self._failures += 1
        if kind in _FINAL:
            raise _FINAL[kind](f'The asynchronous evaluation has failed. {text}')
        # What has worked once may have lacked memory, say; and a kill is no error of its own.
        if not self._has_succeeded and self._failures >= _MAX_STARTS:
            raise ConfigError(
                'eval_config.async_evaluation: expected an evaluation that runs. Received, from '
                f'each of {self._failures} starts of it: {kind}: {text}'
            )
        _logger.error('the evaluation process has failed: %s: %s', kind, text)

    def _on_process_end(self, error: Exception) -> None:
        """Logs the end of the process; another one is started at the next poll."""
        status = self.close() or str(error)
        _logger.warning(
            'the evaluation process has ended (%s)%s: %s',
            f'{error}; killed' if isinstance(error, TimeoutError) else status,
            f', step {self._queue[0].step} is not evaluated yet' if self._queue else '',
            f'given up after {self._starts} starts; what is left is evaluated when the training is '
            'started again'
            if self._has_given_up
            else 'it is started again',
        )


class _Process:
    """The process, and a connection to it."""

    def __init__(self, job: Job):
        self.connection, others = multiprocessing.Pipe()
        environment = {k: v for k, v in os.environ.items() if k not in _NOT_INHERITED}
        if job.options.device.lower() == 'cpu':
            # Otherwise it would take memory of each GPU.
            environment['CUDA_VISIBLE_DEVICES'] = '-1'
        root = str(pathlib.Path(object_detection.__file__).parents[1])
        paths = [root, *filter(None, [environment.get('PYTHONPATH')])]
        environment['PYTHONPATH'] = os.pathsep.join(paths)
        with others:
            self._program = subprocess.Popen(
                [sys.executable, '-m', _MODULE, str(others.fileno())],
                env=environment,
                pass_fds=[others.fileno()],
                stdin=subprocess.DEVNULL,
            )
        _logger.info('evaluation process %d is started', self._program.pid)

    def end(self) -> str:
        """Ends the process, if it has not ended; returns its status as text."""
        self.connection.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._program.wait(_SECONDS_TO_END)
        self._program.kill()
        status = self._program.wait()
        return signal.Signals(-status).name if status < 0 else f'exit status {status}'
