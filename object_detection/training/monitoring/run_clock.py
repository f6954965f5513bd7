"""Where the time of a run goes."""

import contextlib
import time
from collections import defaultdict
from collections.abc import Iterator

START, FIRST_STEP, STEPS, SAVES, EVALUATION = 'start', 'first_step', 'steps', 'saves', 'evaluation'
_OTHER = 'other'


class RunClock:
    """Seconds of a run, by what they were spent on; it starts when it is made, with `START`."""

    def __init__(self):
        self._seconds: dict[str, float] = defaultdict(float)
        self._spent_on = START
        self._since = time.monotonic()

    def begin(self) -> None:
        """Ends `START`: what is not `spent` on anything from now on is 'other'."""
        self._switch(_OTHER)

    @contextlib.contextmanager
    def spent(self, what: str) -> Iterator[None]:
        """A context whose time is spent on `what`, but for that of such contexts within it."""
        outer = self._switch(what)
        try:
            yield
        finally:
            self._switch(outer)

    def describe(self) -> dict[str, float]:
        """Returns the seconds so far: 'all', which is the sum of the others, by name."""
        self._switch(self._spent_on)
        return {'all': sum(self._seconds.values()), **self._seconds}

    def _switch(self, what: str) -> str:
        now = time.monotonic()
        self._seconds[self._spent_on] += now - self._since
        before, self._spent_on, self._since = self._spent_on, what, now
        return before
