"""Random changes of bytes and texts, for fuzz.py."""

import re
import struct
import zlib
from collections.abc import Sequence

import numpy as np

INTEGERS = (0, 1, -1, 7, 127, 2**15, 2**31 - 1, -(2**31), 2**32, 10**12, 2**63 - 1, -(2**63))
FLOATS = (float('nan'), float('inf'), -float('inf'), 0.0, -0.5, 1.0, 1e-30, 2.0, 1e30, -1e30)
_NUMBER = re.compile(rb'-?\d+\.?\d*')
_NUMBERS = (b'nan', b'inf', b'-1', b'0', b'1e400', b'99999999999999999999', b'1.5', b'', b'"x"')
_PIECES = (
    b'\x00',
    b'\xff\xfe',
    b'\r',
    b'\n\n',
    b',' * 50,
    b'"',
    b'{' * 3000,
    b'[' * 100_000,
    b'<a>' * 3000,
    b'&x;',
    b'%s%n',
    b'../../../etc/passwd',
    'é\u202e'.encode(),
    b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]>',
    b'<!DOCTYPE a [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>',
)


def mutate(content: bytes, generator: np.random.Generator, *, keeps: float = 0.0) -> bytes:
    """Changes bytes: flips bits, cuts, inserts, repeats or moves a part.

    Args:
      content: what is changed.
      generator: the source of chance.
      keeps: share of the content, at its beginning, that is not cut off.
    """
    data = bytearray(content)
    if not data:
        return generator.bytes(5)
    kind = generator.integers(5)
    first, second = sorted(int(each) for each in generator.integers(0, len(data) + 1, 2))
    second = min(second, first + 1000)
    if kind == 0:
        for place in generator.integers(0, len(data), generator.integers(1, 9)):
            data[place] ^= 1 << generator.integers(8)
    elif kind == 1:
        del data[max(first, int(keeps * len(data))) :]
    elif kind == 2:
        del data[first:second]
    elif kind == 3:
        data[first:first] = data[first:second]
    else:
        data[first:second] = generator.bytes(second - first)
    return bytes(data)


def mutate_text(content: bytes, generator: np.random.Generator) -> bytes:
    """Changes a text: numbers, pieces that mean something to a parser, lines, or bytes."""
    kind = generator.integers(5)
    numbers = list(_NUMBER.finditer(content))
    if kind == 0 and numbers:
        found = numbers[generator.integers(len(numbers))]
        value = _NUMBERS[generator.integers(len(_NUMBERS))]
        return content[: found.start()] + value + content[found.end() :]
    if kind == 1:
        place = int(generator.integers(len(content) + 1))
        piece = _PIECES[generator.integers(len(_PIECES))]
        return content[:place] + piece + content[place:]
    if kind == 2:
        lines = content.splitlines(keepends=True)
        if lines:
            index = generator.integers(len(lines))
            lines[index : index + 1] = [lines[index]] * int(generator.integers(0, 3))
        return b''.join(lines)
    if kind == 3:
        words = re.split(rb'(\W+)', content)
        first, second = generator.integers(len(words), size=2)
        words[first] = words[second]
        return b''.join(words)
    return mutate(content, generator)


def bomb(sides: Sequence[int], generator: np.random.Generator) -> bytes:
    """Makes a PNG, GIF or BMP file whose header says that it has these sides."""
    width, height = sides
    kind = generator.integers(3)
    if kind == 0:
        header = struct.pack('>IIBBBBB', width, height, 8, 0, 0, 0, 0)
        pixels = zlib.compress(b'\0' * 100_000)
        return b'\x89PNG\r\n\x1a\n' + b''.join(
            struct.pack('>I', len(part)) + name + part + struct.pack('>I', zlib.crc32(name + part))
            for name, part in ((b'IHDR', header), (b'IDAT', pixels), (b'IEND', b''))
        )
    if kind == 1:
        size = struct.pack('<HH', width % 2**16, height % 2**16)
        frame = b'\x2c\0\0\0\0' + size + b'\0\x08\x02\x44\x01\0\x3b'
        return b'GIF89a' + size + b'\x80\0\0' + b'\0\0\0\xff\xff\xff' + frame
    pixels = b'\0' * 64
    header = struct.pack('<IiiHHIIiiII', 40, width, height, 1, 24, 0, 0, 0, 0, 0, 0)
    return b'BM' + struct.pack('<IHHI', 54 + len(pixels), 0, 0, 54) + header + pixels
