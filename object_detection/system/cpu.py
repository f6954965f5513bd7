"""The CPU cores that the process may use, and their load.

Imports no TensorFlow, which sizes its thread pools by the cores that the process may use when it is
imported.
"""

import logging
import os
import pathlib
import re
import time
from collections.abc import Sequence

from object_detection.errors import ConfigError, UserError

_logger = logging.getLogger(__name__)

_FLAG = '--cpu_affinity'
_TOPOLOGY = pathlib.Path('/sys/devices/system/cpu')
_QUOTA = pathlib.Path('/sys/fs/cgroup/cpu.max')
_AUTO = 'auto'
_RANGE = re.compile(r'(\d+)(?:-(\d+))?')
_STATISTICS = pathlib.Path('/proc/stat')
# Columns of a core in it: user nice system idle iowait irq softirq steal.
_IDLE = slice(3, 5)
_COLUMNS = slice(0, 8)
_GROUP = pathlib.Path('/sys/fs/cgroup/cpu.stat')


def num_cores() -> float:
    """Returns the number of cores that the process may use, by affinity and cgroup quota."""
    cores = float(len(os.sched_getaffinity(0)))
    try:
        quota, period = _QUOTA.read_text().split()
        return min(cores, int(quota) / int(period))
    except (OSError, ValueError):
        # There is no such file, or the quota is 'max'.
        return cores


def set_affinity(text: str | None, index: int = 0, workers: int = 1) -> None:
    """Binds the process and all its threads, present and future, to CPU cores.

    Args:
      text: core numbers as in '0-7,16-23'; 'auto' for this worker's share of the cores that the
        process may use; None changes nothing.
      index: index of this worker among those of its machine, from 0.
      workers: number of workers of this machine, which divide its cores between them.

    Raises:
      ConfigError: if `text` is neither, or names cores that the process may not use.
    """
    if text is None:
        return
    allowed = os.sched_getaffinity(0)
    if text == _AUTO:
        cores = share(allowed, index, workers)
    else:
        cores = _parse(text, allowed)
    for thread in os.listdir('/proc/self/task'):
        try:
            os.sched_setaffinity(int(thread), cores)
        except ProcessLookupError:
            # The thread has ended meanwhile.
            continue
    _logger.info('%s: running on the CPU cores %s', _FLAG, describe(sorted(cores)))


def parse_cores(text: str) -> tuple[int, ...]:
    """Returns the sorted cores of a text such as '0-3,8'; () for ''.

    Raises:
      UserError: if it is not a list of cores of this machine.
    """
    cores: set[int] = set()
    for part in text.split(',') if text.strip() else ():
        match = _RANGE.fullmatch(part.strip())
        if not match:
            raise UserError(f"expected CPU cores such as '0-3,8'. Received: {text!r}.")
        first = int(match[1])
        last = int(match[2] or first)
        # All cores of the machine: another process may be bound to other cores than this
        # one.
        count = os.sysconf('SC_NPROCESSORS_CONF')
        if not first <= last < count:
            raise UserError(f'expected CPU cores of 0 to {count - 1}. Received: {text!r}.')
        cores |= set(range(first, last + 1))
    return tuple(sorted(cores))


def share(allowed: set[int], index: int, workers: int) -> list[int]:
    """Returns the share of worker `index`: neighbouring cores, sorted by chip and physical core.

    Raises:
      ConfigError: if there are fewer cores than workers.
    """
    if len(allowed) < workers:
        raise ConfigError(
            f'{_FLAG}: expected at least one CPU core for each of the {workers} workers of this '
            f'machine. Received: auto, with the cores {describe(sorted(allowed))}.'
        )
    ordered = sorted(allowed, key=lambda core: (*_chip_and_core(core), core))
    return ordered[len(ordered) * index // workers : len(ordered) * (index + 1) // workers]


def describe(cores: Sequence[int]) -> str:
    """Formats ascending numbers as ranges: [0, 1, 2, 5] -> '0-2,5'."""
    parts: list[list[int]] = []
    for core in cores:
        if parts and core == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], core]
        else:
            parts.append([core])
    return ','.join('-'.join(map(str, part)) for part in parts)


class CpuUse:
    """Measures the share of the cores' time that was in use since the last `take`."""

    def __init__(self):
        self._last = _read()

    def take(self) -> float:
        """Returns the share, 0 to 1.

        It is the larger of two shares: the use of the cores by all processes, and the use of the
        time that the quota of the process's cgroup allows.
        """
        last, self._last = self._last, _read()
        shares = [0.0]
        for name, (used, available) in self._last.items():
            if name in last and available > last[name][1]:
                shares.append((used - last[name][0]) / (available - last[name][1]))
        return min(1.0, max(shares))


def _chip_and_core(number: int) -> tuple[int, int]:
    """Returns the chip and the physical core; its hardware threads have the same two numbers."""
    folder = _TOPOLOGY / f'cpu{number}' / 'topology'
    try:
        return tuple(
            int((folder / name).read_text()) for name in ('physical_package_id', 'core_id')
        )
    except (OSError, ValueError):
        return 0, number


def _parse(text: str, allowed: set[int]) -> tuple[int, ...]:
    try:
        cores = parse_cores(text)
    except ValueError as error:
        raise ConfigError(f'{_FLAG} (numbers, or {_AUTO}): {error}') from error
    if not cores or not allowed.issuperset(cores):
        raise ConfigError(
            f"{_FLAG}: expected 'auto', or some of the CPU cores that this process may use, "
            f'{describe(sorted(allowed))}. Received: {text!r}.'
        )
    return cores


def _read() -> dict[str, tuple[float, float]]:
    """Returns (used, available) of each resource that can be read, in seconds or ticks."""
    available = time.monotonic() * num_cores()
    found = {'process': (time.process_time(), available)}
    allowed = os.sched_getaffinity(0)
    try:
        found['cores'] = _of_cores(_STATISTICS.read_text(), allowed)
        # Without a quota, the cgroup may be the group of the whole machine.
        if num_cores() < len(allowed):
            found['group'] = (_of_group(_GROUP.read_text()), available)
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
