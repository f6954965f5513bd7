import dataclasses

import numpy as np
import pytest

from object_detection.core.detections import Detections
from object_detection.core.fields import DetectionFields
from object_detection.errors import UserError
from object_detection.export import verification


def rows(*detections):
    """(class, top, score) of each: boxes of 0.1 x 0.1 at the left edge."""
    classes = np.array([each[0] for each in detections])
    values = [[top, 0.0, top + 0.1, 0.1, score] for _, top, score in detections]
    return classes, np.array(values, np.float32)


def test_detections_that_are_exchanged_are_one_difference():
    ours = rows((1, 0.1, 0.9), (1, 0.5, 0.4), (2, 0.3, 0.2))
    theirs = rows((1, 0.1, 0.9), (1, 0.6, 0.4), (2, 0.3, 0.2))
    assert verification._compare_rows(ours, theirs)[:3] == (3, 1, 0.0)
    # One more on either side is one more.
    more = rows((1, 0.1, 0.9), (1, 0.6, 0.4), (2, 0.3, 0.2), (2, 0.8, 0.1))
    assert verification._compare_rows(ours, more)[:2] == (3, 2)
    assert verification._compare_rows(more, ours)[:2] == (4, 2)


def test_displaced_boxes_and_other_classes_do_not_agree():
    ours = rows(*((1, 0.01 * i, 0.9 - 0.05 * i) for i in range(10)))
    displaced = rows(*((1, 0.01 * i + 0.005, 0.9 - 0.05 * i) for i in range(10)))
    others = rows(*((2, 0.01 * i, 0.9 - 0.05 * i) for i in range(10)))
    for theirs in (displaced, others):
        comparison = verification._compare_rows(ours, theirs)
        assert (comparison.unmatched, comparison.agrees) == (10, False)


POSE = {
    DetectionFields.BOXES: np.array([[[0.1, 0.1, 0.5, 0.5], [0.2, 0.2, 0.9, 0.9]]]),
    DetectionFields.SCORES: np.array([[0.9, 0.8]], np.float32),
    DetectionFields.CLASSES: np.array([[0, 0]]),
    DetectionFields.NUM_DETECTIONS: np.array([2]),
    DetectionFields.KEYPOINTS: np.array([[[[0.2, 0.3], [0.4, 0.3]], [[0.5, 0.6], [0.7, 0.8]]]]),
    DetectionFields.KEYPOINT_SCORES: np.array([[[0.6, 0.5], [0.4, 0.003]]], np.float32),
}


def compared(changes, *, left_out=()):
    """Compares `POSE` with an export that returns it with changes, and without some arrays."""
    image = np.zeros([40, 80, 3], np.uint8)
    (theirs,) = Detections.from_batch(POSE | changes, [(40, 80)])
    theirs = dataclasses.replace(theirs, **dict.fromkeys(left_out))

    class Export:
        def run(self, images):
            return [theirs] * len(images)

    return verification.compare_with(Export(), [(image, POSE)])


def moved(row, point, share):
    points = POSE[DetectionFields.KEYPOINTS].copy()
    points[0, row, point, 1] += share
    return {DetectionFields.KEYPOINTS: points}


def test_keypoints_that_lie_elsewhere_with_the_same_score_are_counted():
    assert compared({}) == (2, 0, 0.0, 4, 0, ())
    assert compared(moved(1, 1, 0.3)) == (2, 0, 0.0, 3, 1, ())
    assert compared(moved(0, 1, 0.003))[3:5] == (3, 1)
    assert compared(moved(0, 1, 0.0015))[3:5] == (4, 0)
    assert '3 keypoints agree, 1 left out' in str(compared(moved(1, 1, 0.3)))
    # Another score is another detection.
    scores = POSE[DetectionFields.KEYPOINT_SCORES].copy()
    scores[0, 1, 1] = 0.5
    other = compared({DetectionFields.KEYPOINT_SCORES: scores})
    assert (other.unmatched, other.keypoints) == (1, 2)
    with pytest.raises(UserError, match='--format onnx: expected the detections of the model'):
        other.raise_unless_it_agrees('--format onnx')


def test_what_an_export_does_not_return_is_named():
    found = compared({}, left_out=('keypoints', 'keypoint_scores'))
    assert found[1:5] == (0, 0.0, 0, 0)
    assert str(found).endswith('the export does not have them: keypoint_scores, keypoints')
