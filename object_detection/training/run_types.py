"""When things happen in a training."""

import dataclasses

from object_detection.training.monitoring.profiling import ProfiledSteps


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
            raise ValueError(
                'Intervals: log must be positive, summary, checkpoint, evaluation, call and warmup '
                f'at least 0. Received: {self}.'
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
