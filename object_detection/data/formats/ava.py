"""AVA: CSV files of actions of persons in the frames of videos, one frame a second.

    VIDEO,SECOND,X1,Y1,X2,Y2,ACTION[,PERSON]      commas or tabs; coordinates are normalized

A box with several actions has a line for each. Frames are image files, named by the video and the
second. (https://research.google.com/ava/)
"""

import collections
import dataclasses
import datetime
import functools
import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from object_detection.core import tf_example_keys as keys
from object_detection.data import file_access
from object_detection.data.annotated_image import (
    NOT_IN_LABEL_MAP,
    AnnotatedObject,
    ClassLabel,
    ImageAnnotations,
    Provided,
)
from object_detection.data.file_access import Files
from object_detection.data.formats import clips, csv_files, shapes
from object_detection.data.formats import source as formats_source
from object_detection.data.formats.source import (
    DataSet,
    Found,
    ImageEntry,
    Source,
    SourceReader,
    option,
)
from object_detection.data.image_files import ImageFile
from object_detection.data.label_map import LabelMap
from object_detection.errors import UnusableError, UserError, expected

_SIDES = ('x1', 'y1', 'x2', 'y2')
_COLUMNS = (7, 8)
_MAX_SECOND = 10**7
# Frames of the usual extraction at 30 a second begin at this second and with number 1.
_FIRST_SECOND, _FRAME_RATE = 900, 30
# Where frames are looked for.
_FRAMES = (
    'frames/{video}/{video}_{second:06d}.jpg',
    'frames/{video}/{video}_{frame:06d}.jpg',
    'frames/{video}/{second:06d}.jpg',
    'frames/{video}_{second:06d}.jpg',
)

# Video -> second -> its rows, each with the line number first.
Videos = dict[str, dict[int, list[list[Any]]]]


@dataclasses.dataclass(frozen=True)
class AvaSource(Source):
    """A data set of AVA.

    A clip has consecutive seconds; clips of all videos begin at the first second of the file. The
    label map names the actions by their ids.

    Attributes:
      annotations_file: CSV file.
      frames: pattern of the paths of frames.
      excluded_file: CSV file of videos and seconds that are not annotated; '' excludes none.
      seconds_per_sequence: length of a clip.
      hop_between_sequences: seconds between the beginnings of two clips.
      examples: whether each frame is a tf.Example, instead of a clip a tf.SequenceExample.
    """

    annotations_file: str = option('', 'CSV file of actions.', flag='annotations', required=True)
    frames: str = option(
        '',
        'Paths of the frames, such as frames/{video}/{video}_{second:06d}.jpg; {frame} is their '
        'number at 30 a second from second 900 on.',
        required=True,
    )
    excluded_file: str = option(
        '', 'CSV file of videos and seconds that are not annotated.', flag='excluded'
    )
    seconds_per_sequence: int = clips.length_option()
    hop_between_sequences: int = clips.hop_option()
    examples: bool = option(False, 'Write a tf.Example for each frame, for context features.')

    def open(self, files: Files, label_map: LabelMap | None) -> DataSet:
        length, hop = self.seconds_per_sequence, self.hop_between_sequences
        clips.check(seconds_per_sequence=length, hop_between_sequences=hop)
        _check_pattern(self.frames)
        num_entries = sum(1 for _ in self.entries(files))
        if not num_entries:
            raise UserError(f'{self.annotations_file}: expected lines of actions. Received: none.')
        if label_map:
            names = {number: name for name, number in label_map.name_to_id.items() if number > 0}
            labels = {number: ClassLabel(number, name) for number, name in names.items()}
        else:
            rows = (row for video in self._videos(files).values() for row in video.values())
            found = {_whole(row[5]) for of_second in rows for row in of_second}
            labels = {
                number: ClassLabel(number, f'action {number}')
                for number in sorted(number for number in found if number)
            }
        unlisted = self._unlisted(files)
        return DataSet(AvaReader(self, labels), num_entries, labels, unlisted=unlisted)

    def entries(self, files: Files) -> Iterator[ImageEntry]:
        videos = self._videos(files)
        excluded = self._excluded(files)
        start = min((min(video) for video in videos.values()), default=0)
        for name, seconds in videos.items():
            frame = functools.partial(self._frame, name, seconds, excluded)
            if self.examples:
                frames = [frame(second) for second in sorted(seconds)]
                yield from _examples([each for each in frames if each.annotations])
                continue
            frames = map(frame, range(min(seconds), max(seconds) + 1))
            length, hop = self.seconds_per_sequence, self.hop_between_sequences
            for clip in clips.entries('AVA', name, frames, start, length, hop):
                if any(each.annotations for each in formats_source.frames_of(clip)):
                    yield clip

    @classmethod
    def detect(cls, folder: str, files: Files) -> list[Found]:
        found = []
        for _, name, path in formats_source.listed(folder, ('', 'annotations'), '.csv', files):
            fields = csv_files.header_of(path, files)
            if len(fields) not in _COLUMNS or not fields[1].isdecimal():
                continue
            second = int(fields[1][:9])
            for pattern in (file_access.join(folder, each) for each in _FRAMES):
                if files.exists(_frame_path(pattern, fields[0], second)):
                    found.append(Found(os.path.splitext(name)[0], cls(path, pattern), name))
                    break
        return [found[0]._replace(name='')] if len(found) == 1 else found

    def _unlisted(self, files: Files) -> list[str]:
        """Returns the images in the folder of all frames that no entry names."""
        folder = os.path.dirname(self.frames.partition('{')[0])
        frames = (
            frame.image['file_name']
            for entry in self.entries(files)
            for frame in formats_source.frames_of(entry)
        )
        return file_access.unlisted(folder, frames, files)

    def _frame(
        self,
        video: str,
        seconds: Mapping[int, list[list[Any]]],
        excluded: set[tuple[str, int]],
        second: int,
    ) -> ImageEntry:
        is_excluded = (video, second) in excluded
        image = {
            'id': f'{video}_{second:04d}',
            'file_name': _frame_path(self.frames, video, second),
            'video': video,
            'second': second,
            'is_annotated': int(not is_excluded),
        }
        return ImageEntry(image, [] if is_excluded else seconds.get(second, []))

    def _videos(self, files: Files) -> Videos:
        path = self.annotations_file
        videos: Videos = collections.defaultdict(dict)
        for line, fields in _rows(path, files):
            if len(fields) not in _COLUMNS:
                what = 'VIDEO,SECOND,X1,Y1,X2,Y2,ACTION or one more field, PERSON'
                raise expected(f'{path}, line {line}', what, f'{len(fields)} fields')
            video = fields[0]
            if '/' in video or '\\' in video or video in ('', '.', '..'):
                raise expected(f'{path}, line {line}', 'a name as id of a video', repr(video[:100]))
            rows = videos[video].setdefault(_second(fields[1], path, line), [])
            # A second without persons has empty fields.
            if any(fields[2:]):
                rows.append([line, *fields[2:]])
        return videos

    def _excluded(self, files: Files) -> set[tuple[str, int]]:
        path = self.excluded_file
        return {
            (fields[0], _second(fields[1] if len(fields) == 2 else '', path, line))
            for line, fields in (_rows(path, files) if path else ())
        }


@dataclasses.dataclass(frozen=True)
class AvaReader(SourceReader[AvaSource]):
    """Reads images, see `SourceReader`; labels by the id of an action."""

    @property
    def provided(self) -> Provided:
        examples = self.source.examples
        return Provided(details={keys.TRACK_ID: int} if examples else {}, clips=not examples)

    def annotations(self, entry: ImageEntry, files: Files) -> ImageAnnotations:
        del files
        image = entry.image
        return ImageAnnotations(
            file_name=os.path.basename(image['file_name']),
            source_id=image['id'],
            annotations=[(f'line {row[0]}', row) for row in entry.annotations],
            paths=(image['file_name'],),
            details=_context_details(image) if self.source.examples else {},
        )

    def object_of(self, annotation: Any, file: ImageFile) -> AnnotatedObject:
        _, *corners, action = annotation[:6]
        number = _whole(action)
        if not number:
            text = f'the action must be a whole number from 1 on, is {action[:100]!r}'
            raise UnusableError('unknown_category', text)
        if number not in self.labels:
            raise UnusableError(NOT_IN_LABEL_MAP, f'action {number}')
        xmin, ymin, xmax, ymax = map(shapes.number, corners, _SIDES)
        ymin, ymax = ymin * file.height, ymax * file.height
        xmin, xmax = xmin * file.width, xmax * file.width
        # -1 says that the person is unknown.
        details = {keys.TRACK_ID: _person(annotation[6:])} if self.source.examples else {}
        corners = (ymin, xmin, ymax, xmax)
        return shapes.of_box(self.labels[number], corners, file, details=details)


def _check_pattern(pattern: str) -> None:
    """Raises a UserError unless a pattern has fields for the video and the time, and no others."""
    try:
        paths = {_frame_path(pattern, video, second) for video in 'ab' for second in (1, 2)}
    except (KeyError, IndexError, ValueError, AttributeError):
        paths = set()
    if len(paths) < 4:
        raise UserError(
            'frames: expected a path with {video} and {second} or {frame}, such as '
            f'frames/{{video}}/{{video}}_{{second:06d}}.jpg. Received: {pattern!r}.'
        )


def _frame_path(pattern: str, video: str, second: int) -> str:
    frame = (second - _FIRST_SECOND) * _FRAME_RATE + 1
    return pattern.format(video=video, second=second, frame=frame)


def _rows(path: str, files: Files) -> Iterator[tuple[int, list[str]]]:
    file_access.check_exists(path, 'file', files)
    return csv_files.rows(path, files)


def _second(text: str, path: str, line: int) -> int:
    try:
        second = float(text)
        if second != int(second) or not 0 <= second <= _MAX_SECOND:
            raise ValueError
    except (ValueError, OverflowError) as error:
        what = f'a second, a whole number of at most {_MAX_SECOND}'
        raise expected(f'{path}, line {line}', what, repr(text[:100])) from error
    return int(second)


def _whole(text: str) -> int:
    """Returns a whole number from 1 on; 0 for all other text."""
    is_number = text.isascii() and text.isdigit() and len(text) < 10
    return int(text) if is_number else 0


def _person(fields: list[str]) -> int:
    text = fields[0] if fields else ''
    return 0 if text == '0' else _whole(text) or -1


def _examples(frames: list[ImageEntry]) -> Iterator[ImageEntry]:
    for number, frame in enumerate(frames):
        place = {'number': number, 'num_frames': len(frames)}
        yield ImageEntry({**frame.image, **place}, frame.annotations)


def _context_details(image: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Returns the keys by which context features are grouped and ordered."""
    taken = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=image['second'])
    return {
        keys.LOCATION: np.array([image['video']]),
        keys.DATE_CAPTURED: np.array([taken.strftime('%Y-%m-%d %H:%M:%S')]),
        keys.SEQUENCE_ID: np.array([image['video']]),
        keys.SEQUENCE_FRAME_NUMBER: np.array([image['number']], np.int64),
        keys.SEQUENCE_NUM_FRAMES: np.array([image['num_frames']], np.int64),
    }
