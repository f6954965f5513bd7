import numpy as np
import tensorflow as tf

from object_detection.meta_architectures.faster_rcnn import region_proposal_network

ONE = tf.constant([[[0.0], [2.0], [-90.0], [40.0]]])
TWO = tf.concat([tf.zeros_like(ONE), ONE], axis=-1)
IS_OBJECT = tf.constant([[True, False, True, True]])


def test_by_hand():
    np.testing.assert_allclose(region_proposal_network.logit_difference(ONE), [[0, 2, -90, 40]])
    np.testing.assert_allclose(
        region_proposal_network.logit_difference(tf.constant([[3.0, 1.0]])), [-2]
    )
    expected = [[0.5, 0.5], [1 / (1 + np.exp(2)), 1 / (1 + np.exp(-2))], [1, 0], [0, 1]]
    np.testing.assert_allclose(
        region_proposal_network.probabilities(ONE)[0], expected, rtol=1e-6, atol=1e-7
    )
    expected = [[np.log(2), np.log(1 + np.exp(2)), 90, 0]]
    np.testing.assert_allclose(
        region_proposal_network.objectness_cross_entropy(ONE, IS_OBJECT),
        expected,
        rtol=1e-6,
        atol=1e-7,
    )


def test_one_logit_is_two_of_which_the_first_is_zero():
    np.testing.assert_allclose(
        region_proposal_network.probabilities(ONE),
        region_proposal_network.probabilities(TWO),
        rtol=1e-5,
        atol=1e-7,
    )
    np.testing.assert_allclose(
        region_proposal_network.objectness_cross_entropy(ONE, IS_OBJECT),
        region_proposal_network.objectness_cross_entropy(TWO, IS_OBJECT),
        rtol=1e-5,
        atol=1e-7,
    )
