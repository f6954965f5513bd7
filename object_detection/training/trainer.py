"""Runs training steps, and what is due between them."""

import dataclasses
import logging
import math
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import tensorflow as tf

from object_detection.config.errors import ConfigError
from object_detection.training import memory, strategies
from object_detection.training.background_evaluation import BackgroundEvaluation
from object_detection.training.checkpoints import Checkpoints
from object_detection.training.errors import DivergenceError
from object_detection.training.interrupts import Interrupts
from object_detection.training.profiling import ProfiledSteps, StepProfile
from object_detection.training.progress import Record
from object_detection.training.recorder import Meter, Recorder
from object_detection.training.speed import Speed
from object_detection.training.step import GRADIENT_NORM, TOTAL_LOSS, StepReport, TrainStep
from object_detection.training.step_times import Stopwatch
from object_detection.training.waiting import BottleneckReport

_logger = logging.getLogger(__name__)

# How often the losses are looked at between two log intervals, in seconds.
_LOOK_INTERVAL = 1.0
_MOST_SOURCE_IDS = 16
# How long a call of several steps lasts.
_CALL_SECONDS = 0.5
_FEWEST_STEPS_A_CALL = 4
# Calls between two questions to all workers whether one has received a signal.
_CALLS_BETWEEN_QUESTIONS = 10

Metrics = Mapping[str, Mapping[str, float]]
# (step, should_stop) -> reader's name -> metrics, or None if stopped.
EvaluateFunction = Callable[[int, Callable[[], bool]], Metrics | None]


@dataclasses.dataclass(frozen=True)
class Intervals:
    """When things happen, counted in steps.

    Attributes:
      log: between two records in the log and the history.
      summary: between two records in TensorBoard; 0 is as `log`.
      checkpoint: between two checkpoints; 0 saves only at the end.
      evaluation: between two evaluations, and at the end; 0 never evaluates.
      call: steps in one call of the training function: more is less overhead on a fast
        accelerator, and a later answer to signals. 0 takes as many as last about half a second.
      profile: which steps are profiled for TensorBoard; None profiles nothing.
    """

    log: int = 100
    summary: int = 0
    checkpoint: int = 1000
    evaluation: int = 0
    call: int = 0
    profile: ProfiledSteps | None = None

    def __post_init__(self):
        if self.log < 1 or min(self.summary, self.checkpoint, self.evaluation, self.call) < 0:
            raise ValueError(
                'Intervals: log must be positive, summary, checkpoint, evaluation and call at '
                f'least 0. Received: {self}.'
            )

    @property
    def summary_or_log(self) -> int:
        return self.summary or self.log

    def steps_to_next(self, step: int, num_steps: int, most: int = 1) -> int:
        """How many steps can be done in one call: nothing is due before its end.

        Args:
          step: number of steps done.
          num_steps: where the run ends.
          most: how many may be, where `call` is 0.
        """
        due = [num_steps - step, self.call or most]
        due += self.profile.steps_to_next(step) if self.profile else []
        intervals = (self.log, self.summary, self.checkpoint, self.evaluation)
        return min(due + [n - step % n for n in intervals if n])


@dataclasses.dataclass(frozen=True)
class TrainResult:
    """How a training ended.

    Attributes:
      step: number of steps done in all.
      checkpoint: prefix of the newest checkpoint, which is of that step; None on workers other
        than the chief, which save nothing.
      losses: means since the last record; empty if there was nothing left to do.
      metrics: of the last evaluation; None if there was none.
      stopped_by: number of the signal that stopped it early, or None.
      reason: why it ended before its last step other than by a signal, a sentence; or None.
      speed: see `Speed.describe`, of all steps that this process did; empty if it did none.
    """

    step: int
    checkpoint: str | None
    losses: Mapping[str, float]
    metrics: Metrics | None = None
    stopped_by: int | None = None
    reason: str | None = None
    speed: Mapping[str, object] = dataclasses.field(default_factory=dict)

    @property
    def exit_status(self) -> int:
        """Of a program: 0, or that of one ended by the signal, so that it is started again."""
        return 0 if self.stopped_by is None else 128 + self.stopped_by


class Trainer:
    """Runs steps, and what is due between them.

    Args:
      train_step: one step; its `step` variable is where the run stands. Where its strategy has
        several workers, all run the same trainer, and the chief alone saves and evaluates.
      iterator: over training batches.
      checkpoints: of the model, the optimizer and the step, already restored.
      recorder: where the numbers go.
      num_steps: where the run ends.
      batch_size: images of one step, over all replicas.
      intervals: when things are due.
      evaluate: evaluates the detector as it is, on all workers together; or None.
      reason_to_stop: asked after each evaluation; a sentence ends the run.
      evaluates_first: whether the step that the run starts from is still to be evaluated.
      background: evaluates in place of `evaluate`, while the steps go on; on all workers or none.
      check_batch: looks at one replica's part of the first batch, as NumPy arrays, and raises what
        is wrong.
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
        reason_to_stop: Callable[[], str | None] = lambda: None,
        check_batch: Callable[[Mapping[str, np.ndarray]], None] = lambda batch: None,
        evaluates_first: bool = False,
        background: BackgroundEvaluation | None = None,
    ):
        self._train_step = train_step
        self._strategy = train_step.strategy
        self._is_chief = strategies.is_chief(self._strategy)
        self._statistics = strategies.StatisticsAverage(
            self._strategy, train_step.detector.named_variables()
        )
        self._iterator = iterator
        self._checkpoints = checkpoints
        self._recorder = recorder
        self._num_steps = num_steps
        self._batch_size = batch_size
        self._intervals = intervals
        self._evaluate = evaluate
        self._reason_to_stop = reason_to_stop
        self._check_batch = check_batch
        self._evaluates_first = evaluates_first
        self._background = background
        self._meter = Meter()
        # The same meter, unless the intervals differ.
        has_own = intervals.summary_or_log != intervals.log
        self._summary_meter = Meter() if has_own else self._meter
        self._speed = Speed()
        self._stopwatch = Stopwatch()
        self._bottleneck = BottleneckReport()
        self._profile = StepProfile(intervals.profile, recorder.directory)
        self._reports: deque[StepReport] = deque()
        self._reason: str | None = None
        self._stopped_by: int | None = None
        self._calls = 0
        self._has_repeated = False
        self._steps_a_call = 1
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
            if not (self._evaluates_first and self._stops_after_evaluation(interrupts)):
                goes_on = self._do_first_step()
                while goes_on:
                    goes_on = self._do_what_is_due(interrupts) and self._do_steps()
            self._finish(interrupts)
        return TrainResult(
            step=self._step,
            checkpoint=self._checkpoints.latest if self._is_chief else None,
            losses=self._losses,
            metrics=self._metrics,
            stopped_by=self._stopped_by,
            reason=self._reason,
            speed=self._speed.describe(self._batch_size),
        )

    def _stops_after_evaluation(self, interrupts: Interrupts) -> bool:
        """Evaluates; whether that, or a signal meanwhile, ends the run."""
        self._run_evaluation(interrupts)
        return bool(self._reason) or self._is_interrupted(interrupts)

    def _do_first_step(self) -> bool:
        """Does the step that builds the graph, on a batch that is drawn for TensorBoard.

        Returns:
          False if the data had ended before.
        """
        started = time.monotonic()
        batch = next(self._iterator, None)
        if batch is None and self._step:
            self._end_of_data()
            return False
        if batch is None:
            raise ConfigError('train_input_reader: expected at least one batch. Received: none.')
        part = {
            name: self._strategy.experimental_local_results(value)[0].numpy()
            for name, value in batch.items()
        }
        self._check_batch(part)
        self._recorder.inputs(part, self._step)
        with self._profile.call(self._step):
            values = self._train_step(batch)
        self._count(values, 1, 0.0, timed=False)
        self._look()
        _logger.info('the first step, with building the graph: %.1f s', time.monotonic() - started)
        return True

    def _end_of_data(self) -> None:
        self._reason = (
            f'the training data ended at step {self._step} of {self._num_steps}; '
            'train_input_reader.num_epochs: 0 repeats it for ever'
        )
        _logger.warning('%s', self._reason)

    def _do_steps(self) -> bool:
        """Does the steps until something is due; False if the data ended."""
        count = self._intervals.steps_to_next(self._step, self._num_steps, self._steps_a_call)
        graphs = self._train_step.num_traces
        started = time.monotonic()
        try:
            with self._profile.call(self._step):
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

    def _count(
        self, values: Mapping[str, tf.Tensor], steps: int, seconds: float, *, timed: bool = True
    ) -> None:
        """Takes in what a call of `steps` steps returned."""
        for meter in self._meters():
            meter.add(values, steps, seconds, timed=timed)
        if timed:
            self._speed.add(steps, seconds)
        self._stopwatch.add(self._train_step.times, timed=timed)
        self._reports.append(self._train_step.report)
        self._step += steps
        self._calls += 1
        self._profile.after(self._step, lambda: values[TOTAL_LOSS].numpy())

    def _meters(self) -> set[Meter]:
        return {self._meter, self._summary_meter}

    def _speeds(self) -> list[Speed]:
        return [self._speed, *(meter.speed for meter in self._meters())]

    def _do_what_is_due(self, interrupts: Interrupts) -> bool:
        """Looks, logs, saves, evaluates; False if the run is to end."""
        if self._step >= self._num_steps:
            return False
        due = self._intervals
        logs, summarizes, saves, evaluates = (
            n > 0 and self._step % n == 0
            for n in (due.log, due.summary_or_log, due.checkpoint, due.evaluation)
        )
        if logs or summarizes:
            self._record(logs=logs, summarizes=summarizes)
        elif saves or self._wants_to_look():
            self._look()
        in_background = evaluates and self._background is not None
        if saves or in_background:
            self._save()
        if in_background:
            self._background.add(self._checkpoints.latest, self._step)
        elif evaluates:
            self._run_evaluation(interrupts)
        self._take_results()
        return not (self._reason or self._was_interrupted(interrupts))

    def _was_interrupted(self, interrupts: Interrupts) -> bool:
        """As `_is_interrupted`, but asked now and then only."""
        if self._stopped_by is None and not self._may_ask():
            return False
        return self._is_interrupted(interrupts)

    def _may_ask(self) -> bool:
        # Each question makes several workers wait for the devices.
        is_alone = strategies.num_workers(self._strategy) == 1
        return is_alone or self._calls % _CALLS_BETWEEN_QUESTIONS == 0

    def _is_interrupted(self, interrupts: Interrupts) -> bool:
        """Whether this worker, or any other, has received a signal."""
        if self._stopped_by is None:
            own = interrupts.received
            if strategies.agree_on_stop(self._strategy, own is not None):
                self._stopped_by = int(signal.SIGTERM if own is None else own)
        return self._stopped_by is not None

    def _wants_to_look(self) -> bool:
        # By the clock only where no other worker could come to another conclusion.
        is_alone = strategies.num_workers(self._strategy) == 1
        return is_alone and time.monotonic() - self._last_look > _LOOK_INTERVAL

    def _finish(self, interrupts: Interrupts) -> None:
        self._profile.close(self._step)
        self._record(logs=not self._meter.is_empty, summarizes=not self._summary_meter.is_empty)
        if self._saved_step != self._step:
            self._save()
        is_due = self._evaluate is not None and self._evaluated_step != self._step
        if self._is_interrupted(interrupts):
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

    def _look(self) -> Record:
        """Fetches the means since the last log record, checks and shows them.

        Raises:
          DivergenceError: if one is NaN or infinite.
        """
        started = time.monotonic()
        means = self._meter.means()
        waited = time.monotonic() - started
        times = self._stopwatch.take()
        for speed in self._speeds():
            speed.add_seconds(waited)
            speed.add_times(times)
        self._last_look = time.monotonic()
        self._steps_a_call = self._choose_steps_a_call()
        if not all(map(math.isfinite, means.values())):
            raise DivergenceError(self._describe_divergence())
        self._reports.clear()
        record = self._describe(means, self._meter)
        self._recorder.update(record)
        return record

    def _choose_steps_a_call(self) -> int:
        """How many steps last as long as a signal may wait for its answer.

        Each call is one entry into Python. Several workers, whose clocks differ, would have to
        agree on the number: they do one step a call unless told otherwise.
        """
        rate = self._meter.speed.steps_per_second()
        if rate is None or strategies.num_workers(self._strategy) > 1:
            return self._steps_a_call
        steps = int(rate * _CALL_SECONDS)
        # Few steps are not worth the graph of a loop.
        return steps if steps >= _FEWEST_STEPS_A_CALL else 1

    def _describe(self, means: dict[str, float], meter: Meter) -> Record:
        speed = meter.speed.describe(self._batch_size)
        return Record(
            step=self._step,
            losses={name: value for name, value in means.items() if name != GRADIENT_NORM},
            learning_rate=self._learning_rate(self._step - 1),
            images_per_second=speed['images_per_second'],
            gradient_norm=means[GRADIENT_NORM],
            waiting_share=speed['waiting_share'],
            latencies=speed['latencies'],
            memory=memory.peaks(),
        )

    def _record(self, *, logs: bool, summarizes: bool) -> None:
        record = None if self._meter.is_empty else self._look()
        if summarizes:
            meter = self._summary_meter
            self._recorder.summarize(self._describe(meter.means(), meter))
            meter.reset()
        if logs:
            self._recorder.log(record)
            self._losses = record.losses
            timed_steps = record.latencies['step']['count'] if record.latencies else 0
            self._bottleneck.update(record.waiting_share, timed_steps)
            self._meter.reset()

    def _save(self) -> None:
        self._statistics.update()
        # The copy of this process: workers have different ones.
        (own, *_) = self._strategy.experimental_local_results(self._train_step.stream_state)
        self._checkpoints.collect(own.numpy())
        try:
            strategies.on_chief(self._strategy, self._checkpoints.save)
        except DivergenceError as error:
            raise DivergenceError(
                f'The training diverged before step {self._step}, learning rate '
                f'{self._learning_rate(self._step - 1):g}: {error}'
            ) from error
        self._saved_step = self._step
        if self._is_chief:
            _logger.info('saved %s (step %d)', self._checkpoints.latest, self._step)

    def _run_evaluation(self, interrupts: Interrupts) -> None:
        self._statistics.update()
        metrics = self._evaluate(self._step, lambda: interrupts.received is not None)
        self._metrics = metrics or self._metrics
        if self._is_interrupted(interrupts):
            return
        self._evaluated_step = self._step
        if self._step < self._num_steps:
            self._stop_for(strategies.chiefs_reason(self._strategy, self._reason_to_stop))

    def _take_results(self) -> None:
        """Takes what the evaluation beside the training has found, which may end the run."""
        if self._background is None:
            return
        self._background.look()
        self._metrics = self._background.metrics
        if self._may_ask():
            self._stop_for(self._background.reason())

    def _finish_background(self, interrupts: Interrupts) -> None:
        self._background.finish(
            self._checkpoints.latest, self._step, lambda: interrupts.received is not None
        )
        self._metrics = self._background.metrics
        self._is_interrupted(interrupts)

    def _stop_for(self, reason: str | None) -> None:
        if reason:
            _logger.info('stopping early: %s', reason)
            self._reason = reason

    def _learning_rate(self, step: int) -> float:
        """Of the update after `step` others."""
        return float(self._train_step.optimizer.learning_rate(tf.constant(step)))

    def _describe_divergence(self) -> str:
        report = next((r for r in self._reports if not r.is_finite()), self._reports[-1])
        values = {name: float(value) for name, value in report.values.items()}
        terms = [name for name in values if name not in (TOTAL_LOSS, GRADIENT_NORM)]
        broken = [name for name in terms if not math.isfinite(values[name])]
        # Each term can be finite and their gradients, or their sum, not.
        told = broken or [GRADIENT_NORM if math.isfinite(values[TOTAL_LOSS]) else TOTAL_LOSS]
        others = ', '.join(f'{name} = {values[name]:g}' for name in terms if name not in broken)
        step = int(report.step)
        ids = [text.decode(errors='replace') for text in report.source_ids.numpy()]
        more = f' and {len(ids) - _MOST_SOURCE_IDS} more' if len(ids) > _MOST_SOURCE_IDS else ''
        return (
            f'The training diverged: {", ".join(f"{name} = {values[name]:g}" for name in told)} at '
            f'step {step + 1}, learning rate {self._learning_rate(step):g}'
            f'{f" (the others: {others})" if others else ""}. The images of that batch have the '
            f'source ids {", ".join(map(repr, ids[:_MOST_SOURCE_IDS]))}{more}. Nothing of it was '
            f'saved; {self._last_good()}. A lower learning rate, a longer warm-up or '
            'train_config.gradient_clipping_by_norm may help.'
        )

    def _last_good(self) -> str:
        latest = self._checkpoints.latest
        return f'the last good checkpoint is {latest}' if latest else 'there is no checkpoint yet'
