"""Where input pipelines stand, in checkpoints and when something has changed since."""

import logging

import numpy as np
import pytest
import tensorflow as tf

from object_detection.data.pipeline.record_order import EPOCH
from object_detection.protos.input_reader_pb2 import InputReader
from object_detection.training import resume
from object_detection.training.checkpoints import input_state
from object_detection.training.checkpoints.input_state import InputState, SavedInputState
from tests.weights import tiny_checkpoints


def make(saved=None, fingerprint=7, cursor_size=1, seed=3):
    return InputState(
        tf.distribute.get_strategy(),
        seed=seed,
        fingerprint=fingerprint,
        cursor_size=cursor_size,
        saved=saved,
    )


def context(pipelines=1, index=0):
    return tf.distribute.InputContext(pipelines, index, num_replicas_in_sync=pipelines)


def test_a_checkpoint_holds_them(tmp_path):
    state = make()
    checkpoints = tiny_checkpoints.make_checkpoints(
        tmp_path, tiny_checkpoints.make_variables(), input_state=state
    )
    state.start(context())
    # Of two replicas of one pipeline: the second has the newest batch. One image waits.
    checkpoints.collect(np.array([[5, -1, -1], [9, 4, -1]]))
    prefix = checkpoints.save()
    saved = input_state.read(prefix)
    assert (saved.seed, saved.fingerprint) == (3, 7)
    np.testing.assert_array_equal(saved.cursors, [[[9], [4], [-1]]])
    np.testing.assert_array_equal(make(saved).start(context()), [[9], [4]])
    # Neither part of the model nor of the optimizer; restored by none.
    again = tiny_checkpoints.make_checkpoints(tmp_path, tiny_checkpoints.make_variables(2.0))
    assert again.restore_latest() == prefix
    assert again.save().endswith('ckpt-2')


def test_an_older_checkpoint_holds_none(tmp_path):
    model = tiny_checkpoints.make_variables()
    prefix = tiny_checkpoints.make_checkpoints(tmp_path, model).save()
    assert input_state.read(prefix) is None
    again = tiny_checkpoints.make_checkpoints(tmp_path, model, input_state=make())
    assert again.restore_latest() == prefix


def test_steps_without_a_position_leave_none(tmp_path, caplog):
    """Those of a data service: the next start is to begin in an order of its own."""
    caplog.set_level(logging.INFO)
    model = tiny_checkpoints.make_variables()
    saved = {}
    for step in (0, 5):
        checkpoints = tiny_checkpoints.make_checkpoints(
            tmp_path / str(step), model, step=step, input_state=make()
        )
        checkpoints.collect(np.zeros([1, 0], np.int64))
        prefix = checkpoints.save()
        saved[step] = input_state.read(prefix)
    assert saved[0].seed == 3
    assert saved[5] is None
    state = resume.resume_input(InputReader(), tf.distribute.get_strategy(), prefix, 9)
    assert state.seed == 14
    assert 'the records begin in a fresh order' in caplog.text


def test_the_layout_of_an_earlier_version_is_known():
    saved = SavedInputState(3, 7, np.array([[[9], [4]]]))
    state = InputState(
        tf.distribute.get_strategy(),
        seed=3,
        fingerprint=8,
        former_fingerprint=7,
        cursor_size=1,
        saved=saved,
    )
    np.testing.assert_array_equal(state.start(context()), [[9], [4]])
    assert state.variables['input/layout'].numpy() == 8


@pytest.mark.parametrize(('fingerprint', 'pipelines'), [(8, 2), (7, 3)])
def test_what_has_changed_is_reported_once(caplog, fingerprint, pipelines):
    saved = SavedInputState(3, 7, np.array([[[EPOCH + 30], [EPOCH + 2]], [[EPOCH + 60], [-1]]]))
    state = make(saved, fingerprint=fingerprint)
    with caplog.at_level(logging.INFO):
        cursors = [state.start(context(pipelines, index)) for index in range(pipelines)]
    np.testing.assert_array_equal(cursors, [[[EPOCH + 90 // pipelines]]] * pipelines)
    assert len(caplog.messages) == 1
    assert f'(2 before, {pipelines} now)' in caplog.text
    assert 'epoch 2' in caplog.text


def test_similar_cursors():
    # The pipelines of unlike length have drifted apart.
    cursors = np.array([[5 * EPOCH + 8], [4 * EPOCH + 1000]])
    np.testing.assert_array_equal(input_state.similar_cursor(cursors, 1, 1), [5 * EPOCH + 8])
    # Of mixtures: draws add up, and each set by itself.
    cursors = np.array([[100, 40, EPOCH + 20], [100, 44, EPOCH + 10]])
    np.testing.assert_array_equal(input_state.similar_cursor(cursors, 1, 3), [200, 84, EPOCH + 30])
    np.testing.assert_array_equal(input_state.similar_cursor(cursors, 2, 1), [EPOCH + 15])
    np.testing.assert_array_equal(
        input_state.similar_cursor(np.array([[EPOCH + 6]]), 1, 3), [0, EPOCH + 6, EPOCH + 6]
    )
