import numpy as np
import pytest

from object_detection.core.detections import Detections
from object_detection.prediction import merging
from object_detection.prediction.merging import Tile

LEFT, RIGHT = Tile(0, 0, 100, 100), Tile(0, 80, 100, 180)
SIZE = (100, 180)


def objects(*rows, **others):
    """Rows of (ymin, xmin, ymax, xmax, class, score)."""
    table = np.array(rows, np.float32).reshape(-1, 6)
    return Detections(table[:, :4], table[:, 5], table[:, 4].astype(np.int64), SIZE, **others)


def join(left, right):
    return merging.joined([objects(*left), objects(*right)], [LEFT, RIGHT], SIZE)


def test_the_parts_of_an_object_become_one():
    found = join([(20, 30, 50, 100, 1, 0.8)], [(22, 80, 51, 150, 1, 0.9)])
    np.testing.assert_allclose(found.boxes, [[20, 30, 51, 150]])
    np.testing.assert_allclose(found.scores, [0.9])


def test_parts_meet_at_a_seam_without_overlap():
    tiles = [Tile(0, 0, 100, 90), Tile(0, 90, 100, 180)]
    parts = [objects((20, 30, 50, 89.5, 1, 0.8)), objects((22, 90.5, 51, 150, 1, 0.6))]
    found = merging.joined(parts, tiles, SIZE)
    np.testing.assert_allclose(found.boxes, [[20, 30, 51, 150]])


def test_the_complete_object_wins():
    # The object, 70 to 98, ends in the left tile; the right tile has its right half.
    complete = (20, 70, 40, 97, 1, 0.7)
    found = join([complete], [(20, 80, 40, 97, 1, 0.9)])
    np.testing.assert_allclose(found.boxes, [complete[:4]])
    # The better of two complete ones suppresses the other.
    found = join([(20, 84, 40, 96, 1, 0.7)], [(20.5, 84, 40, 96, 1, 0.9)])
    np.testing.assert_allclose(found.boxes, [[20.5, 84, 40, 96]])


def test_a_faint_object_replaces_no_sure_part():
    found = join([(0, 30, 100, 95, 1, 0.1)], [(20, 80, 40, 90, 1, 0.9)])
    assert found.scores.tolist() == pytest.approx([0.9, 0.1])
    # Nor does it become a part of one.
    found = join([(20, 30, 50, 100, 1, 0.1)], [(20, 80, 50, 150, 1, 0.9)])
    assert len(found) == 2


def test_neighbours_stay_apart():
    # Of another class; not in line; not at the seam; far from each other across the seam.
    assert len(join([(20, 30, 50, 100, 1, 0.8)], [(20, 80, 50, 150, 2, 0.8)])) == 2
    assert len(join([(20, 30, 50, 100, 1, 0.8)], [(45, 80, 95, 150, 1, 0.8)])) == 2
    assert len(join([(20, 30, 50, 92, 1, 0.8)], [(20, 88, 50, 150, 1, 0.8)])) == 2


def test_a_part_has_one_continuation():
    parts = join(
        [(20, 30, 50, 100, 1, 0.8)], [(20, 80, 50, 150, 1, 0.8), (20, 80, 38, 120, 1, 0.8)]
    )
    assert [20, 30, 50, 150] in parts.boxes.tolist()
    found = join(
        [(0, 30, 20, 100, 1, 0.8), (22, 30, 42, 100, 1, 0.8)],
        [(0, 80, 20, 150, 1, 0.8), (22, 80, 42, 150, 1, 0.8)],
    )
    assert sorted(found.boxes.tolist()) == [[0, 30, 20, 150], [22, 30, 42, 150]]


def test_the_mask_of_an_object_is_that_of_its_parts():
    # A whole part on the left; on the right the upper half only.
    half = np.zeros((1, 5, 5), np.float32)
    half[:, :2] = 1
    parts = [
        objects((20, 0, 60, 100, 1, 0.8), masks=np.ones((1, 5, 5), np.float32)),
        objects((20, 80, 60, 180, 1, 0.8), masks=half),
    ]
    (mask,) = merging.joined(parts, [LEFT, RIGHT], SIZE).masks
    # The columns are at 0, 45, 90, 135 and 180.
    np.testing.assert_allclose(mask, [[1, 1, 1, 1, 1]] * 2 + [[1, 1, 1, 0, 0]] * 3, atol=1e-6)


def test_the_surer_keypoints_of_the_parts_are_kept():
    def part(box, points, scores):
        return objects(
            box,
            keypoints=np.array([points], np.float32),
            keypoint_scores=np.array([scores], np.float32),
        )

    parts = [
        part((20, 30, 50, 100, 1, 0.9), [[21, 31], [50, 99]], [0.8, 0.1]),
        part((20, 80, 50, 150, 1, 0.8), [[21, 81], [49, 149]], [0.2, 0.7]),
    ]
    found = merging.joined(parts, [LEFT, RIGHT], SIZE)
    np.testing.assert_allclose(found.keypoints, [[[21, 31], [49, 149]]])
    np.testing.assert_allclose(found.keypoint_scores, [[0.8, 0.7]])


def test_nothing_is_joined_to_nothing():
    assert len(join([], [])) == 0
    assert len(merging.fused([objects(), objects()])) == 0
    assert len(merging.suppressed(objects())) == 0


def test_boxes_are_averaged_by_their_scores():
    # Weighted boxes fusion by hand: (0.9 * 10 + 0.6 * 12) / 1.5 = 10.8, and so on.
    first = objects((10, 10, 50, 50, 1, 0.9), (0, 0, 9, 9, 1, 0.8), (10, 10, 50, 50, 2, 0.3))
    second = objects((12, 10, 50, 55, 1, 0.6))
    found = merging.fused([first, second])
    np.testing.assert_allclose(
        found.boxes, [[10.8, 10, 50, 52], [0, 0, 9, 9], [10, 10, 50, 50]], rtol=1e-6
    )
    # Means of the scores; what one of the two views lacks has half of its score.
    np.testing.assert_allclose(found.scores, [0.75, 0.4, 0.15], rtol=1e-6)
    assert found.classes.tolist() == [1, 1, 2]


def test_a_cluster_is_compared_by_its_average():
    # The third box overlaps the first by less than 0.55, and their average with the second by more.
    rows = [(0, 0, 10, 100, 1, 0.5), (0, 20, 10, 120, 1, 0.5), (0, 30, 10, 130, 1, 0.5)]
    assert 70 / 130 < 0.55 < 80 / 120
    found = merging.fused([objects(row) for row in rows])
    np.testing.assert_allclose(found.boxes, [[0, 50 / 3, 10, 350 / 3]], rtol=1e-6)


def test_suppression_is_by_class():
    rows = [(0, 0, 10, 10, 1, 0.5), (0, 0, 10, 11, 1, 0.9), (0, 0, 10, 10, 2, 0.4)]
    found = merging.suppressed(objects(*rows))
    np.testing.assert_allclose(found.scores, [0.9, 0.4])
