"""Tracks of "CVAT for video 1.1": an object in some frames of a video, the others in between.

    <track id="0" label="cat"><box frame="0" outside="0" keyframe="1" xtl="1" .../> ... </track>

A shape holds until the next one of its track, and moves evenly towards it; after one with
`outside="1"` the object is gone until the next. Flags are those of the shape before. CVAT does the
same, except for polygons that gain or lose corners: these stay as they are until the next one.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from lxml import etree

from object_detection.errors import UserError, expected

_FRAME = re.compile(r'frame_(\d{1,9})')
_NUMBERS = ('xtl', 'ytl', 'xbr', 'ybr', 'cx', 'cy', 'rx', 'ry')
_MAX_FRAME = 10**9


class Segment(NamedTuple):
    """A part of a track, from the frame of a shape to the one before the next.

    Attributes:
      start, end: its first frame, and the one after its last.
      track: position of the track in the file.
      shape: attributes of the shape, with its `kind`, `label` and `track`.
      following: those of the next shape; {} after the last.
    """

    start: int
    end: int
    track: int
    shape: dict[str, str]
    following: dict[str, str]


def is_video(root: etree._Element) -> bool:
    """Whether a file has tracks, and no images."""
    return root.find('image') is None and root.find('track/*') is not None


def segments(root: etree._Element, path: str) -> list[Segment]:
    """Returns the parts of all tracks in which the objects are seen, by their first frames.

    Raises:
      UserError: if the number of a frame is none, or tracks are of several tasks; it names `path`.
    """
    tasks = {track.get('task_id', '') for track in root.iterfind('track')}
    if len(tasks) > 1:
        raise UserError(
            f'{path}: expected tracks of one task, since frames of all have the same numbers. '
            f'Received: tasks {", ".join(sorted(tasks))}; export each of them.'
        )
    found = []
    for index, track in enumerate(root.iterfind('track')):
        common = {name: track.get(name, '') for name in ('label', 'group_id')}
        common |= {'track': track.get('id', '')}
        known = [
            (_frame_of(item, path), {'kind': str(item.tag), **item.attrib, **common})
            for item in track.iterchildren(etree.Element)
        ]
        known.sort(key=lambda each: each[0])
        for (start, shape), (end, following) in zip(
            known, [*known[1:], (_MAX_FRAME + 1, {})], strict=True
        ):
            if shape.get('outside') != '1' and end > start:
                found.append(Segment(start, end, index, shape, following))
    return sorted(found, key=lambda each: each.start)


def numbered(names: Sequence[str]) -> dict[int, str]:
    """Returns the number of a frame -> its image file.

    CVAT calls frames of videos frame_000000, and so on; other images are counted in their order.
    """
    matches = [(_FRAME.search(name.rpartition('/')[2]), name) for name in names]
    found = {int(match[1]): name for match, name in matches if match}
    return found or dict(enumerate(sorted(names)))


def at_frames(
    parts: Sequence[Segment], frames: Sequence[int]
) -> Iterator[tuple[int, list[dict[str, str]]]]:
    """Yields each frame with the attributes of the shapes in it.

    Args:
      parts: those of `segments`.
      frames: sorted numbers of frames.
    """
    active: list[Segment] = []
    position = 0
    for frame in frames:
        while position < len(parts) and parts[position].start <= frame:
            active.append(parts[position])
            position += 1
        active = [part for part in active if part.end > frame]
        yield frame, [_at(part, frame) for part in sorted(active, key=lambda part: part.track)]


def _at(part: Segment, frame: int) -> dict[str, str]:
    """Returns the shape of a part of a track in a frame."""
    shape, following = part.shape, part.following
    if frame == part.start or shape['kind'] != following.get('kind'):
        return shape
    share = (frame - part.start) / (part.end - part.start)
    moved = {
        key: _between(shape[key], following[key], share)
        for key in _NUMBERS
        if key in shape and key in following
    }
    turns = [_number(each.get('rotation', '0')) for each in (shape, following)]
    if None not in turns and any(turns):
        # The shorter way round.
        turn = (turns[1] - turns[0] + 180) % 360 - 180
        moved['rotation'] = repr(turns[0] + share * turn)
    corners = [each.get('points', '').replace(';', ',').split(',') for each in (shape, following)]
    if len(corners[0]) == len(corners[1]) > 1:
        values = [_between(*pair, share) for pair in zip(*corners, strict=True)]
        pairs = zip(values[::2], values[1::2], strict=False)
        moved['points'] = ';'.join(','.join(pair) for pair in pairs)
    return {**shape, **moved}


def _between(first: str, second: str, share: float) -> str:
    """Returns the number at a share of the way; the first text if one of both is no number."""
    start, end = _number(first), _number(second)
    return first if start is None or end is None else repr(start + share * (end - start))


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _frame_of(item: Mapping[str, str] | etree._Element, path: str) -> int:
    text = item.get('frame', '')
    if not text.isdecimal() or len(text) > 10 or int(text) > _MAX_FRAME:
        raise expected(f'{path}: frame of a shape', 'a whole number', repr(text[:100]))
    return int(text)
