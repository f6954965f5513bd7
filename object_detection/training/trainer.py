"""The loop over training steps, with checkpoints, evaluations and stop requests between them.

After SIGTERM or SIGINT (`system.signals.Interrupts`) all workers agree to stop after one of the
next calls of the step, save a checkpoint and end; see `Trainer._is_stop_requested`.
"""

import dataclasses
import logging
import signal
import time
from collections.abc import Callable, Iterator, Mapping

import tensorflow as tf

from object_detection.builders.callback_builder import FAILED, CheckpointRecord
from object_detection.data.pipeline import bad_records
from object_detection.errors import ConfigError, DivergenceError
from object_detection.optimizers.gradients import TOTAL_LOSS
from object_detection.system.signals import Interrupts
from object_detection.training import run_start
from object_detection.training.checkpoints.manager import Checkpoints
from object_detection.training.distribution import collectives
from object_detection.training.distribution.collectives import StatisticsAverage
from object_detection.training.evaluation.background_evaluation import BackgroundEvaluation
from object_detection.training.measurements import Measurements
from object_detection.training.monitoring import run_record
from object_detection.training.monitoring.profiling import StepProfile
from object_detection.training.monitoring.recorder import Recorder
from object_detection.training.monitoring.run_types import Metrics, TrainResult
from object_detection.training.setup import InputChanges, TrainingRun
from object_detection.training.step import TrainStep

_logger = logging.getLogger(__name__)

# (step, should_stop) -> metrics, or None if stopped.
EvaluateFunction = Callable[[int, Callable[[], bool]], Metrics | None]


@dataclasses.dataclass(frozen=True)
class EvaluationPlan:
    """How a trainer evaluates; the default evaluates nothing.

    Attributes:
      evaluate: evaluates the detector as it is, on all workers together; or None.
      reason_to_stop: called after each evaluation; a sentence that it returns ends the run.
      evaluates_first: whether the step that the run starts from is still to be evaluated.
      background: evaluates while the steps continue, in place of `evaluate`; on all workers or on
        none.
      lower_rate: lowers the learning rate by the results so far; called on all workers after each
        evaluation, or in place of it when one is due in the background.
    """

    evaluate: EvaluateFunction | None = None
    reason_to_stop: Callable[[], str | None] = lambda: None
    evaluates_first: bool = False
    background: BackgroundEvaluation | None = None
    lower_rate: Callable[[], None] = lambda: None


NO_EVALUATION = EvaluationPlan()


class Trainer:
    """Runs steps, and what is due between them.

    Args:
      run: the training.
      train_step: one step; its `step` variable counts the steps done. Where its strategy has
        several workers, all run the same trainer and evaluate together; only the chief saves.
      iterator: yields training batches.
      checkpoints: saves the model, the optimizer, the step and the input; already restored.
      recorder: draws the first batch.
      measurements: measures and records the steps.
      evaluation: how the detector is evaluated.
      input_changes: when other batches follow, and the iterator over them.
    """

    def __init__(
        self,
        run: TrainingRun,
        train_step: TrainStep,
        iterator: Iterator,
        *,
        checkpoints: Checkpoints,
        recorder: Recorder,
        measurements: Measurements,
        evaluation: EvaluationPlan,
        input_changes: InputChanges,
    ):
        self._train_step = train_step
        self._strategy = run.strategy
        self._is_chief = run.is_chief
        self._statistics = StatisticsAverage(self._strategy, train_step.detector.named_variables())
        self._iterator = iterator
        self._checkpoints = checkpoints
        self._recorder = recorder
        self._callbacks = run.callbacks
        self._num_steps = run.config.train_config.num_steps
        self._measurements = measurements
        self._intervals = run.intervals
        self._evaluation = evaluation
        self._background = evaluation.background
        self._input_changes = input_changes
        self._profile = StepProfile(run.intervals.profile, recorder.directory)
        self._reason: str | None = None
        self._stopped_by: int | None = None
        # The votes of the call before the last, see `TrainStep`.
        self._stop_votes: tf.Tensor | None = None
        self._has_repeated = False
        self._step = int(train_step.step.numpy())
        self._next_change = input_changes.next_after(self._step)
        self._saved_step = self._step if checkpoints.latest else None
        self._evaluated_step: int | None = None
        self._metrics: Metrics | None = None

    def run(self) -> TrainResult:
        """Trains to the end, or until a signal comes; see `train`."""
        with Interrupts() as interrupts:
            self._measurements.start(self._step, self._num_steps)
            if not (self._evaluation.evaluates_first and self._stops_after_evaluation(interrupts)):
                continues = self._do_first_step()
                while continues:
                    continues = self._do_what_is_due(interrupts) and self._do_steps()
            self._finish(interrupts)
        return TrainResult(
            step=self._step,
            checkpoint=self._checkpoints.latest if self._is_chief else None,
            losses=self._measurements.losses,
            metrics=self._metrics,
            stopped_by=self._stopped_by,
            reason=self._reason,
            speed=self._measurements.speed(),
            seconds=self._measurements.clock.describe(),
        )

    def _stops_after_evaluation(self, interrupts: Interrupts) -> bool:
        """Evaluates; returns whether the result, or a signal meanwhile, ends the run."""
        self._run_evaluation(interrupts)
        return bool(self._reason) or self._is_interrupted(interrupts)

    def _do_first_step(self) -> bool:
        """Does the step that builds the graph, on a batch that is drawn for TensorBoard.

        Returns:
          False if the data had ended before.
        """
        started = time.monotonic()
        with self._measurements.clock.announced(run_record.FIRST_STEP):
            is_done = self._train_first_batch()
        if is_done:
            seconds = time.monotonic() - started
            _logger.info('the first step, with building the graph: %.1f s', seconds)
        return is_done

    def _train_first_batch(self) -> bool:
        batch = next(self._iterator, None)
        if batch is None and self._step:
            self._end_of_data()
            return False
        if batch is None:
            skipped = self._measurements.left_out().get('records', 0)
            raise ConfigError(
                'train_input_reader: expected at least one batch. Received: none; look at its '
                'num_epochs, drop_remainder, filter_empty_images and at the number of records. '
                f'Records that cannot be used, which {bad_records.FILE_NAME} lists: {skipped}.'
            )
        part = {
            name: self._strategy.experimental_local_results(value)[0].numpy()
            for name, value in batch.items()
        }
        run_start.check_batch(self._train_step.detector, part)
        self._recorder.inputs(part, self._step)
        with self._profile.call(self._step):
            values = self._train_step(batch)
        self._count(values, 1, 0.0, timed=False)
        self._measurements.check(self._step)
        return True

    def _end_of_data(self) -> None:
        self._reason = (
            f'the training data ended at step {self._step} of {self._num_steps}; '
            'train_input_reader.num_epochs: 0 repeats it for ever'
        )
        _logger.warning('%s', self._reason)

    def _do_steps(self) -> bool:
        """Does the steps until something is due; returns False if the data ended."""
        count = self._intervals.steps_to_next(
            self._step, self._num_steps, self._measurements.steps_per_call
        )
        self._change_input_if_due()
        if self._next_change is not None:
            count = min(count, self._next_change - self._step)
        graphs = self._train_step.num_traces
        started = time.monotonic()
        try:
            with self._profile.call(self._step), self._measurements.clock.spent(run_record.STEPS):
                values = self._train_step.repeat(self._iterator, count)
        except (StopIteration, tf.errors.OutOfRangeError):
            self._step = int(self._train_step.step.numpy())
            self._end_of_data()
            return False
        # The first call of many steps builds their graph, too.
        has_built = (count > 1 and not self._has_repeated) or self._train_step.num_traces > graphs
        self._count(values, count, time.monotonic() - started, timed=not has_built)
        self._has_repeated |= count > 1
        return True

    def _change_input_if_due(self) -> None:
        """Replaces the iterator by one that continues where it is, with other augmentations."""
        if self._next_change is None or self._step < self._next_change:
            return
        self._collect_input_state()
        self._iterator = self._input_changes.rebuild(self._step)
        self._next_change = self._input_changes.next_after(self._step)
        _logger.info('step %d: the input continues without augmentations that stop', self._step)

    def _count(
        self, values: Mapping[str, tf.Tensor], steps: int, seconds: float, *, timed: bool = True
    ) -> None:
        """Counts and measures a call of `steps` steps, which returned `values`."""
        self._measurements.count(values, steps, seconds, timed=timed)
        self._step += steps
        self._profile.after(self._step, lambda: values[TOTAL_LOSS].numpy())

    def _do_what_is_due(self, interrupts: Interrupts) -> bool:
        """Checks, logs, saves and evaluates; returns False if the run is to end."""
        if self._step >= self._num_steps:
            return False
        due = self._intervals
        logs, summarizes, saves, evaluates = (
            n > 0 and self._step % n == 0
            for n in (due.log, due.summary_or_log, due.checkpoint, due.evaluation)
        )
        if logs or summarizes:
            self._measurements.record(self._step, logs=logs, summarizes=summarizes)
        elif saves or self._measurements.is_stale:
            self._measurements.check(self._step)
        in_background = evaluates and self._background is not None
        # An evaluation takes long, and a kill meanwhile should not lose the steps before it.
        if saves or evaluates:
            self._save()
        if in_background:
            with self._measurements.clock.spent(run_record.EVALUATION):
                self._evaluation.lower_rate()
                self._background.add(self._checkpoints.latest, self._step)
        elif evaluates:
            self._run_evaluation(interrupts)
        self._take_results()
        if self._is_stop_requested(interrupts):
            self._agree_on_stop(interrupts)
        return not (self._reason or self._stopped_by)

    def _is_stop_requested(self, interrupts: Interrupts) -> bool:
        """Whether the workers have to agree on a stop; called after each call of the step.

        Agreeing takes time. So the steps first exchange whether any worker requests a stop. The
        votes of the call before the last are read: the devices are busy while this waits for it.
        """
        if self._train_step.stop_votes is None:
            return True
        has_decided = self._background and self._background.has_decided
        if interrupts.received is not None or has_decided or self._callbacks.reason:
            self._train_step.request_stop()
        before, self._stop_votes = self._stop_votes, self._train_step.stop_votes
        return before is not None and float(before) > 0.0

    def _agree_on_stop(self, interrupts: Interrupts) -> None:
        if self._background is not None:
            self._stop_for(self._background.reason())
        if not self._reason:
            self._stop_for(
                collectives.reason_of_chief(self._strategy, lambda: self._callbacks.reason)
            )
        if not self._reason:
            self._is_interrupted(interrupts)

    def _is_interrupted(self, interrupts: Interrupts) -> bool:
        """Whether this worker, or any other one, has received a signal. Collective."""
        if self._stopped_by is None:
            own = interrupts.received
            if collectives.agree_on_stop(self._strategy, own is not None):
                self._stopped_by = int(signal.SIGTERM if own is None else own)
        return self._stopped_by is not None

    def _finish(self, interrupts: Interrupts) -> None:
        self._profile.close(self._step)
        self._measurements.record(self._step)
        if self._saved_step != self._step:
            self._save()
        is_due = self._evaluation.evaluate is not None and self._evaluated_step != self._step
        if self._is_interrupted(interrupts) or self._reason == FAILED:
            pass
        elif self._background is not None:
            self._finish_background(interrupts)
        elif is_due:
            self._run_evaluation(interrupts)
        _logger.info(
            '%s at step %d of %d; checkpoint %s',
            'stopped' if self._step < self._num_steps else 'done',
            self._step,
            self._num_steps,
            self._checkpoints.latest,
        )

    def _save(self) -> None:
        with self._measurements.clock.announced(run_record.SAVES):
            self._save_checkpoint()
        self._saved_step = self._step
        if self._is_chief:
            _logger.info('saved %s (step %d)', self._checkpoints.latest, self._step)
            self._callbacks.on_checkpoint(CheckpointRecord(self._step, self._checkpoints.latest))

    def _save_checkpoint(self) -> None:
        self._statistics.update()
        self._collect_input_state()
        try:
            collectives.on_chief(self._strategy, self._checkpoints.save)
        except DivergenceError as error:
            raise DivergenceError(
                f'The training diverged before step {self._step}, learning rate '
                f'{self._measurements.learning_rate(self._step - 1):g}: {error}'
            ) from error

    def _collect_input_state(self) -> None:
        # The copy of this process: workers have different states.
        (own, *_) = self._strategy.experimental_local_results(self._train_step.stream_state)
        self._checkpoints.collect(own.numpy())

    def _run_evaluation(self, interrupts: Interrupts) -> None:
        with self._measurements.clock.announced(run_record.EVALUATION):
            self._statistics.update()
            metrics = self._evaluation.evaluate(self._step, lambda: interrupts.received is not None)
        self._metrics = metrics or self._metrics
        if self._is_interrupted(interrupts):
            return
        self._evaluated_step = self._step
        self._evaluation.lower_rate()
        if self._step < self._num_steps:
            self._stop_for(
                collectives.reason_of_chief(self._strategy, self._evaluation.reason_to_stop)
            )

    def _take_results(self) -> None:
        """Takes the results of the asynchronous evaluation."""
        if self._background is not None:
            with self._measurements.clock.spent(run_record.EVALUATION):
                self._background.poll()
            self._metrics = self._background.metrics

    def _finish_background(self, interrupts: Interrupts) -> None:
        with self._measurements.clock.announced(run_record.EVALUATION):
            reason = self._background.finish(
                self._checkpoints.latest, self._step, lambda: interrupts.received is not None
            )
        self._metrics = self._background.metrics
        if reason != self._reason:
            self._stop_for(reason)
        self._is_interrupted(interrupts)

    def _stop_for(self, reason: str | None) -> None:
        if reason:
            _logger.info('stopping early: %s', reason)
            self._reason = reason
