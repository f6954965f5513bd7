"""Random changes of the scale of an image."""

import dataclasses
from typing import NamedTuple

import tensorflow as tf

from object_detection.core.example_fields import Geometry, names_of
from object_detection.core.fields import InputFields as F
from object_detection.data.augmentation.window import Window, cut_out
from object_detection.data.objects import Example
from object_detection.errors import UserError
from object_detection.resizers.resizer import resample

# Objects that the border of the square cuts to less are dropped, pixels.
_MIN_PIXELS = 1.0


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
      ValueError: if the size is not positive, or the factors are not positive and in order.
    """

    output_size: int = 512
    scale_min: float = 0.1
    scale_max: float = 2.0

    def __post_init__(self):
        name = 'random_scale_crop_and_pad_to_square'
        if self.output_size < 1:
            raise UserError(
                f'{name}.output_size: expected a positive number. Received: {self.output_size}.'
            )
        if not 0.0 < self.scale_min <= self.scale_max:
            raise UserError(
                f'{name}: expected 0 < scale_min <= scale_max. '
                f'Received: {self.scale_min:g} and {self.scale_max:g}.'
            )

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


def _resized(example: Example, size: tf.Tensor) -> Example:
    """Resizes the image, and full-size masks, bilinearly; masks keep their dtype."""
    example = {**example, F.IMAGE: resample(example[F.IMAGE][tf.newaxis], size)[0]}
    for name in names_of(Geometry.IMAGE_MASK):
        if name in example:
            masks = resample(example[name][..., tf.newaxis], size)[..., 0]
            is_soft = example[name].dtype.is_floating
            example[name] = masks if is_soft else tf.cast(tf.round(masks), example[name].dtype)
    return example
