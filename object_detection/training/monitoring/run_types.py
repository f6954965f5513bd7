"""Values of a training: its intervals, and how it ended."""

import dataclasses
from collections.abc import Mapping

from object_detection.errors import UserError
from object_detection.training.monitoring.profiling import ProfiledSteps

# Records that a short training has at least.
_RECORDS = 50


@dataclasses.dataclass(frozen=True)
class Intervals:
    """Numbers of steps between events of a training.

    Attributes:
      log: steps between two records in the log and the history.
      summary: steps between two records in TensorBoard; 0 takes `log`.
      checkpoint: steps between two checkpoints; 0 saves only at the end.
      evaluation: steps between two evaluations, another one is at the end; 0 never evaluates.
      call: steps in one call of the training function. More steps mean less overhead on a fast
        accelerator, and a later response to signals. 0 takes the steps of about half a second.
      warmup: first steps of a run that its averages leave out.
      profile: which steps are profiled for TensorBoard; None profiles nothing.
    """

    log: int = 100
    summary: int = 0
    checkpoint: int = 1000
    evaluation: int = 0
    call: int = 0
    warmup: int = 0
    profile: ProfiledSteps | None = None

    def __post_init__(self):
        numbers = self.summary, self.checkpoint, self.evaluation, self.call, self.warmup
        if self.log < 1 or min(numbers) < 0:
            raise UserError(
                'Intervals: log must be positive, summary, checkpoint, evaluation, call and warmup '
                f'at least 0. Received: {self}.'
            )

    @staticmethod
    def log_of(num_steps: int) -> int:
        """Returns how often a training of so many steps logs, 0 if their number is not known."""
        return min(Intervals.log, max(1, num_steps // _RECORDS)) if num_steps else Intervals.log

    @property
    def summary_or_log(self) -> int:
        return self.summary or self.log

    def steps_to_next(self, step: int, num_steps: int, most: int = 1) -> int:
        """Returns how many steps one call may do, so that nothing is due before its end.

        Args:
          step: number of steps done.
          num_steps: the step that the run ends at.
          most: the largest result, if `call` is 0.
        """
        due = [num_steps - step, self.call or most]
        due += self.profile.steps_to_next(step) if self.profile else []
        intervals = (self.log, self.summary, self.checkpoint, self.evaluation)
        return min(due + [n - step % n for n in intervals if n])


# Reader's name -> metric -> value.
Metrics = Mapping[str, Mapping[str, float]]


def flat(metrics: Metrics) -> dict[str, float]:
    """Returns the metrics of all readers by one name each, as 'metric' or 'reader/metric'."""
    return {
        f'{reader}/{name}' if reader else name: value
        for reader, values in metrics.items()
        for name, value in values.items()
    }


@dataclasses.dataclass(frozen=True)
class TrainResult:
    """How a training ended.

    Attributes:
      step: number of steps done in all.
      checkpoint: prefix of the newest checkpoint, which is that of this step; None on workers other
        than the chief, which save nothing.
      losses: means since the last record; empty if no step was left to do.
      metrics: results of the last evaluation; None if there was none.
      stopped_by: number of the signal that stopped it early, or None.
      reason: why it ended before its last step other than by a signal, a sentence; or None.
      speed: `Window.describe` of all steps that this process did; empty if it did none.
      seconds: see `RunClock.describe`; empty if no step was done.
    """

    step: int
    checkpoint: str | None
    losses: Mapping[str, float]
    metrics: Metrics | None = None
    stopped_by: int | None = None
    reason: str | None = None
    speed: Mapping[str, object] = dataclasses.field(default_factory=dict)
    seconds: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @property
    def exit_status(self) -> int:
        """The exit status of a program: 0, or 128 + the number of the signal that ended it."""
        return 0 if self.stopped_by is None else 128 + self.stopped_by
