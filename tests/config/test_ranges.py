import logging

import pytest
from google.protobuf import text_format

from object_detection.config import once, ranges
from object_detection.errors import ConfigError
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig


def parse(text: str) -> TrainEvalPipelineConfig:
    return text_format.Parse(text, TrainEvalPipelineConfig())


def test_what_would_not_happen_is_an_error_that_names_the_path():
    pipeline = parse("""
        model { ssd { mask_head_config {} } }
        train_config {
          data_augmentation_options { random_horizontal_flip {} }
          data_augmentation_options { scale_boxes_to_pixel_coordinates {} }
        }""")
    with pytest.raises(ConfigError) as caught:
        ranges.check(pipeline)
    first, second = str(caught.value).splitlines()
    assert first.startswith('model.ssd.mask_head_config is not supported: ')
    path = 'train_config.data_augmentation_options[1].scale_boxes_to_pixel_coordinates'
    assert second.startswith(f'{path} is not')


def test_what_is_not_lost_is_a_warning_given_once(caplog):
    pipeline = parse("""
        train_config { sync_replicas: true replicas_to_aggregate: 8 summarize_gradients: true }""")
    once._warned.clear()
    with caplog.at_level(logging.WARNING, 'object_detection'):
        ranges.check(pipeline)
        ranges.check(pipeline)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    assert 'train_config.sync_replicas, train_config.replicas_to_aggregate' in lines[0]
    assert 'train_config.summarize_gradients' in lines[1]


@pytest.mark.parametrize(
    'text',
    [
        '',
        'train_config { sync_replicas: false }',
        'eval_config { recall_upper_bound: 1.0 use_moving_averages: false }',
        'model { faster_rcnn { inplace_batchnorm_update: false resize_masks: false } }',
    ],
)
def test_values_without_a_request_pass_silently(text):
    findings = ranges.find(parse(text))
    assert findings == ([], {})


def test_only_the_requested_parts_are_checked():
    pipeline = parse(
        'model { ssd { mask_head_config {} } } eval_config { ignore_groundtruth: true }'
    )
    assert len(ranges.find(pipeline).errors) == 2
    (error,) = ranges.find(pipeline, {'eval_config'}).errors
    assert error.startswith('eval_config.ignore_groundtruth')


def test_repeated_values_are_named_by_their_index():
    loss = "equalization_loss { exclude_prefixes: ['a', 'b'] }"
    pipeline = parse(f'model {{ ssd {{ loss {{ {loss} }} }} }}')
    (paths,) = ranges.find(pipeline).warnings.values()
    field = 'model.ssd.loss.equalization_loss.exclude_prefixes'
    assert paths == [f'{field}[0]', f'{field}[1]']
