"""Images at a random scale on a canvas of one size; the part of a step that makes such images."""

import dataclasses
from typing import NamedTuple

import tensorflow as tf

from object_detection.core.example_fields import Geometry, names_of
from object_detection.core.fields import InputFields as F
from object_detection.data.augmentation.checks import check_positive_order
from object_detection.data.augmentation.padding import Color, check_color
from object_detection.data.augmentation.scale import resize_example
from object_detection.data.augmentation.window import Window, cut_out, surround
from object_detection.data.objects import Example


class ZoomDraws(NamedTuple):
    """Random numbers of an image on a canvas.

    Attributes:
      scale: float32 []; 1 makes the image as large as it fits on the canvas.
      offset: float32 [2], in [0, 1]: where the part that is shown begins, along y and x, as a share
        of the rows and columns that are not shown.
    """

    scale: tf.Tensor
    offset: tf.Tensor


def draw_zoom(min_scale: float, max_scale: float, seed: tf.Tensor) -> ZoomDraws:
    """Draws the numbers of one image."""
    of_scale, of_offset = tf.unstack(tf.random.split(seed))
    scale = tf.random.stateless_uniform([], of_scale, min_scale, max_scale)
    return ZoomDraws(scale, tf.random.stateless_uniform([2], of_offset))


def zoom(
    example: Example,
    canvas: tuple[int, int],
    draws: ZoomDraws,
    *,
    size: tf.Tensor | None = None,
    is_at_end: tuple[bool, bool] = (False, False),
    min_overlap: float = 0.0,
    color: Color = (0.0,),
) -> Example:
    """Resizes an image, then crops or pads it. Only the part that is shown is resized.

    Args:
      example: as for `window.cut_out`.
      canvas: height and width, pixels, that the whole image fits on with the scale 1.
      draws: random numbers.
      size: int32 [2], height and width of the result; None is the canvas.
      is_at_end: whether an image that does not fill the result is at its bottom, and at its right.
      min_overlap: smallest share of a box that is shown with which its object is kept.
      color: one value, or one for each channel, 0..255, of what the image does not cover.
    """
    size = tf.constant(canvas) if size is None else size
    image_size = tf.shape(example[F.IMAGE])[:2]
    sides = tf.cast(image_size, tf.float32)
    factor = draws.scale * tf.reduce_min(tf.constant(canvas, tf.float32) / sides)
    needed = tf.cast(tf.math.ceil(tf.cast(size, tf.float32) / factor), tf.int32)
    shown = tf.clip_by_value(needed, 1, image_size)
    free = image_size - shown
    offset = tf.minimum(tf.cast(draws.offset * tf.cast(free + 1, tf.float32), tf.int32), free)
    window = Window(*tf.unstack(offset), *tf.unstack(shown))
    part = cut_out(example, window, is_within=True, min_overlap=min_overlap)
    resized = tf.cast(tf.round(tf.cast(shown, tf.float32) * factor), tf.int32)
    resized = tf.where(shown == needed, size, tf.clip_by_value(resized, 1, size))
    part = resize_example(part, resized)
    before = tf.where(is_at_end, size - resized, 0)
    return surround(part, Window(*tf.unstack(-before), *tf.unstack(size)), color)


@dataclasses.dataclass(frozen=True)
class LargeScaleJitter:
    """Resizes an image by a factor of a wide range, then crops or pads it to one size.

    "Simple Copy-Paste is a Strong Data Augmentation Method", https://arxiv.org/abs/2012.07177. A
    part of a larger image is anywhere in it; a smaller image is at the top left.

    Attributes:
      height, width: size of the result in pixels; all outputs have this static size.
      min_scale, max_scale: bounds of the factor; 1 makes the image as large as it fits.
      overlap_thresh: objects with a smaller share of their box inside are dropped.
      pad_color: one value, or one for each channel, of the rest, 0..255; () is black.

    Raises:
      ValueError: if the factors are not positive and in order, or the number of values of the
        colour is wrong.
    """

    height: int = 640
    width: int = 640
    min_scale: float = 0.1
    max_scale: float = 2.0
    overlap_thresh: float = 0.0
    pad_color: Color = ()

    def __post_init__(self):
        name = 'large_scale_jitter'
        check_positive_order(name, self, 'min_scale', 'max_scale')
        check_color(name, self.pad_color, or_one=True)

    def __call__(self, example: Example, seed: tf.Tensor) -> Example:
        """Changes `example`; all random choices depend only on `seed`, integer [2]."""
        return self.change(example, draw_zoom(self.min_scale, self.max_scale, seed))

    def change(self, example: Example, draws: ZoomDraws) -> Example:
        """Changes an example by random numbers."""
        canvas = (self.height, self.width)
        zoomed = zoom(
            example, canvas, draws, min_overlap=self.overlap_thresh, color=self.pad_color or (0.0,)
        )
        return with_static_size(zoomed, canvas)


def with_static_size(example: Example, size: tuple[int, int]) -> Example:
    """Gives the image and full-size masks the static height and width that they have."""
    example = dict(example)
    example[F.IMAGE] = tf.ensure_shape(example[F.IMAGE], [*size, example[F.IMAGE].shape[-1]])
    for name in names_of(Geometry.IMAGE_MASK):
        if name in example:
            example[name] = tf.ensure_shape(example[name], [None, *size])
    return example
