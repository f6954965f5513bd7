"""The CPU cores that the process may use, and their load.

Imports no TensorFlow, which sizes its thread pools by the cores that the process may use when it is
imported.

Memory that the process and its devices use, and memory that the process may still allocate.
"""

import contextlib
import logging
import os
import pathlib
import re
import time
from collections.abc import Iterator, Sequence

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
    chip, core = _number(folder / 'physical_package_id'), _number(folder / 'core_id')
    return (0, number) if chip is None or core is None else (chip, core)


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
    with contextlib.suppress(OSError, ValueError):
        found['cores'] = _of_cores(_STATISTICS.read_text(), allowed)
        # Without a quota, the cgroup may be the group of the whole machine.
        if num_cores() < len(allowed):
            found['group'] = (_fields(_GROUP, ' ').get('usage_usec', 0) / 1e6, available)
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


_ROOT = pathlib.Path('/')
# Files of cgroup v2 and v1: the limit, the usage, and the statistic of its reclaimable part.
_FILES = (
    ('memory.max', 'memory.current', 'inactive_file'),
    ('memory.limit_in_bytes', 'memory.usage_in_bytes', 'total_inactive_file'),
)


def peak() -> int:
    """Returns the most memory that this process has used, in bytes."""
    import resource  # Absent on Windows, where records can still be read.

    # Linux counts in KiB.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def peaks() -> dict[str, int]:
    """Returns peaks of used memory in bytes.

    'host' is the peak of this process; 'GPU:0' and so on are the peaks of TensorFlow on each device
    that counts them.
    """
    import tensorflow as tf  # The other functions are used without it.

    found = {'host': peak()}
    for device in tf.config.list_logical_devices():
        if device.device_type == 'CPU':
            continue
        name = ':'.join(device.name.split(':')[-2:])
        try:
            found[name] = tf.config.experimental.get_memory_info(device.name)['peak']
        except (ValueError, tf.errors.OpError):
            # TPUs, and devices of other vendors, may not report it.
            continue
    return found


def available(root: pathlib.Path = _ROOT) -> int:
    """Returns the bytes that the process may still allocate without swapping or being killed.

    Args:
      root: folder that contains proc and sys.
    """
    free = _fields(root / 'proc/meminfo', ':').get('MemAvailable', 0) * 1024
    return max(0, min([free, *(limit - used for limit, used in _limits(root))]))


def total(root: pathlib.Path = _ROOT) -> int:
    """Returns the memory of the machine, or the lowest limit of the process's cgroups, in bytes."""
    size = _fields(root / 'proc/meminfo', ':').get('MemTotal', 0) * 1024
    return min([size, *(limit for limit, _ in _limits(root))])


def _limits(root: pathlib.Path) -> Iterator[tuple[int, int]]:
    """Yields the limit and the usage without reclaimable memory of each cgroup that has a limit."""
    for folder in _groups(root):
        for limit_file, usage_file, reclaimable in _FILES:
            limit, usage = _number(folder / limit_file), _number(folder / usage_file)
            if limit is not None and usage is not None:
                cached = _fields(folder / 'memory.stat', ' ').get(reclaimable, 0)
                yield limit, usage - cached


def _groups(root: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields the folders of the process's memory cgroups and of their ancestors."""
    try:
        lines = (root / 'proc/self/cgroup').read_text().splitlines()
    except OSError:
        return
    mounted = root / 'sys/fs/cgroup'
    for line in lines:
        _, controllers, path = line.split(':', 2)
        if controllers and 'memory' not in controllers.split(','):
            continue
        top = mounted / 'memory' if controllers else mounted
        # In a container, the path may be that of the host; then the container's own group
        # is `top`.
        folder = top / path.strip('/')
        while folder != top.parent and folder != mounted.parent:
            yield folder
            folder = folder.parent


def _number(path: pathlib.Path) -> int | None:
    """Returns the number in a file; None if the file is absent or contains 'max'."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _fields(path: pathlib.Path, separator: str) -> dict[str, int]:
    """Reads lines such as 'MemTotal:  123 kB' or 'inactive_file 123'."""
    found = {}
    with contextlib.suppress(OSError):
        for line in path.read_text().splitlines():
            name, _, value = line.partition(separator)
            number = value.split()[:1]
            if number and number[0].isdigit():
                found[name] = int(number[0])
    return found
