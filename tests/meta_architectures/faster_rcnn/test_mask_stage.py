"""The mask loss by NumPy: targets made hard, and a limited number of regions."""

import numpy as np
import tensorflow as tf

from object_detection.core.groundtruth import Groundtruth
from object_detection.core.loss_sum import divide
from object_detection.meta_architectures.faster_rcnn.mask_stage import MaskStage, positive_rows
from object_detection.targets.targets import Targets
from tests import rows


def targets_of(labels: list[list[int]]) -> Targets:
    """Targets of regions of these classes, 0 = background, all matched to object 0."""
    labels = np.array(labels)
    is_positive = tf.constant(labels > 0)
    return Targets(
        class_targets=tf.one_hot(labels, 3),
        class_weights=tf.ones(labels.shape),
        box_targets=tf.zeros([*labels.shape, 4]),
        box_weights=tf.cast(is_positive, tf.float32),
        matches=tf.where(is_positive, 0, -1),
    )


def stage(**options) -> MaskStage:
    head = tf.keras.layers.Identity()
    return MaskStage(head=head, from_crops=False, loss_weight=2.0, use_matmul=False, **options)


@rows.parametrize('threshold', [0.0, 0.3, 0.5])
def test_loss_by_numpy(threshold):
    rng = np.random.default_rng(0)
    crop = rng.uniform(size=(4, 4)).astype(np.float32)
    # From the threshold on: a value of exactly 0.5 becomes 1.
    crop[1, 2] = 0.5
    # The regions are the object's own box, so that the targets are the crop itself.
    box = tf.constant([[[0.25, 0.25, 0.75, 0.75]]])
    groundtruth = Groundtruth(
        boxes=box,
        classes=tf.one_hot([[1]], 2),
        weights=tf.ones([1, 1]),
        masks=tf.constant(crop[np.newaxis, np.newaxis]),
        masks_are_crops=True,
    )
    logits = rng.normal(size=(3, 2, 4, 4)).astype(np.float32)
    losses = divide(
        stage(binarize_threshold=threshold).loss_sums(
            tf.constant(logits), tf.tile(box, [1, 3, 1]), targets_of([[2, 0, 1]]), groundtruth
        )
    )
    wanted = (crop >= threshold).astype(np.float32) if threshold else crop
    probabilities = 1 / (1 + np.exp(-np.stack([logits[0, 1], logits[2, 0]])))
    entropy = -wanted * np.log(probabilities) - (1 - wanted) * np.log(1 - probabilities)
    (loss,) = losses.values()
    np.testing.assert_allclose(loss, 2.0 * np.mean(entropy), rtol=1e-5)


def test_the_first_positives_are_chosen():
    targets = targets_of([[0, 1, 2, 0, 1, 2], [0, 0, 0, 0, 1, 1]])
    is_valid = tf.constant([[True] * 6, [True] * 5 + [False]])
    np.testing.assert_array_equal(positive_rows(targets, is_valid, 2), [[1, 2], [0, 4]])
    np.testing.assert_array_equal(
        positive_rows(targets, is_valid, 5), [[0, 1, 2, 4, 5], [0, 1, 2, 3, 4]]
    )


def test_without_padding_the_image_with_most_positives_decides():
    targets = targets_of([[0, 1, 2, 0, 1, 2], [0, 0, 0, 0, 1, 1]])
    is_valid = tf.constant([[True] * 5 + [False], [True] * 6])
    rows = tf.function(
        lambda size: positive_rows(targets, is_valid, size, pad=False), autograph=False
    )
    np.testing.assert_array_equal(rows(5), [[1, 2, 4], [0, 4, 5]])
    np.testing.assert_array_equal(rows(2), [[1, 2], [4, 5]])
    # One row at least: a batch of no regions is nothing that layers should see.
    nothing = positive_rows(targets, tf.zeros_like(is_valid), 5, pad=False)
    np.testing.assert_array_equal(nothing, [[0], [0]])
    compiled = tf.function(
        lambda: positive_rows(targets, is_valid, 5, pad=False), jit_compile=True, autograph=False
    )()
    np.testing.assert_array_equal(compiled, positive_rows(targets, is_valid, 5))
