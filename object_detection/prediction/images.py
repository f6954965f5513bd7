"""Reads the images that a `Predictor` is called with: files, bytes, pictures and arrays."""

import os

import numpy as np
from PIL import Image, ImageOps

from object_detection.data import image_files
from object_detection.errors import UserError
from object_detection.export import inference

ImageLike = str | os.PathLike | bytes | Image.Image | np.ndarray
MAX_PIXELS = image_files.MAX_PIXELS


def read(image: ImageLike, max_pixels: int = MAX_PIXELS) -> np.ndarray:
    """Returns an image as uint8 [H, W, 3], RGB, upright.

    Args:
      image: path of an image file; the bytes of one; a PIL image; or uint8 [H, W, 3] (RGB),
        [H, W, 4] (RGB and alpha, which is dropped), [H, W, 1] or [H, W] (grey).
      max_pixels: maximum number of pixels; larger images are refused before they are decoded.

    Raises:
      UserError: if it is none of these, cannot be decoded, or is empty or too large.
    """
    if isinstance(image, np.ndarray):
        return _from_array(image, max_pixels)
    if isinstance(image, Image.Image):
        _check_size(image.height, image.width, max_pixels, 'the PIL image')
        return np.asarray(ImageOps.exif_transpose(image).convert('RGB'))
    if isinstance(image, (bytes, bytearray, memoryview)):
        return inference.decode_file(bytes(image), 'the bytes of an image', max_pixels)[0]
    if isinstance(image, (str, os.PathLike)):
        return inference.read_image(image, max_pixels)[0]
    raise UserError(
        'Predictor: expected a path, bytes, a PIL image or a numpy array. '
        f'Received: {type(image).__name__}.'
    )


def _from_array(image: np.ndarray, max_pixels: int) -> np.ndarray:
    is_grey = image.ndim == 2 or (image.ndim == 3 and image.shape[-1] == 1)
    if image.dtype != np.uint8 or not (is_grey or (image.ndim == 3 and image.shape[-1] in (3, 4))):
        raise UserError(
            'Predictor: expected an array uint8 [H, W, 3] (RGB), [H, W, 4], [H, W, 1] or [H, W]; '
            'a batch is a list of images. '
            f'Received: {image.dtype} {list(image.shape)}.'
        )
    _check_size(*image.shape[:2], max_pixels, 'the array')
    if is_grey:
        return np.repeat(image.reshape(*image.shape[:2], 1), 3, axis=-1)
    return image if image.shape[-1] == 3 else np.ascontiguousarray(image[..., :3])


def _check_size(height: int, width: int, max_pixels: int, what: str) -> None:
    if not 0 < height * width <= max_pixels:
        raise UserError(
            f'Predictor: {what} is {height} pixels high and {width} wide; expected 1 to '
            f'{max_pixels} pixels.'
        )
