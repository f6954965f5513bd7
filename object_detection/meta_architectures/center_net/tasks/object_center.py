"""The heat map of the centres of objects, which every other task refers to."""

from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

from object_detection.meta_architectures.center_net import heat_maps
from object_detection.meta_architectures.center_net.tasks.task import (
    Cells,
    Head,
    Task,
    centers,
    rows,
)

NAME = 'object_center'


class ObjectCenter(Task):
    """Predicts for each class where the centres of its objects are.

    Args:
      head: K channels.
      loss: `(logits [B, N, K], targets, weights [B, N, 1]) -> [B, N, K]`.
      weight: factor of the loss.
      min_overlap: overlap of a box that is moved by the radius of its peak with itself.
    """

    loss_names = (f'Loss/{NAME}',)

    def __init__(self, *, head: Head, loss: Callable, weight: float, min_overlap: float):
        self.heads = {NAME: head}
        self._loss = loss
        self._weight = weight
        self._min_overlap = min_overlap

    def targets(self, cells: Cells) -> tf.Tensor:
        """Returns the heat maps of the ground truth, float32 [B, H, W, K].

        Peaks are as high as the weights of objects; an object is of its likeliest class.
        """
        points, sizes = centers(cells.boxes)
        classes = cells.groundtruth.classes
        return heat_maps.draw_peaks(
            points,
            heat_maps.peak_widths(sizes[..., 0], sizes[..., 1], self._min_overlap),
            tf.argmax(classes, axis=-1, output_type=tf.int32),
            tf.reduce_max(classes, axis=-1) * cells.groundtruth.weights,
            num_channels=self.heads[NAME].channels,
            size=cells.size,
        )

    def losses(self, maps: Mapping[str, Sequence[tf.Tensor]], cells: Cells) -> dict[str, tf.Tensor]:
        targets = rows(self.targets(cells))
        weights = rows(cells.valid[..., tf.newaxis])
        sums = [tf.reduce_sum(self._loss(rows(each), targets, weights)) for each in maps[NAME]]
        factor = self._weight / len(sums)
        return {self.loss_names[0]: factor * tf.add_n(sums) / cells.num_objects}
