"""The cluster of processes that train together, as the environment describes it.

    TF_CONFIG='{"cluster": {"worker": ["host0:12345", "host1:12345"]},
                "task": {"type": "worker", "index": 0}}'

takes precedence over the variables of `srun` and `mpirun`, see `job_variables`. All processes have
the same cluster, and each has its own task. Imports no TensorFlow, so that mistakes are reported at
once.

The cluster of processes that `srun` or `mpirun` has started, described by their variables.

A single process, or a script of a batch job outside `srun`, is no cluster. Imports no TensorFlow.
"""

import json
import os
import re
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

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


def read_job_variables(
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
            f'--worker_hosts: expected none with srun, which gives them. Received: {hosts!r}.'
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


VARIABLE = 'TF_CONFIG'
_CHIEF, _WORKER = 'chief', 'worker'


class Cluster(NamedTuple):
    """The workers of a training.

    Attributes:
      addresses: 'host:port' of every worker, in the order of their replicas; the first one is the
        chief. Empty if the process is alone.
      index: the index of this process.
      source: what described the cluster, e.g. 'TF_CONFIG'; '' without a description.
    """

    addresses: tuple[str, ...] = ()
    index: int = 0
    source: str = ''

    @property
    def num_workers(self) -> int:
        return max(1, len(self.addresses))

    @property
    def local_index(self) -> int:
        """The index of this process among the workers of its machine."""
        return self._neighbours(self.addresses[: self.index])

    @property
    def local_size(self) -> int:
        """The number of workers of its machine."""
        return max(1, self._neighbours(self.addresses))

    def _neighbours(self, addresses: tuple[str, ...]) -> int:
        hosts = [address.rpartition(':')[0] for address in addresses]
        return hosts.count(self.addresses[self.index].rpartition(':')[0]) if hosts else 0


def read(
    num_workers: int = 1,
    environment: Mapping[str, str] = os.environ,
    *,
    hosts: str | None = None,
    port: int | None = None,
) -> Cluster:
    """Reads and checks the cluster.

    Args:
      num_workers: the flag --num_workers; its default, 1, leaves the number to the environment.
      environment: variables and their values.
      hosts, port: the flags --worker_hosts and --worker_port.

    Raises:
      ConfigError: if the variables describe no cluster of workers, or one of another size.
    """
    if num_workers < 1:
        raise ConfigError(f'--num_workers: expected 1 or more. Received: {num_workers}.')
    cluster = _find(environment, hosts, port)
    if num_workers not in (1, cluster.num_workers):
        described = (
            f'{cluster.source} names {cluster.num_workers}'
            if cluster.source
            else 'there are no such variables'
        )
        raise ConfigError(
            '--num_workers: expected as many workers as the environment names (every worker is a '
            f'process of its own, with its own {VARIABLE}, or variables of srun or mpirun); '
            f'{described}. Received: {num_workers}.'
        )
    return cluster


def _find(environment: Mapping[str, str], hosts: str | None, port: int | None) -> Cluster:
    text = environment.get(VARIABLE, '')
    cluster = _parse(text) if text.strip() else Cluster()
    if not cluster.source:
        job = read_job_variables(environment, hosts=hosts, port=port)
        return Cluster(*job) if job else Cluster()
    if hosts is not None or port is not None:
        raise ConfigError(
            f'--worker_hosts, --worker_port: expected no {VARIABLE} together with them, which has '
            f'the addresses. Received: {text}'
        )
    return cluster


def _parse(text: str) -> Cluster:
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f'{VARIABLE}: expected JSON ({error}). Received: {text}') from error
    jobs, task = _member(content, 'cluster'), _member(content, 'task')
    if not jobs and not task:
        return Cluster()
    _check_jobs(jobs)
    kind, index = task.get('type'), task.get('index')
    if kind == 'evaluator':
        raise ConfigError(
            f'{VARIABLE}: task.type: an evaluator does not belong to the cluster; unset {VARIABLE} '
            'and start the evaluation as a program of its own, with --checkpoint_dir. '
            f'Received: {kind!r}.'
        )
    if kind not in jobs:
        raise ConfigError(
            f'{VARIABLE}: task.type: expected one of the jobs of the cluster, '
            f'{sorted(jobs)}. Received: {kind!r}.'
        )
    # A bool is an int too.
    if type(index) is not int or not 0 <= index < len(jobs[kind]):
        raise ConfigError(
            f'{VARIABLE}: task.index: expected a number from 0 to {len(jobs[kind]) - 1}, as '
            f'cluster.{kind} has {len(jobs[kind])} addresses. Received: {index!r}.'
        )
    chiefs, workers = jobs.get(_CHIEF, []), jobs.get(_WORKER, [])
    addresses = (*chiefs, *workers)
    if len(addresses) == 1:
        return Cluster(source=VARIABLE)
    return Cluster(addresses, index + (len(chiefs) if kind == _WORKER else 0), VARIABLE)


def _member(content: Any, name: str) -> dict[str, Any]:
    """Returns one of the two objects that TF_CONFIG holds; {} if it is absent."""
    if not isinstance(content, dict) or not isinstance(content.get(name, {}), dict):
        raise ConfigError(
            f'{VARIABLE}: expected an object with the objects "cluster" and "task". '
            f'Received: {content!r}.'
        )
    return content.get(name, {})


def _check_jobs(jobs: Mapping[str, Any]) -> None:
    if 'ps' in jobs:
        raise ConfigError(
            f'{VARIABLE}: cluster.ps: parameter servers are not supported, as all workers train in '
            f'step with each other; expected "worker" and at most one "chief". '
            f'Received: {jobs["ps"]!r}.'
        )
    # The workers ignore the address of an evaluator.
    unknown = sorted(jobs.keys() - {_CHIEF, _WORKER, 'evaluator'})
    if unknown or not (_CHIEF in jobs or _WORKER in jobs):
        raise ConfigError(
            f'{VARIABLE}: cluster: expected the jobs "worker" and at most one "chief". '
            f'Received: {sorted(jobs)}.'
        )
    for name, addresses in jobs.items():
        if not _is_addresses(addresses):
            raise ConfigError(
                f'{VARIABLE}: cluster.{name}: expected a list of addresses "host:port". '
                f'Received: {addresses!r}.'
            )
    if len(jobs.get(_CHIEF, [])) > 1:
        raise ConfigError(
            f'{VARIABLE}: cluster.chief: expected one address. Received: {jobs[_CHIEF]!r}.'
        )
    everyone = [address for name in jobs for address in jobs[name]]
    twice = sorted({address for address in everyone if everyone.count(address) > 1})
    if twice:
        raise ConfigError(
            f'{VARIABLE}: cluster: expected an address of its own for each task. '
            f'Received more than once: {", ".join(twice)}.'
        )


def _is_addresses(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(each, str) and each.rpartition(':')[2].isdigit() for each in value)
    )
