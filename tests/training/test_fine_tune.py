"""What a config says about the checkpoint that a training starts from."""

import os

import pytest

from object_detection.errors import CheckpointError
from object_detection.protos.train_pb2 import TrainConfig
from object_detection.training import fine_tune
from object_detection.weights import restore
from tests.weights.tiny_checkpoints import save, weights


@pytest.mark.parametrize(
    ('options', 'parts'),
    [
        ({}, {'backbone'}),
        ({'from_detection_checkpoint': True}, {'backbone', 'fpn', 'box_classifier'}),
        ({'fine_tune_checkpoint_type': 'detection', 'load_all_detection_checkpoint_vars': True},
         {'backbone', 'fpn', 'box_classifier', 'rpn', 'box_head'}),
    ],
)  # fmt: skip
def test_what_a_config_requests(tmp_path, options, parts):
    prefix = save(tmp_path, weights(1.0, masks=False))
    config = TrainConfig(fine_tune_checkpoint=prefix, **options)
    report = fine_tune.from_config(weights(), config)
    assert {name.split('/')[0] for name in report.restored} == parts


def test_a_config_without_a_checkpoint_and_one_with_that_of_its_own_run(tmp_path):
    assert fine_tune.from_config(weights(), TrainConfig()) is None
    config = TrainConfig(fine_tune_checkpoint=save(tmp_path, weights()))
    with pytest.raises(CheckpointError, match='outside model_dir'):
        fine_tune.from_config(weights(), config, os.path.join(tmp_path, '.'))


def test_programs_of_users_restore_from_here():
    assert fine_tune.restore is restore.restore
