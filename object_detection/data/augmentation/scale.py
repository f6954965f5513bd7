"""Changes of the size of an image, most of them random."""

import dataclasses
import functools
from typing import NamedTuple

import tensorflow as tf

from object_detection.core.example_fields import Geometry, names_of
from object_detection.core.fields import InputFields as F
from object_detection.data.augmentation.checks import MAX_FACTOR, check_positive_order
from object_detection.data.augmentation.choice import change_randomly, draw_below
from object_detection.data.augmentation.window import Window, cut_out
from object_detection.data.objects import Example
from object_detection.resizers.resizer import (
    AREA,
    BICUBIC,
    BILINEAR,
    NEAREST_NEIGHBOR,
    Resizer,
    resample,
)

# Objects that the border of the square cuts to less are dropped, pixels.
_MIN_PIXELS = 1.0
# One of which RandomResizeMethod draws.
_METHODS = (BILINEAR, NEAREST_NEIGHBOR, BICUBIC, AREA)


class ScaleDraws(NamedTuple):
    """Random numbers of a square: float32 []; offsets as shares of the free rows and columns."""

    scale: tf.Tensor
    y_offset: tf.Tensor
    x_offset: tf.Tensor


@dataclasses.dataclass(frozen=True)
class RandomScaleCropAndPadToSquare:
    """Resizes an image, then crops or pads it to a square (EfficientDet,
    https://arxiv.org/abs/1911.09070; large scale jittering, https://arxiv.org/abs/2012.07177).

    The longer side becomes `output_size` times a factor. Where that is larger than the square, the
    square is anywhere in the image; where it is smaller, the image is at the top left and the
    rest is black. Unlike in the reference, the resized image has at least one row and one column,
    and objects that the border cuts to less than a pixel in height or width are dropped.

    Attributes:
      output_size: side of the square in pixels; all outputs have this static size.
      scale_min: smallest factor.
      scale_max: greatest factor.

    Raises:
      ValueError: if the factors are out of range or not in order.
    """

    output_size: int = 512
    scale_min: float = 0.1
    scale_max: float = 2.0

    def __post_init__(self):
        name = 'random_scale_crop_and_pad_to_square'
        check_positive_order(name, self, 'scale_min', 'scale_max', limit=MAX_FACTOR)

    def __call__(self, example: Example, seed: tf.Tensor) -> Example:
        """Changes `example` to a square that depends only on `seed`, integer [2]."""
        return self.change(example, self.draw(seed))

    def draw(self, seed: tf.Tensor) -> ScaleDraws:
        """Draws the numbers of a square."""
        of_scale, of_offset = tf.unstack(tf.random.split(seed))
        scale = tf.random.stateless_uniform([], of_scale, self.scale_min, self.scale_max)
        return ScaleDraws(scale, *tf.unstack(tf.random.stateless_uniform([2], of_offset)))

    def change(self, example: Example, draws: ScaleDraws) -> Example:
        """Changes an example to the square of the random numbers."""
        image_size = tf.shape(example[F.IMAGE])[:2]
        size = self.resized_size(image_size, draws.scale)
        free = tf.cast(tf.maximum(size - self.output_size, 0), tf.float32)
        offset = tf.cast(free * tf.stack([draws.y_offset, draws.x_offset]), tf.int32)
        side = tf.constant(self.output_size)
        window = Window(*tf.unstack(offset), side, side)
        square = cut_out(_resized(example, size), window, min_pixels=_MIN_PIXELS)
        for name in (F.IMAGE, *names_of(Geometry.IMAGE_MASK)):
            if name in square:
                square[name] = self._with_static_size(square[name], is_image=name == F.IMAGE)
        return square

    def resized_size(self, image_size: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
        """Returns height and width, int32 [2], to which an image of `image_size` is resized."""
        sides = tf.cast(image_size, tf.float32)
        share = sides / tf.reduce_max(sides)
        return tf.maximum(tf.cast(scale * float(self.output_size) * share, tf.int32), 1)

    def _with_static_size(self, tensor: tf.Tensor, *, is_image: bool) -> tf.Tensor:
        side = self.output_size
        last = [tensor.shape[-1]] if is_image else []
        return tf.ensure_shape(tensor, [*([] if is_image else [None]), side, side, *last])


@dataclasses.dataclass(frozen=True)
class RandomImageScale:
    """Resizes an image by a random factor, and keeps its shape.

    Attributes:
      min_scale_ratio, max_scale_ratio: bounds of the factor.

    Raises:
      ValueError: if the bounds are out of range or not in order.
    """

    min_scale_ratio: float = 0.5
    max_scale_ratio: float = 2.0

    def __post_init__(self):
        check_positive_order(
            'random_image_scale', self, 'min_scale_ratio', 'max_scale_ratio', limit=MAX_FACTOR
        )

    def __call__(self, example: Example, seed: tf.Tensor) -> Example:
        """Resizes `example`; the factor depends only on `seed`, integer [2]."""
        factor = tf.random.stateless_uniform([], seed, self.min_scale_ratio, self.max_scale_ratio)
        return self.change(example, factor)

    def change(self, example: Example, factor: tf.Tensor) -> Example:
        """Resizes an example by a factor, float32 []."""
        size = tf.cast(tf.shape(example[F.IMAGE])[:2], tf.float32) * factor
        size = tf.maximum(tf.cast(size, tf.int32), 1)
        return resize_example(example, size, align_corners=True)


@dataclasses.dataclass(frozen=True)
class RandomDownscaleToTargetPixels:
    """Resizes images with more pixels than a random number to that number; it never enlarges.

    Attributes:
      random_coef: probability that the image stays as it is.
      min_target_pixels, max_target_pixels: the number is at least the first, and below the second.

    Raises:
      ValueError: if the numbers are not positive and in order.
    """

    random_coef: float = 0.0
    min_target_pixels: int = 300000
    max_target_pixels: int = 500000

    def __post_init__(self):
        name = 'random_downscale_to_target_pixels'
        check_positive_order(name, self, 'min_target_pixels', 'max_target_pixels')

    def __call__(self, example: Example, seed: tf.Tensor) -> Example:
        """Resizes `example`; all random choices depend only on `seed`, integer [2]."""
        of_number, of_pixels = tf.unstack(tf.random.split(seed))
        target = draw_below(self.min_target_pixels, self.max_target_pixels, of_pixels)
        example = {**example, F.IMAGE: tf.cast(example[F.IMAGE], tf.float32)}
        return change_randomly(
            self.random_coef, of_number, lambda: self.change(example, target), dict(example)
        )

    def change(self, example: Example, target_pixels: tf.Tensor) -> Example:
        """Resizes an example with a float32 image to a number of pixels, int32 []."""
        size = tf.cast(tf.shape(example[F.IMAGE])[:2], tf.float32)
        target, pixels = tf.cast(target_pixels, tf.float32), tf.reduce_prod(size)
        new_size = tf.maximum(tf.cast(size * tf.sqrt(target / pixels), tf.int32), 1)
        return tf.cond(
            pixels > target, lambda: resize_example(example, new_size), lambda: dict(example)
        )


@dataclasses.dataclass(frozen=True)
class RandomResizeMethod:
    """Resizes an image to one size by one of four methods.

    Attributes:
      target_height, target_width: size of the result in pixels.
    """

    target_height: int
    target_width: int

    def __call__(self, example: Example, seed: tf.Tensor) -> Example:
        """Resizes `example`; the method depends only on `seed`, integer [2]."""
        return self.change(
            example, tf.random.stateless_uniform([], seed, 0, len(_METHODS), tf.int32)
        )

    def change(self, example: Example, method: tf.Tensor) -> Example:
        """Resizes an example by the method of an index, int32 []."""
        size = (self.target_height, self.target_width)
        images = tf.cast(example[F.IMAGE][tf.newaxis], tf.float32)
        branches = [functools.partial(resample, images, size, method) for method in _METHODS]
        image = _clip_to_values(tf.switch_case(method, branches)[0], example[F.IMAGE])
        resized = resize_masks(example, size)
        resized[F.IMAGE] = tf.ensure_shape(image, [*size, example[F.IMAGE].shape[-1]])
        return resized


class ResizeImage:
    """Resizes the image, and full-size masks by nearest neighbour.

    Boxes, keypoints and mask crops are normalized, so they do not change.

    Args:
      resizer: a resizer that does not pad, since padding would shift the boxes.
    """

    def __init__(self, resizer: Resizer):
        self._resizer = resizer

    def __call__(self, example: Example, seed: tf.Tensor) -> Example:
        """Resizes image [H, W, C] and masks [n, H, W] of `example`; `seed` is unused."""
        del seed
        image, _ = self._resizer(example[F.IMAGE])
        example = {**example, F.IMAGE: _clip_to_values(image, example[F.IMAGE])}
        for name in names_of(Geometry.IMAGE_MASK):
            if name in example:
                example[name] = self._resizer.resize_masks(example[name])
        return example


def resize_example(example: Example, size: tf.Tensor, *, align_corners: bool = False) -> Example:
    """Resizes the image bilinearly, and full-size masks by nearest neighbour, to int32 [2]."""
    image = resample(example[F.IMAGE][tf.newaxis], size, align_corners=align_corners)[0]
    return {**resize_masks(example, size, align_corners=align_corners), F.IMAGE: image}


def resize_masks(
    example: Example, size: tf.Tensor | tuple[int, int], *, align_corners: bool = False
) -> Example:
    """Resizes full-size masks by nearest neighbour to `size`, int32 [2]."""
    example = dict(example)
    for name in names_of(Geometry.IMAGE_MASK):
        if name in example:
            masks = example[name][..., tf.newaxis]
            masks = resample(masks, size, NEAREST_NEIGHBOR, align_corners=align_corners)
            example[name] = masks[..., 0]
    return example


def _resized(example: Example, size: tf.Tensor) -> Example:
    """Resizes the image, and full-size masks, bilinearly; masks keep their dtype."""
    example = {**example, F.IMAGE: resample(example[F.IMAGE][tf.newaxis], size)[0]}
    for name in names_of(Geometry.IMAGE_MASK):
        if name in example:
            masks = resample(example[name][..., tf.newaxis], size)[..., 0]
            is_soft = example[name].dtype.is_floating
            example[name] = masks if is_soft else tf.cast(tf.round(masks), example[name].dtype)
    return example


def _clip_to_values(resized: tf.Tensor, image: tf.Tensor) -> tf.Tensor:
    """Clips a resized image to the range of the values of the original one.

    Near edges, bicubic interpolation goes beyond it, and would leave 0..255.
    """
    least, greatest = tf.reduce_min(image), tf.reduce_max(image)
    return tf.clip_by_value(
        resized, tf.cast(least, resized.dtype), tf.cast(greatest, resized.dtype)
    )
