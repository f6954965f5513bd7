"""Models are built and traced without values."""

import random

import pytest

from object_detection.builders import model_builder
from object_detection.errors import ConfigError, UserError
from object_detection.meta_architectures import tracing
from tests import tiny_models
from tests.meta_architectures.center_net.test_center_net import parse
from tests.meta_architectures.faster_rcnn import test_keypoint_stage
from tests.meta_architectures.ssd.configs import tiny

pytestmark = pytest.mark.usefixtures('small_backbone')


def test_stages_are_traced(monkeypatch):
    traced = []
    monkeypatch.setattr(tracing, 'trace', lambda detector, mask_size: traced.append(detector))
    model = tiny('loss { min_num_negative_samples: 3 }')
    state = random.getstate()
    for stages in (False, True, True, False):
        ((path, reason),) = tracing.check(model, 3, stages=stages)
        assert path == 'model.ssd.loss.min_num_negative_samples'
        assert 'expected_loss_weights' in reason
    # What is known is not built once more.
    (detector,) = traced
    variables = detector.named_variables().values()
    assert variables
    assert not any(variable.is_initialized() for variable in variables)
    assert random.getstate() == state


def test_stages_of_a_sound_model():
    assert tracing.check(tiny(), 3, stages=True) == ()


def test_stages_of_a_keypoint_head():
    model = tiny_models.tiny_pipeline(test_keypoint_stage.HEAD, test_keypoint_stage.NO_MASKS).model
    assert 'masks_from_crops' in str(tracing.check(model, 3, stages=True))


def test_errors_have_the_path_of_their_message():
    model = tiny('matcher { argmax_matcher { unmatched_threshold: 0.9 } }')
    with pytest.raises(UserError, match=r'^model\.ssd\.matcher: '):
        tracing.check(model, 3)


@pytest.mark.parametrize(
    ('model', 'places'),
    [
        (
            tiny(
                """
                image_resizer { keep_aspect_ratio_resizer { min_dimension: 9 max_dimension: 5 } }
                feature_extractor { fpn {} }
                matcher { argmax_matcher { unmatched_threshold: 0.9 } }
                loss { hard_example_miner {} }
                post_processing { logit_scale: 0 }
                """
            ),
            [
                'image_resizer: ',
                "feature_extractor 'ssd_mobilenet_v2_keras': fpn: ",
                'loss.hard_example_miner: ',
                'matcher: ',
                'post_processing.logit_scale: ',
            ],
        ),
        (
            parse(
                """
                image_resizer { keep_aspect_ratio_resizer { min_dimension: 9 max_dimension: 5 } }
                feature_extractor { channel_means: [1, 2, 3, 4] }
                object_detection_task { localization_loss { weighted_giou {} } }
                temporal_offset_task { localization_loss { weighted_iou {} } }
                """
            ),
            [
                'image_resizer: ',
                'feature_extractor.channel_means: ',
                'object_detection_task.localization_loss.weighted_giou ',
                'temporal_offset_task.localization_loss.weighted_iou ',
            ],
        ),
    ],
    ids=['ssd', 'center_net'],
)
def test_errors_of_parts_are_raised_together(model, places):
    with pytest.raises(ConfigError) as raised:
        tracing.check(model, 3)
    family = model.WhichOneof('model')
    found = raised.value.problems
    assert len(found) == len(places)
    for problem, place in zip(found, places, strict=True):
        assert problem.startswith(f'model.{family}.{place}')
    # Without a view, the sentences name the messages.
    with pytest.raises(ConfigError) as raised:
        model_builder.build(model)
    assert len(raised.value.problems) == len(places)


def test_errors_of_hyperparams_have_their_path():
    initializer = "conv_hyperparams { initializer { keras_initializer_by_name: 'gloriot' } }"
    model = tiny(f'box_predictor {{ convolutional_box_predictor {{ {initializer} }} }}')
    place = r'^model\.ssd\.box_predictor\.convolutional_box_predictor\.conv_hyperparams\.init'
    for build in (model_builder.build, lambda model: tracing.check(model, 3)):
        with pytest.raises(UserError, match=place):
            build(model)


def test_errors_of_label_maps_have_their_path():
    tasks = "keypoint_label_map_path: 'none' keypoint_estimation_task { task_name: 'a' }"
    head = "mask_rcnn_box_predictor { keypoint_head { label_map_path: 'none' } }"
    second_stage = f'model {{ faster_rcnn {{ second_stage_box_predictor {{ {head} }} }} }}'
    with pytest.raises(UserError, match=r'^model\.center_net\.keypoint_label_map_path: .* none'):
        tracing.check(parse(tasks), 3)
    model = tiny_models.tiny_pipeline(test_keypoint_stage.HEAD, second_stage).model
    with pytest.raises(UserError, match=r'predictor\.keypoint_head\.label_map_path: .* none'):
        tracing.check(model, 3)


def test_fields_that_nothing_reads():
    found = tracing.check(parse("keypoint_label_map_path: 'labels'"), 3)
    assert found == (('model.center_net.keypoint_label_map_path', None),)
