"""Which CPU cores the process may use, and how busy they are.

Imports no TensorFlow: it makes its pools of threads for the cores that the process may use when it
is imported.
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
    """How many cores the process may use at a time, by its affinity and the quota of its group."""
    cores = float(len(os.sched_getaffinity(0)))
    try:
        quota, period = _QUOTA.read_text().split()
        return min(cores, int(quota) / int(period))
    except (OSError, ValueError):
        # No such group, or 'max'.
        return cores


def set_affinity(text: str | None, index: int = 0, workers: int = 1) -> None:
    """Binds the process, all its threads and those that they start, to CPU cores.

    Args:
      text: numbers as in '0-7,16-23'; 'auto' for this worker's share of the cores that the process
        may use; None changes nothing.
      index: of this worker among those of its machine, from 0.
      workers: how many the machine has; they divide its cores between them.

    Raises:
      ConfigError: if `text` is neither, or names what the process may not use.
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
            # It has ended meanwhile.
            continue
    _logger.info('%s: running on the CPU cores %s', _FLAG, describe(sorted(cores)))


def parse_cores(text: str) -> tuple[int, ...]:
    """Returns the cores that a text such as '0-3,8' means, in order; () for ''.

    Raises:
      UserError: if it is no list of cores of this machine.
    """
    cores: set[int] = set()
    for part in text.split(',') if text.strip() else ():
        match = _RANGE.fullmatch(part.strip())
        if not match:
            raise UserError(f"expected CPU cores such as '0-3,8'. Received: {text!r}.")
        first = int(match[1])
        last = int(match[2] or first)
        # Not those that this process is bound to: another one may be bound to others.
        count = os.sysconf('SC_NPROCESSORS_CONF')
        if not first <= last < count:
            raise UserError(f'expected CPU cores of 0 to {count - 1}. Received: {text!r}.')
        cores |= set(range(first, last + 1))
    return tuple(sorted(cores))


def share(allowed: set[int], index: int, workers: int) -> list[int]:
    """Returns the cores of one of `workers`: neighbours, those of one chip and core together.

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
    """Writes ascending numbers as [0, 1, 2, 5] -> '0-2,5'."""
    parts: list[list[int]] = []
    for core in cores:
        if parts and core == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], core]
        else:
            parts.append([core])
    return ','.join('-'.join(map(str, part)) for part in parts)


class CpuUse:
    """Measures the share of the time of the cores that was in use since the last `take`."""

    def __init__(self):
        self._last = _read()

    def take(self) -> float:
        """Returns the share, 0 to 1.

        The scarcest resource counts: the cores, which other processes may use too, or the time
        that the quota of the process's group allows.
        """
        last, self._last = self._last, _read()
        shares = [0.0]
        for name, (used, available) in self._last.items():
            if name in last and available > last[name][1]:
                shares.append((used - last[name][0]) / (available - last[name][1]))
        return min(1.0, max(shares))


def _chip_and_core(number: int) -> tuple[int, int]:
    """Two numbers of the same core are threads of it, and share what it can do."""
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
    """Returns the seconds, or ticks, used and available of each resource that can be read."""
    available = time.monotonic() * num_cores()
    found = {'process': (time.process_time(), available)}
    allowed = os.sched_getaffinity(0)
    try:
        found['cores'] = _of_cores(_STATISTICS.read_text(), allowed)
        # The group of a process without a quota may be that of the whole machine.
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
