"""Which CPU cores a process runs on, and how busy they are by files that the system might show."""

import os
import time

import pytest

from object_detection.errors import ConfigError
from object_detection.system import cpu
from object_detection.system.cpu import CpuUse
from tests import rows


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine of two chips with two cores of two threads each; returns the cores that are set."""
    for number in range(8):
        folder = tmp_path / f'cpu{number}' / 'topology'
        folder.mkdir(parents=True)
        (folder / 'physical_package_id').write_text(f'{number % 4 // 2}\n')
        (folder / 'core_id').write_text(f'{number % 2}\n')
    monkeypatch.setattr(cpu, '_TOPOLOGY', tmp_path)
    monkeypatch.setattr(cpu, '_QUOTA', tmp_path / 'cpu.max')
    monkeypatch.setattr(os, 'sched_getaffinity', lambda process: set(range(8)))
    monkeypatch.setattr(os, 'sysconf', lambda name: 16)
    chosen = {}
    monkeypatch.setattr(
        os, 'sched_setaffinity', lambda thread, cores: chosen.update({thread: cores})
    )
    return chosen


@rows.parametrize(
    ('text', 'index', 'cores'),
    [('0-2,7', 0, {0, 1, 2, 7}), ('auto', 0, {0, 4, 1, 5}), ('auto', 1, {2, 6, 3, 7})],
)
def test_all_threads_are_bound(machine, text, index, cores):
    cpu.set_affinity(text, index, 2)
    assert machine.keys() >= {os.getpid()}
    assert machine.keys() == set(map(int, os.listdir('/proc/self/task')))
    assert all(set(chosen) == cores for chosen in machine.values())


def test_a_worker_alone_on_its_machine_has_it_whole(machine):
    cpu.set_affinity('auto')
    assert set(machine[os.getpid()]) == set(range(8))


def test_nothing_is_bound_without_the_flag(machine):
    cpu.set_affinity(None)
    assert not machine


@rows.parametrize(
    ('text', 'message'),
    [
        ('', "--cpu_affinity: expected 'auto', or some of .*, 0-7. Received: ''"),
        ('0-x', "--cpu_affinity .*expected CPU cores such as '0-3,8'.*Received: '0-x'"),
        ('6-9', "--cpu_affinity: .* that this process may use, 0-7. Received: '6-9'"),
        ('6-99', '--cpu_affinity .*expected CPU cores of 0 to 15'),
    ],
)
def test_what_is_no_list_of_cores_is_reported(machine, text, message):
    with pytest.raises(ConfigError, match=message):
        cpu.set_affinity(text)
    assert not machine


def test_too_many_workers_for_the_cores():
    with pytest.raises(ConfigError, match=r'each of the 3 workers .* with the cores 0-1'):
        cpu.share({0, 1}, 2, 3)


def test_shares_cover_all_cores_once(machine):
    shares = [cpu.share(set(range(8)), index, 3) for index in range(3)]
    assert sorted(core for share in shares for core in share) == list(range(8))
    assert {len(share) for share in shares} == {2, 3}


def test_the_quota_of_a_container_counts(machine):
    assert cpu.num_cores() == 8
    cpu._QUOTA.write_text('max 100000\n')
    assert cpu.num_cores() == 8
    cpu._QUOTA.write_text('250000 100000\n')
    assert cpu.num_cores() == 2.5


def test_lists_as_text():
    assert cpu.describe([0, 1, 2, 5, 8, 9]) == '0-2,5,8-9'


@pytest.fixture
def eight_cores(monkeypatch):
    monkeypatch.setattr(os, 'sysconf', lambda name: 8)


@rows.parametrize(
    ('text', 'cores'), [('', ()), ('3', (3,)), ('0-2, 7', (0, 1, 2, 7)), ('5,4-5', (4, 5))]
)
def test_cores(eight_cores, text, cores):
    assert cpu.parse_cores(text) == cores


@rows.parametrize('text', ['a', '1,,2', '-1', '0-', '8', '3-2', '0-8'])
def test_mistakes(eight_cores, text):
    with pytest.raises(ValueError, match='expected CPU cores') as caught:
        cpu.parse_cores(text)
    assert repr(text) in str(caught.value)


# user nice system idle iowait irq softirq steal guest guest_nice
_BEFORE = """cpu  9999 0 0 0 0 0 0 0 0 0
cpu0 100 0 50 800 50 0 0 0 0 0
cpu1 500 0 0 500 0 0 0 0 0 0
cpu12 0 0 0 1000 0 0 0 0 0 0
intr 1 2 3
"""
_AFTER = """cpu  9999 0 0 0 0 0 0 0 0 0
cpu0 150 10 60 820 60 0 0 0 0 0
cpu1 600 0 0 500 0 0 0 0 0 0
cpu12 0 0 0 2000 0 0 0 0 0 0
intr 1 2 3
"""


@pytest.fixture
def files(tmp_path, monkeypatch):
    statistics, group = tmp_path / 'stat', tmp_path / 'cpu.stat'
    monkeypatch.setattr(cpu, '_STATISTICS', statistics)
    monkeypatch.setattr(cpu, '_GROUP', group)
    # An idle process.
    monkeypatch.setattr(cpu.time, 'process_time', lambda: 0.0)
    monkeypatch.setattr(cpu.os, 'sched_getaffinity', lambda pid: {0, 1})
    return statistics, group


def test_other_processes_use_the_cores_that_this_one_may_use(files):
    files[0].write_text(_BEFORE)
    use = CpuUse()
    files[0].write_text(_AFTER)
    # 70 of 100 and 100 of 100; the third core is not this process's.
    assert use.take() == pytest.approx(0.85)
    assert use.take() == 0.0


def test_a_quota_counts_where_there_is_one(files, monkeypatch):
    monkeypatch.setattr(cpu, 'num_cores', lambda: 0.5)
    now = [50.0]
    monkeypatch.setattr(cpu.time, 'monotonic', lambda: now[0])
    files[0].write_text(_BEFORE)
    files[1].write_text('usage_usec 1000000\nuser_usec 900000\n')
    use = CpuUse()
    now[0] += 10.0
    # 4.5 seconds of the 5 that are allowed.
    files[1].write_text('usage_usec 5500000\nuser_usec 900000\n')
    assert use.take() == pytest.approx(0.9)


def test_without_such_files_the_process_itself_counts(files, monkeypatch):
    own = [0.0]
    monkeypatch.setattr(cpu.time, 'process_time', lambda: own[0])
    use = CpuUse()
    own[0] = 1e6
    assert use.take() == 1.0


def test_a_busy_loop_on_this_machine():
    use = CpuUse()
    ends = time.monotonic() + 0.3
    while time.monotonic() < ends:
        pass
    assert 0.0 < use.take() <= 1.0
