"""Changes of pixel values against the Python Imaging Library."""

import functools

import numpy as np
import tensorflow as tf
from PIL import Image, ImageEnhance, ImageOps

from object_detection.data.augmentation.policies import enhancement
from tests import rows
from tests.data import examples


@functools.cache
def images():
    """Name -> uint8 [H, W, 3]."""
    noise = examples.noise(33, 47)
    ramp = np.arange(40 * 50).reshape(40, 50, 1) * [1, 2, 3] // 30 % 256
    return {
        'noise': noise,
        'ramp': np.uint8(ramp),
        'narrow': np.uint8(100 + noise // 5),
        'one channel of one value': np.uint8(noise * [1, 0, 1] + [0, 77, 0]),
        'few values': np.uint8(noise // 64 * 60),
        'one value': np.full([9, 8, 3], 200, np.uint8),
        'one pixel': noise[:1, :1],
        'two rows': noise[:2, :9],
        'one column': noise[:9, :1],
        'three by three': noise[:3, :3],
    }


EACH_IMAGE = rows.parametrize('name', images())


def check(name, change, expected, atol=0):
    image = images()[name]
    changed = change(tf.constant(image, tf.float32)).numpy()
    assert changed.dtype == np.float32
    expected = np.asarray(expected(Image.fromarray(image)), np.float32)
    np.testing.assert_allclose(changed, expected, rtol=0, atol=atol)
    np.testing.assert_array_equal(changed, np.round(changed))


@EACH_IMAGE
def test_equalize(name):
    check(name, enhancement.equalize, ImageOps.equalize)


@EACH_IMAGE
def test_autocontrast(name):
    # Pillow rounds numbers down that float64 makes a little less than whole.
    check(name, enhancement.stretch_contrast, ImageOps.autocontrast, atol=1)


def test_autocontrast_is_exact_but_for_whole_numbers():
    """All values of all ranges, in whole numbers."""
    for greatest in range(1, 256):
        values = np.arange(greatest + 1)
        image = tf.constant(np.repeat(values[:, np.newaxis, np.newaxis], 3, axis=2), tf.float32)
        changed = enhancement.stretch_contrast(image)[:, 0, 0]
        np.testing.assert_array_equal(changed, values * 255 // greatest)


@EACH_IMAGE
@rows.parametrize('bits', [1, 2, 4, 8])
def test_posterize(name, bits):
    step = tf.constant(2.0 ** (8 - bits))
    check(
        name,
        lambda image: enhancement.posterize(image, step),
        lambda image: ImageOps.posterize(image, bits),
    )


@EACH_IMAGE
@rows.parametrize('threshold', [0, 1, 128, 255, 256])
def test_solarize(name, threshold):
    check(
        name,
        lambda image: enhancement.solarize(image, tf.constant(threshold, tf.float32)),
        lambda image: ImageOps.solarize(image, threshold),
    )


def test_solarize_add():
    values = np.arange(256)
    image = np.repeat(values.reshape(16, 16, 1), 3, axis=2)
    for number in (0, 1, 110, 200):
        changed = enhancement.solarize_add(
            tf.constant(image, tf.float32), tf.constant(1.0 * number)
        )
        expected = np.where(image < 128, np.minimum(image + number, 255), image)
        np.testing.assert_array_equal(changed, expected)


@EACH_IMAGE
@rows.parametrize('factor', [0.0, 0.1, 0.46, 1.0, 1.18, 1.9])
@rows.parametrize(
    ('change', 'expected'),
    [
        (enhancement.change_color, ImageEnhance.Color),
        (enhancement.change_contrast, ImageEnhance.Contrast),
        (enhancement.change_brightness, ImageEnhance.Brightness),
        (enhancement.change_sharpness, ImageEnhance.Sharpness),
    ],
)
def test_enhancements(name, change, expected, factor):
    # Both round down sums of float32, which may be a little less or more than whole.
    check(
        name,
        lambda image: change(image, tf.constant(factor)),
        lambda image: expected(image).enhance(factor),
        atol=1,
    )


@rows.parametrize('factor', [0.0, 0.5, 1.5])
def test_enhancements_are_exact_where_float32_is(factor):
    for name in images():
        for change, expected in (
            (enhancement.change_color, ImageEnhance.Color),
            (enhancement.change_contrast, ImageEnhance.Contrast),
            (enhancement.change_brightness, ImageEnhance.Brightness),
            (enhancement.change_sharpness, ImageEnhance.Sharpness),
        ):
            check(
                name,
                lambda image, change=change: change(image, tf.constant(factor)),
                lambda image, expected=expected: expected(image).enhance(factor),
            )
