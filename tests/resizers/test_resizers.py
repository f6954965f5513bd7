import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders import image_resizer_builder
from object_detection.protos import image_resizer_pb2
from object_detection.resizers.keep_aspect_ratio import KeepAspectRatioResizer
from tests import goldens


def build(text):
    return image_resizer_builder.build(text_format.Parse(text, image_resizer_pb2.ImageResizer()))


@goldens.parametrize('image_resizers', prefix=('fixed', 'keep_', 'cond', 'identity', 'pad_'))
def test_resizer_matches_the_reference(case_name):
    case = goldens.load('image_resizers', case_name)
    if case.raises:
        with pytest.raises(ValueError, match='min_dimension=50, max_dimension=40'):
            build(case.config)
        return
    resizer = build(case.config)
    image = case.inputs['image']
    call = resizer
    if case_name.endswith('_dyn'):
        call = tf.function(resizer, input_signature=[tf.TensorSpec([None, None, 3], tf.uint8)])
    outputs = case.outputs
    if 'image' in outputs:
        resized, true_shape = call(image)
        assert resized.dtype == tf.float32
        np.testing.assert_allclose(resized, outputs['image'], rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(true_shape, outputs['true_shape'])
        if resizer.static_shape:
            assert resizer.static_shape == resized.shape
    elif 'masks_shape' in outputs:
        masks = resizer.resize_masks(tf.zeros([0, *image.shape[:2]]))
        np.testing.assert_array_equal(masks.shape, outputs['masks_shape'])
        np.testing.assert_array_equal(call(image)[1], outputs['true_shape'])
    if 'masks' in case.inputs:
        masks = resizer.resize_masks(tf.constant(case.inputs['masks']))
        assert masks.dtype == tf.uint8
        np.testing.assert_array_equal(masks, outputs['masks'])
        np.testing.assert_array_equal(call(image)[1], outputs['true_shape_with_masks'])


@goldens.parametrize('image_resizers', names=('empty',))
def test_a_resizer_must_be_set(case_name):
    assert goldens.load('image_resizers', case_name).raises == 'ValueError'
    with pytest.raises(ValueError, match=r'ImageResizer\.image_resizer_oneof is not set'):
        build('')


@pytest.mark.parametrize(
    'text',
    [
        'fixed_shape_resizer { height: 9 width: 8 }',
        'keep_aspect_ratio_resizer { min_dimension: 9 max_dimension: 12 '
        'pad_to_max_dimension: true }',
        'conditional_shape_resizer { size_threshold: 10 }',
        'identity_resizer { }',
        'pad_to_multiple_resizer { multiple: 16 }',
    ],
)
@pytest.mark.parametrize('dtype', [np.uint8, np.float32])
def test_a_batch_is_resized_as_its_images(text, dtype):
    resizer = build(text)
    images = np.random.default_rng(0).integers(0, 256, (3, 14, 21, 3)).astype(dtype)
    resized, true_shape = resizer(images)
    for image, expected in zip(images, resized, strict=True):
        alone, shape = resizer(image)
        np.testing.assert_array_equal(alone, expected)
        np.testing.assert_array_equal(shape, true_shape)
    assert true_shape.dtype == tf.int32
    assert resizer.resize_masks(tf.zeros([0, 14, 21])).shape == (0, *resized.shape[1:3])


def test_pad_values_need_as_many_channels():
    resizer = KeepAspectRatioResizer(
        min_dimension=4, max_dimension=8, pad_to_max_dimension=True, pad_values=(1.0, 2.0, 3.0)
    )
    with pytest.raises(ValueError, match='the image has 1 channels'):
        resizer(np.zeros((4, 4, 1), np.uint8))
