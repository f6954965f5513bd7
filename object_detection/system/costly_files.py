"""Image files that take hours to decode, although they are small.

Imports no TensorFlow.
"""

import re

from object_detection.errors import UnusableError

# Scans of a JPEG file, at most: each may change all pixels, and encoders write about ten.
MAX_SCANS = 100
# Blocks of a GIF file that are not full, up to the end of the first frame.
MAX_GIF_BLOCKS = 2**15
# Bytes of the comments of a GIF file: PIL copies all of them for each block.
_MAX_GIF_COMMENTS = 2**16
# The beginning of a scan: its marker, its length, and its number of components.
_SCAN = re.compile(rb'\xff\xda\x00(?:\x08\x01|\x0a\x02|\x0c\x03|\x0e\x04)')
_GIF_EXTENSION, _GIF_FRAME, _GIF_COMMENT, _GIF_END = b'!,\xfe;'


def check(encoded: bytes) -> None:
    """Checks that an image file has no more scans or blocks than are decoded in seconds.

    Raises:
      UnusableError: if it has more.
    """
    if encoded.startswith(b'\xff\xd8\xff'):
        num_scans = sum(1 for _ in _SCAN.finditer(encoded))
        if num_scans > MAX_SCANS:
            raise UnusableError(
                'bad_image', f'has {num_scans} scans; expected a JPEG file of at most {MAX_SCANS}'
            )
    elif encoded.startswith(b'GIF8'):
        _check_gif(encoded)


def _check_gif(encoded: bytes) -> None:
    def colors(flags: int) -> int:
        """Returns the bytes of a palette."""
        return 3 * (2 << (flags & 7)) if flags & 0x80 else 0

    # Zeros, so that parts of a file that is cut off are there.
    contents, num_comments, num_blocks, has_frame = encoded + bytes(16), 0, 0, False
    place = 13 + colors(contents[10])
    while place < len(encoded) and (kind := contents[place]) != _GIF_END:
        is_comment = kind == _GIF_EXTENSION and contents[place + 1] == _GIF_COMMENT
        if kind == _GIF_EXTENSION:
            place += 2
        elif kind == _GIF_FRAME:
            place += 11 + colors(contents[place + 9])
        else:  # Decoders skip what is between blocks.
            place += 1
            continue
        start = place
        while place < len(encoded) and (size := contents[place]):
            place += 1 + size
            num_blocks += size < 255 and not has_frame
        num_blocks += not has_frame
        place += 1
        num_comments += is_comment * (place - start)
        has_frame |= kind == _GIF_FRAME
        if num_comments > _MAX_GIF_COMMENTS or num_blocks > MAX_GIF_BLOCKS:
            raise UnusableError(
                'bad_image',
                f'has comments of more than {_MAX_GIF_COMMENTS} bytes, or a first frame of more '
                f'than {MAX_GIF_BLOCKS} blocks that are not full',
            )
