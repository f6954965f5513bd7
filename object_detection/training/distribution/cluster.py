"""The cluster of processes that train together, as the environment describes it.

    TF_CONFIG='{"cluster": {"worker": ["host0:12345", "host1:12345"]},
                "task": {"type": "worker", "index": 0}}'

takes precedence over the variables of `srun` and `mpirun`, see `job_variables`. All processes have
the same cluster, and each has its own task. Imports no TensorFlow, so that mistakes are reported at
once.
"""

import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from object_detection.errors import ConfigError
from object_detection.training.distribution import job_variables

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
        job = job_variables.read(environment, hosts=hosts, port=port)
        return Cluster(*job) if job else Cluster()
    if hosts is not None or port is not None:
        raise ConfigError(
            f'--worker_hosts, --worker_port: expected no {VARIABLE} beside them, which has the '
            f'addresses. Received: {text}'
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
