"""Decodes image files to tensors: the formats of records, of exported models and of masks."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from object_detection.core.shapes import asserted
from object_detection.data.tiff import plain_files
from object_detection.errors import UserError
from object_detection.resizers.value_range import ValueRange
from object_detection.system.costly_files import MAX_GIF_BLOCKS, MAX_SCANS

# Numbers of channels that images other than TIFF files are decoded to.
CHANNELS = (1, 3, 4)

# Shares of red, green and blue in the brightness (ITU-R BT.601).
_BRIGHTNESS = (0.299, 0.587, 0.114)
# Bytes of the parts of a BMP file's header: file header, image header (at least 40 bytes), and the
# bit masks of the colours.
_BMP_HEADER_SIZE, _BMP_COLOR_MASKS_END = 14, 66
# Bytes of the header that contain the image size, for formats other than JPEG and GIF.
_HEADER_SIZE = 32
_PNG, _JPEG, _GIF = b'\x89PNG', b'\xff\xd8\xff', b'GIF8'
# Place of the number of bits a channel.
_PNG_DEPTH = 24
# First bytes of the files that have no decoder of their own here.
_KNOWN = (_PNG[:3], _JPEG, _GIF[:3])
# First bytes of the blocks of a GIF file: an extension and a frame.
_GIF_EXTENSION, _GIF_FRAME = 0x21, 0x2C
# Bytes of a GIF file's header, of the header of a frame, and of its largest block of pixels.
_GIF_HEADER_SIZE, _GIF_FRAME_SIZE, _GIF_BLOCK_SIZE = 13, 10, 256
# Place of the first chunk after the header of an extended WebP file, bytes of a frame's header, and
# chunks before the first frame, at most.
_WEBP_CHUNKS, _WEBP_FRAME_SIZE, _MAX_WEBP_CHUNKS = 30, 24, 64
_WEBP_ANIMATION, _WEBP_ALPHA = 0x02, 0x10
# Pixels of a GIF or WebP file, at most. TensorFlow refuses PNG and JPEG files of more, too, and BMP
# files are as large as their pixels.
_MAX_PIXELS = 2**29 // 3
# All bytes, and the places of the bytes in a little-endian number of 32 bits.
_BYTES, _PLACES = [bytes([value]) for value in range(256)], (0, 8, 16, 24)
# Compression of a BMP file: none, and pixels with bit masks in the header.
_BMP_PLAIN, _BMP_BIT_FIELDS = 0, 3
_BMP_BGRA_MASKS = (0, 0, 255, 0, 0, 255, 0, 0, 255, 0, 0, 0)


def decode_image(
    encoded: tf.Tensor, num_channels: int = 3, value_range: ValueRange | None = None
) -> tf.Tensor:
    """Decodes a JPEG, PNG, BMP, WebP, GIF (its first frame) or plain TIFF file to 0..255.

    With 3 channels, grey values are repeated and an alpha channel is dropped. One channel is the
    brightness of the three, 0.299 R + 0.587 G + 0.114 B, and exact for grey images. The fourth
    channel is the alpha channel of PNG and WebP files, and 255 for images without. The upper 8 of
    16 bits are kept, unless there is a range of values. The EXIF orientation of a file is ignored,
    since annotations of records refer to the stored pixels. A plain TIFF file, see `plain_files`,
    gives its first C channels; floats need a range of values.

    Args:
      encoded: string scalar.
      num_channels: C: 1, 3 or 4; of TIFF files any number.
      value_range: what the values of `decode_values` are mapped from; None decodes 8 bits.

    Returns:
      uint8 [H, W, C]; with `value_range` float32.

    Raises:
      tf.errors.InvalidArgumentError: when run, if it is another file, or a BMP file with less than
        8 bits a pixel, 16 bits a pixel, compression or a header of OS/2.
    """
    if value_range is not None:
        return value_range.scaled(decode_values(encoded, num_channels))
    _check_channels(num_channels)
    image = tf.cond(
        _is_tiff(encoded),
        lambda: _decode_tiff(encoded, num_channels, as_8_bits=True),
        lambda: _decode_8_bits(encoded, num_channels),
    )
    return tf.ensure_shape(image, [None, None, num_channels])


def _decode_8_bits(encoded: tf.Tensor, num_channels: int) -> tf.Tensor:
    if num_channels == 4:
        return _decode_with_alpha(encoded)
    return _brightness(_decode_colors(_of_channels(encoded, num_channels)), num_channels)


def _of_channels(encoded: tf.Tensor, num_channels: int) -> tf.Tensor:
    if num_channels in CHANNELS:
        return encoded
    message = f'Expected a TIFF file for images of {num_channels} channels.'
    with asserted(tf.constant(False), message):
        return tf.identity(encoded)


def _is_tiff(encoded: tf.Tensor) -> tf.Tensor:
    return tf.reduce_any(tf.strings.substr(encoded, 0, 4) == [*plain_files.MAGIC])


def _decode_tiff(encoded: tf.Tensor, num_channels: int, *, as_8_bits: bool = False) -> tf.Tensor:
    """Decodes a plain TIFF file to float32 [H, W, num_channels], or to uint8."""
    header = tf.io.decode_raw(encoded, tf.uint8, fixed_length=plain_files.HEADER_SIZE)
    height, width, channels, num_bytes = (
        _number(header[at : at + size])
        for at, size in (
            (plain_files.HEIGHT_PLACE, 4),
            (plain_files.WIDTH_PLACE, 4),
            (plain_files.CHANNELS_PLACE, 2),
            (plain_files.BYTES_PLACE, 2),
        )
    )
    mark = header[plain_files.MARK_PLACE : plain_files.HEIGHT_PLACE]
    # A product of doubles does not overflow.
    size = tf.reduce_prod(tf.cast(tf.stack([height, width, channels, num_bytes]), tf.float64))
    is_plain = tf.reduce_all(mark == [*plain_files.MARK]) & (size > 0)
    room = tf.cast(tf.strings.length(encoded) - plain_files.HEADER_SIZE, tf.float64)
    with asserted(
        is_plain & (size <= room) & tf.reduce_any(num_bytes == [1, 2, 4]),
        'Expected a complete TIFF file as `tfod convert` and the annotation readers make it.',
    ):
        pixels = tf.strings.substr(encoded, plain_files.HEADER_SIZE, tf.cast(size, tf.int32))
    needed = 3 if num_channels == 1 else num_channels
    with asserted(
        tf.equal(channels, 1) | (channels >= needed),
        f'Expected a TIFF file of one channel or at least {needed}. Received:',
        channels,
    ):
        shape = tf.stack([height, width, channels])

    def values(dtype: tf.DType) -> tf.Tensor:
        return tf.cast(tf.reshape(tf.io.decode_raw(pixels, dtype), shape), tf.float32)

    image = tf.switch_case(
        tf.cast(num_bytes // 2, tf.int32),
        [lambda: values(tf.uint8), lambda: values(tf.uint16), lambda: values(tf.float32)],
    )
    if as_8_bits:
        message = 'Expected image_resizer.value_range for a TIFF file of floats.'
        with asserted(num_bytes <= 2, message):
            image = tf.where(tf.equal(num_bytes, 2), tf.floor(image / 256.0), image)
    image = tf.cond(
        tf.equal(channels, 1),
        lambda: tf.repeat(image, needed, axis=-1),
        lambda: image[..., :needed],
    )
    if num_channels == 1:
        # Equal channels keep their values, whatever the rounding of the shares.
        brightness = tf.tensordot(image, _BRIGHTNESS, 1)[..., tf.newaxis]
        image = tf.where(tf.equal(channels, 1), image[..., :1], brightness)
    return tf.cast(tf.round(image), tf.uint8) if as_8_bits else image


def decode_values(encoded: tf.Tensor, num_channels: int = 3) -> tf.Tensor:
    """Decodes an image file to the values that it stores, of 8 or 16 bits.

    Args:
      encoded, num_channels: see `decode_image`.

    Returns:
      float32 [H, W, C], whole numbers of 0..255, or 0..65535 of a PNG file of 16 bits; of a TIFF
      file any values.
    """
    _check_channels(num_channels)
    image = tf.cond(
        _is_tiff(encoded),
        lambda: _decode_tiff(encoded, num_channels),
        lambda: _decode_stored(encoded, num_channels),
    )
    return tf.ensure_shape(image, [None, None, num_channels])


def _decode_stored(encoded: tf.Tensor, num_channels: int) -> tf.Tensor:
    encoded = _of_channels(encoded, num_channels)
    num_channels = num_channels if num_channels in CHANNELS else 3
    # A file that is cut off has no depth.
    depth = tf.io.decode_raw(encoded, tf.uint8, fixed_length=_HEADER_SIZE)[_PNG_DEPTH]
    channels = max(num_channels, 3)
    image = tf.cond(
        (tf.strings.substr(encoded, 0, 4) == _PNG) & (depth == 16),
        lambda: tf.cast(tf.io.decode_png(encoded, channels, tf.uint16), tf.float32),
        lambda: tf.cast(_decode_8_bits(encoded, channels), tf.float32),
    )
    return _brightness(tf.ensure_shape(image, [None, None, channels]), num_channels)


def _check_channels(number: int) -> None:
    if number < 1:
        raise UserError(f'decode_image: expected at least one channel. Received: {number}.')


def _brightness(image: tf.Tensor, num_channels: int) -> tf.Tensor:
    """Returns the rounded brightness [H, W, 1] for one channel, and else the image."""
    if num_channels != 1:
        return image
    brightness = tf.tensordot(tf.cast(image, tf.float32), _BRIGHTNESS, 1)
    return tf.cast(tf.round(brightness), image.dtype)[..., tf.newaxis]


def _decode_colors(encoded: tf.Tensor) -> tf.Tensor:
    is_bmp = tf.strings.substr(encoded, 0, 2) == 'BM'
    is_webp = tf.strings.substr(encoded, 0, 4) == 'RIFF'
    image = tf.switch_case(
        tf.where(is_bmp, 0, tf.where(is_webp, 1, 2)),
        [
            lambda: _decode_bmp(encoded),
            lambda: _decode_webp(encoded)[..., :3],
            lambda: _decode(_bounded(*_first_gif_frame(_of_few_scans(_known(encoded)))), 3),
        ],
    )
    return tf.ensure_shape(image, [None, None, 3])


def _decode_with_alpha(encoded: tf.Tensor) -> tf.Tensor:
    def opaque() -> tf.Tensor:
        return tf.pad(_decode_colors(encoded), [[0, 0], [0, 0], [0, 1]], constant_values=255)

    def webp() -> tf.Tensor:
        image = _decode_webp(encoded)
        missing = 4 - tf.shape(image)[-1]
        return tf.pad(image, [[0, 0], [0, 0], [0, missing]], constant_values=255)

    is_png = tf.strings.substr(encoded, 0, 4) == _PNG
    is_webp = tf.strings.substr(encoded, 0, 4) == 'RIFF'
    image = tf.switch_case(
        tf.where(is_png, 0, tf.where(is_webp, 1, 2)), [lambda: _decode(encoded, 4), webp, opaque]
    )
    return tf.ensure_shape(image, [None, None, 4])


def _known(encoded: tf.Tensor) -> tf.Tensor:
    """Refuses files of formats whose size is not known before TensorFlow decodes them: JPEG XL."""
    is_known = tf.reduce_any(tf.strings.substr(encoded, 0, 3) == [b'', *_KNOWN])
    message = 'Unknown image file format. Expected JPEG, PNG, BMP, WebP or GIF.'
    with asserted(is_known, message):
        return tf.identity(encoded)


def _of_few_scans(encoded: tf.Tensor) -> tf.Tensor:
    """Refuses JPEG files that take hours to decode."""

    def count() -> tf.Tensor:
        """Returns the number of scans: marker, length, and number of components."""
        found = tf.io.decode_raw(encoded, tf.uint8)
        marker, second, high, low, components = (found[at : at - 4 or None] for at in range(5))
        is_scan = (marker == 0xFF) & (second == 0xDA) & (high == 0)
        return tf.math.count_nonzero(is_scan & (low == 6 + 2 * components))

    is_jpeg = tf.strings.substr(encoded, 0, 3) == _JPEG
    num_scans = tf.cond(is_jpeg, count, lambda: tf.constant(0, tf.int64))
    message = f'Expected a JPEG file of at most {MAX_SCANS} scans.'
    with asserted(num_scans <= MAX_SCANS, message):
        return tf.identity(encoded)


def _bounded(encoded: tf.Tensor, num_pixels: tf.Tensor) -> tf.Tensor:
    """Refuses GIF and WebP files of a few bytes that take gigabytes to decode."""
    message = f'Expected a GIF or WebP file of no more pixels than {_MAX_PIXELS}. Received:'
    with asserted(num_pixels <= _MAX_PIXELS, message, num_pixels):
        return tf.identity(encoded)


def _decode(encoded: tf.Tensor, channels: int) -> tf.Tensor:
    return tf.io.decode_image(encoded, channels=channels, expand_animations=False)


def count_pixels(encoded: tf.Tensor) -> tf.Tensor:
    """Returns the number of pixels of an image file without decoding it.

    Args:
      encoded: string scalar, an image file; bytes of other formats have 0 pixels.

    Returns:
      int64 scalar, height x width; for a GIF file, of its first frame.

    Raises:
      tf.errors.InvalidArgumentError: when run, for a JPEG file without a header.
    """
    header = tf.io.decode_raw(encoded, tf.uint8, fixed_length=_HEADER_SIZE)

    def begins(magic: bytes, start: int = 0) -> tf.Tensor:
        # Not `tf.strings.substr`, which raises for a file that is shorter than the part.
        return tf.reduce_all(header[start : start + len(magic)] == [*magic])

    # In BMP files a negative height means that the rows begin at the top.
    bmp_sides = [tf.abs(tf.cast(_little_endian(header, at, 4), tf.int64)) for at in (18, 22)]
    num_pixels = {
        _PNG: _number(header[16:20][::-1]) * _number(header[20:24][::-1]),
        b'BM': bmp_sides[0] * bmp_sides[1],
        b'RIFF': tf.where(begins(b'WEBP', 8), _webp_pixels(header), 0),
        plain_files.MAGIC[0]: tf.where(
            begins(plain_files.MARK, plain_files.MARK_PLACE),
            _number(header[12:16]) * _number(header[16:20]),
            0,
        ),
    }
    of_header = tf.add_n([tf.where(begins(magic), n, 0) for magic, n in num_pixels.items()])
    # Only these two formats need more than the header.
    return tf.switch_case(
        tf.where(begins(_JPEG), 0, tf.where(begins(_GIF), 1, 2)),
        [
            lambda: tf.reduce_prod(tf.cast(tf.io.extract_jpeg_shape(encoded)[:2], tf.int64)),
            lambda: _first_gif_frame(encoded)[1],
            lambda: of_header,
        ],
    )


def _first_gif_frame(encoded: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns a GIF file of the first frame alone, and its number of pixels; other files unchanged.

    TensorFlow decompresses all frames, and gives the first one the size of the largest.
    """
    contents = tf.concat([tf.io.decode_raw(encoded, tf.uint8), tf.zeros([16], tf.uint8)], 0)
    length = tf.strings.length(encoded)

    def byte(place: tf.Tensor) -> tf.Tensor:
        return tf.cast(contents[tf.minimum(place, length)], tf.int32)

    def colors(flags: tf.Tensor) -> tf.Tensor:
        """Returns the bytes of a palette."""
        return tf.where(flags >= 128, 3 * tf.bitwise.left_shift(2, flags & 7), 0)

    def after_blocks(place: tf.Tensor, count: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the position after sub-blocks, of which an empty one is the last."""
        place, count = tf.while_loop(
            lambda place, count: (byte(place) > 0) & (count < MAX_GIF_BLOCKS),
            lambda place, count: (place + 1 + byte(place), count + 1),
            (place, count),
        )
        return place + 1, count + 1

    def after_full_blocks(place: tf.Tensor) -> tf.Tensor:
        # Most encoders fill all blocks but the last.
        blocks = contents[tf.minimum(place, length) :: _GIF_BLOCK_SIZE]
        num_full = tf.argmax(blocks != _GIF_BLOCK_SIZE - 1, output_type=tf.int32)
        return place + _GIF_BLOCK_SIZE * num_full

    def cut() -> tuple[tf.Tensor, tf.Tensor]:
        place, count = tf.while_loop(
            lambda place, count: (byte(place) == _GIF_EXTENSION) & (count < MAX_GIF_BLOCKS),
            lambda place, count: after_blocks(place + 2, count),
            (_GIF_HEADER_SIZE + colors(byte(tf.constant(10))), tf.constant(0)),
        )
        frame = tf.slice(contents, [tf.minimum(place, length)], [_GIF_FRAME_SIZE])
        pixels = _number(frame[5:7]) * _number(frame[7:9])
        # After the header and the palette, a byte says how the pixels are coded.
        end = place + _GIF_FRAME_SIZE + colors(tf.cast(frame[9], tf.int32)) + 1
        end, count = after_blocks(after_full_blocks(end), count)
        message = f'Expected a GIF file of at most {MAX_GIF_BLOCKS} blocks that are not full.'
        with asserted(count <= MAX_GIF_BLOCKS, message):
            still = tf.strings.substr(encoded, 0, end) + b';'
        is_frame = byte(place) == _GIF_FRAME
        return tf.where(is_frame, still, encoded), tf.where(is_frame, pixels, 0)

    is_gif = tf.strings.substr(encoded, 0, 4) == _GIF
    return tf.cond(is_gif, cut, lambda: (encoded, tf.constant(0, tf.int64)))


def _decode_webp(encoded: tf.Tensor) -> tf.Tensor:
    """Decodes a WebP file to uint8 [H, W, 3 or 4].

    TensorFlow 2.21 writes past its memory if it decodes one of several frames.
    """
    header = tf.io.decode_raw(encoded, tf.uint8, fixed_length=_HEADER_SIZE)
    encoded = _bounded(encoded, _webp_pixels(header))
    is_animated = (header[15] == ord('X')) & (header[20] & _WEBP_ANIMATION > 0)
    # `count_pixels` knows no other file.
    is_animated &= tf.reduce_all(header[8:12] == [*b'WEBP'])
    # `channels=3` would be refused for a file with transparency.
    return tf.cond(
        is_animated, lambda: _decode_first_webp_frame(encoded), lambda: _decode(encoded, 0)
    )


def _decode_first_webp_frame(encoded: tf.Tensor) -> tf.Tensor:
    """Decodes the first frame of an animation, on a canvas that is black and transparent."""
    size = tf.strings.length(encoded)
    # Zeros, so that parts of a file that is cut off are there.
    padded = encoded + b'\0' * _WEBP_FRAME_SIZE

    def tag(place: tf.Tensor) -> tf.Tensor:
        return tf.strings.substr(padded, place, 4)

    def number(place: tf.Tensor | int, num_bytes: int) -> tf.Tensor:
        digits = tf.strings.substr(padded, place, num_bytes)
        return _number(tf.io.decode_raw(digits, tf.uint8, fixed_length=num_bytes))

    def after_chunk(place: tf.Tensor) -> tuple[tf.Tensor]:
        length = number(place + 4, 4)
        end = tf.cast(place, tf.int64) + 8 + length + length % 2
        return (tf.cast(tf.minimum(end, tf.cast(size, tf.int64)), tf.int32),)

    (place,) = tf.while_loop(
        lambda place: (place < size) & (tag(place) != b'ANMF'),
        after_chunk,
        (tf.minimum(_WEBP_CHUNKS, size),),
        maximum_iterations=_MAX_WEBP_CHUNKS,
    )
    width, height = number(24, 3) + 1, number(27, 3) + 1
    left, top = 2 * number(place + 8, 3), 2 * number(place + 11, 3)
    right, bottom = left + number(place + 14, 3) + 1, top + number(place + 17, 3) + 1
    with asserted(
        (tag(place) == b'ANMF') & (right <= width) & (bottom <= height),
        'Expected a WebP animation whose first frame is within its canvas. Received (width and '
        'height of the canvas, right and lower edge of the frame):',
        *(width, height, right, bottom),
    ):
        end = tf.minimum(tf.cast(number(place + 4, 4), tf.int32), size - place - 8) - 16
        pixels = tf.strings.substr(padded, place + _WEBP_FRAME_SIZE, tf.maximum(end, 0))
    # A still file of the frame's size, in which pixels may have an alpha channel.
    still = b'VP8X\x0a\0\0\0' + bytes([_WEBP_ALPHA, 0, 0, 0])
    still += tf.strings.substr(padded, place + 14, 6) + pixels
    length = tf.strings.length(still) + 4
    digits = [tf.gather(_BYTES, tf.bitwise.right_shift(length, bits) & 255) for bits in _PLACES]
    image = _decode(tf.strings.join([b'RIFF', *digits, b'WEBP', still]), 0)
    return tf.pad(image, [[top, height - bottom], [left, width - right], [0, 0]])


def _webp_pixels(header: tf.Tensor) -> tf.Tensor:
    def product(sides: Sequence[tf.Tensor]) -> tf.Tensor:
        return sides[0] * sides[1]

    simple = product([_number(header[at : at + 2]) % 2**14 for at in (26, 28)])
    lossless = product([_number(header[21:25]) // 2**bit % 2**14 + 1 for bit in (0, 14)])
    extended = product([_number(header[at : at + 3]) + 1 for at in (24, 27)])
    kind = header[15]  # Of 'VP8 ', 'VP8L' and 'VP8X'.
    return tf.where(kind == ord('X'), extended, tf.where(kind == ord('L'), lossless, simple))


def _decode_bmp(encoded: tf.Tensor) -> tf.Tensor:
    """Decodes a BMP file; `tf.io.decode_image` would treat palette indices as grey values."""
    header = tf.io.decode_raw(encoded, tf.uint8, fixed_length=_BMP_COLOR_MASKS_END)
    header_size, bits, compression = (
        _little_endian(header, *place) for place in ((14, 4), (28, 2), (30, 4))
    )
    is_plain = (compression == _BMP_PLAIN) & ((bits == 8) | (bits == 24) | (bits == 32))
    is_bgra = (compression == _BMP_BIT_FIELDS) & (bits == 32)
    is_bgra &= tf.reduce_all(header[54:] == tf.constant(_BMP_BGRA_MASKS, tf.uint8))
    with asserted(
        (header_size >= 40) & (is_plain | is_bgra),
        'Expected a BMP file of 8, 24 or 32 bits a pixel without compression. '
        'Received (bits a pixel, compression, size of the header):',
        bits,
        compression,
        header_size,
    ):
        pixels = tf.io.decode_bmp(encoded)  # [H, W, 1, 3 or 4]

    def look_up() -> tf.Tensor:
        # An error of `substr` would have the bytes of the file in its text, which is no UTF-8.
        start = tf.clip_by_value(_BMP_HEADER_SIZE + header_size, 0, tf.strings.length(encoded))
        palette = tf.strings.substr(encoded, start, 4 * 256)
        colors = tf.reshape(tf.io.decode_raw(palette, tf.uint8, fixed_length=4 * 256), [256, 4])
        return tf.gather(colors[:, 2::-1], tf.cast(pixels[..., 0], tf.int32))

    return tf.cond(bits == 8, look_up, lambda: pixels[..., :3])


def _little_endian(values: tf.Tensor, start: int, size: int) -> tf.Tensor:
    """Returns the little-endian number int32 that starts at a byte."""
    return tf.cast(_number(values[start : start + size]), tf.int32)


def _number(digits: tf.Tensor) -> tf.Tensor:
    """Returns the number int64 of a static number of bytes, lowest first."""
    places = np.array([256**place for place in range(digits.shape[0])])
    return tf.reduce_sum(tf.cast(digits, tf.int64) * places)
