"""Changes of pixel values with the results of the Python Imaging Library.

Images are float32 [H, W, 3], red, green and blue, with whole values of 0..255, before and after.
"""

import tensorflow as tf

_MAX_VALUE = 255.0
_NUM_VALUES = 256
_CHANNELS = 3
# Of red, green and blue in grey, and their sum; all products and sums are exact in float32.
_GRAY_WEIGHTS = (19595.0, 38470.0, 7471.0)
_GRAY_SUM = 65536.0
# Keeps whole numbers whole where they are rounded down; fractions of 255ths are larger.
_ROUNDING = 1e-3
# The centre of the filter of `change_sharpness`; its eight neighbours are 1.
_CENTER = 5.0


def stretch_contrast(image: tf.Tensor) -> tf.Tensor:
    """Maps the least and greatest value of each channel to 0 and 255 (ImageOps.autocontrast)."""
    low, high = tf.reduce_min(image, axis=[0, 1]), tf.reduce_max(image, axis=[0, 1])
    has_range = high > low
    low = tf.where(has_range, low, 0.0)
    scale = tf.where(has_range, tf.math.divide_no_nan(_MAX_VALUE, high - low), 1.0)
    return tf.floor((image - _as_row(low, image)) * _as_row(scale, image) + _ROUNDING)


def equalize(image: tf.Tensor) -> tf.Tensor:
    """Makes all values of each channel about as frequent (ImageOps.equalize)."""
    first = _NUM_VALUES * tf.range(_CHANNELS)
    indices = tf.cast(image, tf.int32) + _as_row(first, image)
    size = _NUM_VALUES * _CHANNELS
    counts = tf.math.bincount(tf.reshape(indices, [-1]), minlength=size, maxlength=size)
    counts = tf.reshape(counts, [_CHANNELS, _NUM_VALUES])
    values = tf.range(_NUM_VALUES)
    greatest = tf.reduce_max(tf.where(counts > 0, values, 0), axis=1, keepdims=True)
    others = tf.reduce_sum(tf.where(values < greatest, counts, 0), axis=1, keepdims=True)
    step = others // (_NUM_VALUES - 1)
    table = (tf.cumsum(counts, axis=1, exclusive=True) + step // 2) // tf.maximum(step, 1)
    table = tf.where(step > 0, tf.minimum(table, _NUM_VALUES - 1), values)
    return tf.gather(tf.reshape(tf.cast(table, tf.float32), [-1]), indices)


def posterize(image: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
    """Rounds values down to multiples of a power of 2 (ImageOps.posterize)."""
    return tf.floor(image / step) * step


def solarize(image: tf.Tensor, threshold: tf.Tensor) -> tf.Tensor:
    """Inverts the values from a threshold on (ImageOps.solarize)."""
    # Of whole numbers; arithmetic is several times as fast as `tf.where`.
    is_inverted = tf.clip_by_value(image - (threshold - 1.0), 0.0, 1.0)
    return image + is_inverted * (_MAX_VALUE - 2.0 * image)


def solarize_add(image: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
    """Adds a number to the values below 128."""
    is_below = tf.clip_by_value(128.0 - image, 0.0, 1.0)
    return tf.minimum(image + number * is_below, _MAX_VALUE)


def change_color(image: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    """Blends with the grey image; 0 is grey, 1 the image itself (ImageEnhance.Color)."""
    return _blend(_gray(image), image, factor)


def change_contrast(image: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    """Blends with the mean of the grey image, a whole number (ImageEnhance.Contrast)."""
    # Sums of rows are exact.
    of_rows = tf.cast(tf.reduce_sum(_gray(image)[..., 0], axis=1), tf.float64)
    num_pixels = tf.cast(tf.reduce_prod(tf.shape(image)[:2]), tf.float64)
    mean = tf.floor(tf.reduce_sum(of_rows) / num_pixels + 0.5)
    return _blend(tf.cast(mean, tf.float32), image, factor)


def change_brightness(image: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    """Multiplies all values (ImageEnhance.Brightness)."""
    return _blend(0.0, image, factor)


def change_sharpness(image: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    """Blends with a smoothed image; 0 is smooth, 1 the image itself (ImageEnhance.Sharpness).

    The pixels at the border stay.
    """
    rows = image[:-2] + image[1:-1] + image[2:]
    inner = image[1:-1, 1:-1]
    total = rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:] + (_CENTER - 1.0) * inner
    smooth = tf.floor(total / (_CENTER + 8.0) + 0.5)
    changed = _blend(smooth, inner, factor)
    middle = tf.concat([image[1:-1, :1], changed, image[1:-1, 1:][:, -1:]], axis=1)
    return tf.ensure_shape(tf.concat([image[:1], middle, image[1:][-1:]], axis=0), image.shape)


def _gray(image: tf.Tensor) -> tf.Tensor:
    """Returns an image of three equal channels."""
    # Products of a matrix are faster than sums over the last axis.
    weights = tf.tile(tf.constant(_GRAY_WEIGHTS)[:, tf.newaxis], [1, _CHANNELS])
    total = tf.reshape(tf.matmul(tf.reshape(image, [-1, _CHANNELS]), weights), tf.shape(image))
    return tf.floor((total + 0.5 * _GRAY_SUM) / _GRAY_SUM)


def _blend(other: float | tf.Tensor, image: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    """Blends images; a factor above 1 moves away from the other one."""
    return tf.floor(tf.clip_by_value(other + factor * (image - other), 0.0, _MAX_VALUE))


def _as_row(values: tf.Tensor, image: tf.Tensor) -> tf.Tensor:
    """Repeats one value for each channel to a row [W, C], which broadcasts faster."""
    return tf.tile(values[tf.newaxis], [tf.shape(image)[1], 1])
