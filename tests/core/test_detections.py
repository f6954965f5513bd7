import numpy as np

from object_detection.core.detections import Detections


def found(seed: int = 0, size: tuple[int, int] = (853, 1283)) -> tuple[Detections, np.ndarray]:
    """Detections of an image, and the shares of which their boxes were made."""
    shares = np.random.default_rng(seed).random((1, 50, 4)).astype(np.float32)
    outputs = {
        'detection_boxes': shares,
        'detection_scores': np.linspace(0, 1, 50, dtype=np.float32)[np.newaxis],
        'detection_keypoints': shares[..., np.newaxis, :2],
        'num_detections': np.array([40.0]),
    }
    (detections,) = Detections.from_batch(outputs, [size])
    return detections, shares[0, :40]


def test_boxes_and_their_shares_lose_no_bit():
    detections, shares = found()
    np.testing.assert_array_equal(detections.shares(), shares)
    # As pixels of float32 they are what a product of float32 is.
    sides = np.array([853, 1283, 853, 1283], np.float32)
    np.testing.assert_array_equal(detections.boxes.astype(np.float32), shares * sides)
    points = detections.keypoints.astype(np.float32)
    np.testing.assert_array_equal(points[:, 0], shares[:, :2] * sides[:2])


def test_objects_are_chosen_by_scores():
    detections, _ = found()
    best = detections.best(3)
    np.testing.assert_array_equal(best.boxes, detections.boxes[[39, 38, 37]])
    np.testing.assert_array_equal(best.keypoints, detections.keypoints[[39, 38, 37]])
    above = detections.above(best.scores[-1])
    assert above.scores.tolist() == detections.scores[37:].tolist()
    assert [len(each) for each in above] == [1, 1, 1]
    assert len(detections.best()) == 40


def test_a_detector_that_does_not_classify_has_one_class():
    detections, _ = found()
    assert detections.classes is None
    assert detections.ids().tolist() == [1] * 40
    assert set(detections.arrays()) == {'boxes', 'scores', 'keypoints'}
