"""Which CPU cores the process runs on. Imports no TensorFlow: its pools of threads are made for the
cores that the process may use when it starts."""

import logging
import os
import pathlib
from collections.abc import Sequence

from object_detection.errors import ConfigError
from object_detection.system import cpu_cores
from object_detection.training.distribution.cluster import Cluster

_logger = logging.getLogger(__name__)

_FLAG = '--cpu_affinity'
_TOPOLOGY = pathlib.Path('/sys/devices/system/cpu')
_QUOTA = pathlib.Path('/sys/fs/cgroup/cpu.max')
_AUTO = 'auto'


def num_cores() -> float:
    """How many cores the process may use at a time, by its affinity and the quota of its group."""
    cores = float(len(os.sched_getaffinity(0)))
    try:
        quota, period = _QUOTA.read_text().split()
        return min(cores, int(quota) / int(period))
    except (OSError, ValueError):
        # No such group, or 'max'.
        return cores


def set_affinity(text: str | None, cluster: Cluster | None = None) -> None:
    """Binds the process, all its threads and those that they start, to CPU cores.

    Args:
      text: numbers as in '0-7,16-23'; 'auto' for this worker's share of the cores that the process
        may use; None changes nothing.
      cluster: whose workers of one machine divide its cores between them; None is one of this
        process alone.

    Raises:
      ConfigError: if `text` is neither, or names what the process may not use.
    """
    if text is None:
        return
    allowed = os.sched_getaffinity(0)
    cluster = cluster or Cluster()
    if text == _AUTO:
        cores = share(allowed, cluster.local_index, cluster.local_size)
    else:
        cores = _parse(text, allowed)
    for thread in os.listdir('/proc/self/task'):
        try:
            os.sched_setaffinity(int(thread), cores)
        except ProcessLookupError:
            # It has ended meanwhile.
            continue
    _logger.info('%s: running on the CPU cores %s', _FLAG, describe(sorted(cores)))


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
        cores = cpu_cores.parse(text)
    except ValueError as error:
        raise ConfigError(f'{_FLAG} (numbers, or {_AUTO}): {error}') from error
    if not cores or not allowed.issuperset(cores):
        raise ConfigError(
            f"{_FLAG}: expected 'auto', or some of the CPU cores that this process may use, "
            f'{describe(sorted(allowed))}. Received: {text!r}.'
        )
    return cores


def describe(cores: Sequence[int]) -> str:
    """Writes ascending numbers as [0, 1, 2, 5] -> '0-2,5'."""
    parts: list[list[int]] = []
    for core in cores:
        if parts and core == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], core]
        else:
            parts.append([core])
    return ','.join('-'.join(map(str, part)) for part in parts)
