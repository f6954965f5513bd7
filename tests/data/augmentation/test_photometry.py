"""Fast changes of colours: against colorsys, and against the operations of TensorFlow."""

import colorsys

import numpy as np
import pytest
import tensorflow as tf

from object_detection.data.augmentation import colors
from tests import rows, slow_cases
from tests.data import examples

# Rounding of a dozen operations on values up to 255.
ATOL = 1e-3


def by_colorsys(pixel, brightness, saturation, hue):
    pixel = np.clip(np.float64(pixel) / 255 + brightness, 0, 1)
    h, s, v = colorsys.rgb_to_hsv(*pixel)
    return 255 * np.array(colorsys.hsv_to_rgb((h + hue) % 1, min(s * saturation, 1), v))


def by_tensorflow(image, brightness, saturation, hue):
    image = tf.clip_by_value(tf.cast(image, tf.float32) / 255 + brightness, 0, 1)
    image = tf.clip_by_value(tf.image.adjust_saturation(image, saturation), 0, 1)
    return 255 * tf.clip_by_value(tf.image.adjust_hue(image, hue), 0, 1)


@rows.parametrize(
    ('brightness', 'saturation', 'hue'),
    [
        (0.0, 1.0, 0.0),
        (0.3, 1.0, 0.0),
        (-0.4, 0.0, 0.3),
        (0.0, 0.5, -0.2),
        (0.1, 1.5, 0.9),
        (0.0, 40.0, 1.0),
        (-0.1, 0.8, -1.0),
    ],
)
def test_pixels_are_those_of_colorsys(brightness, saturation, hue):
    levels = [0, 1, 100, 254, 255]
    pixels = np.stack(np.meshgrid(levels, levels, levels), axis=-1).reshape([5, 25, 3])
    changed = colors.change_colors(
        tf.constant(pixels, tf.float32), brightness=brightness, saturation=saturation, hue=hue
    )
    expected = [[by_colorsys(p, brightness, saturation, hue) for p in row] for row in pixels]
    np.testing.assert_allclose(changed, expected, rtol=1e-5, atol=ATOL)
    assert changed.numpy().min() >= 0
    assert changed.numpy().max() <= 255


def test_almost_grey_pixels_stay_finite():
    pixels = tf.constant([[[7.0, 7.0, np.nextafter(np.float32(7), 8)], [1e-38, 0, 2e-39]]])
    changed = colors.change_colors(pixels, saturation=1.5, hue=0.4)
    np.testing.assert_allclose(changed, pixels, atol=1e-5)


# Numbers of pixels that need no padding, and others.
@slow_cases.parametrize(3, 'size', [(1, 1), (128, 128), (128, 129), (96, 256)])
@pytest.mark.parametrize('dtype', [tf.uint8, tf.float32])
def test_images_of_any_size_in_a_graph(size, dtype):
    image = tf.cast(examples.noise(*size), dtype)
    change = tf.function(
        colors.change_colors,
        input_signature=[tf.TensorSpec([None, None, 3], dtype)],
        autograph=False,
    )
    np.testing.assert_allclose(change(image), image, atol=ATOL)
    turned = colors.change_colors(image, brightness=0.1, saturation=1.2, hue=0.1)
    expected = by_tensorflow(image, 0.1, 1.2, 0.1)
    np.testing.assert_allclose(turned, expected, rtol=1e-5, atol=ATOL)


def test_the_order_of_channels_changes_last():
    image = tf.cast(examples.noise(4, 5), tf.float32)
    plain = colors.change_colors(image, saturation=0.7, hue=0.3)
    swapped = colors.change_colors(image, saturation=0.7, hue=0.3, channels=(2, 0, 1))
    np.testing.assert_allclose(swapped, plain.numpy()[..., [2, 0, 1]], atol=ATOL)


def test_brightness_and_contrast_of_any_number_of_channels():
    image = tf.constant([[[200.0, 10.0], [100.0, 30.0]]])
    np.testing.assert_allclose(
        colors.change_brightness(image, 0.4), [[[255, 112], [202, 132]]], rtol=1e-6
    )
    np.testing.assert_allclose(
        colors.change_contrast(image, 2.0), [[[250, 0], [50, 40]]], rtol=1e-6
    )


def test_threads_change_images_as_one_does():
    images = [tf.cast(examples.noise(9, 5 + i), tf.float32) for i in range(4)]
    alone = [colors.change_colors(image, saturation=1.3, hue=0.1) for image in images]
    data = tf.data.Dataset.from_generator(
        lambda: iter(images), output_signature=tf.TensorSpec([None, None, 3])
    )
    mapped = data.map(
        lambda image: colors.change_colors(image, saturation=1.3, hue=0.1),
        num_parallel_calls=4,
    )
    for image, expected in zip(mapped, alone, strict=True):
        np.testing.assert_array_equal(image, expected)
