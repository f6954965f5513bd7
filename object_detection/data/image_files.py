"""Image files as TensorFlow reads them: upright, and with the pixels that other programs show.

TensorFlow passes over the orientation in a photo's EXIF data, reads the colour numbers of a BMP
palette as grey values, and cuts 16-bit grey values to their high byte. A file where that matters is
encoded anew; all others stay as they are, byte for byte.
"""

import io
import struct
import threading
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, JpegImagePlugin

from object_detection.errors import UnusableError

# PIL's name of a format that TensorFlow decodes -> the name in `image/format`. An MPO file is a
# JPEG with more pictures behind the first, as some cameras write.
FORMATS = {
    **{'JPEG': 'jpeg', 'MPO': 'jpeg', 'PNG': 'png', 'GIF': 'gif', 'BMP': 'bmp'},
    'WEBP': 'webp',
}
# Of one image, as many as PIL reads unless told otherwise: half a gigabyte as RGB.
MAX_PIXELS = 178_956_970

# PIL's reader of JPEG opens MPO files too.
_READERS = tuple(name for name in FORMATS if name != 'MPO')
_ORIENTATION = 0x0112  # EXIF tag
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_SIDEWAYS = (5, 6, 7, 8)
_JPEG_QUALITY = 95
# PIL's limit of pixels is a variable of its module.
_limit_lock = threading.Lock()

# Reasons in `ImageFile.changes`.
TURNED, NO_TURN = 'exif_orientation', 'exif_orientation_without_effect'
RESCALED = 'rescaled_16_bit'


class ImageFile(NamedTuple):
    """An image file that TensorFlow decodes to what other programs show.

    Attributes:
      encoded: the file's bytes, or those of the file that takes its place.
      format: a value of `FORMATS`.
      height: in pixels, of the upright image.
      width: in pixels, of the upright image.
      changes: why it was encoded anew, in one word each: 'exif_orientation', 'rescaled_16_bit',
        'bmp_palette', 'webp_animation'; 'exif_orientation_without_effect' for a turn that was not
        made.
    """

    encoded: bytes
    format: str
    height: int
    width: int
    changes: tuple[str, ...] = ()


def read_upright(
    encoded: bytes,
    *,
    stated_size: tuple[Any, Any] = (None, None),
    max_pixels: int = MAX_PIXELS,
) -> ImageFile:
    """Returns an image file as TensorFlow is to read it; only what must be changed is decoded.

    JPEG files are encoded anew as JPEG (quality 95, colours of full size), others as PNG.

    Grey values of 16 bits that all fit into 12 (or 8), as scientific cameras write, are taken for
    values of 12 (8) bits: their high bytes alone would be almost black.

    Args:
      encoded: the bytes of the file.
      stated_size: (height, width) that the annotations say; None for what they do not say. Where it
        is the size of the pixels as they are stored, and not that of the upright image, the
        annotations were drawn on the image as it is stored, and it is not turned.
      max_pixels: most pixels of an image; more are refused before they are decoded.

    Raises:
      UnusableError: if the file is no image of a format of `FORMATS`, has too many pixels, or must
        be decoded and cannot be.
    """
    try:
        with _open(encoded) as image:
            _check_pixels(image, max_pixels)
            orientation = _orientation(image, encoded)
            width, height = image.size
            upright = (width, height) if orientation in _SIDEWAYS else (height, width)
            changes = []
            if orientation in _TURNS:
                turns = _fits(stated_size, upright) or not _fits(stated_size, (height, width))
                changes.append(TURNED if turns else NO_TURN)
            changes += _misread(image, encoded)
            if not set(changes) - {NO_TURN}:
                return ImageFile(encoded, FORMATS[image.format], height, width, tuple(changes))
            return _encode_anew(image, orientation if TURNED in changes else 1, changes)
    except UnusableError:
        raise
    # PIL's plugins raise nearly anything on a damaged file.
    except Exception as error:
        raise _undecodable(error) from error


def check(encoded: bytes, max_pixels: int = MAX_PIXELS) -> None:
    """Decodes an image file, a JPEG at an eighth of its size, to see whether that can be done.

    Raises:
      UnusableError: if it cannot; or as `read_upright`.
    """
    try:
        with _open(encoded) as image:
            _check_pixels(image, max_pixels)
            width, height = image.size
            image.verify()
        # What `verify` does depends on the format; a JPEG that breaks off passes it.
        with _open(encoded) as image:
            if isinstance(image, JpegImagePlugin.JpegImageFile):
                image.draft(image.mode, (max(width // 8, 1), max(height // 8, 1)))
            image.load()
    except UnusableError:
        raise
    except Exception as error:
        raise _undecodable(error) from error


def _open(encoded: bytes) -> Image.Image:
    """Opens with the readers of `FORMATS` alone: that of EPS, for one, would start a program."""
    with _limit_lock:
        limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
        try:
            return Image.open(io.BytesIO(encoded), formats=_READERS)
        finally:
            Image.MAX_IMAGE_PIXELS = limit


def _check_pixels(image: Image.Image, max_pixels: int) -> None:
    width, height = image.size
    if width * height > max_pixels:
        raise UnusableError(
            'bad_image',
            f'is {height} pixels high and {width} wide; expected at most {max_pixels} pixels',
        )


def _orientation(image: Image.Image, encoded: bytes) -> int:
    # PIL decodes a whole PNG for its EXIF data, as they may come last.
    if image.format == 'PNG' and b'eXIf' not in encoded:
        return 1
    try:
        return int(image.getexif().get(_ORIENTATION, 1))
    # EXIF data that cannot be read are passed over, as every viewer does.
    except Exception:
        return 1


def _fits(stated: tuple[Any, Any], size: tuple[int, int]) -> bool:
    return all(side in (None, own) for side, own in zip(stated, size, strict=True))


def _misread(image: Image.Image, encoded: bytes) -> list[str]:
    """Returns why TensorFlow reads other pixels than PIL, or none, of the file as it is stored."""
    if image.format == 'BMP' and not _is_plain_bmp(image, encoded):
        return ['bmp_palette']
    if image.format == 'WEBP' and getattr(image, 'is_animated', False):
        return ['webp_animation']
    if image.mode.startswith('I') and _significant_bits(image) < 16:
        return [RESCALED]
    return []


def _is_plain_bmp(image: Image.Image, encoded: bytes) -> bool:
    """Whether pixels are stored as 8-bit colours or grey values, not packed."""
    header_size, bits, compression = *struct.unpack_from('<I', encoded, 14), 0, 1
    if header_size >= 40:
        bits, compression = struct.unpack_from('<HI', encoded, 28)
    return compression == 0 and (bits in (24, 32) or (bits == 8 and image.mode == 'L'))


def _significant_bits(image: Image.Image) -> int:
    highest = int(np.asarray(image).max(initial=0))
    return 8 if highest < 1 << 8 else 12 if highest < 1 << 12 else 16


def _encode_anew(image: Image.Image, orientation: int, changes: list[str]) -> ImageFile:
    if image.mode.startswith('I'):
        pixels = np.asarray(image).astype(np.uint32) >> (_significant_bits(image) - 8)
        plain = Image.fromarray(pixels.astype(np.uint8))
    else:
        plain = image.convert('L' if image.mode in ('1', 'L') else 'RGB')
    if orientation in _TURNS:
        plain = plain.transpose(_TURNS[orientation])
    file = io.BytesIO()
    kind = 'JPEG' if FORMATS[image.format] == 'jpeg' else 'PNG'
    # Nothing of the old file but its pixels: its EXIF data would turn the image again.
    plain.info.clear()
    plain.save(file, kind, quality=_JPEG_QUALITY, subsampling=0)
    return ImageFile(file.getvalue(), FORMATS[kind], plain.height, plain.width, tuple(changes))


def _undecodable(error: Exception | str) -> UnusableError:
    if isinstance(error, Image.UnidentifiedImageError):
        # PIL's own message shows an object of Python.
        error = f'no image file of the formats {", ".join(FORMATS)}'
    return UnusableError('bad_image', f'cannot be decoded: {error}')
