"""DensePose: which part of a body a pixel shows, and where on its surface (arXiv:1802.00434)."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from object_detection.core import tracing
from object_detection.core.crop_and_resize import crop_and_resize
from object_detection.core.fields import DetectionFields
from object_detection.core.fields import InputFields as F
from object_detection.core.loss_sum import LossSum, add
from object_detection.core.shapes import dimensions
from object_detection.meta_architectures.center_net import heat_maps
from object_detection.meta_architectures.center_net.tasks.task import Cells, Head, Task

_PARTS, _SURFACE = 'densepose/heatmap', 'densepose/regression'
SURFACES = DetectionFields.SURFACE_COORDS
_ORIGIN = 'load_dense_pose of the input readers'


class SurfacePoints(NamedTuple):
    """Annotated points of a batch, D for each of M objects.

    Attributes:
      cells: int32 [B, M * D, 2], row and column of the map.
      parts: int32 [B, M * D], 0-based.
      coordinates: float32 [B, M * D, 2], (v, u).
      weights: float32 [B, M * D]; 0 is no point.
    """

    cells: tf.Tensor
    parts: tf.Tensor
    coordinates: tf.Tensor
    weights: tf.Tensor


class DensePose(Task):
    """Predicts parts, and the coordinates (v, u) on each part, at annotated points.

    Detections have them in the masks of their class: see `masks.Masks`.

    Args:
      part_head: P channels.
      surface_head: 2 * P channels.
      class_index: the class that has a surface, 0-based.
      part_loss: `(logits [N, 1, P], targets, weights [N, 1, 1]) -> losses`.
      surface_loss: `(predictions [1, N, 2], targets, weights [1, N]) -> losses`.
      part_weight, surface_weight: factors of the losses.
      at_input_size: whether points are compared at the resolution of the image, to which the maps
        are enlarged linearly.
    """

    loss_names = (f'Loss/{_PARTS}', f'Loss/{_SURFACE}')

    def __init__(
        self,
        *,
        part_head: Head,
        surface_head: Head,
        class_index: int,
        part_loss: Callable,
        surface_loss: Callable,
        part_weight: float,
        surface_weight: float,
        at_input_size: bool,
    ):
        self.heads = {_PARTS: part_head, _SURFACE: surface_head}
        self.class_index = class_index
        self._part_loss = part_loss
        self._surface_loss = surface_loss
        self._weights = {_PARTS: part_weight, _SURFACE: surface_weight}
        self._at_input_size = at_input_size

    def targets(self, cells: Cells, scale: int = 1) -> SurfacePoints:
        """Returns the annotated points.

        Args:
          cells: the ground truth.
          scale: factor by which the maps are enlarged.
        """
        points, parts, coordinates, counts = (
            cells.field(name, _ORIGIN)
            for name in (
                F.GROUNDTRUTH_DP_POINTS,
                F.GROUNDTRUTH_DP_PART_IDS,
                F.GROUNDTRUTH_DP_SURFACE,
                F.GROUNDTRUTH_DP_NUM_POINTS,
            )
        )
        batch, number, each = dimensions(points, 0, 1, 2)
        sides = tf.stack([tf.cast(side * scale, tf.float32) for side in cells.size])
        is_point = tf.cast(tf.range(each) < counts[..., tf.newaxis], tf.float32)  # [B, M, D]
        weights = is_point * cells.groundtruth.weights[..., tf.newaxis]

        def flat(values: tf.Tensor) -> tf.Tensor:
            return tf.reshape(values, [batch, number * each, *values.shape[3:]])

        return SurfacePoints(
            flat(tf.cast(tf.floor(points * sides), tf.int32)),
            flat(parts),
            flat(coordinates),
            flat(weights),
        )

    def loss_sums(
        self, maps: Mapping[str, Sequence[tf.Tensor]], cells: Cells
    ) -> dict[str, LossSum]:
        scale = cells.stride if self._at_input_size else 1
        points = self.targets(cells, scale)
        num_parts = self.heads[_PARTS].channels
        parts = tf.one_hot(tf.reshape(points.parts, [-1]), num_parts)
        coordinates = tf.reshape(points.coordinates, [1, -1, 2])
        weights = tf.reshape(points.weights, [-1])
        losses: dict[str, list[tf.Tensor]] = {_PARTS: [], _SURFACE: []}
        for part_map, surface_map in zip(maps[_PARTS], maps[_SURFACE], strict=True):
            logits = tf.reshape(_enlarged_values(part_map, points.cells, scale), [-1, num_parts])
            loss = self._part_loss(logits[:, None], parts[:, None], weights[:, None, None])
            losses[_PARTS].append(loss)
            surfaces = _enlarged_values(surface_map, points.cells, scale)
            surfaces = tf.reshape(surfaces, [-1, num_parts, 2])
            # The coordinates on the annotated part.
            chosen = tf.gather(surfaces, tf.reshape(points.parts, [-1]), batch_dims=1)
            losses[_SURFACE].append(self._surface_loss(chosen[None], coordinates, weights[None]))
        number = tf.math.count_nonzero(weights, dtype=tf.float32)
        return {
            f'Loss/{name}': add(each, number, self._weights[name]) for name, each in losses.items()
        }

    def crop(
        self, maps: Mapping[str, tf.Tensor], boxes: tf.Tensor, size: tuple[int, int]
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Cuts the likeliest part of each pixel, and the coordinates on it, out of the maps.

        One box of each image after another is cut out, since all parts of all boxes would need
        gigabytes.

        Args:
          maps: float32 [B, H, W, C], by the names of the heads.
          boxes: float32 [B, N, 4], normalized to the maps.
          size: h, w.

        Returns:
          int32 [B, N, h, w], parts from 0 on; float32 [B, N, h, w, 2], (v, u).
        """
        num_parts = self.heads[_PARTS].channels
        joined = tf.concat([maps[_PARTS], maps[_SURFACE]], axis=-1)
        (batch,) = dimensions(boxes, 0)
        use_matmul = tracing.is_compiled() or tracing.BasicOperations.is_on()

        def crop(of_image: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            crops = crop_and_resize(joined, of_image[:, tf.newaxis], size, use_matmul=use_matmul)
            crops = crops[:, 0]  # [B, h, w, 3 P]
            parts = tf.argmax(crops[..., :num_parts], axis=-1, output_type=tf.int32)
            surfaces = tf.reshape(crops[..., num_parts:], [batch, *size, num_parts, 2])
            return parts, tf.gather(surfaces, parts, batch_dims=3)

        parts, coordinates = tf.map_fn(
            crop,
            tf.transpose(boxes, [1, 0, 2]),
            fn_output_signature=(tf.int32, tf.float32),
            parallel_iterations=None if tf.executing_eagerly() else 2,
        )
        return tf.transpose(parts, [1, 0, 2, 3]), tf.transpose(coordinates, [1, 0, 2, 3, 4])


def _enlarged_values(maps: tf.Tensor, cells: tf.Tensor, scale: int) -> tf.Tensor:
    """Returns values of linearly enlarged maps, of which only these are computed.

    Args:
      maps: float32 [B, H, W, C].
      cells: int32 [B, N, 2], of the enlarged maps [B, scale * H, scale * W, C].
      scale: the factor.

    Returns:
      float32 [B, N, C].
    """
    if scale == 1:
        return heat_maps.gather_cells(maps, cells[..., 0], cells[..., 1])
    sides = tf.stack(dimensions(maps, 1, 2))
    cells = tf.clip_by_value(cells, 0, sides * scale - 1)
    points = (tf.cast(cells, tf.float32) + 0.5) / scale - 0.5
    points = tf.clip_by_value(points, 0.0, tf.cast(sides - 1, tf.float32))
    low = tf.floor(points)
    shares = points - low  # [B, N, 2]
    low = tf.cast(low, tf.int32)
    total = 0.0
    for down in (0, 1):
        for right in (0, 1):
            factors = [
                shares[..., axis] if step else 1.0 - shares[..., axis]
                for axis, step in enumerate((down, right))
            ]
            # Steps beyond the edge have no share, and are moved back to it.
            corner = heat_maps.gather_cells(maps, low[..., 0] + down, low[..., 1] + right)
            total += (factors[0] * factors[1])[..., tf.newaxis] * corner
    return total
