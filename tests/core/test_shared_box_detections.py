"""Suppression where the classes share boxes, as in single-stage detectors."""

import numpy as np
import pytest
import tensorflow as tf

from object_detection.core.post_processing import (
    NmsParams,
    batch_multiclass_non_max_suppression,
)
from tests import slow_cases

BATCH, COUNT, CLASSES = 3, 16, 4
WINDOWS = np.array([[0, 0, 1, 1], [0, 0, 0.5, 1], [0.1, 0, 0.75, 0.5]], np.float32)


@pytest.fixture(scope='module')
def candidates() -> tuple[tf.Tensor, tf.Tensor]:
    """Boxes [B, N, 1, 4], some of which reach out of the image, and scores [B, N, K]."""
    rng = np.random.default_rng(3)
    corners = np.sort(rng.random((BATCH, COUNT, 2, 2)) * 1.4 - 0.2, axis=2)
    boxes = tf.constant(corners.reshape(BATCH, COUNT, 1, 4), tf.float32)
    return boxes, tf.constant(rng.random((BATCH, COUNT, CLASSES)), tf.float32)


def detect(boxes, scores, params, *, windows=WINDOWS, static=False):
    batch, count = scores.shape[:2]
    return batch_multiclass_non_max_suppression(
        boxes,
        scores,
        params,
        clip_window=tf.constant(windows),
        additional_fields={
            'rows': tf.tile(tf.range(count)[tf.newaxis], [batch, 1]),
            'multiclass_scores': scores,
        },
        static=static,
    )


def assert_equal(a, b):
    tf.nest.map_structure(
        lambda x, y: np.testing.assert_allclose(x, y, atol=1e-6),
        a._replace(masks=()),
        b._replace(masks=()),
    )


@slow_cases.parametrize(
    2,
    ('num_agnostic', 'combined', 'sigma'),
    [
        (0, False, 0.0),
        (0, True, 0.5),
        (1, False, 0.5),
        (1, True, 0.0),
        (2, False, 0.0),
        (2, True, 0.5),
    ],
)
def test_options_can_be_combined(candidates, num_agnostic, combined, sigma):
    boxes, scores = candidates
    options = {
        'score_threshold': 0.2,
        'iou_threshold': 0.4,
        'max_detections_per_class': 6,
        'max_total_detections': 15,
        'use_class_agnostic_nms': num_agnostic > 0,
        'max_classes_per_detection': max(1, num_agnostic),
        'soft_nms_sigma': sigma,
        'use_combined_nms': combined,
    }
    params = NmsParams(change_coordinate_frame=False, **options)
    detections = detect(boxes, scores, params)
    assert np.all(detections.num_detections.numpy() > 5)
    assert_equal(detections, detect(boxes, scores, params, static=True))
    # Boxes of each class, all the same, are suppressed alike.
    assert_equal(detections, detect(tf.repeat(boxes, CLASSES, axis=2), scores, params))
    # Each image has its own window.
    alone = detect(boxes[1:2], scores[1:2], params, windows=WINDOWS[1:2])
    of_second = tf.nest.map_structure(lambda x: x[1:2], detections._replace(masks=()))
    assert_equal(of_second, alone)
    _check_fields(boxes, scores, detections, combined, sigma)
    relative = detect(boxes, scores, NmsParams(change_coordinate_frame=True, **options))
    _check_frame(relative, detections)


def _check_fields(boxes, scores, detections, combined, sigma):
    """Checks that what is carried along belongs to the box, and the score to its class."""
    for image, window in enumerate(WINDOWS):
        used = slice(int(detections.num_detections[image]))
        rows = detections.additional_fields['rows'][image, used].numpy()
        expected = boxes[image, :, 0].numpy()[rows]
        low, high = np.tile(window[:2], 2), np.tile(window[2:], 2)
        if not combined:
            expected = np.clip(expected, low, high)
            np.testing.assert_allclose(detections.boxes[image, used], expected)
        classes = detections.classes[image, used].numpy().astype(int)
        own = scores[image].numpy()[rows, classes]
        found = detections.scores[image, used].numpy()
        assert np.all(found <= own + 1e-6) if sigma else np.allclose(found, own)
        carried = detections.additional_fields['multiclass_scores'][image]
        np.testing.assert_allclose(carried[used], scores[image].numpy()[rows])
        assert not np.any(carried[used.stop :])


def _check_frame(relative, detections):
    np.testing.assert_array_equal(relative.num_detections, detections.num_detections)
    corner = np.tile(WINDOWS[:, :2], 2)[:, np.newaxis]
    sizes = np.tile(WINDOWS[:, 2:] - WINDOWS[:, :2], 2)[:, np.newaxis]
    is_used = relative.scores.numpy()[..., np.newaxis] > 0
    expected = np.where(is_used, (detections.boxes - corner) / sizes, 0)
    np.testing.assert_allclose(relative.boxes, expected, atol=1e-5)
