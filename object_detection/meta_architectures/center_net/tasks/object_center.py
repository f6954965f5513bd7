"""The heat map of the centres of objects, which every other task refers to."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from object_detection.core.fields import InputFields as F
from object_detection.core.loss_sum import LossSum, add
from object_detection.meta_architectures.center_net import heat_maps
from object_detection.meta_architectures.center_net.tasks import task

NAME = 'object_center'


class ObjectPoints(NamedTuple):
    """Where the peaks of objects are drawn.

    Attributes:
      points: float32 [B, M, 2], (y, x) in cells.
      sizes: float32 [B, M, 2], heights and widths in cells, which the widths of peaks follow.
      heights: float32 [B, M], of the peaks; 0 draws nothing.
    """

    points: tf.Tensor
    sizes: tf.Tensor
    heights: tf.Tensor


class ObjectCenter(task.Task):
    """Predicts for each class where the centres of its objects are.

    Args:
      head: K channels.
      loss: `(logits [B, N, K], targets, weights [B, N, 1 or K]) -> [B, N, K]`.
      weight: factor of the loss.
      min_overlap: overlap of a box that is moved by the radius of its peak with itself.
      points_of: where peaks are drawn; None draws them at the centres of the boxes.
      only_labeled: whether an image teaches only the classes that it was searched for.
    """

    loss_names = (f'Loss/{NAME}',)
    heat_maps = (NAME,)

    def __init__(
        self,
        *,
        head: task.Head,
        loss: Callable,
        weight: float,
        min_overlap: float,
        points_of: Callable[[task.Cells], ObjectPoints] | None = None,
        only_labeled: bool = False,
    ):
        self.heads = {NAME: head}
        self._loss = loss
        self._weight = weight
        self._min_overlap = min_overlap
        self._points_of = points_of or _box_points
        self._only_labeled = only_labeled

    def targets(self, cells: task.Cells) -> tf.Tensor:
        """Returns the heat maps of the ground truth, float32 [B, H, W, K].

        Peaks are as high as the weights of objects; an object is of its likeliest class.
        """
        points, sizes, heights = self._points_of(cells)
        return heat_maps.draw_peaks(
            points,
            heat_maps.peak_widths(sizes[..., 0], sizes[..., 1], self._min_overlap),
            tf.argmax(cells.groundtruth.classes, axis=-1, output_type=tf.int32),
            heights,
            num_channels=self.heads[NAME].channels,
            size=cells.size,
        )

    def learnt_cells(self, cells: task.Cells) -> tf.Tensor:
        """Returns which cells the maps learn from, float32 [B, H, W, 1 or K] of 0 and 1."""
        valid = cells.valid[..., tf.newaxis]
        if not self._only_labeled:
            return valid
        labeled = cells.field(F.GROUNDTRUTH_IMAGE_CLASSES, 'load_image_labels of the input readers')
        # Classes that were found, and those that were verified to be absent.
        absent = cells.groundtruth.fields.get(F.GROUNDTRUTH_VERIFIED_NEG_CLASSES)
        if absent is not None:
            labeled = tf.maximum(labeled, absent)
        return valid * labeled[:, tf.newaxis, tf.newaxis]

    def loss_sums(
        self, maps: Mapping[str, Sequence[tf.Tensor]], cells: task.Cells
    ) -> dict[str, LossSum]:
        targets, weights = task.rows(self.targets(cells)), task.rows(self.learnt_cells(cells))
        losses = [self._loss(task.rows(each), targets, weights) for each in maps[NAME]]
        return {self.loss_names[0]: add(losses, cells.num_objects, self._weight)}


def _box_points(cells: task.Cells) -> ObjectPoints:
    points, sizes = task.centers(cells.boxes)
    truth = cells.groundtruth
    return ObjectPoints(points, sizes, tf.reduce_max(truth.classes, axis=-1) * truth.weights)
