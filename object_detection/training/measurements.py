"""Measures the steps of a training: losses, speed and divergence; hands records to the recorder."""

import datetime
import logging
import math
import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from object_detection.builders.callback_builder import End, StepRecord
from object_detection.errors import DivergenceError, format_list
from object_detection.optimizers.gradients import TOTAL_LOSS
from object_detection.system import cpu, numbers
from object_detection.training.distribution import strategies
from object_detection.training.monitoring import run_record
from object_detection.training.monitoring.input_bottleneck import BottleneckReport
from object_detection.training.monitoring.model_summary import FlopCount
from object_detection.training.monitoring.recorder import Recorder
from object_detection.training.monitoring.run_record import RunClock
from object_detection.training.monitoring.run_types import TrainResult
from object_detection.training.monitoring.speed import PERCENTILES, Stopwatch, Window
from object_detection.training.setup import TrainingRun
from object_detection.training.step import GRADIENT_NORM, StepReport, TrainStep

_logger = logging.getLogger(__name__)

# How often the losses are checked between two log intervals, in seconds.
_CHECK_INTERVAL = 1.0
# How long a call of several steps should last.
_CALL_SECONDS = 0.5
_MIN_STEPS_PER_CALL = 4
# The largest share of a step's FLOPs in loops of unknown length, which are counted once.
_MAX_LOOP_SHARE = 0.05
# How many images of a diverged step are listed.
_MAX_SOURCE_IDS = 16


class Measurements:
    """Collects what steps return and how long they take, and hands on records of them.

    Args:
      run: the training.
      train_step: the step that is measured.
      recorder: receives the records.
      last_good: returns the prefix of the newest checkpoint, or None.
      clock: the clock of the run.
      left_out: returns what was left out of the data so far, see `BadRecords.counts`.

    Attributes:
      clock: the clock of the run.
      left_out: as the argument.
      losses: losses of the last record that was logged.
      steps_per_call: how many steps one call may do, so that signals get a response soon.
    """

    def __init__(
        self,
        run: TrainingRun,
        train_step: TrainStep,
        recorder: Recorder,
        *,
        last_good: Callable[[], str | None],
        clock: RunClock,
        left_out: Callable[[], Mapping[str, int]],
    ):
        self._train_step = train_step
        self._recorder = recorder
        self._batch_size = run.config.train_config.batch_size
        self._last_good = last_good
        self.left_out = left_out
        self._is_alone = strategies.num_workers(train_step.strategy) == 1
        self.clock, intervals = clock, run.intervals
        # Since the last record of the log, since that of the summaries, and since the warm-up.
        self._logged, self._run = Window(), Window()
        has_own = intervals.summary_or_log != intervals.log
        self._summarized = Window() if has_own else self._logged
        self._stopwatch = Stopwatch()
        self._bottleneck = BottleneckReport(
            is_served=bool(run.config.train_input_reader.data_service)
        )
        self._reports: deque[StepReport] = deque()
        self._last_check = time.monotonic()
        self.losses: Mapping[str, float] = {}
        self.steps_per_call = 1
        # Steps that are left until the averages of the run begin.
        self._warmup = intervals.warmup

    def start(self, step: int, num_steps: int) -> None:
        """Begins a run that `step` of `num_steps` steps precede."""
        self.clock.begin()
        self._recorder.start(step, num_steps, self._batch_size)

    def count(
        self, values: Mapping[str, tf.Tensor], steps: int, seconds: float, *, timed: bool = True
    ) -> None:
        """Adds a call of `steps` steps, which returned `values`; `timed` if it built no graph.

        The averages of the run begin with the first call after all steps of the warm-up.
        """
        for window in {self._logged, self._summarized}:
            window.add(values, steps, seconds, timed=timed)
        self._run.add({}, steps, seconds, timed=timed)
        self._stopwatch.add(self._train_step.times, timed=timed)
        self._reports.append(self._train_step.report)
        if self._warmup > 0:
            self._warmup -= steps
            if self._warmup <= 0:
                self._fetch()
                self._run.clear()

    @property
    def is_stale(self) -> bool:
        """Whether `check` is due by the clock; never with several workers, whose clocks differ."""
        return self._is_alone and time.monotonic() - self._last_check > _CHECK_INTERVAL

    def check(self, step: int) -> StepRecord:
        """Fetches the means since the last log record, checks that they are finite, and shows them.

        Args:
          step: number of steps done.

        Raises:
          DivergenceError: if one is NaN or infinite.
        """
        means = self._fetch()
        self._last_check = time.monotonic()
        self.steps_per_call = self._choose_steps_per_call()
        if not all(map(math.isfinite, means.values())):
            raise DivergenceError(
                _describe_divergence(self._reports, self.learning_rate, self._last_good())
            )
        self._reports.clear()
        record = self._describe(step, means, self._logged)
        self._recorder.update(record)
        return record

    def _fetch(self) -> dict[str, float]:
        """Waits for the steps so far; returns the means since the last log record."""
        started = time.monotonic()
        with self.clock.spent(run_record.STEPS):
            means = self._logged.means()
        waited = time.monotonic() - started
        times = self._stopwatch.take()
        for window in {self._logged, self._summarized, self._run}:
            window.add_times(times, waited)
        return means

    def record(self, step: int, *, logs: bool = True, summarizes: bool = True) -> None:
        """Checks, and writes the record that is due, unless there was no step since the last one.

        Raises:
          DivergenceError: as `check` does.
        """
        record = self.check(step) if self._logged.steps else None
        window = self._summarized
        if summarizes and window.steps:
            self._recorder.summarize(self._describe(step, window.means(), window))
            window.clear()
        if logs and record is not None:
            self._recorder.log(record)
            self.losses = record.losses
            timed_steps = record.latencies['step']['count'] if record.latencies else 0
            self._bottleneck.update(record.waiting_share, timed_steps)
            self._logged.clear()

    def speed(self) -> dict[str, object]:
        """Returns `Window.describe` of all steps after the warm-up."""
        if self._warmup > 0:
            _logger.info('no averages: the run ended before the last of --log_warmup_steps')
            self._run.clear()
        return self._run.describe(self._batch_size)

    def write_averages(self, directory: str, run: str, result: TrainResult) -> None:
        """Logs and writes the averages of a run that has ended."""
        write_averages(directory, run, result, self._train_step.count_flops)
        self._recorder.end = End(speed=result.speed, seconds=result.seconds)

    def learning_rate(self, step: int) -> float:
        """Returns the learning rate of the update after `step` others."""
        return float(self._train_step.optimizer.learning_rate(tf.constant(step)))

    def _choose_steps_per_call(self) -> int:
        """Chooses more steps for faster steps, since each call has an overhead in Python.

        Several workers, whose clocks differ, would have to agree on the number: they do one step a
        call unless `Intervals.call` says otherwise.
        """
        rate = self._logged.steps_per_second()
        if rate is None or not self._is_alone:
            return self.steps_per_call
        steps = int(rate * _CALL_SECONDS)
        # Few steps are not worth the graph of a loop.
        return steps if steps >= _MIN_STEPS_PER_CALL else 1

    def _describe(self, step: int, means: dict[str, float], window: Window) -> StepRecord:
        speed = window.describe(self._batch_size)
        return StepRecord(
            step=step,
            losses={name: value for name, value in means.items() if name != GRADIENT_NORM},
            learning_rate=self.learning_rate(step - 1),
            images_per_second=speed['images_per_second'],
            gradient_norm=means[GRADIENT_NORM],
            waiting_share=speed['waiting_share'],
            latencies=speed['latencies'],
            memory=cpu.peaks(),
            left_out=self.left_out(),
            times=self._stopwatch.last,
            batch_size=self._batch_size,
        )


def _describe_divergence(
    reports: Sequence[StepReport], learning_rate: Callable[[int], float], last_good: str | None
) -> str:
    """Returns which numbers of which step were not finite, and the checkpoint to resume from.

    Args:
      reports: reports of the calls since the numbers were last checked, in order.
      learning_rate: returns the learning rate of the update after so many others.
      last_good: prefix of the newest checkpoint, or None.
    """
    report = next((r for r in reports if not r.is_finite()), reports[-1])
    values = {name: float(value) for name, value in report.values.items()}
    terms = [name for name in values if name not in (TOTAL_LOSS, GRADIENT_NORM)]
    broken = [name for name in terms if not math.isfinite(values[name])]
    # Each term can be finite and their gradients, or their sum, not.
    diverged = broken or [GRADIENT_NORM if math.isfinite(values[TOTAL_LOSS]) else TOTAL_LOSS]
    others = ', '.join(f'{name} = {values[name]:g}' for name in terms if name not in broken)
    step = int(report.step)
    ids = [text.decode(errors='replace') for text in report.source_ids.numpy()]
    saved = (
        f'the last good checkpoint is {last_good}' if last_good else 'there is no checkpoint yet'
    )
    return (
        f'The training diverged: {", ".join(f"{name} = {values[name]:g}" for name in diverged)} at '
        f'step {step + 1}, learning rate {learning_rate(step):g}'
        f'{f" (the others: {others})" if others else ""}. The images of that batch have the '
        f'source ids {format_list(map(repr, ids), _MAX_SOURCE_IDS)}. Nothing of it was '
        f'saved; {saved}. A lower learning rate, a longer warm-up or '
        'train_config.gradient_clipping_by_norm may help.'
    )


def write_averages(
    directory: str | os.PathLike,
    run: str,
    result: TrainResult,
    count_flops: Callable[[], FlopCount | None],
) -> None:
    """Logs and writes the averages of a run that has ended, unless no step was timed.

    Args:
      directory: the model_dir.
      run: name of the run, see `run_record.write`.
      result: how the run ended.
      count_flops: counts the FLOPs of a step on all replicas of this process.
    """
    if not result.speed.get('steps_per_second'):
        return
    facts = {
        'step': result.step,
        'stopped_by': result.stopped_by,
        'reason': result.reason,
        **result.speed,
        'seconds': dict(result.seconds),
        'memory': cpu.peaks(),
        **_describe_flops(count_flops(), result.speed['steps_per_second']),
    }
    run_record.write_averages(directory, run, **facts)
    _logger.info('this run: %s', format_averages(facts))


def _describe_flops(counted: FlopCount | None, steps_per_second: float) -> dict[str, int | float]:
    """Returns the FLOPs of a step and of a second; {} if sizes are not static."""
    if counted is None or counted.unknown or not counted.total:
        return {}
    in_loops = sum(
        flops
        for name, flops in counted.by_operation.items()
        if any(name.startswith(f'{loop}/') for loop in counted.loops)
    )
    if in_loops > _MAX_LOOP_SHARE * counted.total:
        return {}
    return {'flops_per_step': counted.total, 'flops_per_second': counted.total * steps_per_second}


def format_averages(facts: Mapping[str, Any]) -> str:
    """Returns the averages as text.

    For example: '5 steps/s, 40 images/s, 2% of the time waiting for input, 50/90/95/99 % of the
    steps within 180/190/195/210 ms, 3.1 GiB on host, 0.5 TFLOP/s, 0:20:00 in all, of which 91%
    steps, 5% saves, 2% evaluation'.
    """
    parts = [
        f'{numbers.significant(facts["steps_per_second"])} steps/s',
        f'{numbers.significant(facts["images_per_second"])} images/s',
    ]
    if facts['waiting_share'] is not None:
        parts.append(f'{facts["waiting_share"]:.0%} of the time waiting for input')
    step = facts['latencies'].get('step')
    if step:
        times = '/'.join(numbers.significant(step[f'p{percent}'] * 1000) for percent in PERCENTILES)
        parts.append(f'{"/".join(map(str, PERCENTILES))} % of the steps within {times} ms')
    parts += [f'{peak / 2**30:.3g} GiB on {name}' for name, peak in facts['memory'].items()]
    if 'flops_per_second' in facts:
        parts.append(f'{numbers.significant(facts["flops_per_second"] / 1e12)} TFLOP/s')
    parts += _format_times(facts['seconds'])
    return ', '.join(parts)


def _format_times(seconds: Mapping[str, float]) -> list[str]:
    if not seconds:
        return []
    whole = seconds['all']
    shares = [
        f'{seconds.get(name, 0.0) / whole:.0%} {name}'
        for name in (run_record.STEPS, run_record.SAVES, run_record.EVALUATION)
    ]
    time = datetime.timedelta(seconds=round(whole))
    return [f'{time} in all, of which {", ".join(shares)}']
