"""The cluster of processes that `srun` or `mpirun` has started, described by their variables.

A single process, or a script of a batch job outside `srun`, is no cluster. Imports no TensorFlow.
"""

import re
import zlib
from collections.abc import Mapping
from typing import NamedTuple

from object_detection.errors import ConfigError

# Default ports of this package: below those that Linux assigns to clients.
_FIRST_PORT, _NUM_PORTS = 20_000, 12_000
# Rank, size, local rank and local size, for each kind of MPI: Open MPI, Hydra
# (MPICH, Intel MPI), MVAPICH.
_MPI = (
    (
        'OMPI_COMM_WORLD_RANK',
        'OMPI_COMM_WORLD_SIZE',
        'OMPI_COMM_WORLD_LOCAL_RANK',
        'OMPI_COMM_WORLD_LOCAL_SIZE',
    ),
    ('PMI_RANK', 'PMI_SIZE', 'MPI_LOCALRANKID', 'MPI_LOCALNRANKS'),
    (
        'MV2_COMM_WORLD_RANK',
        'MV2_COMM_WORLD_SIZE',
        'MV2_COMM_WORLD_LOCAL_RANK',
        'MV2_COMM_WORLD_LOCAL_SIZE',
    ),
)
# What distinguishes two jobs of MPI on the same machines.
_MPI_JOBS = ('PMIX_NAMESPACE', 'OMPI_MCA_ess_base_jobid')


class Job(NamedTuple):
    """The fields of `cluster.Cluster`."""

    addresses: tuple[str, ...]
    index: int
    source: str


def read(
    environment: Mapping[str, str], *, hosts: str | None = None, port: int | None = None
) -> Job | None:
    """Reads the variables.

    Args:
      environment: variables and their values.
      hosts: the machines, separated by commas, for `mpirun`, which does not provide them.
      port: port of the first process of each machine, followed by those of its other processes;
        None derives it from the number of the job.

    Returns:
      None if this process is alone.

    Raises:
      ConfigError: naming the variable or flag that does not fit.
    """
    if port is not None and not 1 <= port <= 65_535:
        raise ConfigError(f'--worker_port: expected 1 to 65535. Received: {port}.')
    mpi = next((names for names in _MPI if names[0] in environment and names[1] in environment), ())
    # srun also sets the variables of an MPI for its tasks, and knows the machines besides. Where
    # mpirun was started within a job of SLURM, the variables of srun describe its daemons.
    if _is_slurm_step(environment) and not (
        mpi and _numbers(environment, mpi[:2]) != _slurm_rank(environment)
    ):
        return _of_slurm(environment, hosts, port)
    if mpi:
        return _of_mpi(environment, mpi, hosts, port)
    if hosts is not None or port is not None:
        raise ConfigError(
            '--worker_hosts, --worker_port: expected a program started by srun or mpirun. '
            'Received: an environment without their variables.'
        )
    return None


def _is_slurm_step(environment: Mapping[str, str]) -> bool:
    """Whether srun started this process: a batch script only has variables of the whole job."""
    return 'SLURM_STEP_ID' in environment or 'SLURM_STEPID' in environment


def _slurm_rank(environment: Mapping[str, str]) -> list[int]:
    size = 'SLURM_STEP_NUM_TASKS' if 'SLURM_STEP_NUM_TASKS' in environment else 'SLURM_NTASKS'
    return _numbers(environment, ('SLURM_PROCID', size))


def _of_slurm(environment: Mapping[str, str], hosts: str | None, port: int | None) -> Job | None:
    rank, size = _slurm_rank(environment)
    if size == 1:
        return None
    if hosts is not None:
        raise ConfigError(
            f'--worker_hosts: expected none with srun, which tells them. Received: {hosts!r}.'
        )
    nodes = _first(environment, 'SLURM_STEP_NODELIST', 'SLURM_JOB_NODELIST', 'SLURM_NODELIST')
    names = expand_hosts(environment[nodes], nodes)
    tasks = _first(environment, 'SLURM_STEP_TASKS_PER_NODE', 'SLURM_TASKS_PER_NODE')
    counts = expand_counts(environment[tasks], tasks)
    if len(counts) != len(names) or sum(counts) != size:
        raise ConfigError(
            f'{tasks}: expected a number for each of the {len(names)} machines of {nodes}, '
            f'{size} in all. Received: {environment[tasks]!r}.'
        )
    job = f'{environment.get("SLURM_JOB_ID", "")}.{environment.get("SLURM_STEP_ID", "")}'
    addresses = _addresses(names, counts, _port_of(job) if port is None else port)
    _check_order(
        environment, 'SLURM_LOCALID', addresses, rank, 'srun --distribution=block, its default'
    )
    return Job(addresses, rank, f'srun ({nodes})')


def _of_mpi(
    environment: Mapping[str, str], names: tuple[str, ...], hosts: str | None, port: int | None
) -> Job | None:
    (rank, size), local = _numbers(environment, names[:2]), names[3]
    if size == 1:
        return None
    if not 0 <= rank < size:
        raise ConfigError(f'{names[0]}: expected 0 to {size - 1}. Received: {rank}.')
    listed = [name.strip() for name in (hosts or '').split(',') if name.strip()]
    if not listed:
        local_size = _numbers(environment, (local,))[0] if local in environment else 0
        if local_size != size:
            raise ConfigError(
                f'--worker_hosts: expected the machines of the {size} processes that mpirun has '
                'started, in the order of their ranks, e.g. host0,host1, as MPI does not tell '
                f'them ({local}: {environment.get(local, "not set")}). Received: none.'
            )
        listed = ['127.0.0.1']
    if size % len(listed):
        raise ConfigError(
            f'--worker_hosts: expected a number of machines that divides the {size} processes '
            f'evenly ({names[1]}). Received: {len(listed)} ({hosts}).'
        )
    job = next((environment[name] for name in _MPI_JOBS if name in environment), 'mpi')
    counts = [size // len(listed)] * len(listed)
    addresses = _addresses(listed, counts, _port_of(job) if port is None else port)
    _check_order(environment, names[2], addresses, rank, 'mpirun --map-by slot, its default')
    return Job(addresses, rank, f'mpirun ({names[1]})')


def _check_order(
    environment: Mapping[str, str],
    variable: str,
    addresses: tuple[str, ...],
    rank: int,
    expected: str,
) -> None:
    """Checks that consecutive ranks share a machine, as the addresses assume."""
    if variable not in environment:
        return
    host = addresses[rank].rpartition(':')[0]
    own = sum(address.rpartition(':')[0] == host for address in addresses[:rank])
    if _numbers(environment, (variable,)) != [own]:
        raise ConfigError(
            f'{variable}: expected {own} of the process of rank {rank}, as ranks are counted '
            f'machine by machine ({expected}). Received: {environment[variable]}.'
        )


def _addresses(hosts: list[str], counts: list[int], port: int) -> tuple[str, ...]:
    return tuple(
        f'{host}:{port + index}'
        for host, count in zip(hosts, counts, strict=True)
        for index in range(count)
    )


def _port_of(job: str) -> int:
    """Returns a port that all processes of a job share, most likely another one for another job."""
    return _FIRST_PORT + zlib.crc32(job.encode()) % _NUM_PORTS


def _numbers(environment: Mapping[str, str], names: tuple[str, ...]) -> list[int]:
    numbers = []
    for name in names:
        text = environment.get(name, '')
        if not text.isdigit():
            raise ConfigError(f'{name}: expected a number. Received: {text!r}.')
        numbers.append(int(text))
    return numbers


def _first(environment: Mapping[str, str], *names: str) -> str:
    for name in names:
        if environment.get(name):
            return name
    raise ConfigError(f'{names[0]}: expected what srun sets. Received: nothing.')


def expand_hosts(text: str, where: str) -> list[str]:
    """Expands a list of machines, e.g. 'gpu[1-2,07],login' to gpu1, gpu2, gpu07, login.

    Args:
      text: the list; numbers keep their leading zeros, and several brackets are combined.
      where: name of the variable, for errors.

    Raises:
      ConfigError: if it is no such list.
    """
    if not re.fullmatch(r'(?:[^\[\]]|\[[\d,-]+\])+', text):
        raise ConfigError(f'{where}: expected machines such as node[1-3,5]. Received: {text!r}.')
    names: list[str] = []
    # Commas within brackets separate numbers.
    for part in re.split(r',(?![^\[]*\])', text.replace(' ', '')):
        names += _expand_ranges(part, where)
    return names


def expand_counts(text: str, where: str) -> list[int]:
    """Expands numbers of tasks, e.g. '2(x3),1' to 2, 2, 2, 1.

    Raises:
      ConfigError: naming `where`, if it is no such list.
    """
    numbers: list[int] = []
    for part in text.split(','):
        match = re.fullmatch(r'(\d+)(?:\(x(\d+)\))?', part.strip())
        if not match:
            raise ConfigError(f'{where}: expected numbers such as 2(x3),1. Received: {text!r}.')
        numbers += [int(match[1])] * int(match[2] or 1)
    return numbers


def _expand_ranges(name: str, where: str) -> list[str]:
    prefix, bracket, rest = name.partition('[')
    if not bracket:
        return [name] if name else []
    inside, _, tail = rest.partition(']')
    numbers: list[str] = []
    for part in inside.split(','):
        match = re.fullmatch(r'(\d+)(?:-(\d+))?', part)
        if not match or int(match[2] or match[1]) < int(match[1]):
            raise ConfigError(f'{where}: expected ranges such as 1-3. Received: {part!r}.')
        last = int(match[2] or match[1])
        numbers += [str(n).zfill(len(match[1])) for n in range(int(match[1]), last + 1)]
    return [
        f'{prefix}{number}{end}'
        for number in numbers
        for end in _expand_ranges(tail, where) or ['']
    ]
