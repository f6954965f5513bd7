"""Outlines and run lengths of binary masks, in the formats of COCO JSON files and Label Studio."""

import itertools
from typing import Any, NamedTuple

import numpy as np

from object_detection.errors import UnusableError

# The bits of the lengths of runs that Label Studio itself writes.
_LENGTH_BITS = (3, 4, 8, 16)


class Outlines(NamedTuple):
    """The closed outlines of a mask along its pixel edges.

    Attributes:
      outer: int64 [n, 2] for each connected part, rows (x, y), corners in order, the last one
        joined to the first.
      holes: the same for each hole.
    """

    outer: list[np.ndarray]
    holes: list[np.ndarray]


def trace(mask: np.ndarray) -> Outlines:
    """Traces the connected parts of a mask; parts that touch only at a corner are separate.

    Corners lie between pixels, so (0, 0) is the outer corner of the first pixel and the area that
    the outlines enclose is exactly the number of pixels.

    Args:
      mask: bool [H, W].

    Returns:
      Outlines; both lists are empty for an empty mask.
    """
    next_corners = _directed_edges(mask)
    found = Outlines([], [])
    while next_corners:
        corners = np.array(_walk(next_corners), np.int64)
        is_turn = np.any(corners - np.roll(corners, 1, 0) != np.roll(corners, -1, 0) - corners, 1)
        corners = corners[is_turn]
        (found.outer if signed_area(corners) > 0 else found.holes).append(corners)
    return found


def encode_rle(mask: np.ndarray) -> dict[str, Any]:
    """Returns a mask bool [H, W] as COCO's uncompressed RLE: {'size': [H, W], 'counts': [...]}."""
    flat = mask.ravel(order='F')
    changes = np.flatnonzero(flat[1:] != flat[:-1]) + 1
    counts = np.diff(np.concatenate([[0], changes, [flat.size]])).tolist()
    # The first count is of zeros.
    if flat.size and flat[0]:
        counts.insert(0, 0)
    return {'size': list(mask.shape), 'counts': counts}


def unpack_rle(packed: bytes, count: int) -> np.ndarray:
    """Unpacks the run lengths of Label Studio, those of the package `@thi.ng/rle-pack`.

    All fields are numbers of some bits, the highest first: 32 for the count of words, 5 for the
    bits of a word - 1, four times 4 for the bits of a length - 1, by their size. Then follow
    blocks: 1 for a repeated word (0: words one by one), 2 for the size of the length, the length
    - 1, and the word or words.

    Args:
      packed: the bytes.
      count: number of words that are expected.

    Returns:
      uint8 [count].

    Raises:
      UnusableError: if the bytes end too early, or are of another number of words.
    """
    bits = _Bits(packed)
    stated, word = bits.number(32), bits.number(5) + 1
    if stated != count or word > 8:
        text = f'run lengths are of {stated} words of {word} bits; expected {count} of up to 8'
        raise UnusableError('bad_mask', text)
    sizes = [bits.number(4) + 1 for _ in range(4)]
    words = np.zeros(count, np.uint8)
    start = 0
    while start < count:
        is_run = bits.number(1)
        end = start + bits.number(sizes[bits.number(2)]) + 1
        if end > count:
            raise UnusableError('bad_mask', f'run lengths add up to more than {count} words')
        words[start:end] = bits.number(word) if is_run else bits.numbers(end - start, word)
        start = end
    return words


def pack_rle(words: np.ndarray) -> bytes:
    """Packs words, uint8 [n], as `unpack_rle` reads them: each block is one of repeated words."""
    words = words.astype(np.uint8)
    starts = np.concatenate([[0], np.flatnonzero(words[1:] != words[:-1]) + 1, [len(words)]])
    bits = [f'{len(words):032b}', f'{7:05b}', *(f'{size - 1:04b}' for size in _LENGTH_BITS)]
    longest = 1 << _LENGTH_BITS[-1]
    for start, end in itertools.pairwise(starts.tolist()):
        for place in range(start, end, longest):
            length = min(end - place, longest) - 1
            index = next(i for i, size in enumerate(_LENGTH_BITS) if length < 1 << size)
            bits.append(f'1{index:02b}{length:0{_LENGTH_BITS[index]}b}{words[start]:08b}')
    text = ''.join(bits)
    text += '0' * (-len(text) % 8)
    return int(text, 2).to_bytes(len(text) // 8)


class _Bits:
    """Reads numbers of some bits, the highest first, one after the other."""

    def __init__(self, content: bytes):
        self._content, self._place = content, 0

    def number(self, size: int) -> int:
        start, end = self._advance(size)
        part = int.from_bytes(self._content[start // 8 : -(-end // 8)])
        return part >> (-end % 8) & ((1 << size) - 1)

    def numbers(self, count: int, size: int) -> np.ndarray:
        start, end = self._advance(count * size)
        part = np.frombuffer(self._content[start // 8 : -(-end // 8)], np.uint8)
        bits = np.unpackbits(part)[start % 8 :][: count * size].reshape(count, size)
        return bits @ (1 << np.arange(size)[::-1])

    def _advance(self, size: int) -> tuple[int, int]:
        start, end = self._place, self._place + size
        if end > 8 * len(self._content):
            raise UnusableError('bad_mask', 'run lengths end too early')
        self._place = end
        return start, end


def _directed_edges(mask: np.ndarray) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """Returns corner (x, y) -> corners that follow it, the mask always to the right."""
    padded = np.pad(mask.astype(np.int8), 1)
    # Row y of `across` compares pixel rows y - 1 and y: 1 at a top edge, -1 at a bottom edge.
    across = padded[1:, 1:-1] - padded[:-1, 1:-1]
    along = padded[1:-1, 1:] - padded[1:-1, :-1]
    edges: dict[tuple[int, int], list[tuple[int, int]]] = {}

    def add(selected: np.ndarray, start: tuple[int, int], end: tuple[int, int]) -> None:
        for y, x in np.argwhere(selected).tolist():
            edges.setdefault((x + start[0], y + start[1]), []).append((x + end[0], y + end[1]))

    add(across == 1, (0, 0), (1, 0))
    add(across == -1, (1, 0), (0, 0))
    add(along == -1, (0, 0), (0, 1))
    add(along == 1, (0, 1), (0, 0))
    return edges


def _walk(edges: dict[tuple[int, int], list[tuple[int, int]]]) -> list[tuple[int, int]]:
    """Removes one closed outline from `edges` and returns its corners."""
    start = next(iter(edges))
    corners = [start]
    step = (0, 0)
    while True:
        x, y = corners[-1]
        # Where two pixels touch at a corner, turning right stays with the same pixel.
        right = (x - step[1], y + step[0])
        followers = edges[x, y]
        corner = right if right in followers else followers[0]
        followers.remove(corner)
        if not followers:
            del edges[x, y]
        if corner == start:
            return corners
        step = (corner[0] - x, corner[1] - y)
        corners.append(corner)


def signed_area(corners: np.ndarray) -> float:
    """Returns the area of a polygon, [n, 2]; its sign says the direction of the corners."""
    x, y = corners[:, 0], corners[:, 1]
    return float(np.sum(x * np.roll(y, -1) - np.roll(x, -1) * y)) / 2
