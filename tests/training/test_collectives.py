"""What a worker that is alone tells itself; several are in test_replicas.py."""

import numpy as np
import pytest
import tensorflow as tf

from object_detection.training import collectives
from object_detection.training.errors import CheckpointError

ONE = tf.distribute.get_strategy()


def test_one_worker_agrees_with_itself():
    assert collectives.agree_on_stop(ONE, True)
    assert not collectives.agree_on_stop(ONE, False)
    assert collectives.chiefs(ONE, 7) == 7
    assert collectives.check_agreement(ONE, lambda: 7) == 7
    assert collectives.on_chief(ONE, lambda: 'done') == 'done'
    assert collectives.chiefs_reason(ONE, lambda: 'enough') == 'enough'
    assert collectives.chiefs_reason(ONE, lambda: None) is None
    assert collectives.gather_values(ONE, {'a': 1}) == [{'a': 1}]
    np.testing.assert_array_equal(collectives.gather_rows(ONE, np.array([3, 4])), [[3, 4]])


@pytest.fixture
def chief_is_at_7(monkeypatch):
    """Has this process be the second of two workers."""
    monkeypatch.setattr(collectives, '_BETWEEN_LOOKS', 0.01)
    monkeypatch.setattr(
        collectives, 'gather_rows', lambda strategy, own: np.stack([np.array([7]), own])
    )


def test_a_checkpoint_that_is_seen_late_is_waited_for(chief_is_at_7):
    seen = iter([0, 0, 5, 7])
    assert collectives.check_agreement(ONE, lambda: next(seen)) == 7
    assert next(seen, None) is None


def test_a_checkpoint_that_is_never_seen_is_told(chief_is_at_7):
    with pytest.raises(CheckpointError, match=r'^model_dir: .*worker 0 at step 7, worker 1 at st'):
        collectives.check_agreement(ONE, lambda: 0, patience=0.05)
