import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders import image_resizer_builder
from object_detection.errors import UserError
from object_detection.protos import image_resizer_pb2
from tests import rows
from tests.schema import missing_options


def build(text):
    return image_resizer_builder.build(text_format.Parse(text, image_resizer_pb2.ImageResizer()))


def test_every_option_has_a_builder():
    builders = image_resizer_builder.BUILDERS
    assert not missing_options(image_resizer_pb2.ImageResizer, 'image_resizer_oneof', builders)


@rows.parametrize(
    ('text', 'static_shape'),
    [
        ('fixed_shape_resizer { height: 30 width: 40 }', (30, 40, 3)),
        ('fixed_shape_resizer { height: 30 width: 40 convert_to_grayscale: true }', (30, 40, 1)),
        ('keep_aspect_ratio_resizer { }', None),
        ('keep_aspect_ratio_resizer { pad_to_max_dimension: true }', (1024, 1024, 3)),
        ('keep_aspect_ratio_resizer { pad_height: 832 pad_width: 1344 }', (832, 1344, 3)),
        ('keep_aspect_ratio_resizer { min_dimension_range { min: 1 max: 1024 } }', None),
        ('identity_resizer { }', None),
        ('conditional_shape_resizer { }', None),
        ('pad_to_multiple_resizer { multiple: 8 }', None),
    ],
)
def test_static_shapes(text, static_shape):
    assert build(text).static_shape == static_shape


@rows.parametrize(
    ('text', 'message'),
    [
        ('', 'image_resizer_oneof is not set'),
        ('conditional_shape_resizer { condition: INVALID }', 'Received: INVALID'),
        ('conditional_shape_resizer { size_threshold: 0 }', 'Received: 0'),
        ('fixed_shape_resizer { height: 0 }', 'Received: 0 and 300'),
        (
            'keep_aspect_ratio_resizer { min_dimension: 0 }',
            'min_dimension <= max_dimension. Received: 0, ',
        ),
        ('keep_aspect_ratio_resizer { per_channel_pad_value: 1 }', r'Received: \(1.0,\)'),
        ('keep_aspect_ratio_resizer { pad_height: 8 }', r'Received: \(8, 0\)'),
        (
            'keep_aspect_ratio_resizer { pad_height: 8 pad_width: 8 pad_to_max_dimension: true }',
            'expected pad_to_max_dimension, or pad_height',
        ),
        ('keep_aspect_ratio_resizer { min_dimension_range { max: 9 } }', r'Received: \(0, 9\)'),
        (
            'keep_aspect_ratio_resizer { min_dimension_range { min: 9 max: 8 } }',
            r'Received: \(9, 8\)',
        ),
        (
            'keep_aspect_ratio_resizer { min_dimension_range { min: 9 max: 1025 } }',
            '<= 1024 of min_dimension_range',
        ),
        ('pad_to_multiple_resizer { multiple: 0 }', 'Received: 0'),
    ],
)
def test_contradictions_are_errors(text, message):
    with pytest.raises(ValueError, match=message):
        build(text)


@rows.parametrize(
    ('text', 'expected'), [('', (0, 255)), ('max: 4095', (0, 4095)), ('min: -1 max: 1', (-1, 1))]
)
def test_the_range_of_values(text, expected):
    resizer = build(f'identity_resizer {{}} value_range {{ {text} }}')
    assert resizer.value_range == expected
    values = tf.constant([[[[-9.0], [expected[0]], [expected[1]], [9999.0]]]])
    np.testing.assert_allclose(resizer.pixels(values)[0, 0, :, 0], [0, 0, 255, 255])
    plain = build('identity_resizer {}')
    assert plain.value_range is None
    assert plain.pixels(values) is values


@rows.parametrize('text', ['min: 5 max: 5', 'min: nan', 'max: inf', 'max: -1'])
def test_what_is_no_range_is_refused(text):
    with pytest.raises(UserError, match=r'value_range: expected finite numbers, min below max'):
        build(f'identity_resizer {{}} value_range {{ {text} }}')


@rows.parametrize('grey', [False, True])
@rows.parametrize('kind', sorted(set(image_resizer_builder.BUILDERS) - {'identity_resizer'}))
def test_resizers_convert_to_one_channel(kind, grey):
    text = f'{kind} {{ convert_to_grayscale: {str(grey).lower()} }}'
    assert build(text)(tf.zeros([8, 8, 3]))[0].shape[-1] == (1 if grey else 3)
