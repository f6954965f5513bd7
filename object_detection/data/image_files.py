"""Converts image files so that TensorFlow decodes the upright pixels that other programs show.

TensorFlow ignores the EXIF orientation of a photo, reads palette indices of a BMP file as grey
values, and may not survive an animation. Files that are affected are encoded again; all others are
not changed.
"""

import contextlib
import io
import struct
import threading
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, JpegImagePlugin

from object_detection.data.tiff import plain_files, tiff_files
from object_detection.errors import UnusableError
from object_detection.resizers.value_range import ValueRange
from object_detection.system import costly_files

# PIL's name of a format that TensorFlow decodes -> the name in `image/format`. An MPO file, which
# some cameras write, is a JPEG file followed by further pictures.
FORMATS = {
    **{'JPEG': 'jpeg', 'MPO': 'jpeg', 'PNG': 'png', 'GIF': 'gif', 'BMP': 'bmp'},
    'WEBP': 'webp',
}
# Maximum number of pixels of an image, the default limit of PIL: half a gigabyte as RGB.
MAX_PIXELS = 178_956_970

# PIL's JPEG reader opens MPO files too.
READERS = tuple(name for name in FORMATS if name != 'MPO')
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
# Side of the picture that is hashed, and its lowest frequencies along an axis.
_HASHED_SIDE, _NUM_WAVES = 32, 8
_COSINES = np.cos(np.pi / _HASHED_SIDE * np.outer(np.arange(_NUM_WAVES), np.arange(32) + 0.5))
# The standard deviation, of grey values, below which a picture shows nothing to compare.
_MIN_CONTRAST = 1.0
# PIL's limit of pixels is a global variable of its module.
_limit_lock = threading.Lock()

# Reasons in `ImageFile.changes`.
TURNED, NO_TURN = 'exif_orientation', 'exif_orientation_without_effect'


class ImageFile(NamedTuple):
    """An image file that TensorFlow decodes to what other programs show.

    Attributes:
      encoded: bytes of the file, or of the file that replaces it.
      format: a value of `FORMATS`, or 'tiff' for a plain TIFF file, see `plain_files`.
      height: height of the upright image in pixels.
      width: width of the upright image in pixels.
      changes: reasons for encoding it again: 'exif_orientation', 'bmp_palette', 'animation', and
        those of `tiff_files`; and 'exif_orientation_without_effect' for an orientation that was
        ignored.
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
    page: int = 0,
) -> ImageFile:
    """Returns an image file for TensorFlow; only files that must be changed are decoded.

    JPEG files are encoded again as JPEG (quality 95, no chroma subsampling), TIFF files as plain
    ones, others as PNG, of 16 bits if they have as many.

    Args:
      encoded: the bytes of the file.
      stated_size: (height, width) in the annotations; None for values that they do not state. If it
        is the size of the stored pixels, and not of the upright image, the annotations were drawn
        on the stored image, and it is not rotated.
      max_pixels: maximum number of pixels of an image; larger ones are refused before decoding.
      page: number of the page of a TIFF file, from 0.

    Raises:
      UnusableError: if the file is not an image of a format of `FORMATS`, has too many pixels, or
        must be decoded and cannot be.
    """
    if plain_files.is_tiff(encoded):
        return _read_tiff(encoded, stated_size, max_pixels, page)
    with _opened(encoded, max_pixels) as image:
        orientation = _orientation(image, encoded)
        width, height = image.size
        changes = _turns(orientation, (height, width), stated_size)
        changes += _misread(image, encoded)
        if not set(changes) - {NO_TURN}:
            return ImageFile(encoded, FORMATS[image.format], height, width, tuple(changes))
        return _encode_anew(image, encoded, orientation if TURNED in changes else 1, changes)


def _read_tiff(
    encoded: bytes, stated_size: tuple[Any, Any], max_pixels: int, page: int = 0
) -> ImageFile:
    values, changes = tiff_files.read(encoded, max_pixels, page=page)
    orientation = tiff_files.orientation(encoded) if changes else 1
    turned = _turns(orientation, values.shape[:2], stated_size)
    if TURNED in turned:
        values = tiff_files.upright(values, orientation)
    file = plain_files.encode(values) if changes else encoded
    return ImageFile(file, 'tiff', *values.shape[:2], (*turned, *changes))


def _turns(orientation: int, size: tuple[int, int], stated_size: tuple[Any, Any]) -> list[str]:
    """Returns what becomes of an orientation of an image of `size`; [] for an upright one."""
    if orientation not in _TURNS:
        return []
    upright = size[::-1] if orientation in _SIDEWAYS else size
    return [TURNED if _fits(stated_size, upright) or not _fits(stated_size, size) else NO_TURN]


def first_picture(encoded: bytes, max_pixels: int = MAX_PIXELS) -> bytes:
    """Returns a PNG file of the first picture of an animation, and a plain file of a TIFF file;
    other files as they are.

    Raises:
      UnusableError: as `read_upright`.
    """
    if plain_files.is_tiff(encoded):
        return _read_tiff(encoded, (None, None), max_pixels).encoded
    with _opened(encoded, max_pixels) as image:
        return _encode_anew(image, encoded, 1, []).encoded if _is_animated(image) else encoded


def check(encoded: bytes, max_pixels: int = MAX_PIXELS, *, hashes: bool = False) -> int:
    """Checks that an image file can be decoded (a JPEG file at an eighth of its size).

    Returns:
      With `hashes`, that of the picture, see `picture_hash`; 0 without.

    Raises:
      UnusableError: if it cannot be decoded, or as `read_upright`.
    """
    if plain_files.is_tiff(encoded):
        values = tiff_files.read(encoded, max_pixels).values
        if not hashes:
            return 0
        # In the range of the image's own, as the upper 8 of 16 bits may be nearly black.
        values = values if values.dtype == np.uint8 else values.astype(np.float32)
        return picture_hash(Image.fromarray(_shown(values, None)))
    with _opened(encoded, max_pixels) as image:
        if isinstance(image, JpegImagePlugin.JpegImageFile):
            width, height = image.size
            least = _HASHED_SIDE if hashes else 1
            image.draft(image.mode, (max(width // 8, least), max(height // 8, least)))
            return _load(image, hashes=hashes)
        # It finds nothing in JPEG files; what it looked at can only be opened again.
        image.verify()
    with _opened(encoded, max_pixels) as image:
        return _load(image, hashes=hashes)


def _load(image: Image.Image, *, hashes: bool) -> int:
    image.load()
    return picture_hash(_as_8_bit(image)) if hashes else 0


def picture_hash(image: Image.Image) -> int:
    """Returns a hash of 64 bits of which similar pictures have most in common.

    The bits say which of the 64 lowest frequencies of the picture (a discrete cosine transform) are
    above their median, as in pHash (Zauner, 2010, "Implementation and Benchmarking of Perceptual
    Image Hash Functions").

    Args:
      image: of 8 bits.

    Returns:
      0 for a picture without contrast, which would look like any other one.
    """
    small = image.convert('L').resize((_HASHED_SIDE, _HASHED_SIDE), Image.Resampling.BOX)
    grey = np.asarray(small, np.float64)
    if grey.std() < _MIN_CONTRAST:
        return 0
    waves = (_COSINES @ grey @ _COSINES.T).ravel()
    # The first one is the mean of the picture.
    bits = waves > np.median(waves[1:])
    return int.from_bytes(np.packbits(bits).tobytes(), 'big')


def decode(encoded: bytes, max_pixels: int = MAX_PIXELS) -> np.ndarray:
    """Returns the stored values of an image file, such as a mask: [H, W] or [H, W, C].

    Values of a file with a palette are the indices.

    Raises:
      UnusableError: if it cannot be decoded or has too many pixels.
    """
    if plain_files.is_tiff(encoded):
        values = tiff_files.read(encoded, max_pixels, colors=False).values
        return values[..., 0] if values.shape[-1] == 1 else values
    with _opened(encoded, max_pixels) as image:
        return np.asarray(image)


def thumbnail(
    encoded: bytes,
    longest_side: int,
    value_range: ValueRange | None = None,
    max_pixels: int = MAX_PIXELS,
) -> Image.Image:
    """Returns the stored image in colours, as a model of a range of values sees it, made smaller.

    Args:
      encoded: the bytes of the file.
      longest_side: longest side of the result in pixels.
      value_range: that of the model; None takes the upper 8 of 16 bits.
      max_pixels: as for `read_upright`.

    Raises:
      UnusableError: as `read_upright`.
    """
    if plain_files.is_tiff(encoded):
        pixels = _shown(tiff_files.read(encoded, max_pixels).values, value_range)
    else:
        with _opened(encoded, max_pixels) as image:
            if value_range is None or not has_16_bits(encoded):
                image.draft('RGB', (longest_side, longest_side))
                pixels = np.asarray(_as_8_bit(image).convert('RGB'))
            else:
                channels = _channels_of_16_bits(image, encoded)
                colors = channels[:3] if len(channels) >= 3 else channels[:1] * 3
                pixels = np.stack(colors, axis=-1)
    small = Image.fromarray(pixels if value_range is None else value_range.picture(pixels))
    small.thumbnail((longest_side, longest_side))
    return small


def _shown(values: np.ndarray, value_range: ValueRange | None) -> np.ndarray:
    """Returns the colours of a TIFF file; of floats without a range in that of their own."""
    if values.shape[-1] == 2:
        values = values[..., :1]
    if value_range is not None or values.dtype != np.float32:
        return tiff_files.to_channels(values, 3, value_range)
    finite = values[np.isfinite(values)]
    low, high = (finite.min(), finite.max()) if finite.size else (0.0, 1.0)
    own = ValueRange(float(low), float(max(high, np.nextafter(low, np.float32(np.inf)))))
    return own.picture(tiff_files.to_channels(values, 3, own))


def stored_size(encoded: bytes) -> tuple[int, int]:
    """Returns (height, width) of the stored pixels, as TensorFlow decodes them; reads the header.

    Raises:
      UnusableError: if it is not an image of a format of `FORMATS`.
    """
    if plain_files.is_tiff(encoded):
        return tiff_files.size(encoded)
    with _opened(encoded) as image:
        return image.size[1], image.size[0]


def reduce(encoded: bytes, longest_side: int, max_pixels: int = MAX_PIXELS) -> ImageFile | None:
    """Makes a file of a smaller image, of the same aspect ratio, rounded down.

    It is a JPEG file, and a PNG file of 16 bits for one of 16 bits, a plain TIFF file for TIFF.

    Args:
      encoded: the bytes of an image file.
      longest_side: longest side of the result in pixels.
      max_pixels: maximum number of pixels; larger images are not decoded.

    Returns:
      None for an image that is not larger.

    Raises:
      UnusableError: if it cannot be decoded or has too many pixels.
    """
    if plain_files.is_tiff(encoded):
        return _reduced_tiff(tiff_files.read(encoded, max_pixels).values, longest_side)
    with _opened(encoded) as image:
        scale = longest_side / max(image.size)
        if scale >= 1:
            return None
        _check_pixels(image, max_pixels)
        width, height = (max(1, int(side * scale)) for side in image.size)
        if has_16_bits(encoded):
            channels = _channels_of_16_bits(image, encoded)
            return _of_16_bits([_resized(each, width, height) for each in channels])
        file = io.BytesIO()
        _as_8_bit(image).resize((width, height)).save(file, 'JPEG')
    return ImageFile(file.getvalue(), FORMATS['JPEG'], height, width, ())


def _reduced_tiff(values: np.ndarray, longest_side: int) -> ImageFile | None:
    scale = longest_side / max(values.shape[:2])
    if scale >= 1:
        return None
    height, width = (max(1, int(side * scale)) for side in values.shape[:2])
    channels = [
        np.asarray(Image.fromarray(each.astype(np.float32)).resize((width, height)))
        for each in np.moveaxis(values, -1, 0)
    ]
    small = np.stack(channels, axis=-1)
    if values.dtype != np.float32:
        small = np.clip(np.rint(small), 0, np.iinfo(values.dtype).max).astype(values.dtype)
    return ImageFile(plain_files.encode(small), 'tiff', height, width, ())


@contextlib.contextmanager
def _opened(encoded: bytes, max_pixels: int | None = None) -> Iterator[Image.Image]:
    """Opens a file, of at most `max_pixels`, and raises UnusableError for what goes wrong."""
    try:
        costly_files.check(encoded)
        with _open(encoded) as image:
            if max_pixels is not None:
                _check_pixels(image, max_pixels)
            yield image
    except UnusableError:
        raise
    # PIL's plugins raise many kinds of errors on a corrupt file.
    except Exception as error:
        raise _undecodable(error) from error


def _open(encoded: bytes) -> Image.Image:
    """Opens a file with the readers of `FORMATS` only: the EPS reader, e.g., starts a program."""
    with _limit_lock:
        limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
        try:
            return Image.open(io.BytesIO(encoded), formats=READERS)
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
    # PIL decodes a whole PNG file for its EXIF data, as they may come last.
    if image.format == 'PNG' and b'eXIf' not in encoded:
        return 1
    try:
        return int(image.getexif().get(_ORIENTATION, 1))
    # EXIF data that cannot be read are ignored, as in image viewers.
    except Exception:
        return 1


def _fits(stated: tuple[Any, Any], size: tuple[int, int]) -> bool:
    return all(side in (None, own) for side, own in zip(stated, size, strict=True))


def _misread(image: Image.Image, encoded: bytes) -> list[str]:
    """Returns the reasons why TensorFlow decodes the stored file differently from PIL, or fails."""
    if image.format == 'BMP' and not _is_plain_bmp(image, encoded):
        return ['bmp_palette']
    if _is_animated(image):
        return ['animation']
    return []


def _is_animated(image: Image.Image) -> bool:
    """Whether a file has several pictures, or one that does not fill its canvas.

    TensorFlow 2.21 writes past its memory for such a WebP file, and decompresses all frames of a
    GIF file, to the size of the largest.
    """
    fills = all(tile[1] == (0, 0, *image.size) for tile in image.tile)
    return image.format in ('GIF', 'WEBP') and (image.is_animated or not fills)


def _is_plain_bmp(image: Image.Image, encoded: bytes) -> bool:
    """Whether pixels are stored as 8-bit colours or grey values, not packed."""
    header_size, bits, compression = *struct.unpack_from('<I', encoded, 14), 0, 1
    if header_size >= 40:
        bits, compression = struct.unpack_from('<HI', encoded, 28)
    return compression == 0 and (bits in (24, 32) or (bits == 8 and image.mode == 'L'))


def is_foreign_tiff(encoded: bytes) -> bool:
    """Whether it is a TIFF file that TensorFlow cannot decode: no plain one."""
    return plain_files.is_tiff(encoded) and not plain_files.is_plain(encoded)


def has_16_bits(encoded: bytes) -> bool:
    """Whether it is a PNG file with 16 bits a channel, or a TIFF file that may have more than 8."""
    if plain_files.is_plain(encoded):
        return encoded[plain_files.BYTES_PLACE] > 1
    if is_foreign_tiff(encoded):
        return True
    return encoded.startswith(b'\x89PNG') and encoded[24:25] == b'\x10'


def _as_8_bit(image: Image.Image) -> Image.Image:
    """Returns an image of 8-bit grey values or colours: of 16 bits, the upper 8."""
    if image.mode.startswith('I'):
        # PIL would clip the values at 255.
        return Image.fromarray((np.asarray(image).astype(np.uint32) >> 8).astype(np.uint8))
    return image.convert('L' if image.mode in ('1', 'L') else 'RGB')


def _encode_anew(
    image: Image.Image, encoded: bytes, orientation: int, changes: list[str]
) -> ImageFile:
    turn = _TURNS.get(orientation)
    if has_16_bits(encoded):
        channels = _channels_of_16_bits(image, encoded)
        if turn is not None:
            channels = [each.transpose(turn) for each in channels]
        return _of_16_bits(channels, changes)
    plain = _as_8_bit(image)
    if turn is not None:
        plain = plain.transpose(turn)
    file = io.BytesIO()
    kind = 'JPEG' if FORMATS[image.format] == 'jpeg' else 'PNG'
    # Only the pixels of the old file are used: its EXIF data would rotate the image again.
    plain.info.clear()
    plain.save(file, kind, quality=_JPEG_QUALITY, subsampling=0)
    return ImageFile(file.getvalue(), FORMATS[kind], plain.height, plain.width, tuple(changes))


def _channels_of_16_bits(image: Image.Image, encoded: bytes) -> list[Image.Image]:
    """Returns the channels of a PNG file, each a grey image of 16 bits."""
    if image.mode.startswith('I'):
        return [Image.fromarray(np.asarray(image).astype(np.uint16))]
    # PIL has no colours of 16 bits. Such files are rare, and TensorFlow takes seconds to load.
    import tensorflow as tf

    values = tf.io.decode_png(encoded, dtype=tf.uint16).numpy()
    return [Image.fromarray(np.ascontiguousarray(each)) for each in np.moveaxis(values, -1, 0)]


def _resized(channel: Image.Image, width: int, height: int) -> Image.Image:
    # PIL interpolates floats, and not integers of 16 bits.
    values = Image.fromarray(np.asarray(channel).astype(np.float32)).resize((width, height))
    return Image.fromarray(np.clip(np.rint(values), 0, 65535).astype(np.uint16))


def _of_16_bits(channels: list[Image.Image], changes: Sequence[str] = ()) -> ImageFile:
    """Returns the PNG file of channels of 16 bits."""
    file = io.BytesIO()
    if len(channels) == 1:
        channels[0].save(file, 'PNG')
    else:
        import tensorflow as tf

        values = np.stack([np.asarray(each) for each in channels], axis=-1)
        file.write(tf.io.encode_png(values).numpy())
    height, width = channels[0].height, channels[0].width
    return ImageFile(file.getvalue(), FORMATS['PNG'], height, width, tuple(changes))


def _undecodable(error: Exception | str) -> UnusableError:
    if isinstance(error, Image.UnidentifiedImageError):
        # PIL's own message shows an object of Python.
        error = f'no image file of the formats {", ".join(FORMATS)}'
    return UnusableError('bad_image', f'cannot be decoded: {error}')
