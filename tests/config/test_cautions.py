import logging

import pytest

from object_detection.config import unsupported
from object_detection.config.overrides import apply_setting
from object_detection.config.validation import validate
from tests.config.pipelines import sound_pipeline

EXTRACTOR = 'model.faster_rcnn.feature_extractor'
RATE = 'train_config.optimizer.momentum_optimizer.learning_rate'
COSINE = f'{RATE}.cosine_decay_learning_rate'
WITHOUT_PYRAMID = "type: 'faster_rcnn_resnet50_keras' first_stage_features_stride: 16"
GRID = '{grid_anchor_generator {scales: 1 aspect_ratios: 1}}'


@pytest.fixture
def warnings(tmp_path, caplog):
    """Returns what is said of the sound config with some settings."""
    unsupported._warned.clear()

    def validated(*settings: str, for_what=('train', 'eval')) -> list[str]:
        pipeline = sound_pipeline(tmp_path)
        for setting in settings:
            apply_setting(pipeline, setting)
        caplog.clear()
        with caplog.at_level(logging.WARNING, 'object_detection'):
            validate(pipeline, for_what=for_what)
        return caplog.messages

    return validated


def test_steps_after_the_end_of_the_schedule(warnings):
    schedule = f'{RATE}={{cosine_decay_learning_rate {{total_steps: 100 warmup_steps: 10}}}}'
    assert warnings(schedule, 'train_config.num_steps=100') == []
    settings = (schedule, 'train_config.num_steps=130')
    assert warnings(*settings, for_what='eval') == []
    (message,) = warnings(*settings)
    assert message.startswith(f'train_config.num_steps is 130, but {COSINE}.total_steps is 100')
    assert message.endswith('0 for the last 30 steps.')
    assert warnings(*settings) == []


def test_the_stride_of_a_pyramid(warnings):
    (message,) = warnings(f'{EXTRACTOR}.first_stage_features_stride=8')
    assert message.startswith(f'no effect: {EXTRACTOR}.first_stage_features_stride (a feature pyr')
    anchors = f'model.faster_rcnn.first_stage_anchor_generator={GRID}'
    unsupported._warned.clear()
    assert warnings(f'{EXTRACTOR}={{{WITHOUT_PYRAMID}}}', anchors) == []


def test_keypoints_are_decoded_for_nothing(warnings):
    settings = ('train_input_reader.num_keypoints=2', 'eval_input_reader[0].num_keypoints=2')
    (message,) = warnings(*settings)
    assert message == (
        'no effect: train_input_reader.num_keypoints, eval_input_reader[0].num_keypoints '
        '(keypoints are decoded, but not used by Faster R-CNN).'
    )
