"""What the mask network sees of each object: pixels in or around its box, and its embedding."""

import tensorflow as tf

from object_detection.core import crop_and_resize
from object_detection.core.shapes import dimensions
from object_detection.meta_architectures.center_net.tasks.task import centers, gather_points


def gather_embeddings(maps: tf.Tensor, boxes: tf.Tensor) -> tf.Tensor:
    """Returns the embeddings, [B, N, D], at the centres of boxes.

    A centre on the lower or right edge takes the last cell; the reference cannot read it.

    Args:
      maps: float32 [B, H, W, D].
      boxes: float32 [B, N, 4], normalized.
    """
    sides = [tf.cast(side, tf.float32) for side in dimensions(maps, 1, 2)]
    middles, _ = centers(boxes * tf.stack(sides * 2))
    return gather_points(maps, middles)


def crop_pixels(maps: tf.Tensor, boxes: tf.Tensor, size: int, *, use_xy: bool) -> tf.Tensor:
    """Returns the pixels in boxes, [B, N, size, size, C], after two coordinates if `use_xy`.

    The coordinates (y, x) go from -1 to 1 in each box.

    Args:
      maps: float32 [B, H, W, C].
      boxes: float32 [B, N, 4], normalized.
      size: rows and columns of samples in a box.
      use_xy: whether there are coordinates.
    """
    crops = crop_and_resize.crop_and_resize(maps, boxes, (size, size))
    if not use_xy:
        return crops
    grid = _grid(tf.linspace(-1.0, 1.0, size), tf.linspace(-1.0, 1.0, size))
    batch, count = dimensions(crops, 0, 1)
    return tf.concat([tf.broadcast_to(grid, [batch, count, size, size, 2]), crops], axis=-1)


def all_pixels(maps: tf.Tensor, boxes: tf.Tensor, *, use_xy: bool) -> tf.Tensor:
    """Returns all pixels for each box, [B, N, H, W, C], after two coordinates if `use_xy`.

    The coordinates (y, x) go from 0 to 1 in the image, less those of the centre of the box.

    Args:
      maps: float32 [B, H, W, C].
      boxes: float32 [B, N, 4], normalized.
      use_xy: whether there are coordinates.
    """
    batch, height, width, channels = dimensions(maps, 0, 1, 2, 3)
    (count,) = dimensions(boxes, 1)
    shape = [batch, count, height, width]
    pixels = tf.broadcast_to(maps[:, tf.newaxis], [*shape, channels])
    if not use_xy:
        return pixels
    middles, _ = centers(boxes)
    grid = _grid(tf.linspace(0.0, 1.0, height), tf.linspace(0.0, 1.0, width))
    return tf.concat([grid - middles[:, :, tf.newaxis, tf.newaxis], pixels], axis=-1)


def _grid(rows: tf.Tensor, columns: tf.Tensor) -> tf.Tensor:
    """Returns the coordinates (y, x) of a grid, float32 [h, w, 2]."""
    return tf.stack(tf.meshgrid(rows, columns, indexing='ij'), axis=-1)
