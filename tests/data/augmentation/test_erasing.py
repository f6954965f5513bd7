"""Erased rectangles: by hand, by an oracle in NumPy, and as they are drawn."""

import numpy as np
import pytest
import tensorflow as tf

from object_detection.core.fields import InputFields as F
from object_detection.data.augmentation.noise import (
    BLACK,
    MEAN,
    NOISE,
    ObjectCutout,
    RandomErasing,
    Rectangles,
)
from tests import rows
from tests.data import examples
from tests.data.augmentation import test_fixed_steps as steps

# Two that overlap, one of a pixel, and one without any.
RECTANGLES = Rectangles(
    tf.constant([[0, 0], [1, 2], [5, 7], [3, 3]]), tf.constant([[3, 4], [4, 2], [1, 1], [0, 9]])
)


def covered():
    """What RECTANGLES cover of 6 x 8 pixels."""
    return np.array(
        [
            [1, 1, 1, 1, 0, 0, 0, 0],
            [1, 1, 1, 1, 0, 0, 0, 0],
            [1, 1, 1, 1, 0, 0, 0, 0],
            [0, 0, 1, 1, 0, 0, 0, 0],
            [0, 0, 1, 1, 0, 0, 0, 0],
            [0, 0, 0, 0, 0, 0, 0, 1],
        ],
        bool,
    )


@rows.parametrize('dtype', [np.uint8, np.float32])
@rows.parametrize('channels', [1, 3, 5])
@rows.parametrize('fill', [NOISE, MEAN, BLACK])
def test_rectangles_are_filled_and_nothing_else_changes(fill, channels, dtype):
    image = np.random.default_rng(0).integers(100, 140, (6, 8, channels)).astype(dtype)
    erase = tf.function(RandomErasing(fill=fill).erase, autograph=False)
    erased = erase(tf.constant(image), RECTANGLES, steps.SEED).numpy()
    assert erased.dtype == dtype
    np.testing.assert_array_equal(erased[~covered()], image[~covered()])
    inside = erased[covered()].astype(np.float64)
    if fill == BLACK:
        assert not inside.any()
    elif fill == MEAN:
        mean = image.mean(axis=(0, 1), dtype=np.float64)
        # Whole numbers in uint8.
        np.testing.assert_allclose(inside - mean, 0, atol=0.501 if dtype == np.uint8 else 1e-3)
        assert not np.ptp(inside, axis=0).any()
    else:
        assert not np.array_equal(inside[1:], inside[:-1])
        np.testing.assert_array_equal(inside, np.round(inside))


def test_noise_has_all_values_equally_often():
    """256 000 of them: the count of each is binomial, of mean 1000 and deviation 32."""
    everything = Rectangles(tf.constant([[0, 0]]), tf.constant([[256, 250]]))
    noise = RandomErasing().erase(tf.zeros([256, 250, 4], tf.uint8), everything, steps.SEED)
    counts = np.bincount(np.ravel(noise), minlength=256)
    assert 1000 - 5 * 32 < counts.min() < counts.max() < 1000 + 5 * 32
    # Neighbours do not depend on each other.
    values = np.float32(noise)
    for axis in range(3):
        first, second = np.delete(values, -1, axis), np.delete(values, 0, axis)
        assert abs(np.corrcoef(first.ravel(), second.ravel())[0, 1]) < 0.02


def draw_many(step, size, count, **boxes):
    draw = tf.function(step.draw, autograph=False)
    drawn = [
        draw(tf.constant(size), *boxes.values(), tf.constant([7, i], tf.int64))
        for i in range(count)
    ]
    return (np.concatenate([getattr(each, f) for each in drawn]) for f in Rectangles._fields)


def test_areas_ratios_and_places_are_drawn_evenly():
    step = RandomErasing(min_area=0.1, max_area=0.3, min_aspect_ratio=0.5, max_aspect_ratio=2.0)
    start, size = draw_many(step, [1000, 2000], 400)
    share = size.prod(axis=1) / 2e6
    assert 0.099 < share.min() < 0.11 < 0.29 < share.max() < 0.301
    assert abs(share.mean() - 0.2) < 0.01
    # All ratios fit: the greatest height is sqrt(0.3 * 2e6 * 2) = 1095, for few draws alone.
    ratio = np.log2(size[:, 0] / size[:, 1])
    assert -1.01 < ratio.min() < -0.95 < 0.9 < ratio.max() < 1.01
    assert abs(ratio[share < 0.2].mean()) < 0.12
    free = [1000, 2000] - size
    assert (start >= 0).all()
    assert (start <= free).all()
    # Where much is free, all of it is used, and evenly.
    place = (start / np.maximum(free, 1))[free.min(axis=1) > 100]
    np.testing.assert_allclose(place.mean(axis=0), 0.5, atol=0.06)
    assert (place.max(axis=0) > 0.97).all()
    assert (place.min(axis=0) < 0.03).all()


@rows.parametrize('size', [[4, 400], [400, 4], [1, 1], [1, 9], [2, 3]])
def test_rectangles_fit_images_of_every_shape(size):
    start, drawn = draw_many(RandomErasing(min_area=0.3), size, 50)
    assert (start >= 0).all()
    assert (drawn >= 0).all()
    assert (start + drawn <= size).all()
    if max(size) == 400:  # No height above 0.3 widths fits 0.3 of 4 x 400: all rows are covered.
        assert (drawn.min(axis=1) == 4).mean() > 0.9


def test_an_area_of_everything_erases_everything():
    step = RandomErasing(
        min_area=1.0, max_area=1.0, min_aspect_ratio=0.01, max_aspect_ratio=100.0, fill=BLACK
    )
    image = tf.constant(examples.noise(6, 20))
    assert not np.any(step({F.IMAGE: image}, steps.SEED)[F.IMAGE])


BOXES = np.array(
    [[0.1, 0.2, 0.5, 0.4], [0.5, 0.5, 1.0, 1.0], [-0.5, 0.9, 0.2, 1.5], [0.3, 0.3, 0.301, 0.301]],
    np.float32,
)


def test_rectangles_lie_in_the_boxes_of_some_objects():
    step = ObjectCutout(object_probability=0.25, min_area=0.2)
    start, size = draw_many(step, [100, 200], 400, boxes=tf.constant(BOXES))
    start, size = start.reshape(-1, 4, 2), size.reshape(-1, 4, 2)
    corners = np.round(np.clip(BOXES, 0, 1) * [100, 200, 100, 200]).astype(int)
    assert (start >= corners[:, :2]).all()
    assert (start + size <= corners[:, 2:]).all()
    is_drawn = size.all(axis=2)
    np.testing.assert_allclose(is_drawn.mean(axis=0), [0.25, 0.25, 0.25, 0], atol=0.07)
    # Of the box inside of the image; sides are rounded to pixels.
    share = (size.prod(axis=2) / (corners[:, 2:] - corners[:, :2]).prod(axis=1).clip(1))[:, :3]
    assert 0.19 < share[is_drawn[:, :3]].min() < 0.25 < 0.35 < share.max() < 0.41
    # Each object is drawn for itself.
    assert np.abs(np.corrcoef(is_drawn[:, :3].T)[np.triu_indices(3, 1)]).max() < 0.15


def test_objects_stay_as_they_are_and_what_is_beside_them_too():
    image = examples.noise(40, 50)
    masks = np.zeros([2, 40, 50], np.uint8)
    masks[0, 4:20, 10:20] = 1
    example = {
        F.IMAGE: tf.constant(image),
        F.GROUNDTRUTH_BOXES: tf.constant(BOXES[:2]),
        F.GROUNDTRUTH_INSTANCE_MASKS: tf.constant(masks),
    }
    step = steps.build('object_cutout { object_probability: 1 fill: BLACK min_area: 0.3 }')
    cut = step(example, steps.SEED)
    for name in (F.GROUNDTRUTH_BOXES, F.GROUNDTRUTH_INSTANCE_MASKS):
        np.testing.assert_array_equal(cut[name], example[name])
    inside = np.zeros([40, 50], bool)
    inside[4:20, 10:20] = inside[20:, 25:] = True
    np.testing.assert_array_equal(cut[F.IMAGE][~inside], image[~inside])
    changed = ~cut[F.IMAGE].numpy().any(axis=2)
    for box in (np.s_[4:20, 10:20], np.s_[20:, 25:]):
        assert 0.25 < changed[box].mean() < 0.45


def test_without_objects_nothing_is_erased():
    image = tf.constant(examples.noise(6, 8))
    example = {F.IMAGE: image, F.GROUNDTRUTH_BOXES: tf.zeros([0, 4])}
    step = ObjectCutout(object_probability=1.0)
    np.testing.assert_array_equal(step(example, steps.SEED)[F.IMAGE], image)


@rows.parametrize('kind', ['random_erasing', 'object_cutout'])
@rows.parametrize(
    ('text', 'message'),
    [
        ('min_area: 0.5', 'expected 0 <= min_area <= max_area <= 1. Received: 0.5 and 0.4'),
        ('max_area: 1.5', 'max_area: expected 0 to 1. Received: 1.5'),
        ('min_aspect_ratio: 0', 'min_aspect_ratio: expected above 0'),
        ('max_aspect_ratio: 0.1', 'expected 0 < min_aspect_ratio <= max_aspect_ratio'),
    ],
)
def test_wrong_fields_are_reported(kind, text, message):
    with pytest.raises(ValueError, match=f'{kind}.*{message}'):
        steps.build(f'{kind} {{ {text} }}')


def test_wrong_probabilities_and_fills_are_reported():
    with pytest.raises(ValueError, match=r'object_cutout.object_probability: expected 0 to 1'):
        steps.build('object_cutout { object_probability: 2 }')
    with pytest.raises(ValueError, match=r"random_erasing.fill: expected one of .*Received: 'RED'"):
        RandomErasing(fill='RED')
