"""The comparison of a timed step with the plain execution."""

import importlib
import pathlib

import numpy as np
import pytest

from tests import rows

FOLDER = pathlib.Path(__file__).resolve().parents[2] / 'benchmarks'


@pytest.fixture
def agreement(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module('agreement')


def detections():
    rng = np.random.default_rng(0)
    corners = rng.uniform(0, 0.5, (1, 6, 2))
    return {
        'detection_boxes': np.concatenate([corners, corners + 0.3], axis=2),
        'detection_classes': np.arange(6.0)[np.newaxis],
        'detection_scores': np.linspace(0.9, 0.4, 6)[np.newaxis],
        'detection_masks': rng.uniform(0, 1, (1, 6, 4, 4)),
        'num_detections': np.array([5.0]),
    }


def test_detections_in_another_order_are_the_same(agreement):
    plain, timed = detections(), detections()
    for name in ('detection_boxes', 'detection_classes', 'detection_masks'):
        timed[name][0, [1, 2]] = timed[name][0, [2, 1]]
    result = agreement.detections(timed, plain, 'float32')
    assert result['agrees']
    assert result['matched'] == 1
    assert result['mask_difference'] == result['score_difference'] == 0


def test_boxes_without_area_and_equal_ones_are_found_again(agreement):
    flat, equal = detections(), detections()
    flat['detection_boxes'][..., 2:] = flat['detection_boxes'][..., :2]
    assert agreement.detections(flat, flat, 'float32')['matched'] == 1
    equal['detection_boxes'][:] = equal['detection_boxes'][0, 0]
    equal['detection_classes'][:] = 2
    result = agreement.detections(equal, equal, 'float32')
    assert result['matched'] == 1


@rows.parametrize(
    ('name', 'shift', 'in_short'),
    [
        ('detection_scores', 2e-3, True),
        ('detection_scores', 2e-2, False),
        ('detection_masks', 0.1, True),
        ('detection_boxes', 0.3, True),
        ('num_detections', 1, False),
    ],
)
def test_differences_are_reported(agreement, name, shift, in_short):
    timed = detections()
    timed[name] = timed[name] + shift
    assert not agreement.detections(timed, detections(), 'float32')['agrees']
    assert agreement.detections(timed, detections(), 'mixed_bfloat16')['agrees'] is in_short
    assert 'DIFFERS' in agreement.line(
        agreement.detections(timed, detections(), 'float32'), 'float32'
    )


def test_losses(agreement):
    plain = {'a': 2.0, 'b': 0.0}
    assert agreement.losses({'a': 2.001, 'b': 0.0}, plain, 'float32')['agrees']
    assert not agreement.losses({'a': 2.01, 'b': 0.0}, plain, 'float32')['agrees']
    assert agreement.losses({'a': 2.01, 'b': 0.0}, plain, 'mixed_bfloat16')['agrees']
    assert not agreement.losses({'a': np.nan, 'b': 0.0}, plain, 'mixed_bfloat16')['agrees']


def test_a_number_that_is_none_differs(agreement):
    found = agreement.losses({'a': 1.0, 'b': float('nan')}, {'a': 1.0, 'b': 2.0}, 'float32')
    assert not found['agrees']


@rows.parametrize(('precision', 'error'), [('float32', 1e-4), ('mixed_bfloat16', 5e-2)])
def test_what_layers_give_is_compared_as_a_whole(agreement, precision, error):
    plain = {'a': np.ones((2, 3)), 'b': np.zeros(2)}
    near = plain | {'a': plain['a'] * (1 + 0.9 * error)}
    assert agreement.arrays(near, plain, precision)['agrees']
    far = plain | {'a': plain['a'] * (1 + 1.1 * error)}
    assert not agreement.arrays(far, plain, precision)['agrees']
    assert not agreement.arrays(plain | {'b': np.full(2, np.nan)}, plain, precision)['agrees']


def test_what_rounding_does_to_the_plain_execution_is_allowed(agreement):
    plain = {'a': np.ones(4)}
    rounded, timed = {'a': np.full(4, 1.2)}, {'a': np.full(4, 0.75)}
    precision = 'mixed_bfloat16'
    assert not agreement.arrays(timed, plain, precision)['agrees']
    assert agreement.arrays(timed, plain, precision, rounded)['agrees']
    assert not agreement.arrays({'a': np.full(4, 0.65)}, plain, precision, rounded)['agrees']
    expected = detections()
    lower = expected | {'detection_scores': expected['detection_scores'] - 0.1}
    lowest = expected | {'detection_scores': expected['detection_scores'] - 0.2}
    assert not agreement.detections(lower, expected, precision)['agrees']
    assert agreement.detections(lower, expected, precision, lower)['agrees']
    assert not agreement.detections(lowest, expected, precision, lower)['agrees']
