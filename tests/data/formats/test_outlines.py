import numpy as np
import pytest
from faster_coco_eval.core import mask as coco_mask

from object_detection.data.formats import outlines


def _mask(*rows: str) -> np.ndarray:
    return np.array([[letter == '#' for letter in row] for row in rows])


def _rasterise(polygons: list[np.ndarray], mask: np.ndarray) -> np.ndarray:
    flat = [polygon.ravel().tolist() for polygon in polygons]
    return coco_mask.decode(coco_mask.merge(coco_mask.frPyObjects(flat, *mask.shape))).astype(bool)


def test_rectangle_has_four_corners():
    traced = outlines.trace(_mask('....', '.##.', '.##.', '.##.'))
    assert not traced.holes
    (corners,) = traced.outer
    assert sorted(corners.tolist()) == [[1, 1], [1, 4], [3, 1], [3, 4]]


def test_hole_is_distinguished_from_part():
    traced = outlines.trace(_mask('###', '#.#', '###'))
    assert [len(corners) for corners in traced.outer] == [4]
    assert [sorted(corners.tolist()) for corners in traced.holes] == [
        [[1, 1], [1, 2], [2, 1], [2, 2]]
    ]


@pytest.mark.parametrize('rows', [('#.', '.#'), ('.#', '#.')])
def test_pixels_that_touch_at_a_corner_are_two_parts(rows):
    mask = _mask(*rows)
    traced = outlines.trace(mask)
    assert [len(corners) for corners in traced.outer] == [4, 4]
    np.testing.assert_array_equal(_rasterise(traced.outer, mask), mask)


def test_empty_mask_has_no_outline():
    assert outlines.trace(np.zeros((3, 3), bool)) == ([], [])


def test_outlines_rasterise_to_the_mask():
    rng = np.random.default_rng(0)
    for _ in range(20):
        coarse = rng.random((5, 7)) < 0.5
        mask = np.kron(coarse, np.ones((3, 2), bool))
        traced = outlines.trace(mask)
        holes = _rasterise(traced.holes, mask) if traced.holes else np.zeros_like(mask)
        np.testing.assert_array_equal(_rasterise(traced.outer, mask) & ~holes, mask)


@pytest.mark.parametrize('first', [True, False])
def test_rle_is_coco_s(first):
    mask = np.random.default_rng(1).random((5, 7)) < 0.5
    mask[0, 0] = first
    encoded = outlines.encode_rle(mask)
    assert sum(encoded['counts']) == mask.size
    decoded = coco_mask.decode(coco_mask.frPyObjects(encoded, *mask.shape))
    np.testing.assert_array_equal(decoded, mask)


@pytest.mark.parametrize('value', [True, False])
def test_rle_of_uniform_mask(value):
    encoded = outlines.encode_rle(np.full((2, 3), value))
    assert encoded == {'size': [2, 3], 'counts': [0, 6] if value else [6]}
