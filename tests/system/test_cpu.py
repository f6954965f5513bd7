"""Which CPU cores a process runs on."""

import os

import pytest

from object_detection.errors import ConfigError
from object_detection.system import cpu
from object_detection.training.distribution.cluster import Cluster


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


def _cluster(index):
    return Cluster(('a:1', 'b:1', 'a:2'), index)


@pytest.mark.parametrize(
    ('text', 'index', 'cores'),
    [('0-2,7', 0, {0, 1, 2, 7}), ('auto', 0, {0, 4, 1, 5}), ('auto', 2, {2, 6, 3, 7})],
)
def test_all_threads_are_bound(machine, text, index, cores):
    cpu.set_affinity(text, _cluster(index))
    assert machine.keys() >= {os.getpid()}
    assert machine.keys() == set(map(int, os.listdir('/proc/self/task')))
    assert all(set(chosen) == cores for chosen in machine.values())


def test_a_worker_alone_on_its_machine_has_it_whole(machine):
    cpu.set_affinity('auto', _cluster(1))
    assert set(machine[os.getpid()]) == set(range(8))


def test_nothing_is_bound_without_the_flag(machine):
    cpu.set_affinity(None)
    assert not machine


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        ('', "--cpu_affinity: expected 'auto', or some of .*, 0-7. Received: ''"),
        ('0-x', "--cpu_affinity .*expected CPU cores such as '0-3,8'.*Received: '0-x'"),
        ('6-9', "--cpu_affinity: .* that this process may use, 0-7. Received: '6-9'"),
        ('6-99', '--cpu_affinity .*expected CPU cores of 0 to 15'),
    ],
)
def test_what_is_no_list_of_cores_is_told(machine, text, message):
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


def test_lists_in_words():
    assert cpu.describe([0, 1, 2, 5, 8, 9]) == '0-2,5,8-9'
