import keras
import numpy as np
import pytest
import tensorflow as tf

from object_detection.models.necks.resizing import CropTo, Doubling


@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
def test_doubling_is_that_of_keras(dtype):
    maps = tf.cast(tf.random.stateless_normal([2, 3, 2, 5], [1, 2]), dtype)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(maps)
        ours = Doubling(dtype=dtype)(maps)
        theirs = keras.layers.UpSampling2D(2, dtype=dtype)(maps)
        objectives = [tf.reduce_sum(tf.sin(tf.cast(x, tf.float32))) for x in (ours, theirs)]
    assert ours.dtype == dtype
    np.testing.assert_array_equal(tf.cast(ours, tf.float32), tf.cast(theirs, tf.float32))
    first, second = [tf.cast(tape.gradient(each, maps), tf.float32) for each in objectives]
    np.testing.assert_allclose(first, second, rtol=1e-5 if dtype == 'float32' else 3e-2)


def test_shapes_of_unknown_sizes():
    maps = keras.Input((None, 4, 3))
    doubled = Doubling()(maps)
    assert doubled.shape == (None, None, 8, 3)
    assert CropTo()(doubled, keras.Input((5, 7, 2))).shape == (None, 5, 7, 3)


def test_crop():
    maps = tf.reshape(tf.range(2 * 4 * 6 * 1), [2, 4, 6, 1])
    like = tf.zeros([2, 3, 5, 2])
    np.testing.assert_array_equal(CropTo()(maps, like), maps[:, :3, :5])
    assert CropTo()(maps, tf.zeros([2, 4, 6, 1])) is maps
