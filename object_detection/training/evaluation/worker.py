"""The child process of an asynchronous evaluation, which the training starts and owns.

    python -m object_detection.training.evaluation.worker FILE_DESCRIPTOR

It receives its work over a connection: first a `Job`, then the prefix of one snapshot at a time.
It answers with tuples: (LOG, level, text), (DONE, step, metrics, seconds) or, before it ends,
(FAILED, name of the error, text). It ends when the connection does. It imports no TensorFlow before
it knows on which cores and devices it may run.
"""

import contextlib
import logging
import os
import signal
import sys
import time
import traceback
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, NoReturn

from object_detection.config.job_options import EvalOptions
from object_detection.system import signals, tensorflow_setup
from object_detection.training.monitoring.log_files import NO_FILES, JobFiles

LOG, DONE, FAILED = 'log', 'done', 'failed'


class Job(NamedTuple):
    """What is evaluated, where and how.

    Attributes:
      pipeline: the resolved config, serialized.
      output_dir: see `PipelineEvaluation`.
      options: devices, threads and precision of the process.
      job_files: see `PipelineEvaluation`.
      cores: CPU cores that the process runs on; () is all that the training may use.
      niceness: added to that of the training.
    """

    pipeline: bytes
    output_dir: str
    options: EvalOptions = EvalOptions(device='cpu')
    job_files: JobFiles = NO_FILES
    cores: tuple[int, ...] = ()
    niceness: int = 0


def main(arguments: list[str] | None = None) -> int:
    """Evaluates until the connection ends; returns the exit status."""
    (descriptor,) = sys.argv[1:] if arguments is None else arguments
    # Ctrl-C reaches all processes of a terminal, and SIGTERM those of a launcher's worker; the
    # training ends this one.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    signals.end_with_parent()
    with Connection(int(descriptor)) as connection:
        answers = _Answers(connection)
        try:
            _serve(connection, answers)
        except (EOFError, ConnectionError):
            return 0
        except Exception as error:
            answers.send(LOG, logging.DEBUG, traceback.format_exc())
            answers.send(FAILED, type(error).__name__, str(error))
            return 1


def _serve(connection: Connection, answers: '_Answers') -> NoReturn:
    """Evaluates the snapshots that are requested.

    Raises:
      EOFError: when the connection has ended.
    """
    job = connection.recv()
    os.nice(job.niceness)
    if job.cores:
        os.sched_setaffinity(0, job.cores)
    with contextlib.closing(_build_evaluation(job, answers)) as evaluation:
        while True:
            prefix = connection.recv()
            started = time.monotonic()
            # Nothing is requested meanwhile: only the end of the connection can be read.
            result = evaluation.evaluate(prefix, should_stop=connection.poll)
            if result is None:
                raise EOFError
            metrics = {name: dict(values) for name, values in result.metrics.items()}
            answers.send(DONE, result.step, metrics, time.monotonic() - started)


def _build_evaluation(job: Job, answers: '_Answers') -> Any:
    """Builds the `CheckpointEvaluation` of a job."""
    tensorflow_setup.keep_freed_memory()
    tensorflow_setup.import_tensorflow()
    from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
    from object_detection.training.distribution import devices, strategies
    from object_detection.training.evaluation.best_checkpoint import BestCheckpoint
    from object_detection.training.evaluation.eval_job import CheckpointEvaluation

    logger = logging.getLogger('object_detection')
    logger.handlers = [answers]
    logger.setLevel(logging.INFO)
    logger.propagate = False
    devices.set_up(job.options)
    return CheckpointEvaluation(
        TrainEvalPipelineConfig.FromString(job.pipeline),
        job.output_dir,
        precision=job.options.precision,
        job_files=job.job_files,
        best=BestCheckpoint,
        strategy=strategies.build(),
    )


class _Answers(logging.Handler):
    """Sends results, and the log, which the training shows where its own log goes."""

    def __init__(self, connection: Connection):
        super().__init__()
        self._connection = connection

    def send(self, *answer: Any) -> None:
        # Input pipelines log from threads of their own.
        with self.lock:
            self._connection.send(answer)

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(OSError):
            self.send(LOG, record.levelno, record.getMessage())


if __name__ == '__main__':
    # Under its own name, by which the training sends a `Job`.
    from object_detection.training.evaluation import worker

    sys.exit(worker.main())
