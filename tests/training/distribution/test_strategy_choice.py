"""What --strategy means beside other flags and the environment; without TensorFlow."""

import json

import pytest

from object_detection.config.job_options import TrainOptions
from object_detection.errors import ConfigError
from object_detection.training.distribution import strategy_choice
from tests.training.distribution.test_job_variables import OPEN_MPI, SLURM


def _tf_config(count):
    workers = [f'a:{port}' for port in range(1, count + 1)]
    content = {'cluster': {'worker': workers}, 'task': {'type': 'worker', 'index': 0}}
    return {'TF_CONFIG': json.dumps(content)}


TWO = _tf_config(2)


def _choose(environment=None, **flags):
    return strategy_choice.choose(TrainOptions(**flags), environment or {})


def test_without_a_flag_the_devices_decide():
    assert _choose() == strategy_choice.Choice()
    assert _choose(_tf_config(1)).kind is None
    options = TrainOptions()
    assert _choose().worker_timeout == options.worker_timeout
    assert _choose().start_timeout == options.start_timeout


@pytest.mark.parametrize('kind', ['one_device', 'mirrored', 'tpu'])
def test_an_explicit_choice_is_used(kind):
    assert _choose(strategy=kind).kind == kind


@pytest.mark.parametrize('environment', [TWO, SLURM, OPEN_MPI])
@pytest.mark.parametrize('strategy', [None, 'multi_worker'])
def test_several_workers(environment, strategy):
    choice = _choose(environment, strategy=strategy, worker_timeout=7)
    assert (choice.kind, choice.worker_timeout) == ('multi_worker', 7)
    assert choice.cluster.num_workers > 1


def test_tasks_of_srun_may_be_trainings_of_their_own():
    assert _choose(SLURM, strategy='one_device').cluster.num_workers == 1
    assert _choose(OPEN_MPI, strategy='mirrored').cluster.num_workers == 1


def test_several_workers_may_be_one():
    assert _choose(_tf_config(1), strategy='multi_worker').cluster.num_workers == 1


def test_a_tpu_has_two_names():
    assert _choose(use_tpu=True).kind == 'tpu'
    assert _choose(tpu_name='local', strategy='tpu').tpu_name == 'local'


@pytest.mark.parametrize(
    ('environment', 'flags', 'said'),
    [
        (
            {},
            {'strategy': 'multi_worker'},
            '^--strategy: expected the variables of several workers',
        ),
        (TWO, {'use_tpu': True}, '^--use_tpu, --tpu_name: expected no TF_CONFIG .* 2 workers'),
        (TWO, {'strategy': 'mirrored'}, '^--strategy mirrored: expected no TF_CONFIG'),
        ({}, {'strategy': 'mirrored', 'use_tpu': True}, 'Received: --strategy mirrored'),
        (TWO, {'strategy': 'one_device', 'num_workers': 2}, '^--num_workers, .* one_device'),
        ({}, {'use_tpu': True, 'num_workers': 2}, 'Received: --use_tpu, --tpu_name'),
        ({}, {'strategy': 'tpu', 'device': 'cpu'}, "^--device: expected none with a TPU.*'cpu'"),
        ({}, {'strategy': 'one_device', 'device': 'gpu:0,1'}, '^--device: expected one device'),
        (TWO, {'num_workers': 3}, '^--num_workers: expected as many .*names 2. Received: 3'),
        ({}, {'worker_port': 5}, '^--worker_hosts, --worker_port: expected a program started'),
    ],
)
def test_contradictions_are_reported(environment, flags, said):
    with pytest.raises(ConfigError, match=said):
        _choose(environment, **flags)
