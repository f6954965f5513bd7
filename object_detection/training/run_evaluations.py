"""The evaluations of a training: in its process or asynchronous, and those that are missing.

Both evaluate by `evaluation.reader_evaluation.PipelineEvaluation`, which runs the detector over the
data by `evaluation.inference.evaluate`.
"""

import contextlib
import dataclasses
import logging
from collections.abc import Callable

from object_detection.builders.callback_builder import start_of
from object_detection.meta_architectures.detection_model import DetectionModel
from object_detection.optimizers import moving_averages
from object_detection.optimizers.plateau import Plateau
from object_detection.system.signals import Interrupts
from object_detection.training import setup
from object_detection.training.checkpoints.following import Snapshots
from object_detection.training.distribution import collectives
from object_detection.training.evaluation import background_evaluation, results
from object_detection.training.evaluation.background_evaluation import BackgroundEvaluation
from object_detection.training.evaluation.reader_evaluation import PipelineEvaluation
from object_detection.training.monitoring.run_types import Metrics, TrainResult
from object_detection.training.setup import TrainingRun
from object_detection.training.step import TrainStep
from object_detection.training.trainer import NO_EVALUATION, EvaluateFunction, EvaluationPlan
from object_detection.validation import eval_config as eval_config_rules
from object_detection.weights import checkpoints

_logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class RunEvaluations:
    """Builds what evaluates a training, and knows what is evaluated already.

    Attributes:
      run: the training.
    """

    run: TrainingRun

    @property
    def interval(self) -> int:
        """Steps between two evaluations; 0 never evaluates."""
        return self.run.intervals.evaluation

    @property
    def are_asynchronous(self) -> bool:
        """Whether another process evaluates while the training continues."""
        return bool(self.interval) and self.run.config.eval_config.HasField('async_evaluation')

    @property
    def max_snapshots(self) -> int:
        """How many checkpoints may be kept for evaluation beside those of the training."""
        settings = self.run.config.eval_config.async_evaluation
        return settings.max_waiting + 1 if self.are_asynchronous else 0

    def reason_to_stop(self, until: int | None = None) -> str | None:
        """Returns why the results so far end the training, if they do; see `early_stopping`.

        Args:
          until: the last step whose results count; None for all.
        """
        reader = eval_config_rules.stopping_metric(self.run.config).reader
        run = self.run
        entries = results.read(run.config, run.directory, reader, run.files.val_json_file)
        counted = [entry for entry in entries if until is None or entry['step'] <= until]
        return results.reason_to_stop(self.run.config, counted)

    def lower_rate(self, plateau: Plateau | None) -> None:
        """Gives a plateau the results that it has not taken yet. Collective."""
        if plateau is None:
            return
        own = collectives.on_chief(self.run.strategy, lambda: self._scores_after(plateau.step))
        for step, score in collectives.gather_values(self.run.strategy, own)[0]:
            if plateau.update(step, score):
                _logger.info(
                    '%s at step %d has not improved: learning rates have the factor %g now '
                    '(train_config.optimizer.reduce_on_plateau)',
                    eval_config_rules.plateau_metric(self.run.config).metric,
                    step,
                    plateau.factor.numpy(),
                )

    def _scores_after(self, step: int) -> list[tuple[int, float | None]]:
        """Returns the steps of later results, and their scores, of which more is better."""
        metric, reader = eval_config_rules.plateau_metric(self.run.config)
        run, sign = self.run, -1.0 if eval_config_rules.is_less_better(metric) else 1.0
        entries = results.read(run.config, run.directory, reader, run.files.val_json_file)
        # Of several entries of one step the last counts.
        values = {
            entry['step']: results.value_of(entry['metrics'], metric, eval_config_rules.PLATEAU)
            for entry in entries
            if entry['step'] > step
        }
        return [
            (each, sign * value if eval_config_rules.is_defined(metric, value) else None)
            for each, value in sorted(values.items())
        ]

    def are_due(self, step: int) -> bool:
        """Whether a checkpoint that a run resumes from is to be evaluated, given its step."""
        return bool(self.interval and step) and step % self.interval == 0

    def are_missing(self, step: int) -> bool:
        """Whether a signal or a kill kept an earlier run from evaluating its last checkpoint.

        Collective.
        """
        return self.are_due(step) and not self._chief_says(lambda: self._is_evaluated(step))

    def are_missing_at_end(self, step: int) -> bool:
        """Whether a training that ended at a step has checkpoints left to evaluate. Collective.

        Other workers may see files later, so the chief decides for all.
        """
        return bool(self.interval) and self._chief_says(
            lambda: (
                (self.are_asynchronous and Snapshots(self.run.directory).recover(step))
                or not self._is_evaluated(step)
            )
        )

    def plan(
        self, train_step: TrainStep, restored: str | None, start: int, opened: contextlib.ExitStack
    ) -> EvaluationPlan:
        """Builds the evaluation of a trainer.

        Args:
          train_step: the step of the trainer.
          restored: prefix of the checkpoint that the run resumes from, or None.
          start: the step that the run starts from.
          opened: closes the evaluations.
        """
        if not self.interval:
            return NO_EVALUATION

        def lower_rate() -> None:
            self.lower_rate(train_step.plateau)

        is_due = self.are_due(start)
        if is_due:
            # The checkpoint was saved before its evaluation.
            lower_rate()
        if self.are_asynchronous:
            background = self.in_background(restored, start, opened, is_due=is_due)
            return EvaluationPlan(background=background, lower_rate=lower_rate)
        return EvaluationPlan(
            lower_rate=lower_rate,
            evaluate=self.in_process(train_step, opened),
            reason_to_stop=self.reason_to_stop,
            evaluates_first=self.are_missing(start),
        )

    def in_process(self, train_step: TrainStep, opened: contextlib.ExitStack) -> EvaluateFunction:
        """Builds an evaluation in the process of the training; `opened` closes it."""
        pipeline_evaluation = self._pipeline_evaluation(train_step.detector)
        opened.callback(pipeline_evaluation.close)
        variables = train_step.detector.named_variables()

        def run(step: int, should_stop: Callable[[], bool]) -> Metrics | None:
            averages = train_step.optimizer.averages()
            with moving_averages.swapped(variables, averages, self.run.strategy):
                return pipeline_evaluation.run(step, should_stop)

        return run

    def in_background(
        self, checkpoint: str | None, step: int, opened: contextlib.ExitStack, *, is_due: bool
    ) -> BackgroundEvaluation:
        """Builds the asynchronous evaluation, with the snapshots that an earlier run left to it.

        Args:
          checkpoint: prefix of the checkpoint that the run resumes from, or None.
          step: the step of the checkpoint.
          opened: closes the evaluation.
          is_due: whether that step is to be evaluated.
        """
        background = background_evaluation.build(self.run, self.reason_to_stop)
        opened.callback(background.close)
        background.resume(checkpoint, step, is_due=is_due, is_evaluated=self._is_evaluated)
        return background

    def evaluate_the_end(self, checkpoint: str, step: int) -> TrainResult:
        """Evaluates the last step of a finished training, where a signal prevented that."""
        _logger.info(
            '%s is at step %d, its last: only the evaluation is left', self.run.directory, step
        )
        self.run.callbacks.on_start(start_of(self.run.config, self.run.directory, step))
        run = (
            self._evaluate_end_in_background
            if self.are_asynchronous
            else self._evaluate_end_in_process
        )
        with Interrupts() as interrupts:
            metrics, reason = run(checkpoint, step, lambda: interrupts.received is not None)
        return TrainResult(
            step=step,
            checkpoint=checkpoint if self.run.is_chief else None,
            losses={},
            metrics=metrics,
            stopped_by=None if interrupts.received is None else int(interrupts.received),
            reason=reason,
        )

    def _evaluate_end_in_process(
        self, checkpoint: str, step: int, should_stop: Callable[[], bool]
    ) -> tuple[Metrics | None, str | None]:
        """Returns metrics, and why the training should have ended earlier, if so."""
        with self.run.strategy.scope():
            detector = setup.build_detector(self.run.config)
            checkpoints.restore_model(
                checkpoint,
                detector.named_variables(),
                averages=self.run.config.train_config.optimizer.use_moving_average,
            )
        with contextlib.closing(self._pipeline_evaluation(detector)) as pipeline_evaluation:
            return pipeline_evaluation.run(step, should_stop), None

    def _evaluate_end_in_background(
        self, checkpoint: str, step: int, should_stop: Callable[[], bool]
    ) -> tuple[Metrics | None, str | None]:
        with contextlib.ExitStack() as opened:
            background = self.in_background(checkpoint, step, opened, is_due=True)
            reason = background.finish(checkpoint, step, should_stop)
        return background.metrics, reason

    def _pipeline_evaluation(self, detector: DetectionModel) -> PipelineEvaluation:
        return PipelineEvaluation(
            detector,
            self.run.config,
            self.run.directory,
            job_files=self.run.files,
            strategy=self.run.strategy,
            callbacks=self.run.callbacks,
        )

    def _is_evaluated(self, step: int) -> bool:
        run = self.run
        return results.is_evaluated(run.config, run.directory, step, run.files.val_json_file)

    def _chief_says(self, question: Callable[[], object]) -> bool:
        answer = collectives.on_chief(self.run.strategy, question)
        return bool(collectives.value_of_chief(self.run.strategy, int(bool(answer))))
