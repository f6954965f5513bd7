"""The asynchronous evaluation of a training, as all of its workers see it between two steps.

The chief alone evaluates, by an `AsyncEvaluation`; the other workers learn what ends the training.
"""

from collections.abc import Callable, Mapping

import tensorflow as tf

from object_detection.builders.callback_builder import EvaluationRecord
from object_detection.config.job_options import EvalOptions
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.system import cpu
from object_detection.training.distribution import collectives, devices, strategies
from object_detection.training.evaluation import results
from object_detection.training.evaluation.async_evaluation import AsyncEvaluation, AsyncResult
from object_detection.training.evaluation.worker import Job
from object_detection.training.setup import TrainingRun


def build(run: TrainingRun, reason_to_stop: Callable[[int], str | None]) -> 'BackgroundEvaluation':
    """Builds what `eval_config.async_evaluation` describes; no process is started yet.

    The numbers of threads and eager execution are those of this process.

    Args:
      run: the training.
      reason_to_stop: see `BackgroundEvaluation`.

    Raises:
      ConfigError: if the device does not exist.
    """
    settings = run.config.eval_config.async_evaluation
    config = TrainEvalPipelineConfig()
    config.CopyFrom(run.config)
    if run.is_chief:
        gpus = tf.config.list_physical_devices('GPU')
        devices.chosen(settings.device, gpus, 'eval_config.async_evaluation.device (--eval_device)')
    on_cpu = settings.device.lower() == 'cpu'
    if on_cpu:
        # Most CPUs are slower with XLA or 16 bits; the training may run on GPUs.
        config.train_config.ClearField('jit_compile')
    options = EvalOptions(
        device=settings.device,
        precision='float32' if on_cpu else None,
        intra_op_threads=tf.config.threading.get_intra_op_parallelism_threads(),
        inter_op_threads=tf.config.threading.get_inter_op_parallelism_threads(),
        run_eagerly=tf.config.functions_run_eagerly(),
    )
    job = Job(
        config.SerializeToString(),
        run.directory,
        options,
        run.files,
        cores=cpu.parse_cores(settings.cpu_affinity),
        niceness=settings.niceness,
    )
    evaluation = AsyncEvaluation(job, max_waiting=settings.max_waiting)

    def report(result: AsyncResult) -> None:
        for name, metrics in result.metrics.items():
            folder = results.folder(run.directory, name)
            run.callbacks.on_evaluation(EvaluationRecord(result.step, metrics, name, folder))

    return BackgroundEvaluation(evaluation, run.strategy, reason_to_stop, report)


class BackgroundEvaluation:
    """Hands snapshots to the asynchronous evaluation of a training, and takes its results.

    Every worker has one; only the chief's evaluates.

    Args:
      evaluation: on workers other than the chief it starts nothing.
      strategy: of the training.
      reason_to_stop: returns why the results up to a step end the training, or None; called on the
        chief when the result of that step has arrived.
      on_result: called on the chief with each result.

    Attributes:
      metrics: the newest result, reader's name -> metrics; None before the first.
    """

    def __init__(
        self,
        evaluation: AsyncEvaluation,
        strategy: tf.distribute.Strategy,
        reason_to_stop: Callable[[int], str | None],
        on_result: Callable[[AsyncResult], None] = lambda result: None,
    ):
        self._evaluation = evaluation
        self._strategy = strategy
        self._is_chief = strategies.is_chief(strategy)
        self._reason_to_stop = reason_to_stop
        self._on_result = on_result
        # Why a result ends the training; only the chief knows it.
        self._reason: str | None = None
        # Set on the chief only.
        self._added_step: int | None = None
        self.metrics: Mapping[str, Mapping[str, float]] | None = None

    @property
    def has_decided(self) -> bool:
        """Whether a result ends the training, as far as this worker knows."""
        return self._reason is not None

    def resume(
        self,
        checkpoint: str | None,
        step: int,
        *,
        is_due: bool,
        is_evaluated: Callable[[int], bool],
    ) -> None:
        """Resumes what an earlier run left. Collective.

        Args:
          checkpoint: the prefix that the run resumes from, or None.
          step: the step of the checkpoint.
          is_due: whether that step is to be evaluated, unless it has been.
          is_evaluated: whether the results of a step exist; called on the chief.
        """

        def resume() -> None:
            is_known = step in self._evaluation.recover(step, is_evaluated) or is_evaluated(step)
            if is_known or (is_due and self._evaluation.add(checkpoint, step)):
                self._added_step = step

        collectives.on_chief(self._strategy, resume)

    def add(self, checkpoint: str | None, step: int) -> None:
        """Has the chief's newest checkpoint evaluated. Collective."""

        def add() -> None:
            if not self._reason and self._evaluation.add(checkpoint, step):
                self._added_step = step

        collectives.on_chief(self._strategy, add)

    def poll(self) -> None:
        """Takes the results that have arrived, without waiting; not collective."""
        if not self._is_chief or self._reason:
            return
        for result in self._evaluation.poll():
            if not self._reason:
                self._take(result)

    def reason(self) -> str | None:
        """Returns why the results end the training, if they do. Collective."""
        return collectives.reason_of_chief(self._strategy, lambda: self._reason)

    def finish(
        self, checkpoint: str | None, step: int, should_stop: Callable[[], bool]
    ) -> str | None:
        """Waits for the evaluations that are left, that of the last step included. Collective.

        If the result of an earlier step ends the training, later steps are left out, as if the
        training had waited for each evaluation.

        Args:
          checkpoint: the prefix of the last step's checkpoint.
          step: the last step.
          should_stop: called on the chief while it waits.

        Returns:
          See `reason`.
        """

        def wait() -> None:
            if not self._reason:
                if self._added_step != step:
                    self._evaluation.add(checkpoint, step)
                for result in self._evaluation.wait(should_stop):
                    # After the last step there is nothing to stop.
                    self._take(result, is_last=result.step >= step)
                    if self._reason:
                        break
            if self._reason:
                self._evaluation.drop()

        collectives.on_chief(self._strategy, wait)
        return self.reason()

    def close(self) -> None:
        """Ends the process; what it has not evaluated is left for the next start."""
        self._evaluation.close()

    def _take(self, result: AsyncResult, *, is_last: bool = False) -> None:
        self.metrics = result.metrics
        self._on_result(result)
        self._reason = None if is_last else self._reason_to_stop(result.step)
        if self._reason:
            # A later result might decide otherwise, and a restart decides by all results.
            self._evaluation.close()
