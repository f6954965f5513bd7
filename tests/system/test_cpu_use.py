"""How busy the cores are, by files that the system might show."""

import time

import pytest

from object_detection.system import cpu, cpu_use
from object_detection.system.cpu_use import CpuUse

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
    monkeypatch.setattr(cpu_use, '_STATISTICS', statistics)
    monkeypatch.setattr(cpu_use, '_GROUP', group)
    # An idle process.
    monkeypatch.setattr(cpu_use.time, 'process_time', lambda: 0.0)
    monkeypatch.setattr(cpu_use.os, 'sched_getaffinity', lambda pid: {0, 1})
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
    monkeypatch.setattr(cpu_use.time, 'monotonic', lambda: now[0])
    files[0].write_text(_BEFORE)
    files[1].write_text('usage_usec 1000000\nuser_usec 900000\n')
    use = CpuUse()
    now[0] += 10.0
    # 4.5 seconds of the 5 that are allowed.
    files[1].write_text('usage_usec 5500000\nuser_usec 900000\n')
    assert use.take() == pytest.approx(0.9)


def test_without_such_files_the_process_itself_counts(files, monkeypatch):
    own = [0.0]
    monkeypatch.setattr(cpu_use.time, 'process_time', lambda: own[0])
    use = CpuUse()
    own[0] = 1e6
    assert use.take() == 1.0


def test_a_busy_loop_on_this_machine():
    use = CpuUse()
    ends = time.monotonic() + 0.3
    while time.monotonic() < ends:
        pass
    assert 0.0 < use.take() <= 1.0
