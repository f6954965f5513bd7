"""Several replicas and several processes do what one does with the whole batch."""

import json
import socket

import numpy as np
import pytest

from object_detection.training.monitoring import history
from tests import forks, tolerances
from tests.training.distribution import replica_runs

# Seconds, on a busy machine; alone a process takes 20.
TIME_LIMIT = 300


class Processes:
    """Processes in the background, of which none outlives the block."""

    def __init__(self, folder):
        self._folder = folder
        self._running = []

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for process, _ in self._running:
            process.kill()
            process.join()

    def start(self, function, *arguments, cluster=''):
        log = self._folder / f'log{len(self._running)}'
        process = forks.context().Process(
            target=replica_runs.run, args=(function, arguments, cluster, str(log))
        )
        process.start()
        self._running.append((process, log))

    def wait(self):
        """Waits for all that were started; an error names what one of them wrote."""
        for process, log in self._running:
            process.join(TIME_LIMIT)
            assert process.exitcode == 0, log.read_text()[-3000:]


def _free_ports(count):
    sockets = [socket.create_server(('127.0.0.1', 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _run_workers(processes, output, model_dir, num_steps):
    addresses = [f'127.0.0.1:{port}' for port in _free_ports(2)]
    for index in range(2):
        task = {'type': 'worker', 'index': index}
        cluster = json.dumps({'cluster': {'worker': addresses}, 'task': task})
        processes.start(replica_runs.work, output, model_dir, num_steps, cluster=cluster)
    processes.wait()


@pytest.fixture(scope='module')
def runs(tmp_path_factory):
    """Everything that was written: 'one', 'two', 'first/worker0', 'second/worker0', ..."""
    output = tmp_path_factory.mktemp('replicas')
    for name in ('first', 'second', 'model'):
        (output / name).mkdir()
    model_dir = str(output / 'model')
    # One after the other: each keeps the cores of a small machine busy.
    with Processes(output) as processes:
        processes.start(replica_runs.compare_replicas, str(output))
        processes.wait()
        _run_workers(processes, str(output / 'first'), model_dir, 2)
        _run_workers(processes, str(output / 'second'), model_dir, replica_runs.NUM_STEPS)
    told = (output / 'first' / 'end0').read_text()
    written = {
        str(path.relative_to(output).with_suffix('')): dict(np.load(path))
        for path in output.glob('**/*.npz')
    }
    return written | {'model_dir': output / 'model', 'told to the one that is left': told}


@pytest.fixture(scope='module')
def allowed(runs):
    """How far each array of a training may be off from that of 'one'."""
    repeated = [runs[f'noise{seed}'] for seed in range(replica_runs.NUM_REPEATED)]
    return tolerances.of_rounding(runs['one'], repeated)


def _losses_of_history(model_dir):
    entries = history.read(model_dir / 'train' / history.FILE_NAME)
    assert [entry['step'] for entry in entries] == [1, 2, 3, 4]
    return {
        f'losses/{name}': np.array([entry['losses'][name] for entry in entries])
        for name in entries[0]['losses']
    }


def test_two_replicas_do_what_one_does_with_the_whole_batch(runs, allowed):
    one, two = runs['one'], runs['two']
    assert one['losses/Loss/BoxClassifierLoss/mask_loss'].min() > 0.1
    assert any(name.endswith('/moving_variance') for name in one)
    assert not tolerances.differing(two, one, allowed)


def test_two_processes_do_what_one_does_although_they_were_restarted(runs, allowed):
    losses = _losses_of_history(runs['model_dir'])
    for worker in ('worker0', 'worker1'):
        assert runs[f'first/{worker}']['start'] == 0
        assert runs[f'second/{worker}']['start'] == 2
        trained = losses | runs[f'second/{worker}']
        assert not tolerances.differing(trained, runs['one'], allowed)


def test_the_comparison_sees_a_wrong_rate_and_a_gradient_of_one_replica(runs, allowed):
    """A rate that is 1 % off, and a variable whose gradients are not added up."""
    one = runs['one']
    assert len(tolerances.differing(runs['rate'], one, allowed)) > len(one) / 2
    for index, name in enumerate(replica_runs.FORGOTTEN):
        assert name in tolerances.differing(runs[f'forgotten{index}'], one, allowed)


def test_the_chief_alone_writes(runs):
    names = sorted(path.name for path in runs['model_dir'].glob('c*'))
    assert names == [
        'checkpoint',
        *(f'ckpt-{n}.{end}' for n in (1, 2) for end in ('data-00000-of-00001', 'index')),
    ]
    told = json.loads((runs['model_dir'] / 'train' / 'runs.jsonl').read_text().splitlines()[-1])
    assert (told['replicas'], told['workers'], told['step']) == (2, 2, 2)


def test_workers_agree(runs):
    for index in range(2):
        told = runs[f'first/worker{index}']
        assert str(told['described']) == f'2 replicas, worker {index} of 2'
        assert told['stops'].tolist() == [False, True]
        assert told['seed'] == 2**40
        assert str(told['disagreement']).startswith('CheckpointError: model_dir: expected the same')
        assert 'worker 0 at step 0, worker 1 at step 5' in str(told['disagreement'])
        assert told['reason'] == 'mAP is 0.5'
        assert told['no reason'] == 'None'
        np.testing.assert_array_equal(told['rows'], [[0, 2**40], [1, 2**40 + 1]])
        assert told['sizes'].tolist() == [3, 3 * 2**20]


def test_an_error_on_the_chief_reaches_all_workers(runs):
    assert str(runs['first/worker0']['failure']).startswith('ZeroDivisionError')
    assert str(runs['first/worker1']['failure']) == (
        'WorkerError: Worker 0 has failed; its log says why.'
    )


def test_a_lost_worker_is_reported_in_one_sentence(runs):
    told = runs['told to the one that is left']
    assert told.startswith('WorkerError: Worker 0 lost touch with another one')


def test_statistics_of_replicas_are_averaged(runs):
    statistics = runs['statistics']
    np.testing.assert_array_equal(statistics['differing/moving_mean'], [1.5, 1.5])
    np.testing.assert_array_equal(statistics['equal/moving_variance'], np.float32([0.1, 0.1]))
    np.testing.assert_array_equal(statistics['differing/kernel'], [1.0, 2.0])
