"""TIFF and GeoTIFF files of any values and number of channels, read by rasterio (GDAL).

GDAL decodes all compressions and layouts, reads parts of a file, and is fuzzed continuously. Here
it opens TIFF files alone, without the files beside them. Sizes are compared with limits before
memory is taken.

Imports no TensorFlow.
"""

import contextlib
import io
import os
import re
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from object_detection.data.tiff import plain_files
from object_detection.errors import UnusableError, UserError, expected
from object_detection.resizers.value_range import ValueRange
from object_detection.system import extras

# Bytes of an image's values, at most: those of a record.
_MAX_BYTES = 2**31 - 2**20
# Bytes of a tile or strip of an image that is read in parts; of the tiles that GDAL remembers, and
# of the strips, of which parts side by side need the same ones.
_MAX_BLOCK, _CACHE, _MAX_CACHE = 2**28, 2**26, 2**28
# Pixels of an image that is read in parts, at most.
_MAX_PARTED_PIXELS = 2**35
_ORIENTATION = 0x0112
# A file in a message of GDAL.
_FILE_NAME = re.compile("'[^']*'")
_TURNS = {
    2: lambda values: values[:, ::-1],
    3: lambda values: values[::-1, ::-1],
    4: lambda values: values[::-1],
    5: lambda values: values.swapaxes(0, 1),
    6: lambda values: values.swapaxes(0, 1)[:, ::-1],
    7: lambda values: values[::-1, ::-1].swapaxes(0, 1),
    8: lambda values: values.swapaxes(0, 1)[::-1],
}
# Reasons in `ImageFile.changes`: any other TIFF file than a plain one; one with further pages; one
# whose values float32 has only roughly.
CHANGED, FURTHER_PAGES, ROUNDED = 'tiff', 'tiff_further_pages', 'tiff_values_rounded'

# The bytes of a file, or its path.
File = bytes | str | os.PathLike


class Picture(NamedTuple):
    """A page of a file.

    Attributes:
      values: uint8, uint16 or float32 [H, W, C]; NaN, of pixels without data, is minus infinity.
      changes: reasons, see above; () for a plain file.
    """

    values: np.ndarray
    changes: tuple[str, ...]


def size(encoded: bytes) -> tuple[int, int]:
    """Returns (height, width) of the stored pixels, from the header.

    Raises:
      UnusableError: if it cannot be read.
    """
    if plain_files.is_plain(encoded):
        return plain_files.values(encoded).shape[:2]
    with _opened(encoded) as file:
        return file.height, file.width


def read(encoded: bytes, max_pixels: int, *, page: int = 0, colors: bool = True) -> Picture:
    """Returns a page; those of lower resolution and of masks do not count as pages.

    Args:
      encoded: the bytes of a file.
      max_pixels: maximum number of pixels.
      page: number of the page, from 0.
      colors: whether a palette is applied; else the values are its indices.

    Raises:
      UnusableError: if it cannot be read or is too large, or the package is not installed.
    """
    if plain_files.is_plain(encoded):
        values = plain_files.values(encoded)
        _check_pixels(*values.shape[:2], max_pixels)
        return Picture(values, ())
    with _opened(encoded, page) as file:
        whole = file.height * file.width * _bytes_of_pixel(file)
        _check_sizes(file, max_pixels, max(_MAX_BLOCK, whole))
        values, is_rounded = _values(file, colors=colors)
        pages = [FURTHER_PAGES] * (_num_pages(file) > 1)
    return Picture(values, (CHANGED, *pages, *[ROUNDED] * is_rounded))


def num_pages(path: File) -> int:
    """Returns the number of pages of a file.

    Raises:
      UnusableError: if it cannot be read.
    """
    with _opened(path) as file:
        return _num_pages(file)


def orientation(file: File) -> int:
    """Returns the number 1 to 8 that EXIF has for how an image is turned."""
    # PIL raises many kinds of errors for a broken directory, and knows no BigTIFF.
    with contextlib.suppress(Exception), warnings.catch_warnings(action='ignore'):
        exif = Image.Exif()
        with io.BytesIO(file) if isinstance(file, bytes) else open(file, 'rb') as opened:
            exif.load_from_fp(opened)
            return int(exif.get(_ORIENTATION, 1))
    return 1


def upright(values: np.ndarray, turn: int) -> np.ndarray:
    """Returns the image [H, W, C] that the orientation `turn` makes of the stored pixels."""
    return _TURNS[turn](values) if turn in _TURNS else values


def to_channels(values: np.ndarray, count: int, value_range: ValueRange | None) -> np.ndarray:
    """Returns the first channels [H, W, count], or the only one repeated, as models see them.

    Returns:
      uint8, the upper 8 bits of 16; with `value_range` the values, float32.

    Raises:
      UserError: if there are too few channels, or values of floats and no range.
    """
    channels = values.shape[-1]
    if 1 < channels < count:
        raise expected('channels', f'one or at least {count}', channels)
    values = values[..., :count] if channels > 1 else np.repeat(values, count, axis=-1)
    if value_range is not None:
        return value_range.finite(values.astype(np.float32))
    if values.dtype == np.float32:
        raise UserError(
            'expected a model with image_resizer.value_range for values that are no integers of 8 '
            'or 16 bits.'
        )
    return values if values.dtype == np.uint8 else (values >> 8).astype(np.uint8)


class LargeImage:
    """A page of a file from which parts are read: `image[top:bottom, left:right]`.

    It has the `shape` (H, W, C) and the values of the array that it stands for, see `to_channels`.
    The file stays open while the object exists; one thread at a time may read it.

    Args:
      path: the file.
      value_range, channels: those of the model.
      page: number of the page, from 0.

    Raises:
      UserError: if it cannot be read in parts.
    """

    def __init__(
        self,
        path: str | os.PathLike,
        value_range: ValueRange | None = None,
        channels: int = 3,
        page: int = 0,
    ):
        self._path, self.value_range = os.fspath(path), value_range
        with _as_user_error(self._path), _gdal() as rasterio:
            self._file = file = _open(rasterio, path, page)
            _check_sizes(file, _MAX_PARTED_PIXELS, _MAX_BLOCK)
            if orientation(path) in _TURNS:
                text = 'is turned by its orientation, and too large for that'
                raise UnusableError('bad_image', text)
        self.shape = (file.height, file.width, channels)

    @classmethod
    def of(
        cls,
        path: str | os.PathLike,
        held_pixels: int,
        value_range: ValueRange | None = None,
        channels: int = 3,
        page: int = 0,
    ) -> 'LargeImage | None':
        """Returns a page of more than `held_pixels`; None for a smaller one."""
        with _as_user_error(os.fspath(path)), _opened(path, page) as file:
            if file.height * file.width <= held_pixels:
                return None
        return cls(path, value_range, channels, page)

    def __getitem__(self, place: tuple[slice, slice]) -> np.ndarray:
        rows, columns = (each.indices(side) for each, side in zip(place, self.shape, strict=False))
        window = ((rows[0], rows[1]), (columns[0], columns[1]))
        return self._read(self._strips(rows[1] - rows[0]), window=window)

    def reduced(self, longest_side: int) -> np.ndarray:
        """Returns the whole image, its longest side reduced to a number of pixels, by averages."""
        scale = min(1.0, longest_side / max(self.shape[:2]))
        return self._read(shape=[max(1, round(side * scale)) for side in self.shape[:2]])

    def _strips(self, height: int) -> int:
        """Returns the bytes of the strips that rows of the image meet; 0 for a file in tiles."""
        block, width = self._file.block_shapes[0]
        met = (height + 2 * block) * self._file.width * _bytes_of_pixel(self._file)
        # GDAL counts what it notes of each, too.
        return met * 5 // 4 if width == self._file.width else 0

    def _read(self, remembered: int = 0, **part: Any) -> np.ndarray:
        cache = min(max(remembered, _CACHE), _MAX_CACHE)
        with _as_user_error(self._path), _gdal(cache):
            channels = self.shape[-1]
            values, _ = _values(self._file, channels=channels, **part)
            return to_channels(values, channels, self.value_range)


@contextlib.contextmanager
def _as_user_error(path: str) -> Iterator[None]:
    try:
        yield
    except (UnusableError, UserError) as error:
        raise UserError(f'{path}: {str(error).removesuffix(".")}.') from error


@contextlib.contextmanager
def _gdal(cache: int = _CACHE) -> Iterator[Any]:
    """Yields the module rasterio, with bytes to remember; errors of it are `UnusableError`s."""
    try:
        extras.check_packages('it is a TIFF file', ['rasterio'], 'tiff')
    except UserError as error:
        raise UnusableError('bad_image', f'cannot be decoded: {error}'.removesuffix('.')) from None
    import rasterio

    warnings.filterwarnings('ignore', category=rasterio.errors.NotGeoreferencedWarning)
    # No files beside it are looked for.
    options = {'GDAL_DISABLE_READDIR_ON_OPEN': 'EMPTY_DIR', 'GDAL_PAM_ENABLED': False}
    try:
        with rasterio.Env(GDAL_CACHEMAX=cache, **options):
            yield rasterio
    except rasterio.errors.RasterioError as error:
        # Its message begins with the name of the file, which is a random one in memory.
        reason = _FILE_NAME.sub('', str(error).rpartition(':')[2]).strip('. ')
        raise UnusableError('bad_image', f'cannot be decoded as TIFF: {reason}') from error


@contextlib.contextmanager
def _opened(file: File, page: int = 0) -> Iterator[Any]:
    """Opens a page as rasterio's dataset; errors in its use are `UnusableError`s."""
    with _gdal() as rasterio, contextlib.ExitStack() as stack:
        if isinstance(file, bytes):
            file = stack.enter_context(rasterio.MemoryFile(file)).name
        yield stack.enter_context(_open(rasterio, file, page))


def _open(rasterio: Any, path: str | os.PathLike, page: int) -> Any:
    path = os.path.abspath(path)
    return rasterio.open(f'GTIFF_DIR:{page + 1}:{path}' if page else path, driver='GTiff')


def _num_pages(file: Any) -> int:
    return max(1, len(file.subdatasets))


def _check_pixels(height: int, width: int, max_pixels: int) -> None:
    if height * width > max_pixels:
        raise UnusableError(
            'bad_image',
            f'is {height} pixels high and {width} wide; expected at most {max_pixels} pixels',
        )


def _check_sizes(file: Any, max_pixels: int, max_block: int) -> None:
    """Checks the pixels of a page, and the bytes of the tiles or strips that GDAL allocates."""
    _check_pixels(file.height, file.width, max_pixels)
    height, width = file.block_shapes[0]
    block = height * width * _bytes_of_pixel(file)
    if block > max_block:
        raise UnusableError(
            'bad_image',
            f'is stored in parts of {block} bytes; expected tiles or strips of at most '
            f'{max_block}, as gdal_translate -co TILED=YES writes them',
        )


def _bytes_of_pixel(file: Any) -> int:
    return sum(np.dtype(each).itemsize for each in file.dtypes)


def _values(
    file: Any,
    *,
    window: Any = None,
    shape: list[int] | None = None,
    channels: int | None = None,
    colors: bool = True,
) -> tuple[np.ndarray, bool]:
    """Returns values [H, W, C] of a page or a part of it, and whether some were rounded.

    Args:
      file: the dataset.
      window: rows and columns; None is all.
      shape: (height, width) to which it is reduced by averages; None reads pixels.
      channels: the number of channels that are read, if there are more.
      colors: see `read`.
    """
    from rasterio.enums import ColorInterp, Resampling

    kinds = {np.dtype(each) for each in file.dtypes}
    if any(kind.kind not in 'uif' for kind in kinds):
        raise UnusableError('bad_image', f'has values of {", ".join(map(str, kinds))}')
    height, width = shape or (file.height, file.width)
    if window is not None:
        height, width = (end - start for start, end in window)
    count = min(file.count, channels or file.count)
    palette = file.count == 1 and file.colorinterp[0] == ColorInterp.palette and colors
    if height * width * max(count * 4, _bytes_of_pixel(file) * count // file.count) > _MAX_BYTES:
        raise UnusableError('bad_image', f'has {count} channels, whose values are too many')
    how = Resampling.average if shape and not palette else Resampling.nearest
    read = file.read(
        list(range(1, count + 1)),
        window=window,
        out_shape=None if shape is None else (count, *shape),
        resampling=how,
    )
    values = np.moveaxis(read, 0, -1)
    if palette:
        return _colored(values[..., 0], file.colormap(1)), False
    if values.dtype in (np.uint8, np.uint16):
        return np.ascontiguousarray(values), False
    exact = values.astype(np.float32)
    is_rounded = values.dtype != np.float32 and not np.array_equal(exact, values, equal_nan=True)
    return np.where(np.isnan(exact), np.float32(-np.inf), exact), is_rounded


def _colored(indices: np.ndarray, palette: dict[int, tuple[int, ...]]) -> np.ndarray:
    """Returns the colours [H, W, 3] of a palette, or grey values [H, W, 1] if it has no others."""
    table = np.zeros((max(palette) + 1, 3), np.uint8)
    for index, color in palette.items():
        table[index] = color[:3]
    if (table == table[:, :1]).all():
        table = table[:, :1]
    return table[np.minimum(indices, len(table) - 1)]
