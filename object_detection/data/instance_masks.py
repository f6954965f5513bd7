"""Instance masks of records: crops relative to each object's box, or full-size masks."""

import numpy as np
import tensorflow as tf

from object_detection.core.shapes import asserted

# Keeps the last sample of a box that ends at the image's edge inside the image despite rounding;
# outside, the crop would be zero. It is less than a thousandth of a pixel.
_INSIDE = 1.0 - 1e-6
_ROUNDING = 1e-5

# A PNG file begins with its signature and a header: width, height, bits and kind of colours.
_SIGNATURE = b'\x89PNG\r\n\x1a\n'
_HEADER_SIZE, _SIZE_START, _BITS, _COLOR_TYPE = 26, 16, 24, 25
_GREY, _PALETTE = 0, 3
# What follows the size in the header of a file of the conversion: one bit, grey, not interlaced.
_PACKED = (1, _GREY, 0, 0, 0)
# Its data are one chunk, from the size of the chunk and its name on; 16 bytes follow them.
_CHUNK_START, _NAME_START, _DATA_START, _DATA_END = 33, 37, 41, 16
_MAX_PIXELS_AT_ONCE = 1 << 26
# Byte -> its pixels, the highest bit first, as the bytes of a number, the lowest byte first.
_PIXELS_OF_BYTE = np.unpackbits(np.arange(256, dtype=np.uint8)).view('<i8')


def checked(encoded: tf.Tensor, size: tf.Tensor, source_id: tf.Tensor) -> tf.Tensor:
    """Checks the headers of PNG masks.

    Args:
      encoded: string [n], PNG files.
      size: int32 [2], height and width of their image.
      source_id: string, names the image in errors.

    Returns:
      string [n], the same files.

    Raises:
      tf.errors.InvalidArgumentError: when run, if a mask is not a PNG file, has another size
        than the image, or a palette that does not begin with black, so that its background would be
        the object.
    """
    headers = tf.io.decode_raw(encoded, tf.uint8, fixed_length=_HEADER_SIZE)  # [n, 26]
    is_png = tf.reduce_all(headers[:, : len(_SIGNATURE)] == tuple(_SIGNATURE))
    sizes = _whole_numbers(headers[:, _SIZE_START:_BITS])[:, ::-1]  # height, width
    has_size = tf.reduce_all(sizes == tf.cast(size, tf.int64))
    palettes = tf.boolean_mask(encoded, headers[:, _COLOR_TYPE] == _PALETTE)
    begins_black = tf.cond(
        tf.size(palettes) > 0, lambda: _begin_with_black(palettes), lambda: tf.constant(True)
    )
    checks = [
        tf.debugging.Assert(is_png, ['An instance mask is no PNG file. Image:', source_id]),
        tf.debugging.Assert(
            has_size,
            [
                'An instance mask has another size than its image. Image, its height and width, '
                'those of its masks:',
                source_id,
                size,
                sizes,
            ],
            summarize=20,
        ),
        tf.debugging.Assert(
            begins_black,
            [
                'The palette of an instance mask does not begin with black, the background; '
                'expected a grey PNG file. Image:',
                source_id,
            ],
        ),
    ]
    with tf.control_dependencies([check for check in checks if check is not None]):
        return tf.identity(encoded)


def checked_size(masks: tf.Tensor, size: tf.Tensor, source_id: tf.Tensor) -> tf.Tensor:
    """Compares the size of masks, uint8 [n, H, W], with their image's; see `checked`.

    Raises:
      tf.errors.InvalidArgumentError: when run, if they differ.
    """
    of_masks = tf.shape(masks)
    with asserted(
        (of_masks[0] == 0) | tf.reduce_all(of_masks[1:] == size),
        'Instance masks have another size (image/height, image/width) than their image. Image, '
        'its height and width, those of its masks:',
        source_id,
        size,
        of_masks[1:],
    ):
        return tf.identity(masks)


def crop_encoded(encoded: tf.Tensor, boxes: tf.Tensor, size: int) -> tf.Tensor:
    """Crops each object's PNG mask to its box.

    Masks as the conversion writes them are decoded together, which is several times as fast, unless
    they have many pixels; others one at a time.

    Sampling is the same as in `tf.image.crop_and_resize`: bilinear, with the first and last samples
    on the box's edges, where 0 and 1 of a normalized box are the centres of the first and last
    pixels.

    Args:
      encoded: string [n], PNG files; pixels that are not black belong to the object.
      boxes: float32 [n, 4], normalized to the masks, within [0, 1].
      size: side S of the crops.

    Returns:
      uint8 [n, S, S], 255 = 1.
    """

    def crop_one(row: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        mask, box = row
        return crop(_decode(mask)[tf.newaxis], box[tf.newaxis], size)[0]

    spec = tf.TensorSpec([size, size], tf.uint8)
    rows, width = _packed_rows(encoded)
    return tf.cond(
        tf.size(rows) > 0,
        lambda: _crop_packed(rows, width, boxes, size),
        lambda: tf.map_fn(crop_one, (encoded, boxes), fn_output_signature=spec),
    )


def crop(masks: tf.Tensor, boxes: tf.Tensor, size: int) -> tf.Tensor:
    """Crops each object's mask to its box; see `crop_encoded`.

    Args:
      masks: uint8 [n, H, W], 0 or 1.
      boxes: float32 [n, 4], normalized to the masks, within [0, 1].
      size: side S of the crops.

    Returns:
      uint8 [n, S, S], 255 = 1.
    """
    return _sample(masks, boxes, size, 255.0)


def recrop(crops: tf.Tensor, parts: tf.Tensor) -> tf.Tensor:
    """Resamples a part of each crop to a crop of the same size.

    Args:
      crops: uint8 [n, S, S], 255 = 1.
      parts: float32 [n, 4], normalized to the crops, within [0, 1].

    Returns:
      uint8 [n, S, S], 255 = 1.
    """
    return _sample(crops, parts, crops.shape[1], 1.0)


def resample(crops: tf.Tensor, frames: tf.Tensor) -> tf.Tensor:
    """Resamples each crop to another frame, which may extend beyond it; outside it is black.

    Args:
      crops: uint8 [n, S, S], 255 = 1.
      frames: float32 [n, 4], normalized to the crops.

    Returns:
      uint8 [n, S, S], 255 = 1.
    """
    # Frames that end where the crop does keep its last samples despite rounding.
    is_end = tf.abs(frames - 1.0) < _ROUNDING
    return _sample_frames(crops, tf.where(is_end, _INSIDE, frames), crops.shape[1], 1.0)


def union(crops: tf.Tensor, boxes: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    """Returns which pixels of an image belong to any of some objects.

    Args:
      crops: uint8 [n, S, S], 255 = 1.
      boxes: float32 [n, 4], normalized to the image, within [0, 1].
      size: int32 [2], height and width of the image.

    Returns:
      bool [H, W].
    """
    last = tf.maximum(tf.cast(size, tf.float32) - 1.0, 1.0)

    def add(covered: tf.Tensor, row: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        crop, box = row
        first = tf.minimum(tf.cast(tf.math.ceil(box[:2] * last), tf.int32), size - 1)
        end = tf.maximum(tf.cast(box[2:] * last + _ROUNDING, tf.int32) + 1, first + 1)
        end = tf.minimum(end, size)
        # The crop in the frame of its first and last pixel, and that of these pixels in the crop's.
        corners = tf.stack([tf.cast(first, tf.float32), tf.cast(end - 1, tf.float32)]) / last
        part = tf.math.divide_no_nan(corners - box[:2], box[2:] - box[:2])
        part = tf.reshape(tf.clip_by_value(part, 0.0, _INSIDE), [1, 4])
        pasted = tf.image.crop_and_resize(crop[tf.newaxis, ..., tf.newaxis], part, [0], end - first)
        paddings = tf.stack([first, size - end], axis=1)
        return covered | tf.pad(pasted[0, ..., 0] > 127.5, paddings)

    return tf.foldl(add, (crops, boxes), tf.zeros(size, tf.bool))


def decode(encoded: tf.Tensor, height: tf.Tensor, width: tf.Tensor) -> tf.Tensor:
    """Decodes PNG masks of one size.

    Args:
      encoded: string [n], PNG files of `height` x `width`; pixels that are not black belong to the
        object.

    Returns:
      uint8 [n, height, width], 0 or 1.
    """

    def decode_all() -> tf.Tensor:
        spec = tf.TensorSpec([None, None], tf.uint8)
        rows, width = _packed_rows(encoded)
        return tf.cond(
            tf.size(rows) > 0,
            lambda: _unpacked(rows)[..., :width],
            lambda: tf.map_fn(_decode, encoded, fn_output_signature=spec),
        )

    # In a graph, `map_fn` does not know the size of zero masks.
    none = tf.zeros([0, height, width], tf.uint8)
    return tf.cond(tf.size(encoded) > 0, decode_all, lambda: none)


def encode(masks: tf.Tensor) -> tf.Tensor:
    """Encodes masks, uint8 [n, H, W], as PNG files, string [n]."""
    spec = tf.TensorSpec([], tf.string)
    return tf.map_fn(tf.io.encode_png, masks[..., tf.newaxis], fn_output_signature=spec)


def _decode(encoded: tf.Tensor) -> tf.Tensor:
    """One PNG file -> uint8 [H, W], 0 or 1.

    Any number of bits and channels is accepted; an alpha channel is ignored.
    """
    header = tf.io.decode_raw(encoded, tf.uint8, fixed_length=_HEADER_SIZE)

    def is_object(dtype: tf.DType) -> tf.Tensor:
        values = tf.io.decode_png(encoded, dtype=dtype)  # [H, W, 1 to 4]
        num_colors = (tf.shape(values)[-1] - 1) // 2 * 2 + 1
        return tf.reduce_any(values[..., :num_colors] > 0, axis=-1)

    mask = tf.case(
        [
            # Decoding 16 bits to 8 would keep only the upper bits.
            (header[_BITS] > 8, lambda: is_object(tf.uint16)),
            (header[_COLOR_TYPE] != _GREY, lambda: is_object(tf.uint8)),
        ],
        default=lambda: tf.io.decode_png(encoded, channels=1)[..., 0] > 0,
    )
    return tf.cast(mask, tf.uint8)


def _whole_numbers(digits: tf.Tensor) -> tf.Tensor:
    """Numbers of four bytes each, uint8 [n, 4 * k], the highest first -> int64 [n, k]."""
    parts = tf.reshape(digits, [-1, digits.shape[1] // 4, 4])
    return tf.reduce_sum(tf.cast(parts, tf.int64) * [2**24, 2**16, 2**8, 1], axis=-1)


def _packed_rows(encoded: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Inflates PNG masks, string [n], if all have the form that the conversion writes and one size.

    Returns:
      (uint8 [n, H, ceil(W / 8)], eight pixels in a byte, the highest bit first; W, int32). [0, 0,
      0] if a file has another form, or they have too many pixels.
    """
    headers = tf.io.decode_raw(encoded, tf.uint8, fixed_length=_DATA_START)
    sizes = _whole_numbers(headers[:, _SIZE_START:_BITS])
    lengths = tf.cast(tf.strings.length(encoded), tf.int64) - _DATA_START - _DATA_END
    chunks = _whole_numbers(headers[:, _CHUNK_START:_NAME_START])[:, 0]
    is_packed = (
        tf.reduce_all(headers[:, _BITS:_CHUNK_START][:, : len(_PACKED)] == _PACKED)
        & tf.reduce_all(headers[:, _NAME_START:_DATA_START] == tuple(b'IDAT'))
        & tf.reduce_all((chunks == lengths) & (lengths > 0))
        & tf.reduce_all(sizes == sizes[:1])
        & (tf.size(encoded) > 0)
        & (tf.reduce_sum(tf.reduce_prod(sizes, axis=1)) <= _MAX_PIXELS_AT_ONCE)
    )

    def inflate() -> tuple[tf.Tensor, tf.Tensor]:
        starts = tf.fill(tf.shape(encoded), _DATA_START)
        data = tf.strings.substr(encoded, starts, tf.cast(lengths, tf.int32))
        width, height = tf.unstack(tf.cast(sizes[0], tf.int32))
        num_bytes = height * (1 + (width + 7) // 8)
        content = tf.io.decode_compressed(data, 'ZLIB')
        rows = tf.io.decode_raw(content, tf.uint8, fixed_length=num_bytes)
        rows = tf.reshape(rows, [-1, height, num_bytes // height])
        # The first byte of a row is its filter; 0 is none.
        is_plain = tf.reduce_all(tf.strings.length(content) == num_bytes)
        is_plain &= tf.reduce_all(rows[..., 0] == 0)
        return rows[: tf.where(is_plain, tf.shape(rows)[0], 0), :, 1:], width

    return tf.cond(is_packed, inflate, lambda: (tf.zeros([0, 0, 0], tf.uint8), tf.constant(0)))


def _unpacked(rows: tf.Tensor) -> tf.Tensor:
    """Returns the pixels of `_packed_rows`, uint8 [n, H, B] -> uint8 [n, H, 8 * B], 0 or 1."""
    pixels = tf.bitcast(tf.gather(_PIXELS_OF_BYTE, tf.cast(rows, tf.int32)), tf.uint8)
    return tf.reshape(pixels, [*tf.unstack(tf.shape(rows)[:2]), 8 * tf.shape(rows)[2]])


def _crop_packed(rows: tf.Tensor, width: tf.Tensor, boxes: tf.Tensor, size: int) -> tf.Tensor:
    """Returns `crop` of the pixels of `_packed_rows`; only those that are sampled are unpacked."""
    boxes = tf.minimum(boxes, _INSIDE)
    top, bottom, below = _samples(boxes[:, 0], boxes[:, 2], tf.shape(rows)[1], size)
    left, right, beside = _samples(boxes[:, 1], boxes[:, 3], width, size)
    # Columns are rows from here on, so that both are copied whole.
    rows = tf.gather(rows, tf.concat([top, bottom], axis=1), batch_dims=1)  # [n, 2 S, B]
    columns = tf.transpose(rows, [0, 2, 1])

    def at(places: tf.Tensor) -> tf.Tensor:
        bits = tf.bitwise.left_shift(tf.constant(1, tf.uint8), tf.cast(7 - places % 8, tf.uint8))
        found = tf.gather(columns, places // 8, batch_dims=1)  # [n, S, 2 S]
        return tf.cast((found & bits[..., tf.newaxis]) != 0, tf.float32)

    # The same sums as in `tf.image.crop_and_resize`.
    first = at(left)
    rows = first + (at(right) - first) * beside[..., tf.newaxis]
    upper, lower = tf.split(rows, 2, axis=2)
    values = upper + (lower - upper) * below[:, tf.newaxis]
    return tf.transpose(tf.cast(tf.round(values * 255.0), tf.uint8), [0, 2, 1])


def _samples(
    start: tf.Tensor, end: tf.Tensor, length: tf.Tensor, size: int
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns the pixels before and after each sample, int32 [n, S], and its place between them.

    Args:
      start, end: of the boxes, float32 [n], normalized.
      length: of the masks in pixels, int32.
      size: number of samples S.
    """
    last = tf.cast(length - 1, tf.float32)
    start, end = start[:, tf.newaxis], end[:, tf.newaxis]
    places = 0.5 * (start + end) * last
    if size > 1:
        places = start * last + tf.range(size, dtype=tf.float32) * (
            (end - start) * last / (size - 1)
        )
    before = tf.floor(places)
    pixels = [
        tf.minimum(tf.cast(each, tf.int32), length - 1) for each in (before, tf.math.ceil(places))
    ]
    return *pixels, places - before


def _begin_with_black(palettes: tf.Tensor) -> tf.Tensor:
    """Whether the first colour of each PNG file's palette, string [n], is black: bool scalar."""
    parts = tf.strings.split(palettes, 'PLTE', maxsplit=1).to_tensor(shape=[None, 2])
    colors = tf.io.decode_raw(parts[:, 1], tf.uint8, fixed_length=3)
    return tf.reduce_all(colors == 0)


def _sample(masks: tf.Tensor, boxes: tf.Tensor, size: int, factor: float) -> tf.Tensor:
    """Samples boxes of masks, [n, H, W], times `factor`: uint8 [n, size, size]."""
    return _sample_frames(masks, tf.minimum(boxes, _INSIDE), size, factor)


def _sample_frames(masks: tf.Tensor, boxes: tf.Tensor, size: int, factor: float) -> tf.Tensor:
    crops = tf.image.crop_and_resize(
        masks[..., tf.newaxis], boxes, tf.range(tf.shape(boxes)[0]), [size, size]
    )
    return tf.cast(tf.round(crops[..., 0] * factor), tf.uint8)
