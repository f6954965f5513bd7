"""Fast changes of the brightness, contrast, saturation and hue of an image.

The operations of TensorFlow for saturation and hue convert every pixel to HSV and back, one by one.
Here both are one closed form, which XLA compiles to a loop over several pixels at a time. XLA
compiles for each number of pixels, so that images are padded to one of a few numbers.
"""

import tensorflow as tf

_MAX_VALUE = 255.0
_CHANNELS = 3
# Numbers of pixels that programs are compiled for, two for each power of two; each takes 0.1 s.
_SIZES = tuple(part << power for power in range(13, 28) for part in (2, 3))
# Places of red, green and blue on the circle of hues, in sixths of it.
_PLACES = (5.0, 3.0, 1.0)
# Pixels whose channels differ less are grey.
_LEAST_CHROMA = 1e-9

Number = float | tf.Tensor


def change_brightness(image: tf.Tensor, delta: Number) -> tf.Tensor:
    """Adds a number to all values, and clips them to the range.

    Args:
      image: uint8 or float32 [H, W, C], 0..255.
      delta: the number, as a share of the whole range, float32 [].

    Returns:
      float32 [H, W, C], 0..255.
    """
    return _clip(tf.cast(image, tf.float32) + delta * _MAX_VALUE)


def change_contrast(image: tf.Tensor, factor: Number) -> tf.Tensor:
    """Multiplies the distance of values to the mean of their channel, and clips them to the range.

    Args:
      image: uint8 or float32 [H, W, C], 0..255.
      factor: the factor, float32 [].

    Returns:
      float32 [H, W, C], 0..255.
    """
    images = tf.cast(image, tf.float32)
    return _clip(tf.raw_ops.AdjustContrastv2(images=images, contrast_factor=factor))


def change_colors(
    image: tf.Tensor,
    *,
    brightness: Number = 0.0,
    saturation: Number = 1.0,
    hue: Number = 0.0,
    channels: tuple[int, ...] | tf.Tensor = (0, 1, 2),
) -> tf.Tensor:
    """Changes brightness, saturation and hue, each clipped to the range, then the channels' order.

    Args:
      image: uint8 or float32 [H, W, 3], red, green and blue, 0..255.
      brightness: number added to all values, as a share of the whole range, float32 [].
      saturation: factor of the saturation, 0 or more, float32 [].
      hue: rotation of the hue, as a share of the whole circle, -1 to 1, float32 [].
      channels: index of the channel that replaces each channel, int32 [3].

    Returns:
      float32 [H, W, 3], 0..255.
    """
    # Reshaped to rows of one pixel, padding and slicing would take long.
    values = tf.reshape(image, [-1])
    count = tf.size(values)
    sizes = tf.constant([size * _CHANNELS for size in _SIZES])
    size = sizes[tf.searchsorted(sizes, count[tf.newaxis])[0]]
    changed = _change(
        tf.reshape(tf.pad(values, [[0, size - count]]), [-1, _CHANNELS]),
        tf.convert_to_tensor(brightness * _MAX_VALUE, tf.float32),
        tf.convert_to_tensor(saturation, tf.float32),
        tf.gather(_PLACES, channels) + 6.0 * hue,
    )
    return tf.reshape(tf.reshape(changed, [-1])[:count], tf.shape(image))


@tf.function(jit_compile=True, autograph=False, reduce_retracing=True)
def _change(
    pixels: tf.Tensor, brightness: tf.Tensor, saturation: tf.Tensor, places: tf.Tensor
) -> tf.Tensor:
    """Changes pixels, uint8 or float32 [P, 3], to float32 ones; see `change_colors`.

    Saturation and hue are those of https://en.wikipedia.org/wiki/HSL_and_HSV.

    Args:
      brightness: number added to all values.
      saturation: factor.
      places: `_PLACES` of the channels, rotated, float32 [3].
    """
    # Planes of the channels are faster than pixels.
    planes = _clip(tf.cast(tf.transpose(pixels), tf.float32) + brightness)
    red, green, blue = tf.unstack(planes)
    value = tf.maximum(tf.maximum(red, green), blue)
    chroma = value - tf.minimum(tf.minimum(red, green), blue)
    scale = 1.0 / tf.maximum(chroma, _LEAST_CHROMA)
    hue = tf.where(
        red == value,
        (green - blue) * scale,
        tf.where(green == value, (blue - red) * scale + 2.0, (red - green) * scale + 4.0),
    )
    chroma = tf.minimum(chroma * saturation, value)
    angle = hue + places[:, tf.newaxis]
    angle -= 6.0 * tf.floor(angle * (1.0 / 6.0))
    share = tf.clip_by_value(tf.minimum(angle, 4.0 - angle), 0.0, 1.0)
    return tf.transpose(value - chroma * share)


def _clip(image: tf.Tensor) -> tf.Tensor:
    return tf.clip_by_value(image, 0.0, _MAX_VALUE)
