"""Sets whose coordinates mean something else than in their format are in doubt."""

import re

import pytest

from object_detection.core import tf_example_keys as keys
from object_detection.data import annotation_checks
from tests import rows

_START, _SHORT, _OTHER = (
    *('boxes_clipped_left_or_above', 'boxes_clipped_at_end_of_short_side'),
    'boxes_clipped_right_or_below',
)


@rows.parametrize(
    ('notes', 'num_outside', 'match'),
    [
        ({'boxes_in_first_pixel': 6}, 0, '6 of 100 boxes lie within the first pixel'),
        ({'boxes_in_first_pixel': 5}, 0, ''),
        ({_OTHER: 15, _SHORT: 6}, 0, '21 of 100 boxes .* right or below; are they .x1, y1, x2, y2'),
        ({_OTHER: 15}, 7, '22 of 107 boxes'),
        ({_OTHER: 15}, 61, ''),
        ({_OTHER: 15}, 71, '86 of 171 boxes .* image; do their numbers mean something else'),
        ({_OTHER: 30, _START: 30}, 0, '60 of 100 .* numbers mean something else'),
        ({}, 101, '101 of 201 .* such as pixels where relative coordinates'),
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


@pytest.mark.parametrize(('number', 'is_doubtful'), [(26, True), (24, False)])
def test_many_boxes_without_area_may_be_no_corners(number, is_doubtful):
    found = annotation_checks.doubt_of_order(100, number)
    assert found.startswith(f'{number} of {100 + number} boxes have a max') == is_doubtful
    assert annotation_checks.doubt_of_order(1, 2) == ''


def test_few_boxes_at_an_edge_are_no_reason_for_doubt():
    assert annotation_checks.doubt({_OTHER: 2}, 2, 1) == ''
    assert annotation_checks.doubt({_OTHER: 3}, 3)
    assert annotation_checks.doubt({}, 0) == ''


CROWD, WEIGHT, DIFFICULT = keys.IS_CROWD, keys.WEIGHT, keys.DIFFICULT


def test_objects_that_do_not_count_as_others_do():
    flags = {CROWD: [1, 0, 0, 1], WEIGHT: [1.0, 0.0, 1.0, -1.0]}
    counts = annotation_checks.ignored(['cat', 'cat', 'dog', 'dog'], flags)
    assert counts == {
        **{(CROWD, 'cat'): 1, (WEIGHT, 'cat'): 1},
        **{('', 'dog'): 1, (CROWD, 'dog'): 1, (WEIGHT, 'dog'): 1},
    }


def test_a_set_in_which_nothing_counts():
    counts = annotation_checks.ignored(['cat'] * 3, {CROWD: [1, 1, 0], DIFFICULT: [0, 1, 1]})
    text, others = annotation_checks.said_of_ignored({'cat': 3}, counts)
    assert text == (
        'No record has an object that can be trained on and evaluated: of 3, 2 are crowds, which '
        'skip_crowd leaves out and metrics of COCO ignore; 2 are difficult, which metrics of '
        'PASCAL VOC ignore.'
    )
    assert others == []
    assert annotation_checks.said_of_ignored({}, {}) == ('', [])


def test_classes_of_which_most_objects_do_not_count():
    classes = ['cat'] * 3 + ['dog'] * 2
    counts = annotation_checks.ignored(classes, {CROWD: [1, 1, 0, 1, 0]})
    text, sentences = annotation_checks.said_of_ignored({'cat': 3, 'dog': 2}, counts)
    assert text == ''
    assert [sentence.rpartition(': ')[2] for sentence in sentences] == ['cat (2 of 3).']
