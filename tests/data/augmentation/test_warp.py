"""Affine maps: by hand, against NumPy, and crops of masks against full-size masks."""

import math

import numpy as np
import pytest
import tensorflow as tf

from object_detection.core.fields import InputFields as F
from object_detection.data import instance_masks
from object_detection.data.augmentation.warp import AffineDraws, RandomAffine, affine, warp
from tests import rows
from tests.data import examples
from tests.data.augmentation import test_fixed_steps as steps

SEED = tf.constant([3, 4], tf.int64)
QUARTER = math.pi / 2


def example(image, boxes, **fields):
    boxes = tf.constant(np.reshape(boxes, [-1, 4]), tf.float32)
    ids = tf.range(tf.shape(boxes)[0])
    return {
        F.IMAGE: tf.constant(image),
        F.GROUNDTRUTH_BOXES: boxes,
        F.GROUNDTRUTH_TRACK_IDS: ids,
        **fields,
    }


def sampled(image, matrix, color, *, nearest=False):
    """Maps an image [H, W, C] by NumPy, pixel by pixel of the result."""
    height, width, _ = image.shape
    square = np.vstack([np.asarray(matrix, np.float64), [0, 0, 1]])
    y, x = np.mgrid[:height, :width] + 0.5
    y, x, _ = np.linalg.inv(square) @ np.stack([y.ravel(), x.ravel(), np.ones(y.size)])
    y, x = y - 0.5, x - 0.5
    corners = [(np.round(y), np.round(x), 1.0)]
    if not nearest:
        top, left = np.floor(y), np.floor(x)
        corners = [
            (top + i, left + j, (1 - abs(y - top - i)) * (1 - abs(x - left - j)))
            for i in (0, 1)
            for j in (0, 1)
        ]
    result = 0.0
    for row, column, weight in corners:
        is_inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
        places = np.where(is_inside, row, 0).astype(int), np.where(is_inside, column, 0).astype(int)
        value = np.where(is_inside[:, np.newaxis], image[places], color)
        result = result + value * np.reshape(weight, [-1, 1])
    return result.reshape(image.shape)


@rows.parametrize(
    ('arguments', 'point', 'expected'),
    [
        ({}, (3, 4), (3, 4)),
        # 5 pixels to the right of the centre, then 5 above it, and 10 above it.
        ({'angle': QUARTER}, (5, 15), (0, 10)),
        ({'angle': QUARTER, 'scale': 2.0}, (5, 15), (-5, 10)),
        ({'scale': 0.5}, (0, 0), (2.5, 5)),
        ({'shear': (0.0, 0.5)}, (7, 15), (7, 16)),
        ({'shear': (0.5, 0.0)}, (7, 16), (10, 16)),
        ({'shift': (1.0, -3.0)}, (7, 15), (8, 12)),
        ({'shear': (0.0, 0.5), 'angle': QUARTER, 'shift': (1.0, 0.0)}, (7, 15), (0, 12)),
    ],
)
def test_maps_by_hand(arguments, point, expected):
    matrix = affine(tf.constant([10, 20]), **arguments)
    np.testing.assert_allclose(matrix.numpy() @ [*point, 1], expected, atol=1e-5)


def test_boxes_and_points_by_hand():
    boxes = [(0.4, 0.5, 0.6, 0.6), (0.5, 0.9, 0.6, 1.0), (0.5, 0.7, 0.7, 0.9)]
    keypoints = [[(0.4, 0.5), (0.5, 0.55)], [(0.5, 0.9), (0.5, 1.0)], [(0.5, 0.7), (0.5, 0.9)]]
    given = example(
        np.zeros([100, 200, 3], np.uint8),
        boxes,
        **{
            F.GROUNDTRUTH_KEYPOINTS: tf.constant(keypoints),
            F.GROUNDTRUTH_KEYPOINT_VISIBILITIES: tf.constant([[True, False]] * 3),
            F.GROUNDTRUTH_DP_POINTS: tf.constant(keypoints),
        },
    )
    # Columns 0 to 20 right of the centre are rows 0 to 20 above it; 80 to 100 are outside; of 40 to
    # 80, the first quarter is inside.
    turned = warp(given, affine(tf.constant([100, 200]), angle=QUARTER))
    np.testing.assert_array_equal(turned[F.GROUNDTRUTH_TRACK_IDS], [0, 2])
    np.testing.assert_allclose(
        turned[F.GROUNDTRUTH_BOXES], [(0.3, 0.45, 0.5, 0.55), (0, 0.5, 0.1, 0.6)], atol=1e-6
    )
    nan = np.nan
    expected = [[(0.5, 0.45), (0.4, 0.5)], [(0.1, 0.5), (nan, nan)]]
    for name in (F.GROUNDTRUTH_KEYPOINTS, F.GROUNDTRUTH_DP_POINTS):
        np.testing.assert_allclose(turned[name], expected, atol=1e-6)
    np.testing.assert_array_equal(
        turned[F.GROUNDTRUTH_KEYPOINT_VISIBILITIES], [[True, False], [True, False]]
    )
    for least, ids in ((0.24, [0, 2]), (0.26, [0])):
        turned = warp(given, affine(tf.constant([100, 200]), angle=QUARTER), min_overlap=least)
        np.testing.assert_array_equal(turned[F.GROUNDTRUTH_TRACK_IDS], ids)


def test_the_box_is_around_the_mapped_corners():
    given = example(np.zeros([100, 100, 1], np.float32), [(0.4, 0.4, 0.6, 0.6)])
    turned = warp(given, affine(tf.constant([100, 100]), angle=math.pi / 4))
    half = 0.1 * math.sqrt(2)
    np.testing.assert_allclose(
        turned[F.GROUNDTRUTH_BOXES], [[0.5 - half] * 2 + [0.5 + half] * 2], atol=1e-6
    )


def test_visible_keypoints_outside_become_invisible():
    given = example(
        np.zeros([10, 10, 3], np.uint8),
        [(0.0, 0.0, 1.0, 1.0)],
        **{
            F.GROUNDTRUTH_KEYPOINTS: tf.constant([[(0.2, 0.2), (0.2, 0.8)]]),
            F.GROUNDTRUTH_KEYPOINT_VISIBILITIES: tf.constant([[True, True]]),
        },
    )
    moved = warp(given, affine(tf.constant([10, 10]), shift=(0.0, 5.0)))
    np.testing.assert_array_equal(moved[F.GROUNDTRUTH_KEYPOINT_VISIBILITIES], [[True, False]])
    np.testing.assert_allclose(
        moved[F.GROUNDTRUTH_KEYPOINTS], [[(0.2, 0.7), (np.nan, np.nan)]], atol=1e-6
    )


MATRIX = [[0.8, -0.5, 9.0], [0.6, 0.9, -4.0]]


@rows.parametrize('color', [(0.0,), (128.0,), (9.0, 8.0, 250.0)])
@rows.parametrize('dtype', ['uint8', 'float32'])
def test_images_match_numpy(color, dtype):
    image = examples.noise(31, 44).astype(dtype)
    warped = warp(example(image, []), tf.constant(MATRIX), color=color)[F.IMAGE]
    assert warped.dtype == tf.float32
    # Of 255, for places that float32 rounds by 1e-5 pixels.
    np.testing.assert_allclose(warped, sampled(image, MATRIX, color), atol=0.01)


def test_quarters_and_translations_are_exact():
    image = examples.noise(20, 20)
    turned = warp(example(image, []), affine(tf.constant([20, 20]), angle=QUARTER))
    np.testing.assert_allclose(turned[F.IMAGE], np.rot90(image), atol=0.01)
    moved = warp(example(image, []), affine(tf.constant([20, 20]), shift=(3.0, -4.0)), color=(7.0,))
    expected = np.full([20, 20, 3], 7.0)
    expected[3:, :-4] = image[:-3, 4:]
    np.testing.assert_array_equal(moved[F.IMAGE], expected)


def ellipses(size):
    """Full-size masks of ellipses, and the boxes around them."""
    y, x = (np.mgrid[: size[0], : size[1]] + 0.5) / np.reshape(size, [2, 1, 1])
    shapes = [
        (0.03, 0.03, 0.03, 0.03),
        (0.4, 0.4, 0.3, 0.1),
        (0.6, 0.5, 0.1, 0.3),
        (0.3, 0.8, 0.25, 0.15),
        (0.9, 0.1, 0.2, 0.2),
    ]
    masks = [((y - a) / c) ** 2 + ((x - b) / d) ** 2 < 1 for a, b, c, d in shapes]
    boxes = np.array([(a - c, b - d, a + c, b + d) for a, b, c, d in shapes], np.float32)
    return np.array(masks, np.uint8), np.clip(boxes, 0, 1)


@rows.parametrize('angle', [0.4, -1.2, 2.5])
def test_crops_of_masks_follow_as_full_size_masks_do(angle):
    size = (240, 320)
    masks, boxes = ellipses(size)
    given = example(
        np.zeros([*size, 3], np.uint8),
        boxes,
        **{
            F.GROUNDTRUTH_INSTANCE_MASKS: tf.constant(masks),
            F.GROUNDTRUTH_INSTANCE_MASK_CROPS: instance_masks.crop(masks, boxes, 56),
        },
    )
    matrix = affine(tf.constant(size), angle=angle, scale=1.2, shear=(0.1, -0.2), shift=(5.0, 3.0))
    warped = warp(given, matrix)
    full = warped[F.GROUNDTRUTH_INSTANCE_MASKS].numpy()
    crops = warped[F.GROUNDTRUTH_INSTANCE_MASK_CROPS].numpy() > 127
    kept = warped[F.GROUNDTRUTH_TRACK_IDS].numpy()
    # The first one leaves the image.
    np.testing.assert_array_equal(kept, [1, 2, 3, 4])
    for mask, row in zip(full, kept, strict=True):
        expected = sampled(masks[row][..., np.newaxis], matrix, 0, nearest=True)[..., 0]
        # But for pixels whose place is at half of two in float64 or float32.
        assert (mask != expected).mean() < 0.001
    of_full = instance_masks.crop(full, warped[F.GROUNDTRUTH_BOXES], 56).numpy() > 127
    union, both = (crops | of_full).sum(axis=(1, 2)), (crops & of_full).sum(axis=(1, 2))
    assert (union > 400).all()
    # Half a pixel along the border is up to 3 % of such areas.
    assert (both / union > 0.97).all()


def test_the_identity_changes_nothing():
    size = (37, 53)
    masks, boxes = ellipses(size)
    given = example(
        examples.noise(*size),
        boxes,
        **{
            F.GROUNDTRUTH_INSTANCE_MASKS: tf.constant(masks),
            F.GROUNDTRUTH_INSTANCE_MASK_CROPS: instance_masks.crop(masks, boxes, 28),
            F.GROUNDTRUTH_KEYPOINTS: tf.constant(boxes.reshape(5, 2, 2)),
        },
    )
    step = RandomAffine(max_translation=0.0, min_scale=1.0, max_scale=1.0)
    same = step(given, SEED)
    for name, value in given.items():
        if name == F.GROUNDTRUTH_KEYPOINTS:
            np.testing.assert_allclose(same[name], value, rtol=1e-6)
        else:
            np.testing.assert_array_equal(same[name], value, name)


def test_images_of_one_pixel_and_without_objects():
    given = example(np.full([1, 1, 5], 9.0, np.float32), [])
    given[F.GROUNDTRUTH_INSTANCE_MASKS] = tf.zeros([0, 1, 1], tf.uint8)
    given[F.GROUNDTRUTH_INSTANCE_MASK_CROPS] = tf.zeros([0, 8, 8], tf.uint8)
    warped = warp(given, affine(tf.constant([1, 1]), angle=QUARTER))
    np.testing.assert_allclose(warped[F.IMAGE], given[F.IMAGE], atol=1e-4)
    assert warped[F.GROUNDTRUTH_INSTANCE_MASK_CROPS].shape == (0, 8, 8)


def test_draws_fill_their_ranges():
    step = RandomAffine(10.0, 0.5, 1.5, 20.0, 0.2)
    draw = tf.function(step.draw, autograph=False)
    draws = AffineDraws(
        *map(np.array, zip(*(draw(tf.constant([5, i], tf.int64)) for i in range(300)), strict=True))
    )
    greatest = math.radians(10), math.radians(20), 0.2
    for values, bound in zip((draws.angle, draws.shear, draws.translation), greatest, strict=True):
        assert 0.9 * bound < values.max() <= bound * 1.00001
        assert -0.9 * bound > values.min() >= -bound * 1.00001
        assert abs(values.mean()) < 0.1 * bound
    assert 0.5 <= draws.scale.min() < 0.55 < 1.45 < draws.scale.max() <= 1.5
    # All eight numbers are independent.
    columns = np.c_[draws.angle, draws.scale, draws.shear, draws.translation]
    correlations = np.corrcoef(columns.T) - np.eye(6)
    assert abs(correlations).max() < 0.25


def test_random_numbers_are_applied():
    step = RandomAffine(pad_color=(5.0,))
    draws = AffineDraws(
        tf.constant(0.3), tf.constant(0.8), tf.constant([0.1, -0.2]), tf.constant([0.1, 0.05])
    )
    image = examples.noise(30, 40)
    cos, sin = 0.8 * math.cos(0.3), 0.8 * math.sin(0.3)
    linear = np.array([[cos, -sin], [sin, cos]]) @ [[1, math.tan(0.1)], [math.tan(-0.2), 1]]
    matrix = np.c_[linear, np.array([15 + 3, 20 + 2]) - linear @ [15, 20]]
    changed = step.change(example(image, []), draws)
    np.testing.assert_allclose(changed[F.IMAGE], sampled(image, matrix, 5.0), atol=0.01)


@rows.parametrize(
    ('fields', 'message'),
    [
        ('max_degrees: 181', r'random_affine\.max_degrees: expected 0 to 180\. Received: 181'),
        ('max_shear_degrees: 45', r'max_shear_degrees: expected 0 to below 45\. Received: 45'),
        ('min_scale: 0', r'random_affine\.min_scale: expected above 0'),
        ('max_translation: 2', r'random_affine\.max_translation: expected 0 to 1'),
        ('overlap_thresh: -1', r'random_affine\.overlap_thresh: expected 0 to 1'),
        ('pad_color: [1, 2]', r'random_affine\.pad_color: expected none'),
    ],
)
def test_fields_are_checked(fields, message):
    with pytest.raises(ValueError, match=message):
        steps.build(f'random_affine {{ {fields} }}')
