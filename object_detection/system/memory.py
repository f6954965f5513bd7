"""Memory that the process and its devices use, and memory that the process may still allocate."""

import pathlib
from collections.abc import Iterator

_ROOT = pathlib.Path('/')
# Files of cgroup v2 and v1: the limit, the usage, and the statistic of its reclaimable part.
_FILES = (
    ('memory.max', 'memory.current', 'inactive_file'),
    ('memory.limit_in_bytes', 'memory.usage_in_bytes', 'total_inactive_file'),
)


def peaks() -> dict[str, int]:
    """Returns peaks of used memory in bytes.

    'host' is the peak of this process; 'GPU:0' and so on are the peaks of TensorFlow on each device
    that counts them.
    """
    import resource  # Absent on Windows, where records can still be read.

    import tensorflow as tf  # The other functions are used without it.

    # Linux counts in KiB.
    found = {'host': resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}
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
    return max(0, min([free, *_left_in_groups(root)]))


def total(root: pathlib.Path = _ROOT) -> int:
    """Returns the memory of the machine, or the lowest limit of the process's cgroups, in bytes."""
    size = _fields(root / 'proc/meminfo', ':').get('MemTotal', 0) * 1024
    return min([size, *(limit for limit, _ in _limits(root))])


def _left_in_groups(root: pathlib.Path) -> Iterator[int]:
    for limit, used in _limits(root):
        yield limit - used


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
    try:
        text = path.read_text()
    except OSError:
        return {}
    for line in text.splitlines():
        name, _, value = line.partition(separator)
        number = value.split()[:1]
        if number and number[0].isdigit():
            found[name] = int(number[0])
    return found
