"""The convolutions of a function, alone."""

import numpy as np
import pytest
import tensorflow as tf

from object_detection.benchmarking import convolutions
from object_detection.errors import UserError


def test_roof_has_the_convolutions_of_a_function_and_of_those_that_it_calls():
    kernel, thin = tf.ones([3, 3, 2, 4]), tf.ones([3, 3, 4, 1])

    @tf.function
    def inner(values):
        return tf.nn.depthwise_conv2d(values, thin, [1, 2, 2, 1], 'VALID')

    @tf.function
    def outer(values):
        return inner(tf.nn.conv2d(values, kernel, 2, [[0, 0], [1, 1], [0, 1], [0, 0]]))

    image = tf.TensorSpec([1, 16, 12, 2], tf.float32)
    plain, depthwise = convolutions.collect(outer.get_concrete_function(image).graph)
    assert (plain.type, plain.image, plain.kernel) == ('Conv2D', (1, 16, 12, 2), (3, 3, 2, 4))
    assert plain.attributes['explicit_paddings'] == [0, 0, 1, 1, 0, 1, 0, 0]
    assert (depthwise.type, depthwise.image) == ('DepthwiseConv2dNative', (1, 8, 6, 4))
    assert depthwise.attributes['strides'] == [1, 2, 2, 1]
    run = convolutions.loop([plain, depthwise, plain._replace(dtype='bfloat16')])
    assert np.isfinite(run())
    assert run() == run() != 0
    unknown = tf.TensorSpec([None, 16, 12, 2], tf.float32)
    with pytest.raises(UserError, match='static shape'):
        convolutions.collect(outer.get_concrete_function(unknown).graph)
