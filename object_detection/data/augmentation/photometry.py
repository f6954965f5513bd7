"""Fast changes of the brightness, contrast, saturation and hue of an image.

The operations of TensorFlow for saturation and hue convert every pixel to HSV and back, one by one.
Here both are one closed form, which XLA compiles to a loop over several pixels at a time. Its
program has a fixed shape, so the pixels of an image, of any size, pass through it in blocks.
"""

import tensorflow as tf

_MAX_VALUE = 255.0
_CHANNELS = 3
# Pixels of a block: few enough for the cache, many enough for the cost of a call to be small.
_BLOCK = 2**15
_VALUES = _BLOCK * _CHANNELS
# Places of red, green and blue on the circle of hues, in sixths of it.
_PLACES = (5.0, 3.0, 1.0)
# Pixels whose channels differ less are grey.
_LEAST_CHROMA = 1e-9

Number = float | tf.Tensor


def change_brightness(image: tf.Tensor, delta: Number) -> tf.Tensor:
    """Adds a number to all values, and clips them to the range.

    Args:
      image: float32 [H, W, C], 0..255.
      delta: the number, as a share of the whole range, float32 [].
    """
    return _clip(image + delta * _MAX_VALUE)


def change_contrast(image: tf.Tensor, factor: Number) -> tf.Tensor:
    """Multiplies the distance of values to the mean of their channel, and clips them to the range.

    Args:
      image: float32 [H, W, C], 0..255.
      factor: the factor, float32 [].
    """
    return _clip(tf.raw_ops.AdjustContrastv2(images=image, contrast_factor=factor))


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
      image: float32 [H, W, 3], red, green and blue, 0..255.
      brightness: number added to all values, as a share of the whole range, float32 [].
      saturation: factor of the saturation, 0 or more, float32 [].
      hue: rotation of the hue, as a share of the whole circle, -1 to 1, float32 [].
      channels: index of the channel that replaces each channel, int32 [3].

    Returns:
      float32 [H, W, 3], 0..255.
    """
    numbers = (
        tf.convert_to_tensor(brightness * _MAX_VALUE, tf.float32),
        tf.convert_to_tensor(saturation, tf.float32),
        tf.gather(_PLACES, channels) + 6.0 * hue,
    )
    values = tf.reshape(image, [-1])
    full = tf.size(values) // _VALUES

    def change(block: tf.Tensor) -> tf.Tensor:
        return tf.reshape(_change(tf.reshape(block, [_BLOCK, _CHANNELS]), *numbers), [-1])

    def add(index: tf.Tensor, parts: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
        return index + 1, parts.write(index, change(tf.slice(values, [index * _VALUES], [_VALUES])))

    parts = tf.TensorArray(tf.float32, size=full + 1, infer_shape=False, element_shape=[None])
    _, parts = tf.while_loop(lambda index, _: index < full, add, [0, parts])
    rest = values[full * _VALUES :]
    padded = tf.pad(rest, [[0, _VALUES - tf.size(rest)]])
    changed = parts.write(full, change(padded)[: tf.size(rest)]).concat()
    return tf.reshape(changed, tf.shape(image))


@tf.function(jit_compile=True, autograph=False)
def _change(
    pixels: tf.Tensor, brightness: tf.Tensor, saturation: tf.Tensor, places: tf.Tensor
) -> tf.Tensor:
    """Changes the pixels of a block, float32 [B, 3]; see `change_colors`.

    Saturation and hue are those of https://en.wikipedia.org/wiki/HSL_and_HSV.

    Args:
      brightness: number added to all values.
      saturation: factor.
      places: `_PLACES` of the channels, rotated, float32 [3].
    """
    # Planes of the channels are faster than pixels.
    planes = _clip(tf.transpose(pixels) + brightness)
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
