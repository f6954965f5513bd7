"""Soft suppression against TensorFlow's kernel, class by class."""

import numpy as np
import tensorflow as tf

from object_detection.core.suppression.soft_nms import soft_non_max_suppression
from tests.core.suppression.test_nms import random_boxes
from tests.rows import parametrize


def class_by_class(boxes, scores, *, sigma, per_class, score_threshold):
    """One image; (score, class, row) of every class by the kernel, best first."""
    found = []
    for k in range(scores.shape[1]):
        rows, decayed = tf.image.non_max_suppression_with_scores(
            boxes[:, min(k, boxes.shape[1] - 1)],
            scores[:, k],
            max_output_size=per_class,
            iou_threshold=1.0,
            score_threshold=score_threshold,
            soft_nms_sigma=sigma,
        )
        found += [(float(s), k, int(r)) for s, r in zip(decayed, rows, strict=True)]
    return sorted(found, key=lambda item: -item[0])


@parametrize('boxes_per_row', [1, 3])
@parametrize(
    ('sigma', 'score_threshold', 'per_class'), [(0.5, 0.0, 4), (0.1, 0.3, 10), (0.001, 0.0, 10)]
)
def test_equals_the_kernel(boxes_per_row, sigma, score_threshold, per_class):
    rng = np.random.default_rng(0)
    boxes = random_boxes(rng, [2, 20, boxes_per_row])
    scores = rng.random((2, 20, 3)).astype(np.float32)
    selection = soft_non_max_suppression(
        boxes,
        scores,
        sigma=sigma,
        max_outputs=15,
        max_outputs_per_class=per_class,
        score_threshold=score_threshold,
    )
    for i in range(2):
        expected = class_by_class(
            boxes[i],
            scores[i],
            sigma=sigma,
            per_class=per_class,
            score_threshold=score_threshold,
        )[:15]
        count = len(expected)
        np.testing.assert_array_equal(selection.is_valid[i], np.arange(15) < count)
        values, classes, rows = map(list, zip(*expected, strict=True))
        np.testing.assert_allclose(selection.scores[i, :count], values, rtol=1e-5)
        np.testing.assert_array_equal(selection.classes[i, :count], classes)
        np.testing.assert_array_equal(selection.indices[i, :count], rows)


def test_by_hand():
    # The second box's IoU with the first is 0.5: its score falls to 0.8 * exp(-0.25 / 2 / 0.5).
    boxes = tf.constant([[[0.0, 0, 1, 1], [0, 0, 1, 0.5], [5, 5, 6, 6]]])[:, :, tf.newaxis]
    selection = soft_non_max_suppression(
        boxes,
        tf.constant([[[0.9], [0.8], [0.7]]]),
        sigma=0.5,
        max_outputs=4,
        max_outputs_per_class=4,
        score_threshold=0.0,
    )
    np.testing.assert_array_equal(selection.indices, [[0, 2, 1, 0]])
    np.testing.assert_allclose(selection.scores, [[0.9, 0.7, 0.8 * np.exp(-0.25), 0]], rtol=1e-6)


def test_boxes_not_counted_lower_others_and_fill_no_slot():
    boxes = tf.constant([[[0.0, 0, 1, 1], [0, 0, 1, 0.5], [5, 5, 6, 6]]])[:, :, tf.newaxis]
    selection = soft_non_max_suppression(
        boxes,
        tf.constant([[[0.9], [0.8], [0.7]]]),
        sigma=0.5,
        max_outputs=2,
        max_outputs_per_class=2,
        score_threshold=0.0,
        # Not the first one.
        is_counted=lambda boxes: boxes[..., 3] * boxes[..., 2] != 1,
    )
    # It counts for its class's limit of 2.
    np.testing.assert_array_equal(selection.is_valid, [[True, False]])
    np.testing.assert_array_equal(selection.indices, [[2, 0]])


def test_compiled_and_with_unknown_dimensions():
    rng = np.random.default_rng(1)

    def select(boxes, scores):
        return soft_non_max_suppression(
            boxes,
            scores,
            sigma=0.3,
            max_outputs=8,
            max_outputs_per_class=4,
            score_threshold=0.1,
            num_valid=tf.fill(tf.shape(scores)[:1], 9),
        )

    unknown = tf.function(
        select,
        input_signature=[tf.TensorSpec([None, None, 1, 4]), tf.TensorSpec([None, None, 2])],
        autograph=False,
    )
    for count in (0, 12):
        boxes = tf.constant(random_boxes(rng, [2, count, 1]))
        scores = tf.constant(rng.random((2, count, 2)), tf.float32)
        eager = select(boxes, scores)
        assert bool(tf.reduce_any(eager.is_valid)) == (count > 0)
        assert bool(tf.reduce_all(eager.indices < 9))
        for field, other in zip(eager, unknown(boxes, scores), strict=True):
            np.testing.assert_allclose(field, other, rtol=1e-6)
    for field, other in zip(
        eager, tf.function(select, jit_compile=True, autograph=False)(boxes, scores), strict=True
    ):
        np.testing.assert_allclose(field, other, rtol=1e-5)
