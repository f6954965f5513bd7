"""What all anchor generators share: one set of boxes, repeated at every cell of a feature map."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from object_detection.errors import UserError

# A size in pixels or cells: a Python int, or a scalar int32 tensor where it is not static.
Size = int | tf.Tensor


def box_sizes(scales: Sequence[float], aspect_ratios: Sequence[float]) -> np.ndarray:
    """Returns the sizes of boxes of unit base, float32 [A, 2], rows (height, width).

    Args:
      scales: A square roots of the boxes' areas.
      aspect_ratios: A quotients width / height, one for each scale.
    """
    scales = np.asarray(scales, np.float32)
    roots = np.sqrt(np.asarray(aspect_ratios, np.float32))
    return np.stack([scales / roots, scales * roots], axis=-1)


def tile(
    sizes: tf.Tensor | np.ndarray,
    grid_shape: tuple[Size, Size],
    stride: tuple[float | tf.Tensor, float | tf.Tensor],
    offset: tuple[float | tf.Tensor, float | tf.Tensor],
) -> tf.Tensor:
    """Centres boxes of the given sizes at every cell of a grid.

    Args:
      sizes: float32 [A, 2], rows (height, width).
      grid_shape: (h, w), cells of the feature map.
      stride: (y, x) distance of neighbouring cells, in the unit of `sizes`.
      offset: (y, x) centre of the first cell.

    Returns:
      float32 [h * w * A, 4], rows [ymin, xmin, ymax, xmax] in the order y, x, box. Nothing is
      clipped.
    """
    # Counted as integers: exact for every size.
    y, x = (tf.range(tf.cast(cells, tf.int32)) for cells in grid_shape)
    y_centers = tf.cast(y, tf.float32) * stride[0] + offset[0]
    x_centers = tf.cast(x, tf.float32) * stride[1] + offset[1]
    centers = tf.stack(tf.meshgrid(y_centers, x_centers, indexing='ij'), axis=-1)  # [h, w, 2]
    centers = centers[:, :, tf.newaxis, :]
    half = tf.convert_to_tensor(sizes) * 0.5
    corners = tf.concat([centers - half, centers + half], axis=-1)  # [h, w, A, 4]
    return tf.reshape(corners, [-1, 4])


def check_num_feature_maps(owner: str, shapes: Sequence, expected: int) -> None:
    """Raises a ValueError unless there is one feature map for each level of the generator."""
    if len(shapes) != expected:
        raise UserError(
            f'{owner}.generate: the number of feature maps must be that of the levels, '
            f'{expected}. Received: {len(shapes)} feature maps, {list(shapes)}.'
        )


def check_image_size(owner: str, image_height: Size | None, image_width: Size | None) -> None:
    """Raises a ValueError where anchors are to be normalized and the image's size is not given."""
    if image_height is None or image_width is None:
        raise UserError(
            f'{owner}.generate: normalized anchors need the size of the image. '
            f'Received: image_height={image_height}, image_width={image_width}.'
        )
