"""Operations of policies: their magnitudes, what they change, and how often."""

import collections
import math

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageOps

from object_detection.core.fields import InputFields as F
from object_detection.data.augmentation.policies import operations
from object_detection.data.augmentation.policies.autoaugment import RandAugment
from object_detection.data.augmentation.policies.operations import OPERATIONS, Choice, values_of
from tests import slow_cases
from tests.data import examples
from tests.rows import parametrize

FILL = 128


def example(image, boxes):
    boxes = np.reshape(np.float32(boxes), [-1, 4])
    keypoints = tf.constant(boxes.reshape(-1, 2, 2))
    return {
        F.IMAGE: tf.constant(image),
        F.GROUNDTRUTH_BOXES: tf.constant(boxes),
        F.GROUNDTRUTH_TRACK_IDS: tf.range(len(boxes)),
        F.GROUNDTRUTH_KEYPOINTS: keypoints,
        F.GROUNDTRUTH_KEYPOINT_VISIBILITIES: tf.ones(keypoints.shape[:2], tf.bool),
        F.GROUNDTRUTH_INSTANCE_MASK_CROPS: tf.fill([len(boxes), 8, 8], tf.constant(255, tf.uint8)),
        F.SOURCE_ID: tf.constant('a'),
    }


def apply(name, given, magnitude=10.0, seed=0, *, in_all_boxes=False):
    """Applies one operation; `in_all_boxes` leaves no box out."""
    layers = RandAugment(1, magnitude, (name,)).draw(tf.constant([seed, 5], tf.int64))
    if in_all_boxes:
        layers = layers._replace(values=tf.concat([layers.values[:, :-1], [[1.0]]], axis=1))
    return operations.apply(given, [name], layers)


# Magnitude 6 and 10 -> the value that is not 0, but for the probability of boxes.
VALUES = {
    'AutoContrast': (None, None),
    'Equalize': (None, None),
    'Posterize': (64, 16),  # 2 bits, 4 bits
    'Solarize': (153, 256),
    'SolarizeAdd': (66, 110),
    'Color': (1.18, 1.9),
    'Contrast': (1.18, 1.9),
    'Brightness': (1.18, 1.9),
    'Sharpness': (1.18, 1.9),
    'Cutout': (60, 100),
    'BBox_Cutout': (0.45, 0.75),
    'Rotate_BBox': (math.radians(18), math.radians(30)),
    'TranslateX_BBox': (150, 250),
    'TranslateY_BBox': (150, 250),
    'ShearX_BBox': (0.18, 0.3),
    'ShearY_BBox': (0.18, 0.3),
    'Rotate_Only_BBoxes': (math.radians(18), math.radians(30)),
    'TranslateX_Only_BBoxes': (72, 120),
    'TranslateY_Only_BBoxes': (72, 120),
    'ShearX_Only_BBoxes': (0.18, 0.3),
    'ShearY_Only_BBoxes': (0.18, 0.3),
    'Flip_Only_BBoxes': (None, None),
    'Solarize_Only_BBoxes': (153, 256),
    'Equalize_Only_BBoxes': (None, None),
    'Cutout_Only_BBoxes': (30, 50),
}


def test_magnitudes_are_the_published_ones():
    assert VALUES.keys() == OPERATIONS.keys()
    for name, values in VALUES.items():
        for magnitude, value in zip((6, 10), values, strict=True):
            *own, of_box = values_of(Choice(name, 0.6, magnitude))
            np.testing.assert_allclose(np.sum(own), value or 0, rtol=1e-6, err_msg=name)
            assert np.count_nonzero(own) == (value is not None), name
            assert of_box == pytest.approx(0.2)
    assert values_of(Choice('Posterize', 0.8, 2))[0] == 128  # One bit, not none.
    assert values_of(Choice('Solarize', 1, 0))[0] == 0
    assert values_of(Choice('Color', 1, 0))[0] == np.float32(0.1)


# Operation -> box of (0.4, 0.2, 0.6, 0.3) of 100 x 200 pixels, and of its direction's opposite.
SHIFT, SHEAR = 10, 0.12
MOVED = {
    # Rows 40 to 60, columns 40 to 60.
    'TranslateY_BBox': lambda sign: (40 + sign * SHIFT, 40, 60 + sign * SHIFT, 60),
    'TranslateX_BBox': lambda sign: (40, 40 + sign * SHIFT, 60, 60 + sign * SHIFT),
    # The first corner of the image stays.
    'ShearY_BBox': lambda sign: (
        40 + min(sign * SHEAR * 40, sign * SHEAR * 60),
        40,
        60 + max(sign * SHEAR * 40, sign * SHEAR * 60),
        60,
    ),
    'ShearX_BBox': lambda sign: (
        40,
        40 + min(sign * SHEAR * 40, sign * SHEAR * 60),
        60,
        60 + max(sign * SHEAR * 40, sign * SHEAR * 60),
    ),
    # By 12 degrees.
    'Rotate_BBox': lambda sign: turned(sign * math.radians(12)),
}


def turned(angle):
    corners = [(y, x) for y in (-10, 10) for x in (-60, -40)]
    y = [50 + math.cos(angle) * y - math.sin(angle) * x for y, x in corners]
    x = [100 + math.sin(angle) * y + math.cos(angle) * x for y, x in corners]
    return min(y), min(x), max(y), max(x)


@slow_cases.parametrize(2, 'name', MOVED)
def test_boxes_move_either_way(name):
    given = example(np.zeros([100, 200, 3], np.uint8), [(0.4, 0.2, 0.6, 0.3)])
    magnitude = 0.4 if name.startswith('Translate') else 4.0
    expected = {sign: np.array(MOVED[name](sign)) / [100, 200, 100, 200] for sign in (-1, 1)}
    found = set()
    for seed in range(12):
        box = apply(name, given, magnitude, seed)[F.GROUNDTRUTH_BOXES][0]
        sign = min(expected, key=lambda sign: np.abs(box - expected[sign]).max())
        np.testing.assert_allclose(box, expected[sign], atol=1e-5)
        found.add(sign)
    assert found == {-1, 1}


def test_objects_that_leave_the_image_are_dropped():
    # Of 20 columns 4 are left, and 1, of whichever side the image moves to.
    boxes = [(0.4, 0.83, 0.6, 0.93), (0.4, 0.845, 0.6, 0.945), (0.4, 0.45, 0.6, 0.55)]
    boxes += [(0.4, 0.07, 0.6, 0.17), (0.4, 0.055, 0.6, 0.155)]
    given = example(np.zeros([100, 200, 3], np.uint8), boxes)
    found = set()
    for seed in range(12):
        moved = apply('TranslateX_BBox', given, 1.2, seed)  # By 30 columns.
        found.add(tuple(moved[F.GROUNDTRUTH_TRACK_IDS].numpy()))
    assert found == {(0, 2, 3, 4), (0, 1, 2, 3)}


@parametrize('name', [name for name in OPERATIONS if not name.endswith('_BBox')])
def test_other_operations_leave_all_but_the_image(name):
    image = examples.noise(50, 60) // 2 + 20
    given = example(image, [(0.2, 0.2, 0.6, 0.7), (0.5, 0.0, 1.0, 0.3)])
    changed = apply(name, given, magnitude=3.0, in_all_boxes=True)
    for field, value in given.items():
        if field == F.IMAGE:
            assert changed[field].dtype == tf.uint8
            assert (changed[field] != value).numpy().any()
        else:
            np.testing.assert_array_equal(changed[field], value)


@parametrize('name', [name for name, operation in OPERATIONS.items() if operation.is_in_boxes])
def test_pixels_outside_of_boxes_stay(name):
    image = examples.noise(40, 60)
    # 8 to 24 x 12 to 36, and one without a pixel.
    given = example(image, [(0.2, 0.2, 0.6, 0.6), (0.7, 0.5, 0.702, 0.502)])
    is_outside = np.ones([40, 60], bool)
    is_outside[8:24, 12:36] = False
    for seed in range(3):
        changed = apply(name, given, 3.0, seed, in_all_boxes=True)[F.IMAGE].numpy()
        np.testing.assert_array_equal(changed[is_outside], image[is_outside])
        assert (changed[~is_outside] != image[~is_outside]).mean() > 0.2


def test_operations_in_boxes_see_the_box_alone():
    image = examples.noise(40, 60)
    given = example(image, [(0.2, 0.2, 0.6, 0.6), (0.5, 0.5, 1.0, 1.0)])
    expected = image.copy()
    equalized = image.copy()
    for rows, columns in ((slice(8, 24), slice(12, 36)), (slice(20, 40), slice(30, 60))):
        # The second box overlaps the first, and is changed after it.
        expected[rows, columns] = expected[rows, columns][:, ::-1]
        crop = Image.fromarray(equalized[rows, columns])
        equalized[rows, columns] = np.asarray(ImageOps.equalize(crop))
    for name, result in (('Flip_Only_BBoxes', expected), ('Equalize_Only_BBoxes', equalized)):
        changed = apply(name, given, in_all_boxes=True)
        np.testing.assert_array_equal(changed[F.IMAGE], result)
    # By 12 rows of 16.
    found = set()
    for seed in range(12):
        changed = apply(
            'TranslateY_Only_BBoxes',
            example(image, [(0.2, 0.2, 0.6, 0.6)]),
            1.0,
            seed,
            in_all_boxes=True,
        )
        part, old = changed[F.IMAGE].numpy()[8:24, 12:36], image[8:24, 12:36]
        is_down = (part[:12] == FILL).all()
        found.add(is_down)
        expected = np.full_like(old, FILL)
        if is_down:
            expected[12:] = old[:4]
        else:
            expected[:4] = old[12:]
        np.testing.assert_array_equal(part, expected)
    assert len(found) == 2


@pytest.mark.slow
def test_boxes_are_changed_with_a_third_of_the_probability():
    grid = [(y / 10, x / 10, (y + 1) / 10, (x + 1) / 10) for y in range(10) for x in range(10)]
    given = example(np.zeros([20, 20, 3], np.uint8), grid)
    changed = [
        # All pixels of a chosen box are inverted.
        apply('Solarize_Only_BBoxes', given, 0.0, seed)[F.IMAGE].numpy()[::2, ::2, 0] == 255
        for seed in range(10)
    ]
    # 1000 numbers: a standard deviation of 0.015.
    assert abs(np.mean(changed) - 1 / 3) < 0.05
    assert (changed[0] != changed[1]).any()


def test_cutouts():
    image = examples.noise(50, 70) // 2  # Nothing is 128.
    given = example(image, [(0.2, 0.2, 0.6, 0.8), (0.0, 0.0, 0.02, 0.02)])
    places = []
    for seed in range(30):
        erased = (apply('Cutout', given, 1.0, seed)[F.IMAGE].numpy() == FILL).all(axis=-1)
        rows, columns = np.nonzero(erased.any(axis=1))[0], np.nonzero(erased.any(axis=0))[0]
        # A square of 20 pixels, cut by the border.
        assert erased.sum() == len(rows) * len(columns)
        for each, length in ((rows, 50), (columns, 70)):
            assert 10 <= len(each) <= 20
            assert len(each) == 20 or each[0] == 0 or each[-1] == length - 1
        places.append((rows[0], columns[0]))
    assert len(set(places)) > 20
    sizes = collections.Counter()
    for seed in range(20):
        erased = (apply('BBox_Cutout', given, 10.0, seed)[F.IMAGE].numpy() == FILL).all(axis=-1)
        sizes[(erased.any(axis=1).sum(), erased.any(axis=0).sum())] += 1
        rows, columns = np.nonzero(erased)
        if len(rows):
            # Around a pixel of the box of rows 10 to 30 and columns 14 to 56.
            assert 10 <= rows.min() + 7 <= 30
            assert 14 <= columns.max() + 1 - 15 <= 56 or columns.max() == 69
    # Of 20 x 42 pixels 3/4, in whole pixels on each side of the centre; of one pixel none.
    assert {size[0] for size in sizes} <= {0, 14, *range(8, 14)}
    assert sizes[0, 0] > 3
    assert sizes[14, 30] > 3


def test_images_of_one_pixel_and_without_objects():
    for name in OPERATIONS:
        for boxes in ([], [(0, 0, 1, 1)]):
            given = example(np.full([1, 1, 3], 9, np.uint8), boxes)
            changed = apply(name, given, 3.0, in_all_boxes=True)
            assert changed[F.IMAGE].shape == (1, 1, 3)
            if not boxes:
                assert changed[F.GROUNDTRUTH_INSTANCE_MASK_CROPS].shape == (0, 8, 8)
