"""Random borders around an image; all objects stay."""

import dataclasses

import tensorflow as tf

from object_detection.core.fields import InputFields as F
from object_detection.data.augmentation.checks import MAX_FACTOR, MAX_SIDE
from object_detection.data.augmentation.choice import draw_below
from object_detection.data.augmentation.random_crop import RandomCrop
from object_detection.data.augmentation.window import Window, sides_of_shape, surround
from object_detection.data.objects import Example
from object_detection.errors import UserError, expected

_NUM_CHANNELS = 3

# One value for each channel; () is the mean of the image.
Color = tuple[float, ...]


def check_color(step: str, color: Color, *, or_one: bool = False) -> None:
    """Checks the number of values of a `pad_color` (raises ValueError).

    Args:
      step: name of the step.
      color: the values.
      or_one: whether one value for all channels is allowed, too.
    """
    if len(color) not in (0, _NUM_CHANNELS, *([1] if or_one else [])):
        one = ', one for all' if or_one else ''
        raise expected(
            f'{step}.pad_color', f'none, or {_NUM_CHANNELS} numbers, one a channel{one}', color
        )


def draw_window(
    image_size: tf.Tensor, min_size: tf.Tensor, max_size: tf.Tensor, seed: tf.Tensor
) -> Window:
    """Draws a window around an image.

    The height of the window is at least `min_size` and below `max_size`, but never below the
    image's; the rows above the image are at least 0 and below the number of all added rows. The
    same applies to the width.

    Args:
      image_size, min_size, max_size: int32 [2], height and width in pixels.
      seed: integer [2].
    """
    min_size, max_size = tf.maximum(min_size, image_size), tf.maximum(max_size, image_size)
    seeds = tf.unstack(tf.random.split(seed, 4))
    height, width = (draw_below(min_size[i], max_size[i], seeds[i]) for i in range(2))
    top = draw_below(0, height - image_size[0], seeds[2])
    left = draw_below(0, width - image_size[1], seeds[3])
    return Window(-top, -left, height, width)


def surround_with_color(example: Example, window: Window, color: Color) -> Example:
    """Extends an image to a window around it; () is the mean of each of its channels."""
    if color:
        return surround(example, window, color)
    mean = tf.reduce_mean(tf.cast(example[F.IMAGE], tf.float32), axis=[0, 1])
    return surround(example, window, mean)


@dataclasses.dataclass(frozen=True)
class RandomPadImage:
    """Surrounds an image with a border, up to a size.

    Attributes:
      min_size: smallest height and width in pixels; () is the image's own.
      max_size: height and width in pixels that are not reached; () is twice the image's.
      pad_color: value of each channel of the border, 0..255; () is the mean of the image.

    Raises:
      ValueError: if a size is not positive, or the smallest is above the greatest, or the number
        of values of the colour is not the number of channels.
    """

    min_size: tuple[int, ...] = ()
    max_size: tuple[int, ...] = ()
    pad_color: Color = ()

    def __post_init__(self):
        check_color('random_pad_image', self.pad_color)
        least, greatest = self.min_size or (1, 1), self.max_size or (MAX_SIDE, MAX_SIDE)
        if not all(0 < low <= high <= MAX_SIDE for low, high in zip(least, greatest, strict=True)):
            raise UserError(
                'random_pad_image: expected 0 < min_image_height <= max_image_height and 0 < '
                f'min_image_width <= max_image_width, all at most {MAX_SIDE}. '
                f'Received: {self.min_size} and {self.max_size}.'
            )

    def __call__(self, example: Example, seed: tf.Tensor) -> Example:
        """Surrounds the image of `example`; the border depends only on `seed`, integer [2]."""
        image_size = tf.shape(example[F.IMAGE])[:2]
        least = tf.constant(self.min_size) if self.min_size else image_size
        greatest = tf.constant(self.max_size) if self.max_size else 2 * image_size
        return self.pad(example, draw_window(image_size, least, greatest, seed))

    def pad(self, example: Example, window: Window) -> Example:
        """Extends the image of an example to a window around it."""
        return surround_with_color(example, window, self.pad_color)


@dataclasses.dataclass(frozen=True)
class RandomAbsolutePadImage:
    """Surrounds an image with a border.

    Attributes:
      max_height_padding: number of rows above which the border never is, in all fewer than this;
        no rows if it is 0.
      max_width_padding: the same of the columns.
      pad_color: value of each channel of the border, 0..255; () is the mean of the image.

    Raises:
      ValueError: if the number of values of the colour is not the number of channels.
    """

    max_height_padding: int = 0
    max_width_padding: int = 0
    pad_color: Color = ()

    def __post_init__(self):
        name = 'random_absolute_pad_image'
        check_color(name, self.pad_color)

    def __call__(self, example: Example, seed: tf.Tensor) -> Example:
        """Surrounds the image of `example`; the border depends only on `seed`, integer [2]."""
        image_size = tf.shape(example[F.IMAGE])[:2]
        greatest = image_size + [self.max_height_padding, self.max_width_padding]
        return self.pad(example, draw_window(image_size, image_size, greatest, seed))

    def pad(self, example: Example, window: Window) -> Example:
        """Extends the image of an example to a window around it."""
        return surround_with_color(example, window, self.pad_color)


@dataclasses.dataclass(frozen=True)
class Padding:
    """A border after a crop.

    Attributes:
      min_padded_size_ratio: smallest height and width of the result, relative to the image before
        the crop.
      max_padded_size_ratio: height and width that the result does not reach, relative to it.
      pad_color: value of each channel of the border, 0..255; () is the mean of the crop.
      name: name of the step in errors.

    Raises:
      ValueError: if there are not two numbers for each size, the smallest is above the greatest,
        or the number of values of the colour is not the number of channels.
    """

    min_padded_size_ratio: tuple[float, ...] = (1.0, 1.0)
    max_padded_size_ratio: tuple[float, ...] = (2.0, 2.0)
    pad_color: Color = ()
    name: str = 'random_crop_pad_image'

    def __post_init__(self):
        check_color(self.name, self.pad_color)
        check_ratios(self.name, self.min_padded_size_ratio, self.max_padded_size_ratio)


def check_ratios(step: str, least: tuple[float, ...], greatest: tuple[float, ...]) -> None:
    """Checks the two numbers of the smallest and of the greatest size (raises ValueError)."""
    is_sound = len(least) == len(greatest) == 2 and all(
        0.0 < low <= high <= MAX_FACTOR for low, high in zip(least, greatest, strict=True)
    )
    if not is_sound:
        raise UserError(
            f'{step}: expected two numbers in min_padded_size_ratio and in max_padded_size_ratio, '
            f'height and width, 0 < smallest <= greatest <= {MAX_FACTOR:g}. '
            f'Received: {least} and {greatest}.'
        )


class RandomCropPad:
    """Crops an image, then surrounds the crop with a border.

    Args:
      crop: the crop.
      paddings: the border for each operation of `crop`.
    """

    def __init__(self, crop: RandomCrop, paddings: tuple[Padding, ...]):
        if len(paddings) != len(crop.operations):
            raise expected(
                'RandomCropPad', f'{len(crop.operations)} paddings, one an operation', len(paddings)
            )
        self.random_crop = crop
        self._paddings = paddings

    def __call__(self, example: Example, seed: tf.Tensor) -> Example:
        """Crops and pads `example`; all random choices depend only on `seed`, integer [2]."""
        of_operation, of_crop, of_border = tf.unstack(tf.random.split(seed, 3))
        image_size = tf.shape(example[F.IMAGE])[:2]
        operation = self.random_crop.draw_operation(of_operation)
        cropped = self.random_crop.crop_randomly(example, operation, of_crop)
        least, greatest = self.sizes(image_size, operation)
        window = draw_window(tf.shape(cropped[F.IMAGE])[:2], least, greatest, of_border)
        return self.pad(cropped, operation, window)

    def sizes(self, image_size: tf.Tensor, operation: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the smallest and the greatest size, int32 [2], for the size before the crop."""
        size = tf.cast(image_size, tf.float32)
        ratios = (
            [each.min_padded_size_ratio for each in self._paddings],
            [each.max_padded_size_ratio for each in self._paddings],
        )
        least, greatest = (tf.cast(size * tf.constant(r)[operation], tf.int32) for r in ratios)
        return least, greatest

    def pad(self, cropped: Example, operation: tf.Tensor, window: Window) -> Example:
        """Extends a crop by an operation, int32 [], to a window around it."""
        colors = [each.pad_color for each in self._paddings]
        if len(set(colors)) == 1:
            return surround_with_color(cropped, window, colors[0])
        mean = tf.reduce_mean(tf.cast(cropped[F.IMAGE], tf.float32), axis=[0, 1])
        choices = tf.stack([tf.constant(color) if color else mean for color in colors])
        return surround(cropped, window, choices[operation])


@dataclasses.dataclass(frozen=True)
class RandomPadToAspectRatio:
    """Extends an image to a ratio of width to height, with black at the bottom and the right.

    Attributes:
      aspect_ratio: width of the result divided by its height, in pixels.
      min_padded_size_ratio: smallest height and width of the result, relative to the image.
      max_padded_size_ratio: greatest height and width, as far as the ratio permits.
      name: name of the step in errors.

    Raises:
      ValueError: if there are not two numbers for each size, or the smallest is above the
        greatest.
    """

    aspect_ratio: float = 1.0
    min_padded_size_ratio: tuple[float, ...] = (1.0, 1.0)
    max_padded_size_ratio: tuple[float, ...] = (2.0, 2.0)
    name: str = 'random_pad_to_aspect_ratio'

    def __post_init__(self):
        check_ratios(self.name, self.min_padded_size_ratio, self.max_padded_size_ratio)

    def __call__(self, example: Example, seed: tf.Tensor) -> Example:
        """Extends the image of `example`; its size depends only on `seed`, integer [2]."""
        least, greatest = self.scales(tf.shape(example[F.IMAGE])[:2])
        scale = least + (greatest - least) * tf.random.stateless_uniform([], seed)
        return self.pad(example, scale)

    def scales(self, image_size: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the smallest and the greatest factor of the smallest size around the image."""
        size = tf.cast(image_size, tf.float32)
        fitting = self._fitting(size)
        least = tf.maximum(self.min_padded_size_ratio * size, fitting) / fitting
        greatest = tf.maximum(self.max_padded_size_ratio * size, fitting) / fitting
        greatest = tf.reduce_min(greatest)
        return tf.minimum(greatest, tf.reduce_max(least)), greatest

    def pad(self, example: Example, scale: tf.Tensor) -> Example:
        """Extends the image to `scale`, float32 [], times the smallest size around it."""
        image_size = tf.shape(example[F.IMAGE])[:2]
        size = tf.round(scale * self._fitting(tf.cast(image_size, tf.float32)))
        size = tf.maximum(tf.cast(size, tf.int32), image_size)
        return surround(example, Window(0, 0, *tf.unstack(size)), (0.0,))

    def _fitting(self, size: tf.Tensor) -> tf.Tensor:
        """Returns the smallest height and width of the ratio around a size, float32 [2]."""
        return tf.maximum(size, sides_of_shape(size, self.aspect_ratio))
