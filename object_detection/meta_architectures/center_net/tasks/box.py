"""Boxes: the size of an object, and where in its cell the centre is."""

from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

from object_detection.core.fields import DetectionFields
from object_detection.core.loss_sum import LossSum, add
from object_detection.core.shapes import dimensions
from object_detection.meta_architectures.center_net.tasks import task

_SCALE, _OFFSET = 'box/scale', 'box/offset'
STRIDED_BOXES = 'detection_boxes_strided'


class Box(task.Task):
    """Predicts height and width at the centre of an object, in cells, and the centre's offset.

    Args:
      scale_head, offset_head: 2 channels each.
      loss: `(predictions [B, N, 2], targets, weights [B, N]) -> [B, N]`.
      scale_weight, offset_weight: factors of the losses.
    """

    loss_names = (f'Loss/{_SCALE}', f'Loss/{_OFFSET}')

    def __init__(
        self,
        *,
        scale_head: task.Head,
        offset_head: task.Head,
        loss: Callable,
        scale_weight: float,
        offset_weight: float,
    ):
        self.heads = {_SCALE: scale_head, _OFFSET: offset_head}
        self._loss = loss
        self._weights = {_SCALE: scale_weight, _OFFSET: offset_weight}

    def loss_sums(
        self, maps: Mapping[str, Sequence[tf.Tensor]], cells: task.Cells
    ) -> dict[str, LossSum]:
        points, sizes = task.centers(cells.boxes)
        targets = {_SCALE: sizes, _OFFSET: points - tf.floor(points)}
        weights = cells.groundtruth.weights
        sums = {}
        for name, target in targets.items():
            losses = [
                self._loss(task.gather_points(each, points), target, weights) for each in maps[name]
            ]
            sums[f'Loss/{name}'] = add(losses, cells.num_objects, self._weights[name])
        return sums

    def strided_boxes(self, maps: Mapping[str, tf.Tensor], found: task.Found) -> tf.Tensor:
        """Returns the boxes of detections, float32 [B, N, 4], in cells, cut at the map's edges."""
        sizes = tf.maximum(found.gather(maps[_SCALE]), 0.0)
        points = found.cells + found.gather(maps[_OFFSET])
        boxes = tf.concat([points - sizes / 2.0, points + sizes / 2.0], axis=-1)
        height, width = (tf.cast(side, tf.float32) for side in dimensions(maps[_SCALE], 1, 2))
        return tf.clip_by_value(boxes, 0.0, tf.stack([height, width, height, width]))

    def detect(self, maps: Mapping[str, tf.Tensor], found: task.Found) -> dict[str, tf.Tensor]:
        """Returns boxes, in cells, and normalized to the true images and cut at their edges."""
        del maps
        sizes = tf.tile(found.true_sizes, [1, 2])[:, tf.newaxis]  # [B, 1, 4]
        normalized = tf.clip_by_value(found.boxes / sizes, 0.0, 1.0)
        return {STRIDED_BOXES: found.boxes, DetectionFields.BOXES: normalized}
