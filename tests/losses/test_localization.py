"""Localization losses by hand; the golden numbers are in test_losses_builder."""

import numpy as np
import pytest
import tensorflow as tf

from object_detection.losses.localization import (
    GiouLocalizationLoss,
    IouLocalizationLoss,
    L1LocalizationLoss,
    L2LocalizationLoss,
    SmoothL1LocalizationLoss,
    fill_nan_targets,
)

LOSSES = [
    L2LocalizationLoss(),
    SmoothL1LocalizationLoss(delta=0.5),
    IouLocalizationLoss(),
    GiouLocalizationLoss(),
]


def test_l2_by_hand():
    loss = L2LocalizationLoss()
    values = loss(tf.constant([[[3.0, 1]]]), tf.constant([[[1.0, 0]]]), tf.constant([[2.0]]))
    np.testing.assert_allclose(values, [[0.5 * (4**2 + 2**2)]])


def test_smooth_l1_by_hand():
    loss = SmoothL1LocalizationLoss(delta=2.0)
    values = loss(tf.constant([[[3.0, -1]]]), tf.zeros([1, 1, 2]), tf.constant([[0.5]]))
    np.testing.assert_allclose(values, [[0.5 * ((2 * 3 - 2) + 0.5)]])


def test_l1_by_hand():
    loss = L1LocalizationLoss()
    values = loss(tf.constant([[[3.0, -1]]]), tf.zeros([1, 1, 2]), tf.constant([[[2.0]]]))
    np.testing.assert_allclose(values, [[[6, 2]]])


def test_iou_and_giou_by_hand():
    boxes = tf.constant([[[0.0, 0, 2, 2], [0, 0, 1, 1], [0, 0, 0, 0]]])
    others = tf.constant([[[1.0, 0, 3, 2], [2, 0, 3, 1], [0, 0, 0, 0]]])
    weights = tf.constant([[3.0, 1, 1]])
    np.testing.assert_allclose(
        IouLocalizationLoss()(boxes, others, weights), [[3 * (1 - 2 / 6), 1, 1]], rtol=1e-6
    )
    # The hull of the first pair is its union; that of the second covers an empty third.
    np.testing.assert_allclose(
        GiouLocalizationLoss()(boxes, others, weights),
        [[3 * (1 - 2 / 6), 1 + 1 / 3, 1]],
        rtol=1e-6,
    )


@pytest.mark.parametrize('loss', LOSSES, ids=lambda loss: type(loss).__name__)
def test_zero_without_anchors_and_with_finite_gradients(loss):
    assert loss(tf.zeros([2, 0, 4]), tf.zeros([2, 0, 4]), tf.zeros([2, 0])).shape == (2, 0)
    rng = np.random.default_rng(0)
    boxes = tf.constant(rng.random((2, 5, 4)), tf.float32)
    targets = tf.concat([boxes[:, :2], tf.zeros([2, 3, 4])], axis=1)
    with tf.GradientTape() as tape:
        tape.watch(boxes)
        values = loss(boxes, targets, tf.ones([2, 5]))
    assert bool(tf.reduce_all(tf.math.is_finite(tape.gradient(values, boxes))))


@pytest.mark.parametrize('loss', LOSSES, ids=lambda loss: type(loss).__name__)
def test_unknown_dimensions_in_a_function(loss):
    codes = tf.TensorSpec([None, None, 4])
    function = tf.function(loss, input_signature=[codes, codes, tf.TensorSpec([None, None])])
    rng = np.random.default_rng(1)
    arguments = [tf.constant(rng.random(shape), tf.float32) for shape in [(2, 3, 4)] * 2 + [(2, 3)]]
    np.testing.assert_allclose(function(*arguments), loss(*arguments), rtol=1e-6)


def test_nan_targets_cost_nothing_and_pull_nowhere():
    predictions = tf.constant([[[1.0, 2.0]]])
    with tf.GradientTape() as tape:
        tape.watch(predictions)
        targets = fill_nan_targets(tf.constant([[[np.nan, 0.0]]], tf.float32), predictions)
        loss = L2LocalizationLoss()(predictions, targets, tf.ones([1, 1]))
    np.testing.assert_allclose(loss, [[2]])
    np.testing.assert_allclose(tape.gradient(loss, predictions), [[[0, 2]]])


def test_arguments_are_checked():
    with pytest.raises(ValueError, match=r'delta must be positive\. Received: 0'):
        SmoothL1LocalizationLoss(delta=0)
    with pytest.raises(ValueError, match='weights of the rank of'):
        L1LocalizationLoss()(tf.zeros([1, 2, 4]), tf.zeros([1, 2, 4]), tf.zeros([1, 2]))
