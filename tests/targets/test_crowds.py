import numpy as np
import pytest
import tensorflow as tf

from object_detection.targets.targets import is_on_crowd

BOXES = tf.constant([[0.0, 0, 4, 4], [2, 2, 6, 6], [8, 8, 9, 9], [5, 5, 5, 5]])


def test_by_hand():
    groundtruth = tf.constant(
        [[[0.0, 0, 4, 4], [0, 0, 10, 10], [0, 0, 0, 0]], [[0, 0, 4, 3], [8, 8, 9, 9], [0, 0, 9, 9]]]
    )
    is_crowd = tf.constant([[True, False, False], [True, True, False]])
    found = is_on_crowd(BOXES, groundtruth, is_crowd, 0.25)
    # Of the second box a quarter lies on the first crowd, two sixteenths on the other image's.
    expected = [[True, True, False, False], [True, False, True, False]]
    np.testing.assert_array_equal(found, expected)
    found = is_on_crowd(BOXES, groundtruth, is_crowd, 0.76)
    np.testing.assert_array_equal(found, [[True] + [False] * 3, [False, False, True, False]])


def test_each_image_may_have_boxes_of_its_own():
    groundtruth = tf.constant([[[0.0, 0, 4, 4]], [[8, 8, 9, 9]]])
    boxes = tf.stack([BOXES, BOXES[::-1]])
    found = is_on_crowd(boxes, groundtruth, tf.constant([[True], [True]]), 0.25)
    np.testing.assert_array_equal(found, [[True, True, False, False], [False, True, False, False]])


@pytest.mark.parametrize('jit_compile', [False, True])
@pytest.mark.parametrize('rows', [0, 6])
def test_oracle(jit_compile, rows):
    rng = np.random.default_rng(0)

    def random_boxes(*shape):
        corner = rng.uniform(0, 8, (*shape, 2))
        return np.concatenate([corner, corner + rng.uniform(1, 5, (*shape, 2))], -1).astype('f')

    boxes, groundtruth = random_boxes(30), random_boxes(3, rows)
    is_crowd = rng.uniform(size=(3, rows)) < 0.4
    expected = np.zeros((3, 30), bool)
    for image, row in zip(*np.nonzero(is_crowd), strict=True):
        low = np.maximum(boxes[:, :2], groundtruth[image, row, :2])
        high = np.minimum(boxes[:, 2:], groundtruth[image, row, 2:])
        shared = np.prod(np.maximum(high - low, 0), axis=1)
        expected[image] |= shared >= 0.4 * np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
    assert expected.any() == (rows > 0)
    found = tf.function(is_on_crowd, jit_compile=jit_compile)(boxes, groundtruth, is_crowd, 0.4)
    np.testing.assert_array_equal(found, expected)
