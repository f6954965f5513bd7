"""Random crops inside of an image, which keep objects."""

import dataclasses
import functools
from collections.abc import Callable

import tensorflow as tf

from object_detection.core.fields import InputFields as F
from object_detection.data.augmentation.checks import check_bounds
from object_detection.data.augmentation.choice import draw_below
from object_detection.data.augmentation.window import Window, cut_out, sides_of_shape
from object_detection.data.objects import Example
from object_detection.errors import UserError

_MAX_ATTEMPTS = 100

Range = tuple[float, float]


@dataclasses.dataclass(frozen=True)
class CropOperation:
    """The constraints of a crop, and what happens to its objects.

    Attributes:
      min_object_covered: the crop covers at least this share of some box.
      aspect_ratio_range: smallest and largest width of the crop divided by its height, in pixels.
      area_range: smallest and largest area of the crop, as a share of the image.
      overlap_thresh: objects with a smaller share of their box inside the crop are dropped.
      clip_boxes: whether boxes are clipped to the crop. Otherwise keypoints outside of it stay too.
      random_coef: probability that the image is not cropped.
      name: name of the step in errors.

    Raises:
      ValueError: if a range is empty or does not begin above 0.
    """

    min_object_covered: float = 1.0
    aspect_ratio_range: Range = (0.75, 1.33)
    area_range: Range = (0.1, 1.0)
    overlap_thresh: float = 0.3
    clip_boxes: bool = True
    random_coef: float = 0.0
    name: str = 'random_crop_image'

    def __post_init__(self):
        (narrowest, widest), (least, greatest) = self.aspect_ratio_range, self.area_range
        check_bounds(self.name, {'min_aspect_ratio': narrowest, 'max_aspect_ratio': widest})
        check_bounds(self.name, {'min_area': least, 'max_area': greatest}, limit=1)


class RandomCrop:
    """Crops an image by one of several operations (SSD, https://arxiv.org/abs/1512.02325).

    `tf.image.stateless_sample_distorted_bounding_box` draws the crop among those that meet the
    constraints of the operation; where 100 attempts find none, it is the whole image.

    Args:
      operations: the operations, each of which is drawn with the same probability.

    Raises:
      ValueError: if there are no operations.
    """

    def __init__(self, operations: tuple[CropOperation, ...]):
        if not operations:
            raise UserError('RandomCrop: expected at least one operation. Received: none.')
        self.operations = tuple(operations)

    def __call__(self, example: Example, seed: tf.Tensor) -> Example:
        """Crops `example`; all random choices depend only on `seed`, integer [2]."""
        of_operation, of_crop = tf.unstack(tf.random.split(seed))
        return self.crop_randomly(example, self.draw_operation(of_operation), of_crop)

    def draw_operation(self, seed: tf.Tensor) -> tf.Tensor:
        """Draws the index of an operation, int32 []."""
        return tf.random.stateless_uniform([], seed, 0, len(self.operations), tf.int32)

    def crop_randomly(self, example: Example, operation: tf.Tensor, seed: tf.Tensor) -> Example:
        """Crops an example by an operation, int32 [], or leaves it as it is (`random_coef`)."""
        of_number, of_window = tf.unstack(tf.random.split(seed))

        def crop() -> Example:
            return self.crop(example, operation, self.draw_window(example, operation, of_window))

        if all(each.random_coef == 0 for each in self.operations):
            return crop()
        number = tf.random.stateless_uniform([], of_number)
        return tf.cond(self.is_cropped(operation, number), crop, lambda: dict(example))

    def is_cropped(self, operation: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        """Returns whether an image is cropped for a random number, float32 [] in [0, 1)."""
        random_coef = self.choose(operation, lambda each: each.random_coef)
        return (number > random_coef) | (random_coef == 0)

    def draw_window(self, example: Example, operation: tf.Tensor, seed: tf.Tensor) -> Window:
        """Draws the crop of an operation, int32 [], for an example."""
        ranges = [(each.aspect_ratio_range, each.area_range) for each in self.operations]
        distinct = list(dict.fromkeys(ranges))
        min_object_covered = self.choose(operation, lambda each: each.min_object_covered)
        samplers = [
            functools.partial(_sample, example, seed, min_object_covered, *each)
            for each in distinct
        ]
        if len(samplers) == 1:
            return samplers[0]()
        index = tf.constant([distinct.index(each) for each in ranges])[operation]
        return Window(*tf.switch_case(index, samplers))

    def crop(self, example: Example, operation: tf.Tensor, window: Window) -> Example:
        """Crops an example to a window as an operation, int32 [], says."""
        return cut_out(
            example,
            window,
            is_within=True,
            min_overlap=self.choose(operation, lambda each: each.overlap_thresh),
            clip=self.choose(operation, lambda each: each.clip_boxes),
        )

    def choose(
        self, operation: tf.Tensor, value: Callable[[CropOperation], float | bool]
    ) -> tf.Tensor:
        """Returns a value of the operation of an index."""
        return tf.constant([value(each) for each in self.operations])[operation]


@dataclasses.dataclass(frozen=True)
class RandomCropToAspectRatio:
    """Crops an image to a ratio of width to height, as large and anywhere in the image.

    Attributes:
      aspect_ratio: width of the crop divided by its height, in pixels.
      overlap_thresh: objects with a smaller share of their box inside the crop are dropped.
      clip_boxes: whether boxes are clipped to the crop. Otherwise keypoints outside of it stay too.
      name: name of the step in errors.
    """

    aspect_ratio: float = 1.0
    overlap_thresh: float = 0.3
    clip_boxes: bool = True
    name: str = 'random_crop_to_aspect_ratio'

    def __call__(self, example: Example, seed: tf.Tensor) -> Example:
        """Crops `example`; its position depends only on `seed`, integer [2]."""
        image_size = tf.shape(example[F.IMAGE])[:2]
        of_top, of_left = tf.unstack(tf.random.split(seed))
        height, width = tf.unstack(image_size - self.size(image_size))
        top, left = draw_below(0, height + 1, of_top), draw_below(0, width + 1, of_left)
        return self.crop(example, top, left)

    def size(self, image_size: tf.Tensor) -> tf.Tensor:
        """Returns height and width of the crop of an image of `image_size`, int32 [2]."""
        size = tf.cast(image_size, tf.float32)
        fitting = tf.minimum(size, sides_of_shape(size, self.aspect_ratio))
        return tf.maximum(tf.cast(tf.round(fitting), tf.int32), 1)

    def crop(self, example: Example, top: tf.Tensor, left: tf.Tensor) -> Example:
        """Crops an example; `top` and `left` are the first row and column, int32 []."""
        size = self.size(tf.shape(example[F.IMAGE])[:2])
        return cut_out(
            example,
            Window(top, left, *tf.unstack(size)),
            is_within=True,
            min_overlap=self.overlap_thresh,
            clip=self.clip_boxes,
        )


@dataclasses.dataclass(frozen=True)
class InOrder:
    """Applies several steps, each with a seed of its own."""

    steps: tuple[Callable[[Example, tf.Tensor], Example], ...]

    def __call__(self, example: Example, seed: tf.Tensor) -> Example:
        """Applies the steps to `example`; `seed` is integer [2]."""
        seeds = tf.unstack(tf.random.split(seed, len(self.steps)))
        for step, own in zip(self.steps, seeds, strict=True):
            example = step(example, own)
        return example


def _sample(
    example: Example,
    seed: tf.Tensor,
    min_object_covered: tf.Tensor,
    aspect_ratio_range: Range,
    area_range: Range,
) -> Window:
    begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
        tf.shape(example[F.IMAGE]),
        tf.clip_by_value(example[F.GROUNDTRUTH_BOXES], 0.0, 1.0)[tf.newaxis],
        seed,
        min_object_covered=min_object_covered,
        aspect_ratio_range=aspect_ratio_range,
        area_range=area_range,
        max_attempts=_MAX_ATTEMPTS,
        use_image_if_no_bounding_boxes=True,
    )
    return Window(begin[0], begin[1], size[0], size[1])
