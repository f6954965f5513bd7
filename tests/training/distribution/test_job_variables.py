"""Clusters as srun and mpirun describe them, in environments that are mappings."""

import pytest

from object_detection.errors import ConfigError
from object_detection.training.distribution import cluster

SLURM = {
    'SLURM_JOB_ID': '77',
    'SLURM_STEP_ID': '0',
    'SLURM_PROCID': '2',
    'SLURM_LOCALID': '0',
    'SLURM_STEP_NUM_TASKS': '3',
    'SLURM_STEP_NODELIST': 'gpu[08,10]',
    'SLURM_STEP_TASKS_PER_NODE': '2,1',
}
OPEN_MPI = {
    'OMPI_COMM_WORLD_RANK': '1',
    'OMPI_COMM_WORLD_SIZE': '4',
    'OMPI_COMM_WORLD_LOCAL_RANK': '1',
    'OMPI_COMM_WORLD_LOCAL_SIZE': '4',
}


@pytest.mark.parametrize(
    ('text', 'names'),
    [
        ('login', ['login']),
        ('a,b', ['a', 'b']),
        ('gpu[1-3,7],cpu1', ['gpu1', 'gpu2', 'gpu3', 'gpu7', 'cpu1']),
        ('n[008-010]-ib', ['n008-ib', 'n009-ib', 'n010-ib']),
        ('r[1-2]n[3,5]', ['r1n3', 'r1n5', 'r2n3', 'r2n5']),
    ],
)
def test_lists_of_machines(text, names):
    assert cluster.expand_hosts(text, 'X') == names


@pytest.mark.parametrize('text', ['n[1-', 'n[2-1]', 'n]1', 'n[a-b]', 'n[]'])
def test_mistakes_in_lists_of_machines(text):
    with pytest.raises(ConfigError, match=r'^X: expected '):
        cluster.expand_hosts(text, 'X')


def test_lists_of_numbers():
    assert cluster.expand_counts('2(x3),1', 'X') == [2, 2, 2, 1]
    with pytest.raises(ConfigError, match=r"^X: expected numbers .*Received: '2\(y3\)'"):
        cluster.expand_counts('2(y3)', 'X')


def test_tasks_of_srun():
    job = cluster.read_job_variables(SLURM)
    hosts, ports = zip(*(address.split(':') for address in job.addresses), strict=True)
    assert hosts == ('gpu08', 'gpu08', 'gpu10')
    assert int(ports[1]) == int(ports[0]) + 1
    assert ports[2] == ports[0]
    assert 20_000 <= int(ports[0]) < 32_000
    assert (job.index, job.source) == (2, 'srun (SLURM_STEP_NODELIST)')
    assert cluster.read_job_variables(SLURM | {'SLURM_JOB_ID': '78'}).addresses != job.addresses
    told = cluster.read_job_variables(SLURM, port=99).addresses
    assert told == ('gpu08:99', 'gpu08:100', 'gpu10:99')
    assert cluster.read(3, SLURM, port=99) == cluster.Cluster(told, 2, job.source)


def test_older_names_of_srun():
    old = {
        'SLURM_STEPID': '0',
        'SLURM_PROCID': '0',
        'SLURM_NTASKS': '2',
        'SLURM_JOB_NODELIST': 'a,b',
        'SLURM_TASKS_PER_NODE': '1(x2)',
    }
    assert cluster.read_job_variables(old, port=9).addresses == ('a:9', 'b:9')


def test_one_task_and_a_batch_script_are_alone():
    assert cluster.read_job_variables({}) is None
    assert (
        cluster.read_job_variables(SLURM | {'SLURM_STEP_NUM_TASKS': '1', 'SLURM_PROCID': '0'})
        is None
    )
    script = {'SLURM_JOB_ID': '7', 'SLURM_PROCID': '0', 'SLURM_NTASKS': '8'}
    assert cluster.read_job_variables(script) is None
    alone = {'OMPI_COMM_WORLD_RANK': '0', 'OMPI_COMM_WORLD_SIZE': '1'}
    assert cluster.read_job_variables(alone) is None


def test_processes_of_mpirun_on_this_machine():
    job = cluster.read_job_variables(OPEN_MPI, port=5)
    assert job.addresses == tuple(f'127.0.0.1:{port}' for port in (5, 6, 7, 8))
    assert (job.index, job.source) == (1, 'mpirun (OMPI_COMM_WORLD_SIZE)')
    hydra = {'PMI_RANK': '1', 'PMI_SIZE': '2', 'MPI_LOCALRANKID': '1', 'MPI_LOCALNRANKS': '2'}
    assert cluster.read_job_variables(hydra, port=5).addresses == ('127.0.0.1:5', '127.0.0.1:6')


def test_processes_of_mpirun_on_several_machines():
    spread = OPEN_MPI | {
        'OMPI_COMM_WORLD_RANK': '3',
        'OMPI_COMM_WORLD_LOCAL_SIZE': '2',
    }
    job = cluster.read_job_variables(spread, hosts='a, b', port=5)
    assert job.addresses == ('a:5', 'a:6', 'b:5', 'b:6')
    with pytest.raises(ConfigError, match=r'^--worker_hosts: expected the machines of the 4 proc'):
        cluster.read_job_variables(spread)
    with pytest.raises(ConfigError, match=r'divides the 4 processes .*Received: 3 \(a,b,c\)'):
        cluster.read_job_variables(spread, hosts='a,b,c')
    turns = spread | {'OMPI_COMM_WORLD_LOCAL_RANK': '0'}
    with pytest.raises(ConfigError, match=r'LOCAL_RANK: expected 1 of .*--map-by slot.*ved: 0'):
        cluster.read_job_variables(turns, hosts='a,b')


def test_mpirun_within_a_job_of_slurm():
    # The daemons of mpirun are the tasks of srun: one a machine.
    both = OPEN_MPI | SLURM | {'SLURM_STEP_NUM_TASKS': '1', 'SLURM_PROCID': '0'}
    assert cluster.read_job_variables(both, port=5).index == 1
    # srun --mpi=pmi2 sets both for the same process.
    same = SLURM | {'PMI_RANK': '2', 'PMI_SIZE': '3'}
    assert cluster.read_job_variables(same).source.startswith('srun')


@pytest.mark.parametrize(
    ('changes', 'flags', 'said'),
    [
        ({'SLURM_PROCID': 'x'}, {}, "^SLURM_PROCID: expected a number. Received: 'x'"),
        ({'SLURM_STEP_TASKS_PER_NODE': '2'}, {}, 'each of the 2 machines of SLURM_STEP_NODELIST'),
        ({'SLURM_LOCALID': '1'}, {}, '^SLURM_LOCALID: expected 0 of the process of rank 2'),
        ({}, {'hosts': 'a'}, '^--worker_hosts: expected none with srun'),
        ({}, {'port': 70000}, '^--worker_port: expected 1 to 65535. Received: 70000'),
    ],
)
def test_mistakes_are_reported(changes, flags, said):
    with pytest.raises(ConfigError, match=said):
        cluster.read_job_variables(SLURM | changes, **flags)


def test_flags_without_such_a_job_are_reported():
    with pytest.raises(ConfigError, match='expected a program started by srun or mpirun'):
        cluster.read(1, {}, hosts='a')
