"""Instance masks of records: crops relative to each object's box, or full-size masks."""

import tensorflow as tf

# Keeps the last sample of a box that ends at the image's edge inside the image in spite of
# rounding; outside, the crop would be zero there. Less than a thousandth of a pixel.
_INSIDE = 1.0 - 1e-6


def crop_encoded(encoded: tf.Tensor, boxes: tf.Tensor, size: int) -> tf.Tensor:
    """Cuts each object's box out of its PNG mask, without holding more than one full mask.

    The samples are those of `tf.image.crop_and_resize`: bilinear, the first and last ones on the
    box's edges, where 0 and 1 of a normalized box are the centres of the first and last pixels.

    Args:
      encoded: string [n], PNG files; pixels above 0 belong to the object.
      boxes: float32 [n, 4], normalized to the masks, within [0, 1].
      size: side S of the crops.

    Returns:
      uint8 [n, S, S], 255 = 1.
    """

    def crop_one(row: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        mask, box = row
        return crop(_decode(mask)[tf.newaxis], box[tf.newaxis], size)[0]

    spec = tf.TensorSpec([size, size], tf.uint8)
    return tf.map_fn(crop_one, (encoded, boxes), fn_output_signature=spec)


def crop(masks: tf.Tensor, boxes: tf.Tensor, size: int) -> tf.Tensor:
    """Cuts each object's box out of its mask; see `crop_encoded`.

    Args:
      masks: uint8 [n, H, W], 0 or 1.
      boxes: float32 [n, 4], normalized to the masks, within [0, 1].
      size: side S of the crops.

    Returns:
      uint8 [n, S, S], 255 = 1.
    """
    return _sample(masks, boxes, size, 255.0)


def recrop(crops: tf.Tensor, parts: tf.Tensor) -> tf.Tensor:
    """Cuts a part out of each crop, which becomes a crop of the same size.

    Args:
      crops: uint8 [n, S, S], 255 = 1.
      parts: float32 [n, 4], normalized to the crops, within [0, 1].

    Returns:
      uint8 [n, S, S], 255 = 1.
    """
    return _sample(crops, parts, crops.shape[1], 1.0)


def decode(encoded: tf.Tensor, height: tf.Tensor, width: tf.Tensor) -> tf.Tensor:
    """Decodes PNG masks of one size.

    Args:
      encoded: string [n], PNG files of `height` x `width`; pixels above 0 belong to the object.

    Returns:
      uint8 [n, height, width], 0 or 1.

    Raises:
      tf.errors.InvalidArgumentError: when run, if a mask has another size.
    """
    size = tf.stack([height, width])

    def decode_one(mask: tf.Tensor) -> tf.Tensor:
        mask = _decode(mask)
        tf.debugging.assert_equal(
            tf.shape(mask), size, 'An instance mask has another size than its image.'
        )
        return mask

    def decode_all() -> tf.Tensor:
        spec = tf.TensorSpec([None, None], tf.uint8)
        return tf.map_fn(decode_one, encoded, fn_output_signature=spec)

    # In a graph, no mask at all has no size that `map_fn` would know.
    none = tf.zeros([0, height, width], tf.uint8)
    return tf.cond(tf.size(encoded) > 0, decode_all, lambda: none)


def encode(masks: tf.Tensor) -> tf.Tensor:
    """Encodes masks, uint8 [n, H, W], as PNG files, string [n]."""
    spec = tf.TensorSpec([], tf.string)
    return tf.map_fn(tf.io.encode_png, masks[..., tf.newaxis], fn_output_signature=spec)


def _decode(encoded: tf.Tensor) -> tf.Tensor:
    """One PNG file -> uint8 [H, W], 0 or 1."""
    return tf.minimum(tf.io.decode_png(encoded, channels=1), 1)[..., 0]


def _sample(masks: tf.Tensor, boxes: tf.Tensor, size: int, factor: float) -> tf.Tensor:
    """Samples boxes of masks, [n, H, W], times `factor`: uint8 [n, size, size]."""
    crops = tf.image.crop_and_resize(
        masks[..., tf.newaxis],
        tf.minimum(boxes, _INSIDE),
        tf.range(tf.shape(boxes)[0]),
        [size, size],
    )
    return tf.cast(tf.round(crops[..., 0] * factor), tf.uint8)
