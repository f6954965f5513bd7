"""Functions that all anchor generators share: a set of boxes is repeated in every cell."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from object_detection.errors import UserError

# A size in pixels or cells: a Python int, or a scalar int32 tensor where it is not static.
Size = int | tf.Tensor


def box_sizes(scales: Sequence[float], aspect_ratios: Sequence[float]) -> np.ndarray:
    """Returns the sizes of boxes whose base size is 1, float32 [A, 2], rows (height, width).

    Args:
      scales: square roots of the areas of the A boxes.
      aspect_ratios: width / height of the A boxes.
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
    """Centres boxes of the given sizes in every cell of a grid.

    Args:
      sizes: float32 [A, 2], rows (height, width).
      grid_shape: (h, w), number of cells of the feature map.
      stride: (y, x) distance between neighbouring cells, in the unit of `sizes`.
      offset: (y, x) centre of the first cell.

    Returns:
      float32 [h * w * A, 4], rows [ymin, xmin, ymax, xmax] in the order y, x, box. Boxes
      are not clipped.
    """
    # Cells are counted as integers, which are exact for every size.
    y, x = (tf.range(tf.cast(cells, tf.int32)) for cells in grid_shape)
    y_centers = tf.cast(y, tf.float32) * stride[0] + offset[0]
    x_centers = tf.cast(x, tf.float32) * stride[1] + offset[1]
    centers = tf.stack(tf.meshgrid(y_centers, x_centers, indexing='ij'), axis=-1)  # [h, w, 2]
    centers = centers[:, :, tf.newaxis, :]
    half = tf.convert_to_tensor(sizes) * 0.5
    corners = tf.concat([centers - half, centers + half], axis=-1)  # [h, w, A, 4]
    return tf.reshape(corners, [-1, 4])


class AnchorGenerator:
    """Makes the anchors of every feature map (level).

    Attributes:
      normalized: whether anchors are relative to the image, else in pixels.
    """

    normalized = True
    _needs_image_size = True

    def num_anchors_per_location(self) -> list[int]:
        """Returns the number of anchors at a cell of each level."""
        raise NotImplementedError

    def for_images(self, image_size: tuple[int, int] | None) -> 'AnchorGenerator':
        """Returns the generator of a detector, which has the same anchors in every graph.

        Args:
          image_size: (height, width) of all preprocessed images in pixels, or None if it varies.
        """
        del image_size
        return self

    def generate(
        self,
        feature_map_shapes: Sequence[tuple[Size, Size]],
        image_height: Size | None = None,
        image_width: Size | None = None,
    ) -> list[tf.Tensor]:
        """Returns the anchors of every level.

        Args:
          feature_map_shapes: (height, width) of each level, ints or int32 scalars.
          image_height, image_width: size of the preprocessed image in pixels, ints or int32
            scalars; may be None where anchors are absolute.

        Returns:
          float32 [h * w * A, 4] for each level, in the order y, x, box; not clipped.

        Raises:
          ValueError: if the number of feature maps differs from the number of levels, or the size
            of the image is missing where anchors are normalized.
        """
        name, expected = type(self).__name__, len(self.num_anchors_per_location())
        if len(feature_map_shapes) != expected:
            raise UserError(
                f'{name}.generate: the number of feature maps must be that of the levels, '
                f'{expected}. Received: {len(feature_map_shapes)} feature maps, '
                f'{list(feature_map_shapes)}.'
            )
        is_size_missing = image_height is None or image_width is None
        if self.normalized and self._needs_image_size and is_size_missing:
            raise UserError(
                f'{name}.generate: normalized anchors need the size of the image. '
                f'Received: image_height={image_height}, image_width={image_width}.'
            )
        return [
            self._generate_level(level, shape, image_height, image_width)
            for level, shape in enumerate(feature_map_shapes)
        ]

    def _generate_level(
        self,
        level: int,
        shape: tuple[Size, Size],
        image_height: Size | None,
        image_width: Size | None,
    ) -> tf.Tensor:
        """Returns the anchors of one level; see `generate` for the arguments."""
        raise NotImplementedError
