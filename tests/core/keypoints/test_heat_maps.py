"""Heat maps of keypoints: targets by hand, and decoding by an oracle in NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from object_detection.core.keypoints import heat_maps
from tests.rows import parametrize

NAN = float('nan')


def cubic_weights(position: float, count: int) -> np.ndarray:
    """Weights [count] of cells at whole numbers, for cubic convolution that repeats the edges."""
    weights = np.zeros(count)
    first = int(np.floor(position)) - 1
    for cell in range(first, first + 4):
        x = abs(position - cell)
        if x <= 1:
            weight = 1.25 * x**3 - 2.25 * x**2 + 1
        else:
            weight = -0.75 * x**3 + 3.75 * x**2 - 6 * x + 3
        weights[min(max(cell, 0), count - 1)] += weight
    return weights


def oracle(heat_map: np.ndarray, box: np.ndarray) -> tuple[np.ndarray, float]:
    """The keypoint of detectron2: enlarged to the box's pixels, the pixel with the most."""
    size = np.ceil(box[2:] - box[:2]).astype(int)
    rows, columns = (
        np.stack([cubic_weights((i + 0.5) * count / side - 0.5, count) for i in range(side)])
        for side, count in zip(size, heat_map.shape, strict=True)
    )
    enlarged = rows @ heat_map @ columns.T
    pixel = np.unravel_index(enlarged.argmax(), enlarged.shape)
    point = (np.array(pixel) + 0.5) * (box[2:] - box[:2]) / size + box[:2]
    return point, float(np.exp(enlarged.max()) / np.exp(heat_map).sum())


def smooth_maps(count: int, size: tuple[int, int], peak: float = 6.0, seed: int = 0) -> np.ndarray:
    """Peaks at places between cells, on slopes, float32 [count, *size]."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[: size[0], : size[1]]
    maps = []
    for _ in range(count):
        y, x = rng.uniform(0, size)
        hill = peak * np.exp(-((rows - y) ** 2 + (columns - x) ** 2) / (2 * rng.uniform(1.5, 3)))
        maps.append(hill)
    return np.stack(maps).astype(np.float32)


def decode(maps: np.ndarray, boxes: np.ndarray, **options) -> tuple[np.ndarray, np.ndarray]:
    function = tf.function(heat_maps.decode_heat_maps, autograph=False, **options)
    points, scores = function(tf.constant(maps), tf.constant(boxes, tf.float32))
    return points.numpy(), scores.numpy()


def test_targets_by_hand():
    box = [10.0, 20.0, 18.0, 36.0]  # 4 x 4 cells of 2 x 4 pixels.
    points = [
        [10.0, 20.0],  # The corner: cell (0, 0).
        [13.9, 20.0],  # (1, 0)
        [14.0, 27.9],  # (2, 1)
        [18.0, 36.0],  # The other corner belongs to the last cell.
        [18.1, 30.0],  # Below the box.
        [12.0, 19.9],  # At its left.
        [NAN, NAN],
        [NAN, 25.0],
    ]
    found = heat_maps.heat_map_targets(
        tf.constant([[[[0.0, 0.0]] * 8, points]]),
        tf.constant([[box, [0.0, 0.0, 0.0, 0.0]]]),
        tf.constant([[1, 0]]),
        (4, 4),
    )
    np.testing.assert_array_equal(found.cells[0, 0], [0, 4, 9, 15, 0, 0, 0, 0])
    np.testing.assert_array_equal(found.is_inside[0, 0], [True] * 4 + [False] * 4)
    # A box of no size has no cells, not even for a point on it.
    assert not found.is_inside[0, 1].numpy().any()


def test_maps_that_are_not_square_have_rows_and_columns():
    found = heat_maps.heat_map_targets(
        tf.constant([[[[0.5, 0.5], [0.99, 0.26]]]]),
        tf.constant([[[0.0, 0.0, 1.0, 1.0]]]),
        tf.constant([[0]]),
        (2, 8),
    )
    np.testing.assert_array_equal(found.cells[0, 0], [1 * 8 + 4, 1 * 8 + 2])


@parametrize('compiled', [False, True])
@parametrize('is_static', [False, True])
def test_no_objects_give_no_targets(compiled, is_static):
    function = tf.function(
        lambda points: heat_maps.heat_map_targets(
            points, tf.ones([2, 3, 4]), tf.zeros([2, 3], tf.int32), (4, 4)
        ),
        input_signature=[tf.TensorSpec([2, 0 if is_static else None, 5, 2])],
        jit_compile=compiled,
        autograph=False,
    )
    found = function(tf.zeros([2, 0, 5, 2]))
    assert found.cells.shape == (2, 3, 5)
    assert not found.is_inside.numpy().any()


@pytest.mark.parametrize('side', [30.0, 112.0, 333.5])
def test_decoding_finds_the_point_of_detectron2(side):
    size = (14, 20)
    maps = smooth_maps(24, size).reshape(6, 4, *size)
    boxes = np.tile([3.0, 5.0, 3.0 + side, 5.0 + 0.7 * side], (6, 1))
    points, scores = decode(maps, boxes)
    # Half a pixel of the box there, half a step of a cell here.
    cells = np.array([side, 0.7 * side]) / size
    tolerance = 0.5 + cells / 32 + 1e-3
    for region, keypoint in np.ndindex(6, 4):
        point, score = oracle(maps[region, keypoint].astype(np.float64), boxes[region])
        assert (np.abs(points[region, keypoint] - point) <= tolerance).all()
        # Of the two, ours is as near to the top, or nearer than a pixel lets it be.
        assert scores[region, keypoint] >= min(score, 1.0) * (1 - 2e-3)


def test_decoding_by_hand():
    maps = np.full((1, 3, 4, 4), -100.0, np.float32)
    maps[0, 0, 1, 2] = 0.0  # A cell alone: its middle.
    maps[0, 1, 2, 1:3] = 0.0  # Two equal cells: the middle between them.
    maps[0, 2] = 0.0  # A flat map: one of 16 cells.
    points, scores = decode(maps, [[0.0, 0.0, 8.0, 4.0]])
    np.testing.assert_allclose(points[0, 0], [1.5 * 2, 2.5], atol=1e-6)
    np.testing.assert_allclose(points[0, 1], [2.5 * 2, 2.0], atol=1e-6)
    np.testing.assert_allclose(scores[0], [1.0, 1.0, 1 / 16], rtol=1e-6)


def test_a_peak_at_the_edge_stays_in_the_box():
    maps = np.zeros((1, 2, 5, 5), np.float32)
    maps[0, 0, 0, 0], maps[0, 1, 4, 4] = 9.0, 9.0
    points, _ = decode(maps, [[1.0, 1.0, 2.0, 2.0]])
    # The edge repeats the cell, so that the top reaches at most to it.
    assert (points >= 1.0).all()
    assert (points <= 2.0).all()
    assert (np.abs(points[0] - [[1.0, 1.0], [2.0, 2.0]]) <= 0.1).all()


def test_no_regions_and_xla():
    size = (8, 8)
    points, scores = decode(np.zeros((0, 3, *size), np.float32), np.zeros((0, 4)))
    assert points.shape == (0, 3, 2)
    assert scores.shape == (0, 3)
    maps = smooth_maps(6, size).reshape(2, 3, *size)
    boxes = np.array([[0, 0, 30, 20], [4, 4, 90, 60]], np.float32)
    plain, compiled = decode(maps, boxes), decode(maps, boxes, jit_compile=True)
    np.testing.assert_allclose(compiled[0], plain[0], atol=1e-4)
    np.testing.assert_allclose(compiled[1], plain[1], rtol=1e-4)
