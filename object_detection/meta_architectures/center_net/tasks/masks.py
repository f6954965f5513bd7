"""Masks: a map of the pixels of each class, cut out by the boxes of the detections."""

from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

from object_detection.core import tracing
from object_detection.core.crop_and_resize import crop_and_resize
from object_detection.core.fields import DetectionFields
from object_detection.core.fields import InputFields as F
from object_detection.core.loss_sum import LossSum, add
from object_detection.core.masks import mask_targets_from_crops
from object_detection.core.shapes import dimensions
from object_detection.errors import expected
from object_detection.meta_architectures.center_net import heat_maps
from object_detection.meta_architectures.center_net.tasks.densepose import SURFACES, DensePose
from object_detection.meta_architectures.center_net.tasks.task import Cells, Found, Head, Task, rows

_HEATMAP = 'segmentation/heatmap'
# Cells within boxes enlarged by this factor learn nothing where an object has no usable mask.
_BOX_SCALE = 1.05


class Masks(Task):
    """Predicts for each class which cells its objects cover.

    Args:
      head: K channels.
      loss: `(logits [B, N, K], targets, weights [B, N, 1]) -> [B, N, K]`.
      weight: factor of the loss.
      mask_size: height and width of the masks of detections.
      score_threshold: pixels of a mask have at least this score.
      densepose: the task whose body parts and surface coordinates the masks of its class hold; None
        if all masks are of 0 and 1.
    """

    loss_names = (f'Loss/{_HEATMAP}',)
    needs_masks = True

    def __init__(
        self,
        *,
        head: Head,
        loss: Callable,
        weight: float,
        mask_size: tuple[int, int],
        score_threshold: float,
        densepose: DensePose | None = None,
    ):
        self.heads = {_HEATMAP: head}
        self._loss = loss
        self._weight = weight
        self._mask_size = mask_size
        self._score_threshold = score_threshold
        self._densepose = densepose

    def targets(self, cells: Cells) -> tf.Tensor:
        """Returns the share of each cell that objects of a class cover, float32 [B, H, W, K].

        An object is of its likeliest class. One image after another is computed, in the memory of
        [M, H, W] and of the result.

        Raises:
          UserError: if the ground truth has no masks.
        """
        truth = cells.groundtruth
        if truth.masks is None:
            raise expected(
                _HEATMAP, 'masks in the ground truth; set load_instance_masks of the input readers'
            )
        resize = _from_crops if truth.masks_are_crops else _from_images
        num_classes = self.heads[_HEATMAP].channels

        def merge(image: tuple[tf.Tensor, ...]) -> tf.Tensor:
            masks, boxes, classes = image
            masks = resize(masks, boxes, cells) * tf.reduce_max(classes, axis=-1)[:, None, None]
            of_class = tf.argmax(classes, axis=-1, output_type=tf.int32)
            return heat_maps.highest_of_channel(masks, of_class, num_classes)

        elements = (truth.masks, truth.boxes, truth.classes)
        maps = tf.map_fn(merge, elements, fn_output_signature=tf.float32)
        sides = [None if tf.is_tensor(side) else side for side in cells.size]
        return tf.ensure_shape(maps, [None, *sides, num_classes])

    def learnt_cells(self, cells: Cells) -> tf.Tensor:
        """Returns which cells the maps learn from, float32 [B, H, W, 1] of 0 and 1.

        Those around objects whose masks have no weight learn nothing.
        """
        weights = cells.groundtruth.fields.get(F.GROUNDTRUTH_INSTANCE_MASK_WEIGHTS)
        valid = cells.valid[..., tf.newaxis]
        if weights is None:
            return valid
        hidden = (weights <= 0.0)[..., tf.newaxis]
        return valid * heat_maps.cells_outside(cells.boxes, hidden, cells.size, _BOX_SCALE)

    def loss_sums(
        self, maps: Mapping[str, Sequence[tf.Tensor]], cells: Cells
    ) -> dict[str, LossSum]:
        targets, weights = rows(self.targets(cells)), rows(self.learnt_cells(cells))
        losses = [self._loss(rows(each), targets, weights) for each in maps[_HEATMAP]]
        return {self.loss_names[0]: add(losses, tf.reduce_sum(weights), self._weight)}

    def detect(self, maps: Mapping[str, tf.Tensor], found: Found) -> dict[str, tf.Tensor]:
        """Returns masks relative to the boxes, of 0 and 1; those of DensePose's class hold parts.

        Returns:
          detection_masks float32 [B, N, h, w]: 0 outside of the object, else 1, or for the class of
          DensePose the number of the body part, from 1 on. With DensePose,
          detection_surface_coords float32 [B, N, h, w, 2], (v, u) on that part; 0 elsewhere.
        """
        boxes = _boxes_on_maps(maps[_HEATMAP], found)
        scores = _crop_own_maps(
            tf.sigmoid(maps[_HEATMAP]), boxes, found.peaks.channels, self._mask_size
        )
        masks = tf.cast(scores >= self._score_threshold, tf.float32)
        if self._densepose is None:
            return {DetectionFields.MASKS: masks}
        is_body = found.peaks.channels == self._densepose.class_index  # [B, N]
        parts, coordinates = self._densepose.crop(maps, boxes, self._mask_size)
        of_body = masks * tf.cast(is_body, tf.float32)[:, :, tf.newaxis, tf.newaxis]
        return {
            DetectionFields.MASKS: masks + of_body * tf.cast(parts, tf.float32),
            SURFACES: coordinates * of_body[..., tf.newaxis],
        }


def _from_images(masks: tf.Tensor, boxes: tf.Tensor, cells: Cells) -> tf.Tensor:
    """Masks [M, H', W'] of the image -> float32 [M, H, W], as the reference resizes them."""
    del boxes
    return tf.image.resize(masks[..., tf.newaxis], tf.stack(cells.size))[..., 0]


def _from_crops(masks: tf.Tensor, boxes: tf.Tensor, cells: Cells) -> tf.Tensor:
    """Masks [M, S, S] of the boxes [M, 4] -> float32 [M, H, W], sampled at the cells' centres."""
    # Of `size * stride` pixels, a cell's centre lies between two; the first pixel is at 0 and the
    # last one at 1 in the frame of crops.
    sides = tf.cast(tf.stack(cells.size), tf.float32) * float(cells.stride)
    middle = (cells.stride - 1) / 2.0
    first, last = middle / (sides - 1.0), (sides - 1.0 - middle) / (sides - 1.0)
    (count,) = dimensions(boxes, 0)
    regions = tf.tile(tf.concat([first, last], axis=0)[tf.newaxis, tf.newaxis], [1, count, 1])
    return mask_targets_from_crops(
        masks[tf.newaxis],
        boxes[tf.newaxis],
        regions,
        tf.range(count)[tf.newaxis],
        tuple(cells.size),
        use_matmul=True,
    )[0]


def _boxes_on_maps(maps: tf.Tensor, found: Found) -> tf.Tensor:
    """Returns the boxes, cut at the edges of the true images, normalized to the maps [B, N, 4]."""
    true_sizes = tf.tile(found.true_sizes, [1, 2])[:, tf.newaxis]  # [B, 1, 4]
    height, width = (tf.cast(side, tf.float32) for side in dimensions(maps, 1, 2))
    normalized = tf.clip_by_value(found.boxes / true_sizes, 0.0, 1.0)
    return normalized * (true_sizes / tf.stack([height, width, height, width]))


def _crop_own_maps(
    maps: tf.Tensor, boxes: tf.Tensor, channels: tf.Tensor, size: tuple[int, int]
) -> tf.Tensor:
    """Crops for each box one channel of its image's maps.

    Args:
      maps: float32 [B, H, W, K].
      boxes: float32 [B, N, 4], normalized to the maps.
      channels: int32 [B, N].
      size: h, w.

    Returns:
      float32 [B, N, h, w].
    """
    batch, count = dimensions(channels, 0, 1)
    height, width = dimensions(maps, 1, 2)
    own = tf.gather(tf.transpose(maps, [0, 3, 1, 2]), channels, batch_dims=1)  # [B, N, H, W]
    crops = crop_and_resize(
        tf.reshape(own, [batch * count, height, width, 1]),
        tf.reshape(boxes, [batch * count, 1, 4]),
        size,
        # Of one channel, products are cheap, and samples by index need memory for their weights.
        use_matmul=tracing.is_compiled() or tracing.BasicOperations.is_on(),
    )
    return tf.reshape(crops, [batch, count, *size])
