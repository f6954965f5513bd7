import pytest

from object_detection.metrics.analysis import errors
from tests import rows
from tests.metrics.analysis.cases import AT, AWAY, HALF, NEAR, image, random_images


def measured(*images, class_ids=(1, 2)):
    return {each.name: (each.count, each.cost) for each in errors.measure(images, class_ids)}


NONE = dict.fromkeys(errors.KINDS, (0, 0.0))


@rows.parametrize(
    ('found', 'kind', 'cost'),
    [
        # The only detection is wrong: AP is 0, and 1 with the class or the box put right.
        ([(2, AT, 0.9)], errors.CLASSIFICATION, 1.0),
        ([(1, HALF, 0.9)], errors.LOCALISATION, 1.0),
        # A false detection before the match: the precision is 1/2 at every recall.
        ([(1, AWAY, 0.9), (1, AT, 0.8)], errors.BACKGROUND, 0.5),
        ([(2, HALF, 0.9), (1, AT, 0.8)], errors.BOTH, 0.0),
        # The duplicate is behind the match, so that it costs nothing.
        ([(1, AT, 0.9), (1, NEAR, 0.8)], errors.DUPLICATE, 0.0),
    ],
)
def test_each_kind_of_error(found, kind, cost):
    assert measured(image([(1, AT)], found)) == NONE | {kind: (1, pytest.approx(cost))}


def test_missed_objects_no_longer_count():
    # One of two objects is found: the precision is 1 up to a recall of 0.5, 51 of 101 points.
    found = measured(image([(1, AT), (1, AWAY)], [(1, AT, 0.9)]))
    assert found == NONE | {errors.MISSED: (1, pytest.approx(1 - 51 / 101))}


def test_a_class_that_is_never_detected_costs_what_tidecv_says():
    never = image([(1, AT), (2, AWAY)], [(1, AT, 0.9)])
    assert measured(never) == NONE | {errors.MISSED: (1, pytest.approx(0.5))}
    # The class 2 has a recall of 1/2, 51 of 101 points, in another image.
    found = measured(never, image([(2, AT)], [(2, AT, 0.9)]))
    assert found == NONE | {errors.MISSED: (1, pytest.approx(0.5 - 51 / 202))}
    # False detections of a class keep it in the mean, with an AP of 0.
    found = measured(image([(1, AT), (2, AT)], [(1, AT, 0.9), (2, AWAY, 0.8)]))
    assert found[errors.MISSED] == (1, 0.0)


def test_a_model_that_detects_nothing_misses_everything():
    assert measured(image([(1, AT), (2, AWAY)])) == NONE | {errors.MISSED: (2, 1.0)}


def test_one_error_of_an_object_is_fixed_and_others_are_removed():
    found = [(1, HALF, 0.9), (1, HALF, 0.8), (1, HALF, 0.7)]
    assert measured(image([(1, AT)], found))[errors.LOCALISATION] == (3, pytest.approx(1.0))


def test_crowds_are_left_out():
    crowded = image([(1, AT)], [(1, AT, 0.9), (1, AWAY, 0.95)], crowds=[(1, AWAY)])
    assert measured(crowded) == NONE


def test_without_objects_or_detections():
    assert measured() == NONE
    assert measured(image()) == NONE
    assert measured(image(found=[(1, AT, 0.5)])) == NONE | {errors.BACKGROUND: (1, 0.0)}


def test_equal_to_tidecv():
    # Printed by tidecv 1.0.1 for these images, in percent there.
    expected = {
        errors.CLASSIFICATION: (12, 0.040603706),
        errors.LOCALISATION: (40, 0.180924622),
        errors.BOTH: (5, 0.008539295),
        errors.DUPLICATE: (51, 0.055274784),
        errors.BACKGROUND: (22, 0.0115354),
        errors.MISSED: (14, 0.090776588),
    }
    found = measured(*random_images(0), class_ids=(1, 2, 3))
    assert found == {k: (n, pytest.approx(cost, abs=1e-9)) for k, (n, cost) in expected.items()}
