"""Crops around small objects: by hand, and as they are drawn."""

import numpy as np
import pytest
import tensorflow as tf

from object_detection.core.fields import InputFields as F
from object_detection.data.augmentation.small_objects import SmallObjectCrop
from object_detection.data.augmentation.window import Window
from tests.data import examples
from tests.data.augmentation import test_fixed_steps as steps

SIZE = (100, 200)
LARGE = (0.1, 0.1, 0.9, 0.9)
SMALL = (0.80, 0.30, 0.85, 0.35)


def draw_many(step, boxes, *, size=SIZE, count=200):
    """Windows of several seeds: int [count, 4], the first row and column, height and width."""
    draw = tf.function(step.draw, autograph=False)
    boxes = tf.constant(np.reshape(boxes, [-1, 4]), tf.float32)
    return np.array(
        [draw(tf.constant(size), boxes, tf.constant([7, i], tf.int64)) for i in range(count)]
    )


def contains(windows, box, size=SIZE):
    corners = np.concatenate([windows[:, :2], windows[:, :2] + windows[:, 2:]], axis=1)
    box = np.array(box) * [*size, *size] + [1e-4, 1e-4, -1e-4, -1e-4]
    return ((corners[:, :2] <= box[:2]) & (corners[:, 2:] >= box[2:])).all(axis=1)


def test_the_window_is_anywhere_around_a_small_object():
    windows = draw_many(SmallObjectCrop(), [LARGE, SMALL])
    assert contains(windows, SMALL).all()
    assert not contains(windows, LARGE).any()
    ends = windows[:, :2] + windows[:, 2:]
    assert windows.min() >= 0
    assert (ends <= SIZE).all()
    scale = windows[:, 2:] / SIZE
    np.testing.assert_allclose(scale[:, 0], scale[:, 1], atol=0.0051)  # Half a pixel of 100.
    assert 0.295 < scale.min() < 0.33 < 0.77 < scale.max() < 0.805
    assert abs(scale.mean() - 0.55) < 0.03
    # From the object's first row or column at the window's end to its last one at the start.
    assert (windows[:, :2].min(axis=0) < [25, 5]).all()
    assert (windows[:, :2].max(axis=0) > [68, 57]).all()


def test_each_small_object_is_drawn_and_no_large_one():
    others = [(0.1, 0.1, 0.15, 0.15), (0.1, 0.9, 0.15, 0.95), SMALL]
    step = SmallObjectCrop(min_scale=0.2, max_scale=0.3)
    windows = draw_many(step, [*others, LARGE], count=300)
    drawn = np.array([contains(windows, box) for box in others])
    np.testing.assert_array_equal(drawn.sum(axis=0), 1)
    np.testing.assert_allclose(drawn.mean(axis=1), 1 / 3, atol=0.09)


def test_without_small_objects_any_is_drawn_and_the_window_grows_with_it():
    step = SmallObjectCrop(small_area=0.01, min_scale=0.2, max_scale=0.3)
    windows = draw_many(step, [LARGE, (0.0, 0.0, 0.25, 0.1)])
    is_large = contains(windows, LARGE)
    assert 0.35 < is_large.mean() < 0.65
    # 0.8 of both sides.
    assert (windows[is_large] == [10, 20, 80, 160]).all()
    rest = windows[~is_large]
    assert contains(rest, (0.0, 0.0, 0.25, 0.1)).all()
    assert (rest[:, 2:] <= [30, 60]).all()


@pytest.mark.parametrize('size', [SIZE, (1, 1), (1, 7)])
def test_without_objects_the_window_is_anywhere(size):
    windows = draw_many(SmallObjectCrop(), np.zeros([0, 4]), size=size)
    assert windows[:, :2].min() == 0
    assert (windows[:, 2:] >= 1).all()
    ends = windows[:, :2] + windows[:, 2:]
    assert (ends.max(axis=0) == size).all()


@pytest.mark.parametrize('size', [(1, 1), (1, 7), (3, 2)])
def test_tiny_images_are_cropped_too(size):
    windows = draw_many(SmallObjectCrop(), [SMALL, LARGE, (0.0, 0.0, 0.01, 1.0)], size=size)
    assert (windows[:, :2] >= 0).all()
    assert (windows[:, 2:] >= 1).all()
    assert (windows[:, :2] + windows[:, 2:] <= size).all()


def test_few_other_small_objects_are_cut():
    """A chain of objects with gaps between them: for each window there is a place without a cut."""
    chain = np.array([(0.48, x, 0.52, x + 0.04) for x in np.arange(0.1, 0.9, 0.1)])
    windows = draw_many(SmallObjectCrop(min_scale=0.5, max_scale=0.5), chain, size=(100, 100))
    columns = chain[:, [1, 3]] * 100
    start, end = windows[:, 1, np.newaxis], (windows[:, 1] + windows[:, 3])[:, np.newaxis]
    sees = (columns[:, 1] > start + 1e-3) & (columns[:, 0] < end - 1e-3)
    whole = (columns[:, 0] >= start - 1e-3) & (columns[:, 1] <= end + 1e-3)
    # A window drawn evenly would cut one at either end with a probability of 0.3 or more.
    assert (sees & ~whole).any(axis=1).mean() < 0.02


def test_small_objects_that_are_cut_are_dropped_and_large_ones_clipped():
    boxes = np.array(
        [
            [0.2, 0.2, 0.25, 0.25],  # whole
            [0.48, 0.2, 0.53, 0.25],  # small and cut: 2 of 5 rows are left
            [0.1, 0.1, 0.6, 0.4],  # large, 4 of 5 are left
            [0.3, 0.3, 0.9, 0.9],  # large, but a ninth is left
            [0.45, 0.45, 0.5, 0.5],  # ends at the corner of the window
            [0.8, 0.8, 0.85, 0.85],  # outside
        ],
        np.float32,
    )
    example = {
        F.IMAGE: tf.constant(examples.noise(100, 200)),
        F.GROUNDTRUTH_BOXES: tf.constant(boxes),
        F.GROUNDTRUTH_TRACK_IDS: tf.range(6),
    }
    step = steps.build('small_object_crop { overlap_thresh: 0.3 }')
    cropped = step.crop(example, Window(*map(tf.constant, (0, 0, 50, 100))))
    np.testing.assert_array_equal(cropped[F.GROUNDTRUTH_TRACK_IDS], [0, 2, 4])
    np.testing.assert_array_equal(cropped[F.IMAGE], example[F.IMAGE][:50, :100])
    expected = [[0.4, 0.4, 0.5, 0.5], [0.2, 0.2, 1.0, 0.8], [0.9, 0.9, 1.0, 1.0]]
    np.testing.assert_allclose(cropped[F.GROUNDTRUTH_BOXES], expected, atol=1e-6)


def test_the_drawn_object_stays_whole():
    """A small object in a wild place is kept, whatever is rounded."""
    rng = np.random.default_rng(0)
    step = SmallObjectCrop()
    for i in range(100):
        height, width = rng.integers(20, 60, 2)
        corner, size = rng.uniform(0, 0.9, 2), rng.uniform(0.01, 0.09, 2)
        box = np.float32([[*corner, *(corner + size)]])
        example = {
            F.IMAGE: tf.zeros([height, width, 1], tf.uint8),
            F.GROUNDTRUTH_BOXES: tf.constant(box),
        }
        cropped = step(example, tf.constant([1, i], tf.int64))
        (new,) = cropped[F.GROUNDTRUTH_BOXES].numpy()
        scale = np.array(cropped[F.IMAGE].shape[:2]) / [height, width]
        np.testing.assert_allclose((new[2:] - new[:2]) * scale, size, atol=1e-6)


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        ('small_area: 2', 'small_area: expected 0 to 1. Received: 2'),
        ('overlap_thresh: -1', 'overlap_thresh: expected 0 to 1. Received: -1'),
        ('min_scale: 0', 'expected 0 < min_scale <= max_scale <= 1. Received: 0 and 0.8'),
        ('max_scale: 1.5', 'expected 0 < min_scale <= max_scale <= 1. Received: 0.3 and 1.5'),
        ('min_scale: 0.9', 'expected 0 < min_scale <= max_scale <= 1. Received: 0.9 and 0.8'),
    ],
)
def test_wrong_fields_are_reported(text, message):
    with pytest.raises(ValueError, match=f'small_object_crop.*{message}'):
        steps.build(f'small_object_crop {{ {text} }}')
