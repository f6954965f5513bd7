"""What a task of CenterNet is: heads, the losses of their maps, and what they say of detections."""

import abc
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import keras
import tensorflow as tf

from object_detection.core.groundtruth import Groundtruth
from object_detection.core.loss_sum import LossSum
from object_detection.core.shapes import dimensions
from object_detection.errors import expected
from object_detection.meta_architectures.center_net import heat_maps
from object_detection.meta_architectures.center_net.heat_maps import Peaks


@dataclasses.dataclass(frozen=True)
class Head:
    """A small network from a feature map to the map of a task.

    Attributes:
      channels: channels of the result.
      filters, kernel_sizes: channels and sizes of the convolutions before the last one of 1x1.
      bias: initial bias of the last convolution.
    """

    channels: int
    filters: tuple[int, ...] = (256,)
    kernel_sizes: tuple[int | tuple[int, int], ...] = (3,)
    bias: float = 0.0


class Cells(NamedTuple):
    """The ground truth of a batch, and the cells of the maps that learn from it.

    Attributes:
      groundtruth: objects, normalized to the images that the maps cover.
      size: H, W of the maps.
      valid: float32 [B, H, W], 1 for the cells that see the true image, else 0.
      num_objects: float32 scalar, the number of objects with a weight.
      stride: side of a cell in pixels.
      images: float32 [B, H', W', C], preprocessed and padded to what the maps cover; None where no
        task reads them.
    """

    groundtruth: Groundtruth
    size: tuple
    valid: tf.Tensor
    num_objects: tf.Tensor
    stride: int
    images: tf.Tensor | None = None

    def field(self, name: str, origin: str) -> tf.Tensor:
        """Returns a field of the objects, [B, M, ...].

        Raises:
          UserError: if the ground truth lacks it; `origin` says where it comes from.
        """
        if name not in self.groundtruth.fields:
            raise expected(name, f'in the ground truth, from {origin}', 'no such field')
        return self.groundtruth.fields[name]

    @property
    def boxes(self) -> tf.Tensor:
        """The boxes, float32 [B, M, 4], in cells."""
        height, width = (tf.cast(side, tf.float32) for side in self.size)
        return self.groundtruth.boxes * tf.stack([height, width, height, width])


class TaskObjects(NamedTuple):
    """The objects of a batch whose ground truth is known while the network predicts.

    Attributes:
      groundtruth: the objects, normalized to the images.
      images: float32 [B, H', W', C], preprocessed and padded to what the maps cover.
      training: whether batch norms learn, and what learns is chosen at random.
      seeds: int32 [B, 2], one per image, of all that is random; None draws from the global
        generator.
      forward: `images -> {head: maps of each stack}`, the network with the same `training`.
    """

    groundtruth: Groundtruth
    images: tf.Tensor
    training: bool
    seeds: tf.Tensor | None
    forward: Callable[[tf.Tensor], Mapping[str, Sequence[tf.Tensor]]]


class Found(NamedTuple):
    """The detections of a batch, of which tasks say more.

    Attributes:
      peaks: their cells and classes, [B, N].
      boxes: float32 [B, N, 4], in cells; None without boxes.
      true_shapes: int32 [B, 3], sizes of the true images in pixels.
      stride: side of a cell in pixels.
    """

    peaks: Peaks
    boxes: tf.Tensor | None
    true_shapes: tf.Tensor
    stride: int

    @property
    def cells(self) -> tf.Tensor:
        """The cells, float32 [B, N, 2]."""
        return tf.cast(tf.stack([self.peaks.rows, self.peaks.columns], axis=-1), tf.float32)

    @property
    def true_sizes(self) -> tf.Tensor:
        """Height and width of the true images in cells, float32 [B, 2]."""
        return tf.cast(self.true_shapes[:, :2], tf.float32) / float(self.stride)

    def gather(self, maps: tf.Tensor) -> tf.Tensor:
        """Returns the values of maps [B, H, W, C] at the cells, [B, N, C]."""
        return heat_maps.gather_cells(maps, self.peaks.rows, self.peaks.columns)


class Task(abc.ABC):
    """A task: names of heads are those of the reference's predictions, such as 'box/scale'.

    Attributes:
      heads: name of a head -> what it is; each has a map for each stack of features.
      loss_names: names of the losses.
      layers: further layers with variables, by name.
      heat_maps: the heads whose peaks are detections or keypoints.
      object_predictions: names of what `predict_objects` returns.
      needs_masks, needs_keypoints: whether the losses need instance masks, or keypoints.
    """

    heads: Mapping[str, Head]
    loss_names: Sequence[str]
    layers: Mapping[str, keras.layers.Layer] = MappingProxyType({})
    heat_maps: Sequence[str] = ()
    object_predictions: Sequence[str] = ()
    needs_masks: bool = False
    needs_keypoints: bool = False

    def predict_objects(
        self, maps: Mapping[str, Sequence[tf.Tensor]], objects: TaskObjects
    ) -> dict[str, tf.Tensor | Sequence[tf.Tensor]]:
        """Returns further predictions, of objects of the ground truth, which the losses need.

        Args:
          maps: float32 [B, H, W, C] of each stack, by the names of the heads.
          objects: the objects.
        """
        del maps, objects
        return {}

    @abc.abstractmethod
    def loss_sums(
        self, maps: Mapping[str, Sequence[tf.Tensor]], cells: Cells
    ) -> dict[str, LossSum]:
        """Returns the weighted losses by name, means over the stacks.

        Args:
          maps: float32 [B, H, W, C] of each stack, by the names of the heads, and what
            `predict_objects` returned.
          cells: the ground truth.
        """

    def detect(self, maps: Mapping[str, tf.Tensor], found: Found) -> dict[str, tf.Tensor]:
        """Returns what the maps say of the detections, by the reference's names.

        Args:
          maps: float32 [B, H, W, C] of the last stack, by the names of the heads.
          found: the detections.
        """
        del maps, found
        return {}


def centers(boxes: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns centres (y, x) and sizes (height, width) of boxes, float32 [..., 2] each."""
    sizes = boxes[..., 2:] - boxes[..., :2]
    return boxes[..., :2] + sizes / 2.0, sizes


def rows(maps: tf.Tensor) -> tf.Tensor:
    """[B, H, W, C] -> [B, H * W, C]."""
    batch, height, width, channels = dimensions(maps, 0, 1, 2, 3)
    return tf.reshape(maps, [batch, height * width, channels])


def gather_points(maps: tf.Tensor, points: tf.Tensor) -> tf.Tensor:
    """Returns the values [B, N, C] of the cells that points, float32 [B, N, 2], lie in."""
    cells = tf.cast(tf.floor(points), tf.int32)
    return heat_maps.gather_cells(maps, cells[..., 0], cells[..., 1])
