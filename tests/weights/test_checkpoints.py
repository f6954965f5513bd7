"""Finds checkpoints, and restores models from them."""

import pytest

from object_detection.errors import CheckpointError
from object_detection.weights import checkpoints
from tests.weights.tiny_checkpoints import make_checkpoints, make_variables


def test_a_model_alone_is_restored_without_the_optimizer(tmp_path):
    prefix = make_checkpoints(tmp_path, make_variables(2.0), step=12).save()
    model = make_variables(0.0)
    assert checkpoints.restore_model(prefix, model) == 12
    assert float(model['head/bias'][0]) == 2.0


def test_find(tmp_path):
    with pytest.raises(CheckpointError, match='no checkpoint found'):
        checkpoints.find(str(tmp_path))
    saver = make_checkpoints(tmp_path, make_variables())
    first, second = saver.save(), saver.save()
    assert checkpoints.find(str(tmp_path)) == second
    assert checkpoints.find(first) == first


def test_find_in_an_unpacked_archive(tmp_path):
    (tmp_path / 'pipeline.config').write_text('')
    prefix = make_checkpoints(tmp_path / 'checkpoint', make_variables()).save()
    assert checkpoints.is_archive(str(tmp_path))
    assert checkpoints.find(str(tmp_path)) == prefix
    assert not checkpoints.is_archive(str(tmp_path / 'checkpoint'))
    (tmp_path / 'checkpoint' / 'checkpoint').unlink()
    with pytest.raises(CheckpointError, match=r'no checkpoint found.*checkpoint/ckpt-1 is comple'):
        checkpoints.find(str(tmp_path))


def test_an_unreadable_file_is_reported(tmp_path):
    (tmp_path / 'ckpt-1.index').write_bytes(b'nonsense')
    with pytest.raises(CheckpointError, match='cannot be read as a checkpoint'):
        checkpoints.read_step(str(tmp_path / 'ckpt-1'))
