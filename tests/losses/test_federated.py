"""Federated losses: which classes have losses in an image, and that others have no gradient."""

import numpy as np
import pytest
import tensorflow as tf

from object_detection.core.groundtruth import Groundtruth
from object_detection.losses.classification import SigmoidFocalLoss, SigmoidLoss
from object_detection.losses.federated import FederatedClasses
from object_detection.targets.targets import Targets

K = 6
BOX = [0.1, 0.1, 0.5, 0.5]


def _groundtruth(*classes, **fields):
    """One image for each list of classes."""
    one_hot = [np.eye(K, dtype=np.float32)[list(each)].reshape(-1, K) for each in classes]
    boxes = [np.tile(np.float32(BOX), (len(each), 1)) for each in classes]
    return Groundtruth.from_lists(boxes, one_hot, **fields)


def _seeds(count):
    return tf.stack([tf.range(count), tf.range(count) * 7 + 3], axis=1)


def _targets(classes, columns=K):
    """One image; the first columns are those of background."""
    class_targets = tf.one_hot([[number + columns - K for number in classes]], columns)
    zeros = tf.zeros([1, len(classes)])
    weights = tf.constant([[1.0, 0.5, 2.0][: len(classes)]])
    return Targets(class_targets, weights, zeros[..., tf.newaxis], zeros, tf.cast(zeros, tf.int32))


def test_the_classes_of_objects_and_others_up_to_the_number_count():
    federated = FederatedClasses(3)
    sampled = federated.sample(_groundtruth([0, 0], [], [1, 2, 3, 4]), _seeds(3)).numpy()
    assert sampled.sum(1).tolist() == [3, 3, 4]
    assert sampled[0, 0]
    assert sampled[2].tolist() == [False, True, True, True, True, False]


def test_draws_are_as_probable_as_their_weights():
    """Without replacement, counted over many images with an object of class 0."""
    count = 4000
    counts = {1: 50, 2: 16, 3: 4, 4: 1, 5: 0}
    federated = FederatedClasses(2, image_counts=lambda: counts)
    groundtruth = Groundtruth(
        boxes=tf.tile(tf.constant([[BOX]]), [count, 1, 1]),
        classes=tf.tile(tf.one_hot([[0]], K), [count, 1, 1]),
        weights=tf.ones([count, 1]),
    )
    shares = federated.sample(groundtruth, _seeds(count)).numpy().mean(0)
    # Roots 4, 2 and 1 of the numbers; five standard deviations are 0.04.
    np.testing.assert_allclose(shares, [1, 4 / 7, 2 / 7, 1 / 7, 0, 0], atol=0.04)
    # Of two draws, one after the other.
    federated = FederatedClasses(3, image_counts=lambda: counts, power=0.5)
    shares = federated.sample(groundtruth, _seeds(count)).numpy().mean(0)
    last = 1 - 4 / 7 * 2 / 3 - 2 / 7 * 4 / 5
    np.testing.assert_allclose(shares[3], last, atol=0.04)
    assert not shares[4:].any()


def test_an_image_has_the_same_classes_in_every_batch():
    federated, seeds = FederatedClasses(3), _seeds(4)
    whole = federated.sample(_groundtruth([0], [1], [], [5]), seeds).numpy()
    np.testing.assert_array_equal(federated.sample(_groundtruth([1]), seeds[1:2])[0], whole[1])
    assert len({tuple(row) for row in whole}) > 1

    @tf.function(jit_compile=True)
    def compiled(seeds):
        return federated.sample(_groundtruth([0], [1], [], [5]), seeds)

    np.testing.assert_array_equal(compiled(seeds), whole)


@pytest.mark.parametrize('loss', [SigmoidLoss(), SigmoidFocalLoss(alpha=0.25)])
@pytest.mark.parametrize('columns', [K, K + 1])
def test_other_classes_have_no_gradient(loss, columns):
    federated, groundtruth, seeds = FederatedClasses(2), _groundtruth([4]), _seeds(1)
    sampled = federated.sample(groundtruth, seeds).numpy()[0]
    given = _targets([4, 0], columns)
    targets = federated(given, groundtruth, seeds)
    logits = tf.constant(np.random.default_rng(0).normal(size=(1, 2, columns)), tf.float32)
    with tf.GradientTape() as tape:
        tape.watch(logits)
        losses = loss(logits, targets.class_targets, targets.class_weights)
    gradient = tape.gradient(losses, logits).numpy()[0]
    counted = np.concatenate([np.ones(columns - K, bool), sampled])
    assert counted.sum() == 2 + columns - K
    assert (gradient[:, ~counted] == 0).all()
    assert (gradient[:, counted] != 0).all()
    whole = loss(logits, given.class_targets, given.class_weights[..., tf.newaxis])
    np.testing.assert_array_equal(losses.numpy()[..., counted], whole.numpy()[..., counted])


def test_lists_of_the_image_by_hand():
    """Class 3 is absent, and some objects of class 1 have no box."""
    labels = {
        'verified_neg_classes': [np.eye(K)[3]],
        'not_exhaustive_classes': [np.eye(K)[1]],
    }
    groundtruth = _groundtruth([1], **labels)
    federated = FederatedClasses(2, use_image_labels=True)
    targets = federated(_targets([1, 2, 0]), groundtruth, _seeds(1))
    expected = np.zeros([3, K], np.float32)
    expected[:, 3] = [1.0, 0.5, 2.0]
    # Where class 1 is not matched, there may be one without a box.
    expected[0, 1] = 1.0
    np.testing.assert_array_equal(targets.class_weights[0], expected)
    with pytest.raises(ValueError, match=r'use_image_labels: .*load_image_labels: true'):
        federated(_targets([1]), _groundtruth([1]), _seeds(1))


def test_counts_of_more_classes_are_refused():
    federated = FederatedClasses(2, image_counts=lambda: {K + 1: 3})
    with pytest.raises(ValueError, match=r'image_counts_path: expected ids up to 6\. Received: 7'):
        federated.sample(_groundtruth([1]), _seeds(1))
