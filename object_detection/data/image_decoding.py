"""Decodes image files to tensors: the formats of records, of exported models and of masks."""

import tensorflow as tf

# Bytes of a BMP file's header: of the file, of the image (40 bytes at least), and of the colours'
# places in a pixel.
_BMP_HEADER_SIZE, _BMP_COLOR_MASKS_END = 14, 66
# Compression of a BMP file: none, and pixels whose colours the header tells the places of.
_BMP_PLAIN, _BMP_BIT_FIELDS = 0, 3
_BMP_BGRA_MASKS = (0, 0, 255, 0, 0, 255, 0, 0, 255, 0, 0, 0)


def decode_image(encoded: tf.Tensor) -> tf.Tensor:
    """Decodes a JPEG, PNG, BMP or GIF file (its first frame) to uint8 [H, W, 3].

    Grey values are repeated, an alpha channel is dropped, of 16 bits the upper 8 are kept. The
    orientation that a camera writes into a file (EXIF) is ignored, as annotations of records are
    made for the pixels as they are stored.

    Args:
      encoded: string scalar.

    Raises:
      tf.errors.InvalidArgumentError: when run, if it is another file, or a BMP file with less than
        8 bits a pixel, 16 bits a pixel, compression or a header of OS/2.
    """
    image = tf.cond(
        tf.strings.substr(encoded, 0, 2) == 'BM',
        lambda: _decode_bmp(encoded),
        lambda: tf.io.decode_image(encoded, channels=3, expand_animations=False),
    )
    return tf.ensure_shape(image, [None, None, 3])


def _decode_bmp(encoded: tf.Tensor) -> tf.Tensor:
    """Decodes a BMP file; `tf.io.decode_image` takes the indices of a palette for grey values."""
    header = tf.io.decode_raw(encoded, tf.uint8, fixed_length=_BMP_COLOR_MASKS_END)
    header_size, bits, compression = (
        _little_endian(header, *place) for place in ((14, 4), (28, 2), (30, 4))
    )
    is_plain = (compression == _BMP_PLAIN) & ((bits == 8) | (bits == 24) | (bits == 32))
    is_bgra = (compression == _BMP_BIT_FIELDS) & (bits == 32)
    is_bgra &= tf.reduce_all(header[54:] == tf.constant(_BMP_BGRA_MASKS, tf.uint8))
    check = tf.debugging.Assert(
        (header_size >= 40) & (is_plain | is_bgra),
        [
            'Expected a BMP file of 8, 24 or 32 bits a pixel without compression. '
            'Received (bits a pixel, compression, size of the header):',
            bits,
            compression,
            header_size,
        ],
    )
    with tf.control_dependencies([check] if check is not None else []):
        pixels = tf.io.decode_bmp(encoded)  # [H, W, 1, 3 or 4]

    def look_up() -> tf.Tensor:
        palette = tf.strings.substr(encoded, _BMP_HEADER_SIZE + header_size, 4 * 256)
        colors = tf.reshape(tf.io.decode_raw(palette, tf.uint8, fixed_length=4 * 256), [256, 4])
        return tf.gather(colors[:, 2::-1], tf.cast(pixels[..., 0], tf.int32))

    return tf.cond(bits == 8, look_up, lambda: pixels[..., :3])


def _little_endian(values: tf.Tensor, start: int, size: int) -> tf.Tensor:
    """The number int32 that starts at a byte."""
    digits = tf.cast(values[start : start + size], tf.int64)
    return tf.cast(tf.reduce_sum(digits * [256**i for i in range(size)]), tf.int32)
