"""How busy the CPU cores are that the process may use, whoever uses them."""

import os
import pathlib
import time

from object_detection.system import cpu

_STATISTICS = pathlib.Path('/proc/stat')
# Columns of a core in it: user nice system idle iowait irq softirq steal.
_IDLE = slice(3, 5)
_COLUMNS = slice(0, 8)
_GROUP = pathlib.Path('/sys/fs/cgroup/cpu.stat')


class CpuUse:
    """Measures the part of the cores' time that was in use since the last `take`."""

    def __init__(self):
        self._last = _read()

    def take(self) -> float:
        """Returns it, 0 to 1.

        Whatever is scarcest counts: the cores, which processes beside this one may use, or the
        time that the quota of the process's group allows.
        """
        last, self._last = self._last, _read()
        shares = [0.0]
        for name, (used, available) in self._last.items():
            if name in last and available > last[name][1]:
                shares.append((used - last[name][0]) / (available - last[name][1]))
        return min(1.0, max(shares))


def _read() -> dict[str, tuple[float, float]]:
    """Time that was used, and that there was, of each source that there is."""
    there_was = time.monotonic() * cpu.num_cores()
    found = {'process': (time.process_time(), there_was)}
    allowed = os.sched_getaffinity(0)
    try:
        found['cores'] = _of_cores(_STATISTICS.read_text(), allowed)
        # The group of a process without a quota may be that of the whole machine.
        if cpu.num_cores() < len(allowed):
            found['group'] = (_of_group(_GROUP.read_text()), there_was)
    except (OSError, ValueError):
        pass
    return found


def _of_cores(text: str, allowed: set[int]) -> tuple[float, float]:
    busy = total = 0
    for line in text.splitlines():
        name, *numbers = line.split() or ['']
        if name.removeprefix('cpu').isdigit() and int(name.removeprefix('cpu')) in allowed:
            times = [int(number) for number in numbers[_COLUMNS]]
            total += sum(times)
            busy += sum(times) - sum(times[_IDLE])
    return busy, total


def _of_group(text: str) -> float:
    values = dict(line.split() for line in text.splitlines())
    return int(values.get('usage_usec', 0)) / 1e6
