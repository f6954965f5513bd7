"""Blurs: against sums of shifted images in NumPy, and what is drawn."""

import math

import numpy as np
import pytest
import tensorflow as tf

from object_detection.core.fields import InputFields as F
from object_detection.data.augmentation import noise
from tests.data.augmentation import test_fixed_steps as steps
from tests.rows import parametrize

TEXTS = ('gaussian_blur {}', 'motion_blur {}')
ATOL = 1e-3  # Rounding of sums of a hundred products up to 255.


def image_of(height, width, channels):
    rng = np.random.default_rng(height * width)
    return rng.integers(0, 256, [height, width, channels], np.uint8)


def shifted(image, y, x):
    """The image at a distance of y and x pixels, interpolated; the border repeats."""
    rows = np.arange(image.shape[0]) + math.floor(y)
    columns = np.arange(image.shape[1]) + math.floor(x)
    total = 0.0
    for i, of_row in enumerate((1 - y % 1, y % 1)):
        for j, of_column in enumerate((1 - x % 1, x % 1)):
            at_rows = np.clip(rows + i, 0, image.shape[0] - 1)
            at_columns = np.clip(columns + j, 0, image.shape[1] - 1)
            total = total + of_row * of_column * image[np.ix_(at_rows, at_columns)]
    return total


@parametrize('shape', [(20, 30, 3), (1, 1, 3), (1, 9, 1), (7, 2, 5)])
@parametrize('sigma', [0.3, 1.0, 2.5])
def test_gaussian_is_the_weighted_mean_of_a_square(shape, sigma):
    image = image_of(*shape)
    distances = range(-math.ceil(3 * sigma), math.ceil(3 * sigma) + 1)
    total = weights = 0.0
    for y in distances:
        for x in distances:
            weight = math.exp(-(y * y + x * x) / (2 * sigma * sigma))
            total, weights = total + weight * shifted(image, y, x), weights + weight
    changed = noise.GaussianBlur().change(tf.constant(image), tf.constant(sigma))
    np.testing.assert_allclose(changed, total / weights, atol=ATOL)


def test_no_deviation_changes_nothing():
    image = image_of(5, 4, 3)
    step = noise.GaussianBlur(min_sigma=0, max_sigma=0)
    changed = step({F.IMAGE: tf.constant(image)}, steps.SEED)[F.IMAGE]
    np.testing.assert_array_equal(changed, image)


@parametrize('shape', [(20, 30, 3), (1, 1, 3), (3, 6, 1), (9, 2, 4)])
@parametrize(('length', 'angle'), [(1, 0.4), (4, 0.0), (5, math.pi / 2), (8, 2.0), (15, 0.7)])
def test_motion_is_the_mean_of_a_line(shape, length, angle):
    image = image_of(*shape)
    along = np.arange(length) - (length - 1) / 2
    expected = np.mean(
        [shifted(image, t * math.sin(angle), t * math.cos(angle)) for t in along], axis=0
    )
    changed = noise.MotionBlur().change(tf.constant(image), tf.constant(length), tf.constant(angle))
    # The filter may end 1e-4 pixels early.
    np.testing.assert_allclose(changed, expected, atol=0.01)


@parametrize('text', TEXTS)
@parametrize('dtype', [tf.uint8, tf.float32])
def test_one_value_stays_as_it_is_up_to_the_border(text, dtype):
    image = tf.fill([6, 11, 2], tf.cast(200, dtype))
    changed = steps.build(text)({F.IMAGE: image}, steps.SEED)[F.IMAGE]
    assert changed.dtype == tf.float32
    np.testing.assert_allclose(changed, image, atol=ATOL)


def test_draws_fill_their_range():
    seeds = [tf.constant([2, i], tf.int64) for i in range(200)]
    sigmas = [noise.GaussianBlur(min_sigma=0.5).draw(seed).numpy() for seed in seeds]
    assert 0.5 <= min(sigmas) < 0.55
    assert 1.95 < max(sigmas) <= 2
    lengths, angles = np.transpose(
        [noise.MotionBlur(min_length=2, max_length=5).draw(seed) for seed in seeds]
    )
    assert set(lengths) == {2, 3, 4, 5}
    assert 0 <= angles.min() < 0.05
    assert math.pi - 0.05 < angles.max() < math.pi
    assert abs(np.corrcoef(lengths, angles)[0, 1]) < 0.25


@pytest.mark.parametrize('text', TEXTS)
def test_blurs_in_the_pipeline_change_the_image_alone(text):
    plain, changed = steps.transformed(()), steps.transformed((text,))
    assert np.abs(changed[F.IMAGE] - plain[F.IMAGE]).max() > 1
    for name in plain.keys() - {F.IMAGE}:
        np.testing.assert_array_equal(changed[name], plain[name], err_msg=name)


@parametrize(
    ('text', 'message'),
    [
        ('gaussian_blur { min_sigma: -1 }', 'gaussian_blur.min_sigma: expected 0 to 100'),
        ('gaussian_blur { min_sigma: 3 }', 'Received: 3 and 2'),
        (
            'motion_blur { min_length: 0 }',
            'expected 1 to 500. Received: 0',
        ),
        ('motion_blur { min_length: 16 }', 'Received: 16 and 15'),
    ],
)
def test_wrong_fields_are_reported(text, message):
    with pytest.raises(ValueError, match=message):
        steps.build(text)
