"""Runs training steps, and what is due between them."""

import dataclasses
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping

import tensorflow as tf

from object_detection.config.errors import ConfigError
from object_detection.training.checkpoints import Checkpoints
from object_detection.training.errors import DivergenceError
from object_detection.training.interrupts import Interrupts
from object_detection.training.progress import Record
from object_detection.training.recorder import Meter, Recorder
from object_detection.training.step import TrainStep

_logger = logging.getLogger(__name__)

# How often the losses are looked at between two log intervals, in seconds.
_LOOK_INTERVAL = 1.0

Metrics = Mapping[str, Mapping[str, float]]
# (step, should_stop) -> reader's name -> metrics, or None if stopped.
EvaluateFunction = Callable[[int, Callable[[], bool]], Metrics | None]


@dataclasses.dataclass(frozen=True)
class Intervals:
    """When things happen, counted in steps.

    Attributes:
      log: between two records in the log, the history and TensorBoard.
      checkpoint: between two checkpoints; 0 saves only at the end.
      evaluation: between two evaluations, and at the end; 0 never evaluates.
      call: steps in one call of the compiled function: more is less overhead on a fast
        accelerator, and a later answer to signals.
    """

    log: int = 100
    checkpoint: int = 1000
    evaluation: int = 0
    call: int = 1

    def __post_init__(self):
        if min(self.log, self.call) < 1 or min(self.checkpoint, self.evaluation) < 0:
            raise ValueError(
                'Intervals: log and call must be positive, checkpoint and evaluation at least 0. '
                f'Received: {self}.'
            )

    def steps_to_next(self, step: int, num_steps: int) -> int:
        """How many steps can be done in one call: nothing is due before its end."""
        due = [num_steps - step, self.call]
        due += [n - step % n for n in (self.log, self.checkpoint, self.evaluation) if n]
        return min(due)


@dataclasses.dataclass(frozen=True)
class TrainResult:
    """How a training ended.

    Attributes:
      step: number of steps done in all.
      checkpoint: prefix of the newest checkpoint, which is of that step.
      losses: means since the last record; empty if there was nothing left to do.
      metrics: of the last evaluation; None if there was none.
      stopped_by: number of the signal that stopped it early, or None.
    """

    step: int
    checkpoint: str
    losses: Mapping[str, float]
    metrics: Metrics | None = None
    stopped_by: int | None = None

    @property
    def exit_status(self) -> int:
        """Of a program: 0, or that of one ended by the signal, so that it is started again."""
        return 0 if self.stopped_by is None else 128 + self.stopped_by


class Trainer:
    """Runs steps, and what is due between them.

    Args:
      train_step: one step; its `step` variable is where the run stands.
      iterator: over training batches.
      checkpoints: of the model, the optimizer and the step, already restored.
      recorder: where the numbers go.
      num_steps: where the run ends.
      batch_size: images of one step, over all replicas.
      intervals: when things are due.
      evaluate: evaluates the detector as it is, or None.
    """

    def __init__(
        self,
        *,
        train_step: TrainStep,
        iterator: Iterator,
        checkpoints: Checkpoints,
        recorder: Recorder,
        num_steps: int,
        batch_size: int,
        intervals: Intervals,
        evaluate: EvaluateFunction | None = None,
    ):
        self._train_step = train_step
        self._iterator = iterator
        self._checkpoints = checkpoints
        self._recorder = recorder
        self._num_steps = num_steps
        self._batch_size = batch_size
        self._intervals = intervals
        self._evaluate = evaluate
        self._meter = Meter()
        self._step = int(train_step.step.numpy())
        self._last_look = time.monotonic()
        self._saved_step = self._step if checkpoints.latest else None
        self._evaluated_step: int | None = None
        self._metrics: Metrics | None = None
        self._losses: Mapping[str, float] = {}

    def run(self) -> TrainResult:
        """Trains to the end, or until a signal comes; see `train`."""
        with Interrupts() as interrupts:
            self._recorder.start(self._step, self._num_steps, self._batch_size)
            self._do_first_step()
            while self._do_what_is_due(interrupts) and self._do_steps():
                pass
            self._finish(interrupts)
        return TrainResult(
            step=self._step,
            checkpoint=self._checkpoints.latest,
            losses=self._losses,
            metrics=self._metrics,
            stopped_by=None if interrupts.received is None else int(interrupts.received),
        )

    def _do_first_step(self) -> None:
        """Does the step that builds the graph, on a batch that is drawn for TensorBoard."""
        started = time.monotonic()
        batch = next(self._iterator, None)
        if batch is None:
            raise ConfigError('train_input_reader: expected at least one batch. Received: none.')
        self._recorder.inputs(batch, self._step)
        self._meter.add(self._train_step(batch), steps=1, seconds=0.0, timed=False)
        self._step += 1
        self._look()
        _logger.info('the first step, with building the graph: %.1f s', time.monotonic() - started)

    def _do_steps(self) -> bool:
        """Does the steps until something is due; False if the data ended."""
        count = self._intervals.steps_to_next(self._step, self._num_steps)
        started = time.monotonic()
        try:
            losses = self._train_step.repeat(self._iterator, count)
        except (StopIteration, tf.errors.OutOfRangeError):
            self._step = int(self._train_step.step.numpy())
            _logger.warning(
                'the training data ended at step %d of %d; train_input_reader.num_epochs: 0 '
                'repeats it for ever',
                self._step,
                self._num_steps,
            )
            return False
        self._meter.add(losses, count, time.monotonic() - started)
        self._step += count
        return True

    def _do_what_is_due(self, interrupts: Interrupts) -> bool:
        """Looks, logs, saves, evaluates; False if the run is to end."""
        if self._step >= self._num_steps or interrupts.received:
            return False
        logs, saves, evaluates = (
            n > 0 and self._step % n == 0
            for n in (self._intervals.log, self._intervals.checkpoint, self._intervals.evaluation)
        )
        if logs:
            self._log()
        elif saves or time.monotonic() - self._last_look > _LOOK_INTERVAL:
            self._look()
        if saves:
            self._save()
        if evaluates:
            self._run_evaluation(interrupts)
        return not interrupts.received

    def _finish(self, interrupts: Interrupts) -> None:
        if not self._meter.is_empty:
            self._log()
        if self._saved_step != self._step:
            self._save()
        if self._evaluate and self._evaluated_step != self._step and not interrupts.received:
            self._run_evaluation(interrupts)
        _logger.info(
            '%s at step %d of %d; checkpoint %s',
            'stopped' if self._step < self._num_steps else 'done',
            self._step,
            self._num_steps,
            self._checkpoints.latest,
        )

    def _look(self) -> Record:
        """Fetches the losses, checks and shows them.

        Raises:
          DivergenceError: if one is NaN or infinite.
        """
        started = time.monotonic()
        losses = self._meter.losses()
        self._meter.add_seconds(time.monotonic() - started)
        self._last_look = time.monotonic()
        rate = self._meter.steps_per_second()
        record = Record(
            step=self._step,
            losses=losses,
            learning_rate=self._learning_rate(),
            images_per_second=None if rate is None else rate * self._batch_size,
        )
        if not all(map(math.isfinite, losses.values())):
            raise DivergenceError(self._describe_divergence(record))
        self._recorder.update(record)
        return record

    def _log(self) -> None:
        record = self._look()
        self._recorder.log(record)
        self._losses = record.losses
        self._meter.reset()

    def _save(self) -> None:
        try:
            self._checkpoints.save()
        except DivergenceError as error:
            raise DivergenceError(
                f'The training diverged before step {self._step}, learning rate '
                f'{self._learning_rate():g}: {error}'
            ) from error
        self._saved_step = self._step
        _logger.info('saved %s (step %d)', self._checkpoints.latest, self._step)

    def _run_evaluation(self, interrupts: Interrupts) -> None:
        metrics = self._evaluate(self._step, lambda: interrupts.received is not None)
        if metrics is not None:
            self._metrics = metrics
            self._evaluated_step = self._step

    def _learning_rate(self) -> float:
        """Of the last step that was done."""
        return float(self._train_step.optimizer.learning_rate(tf.constant(self._step - 1)))

    def _describe_divergence(self, record: Record) -> str:
        losses = ', '.join(f'{name} = {value:g}' for name, value in record.losses.items())
        return (
            f'The training diverged: at step {record.step}, learning rate '
            f'{record.learning_rate:g}, the mean losses since the last record are {losses}. '
            'Nothing of it was saved; the last good checkpoint is '
            f'{self._checkpoints.latest or "none"}. A lower learning rate, a longer warm-up or '
            'train_config.gradient_clipping_by_norm may help.'
        )
