"""How detections of two frames are compared."""

import importlib
import pathlib

import numpy as np
import pytest

FOLDER = pathlib.Path(__file__).resolve().parents[2] / 'benchmarks'


@pytest.fixture
def program(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module('crop_frames')


def detections(*rows):
    """Rows of a class and the left edge of a box of 0.5 x 0.5; masks are full."""
    boxes = [[0.25, left, 0.75, left + 0.5] for _, left in rows]
    return {
        'detection_boxes': np.array(boxes, np.float32).reshape(-1, 4),
        'detection_classes': np.array([label for label, _ in rows], np.float32),
        'detection_scores': np.linspace(0.9, 0.4, len(rows), dtype=np.float32),
        'detection_masks': np.ones((len(rows), 2, 2), np.float32),
    }


def test_matches_have_one_class_and_take_each_row_once(program):
    wanted = detections((0, 0.1), (0, 0.12), (1, 0.3), (1, 0.1))
    found = detections((0, 0.11), (0, 0.5), (1, 0.32))
    assert program.matches(wanted, found) == [(0, 0), (2, 2)]
    assert program.matches(wanted, detections()) == []
    assert program.matches(detections(), found) == []


def test_masks_are_compared_where_they_lie_in_the_image(program):
    first, second = detections((0, 0.0)), detections((0, 0.25))
    assert program.mask_iou(first, first, (0, 0)) == 1
    assert program.mask_iou(first, second, (0, 0)) == pytest.approx(1 / 3, abs=0.02)


def test_confident_rows_are_kept_with_all_that_belongs_to_them(program):
    kept = program.confident(detections((0, 0.1), (1, 0.2), (2, 0.3)), 0.6)
    np.testing.assert_array_equal(kept['detection_classes'], [0, 1])
    assert kept['detection_masks'].shape == (2, 2, 2)
