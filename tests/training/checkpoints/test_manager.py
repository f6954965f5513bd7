"""Names, strictness and order of checkpoints."""

import numpy as np
import pytest
import tensorflow as tf

from object_detection.errors import CheckpointError, DivergenceError
from object_detection.training.checkpoints import manager
from object_detection.weights import checkpoints
from tests.weights.tiny_checkpoints import make_checkpoints, make_variables


def test_keys_are_our_names(tmp_path):
    prefix = make_checkpoints(tmp_path, make_variables(), step=7).save()
    keys = tf.train.load_checkpoint(prefix).get_variable_to_shape_map()
    suffix = '/.ATTRIBUTES/VARIABLE_VALUE'
    assert {key.removesuffix(suffix) for key in keys if key.endswith(suffix)} == {
        'model/backbone/conv1/kernel',
        'model/head/bias',
        'model/head/seed',
        'optimizer/momentum/backbone/conv1/kernel',
        'optimizer/momentum/head/bias',
        'step',
        'save_counter',
    }
    assert {path.name for path in tmp_path.iterdir()} == {
        'checkpoint',
        'ckpt-1.index',
        'ckpt-1.data-00000-of-00001',
    }
    assert checkpoints.read_step(prefix) == 7


def test_restores_everything_and_continues_counting(tmp_path):
    saved = make_checkpoints(tmp_path, make_variables(5.0))
    saved.save()
    saved.save()
    model = make_variables(0.0)
    restored = make_checkpoints(tmp_path, model)
    assert restored.restore_latest().endswith('ckpt-2')
    np.testing.assert_array_equal(model['backbone/conv1/kernel'], np.full([2, 3], 5.0))
    assert restored.save().endswith('ckpt-3')


def test_keeps_the_newest(tmp_path):
    saver = make_checkpoints(tmp_path, make_variables(), max_to_keep=2)
    for _ in range(4):
        saver.save()
    assert sorted(p.name for p in tmp_path.glob('*.index')) == ['ckpt-3.index', 'ckpt-4.index']


def test_nothing_to_restore(tmp_path):
    assert make_checkpoints(tmp_path, make_variables()).restore_latest() is None


def test_another_model_is_reported_by_names_and_shapes(tmp_path):
    make_checkpoints(tmp_path, make_variables()).save()
    other = {'backbone/conv1/kernel': tf.Variable(tf.zeros([9, 3])), 'new': tf.Variable(0.0)}
    with pytest.raises(CheckpointError, match='another model') as error:
        make_checkpoints(tmp_path, other).restore_latest()
    text = str(error.value)
    assert 'model/backbone/conv1/kernel ([2, 3] there, [9, 3] in the model)' in text
    assert 'not in the checkpoint: model/new, optimizer/momentum/new' in text
    assert 'only in the checkpoint: model/head/bias' in text
    with pytest.raises(CheckpointError, match=r'not in the checkpoint: model/new'):
        checkpoints.restore_model(checkpoints.find(str(tmp_path)), other)


def test_another_optimizer_is_reported(tmp_path):
    make_checkpoints(tmp_path, make_variables()).save()
    adam = manager.Checkpoints(
        str(tmp_path), model=make_variables(), optimizer={}, step=tf.Variable(0, dtype=tf.int64)
    )
    with pytest.raises(CheckpointError, match=r'only in the checkpoint: optimizer/momentum'):
        adam.restore_latest()


def test_weights_that_are_not_finite_are_never_saved(tmp_path):
    model = make_variables()
    saver = make_checkpoints(tmp_path, model)
    saver.save()
    model['head/bias'].assign([float('nan')])
    with pytest.raises(DivergenceError, match=r'model/head/bias.*last good checkpoint is .*ckpt-1'):
        saver.save()
    assert saver.latest.endswith('ckpt-1')
