"""The base class of image resizers: legacy sampling, padding, conversion to grey."""

import abc
import functools

import tensorflow as tf

from object_detection.core import tracing
from object_detection.core.shapes import dimensions, is_same
from object_detection.errors import expected
from object_detection.resizers.value_range import ValueRange

BILINEAR = 'bilinear'
NEAREST_NEIGHBOR = 'nearest_neighbor'
BICUBIC = 'bicubic'
_BILINEAR_OF_CENTERS = 'bilinear_of_centers'
AREA = 'area'

Size = int | tf.Tensor


class Resizer(abc.ABC):
    """Resizes images, pads them at the bottom and the right, and returns the unpadded shape.

    Images are sampled as in the reference system, with which the published weights were trained:
    without half-pixel centres (the coordinate of a pixel is its top left corner), unless they are
    asked for.

    Args:
      method: BILINEAR, NEAREST_NEIGHBOR, BICUBIC or AREA, for images; masks are always
        resized by nearest neighbour.
      align_corners: whether the corner pixels of input and output coincide.
      half_pixel_centers: whether the coordinate of a pixel is its centre, for images; with BILINEAR
        alone.
      convert_to_grayscale: whether to convert RGB images to grey after resizing and padding.
      pad_values: value of padded pixels for each channel of the input; () pads with zeros.

    Attributes:
      value_range: the range of the values of images that `pixels` takes; None is 0..255.
    """

    value_range: ValueRange | None = None

    def __init__(
        self,
        *,
        method: str = BILINEAR,
        align_corners: bool = False,
        half_pixel_centers: bool = False,
        convert_to_grayscale: bool = False,
        pad_values: tuple[float, ...] = (),
    ):
        if method not in _METHODS:
            raise expected(
                f'{type(self).__name__}: method', f'one of {sorted(_METHODS)}', repr(method)
            )
        if half_pixel_centers and method != BILINEAR:
            raise expected(f'{type(self).__name__}: half_pixel_centers', 'BILINEAR', repr(method))
        self._method = _BILINEAR_OF_CENTERS if half_pixel_centers else method
        self._align_corners = align_corners
        self._convert_to_grayscale = convert_to_grayscale
        self._pad_values = tuple(pad_values)

    @abc.abstractmethod
    def resized_size(self, height: Size, width: Size) -> tuple[Size, Size]:
        """Returns the size (height, width) to which an image of the given size is resized."""

    def padded_size(self, height: Size, width: Size) -> tuple[Size, Size]:
        """Returns the size to which an already resized image is padded."""
        return height, width

    def for_training(self, seed: tf.Tensor) -> 'Resizer':
        """Returns the resizer of one training image; `seed` [2] determines its random choices."""
        del seed
        return self

    @property
    def static_shape(self) -> tuple[int, int, int] | None:
        """(height, width, channels) of every output, or None if it depends on the image."""
        return None

    def pixels(self, values: tf.Tensor) -> tf.Tensor:
        """Returns the 0..255 that `__call__` takes, for images with the values of `value_range`."""
        return values if self.value_range is None else self.value_range.scaled(values)

    def __call__(self, image: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Resizes an image, or a batch of images of one size.

        Args:
          image: uint8 or float32 [H, W, C] or [B, H, W, C], 0..255.

        Returns:
          The resized and padded image, float32, of the input's rank, 0..255; and its shape without
          padding, int32 [3], (height, width, channels).
        """
        image = tf.convert_to_tensor(image)
        is_single = image.shape.rank == 3
        images = image[tf.newaxis] if is_single else image
        images = tf.cast(self._resize(images, self._method), tf.float32)
        height, width = dimensions(images, 1, 2)
        images = self._pad(images, self._pad_values)
        if self._convert_to_grayscale:
            images = tf.image.rgb_to_grayscale(images)
        images = self._with_static_shape(images)
        true_shape = tf.stack([height, width, images.shape[-1] or tf.shape(images)[-1]])
        return (images[0] if is_single else images), true_shape

    def resize_masks(self, masks: tf.Tensor) -> tf.Tensor:
        """Resizes masks to the size of their image by nearest neighbour and pads them with zeros.

        Args:
          masks: any dtype [n, H, W], n >= 0.

        Returns:
          The resized masks, in the dtype of `masks`, [n, H', W'].
        """
        masks = self._resize(masks[..., tf.newaxis], NEAREST_NEIGHBOR)
        masks = self._pad(masks, ())
        return self._with_static_shape(masks)[..., 0]

    def _resize(self, images: tf.Tensor, method: str) -> tf.Tensor:
        size = dimensions(images, 1, 2)
        resized = self.resized_size(*size)
        if is_same(size, resized):
            return images
        return resample(images, tf.stack(resized), method, align_corners=self._align_corners)

    def _pad(self, images: tf.Tensor, pad_values: tuple[float, ...]) -> tf.Tensor:
        height, width = dimensions(images, 1, 2)
        padded_height, padded_width = self.padded_size(height, width)
        if is_same((height, width), (padded_height, padded_width)):
            return images
        channels = images.shape[-1]
        if pad_values and channels not in (None, len(pad_values)):
            raise expected(
                f'{type(self).__name__}: pad_values', f'{channels}, one a channel', pad_values
            )
        values = tf.cast(pad_values or tf.zeros(dimensions(images, -1)), images.dtype)
        images = _fill_up(images, 2, padded_width, values)
        return _fill_up(images, 1, padded_height, values)

    def _with_static_shape(self, images: tf.Tensor) -> tf.Tensor:
        if self.static_shape is None:
            return images
        return tf.ensure_shape(images, [None, *self.static_shape[:2], None])

    def _output_channels(self) -> int:
        return 1 if self._convert_to_grayscale else 3


def resample(
    images: tf.Tensor, size: tf.Tensor, method: str = BILINEAR, *, align_corners: bool = False
) -> tf.Tensor:
    """Resizes images [B, H, W, C] to `size`, int32 [2], without half-pixel centres.

    Returns:
      The resized images, float32; with NEAREST_NEIGHBOR in the dtype of `images`.
    """
    return _METHODS[method](images=images, size=size, align_corners=align_corners)


def _resize_nearest(**arguments) -> tf.Tensor:
    return tf.raw_ops.ResizeNearestNeighbor(half_pixel_centers=False, **arguments)


def _resize_bilinear(
    *, images: tf.Tensor, size: tf.Tensor, align_corners: bool, half_pixel_centers: bool = False
) -> tf.Tensor:
    def sample(images: tf.Tensor) -> tf.Tensor:
        return tf.raw_ops.ResizeBilinear(
            images=images,
            size=size,
            align_corners=align_corners,
            half_pixel_centers=half_pixel_centers,
        )

    if images.dtype == tf.float32:
        return sample(images)
    # The results are the same, but float32 is sampled in half the time; only for a much smaller
    # output would the conversion cost more than it saves.
    height, width = dimensions(images, 1, 2)
    return tf.cond(
        height * width <= 4 * tf.reduce_prod(size),
        lambda: sample(tf.cast(images, tf.float32)),
        lambda: sample(images),
    )


def _resize_bicubic(**arguments) -> tf.Tensor:
    return tf.raw_ops.ResizeBicubic(half_pixel_centers=False, **arguments)


def _resize_area(**arguments) -> tf.Tensor:
    return tf.raw_ops.ResizeArea(**arguments)


# All methods except nearest neighbour convert uint8 to float32.
_METHODS = {
    BILINEAR: _resize_bilinear,
    _BILINEAR_OF_CENTERS: functools.partial(_resize_bilinear, half_pixel_centers=True),
    NEAREST_NEIGHBOR: _resize_nearest,
    BICUBIC: _resize_bicubic,
    AREA: _resize_area,
}


def _fill_up(images: tf.Tensor, axis: int, size: Size, values: tf.Tensor) -> tf.Tensor:
    """Pads images [B, H, W, C] to `size` along `axis` with `values` [C].

    It copies the images once; `tf.pad` with a selection of pixel values takes eight times as long.
    """
    shape = list(dimensions(images, 0, 1, 2, 3))
    if is_same((shape[axis],), (size,)):
        return images
    missing = shape[axis] = size - shape[axis]

    def pad() -> tf.Tensor:
        # Whole rows are broadcast at once; a broadcast along the channels alone is slow.
        row = tf.tile(values, [shape[2]])
        rows = tf.broadcast_to(row, [shape[0], shape[1], tf.size(row)])
        return tf.concat([images, tf.reshape(rows, shape)], axis)

    # With the branch, OpenVINO 2026.4 gives other detections the first time that it runs a file.
    if isinstance(missing, int) or tracing.BasicOperations.is_on():
        return pad()
    return tf.cond(missing > 0, pad, lambda: images)
