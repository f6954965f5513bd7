"""Rules of `aspect_ratio_buckets`."""

import re

from google.protobuf import text_format

from object_detection.builders.input_readers import rules as input_reader_rules
from object_detection.protos.input_reader_pb2 import InputReader
from object_detection.protos.model_pb2 import DetectionModel
from tests import rows

KEEP = 'keep_aspect_ratio_resizer {}'
PYRAMID = "type: 'faster_rcnn_resnet50_fpn_keras'"


def find(function, buckets, *, resizer=KEEP, extractor=PYRAMID, family='faster_rcnn'):
    sizes = ' '.join(f'aspect_ratio_buckets {{ {bucket} }}' for bucket in buckets)
    model = f'{family} {{ image_resizer {{ {resizer} }} feature_extractor {{ {extractor} }} }}'
    return list(
        function(
            text_format.Parse(sizes, InputReader()),
            'train_input_reader',
            text_format.Parse(model, DetectionModel()),
        )
    )


@rows.parametrize(
    ('buckets', 'resizer', 'expected'),
    [
        (['height: 832 width: 1344', 'height: 1344 width: 832'], KEEP, None),
        ([], 'identity_resizer {}', None),
        (['height: 64 width: 32'] * 2, KEEP, r'\[1\]: expected another size .* 64 x 32 twice'),
        (
            ['height: 64 width: 32'],
            'fixed_shape_resizer {}',
            'keep_aspect_ratio_resizer with them. Received: fixed_shape_resizer',
        ),
    ],
)
def test_problems(buckets, resizer, expected):
    problems = find(input_reader_rules.check_buckets, buckets, resizer=resizer)
    if expected is None:
        assert not problems
    else:
        (problem,) = problems
        assert re.search(expected, problem)
        assert problem.startswith('train_input_reader.aspect_ratio_buckets')


@rows.parametrize(
    ('size', 'extractor', 'padded'),
    [
        ('height: 800 width: 1333', PYRAMID, '800 x 1344'),
        ('height: 832 width: 1344', PYRAMID, None),
        ('height: 800 width: 1344', f'{PYRAMID} pad_to_multiple: 64', '832 x 1344'),
        ('height: 800 width: 1333', "type: 'faster_rcnn_resnet50_keras'", None),
    ],
)
def test_sizes_that_the_feature_extractor_pads_are_reported(size, extractor, padded):
    warnings = find(input_reader_rules.bucket_warnings, [size], extractor=extractor)
    assert len(warnings) == (padded is not None)
    assert padded is None or f'pads to {padded},' in warnings[0]


@rows.parametrize(
    ('extractor', 'padded'),
    [('hourglass_52', '384 x 640'), ('hourglass_10', None), ('mobilenet_v2_fpn', '288 x 544')],
)
def test_sizes_that_a_centernet_pads_are_reported(extractor, padded):
    size = ['height: 264 width: 520']
    extractor = f"type: '{extractor}'"
    warnings = find(
        input_reader_rules.bucket_warnings, size, extractor=extractor, family='center_net'
    )
    assert len(warnings) == (padded is not None)
    assert padded is None or f'pads to {padded},' in warnings[0]
