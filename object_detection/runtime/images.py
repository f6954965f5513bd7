"""Reads images for detectors: files, bytes, pictures and arrays."""

import os
import pathlib
import re
from collections.abc import Iterator

import numpy as np
import tensorflow as tf
from PIL import Image, ImageOps

from object_detection.data import image_files
from object_detection.data.image_decoding import decode_image, decode_values
from object_detection.data.tiff import plain_files, tiff_files
from object_detection.data.tiff.tiff_files import LargeImage
from object_detection.errors import UnusableError, UserError, expected
from object_detection.resizers.value_range import ValueRange

ImageLike = str | os.PathLike | bytes | Image.Image | np.ndarray | LargeImage
MAX_PIXELS = image_files.MAX_PIXELS
# The part of TensorFlow's messages that describes the failed operation.
_INTERNALS = re.compile(r'\{\{.*?\}\}|\[Op:.*?\](\s*name:\s*)?')
_MAX_UINT16 = np.iinfo(np.uint16).max
# Pixels up to which an image is held whole, although its tiles could be read one by one.
_HELD_PIXELS = 2**25


def read(
    image: ImageLike,
    max_pixels: int = MAX_PIXELS,
    value_range: ValueRange | None = None,
    *,
    channels: int = 3,
    in_parts: bool = False,
) -> np.ndarray | LargeImage:
    """Returns an image as [H, W, C], upright; 3 channels are RGB.

    Args:
      image: path of an image file; the bytes of one; a PIL image; or an array [H, W, 3] (RGB),
        [H, W, 4] (RGB and alpha, which is dropped), [H, W, 1] or [H, W] (grey), uint8 or uint16,
        with `value_range` of any integers or floats; for another C than 3, [H, W, C] alone, and no
        PIL images.
      max_pixels: maximum number of pixels; larger images are refused before they are decoded.
      value_range: that of the model which takes the image.
      channels: C, that of the model, see `decode_image`.
      in_parts: whether a large TIFF file stays in its file, see `pages`.

    Returns:
      uint8, the upper 8 bits of 16; with `value_range` the values themselves, float32.

    Raises:
      UserError: if it is none of these, cannot be decoded, or is empty or too large.
    """
    if isinstance(image, LargeImage):
        return image
    if isinstance(image, np.ndarray):
        return _from_array(image, max_pixels, value_range, channels)
    if isinstance(image, Image.Image) and channels == 3:
        _check_size(image.height, image.width, max_pixels, 'the PIL image')
        if value_range is not None and image.mode.startswith('RGB') and _is_of_16_bits(image):
            raise UserError(
                'Predictor: expected the path or the bytes of this image: PIL reads the upper 8 of '
                '16 bits of its colours, and the model takes all.'
            )
        upright = ImageOps.exif_transpose(image)
        if upright.mode.startswith(('I', 'F')):
            return _from_array(_stored_values(upright), max_pixels, value_range)
        return _from_array(np.asarray(upright.convert('RGB')), max_pixels, value_range)
    if isinstance(image, (bytes, bytearray, memoryview)):
        name = 'the bytes of an image'
        return decode_file(bytes(image), name, max_pixels, value_range, channels)[0]
    if isinstance(image, (str, os.PathLike)):
        return next(pages(image, max_pixels, value_range, channels=channels, in_parts=in_parts))
    raise expected('Predictor', 'a path, bytes, a PIL image or a numpy array', type(image).__name__)


def pages(
    path: str | os.PathLike,
    max_pixels: int = MAX_PIXELS,
    value_range: ValueRange | None = None,
    *,
    channels: int = 3,
    in_parts: bool = False,
) -> Iterator[np.ndarray | LargeImage]:
    """Yields the image of a file, or all pages of a TIFF file, each as `read` returns it.

    Args:
      path: the file.
      max_pixels, value_range, channels: as for `read`.
      in_parts: whether a page of a TIFF file that has more than 33 million pixels is not decoded,
        but an object from which parts are read; it has no maximum number of pixels.

    Raises:
      UserError: as `read`.
    """
    try:
        with open(path, 'rb') as file:
            is_tiff = plain_files.is_tiff(file.read(4))
        count = tiff_files.num_pages(path) if is_tiff else 1
    except (OSError, UnusableError) as error:
        reason = f'cannot be opened: {error.strerror}' if isinstance(error, OSError) else error
        raise UserError(f'{path}: {reason}.') from error
    encoded = b''
    for page in range(count):
        large = (
            is_tiff and in_parts and LargeImage.of(path, _HELD_PIXELS, value_range, channels, page)
        )
        if large:
            yield large
        else:
            encoded = encoded or pathlib.Path(path).read_bytes()
            yield decode_file(encoded, str(path), max_pixels, value_range, channels, page)[0]


def read_image(
    path: str | os.PathLike,
    max_pixels: int = MAX_PIXELS,
    value_range: ValueRange | None = None,
    channels: int = 3,
) -> tuple[np.ndarray, bytes]:
    """Returns an image file as [H, W, C], see `read`, and the bytes of a file with the same pixels.

    The image is upright: it is rotated according to its EXIF data. The bytes are the file's own
    unless TensorFlow would decode other pixels from them.

    Args:
      path: the file.
      max_pixels: maximum number of pixels; larger images are refused before they are decoded.
      value_range: that of the model which takes the image. Without one, pixels are uint8, the upper
        8 bits of 16; with one, they are the stored values, float32.
      channels: C.

    Raises:
      ValueError: if the file is not an image that can be read, or cannot be opened.
    """
    try:
        encoded = pathlib.Path(path).read_bytes()
    except OSError as error:
        raise UserError(f'{path}: cannot be opened: {error.strerror}.') from error
    return decode_file(encoded, str(path), max_pixels, value_range, channels)


def decode_file(
    encoded: bytes,
    where: str,
    max_pixels: int = MAX_PIXELS,
    value_range: ValueRange | None = None,
    channels: int = 3,
    page: int = 0,
) -> tuple[np.ndarray, bytes]:
    """Returns what `read_image` does, for the bytes of a file; `where` names it in errors."""
    try:
        encoded = image_files.read_upright(encoded, max_pixels=max_pixels, page=page).encoded
    except UnusableError as error:
        raise UserError(f'{where}: {error}.') from error
    try:
        decode = decode_image if value_range is None else decode_values
        image = decode(encoded, channels).numpy()
    except tf.errors.InvalidArgumentError as error:
        reason = _INTERNALS.sub('', error.message).strip()
        raise UserError(f'{where}: cannot be decoded: {reason}') from error
    return image if value_range is None else value_range.finite(image), encoded


def _is_of_16_bits(image: Image.Image) -> bool:
    """Whether a PIL image, if it has not been loaded yet, comes from a file of 16 bits."""
    return any(str(tile[3]).endswith(';16B') for tile in getattr(image, 'tile', ()))


def _stored_values(image: Image.Image) -> np.ndarray:
    """Returns the values of a grey PIL image of more than 8 bits; uint16 as a PNG file has them."""
    values = np.asarray(image)
    if image.mode == 'F' or values.min(initial=0) < 0 or values.max(initial=0) > _MAX_UINT16:
        return values
    return values.astype(np.uint16)


def picture(image: np.ndarray, value_range: ValueRange | None) -> np.ndarray:
    """Returns an image [H, W, C] as uint8 [H, W, 3], of its first channels, to be looked at."""
    channels = image.shape[-1]
    image = image[..., :3] if channels >= 3 else np.repeat(image[..., :1], 3, axis=-1)
    return image if value_range is None else value_range.picture(image)


def _from_array(
    image: np.ndarray, max_pixels: int, value_range: ValueRange | None, channels: int = 3
) -> np.ndarray:
    is_grey = image.ndim == 2 or (image.ndim == 3 and image.shape[-1] == 1)
    is_known = image.dtype in (np.uint8, np.uint16)
    if value_range is not None:
        is_known = image.dtype.kind in 'uif' and bool(np.isfinite(image).all())
    fits = is_grey or (image.ndim == 3 and image.shape[-1] in (3, 4))
    if channels != 3:
        is_grey, fits = False, image.ndim == 3 and image.shape[-1] == channels
    if not is_known or not fits:
        shapes = '[H, W, 3] (RGB), [H, W, 4], [H, W, 1] or [H, W]'
        shapes = shapes if channels == 3 else f'[H, W, {channels}]'
        needed = 'uint8 or uint16' if value_range is None else 'of finite numbers'
        hint = '' if value_range else ' (others need a model with image_resizer.value_range)'
        raise UserError(
            f'Predictor: expected an array {needed} {shapes}{hint}; a batch is a list of images. '
            f'Received: {image.dtype} {list(image.shape)}.'
        )
    _check_size(*image.shape[:2], max_pixels, 'the array')
    if value_range is not None:
        image = image.astype(np.float32)
    elif image.dtype == np.uint16:
        image = (image >> 8).astype(np.uint8)
    if is_grey:
        return np.repeat(image.reshape(*image.shape[:2], 1), 3, axis=-1)
    is_whole = image.shape[-1] == channels
    return image if is_whole else np.ascontiguousarray(image[..., :channels])


def _check_size(height: int, width: int, max_pixels: int, what: str) -> None:
    if not 0 < height * width <= max_pixels:
        raise UserError(
            f'Predictor: {what} is {height} pixels high and {width} wide; expected 1 to '
            f'{max_pixels} pixels.'
        )
