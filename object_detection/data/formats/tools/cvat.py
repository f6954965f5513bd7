"""Data sets of CVAT: an XML file with all images, "CVAT for images 1.1", or all tracks of a video.

Frames of a video are image files, as CVAT exports them; `cvat_tracks` says how they are found.
"""

import dataclasses
import itertools
import os
from collections.abc import Collection, Iterator, Mapping

import numpy as np
from lxml import etree

from object_detection.core import tf_example_keys as keys
from object_detection.data import annotated_image, file_access
from object_detection.data.annotated_image import (
    AnnotatedObject,
    ImageAnnotations,
    Provided,
    not_converted,
)
from object_detection.data.coco import masks as coco_masks
from object_detection.data.file_access import Files
from object_detection.data.formats import clips as format_clips
from object_detection.data.formats import csv_files, shapes
from object_detection.data.formats import source as formats_source
from object_detection.data.formats.source import (
    DataSet,
    FileSource,
    Found,
    ImageEntry,
    SourceReader,
    option,
)
from object_detection.data.formats.tools import cvat_tracks
from object_detection.data.image_files import ImageFile
from object_detection.data.label_map import LabelMap
from object_detection.errors import UnusableError, UserError, expected

_MAX_BYTES = 1 << 30
_HEAD = 1 << 10
_SIDES = ('xtl', 'ytl', 'xbr', 'ybr')
_BOX, _POLYGON, _ELLIPSE, _MASK = 'box', 'polygon', 'ellipse', 'mask'
_AREAS = (_BOX, _POLYGON, _ELLIPSE, _MASK)
_POINTS = 'points'
_PARENTS = ('image', 'track')
# Elements of an image that are no shapes.
_OTHERS = ('tag', 'attribute')
_CLIP_OPTIONS = ('seconds_per_sequence', 'hop_between_sequences', 'frames_per_second')


@dataclasses.dataclass(frozen=True)
class CvatSource(FileSource):
    """A data set of CVAT.

    Attributes:
      annotations_file: XML file.
      image_dir: folder of the images; '' is `images` beside the XML file, or its folder.
      split: only the images of this subset of a project; '' reads all.
      masks: whether shapes are written as masks.
      groups: which shapes of one label and `group_id` are one object, see `shapes.groups_option`.
      clips: whether frames of a video are written together, see `clips`, instead of each alone.
      seconds_per_sequence: length of a clip.
      hop_between_sequences: seconds between the beginnings of two clips.
      frames_per_second: frames of the video in a second.
    """

    split: str = option('', 'Only the images of this subset of a project.', flag='set')
    masks: bool = option(False, 'Write the shapes as masks.')
    groups: str = shapes.groups_option()
    clips: bool = option(False, 'Write clips of a video as tf.SequenceExamples, without masks.')
    seconds_per_sequence: int = format_clips.length_option()
    hop_between_sequences: int = format_clips.hop_option()
    frames_per_second: int = option(
        1, 'Frames of the video in a second, of which a clip has the first; 1 takes all frames.'
    )

    def open(self, files: Files, label_map: LabelMap | None) -> DataSet:
        shapes.check_groups(self.groups)
        root = self._root(files)
        is_video = cvat_tracks.is_video(root)
        self._check_clips(is_video=is_video)
        images = [image.get('name', '') for image in self._images(root)]
        if is_video and not self.split:
            images = [entry.image['file_name'] for entry in self._frames(root, files)]
        if not images:
            subsets = {image.get('subset', '') for image in root.iterfind('image')} - {''}
            raise UserError(
                f'{self.annotations_file}: expected images of the set {self.split!r}. '
                f'Received sets: {sorted(subsets) or "none"}.'
            )
        # The labels of the task come first, in their order, also if they are not used.
        names = [csv_files.text(label, 'name') for label in root.iterfind('meta//labels/label')]
        items = root.iterfind('track' if is_video else 'image/*')
        names += sorted({item.get('label', '') for item in items} - {*names})
        labels = formats_source.number_classes(names, label_map)
        reader = CvatReader(self, labels, file_access.are_alone(images), is_video=is_video)
        of_all = images if is_video else (item.get('name', '') for item in root.iterfind('image'))
        left_out = [item.tag for item in root.iterfind('track/*/attribute')]
        if self.clips:
            left_out += ['id of a track' for item in root.iterfind('track')]
            hidden = root.iterfind('track/*[@occluded="1"]')
            left_out += ['occlusion' for item in hidden if item.get('outside') != '1']
        return DataSet(
            reader,
            sum(1 for _ in self._clips(root, files)) if self.clips else len(images),
            labels,
            unlisted=file_access.unlisted(self.folder, of_all, files),
            notes=not_converted(left_out),
        )

    def _check_clips(self, *, is_video: bool) -> None:
        given = {name: getattr(self, name) for name in _CLIP_OPTIONS}
        format_clips.check(**given)
        if self.clips and not is_video:
            what = 'a video, which has <track> elements and no <image> elements, for clips'
            raise expected(self.annotations_file, what, 'no video')
        if self.clips and self.masks:
            what = 'either clips or masks, as tf.SequenceExamples hold boxes only'
            raise expected(self.annotations_file, what, 'both')
        unread = [name for name in given if given[name] != getattr(type(self), name)]
        if unread and not self.clips:
            raise expected(', '.join(unread), 'clips, of which alone this is an option', 'no clips')

    def entries(self, files: Files) -> Iterator[ImageEntry]:
        root = self._root(files)
        if cvat_tracks.is_video(root):
            yield from (self._clips if self.clips else self._frames)(root, files)
        for image in self._images(root):
            keep = {key: image.get(key) for key in ('height', 'width', 'subset')}
            annotations = [
                {'kind': item.tag, **item.attrib}
                for item in image.iterchildren(etree.Element)
                if item.tag not in _OTHERS
            ]
            others = [item.tag for item in image.iterfind('.//*') if item.tag in _OTHERS]
            name = image.get('name', '')
            # Projects number the images of each task from 0 on.
            number = '/'.join(filter(None, (image.get('subset'), name)))
            yield ImageEntry(
                {'id': number, 'file_name': name, 'others': others, **keep}, annotations
            )

    @classmethod
    def detect(cls, folder: str, files: Files) -> list[Found]:
        found, errors = [], []
        for _, name, path in formats_source.listed(folder, [''], '.xml', files):
            try:
                if b'<annotations>' not in files.head(path, _HEAD):
                    continue
                root = cls(path)._root(files)
            except UserError as error:
                errors.append(UserError(f'It looks like CVAT, but {error}'))
                continue
            except OSError:
                continue
            of_masks = (f'{parent}/{kind}' for parent in _PARENTS for kind in (_POLYGON, _MASK))
            masks = any(root.find(each) is not None for each in of_masks)
            if cvat_tracks.is_video(root):
                try:
                    next(cls(path)._frames(root, files))
                except UserError as error:
                    errors.append(UserError(f'It looks like CVAT, but {error}'))
                    continue
                found.append(Found('', cls(path, masks=masks), f'{name} with <track> elements'))
            for subset in sorted({image.get('subset', '') for image in root.iterfind('image')}):
                source = cls(path, split=subset, masks=masks)
                found.append(Found(subset, source, f'{name} with <image> elements'))
        return formats_source.found_or_raise(found, errors)

    def _root(self, files: Files) -> etree._Element:
        file_access.check_exists(self.annotations_file, 'annotation file', files)
        root = csv_files.read(self.annotations_file, files, _MAX_BYTES)
        if root.tag != 'annotations':
            raise UnusableError(
                'bad_annotations',
                f'{self.annotations_file}: expected <annotations>, received <{root.tag}>',
            )
        return root

    def _frames(self, root: etree._Element, files: Files) -> Iterator[ImageEntry]:
        """Yields the frames of a video: those that are there, and those that have a shape."""
        names = [*filter(file_access.is_image, files.list(self.folder, recursive=True))]
        if not names:
            raise UserError(
                f'{self.annotations_file}: expected the frames of the video as image files, such '
                f'as images/frame_000000.PNG, in {self.folder or "."}. Received: none; export '
                'with "Save images", or take them out of the video.'
            )
        images = cvat_tracks.numbered(names)
        parts = cvat_tracks.segments(root, self.annotations_file)
        frames = sorted({*images, *(part.start for part in parts)})
        # A project has a size for each of its tasks.
        stated = root.findall('meta//original_size')
        size = {}
        if len(stated) == 1:
            size = {side: csv_files.text(stated[0], side) for side in ('height', 'width')}
        for frame, items in cvat_tracks.at_frames(parts, frames):
            name = images.get(frame, f'images/frame_{frame:06d}')
            keep = {'subset': None, 'others': [], 'frame': frame, **size}
            yield ImageEntry({'id': name, 'file_name': name, **keep}, items)

    def _clips(self, root: etree._Element, files: Files) -> Iterator[ImageEntry]:
        """Yields the clips of a video; its frame 0 begins second 0."""
        by_second = itertools.groupby(
            self._frames(root, files), lambda entry: entry.image['frame'] // self.frames_per_second
        )
        frames = (
            first._replace(image={**first.image, 'second': second, 'is_annotated': 1})
            for second, (first, *_) in by_second
        )
        name = os.path.splitext(os.path.basename(self.annotations_file))[0]
        video = csv_files.text(root, 'meta//source', name)
        length, hop = self.seconds_per_sequence, self.hop_between_sequences
        return format_clips.entries('CVAT', video, frames, 0, length, hop)

    def _images(self, root: etree._Element) -> Iterator[etree._Element]:
        for image in root.iterfind('image'):
            if not self.split or image.get('subset') == self.split:
                yield image


@dataclasses.dataclass(frozen=True)
class CvatReader(SourceReader[CvatSource]):
    """Reads images, see `SourceReader`; labels by the name of a class.

    Attributes:
      is_video: whether images are frames, in which objects have the numbers of their tracks.
    """

    is_video: bool = False

    @property
    def provided(self) -> Provided:
        details = {keys.OCCLUDED: int, **({keys.TRACK_ID: int} if self.is_video else {})}
        return Provided(masks=self.source.masks, details=details, clips=self.source.clips)

    def annotations(self, entry: ImageEntry, files: Files) -> ImageAnnotations:
        del files
        image, name = entry.image, entry.image['file_name']
        folder = self.source.folder
        inner = [] if self.source.image_dir else [file_access.join(folder, 'images')]
        names = [file_access.join(image['subset'], name)] if image['subset'] else []
        places = [
            file_access.image_paths(each, path, key='name', is_alone=self.names_are_alone)
            for each in (*inner, folder)
            for path in (*names, name)
        ]
        groups = {_group_of(item) for item in entry.annotations} - {None}
        is_part = [_is_keypoints(item, groups) for item in entry.annotations]
        items = [each for each in enumerate(entry.annotations) if not is_part[each[0]]]
        found = shapes.grouped(items, _group_of, _is_box, self.source.groups)
        others = [*image['others'], *[_POINTS] * sum(is_part)]
        return ImageAnnotations(
            file_name=name,
            source_id=image['id'],
            annotations=found.annotations,
            paths=tuple(path for each in places for path in each.paths),
            path_note=places[0].note,
            stated_size=annotated_image.stated_size(entry.image),
            notes={**found.notes, **not_converted(others)},
        )

    def read_object(
        self, annotation: list[Mapping[str, str]], file: ImageFile, *, rasterize: bool = True
    ) -> AnnotatedObject:
        label = formats_source.label_of(annotation[0].get('label'), self.labels)
        is_occluded = any(item.get('occluded') == '1' for item in annotation)
        # As in CVAT's own exports, a box in a group with outlines is no part of the mask.
        boxes = [item for item in annotation if _is_box(item)]
        outlines = [item for item in annotation if not _is_box(item)] or boxes
        parts = [_part(item, file) for item in outlines]
        found = shapes.of_parts(label, parts, file, masks=self.source.masks, rasterize=rasterize)
        track = annotation[0].get('track', '')
        details = {keys.TRACK_ID: int(track) if track.isdecimal() else -1} if self.is_video else {}
        found = found._replace(details={keys.OCCLUDED: int(is_occluded), **details})
        if len(outlines) == len(annotation):
            return found
        around = shapes.of_polygons(label, [_part(item, file) for item in boxes], file)
        return shapes.widened(found, around)


def _group_of(item: Mapping[str, str]) -> tuple[str, str] | None:
    """Returns what the shapes of one object have in common; None for a shape without a group."""
    group = item.get('group_id', '0')
    is_grouped = group not in ('', '0') and item['kind'] in _AREAS
    return (item.get('label', ''), group) if is_grouped else None


def _is_keypoints(item: Mapping[str, str], groups: Collection[tuple[str, str]]) -> bool:
    """Whether a shape is the points of an object, with which it shares a label and a group."""
    return item['kind'] == _POINTS and (item.get('label', ''), item.get('group_id')) in groups


def _is_box(item: Mapping[str, str]) -> bool:
    return item['kind'] == _BOX


def _part(item: Mapping[str, str], file: ImageFile) -> np.ndarray:
    """Returns a shape, see `shapes.of_parts`."""
    kind = item['kind']
    if kind == _BOX:
        points = shapes.rectangle(*(shapes.number(item.get(side), side) for side in _SIDES))
    elif kind == _ELLIPSE:
        x, y, *radii = (shapes.number(item.get(key), key) for key in ('cx', 'cy', 'rx', 'ry'))
        points = shapes.ellipse((x, y), radii)
    elif kind == _POLYGON:
        pairs = [pair.split(',') for pair in item.get('points', '').split(';')]
        points = shapes.points(pairs, 'points')
    elif kind == _MASK:
        return _mask(item, file)
    else:
        raise UnusableError('unknown_shape', f'<{kind[:100]}>: expected {", ".join(_AREAS)}')
    degrees = shapes.number(item.get('rotation', 0), 'rotation')
    return shapes.rotated(points, degrees, (points.min(0) + points.max(0)) / 2)


def _mask(annotation: Mapping[str, str], file: ImageFile) -> np.ndarray:
    """Returns a mask of run lengths, bool [H, W]; they go along the rows of a window."""
    window = [shapes.number(annotation.get(key), key) for key in ('left', 'top', 'width', 'height')]
    left, top, width, height = (int(value) for value in window)
    inside = left >= 0 and top >= 0 and left + width <= file.width and top + height <= file.height
    if not inside or width <= 0 or height <= 0:
        raise UnusableError('bad_mask', f'the window of the mask, {window}, leaves the image')
    try:
        counts = [int(run) for run in annotation.get('rle', '').split(',')]
    except ValueError as error:
        raise UnusableError('bad_mask', f'rle must be whole numbers: {error}') from error
    # Those of COCO go down the columns.
    runs = {'size': [width, height], 'counts': counts}
    mask = np.zeros((file.height, file.width), bool)
    mask[top : top + height, left : left + width] = coco_masks.decode(runs, width, height).T
    return mask
