import numpy as np
import pytest

from object_detection.errors import UserError
from object_detection.metrics.analysis import errors
from object_detection.metrics.analysis import images as stored
from object_detection.metrics.analysis.errors import calibrate, confusion_matrix
from object_detection.metrics.analysis.images import match, overlaps, quality
from object_detection.metrics.coco import metrics as coco_metrics
from object_detection.metrics.instances import Instances, box_areas
from tests import rows
from tests.metrics.analysis.cases import AT, AWAY, HALF, NEAR, image, random_images


def with_crowds(seed):
    """Random images in which every fifth object is a crowd."""
    images = random_images(seed, count=60)
    return [each._replace(is_crowd=np.arange(len(each.classes)) % 5 == 4) for each in images]


def test_overlaps():
    found = [(1, AT, 0.9), (1, NEAR, 0.8), (1, HALF, 0.7), (1, AWAY, 0.6)]
    one = image([(1, AT)], found, crowds=[(1, (0, 0, 128, 20))])
    expected = [[1, 0.5], [16 / 24, 0.3], [10 / 30, 0], [0, 0]]
    np.testing.assert_allclose(overlaps(one), expected)


def test_a_crowd_takes_any_number_of_detections():
    one = image([(1, AT)], [(1, AT, 0.9), (1, AT, 0.8), (1, AT, 0.7)], crowds=[(1, AT)])
    matches = match(one, overlaps(one))
    assert matches.objects.tolist() == [0, 1, 1]
    assert matches.is_ignored.tolist() == [False, True, True]


def test_quality_counts_what_is_shown():
    found = [(1, AT, 0.9), (2, AWAY, 0.8), (1, AWAY, 0.2)]
    one = quality(image([(1, AT), (1, AWAY)], found), 0.5)
    assert one == (1, 1, 1)
    assert one.f1 == pytest.approx(0.5)
    assert quality(image(), 0.5).f1 is None


def test_a_curve_of_hand():
    # Matches at ranks 1 and 3 of 2 objects: precision 1 up to recall 0.5, then 2/3.
    curve = errors.curve(np.array([0.5, 0.9, 0.7]), np.array([True, True, False]), 2)
    assert curve.recall == 1.0
    assert curve.ap == pytest.approx((51 * 1.0 + 50 * 2 / 3) / 101)


@rows.parametrize('seed', range(3))
def test_ap_is_that_of_coco(seed):
    images = with_crowds(seed)
    annotated = [
        Instances(i.boxes, i.classes, box_areas(i.boxes), is_crowd=i.is_crowd) for i in images
    ]
    detected = [
        Instances(i.found_boxes, i.found_classes, box_areas(i.found_boxes), scores=i.scores)
        for i in images
    ]
    expected = coco_metrics.measure(annotated, detected, [1, 2, 3]).precision
    found = errors.curves(images, [1, 2, 3])
    by_class = np.stack([found[id_].precisions for id_ in (1, 2, 3)], axis=-1)
    np.testing.assert_allclose(by_class, expected['all'][0], atol=1e-12)
    sizes = [group.ap for group in errors.by_size(images, [1, 2, 3])]
    for ap, name in zip(sizes, ('small', 'medium', 'large'), strict=True):
        values = expected[name][0]
        defined = values[:, values[0] >= 0]
        assert ap == (pytest.approx(defined.mean(), abs=1e-12) if defined.size else None)


def test_ap_by_number_of_objects():
    one = image([(1, AT)], [(1, AT, 0.9)])
    two = image([(1, AT), (1, AWAY)], [(1, AT, 0.9)])
    groups = errors.by_number([one, two], [1])
    assert [(g.name, g.num_objects) for g in groups[:3]] == [('1', 1), ('2 to 4', 2), ('5 to 9', 0)]
    assert [g.ap for g in groups] == [1.0, pytest.approx(51 / 101), None, None, None]


def test_confusion_matrix():
    found = [(2, NEAR, 0.9), (1, AT, 0.8), (2, AWAY, 0.7), (1, HALF, 0.4)]
    # The closest pair comes first, whatever the scores; the other detection is of the background.
    one = image([(1, AT), (2, (40, 40, 60, 60))], found)
    matrix = confusion_matrix([one], [1, 2])
    assert matrix.tolist() == [[1, 0, 0], [0, 0, 1], [0, 2, 0]]
    assert confusion_matrix([], [1, 2]).sum() == 0


def test_confusion_of_classes_in_the_order_of_ids():
    one = image([(7, AT)], [(3, AT, 0.9), (99, AWAY, 0.9)])
    assert confusion_matrix([one], [7, 3]).tolist() == [[0, 1, 0], [0, 0, 0], [0, 0, 0]]


def test_calibration():
    # 0.8 and 0.9 are right, 0.85 is wrong; 0.3 is wrong; 0.01 is left out.
    boxes = [(1, AT, 0.9), (1, NEAR, 0.85), (1, AWAY, 0.8), (1, HALF, 0.3), (1, HALF, 0.01)]
    found = calibrate([image([(1, AT), (1, AWAY)], boxes)], bins=4)
    assert found.counts.tolist() == [0, 1, 0, 3]
    np.testing.assert_allclose(found.scores, [np.nan, 0.3, np.nan, 0.85])
    np.testing.assert_allclose(found.precisions, [np.nan, 0, np.nan, 2 / 3])
    assert found.ece == pytest.approx((0.3 + 3 * (0.85 - 2 / 3)) / 4)
    assert calibrate([]).ece is None


def test_files_keep_all(tmp_path):
    images = [*with_crowds(0), image(name='<b>ü')]
    pictures = [
        stored.Picture('a', 'worst', False, b'\xff\xd8'),
        stored.Picture('b', '', True, b''),
    ]
    random = np.random.RandomState(1)
    posed = [
        each._replace(overlap=random.random_sample((len(each.scores), len(each.classes))))
        for each in images
    ]
    compared = [stored.Compared('keypoints of one', [1], posed)]
    evaluated = stored.EvaluatedImages(7, {1: 'one', 5: '<i>'}, images, 99, pictures, compared)
    stored.save(tmp_path / 'detections.npz', evaluated)
    loaded = stored.load(tmp_path / 'detections.npz')
    assert (loaded.step, loaded.names, loaded.num_images) == (7, {1: 'one', 5: '<i>'}, 99)
    assert loaded.pictures == pictures
    assert len(loaded.images) == len(images)
    assert all(image.overlap is None for image in loaded.images)
    (found,) = loaded.compared
    assert found[:2] == compared[0][:2]
    assert loaded.by(found).names == {1: 'one'}
    pairs = zip([*loaded.images, *found.images], [*images, *posed], strict=True)
    for one, other in pairs:
        assert one[:3] == other[:3]
        for left, right in zip(one[3:], other[3:], strict=True):
            assert (left is None) == (right is None)
            if left is not None:
                np.testing.assert_allclose(left, right, rtol=1e-6)
    assert [path.name for path in tmp_path.iterdir()] == ['detections.npz']


def test_files_without_images(tmp_path):
    stored.save(tmp_path / 'd.npz', stored.EvaluatedImages(0, {}, [], 0, []))
    assert stored.load(tmp_path / 'd.npz').images == []


def test_other_files_are_refused(tmp_path):
    (tmp_path / 'text.npz').write_text('no archive')
    np.savez(tmp_path / 'other.npz', x=np.zeros(3))
    for name in ('text.npz', 'other.npz'):
        with pytest.raises(UserError, match=name):
            stored.load(tmp_path / name)
