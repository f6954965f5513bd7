import numpy as np
import pytest

from object_detection.metrics.analysis import thresholds
from tests import rows
from tests.metrics.analysis.cases import AT, AWAY, NEAR, image


def test_by_score():
    found = [(1, AT, 0.9), (2, AWAY, 0.6), (1, AWAY, 0.3), (7, AT, 0.95)]
    images = [image([(1, AT), (2, AWAY)], found), image([(2, AT)], [(2, NEAR, 0.4)])]
    measured = thresholds.by_score(images, [1, 2])

    def at(score):
        row = round(100 * score) - 1
        return measured.precisions[row], measured.recalls[row], measured.f1[row]

    assert at(0.9) == pytest.approx((1, 1 / 3, 0.5))
    assert at(0.6) == pytest.approx((1, 2 / 3, 0.8))
    assert at(0.4) == pytest.approx((1, 1, 1))
    # A detection with a score of the threshold counts.
    assert at(0.3) == pytest.approx((3 / 4, 1, 6 / 7))
    assert np.isnan(at(0.91)[0])
    # F1 is 1 from 0.31 to 0.40.
    assert measured.advice() == {'score_threshold': 0.35, 'precision': 1, 'recall': 1, 'f1': 1}


def test_float32_scores_count_from_their_threshold_on():
    one = image([(1, AT)], [(1, AT, np.float32(0.7))])
    assert thresholds.by_score([one], [1]).recalls[[69, 70]].tolist() == [1, 0]


@rows.parametrize('images', [[], [image([(1, AT)])], [image([], [(1, AT, 0.9)])]])
def test_without_a_found_object_there_is_no_advice(images):
    assert thresholds.by_score(images, [1]) is None
