"""What the configs for a data set have in common, whatever their model is."""

import dataclasses
import math
from typing import Any

import numpy as np

from object_detection.dataset_tools.data_statistics import DataStatistics
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig

# The device whose detector has a single stage.
MOBILE = 'mobile'
# The finest pyramid level is the coarsest of these levels whose smallest anchor covers enough
# cells.
_FINEST_LEVELS, _MIN_ANCHOR_CELLS, _MAX_ANCHOR_CELLS = (3, 2), 2.5, 8.0
_STRIDE = 32  # The stride of the backbone's last stage; sides of images are multiples of it.


@dataclasses.dataclass(frozen=True)
class Device:
    """Limits of model and training for a kind of machine.

    Attributes:
      min_side: minimum length of an image's longer side, in pixels.
      max_side: maximum length of an image's longer side, in pixels.
      small_object: minimum side of small objects in resized images, in pixels.
      batch_size: number of images per training step.
      backbone: name of ImageNet weights, as `tfod weights` has it.
      rates: learning rates of a batch of 4 images, with pretrained weights and without.
    """

    min_side: int
    max_side: int
    small_object: float
    batch_size: int
    backbone: str
    rates: tuple[float, float] = (0.01, 0.03)


DEVICES = {
    'cpu': Device(128, 512, 20.0, 4, 'resnet50'),
    'gpu': Device(320, 1024, 32.0, 8, 'resnet50'),
    MOBILE: Device(128, 320, 16.0, 8, 'mobilenet_v2'),
}


@dataclasses.dataclass
class Starter:
    """A config, and pairs of a field's path and the reason for its value."""

    pipeline: TrainEvalPipelineConfig
    reasons: list[tuple[str, str]] = dataclasses.field(default_factory=list)

    @property
    def model(self) -> Any:
        """The message of the config's model."""
        return getattr(self.pipeline.model, self.pipeline.model.WhichOneof('model'))

    def explain_model(self, path: str, reason: str) -> None:
        """Explains a field of the model's message."""
        self.explain(f'model.{self.pipeline.model.WhichOneof("model")}.{path}', reason)

    def explain(self, path: str, reason: str) -> None:
        self.reasons.append((path, reason))


def fit_image_size(starter: Starter, train: DataStatistics, limits: Device) -> int:
    """Sets the resizer; returns the length of the longer side of most images, in pixels."""
    longer = train.image_sizes.max(axis=1)
    original = int(np.quantile(longer, 0.9))
    # A tenth of the objects may be smaller.
    small = float(np.quantile(np.sqrt(train.box_sizes.prod(axis=1)), 0.1))
    needed = limits.small_object / small
    side = min(max(needed, limits.min_side), limits.max_side, max(original, limits.min_side))
    side = _round_up(side)
    scaled = side * train.image_sizes / longer[:, None]
    height, width = (_round_up(value) for value in np.quantile(scaled, 0.98, axis=0))
    resizer = starter.model.image_resizer.keep_aspect_ratio_resizer
    resizer.min_dimension, resizer.max_dimension = side, side
    resizer.pad_height, resizer.pad_width = height, width
    starter.explain_model(
        'image_resizer',
        f'{height} x {width} (height x width): the images are {_range(longer)} pixels along their '
        f'longer side; a small object (1 of 10 is smaller) has {small * side:.0f} pixels then.'
        + _too_small(small * side, limits),
    )
    return side


def _too_small(pixels: float, limits: Device) -> str:
    if pixels >= limits.small_object / 2:
        return ''
    return ' That is little: cut the images into tiles, or allow larger ones by these fields.'


@dataclasses.dataclass(frozen=True)
class Anchors:
    """Anchors of a pyramid that fit the objects of a data set.

    Attributes:
      min_level, max_level: levels of the pyramid; level l has stride 2**l.
      scale: side of the smallest anchor of a level, in strides.
      aspect_ratios: widths of anchors divided by their heights.
      reason: explanation of the values.
    """

    min_level: int
    max_level: int
    scale: float
    aspect_ratios: tuple[float, ...]
    reason: str


def fit_anchors(
    train: DataStatistics, side: int, *, finest_level: int, coarsest_level: int
) -> Anchors:
    """Returns anchors for a data set.

    Args:
      train: the records.
      side: length of the longer side of images, in pixels.
      finest_level, coarsest_level: limits of the levels.
    """
    sizes = np.sqrt(train.box_sizes.prod(axis=1)) * side
    smallest, largest = np.quantile(sizes, [0.05, 0.95])
    candidates = [level for level in _FINEST_LEVELS if level >= finest_level]
    finest = next(
        (level for level in candidates if smallest >= _MIN_ANCHOR_CELLS * 2**level),
        candidates[-1],
    )
    scale = float(np.clip(smallest / 2**finest, _MIN_ANCHOR_CELLS, _MAX_ANCHOR_CELLS))
    scale = round(2 * scale) / 2
    # A level has anchors of its smallest size, and of this size times the square root of 2.
    levels = math.ceil(math.log2(max(largest / (scale * 2**finest * math.sqrt(2)), 1)))
    # The pyramid needs at least two levels, and more than one cell in its coarsest level.
    coarsest = min(max(finest + levels, finest + 1), coarsest_level, int(math.log2(side)) - 1)
    ratios = train.box_sizes[:, 1] / train.box_sizes[:, 0]
    narrow, wide = np.quantile(ratios, [0.1, 0.9])
    aspect_ratios = [1.0]
    aspect_ratios.extend(r for r in (2.0, 3.0) if wide > r / math.sqrt(2))
    aspect_ratios.extend(1 / r for r in (2.0, 3.0) if narrow < math.sqrt(2) / r)
    reason = (
        f'sides of {scale * 2**finest:.0f} to {scale * 2**coarsest * math.sqrt(2):.0f} pixels, as '
        f'objects have {smallest:.0f} to {largest:.0f} (9 of 10); width is {narrow:.1f} to '
        f'{wide:.1f} times the height (8 of 10).'
    )
    return Anchors(finest, coarsest, scale, tuple(aspect_ratios), reason)


def write_anchors(anchors: Anchors, generator: Any, pyramid: Any) -> None:
    """Sets the fields of a multiscale anchor generator and of a feature pyramid network."""
    for message in (generator, pyramid):
        message.min_level, message.max_level = anchors.min_level, anchors.max_level
    generator.anchor_scale = anchors.scale
    generator.aspect_ratios[:] = anchors.aspect_ratios


def fit_detections(starter: Starter, train: DataStatistics, path: str) -> None:
    """Sets the number of detections of an image.

    Args:
      starter: the config.
      train: the records.
      path: path of the message of post-processing in the model's message.
    """
    most = int(train.objects_per_image.max())
    suppression = getattr(starter.model, path).batch_non_max_suppression
    detections = min(max(20, -(-3 * most // 20) * 10), 300)
    suppression.max_detections_per_class = suppression.max_total_detections = detections
    starter.explain_model(
        path, f'{detections} detections an image, as images have up to {most} objects.'
    )


def _round_up(value: float) -> int:
    return _STRIDE * math.ceil(value / _STRIDE - 1e-6)


def _range(values: np.ndarray) -> str:
    lowest, highest = int(values.min()), int(values.max())
    return str(lowest) if lowest == highest else f'{lowest} to {highest}'
