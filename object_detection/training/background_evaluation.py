"""What a training with an evaluation beside it asks between two steps."""

from collections.abc import Callable, Mapping

import tensorflow as tf

from object_detection.config import cpu_cores
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.training import strategies
from object_detection.training.async_evaluation import Arrived, AsyncEvaluation
from object_detection.training.evaluation_process import Job


def build(
    pipeline_config: TrainEvalPipelineConfig,
    model_dir: str,
    strategy: tf.distribute.Strategy,
    reason_to_stop: Callable[[], str | None],
    *,
    record_summaries: bool,
    val_json_file: str | None,
) -> 'BackgroundEvaluation':
    """Builds what `eval_config.async_evaluation` describes; nothing is started yet.

    Args:
      pipeline_config: the resolved config.
      model_dir: of the training.
      strategy, reason_to_stop: see `BackgroundEvaluation`.
      record_summaries, val_json_file: see `evaluation.PipelineEvaluation`.
    """
    settings = pipeline_config.eval_config.async_evaluation
    config = TrainEvalPipelineConfig()
    config.CopyFrom(pipeline_config)
    on_cpu = settings.device.lower() == 'cpu'
    if on_cpu:
        # Compiled, and in 16 bits, most CPUs are slower; the training may run on GPUs.
        config.train_config.ClearField('jit_compile')
    job = Job(
        config.SerializeToString(),
        model_dir,
        precision='float32' if on_cpu else None,
        record_summaries=record_summaries,
        val_json_file=val_json_file,
        device=settings.device,
        cores=cpu_cores.parse(settings.cpu_affinity),
        niceness=settings.niceness,
    )
    evaluation = AsyncEvaluation(job, max_waiting=settings.max_waiting)
    return BackgroundEvaluation(evaluation, strategy, reason_to_stop)


class BackgroundEvaluation:
    """Hands snapshots to the evaluation beside a training, and takes its results back.

    Every worker has one; the chief's alone evaluates.

    Args:
      evaluation: nothing is started on workers other than the chief.
      strategy: of the training.
      reason_to_stop: of all results so far, asked on the chief when one has arrived.

    Attributes:
      metrics: of the newest result: reader's name -> metrics; None before the first.
      ended_the_run: whether a result has given a reason to stop.
    """

    def __init__(
        self,
        evaluation: AsyncEvaluation,
        strategy: tf.distribute.Strategy,
        reason_to_stop: Callable[[], str | None],
    ):
        self._evaluation = evaluation
        self._strategy = strategy
        self._is_chief = strategies.is_chief(strategy)
        self._reason_to_stop = reason_to_stop
        # Why a result ends the training, which the other workers are not told yet.
        self._reason: str | None = None
        # The chief's alone.
        self._added_step: int | None = None
        self.metrics: Mapping[str, Mapping[str, float]] | None = None
        self.ended_the_run = False

    def resume(
        self,
        checkpoint: str | None,
        step: int,
        *,
        is_due: bool,
        is_evaluated: Callable[[int], bool],
    ) -> None:
        """Takes up what an earlier run left. Collective.

        Args:
          checkpoint: that the run goes on from, or None.
          step: its step.
          is_due: whether that is to be evaluated, unless it was.
          is_evaluated: whether the results of a step are there, asked on the chief.
        """

        def take_up() -> None:
            is_known = step in self._evaluation.recover(step, is_evaluated) or is_evaluated(step)
            if is_due and not is_known:
                self._evaluation.add(checkpoint, step)
            if is_due or is_known:
                self._added_step = step

        strategies.on_chief(self._strategy, take_up)

    def add(self, checkpoint: str | None, step: int) -> None:
        """Has the chief's newest checkpoint evaluated. Collective."""

        def add() -> None:
            if not self._reason:
                self._evaluation.add(checkpoint, step)
                self._added_step = step

        strategies.on_chief(self._strategy, add)

    def look(self) -> list[Arrived]:
        """Takes the results that have arrived, without waiting; not collective."""
        if not self._is_chief or self._reason:
            return []
        return self._take(self._evaluation.look())

    def reason(self) -> str | None:
        """Returns why the results end the training, if they do. Collective."""
        reason = strategies.chiefs_reason(self._strategy, lambda: self._reason)
        self.ended_the_run = bool(reason)
        return reason

    def finish(
        self, checkpoint: str | None, step: int, should_stop: Callable[[], bool]
    ) -> list[Arrived]:
        """Waits for what is left, the training's last step included. Collective.

        Where a result has ended the training, what came after it is left out, as if each
        evaluation had been waited for.
        """
        if self.ended_the_run:
            strategies.on_chief(self._strategy, self._evaluation.drop)
            return []

        def wait() -> list[Arrived]:
            if self._added_step != step:
                self._evaluation.add(checkpoint, step)
            return self._evaluation.wait(should_stop)

        return self._take(strategies.on_chief(self._strategy, wait) or [])

    def close(self) -> None:
        """Ends the process; what it has not done is left for the next start."""
        self._evaluation.close()

    def _take(self, arrived: list[Arrived]) -> list[Arrived]:
        if arrived:
            self.metrics = arrived[-1].metrics
            self._reason = self._reason or self._reason_to_stop()
            if self._reason:
                # A later result might say otherwise, which a restart would go by.
                self._evaluation.close()
        return arrived
