"""Shapes of tensors, under the names of the reference."""

from collections.abc import Sequence

import tensorflow as tf

from object_detection.core.shapes import dimensions
from object_detection.utils import missing

__getattr__ = missing(
    __name__,
    {
        'static_or_dynamic_map_fn': 'call tf.map_fn or tf.vectorized_map',
        'check_min_image_dim': 'configs are checked before a detector is built',
        'assert_shape_equal': 'call tf.debugging.assert_shapes',
        'assert_shape_equal_along_first_dimension': 'call tf.debugging.assert_shapes',
        'assert_box_normalized': 'records are checked when they are read',
        'flatten_dimensions': 'call tf.reshape',
        'flatten_first_n_dimensions': 'call tf.reshape',
        'expand_first_dimension': 'call tf.reshape',
    },
)


def pad_or_clip_tensor(t: tf.Tensor, length: int | tf.Tensor) -> tf.Tensor:
    """Makes a tensor [n, ...] one of `length` rows, by zeros at the end or by leaving out rows."""
    return pad_or_clip_nd(t, [length, *[None] * (t.shape.rank - 1)])


# In the reference, `pad_tensor` only adds rows, and `clip_tensor` only leaves some out.
pad_tensor = clip_tensor = pad_or_clip_tensor


def pad_or_clip_nd(tensor: tf.Tensor, output_shape: Sequence[int | tf.Tensor | None]) -> tf.Tensor:
    """Makes a tensor one of another shape, by zeros at the ends or by leaving out the ends.

    Args:
      tensor: of any type but string.
      output_shape: size of each axis; None leaves an axis as it is.

    Returns:
      A tensor of that shape, which is static where it is given as integers.
    """
    tensor = tf.convert_to_tensor(tensor)
    sizes = combined_static_and_dynamic_shape(tensor)
    targets = [
        size if target is None else target for size, target in zip(sizes, output_shape, strict=True)
    ]
    kept = tensor[tuple(slice(target) for target in targets)]
    missing_rows = [
        [0, tf.maximum(target - size, 0)] for size, target in zip(sizes, targets, strict=True)
    ]
    padded = tf.pad(kept, missing_rows)
    return tf.ensure_shape(padded, [None if tf.is_tensor(target) else target for target in targets])


def combined_static_and_dynamic_shape(tensor: tf.Tensor) -> list[int | tf.Tensor]:
    """Returns the sizes of all axes: integers where they are static, otherwise int32 scalars."""
    return list(dimensions(tensor, *range(tensor.shape.rank)))
