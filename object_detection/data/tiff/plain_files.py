"""Plain TIFF files, which records hold: not compressed, of uint8, uint16 or float32.

The pixels are at a fixed place, so that TensorFlow decodes them in any graph without a package
(`image_decoding`), and every viewer opens the files. Imports no TensorFlow.
"""

import struct

import numpy as np

from object_detection.errors import UnusableError

# First bytes: little or big endian, of up to 4 GB or BigTIFF.
MAGIC = (b'II*\0', b'MM\0*', b'II+\0', b'MM\0+')
# The header of a plain file: the first directory is after the pixels. Then a mark, height, width,
# channels and bytes of a value.
_HEADER = struct.Struct('<4sI4sIIHH8x')
HEADER_SIZE, MARK = _HEADER.size, b'tfod'
MARK_PLACE, HEIGHT_PLACE, WIDTH_PLACE, CHANNELS_PLACE, BYTES_PLACE = 8, 12, 16, 20, 22
_DTYPES = {1: np.uint8, 2: np.uint16, 4: np.float32}


def is_tiff(encoded: bytes) -> bool:
    """Whether a file begins as a TIFF file."""
    return encoded[:4] in MAGIC


def is_plain(encoded: bytes) -> bool:
    """Whether it is a file of `encode`, by its beginning."""
    return encoded[:4] == MAGIC[0] and encoded[MARK_PLACE:HEIGHT_PLACE] == MARK


def is_of_floats(encoded: bytes) -> bool:
    """Whether it is a plain file of floats."""
    return is_plain(encoded) and encoded[BYTES_PLACE] == 4


def encode(values: np.ndarray) -> bytes:
    """Returns the plain file of values uint8, uint16 or float32 [H, W, C]."""
    height, width, channels = values.shape
    pixels = np.ascontiguousarray(values, values.dtype.newbyteorder('<')).tobytes()
    num_bytes, start = values.itemsize, HEADER_SIZE + len(pixels) + len(pixels) % 2
    is_rgb = channels in (3, 4) and num_bytes < 4
    # tag -> its values; 16 bits each, but for the sizes.
    fields: dict[int, list[int]] = {
        256: [width],
        257: [height],
        258: [8 * num_bytes] * channels,
        259: [1],
        262: [2 if is_rgb else 1],
        273: [HEADER_SIZE],
        277: [channels],
        278: [height],
        279: [len(pixels)],
        338: [0] * (channels - (3 if is_rgb else 1)),
        339: [3 if num_bytes == 4 else 1] * channels,
    }
    fields = {tag: numbers for tag, numbers in fields.items() if numbers}
    directory, after = b'', b''
    for tag, numbers in fields.items():
        is_long = tag in (256, 257, 273, 278, 279)
        content = struct.pack(f'<{len(numbers)}{"I" if is_long else "H"}', *numbers)
        if len(content) > 4:
            place = start + 2 + 12 * len(fields) + 4 + len(after)
            after += content + b'\0' * (len(content) % 4)
            content = struct.pack('<I', place)
        directory += struct.pack('<HHI4s', tag, 4 if is_long else 3, len(numbers), content)
    header = _HEADER.pack(MAGIC[0], start, MARK, height, width, channels, num_bytes)
    end = struct.pack('<H', len(fields)) + directory + bytes(4) + after
    return b''.join((header, pixels, b'\0' * (len(pixels) % 2), end))


def values(encoded: bytes) -> np.ndarray:
    """Returns the values [H, W, C] of a plain file, not copied."""
    if len(encoded) >= HEADER_SIZE:
        *_, height, width, channels, num_bytes = _HEADER.unpack_from(encoded)
        count = height * width * channels
        if num_bytes in _DTYPES and 0 < count * num_bytes <= len(encoded) - HEADER_SIZE:
            dtype = np.dtype(_DTYPES[num_bytes]).newbyteorder('<')
            found = np.frombuffer(encoded, dtype, count, HEADER_SIZE)
            return found.reshape(height, width, channels)
    raise UnusableError('bad_image', 'cannot be decoded: it is a TIFF file that is cut off')
