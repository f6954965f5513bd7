import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders import image_resizer_builder
from object_detection.protos import image_resizer_pb2
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
    outputs = dict(case.outputs)
    if 'image' in outputs:
        resized, true_shape = call(image)
        assert resized.dtype == tf.float32
        np.testing.assert_allclose(resized, outputs['image'], rtol=1e-6, atol=2e-4)
        np.testing.assert_array_equal(true_shape, outputs['true_shape'])
        if resizer.static_shape:
            assert resizer.static_shape == resized.shape
    if 'masks' in case.inputs:
        masks = resizer.resize_masks(tf.constant(case.inputs['masks']))
        assert masks.dtype == tf.uint8
        np.testing.assert_array_equal(masks, outputs['masks'])


@goldens.parametrize('image_resizers', prefix='fixed_up_BILINEAR_zero_masks')
def test_show(case_name):
    case = goldens.load('image_resizers', case_name)
    print({k: (v.dtype, v.shape) for k, v in case.outputs.items()})
