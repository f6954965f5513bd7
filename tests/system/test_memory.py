"""What memory is left, by the machine and by control groups."""

import pytest

from object_detection.system import cpu

MEMINFO = 'MemTotal:       16000 kB\nMemFree:         2000 kB\nMemAvailable:    8000 kB\n'


@pytest.fixture
def root(tmp_path):
    (tmp_path / 'proc/self').mkdir(parents=True)
    (tmp_path / 'proc/meminfo').write_text(MEMINFO)
    return tmp_path


def _write(folder, **values):
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in values.items():
        (folder / name.replace('__', '.')).write_text(f'{value}\n')


def test_a_machine_without_groups(root):
    assert cpu.available(root) == 8000 * 1024
    assert cpu.total(root) == 16000 * 1024


def test_a_group_of_version_2_and_the_one_above_it(root):
    (root / 'proc/self/cgroup').write_text('0::/jobs/mine\n')
    top = root / 'sys/fs/cgroup'
    mine = {'memory__max': 6_000_000, 'memory__current': 5_000_000}
    _write(top / 'jobs/mine', memory__stat='anon 1\ninactive_file 1500000', **mine)
    assert cpu.available(root) == 2_500_000
    assert cpu.total(root) == 6_000_000
    _write(top / 'jobs', memory__max=4_000_000, memory__current=3_900_000)
    assert cpu.available(root) == 100_000
    assert cpu.total(root) == 4_000_000
    _write(top / 'jobs/mine', memory__max='max')
    _write(top / 'jobs', memory__max='max')
    assert cpu.available(root) == 8000 * 1024


def test_a_group_of_version_1_that_a_container_sees_as_its_top(root):
    (root / 'proc/self/cgroup').write_text('5:cpu:/docker/ab\n4:memory:/docker/ab\n0::/\n')
    top = root / 'sys/fs/cgroup/memory'
    values = {'memory__limit_in_bytes': 3_000_000, 'memory__usage_in_bytes': 2_000_000}
    _write(top, memory__stat='total_inactive_file 500000', **values)
    assert cpu.available(root) == 1_500_000
    assert cpu.total(root) == 3_000_000


def test_a_group_that_is_over_its_limit_leaves_nothing(root):
    (root / 'proc/self/cgroup').write_text('0::/\n')
    _write(root / 'sys/fs/cgroup', memory__max=1000, memory__current=2000)
    assert cpu.available(root) == 0


def test_this_machine():
    assert 0 < cpu.available() < cpu.total()
