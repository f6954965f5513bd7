"""What a worker that is alone tells itself; several are in test_replicas.py."""

import os
import pickle

import numpy as np
import pytest
import tensorflow as tf

from object_detection.core.loss_sum import LossSum
from object_detection.errors import CheckpointError, WorkerError
from object_detection.metrics.coco import collecting
from object_detection.training.distribution import collectives
from object_detection.training.evaluation import inference
from object_detection.training.monitoring import run_record

ONE = tf.distribute.get_strategy()


def test_one_worker_agrees_with_itself():
    assert collectives.agree_on_stop(ONE, True)
    assert not collectives.agree_on_stop(ONE, False)
    assert collectives.value_of_chief(ONE, 7) == 7
    assert collectives.check_agreement(ONE, lambda: 7) == 7
    assert collectives.on_chief(ONE, lambda: 'done') == 'done'
    assert collectives.reason_of_chief(ONE, lambda: 'enough') == 'enough'
    assert collectives.reason_of_chief(ONE, lambda: None) is None
    assert collectives.gather_values(ONE, {'a': 1}) == [{'a': 1}]
    np.testing.assert_array_equal(collectives.gather_rows(ONE, np.array([3, 4])), [[3, 4]])


@pytest.fixture
def chief_is_at_7(monkeypatch):
    """Has this process be the second of two workers."""
    monkeypatch.setattr(collectives, '_POLL_SECONDS', 0.01)
    monkeypatch.setattr(
        collectives, 'gather_rows', lambda strategy, own: np.stack([np.array([7]), own])
    )


def test_a_checkpoint_that_is_seen_late_is_waited_for(chief_is_at_7):
    seen = iter([0, 0, 5, 7])
    assert collectives.check_agreement(ONE, lambda: next(seen)) == 7
    assert next(seen, None) is None


def test_a_checkpoint_that_is_never_seen_is_reported(chief_is_at_7):
    with pytest.raises(CheckpointError, match=r'^model_dir: .*worker 0 at step 7, worker 1 at st'):
        collectives.check_agreement(ONE, lambda: 0, timeout=0.05)


def _as_one_of_two(monkeypatch, sent):
    """What `gather_values` makes of the bytes that the other one of two workers sends."""
    message = np.frombuffer(sent.ljust(-(-len(sent) // 8) * 8, b'\0'), np.int64)
    monkeypatch.setattr(collectives.strategies, 'num_workers', lambda strategy: 2)
    monkeypatch.setattr(collectives, '_CHUNK', len(message))
    monkeypatch.setattr(collectives, '_padded', lambda data: message.tobytes())
    monkeypatch.setattr(collectives, 'gather_rows', lambda strategy, own: np.stack([own, own]))
    return collectives.gather_values(ONE, None)[1]


def test_what_evaluations_send_arrives(monkeypatch):
    image = collecting.Image('a', 3, np.int64(4), None, np.ones((2, 2), bool))
    means = inference._LossMeans()
    means.add({'loss': LossSum(1.5, 2.0)})
    found = _as_one_of_two(monkeypatch, pickle.dumps(([(True, [image])], means, b'x', {3}), 5))
    ((is_agnostic, (arrived,)),), arrived_means, *rest = found
    assert is_agnostic
    assert arrived[:4] == image[:4]
    np.testing.assert_array_equal(arrived.detected, image.detected)
    assert arrived_means.result()['loss'] == 0.75
    assert rest == [b'x', {3}]


class _Attack:
    def __init__(self, function, *arguments):
        self._made_of = function, arguments

    def __reduce__(self):
        return self._made_of


@pytest.mark.parametrize(
    'function',
    [os.system, eval, pickle.loads, run_record.describe_environment, run_record.history.append],
)
def test_nothing_that_arrives_is_called(monkeypatch, function):
    with pytest.raises(WorkerError, match=r'^Another worker has sent .*, which is no value'):
        _as_one_of_two(monkeypatch, pickle.dumps(_Attack(function)))
