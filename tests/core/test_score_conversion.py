"""Score converters and calibrations by hand, and with dimensions unknown."""

import numpy as np
import pytest
import tensorflow as tf

from object_detection.core.score_conversion import (
    PerClass,
    PiecewiseLinear,
    PlattScaling,
    ScoreConverter,
)
from tests import rows


def test_converter_scales_converts_and_calibrates_in_this_order():
    converter = ScoreConverter(tf.nn.softmax, logit_scale=2.0, calibrate=lambda scores: 1 - scores)
    logits = tf.constant([[0.0, 2 * np.log(3.0)]])
    np.testing.assert_allclose(converter(logits), [[0.75, 0.25]], rtol=1e-6)


def test_piecewise_linear_interpolates_and_is_constant_beyond_its_ends():
    calibrate = PiecewiseLinear([(0.0, 0.1), (0.2, 0.3), (0.6, 0.5)])
    xs = np.array([[-1.0, 0.0, 0.1], [0.2, 0.4, 7.0]], np.float32)
    np.testing.assert_allclose(
        calibrate(tf.constant(xs)), [[0.1, 0.1, 0.2], [0.3, 0.4, 0.5]], rtol=1e-6
    )
    np.testing.assert_allclose(PiecewiseLinear([(0.5, 0.25)])(tf.constant(xs)), xs * 0 + 0.25)


@rows.parametrize('points', [[], [(0.5, 0.0), (0.5, 1.0)], [(0.6, 0.0), (0.5, 1.0)]])
def test_piecewise_linear_needs_increasing_points(points):
    with pytest.raises(ValueError, match='strictly increasing'):
        PiecewiseLinear(points)


def test_platt_scaling():
    scores = tf.constant([0.1, 0.5, 0.9])
    np.testing.assert_allclose(PlattScaling()(scores), scores, rtol=1e-5)
    logits = np.log([1 / 9, 1.0, 9.0])
    expected = 1 / (1 + np.exp(-2 * logits + 0.5))
    np.testing.assert_allclose(PlattScaling(-2.0, 0.5)(scores), expected, rtol=1e-5)
    ends = PlattScaling(-3.0, 1.0)(tf.constant([0.0, 1.0]))
    np.testing.assert_allclose(ends, [0, 1], atol=1e-6)


def test_per_class_leaves_other_columns_as_they_are():
    calibrate = PerClass({1: lambda scores: scores * 2})
    np.testing.assert_allclose(calibrate(tf.constant([[0.1, 0.2, 0.3]])), [[0.1, 0.4, 0.3]])


def test_per_class_rejects_columns_that_do_not_exist():
    with pytest.raises(ValueError, match='0 or more'):
        PerClass({-1: tf.identity})
    with pytest.raises(ValueError, match=r'below 3, the scores. Received: \[3\]'):
        PerClass({3: tf.identity})(tf.zeros([1, 3]))


def test_scale_zero_is_rejected():
    with pytest.raises(ValueError, match='logit_scale'):
        ScoreConverter(tf.identity, logit_scale=0.0)


def test_unknown_dimensions_and_no_anchors():
    converter = ScoreConverter(
        tf.sigmoid, calibrate=PerClass({0: PiecewiseLinear([(0.0, 0.0), (1.0, 0.5)])})
    )
    function = tf.function(converter, input_signature=[tf.TensorSpec([None, None, 2])])
    for shape in ((2, 0, 2), (1, 3, 2)):
        logits = tf.ones(shape)
        np.testing.assert_allclose(function(logits), converter(logits))
