"""Keypoints in the pixels of boxes, by an oracle that enlarges the maps and looks at all pixels."""

import numpy as np
import tensorflow as tf

from object_detection.core.keypoints import box_pixels
from tests import slow_cases
from tests.core.keypoints.test_heat_maps import cubic_weights, smooth_maps
from tests.rows import parametrize

# The rounding of sums of 16 products of float32, whose weights sum up to less than 2 in size, of
# values of up to 8; twice, as the place of a pixel in its piece is rounded, too.
TOLERANCE = 2 * 16 * 2 * 8 * 2.0**-24


def enlarged(heat_map: np.ndarray, size: np.ndarray) -> np.ndarray:
    """The map of a box of height and width `size`, in the whole pixels of the box."""
    rows, columns = (
        np.stack([cubic_weights((i + 0.5) * count / side - 0.5, count) for i in range(side)])
        for side, count in zip(np.ceil(size).astype(int), heat_map.shape, strict=True)
    )
    return rows @ heat_map.astype(np.float64) @ columns.T


def decode(maps: np.ndarray, sizes: np.ndarray, **options) -> tuple[np.ndarray, np.ndarray]:
    """Points in pixels from the corners of boxes of these sizes, and scores."""
    boxes = np.concatenate([np.full_like(sizes, 7.0), 7.0 + sizes], axis=1).astype(np.float32)
    limit = tuple(int(side) for side in np.ceil(sizes.max(axis=0)))

    @tf.function(autograph=False, **options)
    def run(maps, boxes):
        return box_pixels.decode_in_pixels(maps, boxes / 512.0, boxes, limit)

    points, scores = run(tf.constant(maps), tf.constant(boxes))
    return points.numpy() * 512 - 7, scores.numpy()


def check(maps: np.ndarray, sizes: np.ndarray, points: np.ndarray, scores: np.ndarray) -> None:
    """Points are the middles of pixels that have the greatest value, to the rounding of values."""
    for region, keypoint in np.ndindex(*scores.shape):
        size = np.maximum(sizes[region], 1.0)
        values = enlarged(maps[region, keypoint], size)
        pixel = points[region, keypoint] / size * values.shape - 0.5
        np.testing.assert_allclose(pixel, np.round(pixel), atol=1e-2)
        value = values[tuple(np.round(pixel).astype(int))]
        assert value >= values.max() - TOLERANCE
        np.testing.assert_allclose(scores[region, keypoint], values.max(), atol=TOLERANCE)


# Boxes of fewer pixels than a map has cells, of many more, and of about as many.
@slow_cases.parametrize(2, 'side', [9.0, 112.4, 30.0, 56.0])
@parametrize('is_compiled', [False, True])
def test_all_pixels_of_a_box_are_searched(side, is_compiled):
    rng = np.random.default_rng(int(side))
    shape = (14, 20)
    hills = smooth_maps(6, shape)
    # The greatest pixel of noise is often not beside the highest cell, above all of small boxes.
    noise = rng.normal(size=(6, *shape)).astype(np.float32)
    maps = np.stack([hills + noise / 10, noise], axis=1)
    sizes = side * rng.uniform(0.2, 1.0, (6, 2))
    check(maps, sizes, *decode(maps, sizes, jit_compile=is_compiled))


def test_cells_side_by_side_exceed_the_highest_one():
    maps = np.zeros((1, 1, 8, 8), np.float32)
    maps[0, 0, 1, 1], maps[0, 0, 6, 4:6] = 1.0, 0.95
    points, scores = decode(maps, np.array([[80.0, 72.0]]))
    # In the middle between the two, 1.1875 of their value, and at the sides of a row almost all.
    np.testing.assert_allclose(points[0, 0], [64.5, 45.5 - 1], atol=1.0)
    assert scores[0, 0] > 1.1


def test_boxes_of_less_than_a_pixel_have_one():
    maps = smooth_maps(2, (6, 6)).reshape(2, 1, 6, 6)
    points, scores = decode(maps, np.array([[0.5, 0.25], [40.0, 30.0]]))
    np.testing.assert_allclose(points[0, 0], [0.5, 0.5], atol=1e-4)
    np.testing.assert_allclose(scores[0, 0], enlarged(maps[0, 0], np.ones(2))[0, 0], atol=TOLERANCE)


def test_a_flat_map_has_the_first_pixel():
    points, scores = decode(np.zeros((1, 2, 5, 5), np.float32), np.array([[20.0, 40.0]]))
    np.testing.assert_allclose(points[0], [[0.5, 0.5]] * 2, atol=1e-4)
    assert not scores.any()


@parametrize('is_compiled', [False, True])
def test_no_boxes(is_compiled):
    function = tf.function(
        lambda maps, boxes: box_pixels.decode_in_pixels(maps, boxes, boxes, (64, 64)),
        autograph=False,
        jit_compile=is_compiled,
    )
    points, scores = function(tf.zeros([0, 3, 5, 5]), tf.zeros([0, 4]))
    assert points.shape == (0, 3, 2)
    assert scores.shape == (0, 3)
