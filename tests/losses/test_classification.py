"""Classification losses by hand; the golden numbers are in test_losses_builder."""

import numpy as np
import pytest
import tensorflow as tf

from object_detection.losses import classification
from object_detection.losses.classification import (
    BootstrappedSigmoidLoss,
    DiceLoss,
    PenaltyReducedFocalLoss,
    SigmoidFocalLoss,
    SigmoidLoss,
    SoftmaxAgainstLogitsLoss,
    SoftmaxLoss,
)

LOSSES = [
    SigmoidLoss(),
    SigmoidFocalLoss(alpha=0.25),
    SigmoidFocalLoss(gamma=0.5),
    SigmoidLoss(label_smoothing=0.1),
    SoftmaxLoss(label_smoothing=0.1),
    SoftmaxLoss(),
    SoftmaxAgainstLogitsLoss(logit_scale=2.0),
    BootstrappedSigmoidLoss(alpha=0.7),
    PenaltyReducedFocalLoss(alpha=2.0, beta=4.0),
    DiceLoss(),
]
named = pytest.mark.parametrize('loss', LOSSES, ids=lambda loss: type(loss).__name__)


def logit(p):
    return np.log(p / (1 - p))


def test_focal_by_hand():
    loss = SigmoidFocalLoss(gamma=2.0, alpha=0.25)
    logits = tf.constant([[[logit(0.9), logit(0.9)]]], tf.float32)
    values = loss(logits, tf.constant([[[1.0, 0.0]]]), tf.constant([[[2.0]]]))
    expected = [[[-2 * 0.25 * 0.1**2 * np.log(0.9), -2 * 0.75 * 0.9**2 * np.log(0.1)]]]
    np.testing.assert_allclose(values, expected, rtol=1e-4)


def test_focal_without_focus_is_cross_entropy():
    rng = np.random.default_rng(0)
    logits = tf.constant(rng.normal(size=(2, 3, 4)), tf.float32)
    targets = tf.constant(rng.integers(0, 2, (2, 3, 4)), tf.float32)
    weights = tf.ones([2, 3, 1])
    np.testing.assert_allclose(
        SigmoidFocalLoss(gamma=0.0)(logits, targets, weights),
        SigmoidLoss()(logits, targets, weights),
    )


def test_softmax_by_hand():
    logits = tf.constant([[[0.0, 2 * np.log(3.0)]]], tf.float32)
    loss = SoftmaxLoss(logit_scale=2.0)
    values = loss(logits, tf.constant([[[1.0, 0]]]), tf.constant([[[1.0, 3.0]]]))
    np.testing.assert_allclose(values, [[-2 * np.log(0.25)]], rtol=1e-6)


def test_smooth_targets_of_a_sigmoid_by_hand():
    logits, targets = tf.constant([[[logit(0.9), logit(0.2)]]], tf.float32), [[[1.0, 0.0]]]
    entropy = [
        -0.95 * np.log(0.9) - 0.05 * np.log(0.1),
        -0.05 * np.log(0.2) - 0.95 * np.log(0.8),
    ]
    weights = tf.constant([[[2.0]]])
    values = SigmoidLoss(label_smoothing=0.1)(logits, tf.constant(targets), weights)
    np.testing.assert_allclose(values, [[np.multiply(2, entropy)]], rtol=1e-5)
    loss = SigmoidFocalLoss(gamma=2.0, alpha=0.25, label_smoothing=0.1)
    values = loss(logits, tf.constant(targets), weights)
    # The factors are those of the targets 1 and 0.
    expected = [2 * 0.25 * 0.1**2 * entropy[0], 2 * 0.75 * 0.2**2 * entropy[1]]
    np.testing.assert_allclose(values, [[expected]], rtol=1e-4)


def test_smooth_targets_of_a_softmax_by_hand():
    logits = tf.constant([[np.log([[0.7, 0.2, 0.1]])[0]]], tf.float32)
    targets = tf.constant([[[0.0, 1.0, 0.0]]])
    with tf.GradientTape() as tape:
        tape.watch(logits)
        values = SoftmaxLoss(label_smoothing=0.3)(logits, targets, tf.ones([1, 1, 1]))
    expected = -0.1 * np.log(0.7) - 0.8 * np.log(0.2) - 0.1 * np.log(0.1)
    np.testing.assert_allclose(values, [[expected]], rtol=1e-6)
    # Probabilities less smooth targets.
    np.testing.assert_allclose(tape.gradient(values, logits)[0, 0], [0.6, -0.6, 0.0], atol=1e-6)


def test_softmax_against_its_own_logits_is_at_its_minimum():
    logits = tf.constant([[[0.3, -1.0, 2.0]]])
    with tf.GradientTape() as tape:
        tape.watch(logits)
        values = SoftmaxAgainstLogitsLoss()(logits, logits, tf.ones([1, 1, 1]))
    np.testing.assert_allclose(tape.gradient(values, logits), np.zeros([1, 1, 3]), atol=1e-6)


def test_heat_map_focal_by_hand():
    loss = PenaltyReducedFocalLoss(alpha=2.0, beta=4.0)
    logits = tf.constant([[[logit(0.8)], [logit(0.8)]]], tf.float32)
    values = loss(logits, tf.constant([[[1.0], [0.5]]]), tf.ones([1, 2, 1]))
    expected = [-(0.2**2) * np.log(0.8), -(0.5**4) * 0.8**2 * np.log(0.2)]
    np.testing.assert_allclose(values[0, :, 0], expected, rtol=1e-4)


def test_dice_by_hand():
    loss = DiceLoss(is_prediction_probability=True)
    predictions = tf.constant([[[0.5], [1.0]]])
    values = loss(predictions, tf.constant([[[1.0], [1.0]]]), tf.ones([1, 2, 1]))
    np.testing.assert_allclose(values, [[1 - 2 * 1.5 / 3.5]], rtol=1e-6)
    nothing = loss(tf.zeros([1, 2, 1]), tf.zeros([1, 2, 1]), tf.ones([1, 2, 1]))
    np.testing.assert_allclose(nothing, [[1]])


@named
def test_without_anchors_and_with_finite_gradients(loss):
    empty = loss(tf.zeros([2, 0, 3]), tf.zeros([2, 0, 3]), tf.zeros([2, 0, 1]))
    assert empty.shape[0] == 2
    logits = tf.constant([[[-60.0, 60.0, 0.0]] * 2])
    targets = tf.constant([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])
    with tf.GradientTape() as tape:
        tape.watch(logits)
        values = loss(logits, targets, tf.ones([1, 2, 3]))
    assert bool(tf.reduce_all(tf.math.is_finite(values)))
    assert bool(tf.reduce_all(tf.math.is_finite(tape.gradient(values, logits))))


@named
def test_unknown_dimensions_in_a_function(loss):
    logits = tf.TensorSpec([None, None, 3])
    function = tf.function(loss, input_signature=[logits, logits, tf.TensorSpec([None, None, 1])])
    rng = np.random.default_rng(1)
    arguments = [
        tf.constant(rng.random(shape), tf.float32) for shape in ((2, 4, 3), (2, 4, 3), (2, 4, 1))
    ]
    np.testing.assert_allclose(function(*arguments), loss(*arguments), rtol=1e-5)


def test_arguments_are_checked():
    for build, message in (
        (lambda: SigmoidFocalLoss(gamma=-1.0), r'gamma must be 0 or more\. Received: -1'),
        (lambda: SoftmaxLoss(logit_scale=0.0), 'SoftmaxLoss: logit_scale must not be 0'),
        (lambda: SoftmaxAgainstLogitsLoss(logit_scale=0.0), 'logit_scale must not be 0'),
        (lambda: BootstrappedSigmoidLoss(alpha=1.5), r'alpha must be in \[0, 1\]'),
    ):
        with pytest.raises(ValueError, match=message):
            build()


@pytest.mark.parametrize(
    'loss',
    [each for each in LOSSES if not isinstance(each, (SoftmaxLoss, SoftmaxAgainstLogitsLoss))],
    ids=lambda loss: type(loss).__name__,
)
def test_one_loop_of_many_logits_gives_the_same(loss, monkeypatch):
    rng = np.random.default_rng(0)
    logits = tf.constant(rng.normal(size=(2, 50, 7)), tf.float32)
    targets = tf.constant(rng.random((2, 50, 7)), tf.float32)
    weights = tf.constant(rng.random((2, 50, 1)), tf.float32)

    def run(logits, targets, weights):
        arguments = (logits, targets, weights)
        with tf.GradientTape() as tape:
            tape.watch(arguments)
            total = tf.reduce_sum(tf.square(loss(*arguments)))
        return total, tape.gradient(total, arguments)

    programs = []
    make = tf.function

    def counted(*arguments, **options):
        programs.append(options.get('jit_compile'))
        return make(*arguments, **options)

    expected = run(logits, targets, weights)
    monkeypatch.setattr(classification, '_MIN_FUSED', 1)
    monkeypatch.setattr(tf, 'function', counted)
    found = make(run, autograph=False)(logits, targets, weights)
    # The loss, and its gradient by each argument.
    assert programs == ([] if isinstance(loss, DiceLoss) else [True] * 4)
    for each, other in zip(tf.nest.flatten(found), tf.nest.flatten(expected), strict=True):
        scale = float(tf.reduce_max(tf.abs(other)))
        np.testing.assert_allclose(each, other, rtol=1e-5, atol=1e-6 * scale)
