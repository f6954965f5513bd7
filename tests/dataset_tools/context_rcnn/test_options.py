import pytest

from object_detection.dataset_tools.context_rcnn import options
from object_detection.dataset_tools.context_rcnn.options import (
    ContextOptions,
    DetectionOptions,
    EmbeddingOptions,
)
from object_detection.errors import UserError
from tests import rows


@rows.parametrize(
    'given',
    [
        ['--reduce_image_size', 'False'],
        ['--reduce_image_size', 'false'],
        ['--reduce_image_size=false'],
        ['--reduce_image_size=0'],
        ['--noreduce_image_size'],
        ['-reduce_image_size=False'],
    ],
)
def test_all_forms_of_a_false_boolean(given):
    joined = options.join_booleans(['--num_shards', '3', *given, '--x'], ContextOptions)
    assert joined == ['--num_shards', '3', '--noreduce_image_size', '--x']


@rows.parametrize(
    'given', [['--sorted_image_ids'], ['--sorted_image_ids', 'True'], ['--sorted_image_ids=1']]
)
def test_all_forms_of_a_true_boolean(given):
    assert options.join_booleans(given, ContextOptions) == ['--sorted_image_ids']


def test_a_boolean_with_another_value_is_named():
    with pytest.raises(UserError, match=r'--sorted_image_ids: expected true or false.*maybe'):
        options.join_booleans(['--sorted_image_ids', 'maybe'], ContextOptions)


_DETECTIONS = {
    'detection_input_tfrecord': 'a',
    'detection_output_tfrecord': 'b',
    'detection_model_dir': 'c',
}


@rows.parametrize(
    ('given', 'match'),
    [
        (DetectionOptions(), '--detection_input_tfrecord: expected a value'),
        (DetectionOptions(**_DETECTIONS, confidence_threshold=90), r'--confidence.* 90'),
        (DetectionOptions(**_DETECTIONS, num_shards=-1), r'--num_shards: .* from 0 .* -1'),
        (DetectionOptions(**_DETECTIONS, workers=0), r'--workers: .* from 1 .* 0'),
        (EmbeddingOptions(), '--embedding_input_tfrecord: expected a value'),
        (
            ContextOptions(input_tfrecord='a', output_tfrecord='b', time_horizon='fortnight'),
            r"--time_horizon: expected one of year, month, week.*'fortnight'",
        ),
        (
            ContextOptions(input_tfrecord='a', output_tfrecord='b', max_clip_length=0),
            '--max_clip_length',
        ),
    ],
)
def test_values_that_cannot_be_used_are_named(given, match):
    with pytest.raises(UserError, match=match):
        options.check(given)
