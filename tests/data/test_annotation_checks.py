"""Sets whose coordinates mean something else than in their format are in doubt."""

import re

import pytest

from object_detection.data import annotation_checks

_START, _SHORT, _OTHER = (
    *('boxes_clipped_left_or_above', 'boxes_clipped_at_end_of_short_side'),
    'boxes_clipped_right_or_below',
)


@pytest.mark.parametrize(
    ('notes', 'num_outside', 'match'),
    [
        ({'boxes_in_first_pixel': 6}, 0, '6 of 100 boxes lie within the first pixel'),
        ({'boxes_in_first_pixel': 5}, 0, ''),
        ({_OTHER: 15, _SHORT: 6}, 0, '21 of 100 boxes .* right or below; are they .x1, y1, x2, y2'),
        ({_OTHER: 15}, 7, '22 of 107 boxes'),
        ({_OTHER: 15}, 61, ''),
        ({_OTHER: 15, _SHORT: 5}, 0, ''),
        ({_OTHER: 20, _START: 5}, 0, ''),
        ({_SHORT: 20, _OTHER: 3}, 0, 'end of its shorter side; are x and y swapped'),
        ({_START: 21}, 0, 'to the left or above; are x and y a corner'),
        ({_START: 15, _OTHER: 15}, 0, ''),
    ],
)
def test_doubt_needs_many_boxes_of_one_kind(notes, num_outside, match):
    found = annotation_checks.doubt(notes, 100, num_outside)
    assert re.search(match, found) if match else not found


def test_few_boxes_at_an_edge_are_no_reason_for_doubt():
    assert annotation_checks.doubt({_OTHER: 2}, 2, 1) == ''
    assert annotation_checks.doubt({_OTHER: 3}, 3)
    assert annotation_checks.doubt({}, 0) == ''
