import numpy as np
import pytest
import tensorflow as tf

from object_detection.resizers.fixed_sizes import FixedShapeResizer
from object_detection.resizers.keep_aspect_ratio import KeepAspectRatioResizer
from tests import rows

VALUES = (123.5, 116.25, 103.0)


@rows.parametrize('size', [(20, 40), (40, 20), (20, 30), (1, 30)])
@rows.parametrize('is_static', [False, True])
def test_padding_by_hand(size, is_static):
    resizer = KeepAspectRatioResizer(
        min_dimension=40, max_dimension=60, pad_size=(40, 60), pad_values=VALUES
    )
    image = np.random.default_rng(0).integers(0, 256, (*size, 3), np.uint8)
    shape = image.shape if is_static else (None, None, 3)
    call = tf.function(resizer, input_signature=[tf.TensorSpec(shape, tf.uint8)], autograph=False)
    output, (height, width, _) = call(image)
    expected = np.broadcast_to(np.float32(VALUES), (40, 60, 3)).copy()
    expected[:height, :width] = tf.compat.v1.image.resize_bilinear(
        image[np.newaxis].astype(np.float32), [height, width]
    )[0]
    np.testing.assert_array_equal(output, expected)
    assert output.shape == (40, 60, 3)


@pytest.mark.parametrize('size', [(7, 9), (90, 70)])
def test_uint8_and_float_images_give_the_same(size):
    # The second becomes so much smaller that it is sampled without a conversion.
    resizer = FixedShapeResizer(height=20, width=24)
    image = np.random.default_rng(1).integers(0, 256, (*size, 3), np.uint8)
    np.testing.assert_array_equal(resizer(image)[0], resizer(image.astype(np.float32))[0])
