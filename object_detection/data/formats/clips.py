"""Clips of videos: a frame of each of some consecutive seconds, written as a tf.SequenceExample."""

from collections.abc import Iterable, Iterator
from typing import Any

from object_detection.data.formats.source import ImageEntry, option
from object_detection.errors import UserError


def length_option() -> Any:
    """Returns the option `seconds_per_sequence` of a source."""
    return option(10, 'Length of a clip in seconds.')


def hop_option() -> Any:
    """Returns the option `hop_between_sequences` of a source."""
    return option(10, 'Seconds between the beginnings of two clips.')


def check(**options: int) -> None:
    """Raises a UserError that names the first of some options that is not at least 1."""
    for name, value in options.items():
        if value < 1:
            raise UserError(f'{name} must be at least 1. Received: {value}.')


def entries(
    dataset: str, video: str, frames: Iterable[ImageEntry], start: int, length: int, hop: int
) -> Iterator[ImageEntry]:
    """Yields the clips of a video, see `source.clip_of`, that have a frame; clips may overlap.

    Args:
      dataset: name of the data set.
      video: name of the video.
      frames: at most one of each second, in the order of time, as `source.clip_of` needs them.
      start: second at which the first clip begins, unless it has no frame.
      length: of a clip, in seconds.
      hop: seconds between the beginnings of two clips.
    """
    clips: dict[int, list[ImageEntry]] = {}

    def clip(first: int) -> ImageEntry:
        image = {
            'id': f'{video}_{first:04d}',
            'file_name': video,
            **{'dataset': dataset, 'media_id': video, 'start': first, 'end': first + length},
            'frames': [tuple(frame) for frame in clips.pop(first)],
        }
        return ImageEntry(image, [])

    for frame in frames:
        second = frame.image['second']
        yield from map(clip, [first for first in clips if first + length <= second])
        last = start + (second - start) // hop * hop
        for first in reversed(range(last, second - length, -hop)):
            if first >= start:
                clips.setdefault(first, []).append(frame)
    yield from map(clip, [*clips])
