import numpy as np

from object_detection.export import verification


def rows(*detections):
    """(class, top, score) of each: boxes of 0.1 x 0.1 at the left edge."""
    classes = np.array([each[0] for each in detections])
    values = [[top, 0.0, top + 0.1, 0.1, score] for _, top, score in detections]
    return classes, np.array(values, np.float32)


def test_detections_that_are_exchanged_are_one_difference():
    ours = rows((1, 0.1, 0.9), (1, 0.5, 0.4), (2, 0.3, 0.2))
    theirs = rows((1, 0.1, 0.9), (1, 0.6, 0.4), (2, 0.3, 0.2))
    assert verification._compare_rows(ours, theirs) == (3, 1, 0.0)
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
