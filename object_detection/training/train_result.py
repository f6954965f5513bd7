"""How a training ended."""

import dataclasses
from collections.abc import Mapping

# Reader's name -> metric -> value.
Metrics = Mapping[str, Mapping[str, float]]


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
        """Of a program: 0, or that of one ended by the signal, so that it is started again."""
        return 0 if self.stopped_by is None else 128 + self.stopped_by
