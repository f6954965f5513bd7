"""Data sets in COCO format: one JSON file, and a folder of images."""

import collections
import dataclasses
import os
from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple

from object_detection.data import annotation_notes, file_access
from object_detection.data.annotated_image import (
    NOT_CONVERTED,
    AnnotatedObject,
    ImageAnnotations,
    Provided,
    not_converted,
)
from object_detection.data.coco import annotations as coco_annotations
from object_detection.data.coco import examples as coco_examples
from object_detection.data.coco import json_items
from object_detection.data.coco import keypoints as coco_keypoints
from object_detection.data.coco import masks as coco_masks
from object_detection.data.coco.annotations import EntryProblem
from object_detection.data.file_access import Files
from object_detection.data.formats import source as formats_source
from object_detection.data.formats.source import DataSet, Found, ImageEntry, Source, option
from object_detection.data.image_files import ImageFile
from object_detection.data.label_map import LabelMap
from object_detection.errors import UnusableError, UserError
from object_detection.system.grouping import Groups, unpacked

# Folders that may have JSON files; those named as a split have its images too.
_SPLITS = ('train', 'valid', 'val', 'test')
_JSON_FOLDERS = ('annotations', '', *_SPLITS)
# What the names of the JSON files of one split begin with; the first of them that is there is read.
_INSTANCES, _KEYPOINTS = 'instances_', 'person_keypoints_'
_PREFIXES = (_INSTANCES, _KEYPOINTS, 'stuff_')
# Where images may be, from the folder of the JSON file; {} is the name of its split.
_IMAGE_FOLDERS = (
    *('../images/{}', '../images/{}2017', '../{}', '../{}2017', '{}', '{}2017'),
    *('.', 'images', '../images'),
)


@dataclasses.dataclass(frozen=True)
class CocoSource(Source):
    """A data set in COCO format.

    Attributes:
      image_dir: folder to which the file names in the annotation file are relative.
      annotations_file: COCO JSON file.
      masks: whether instance masks are written.
      keypoints: whether the keypoints of the annotation file are written.
      keypoints_file: COCO JSON file with the keypoints of the same annotations, matched by their
        ids; may be the annotation file itself. '' writes no keypoints of another file.
      densepose_file: the same for DensePose points.
      only_objects_of: name of a category; objects of all others are left out. '' keeps all.
      only_images_with: name of a category; images without an object of it are left out.
    """

    image_dir: str = option('', 'Folder of the images.', flag='images', required=True)
    annotations_file: str = option('', 'COCO JSON file.', flag='annotations', required=True)
    masks: bool = option(False, 'Write instance masks; off here, and on in `tfod data convert`.')
    keypoints: bool = option(False, 'Write keypoints, those of the annotation file.')
    keypoints_file: str = option(
        '',
        'Write keypoints, those of the same annotations in this JSON file.',
        flag='keypoint_annotations',
    )
    densepose_file: str = option(
        '',
        'Write DensePose points, those of the same annotations in this JSON file.',
        flag='densepose_annotations',
    )
    only_objects_of: str = option('', 'Leave out the objects of all categories but this one.')
    only_images_with: str = option('', 'Leave out images without an object of this category.')

    @property
    def _keypoints_path(self) -> str:
        return self.keypoints_file or (self.annotations_file if self.keypoints else '')

    def open(self, files: Files, label_map: LabelMap | None) -> DataSet:
        file_access.check_exists(self.image_dir, 'image folder', files)
        keys = [key for _, keys in self._further_keys() for key in keys]
        scan = Scan(
            self.annotations_file,
            files,
            content=lambda annotation: annotation.get('category_id'),
            read_keys=keys + ['segmentation'] * self.masks,
        )
        layout, kinds, problems = None, [], [*scan.problems()]
        for path, (key, *_) in self._further_keys():
            categories, entries = scan.categories, []
            if path != self.annotations_file:
                categories, entries = [], stream(path, files, problems)
            num_lost = 0
            for name, entry in entries:
                if name == 'categories':
                    categories.append(entry)
                num_lost += name == 'annotations' and not scan.groups.has_row(entry['id'])
            kinds += [f'{key} of annotations that are only in {os.path.basename(path)}'] * num_lost
            if path == self._keypoints_path:
                layout = coco_keypoints.keypoint_layout(categories)
        classes = coco_annotations.classes(scan.categories, label_map)
        contents = coco_examples.Contents(
            classes,
            self.masks,
            layout,
            bool(self.densepose_file),
            max_pixels=self.max_pixels,
            class_ids={key: label.label for key, label in classes.labels.items()},
        )
        kinds += self._left_out(scan)
        return DataSet(
            CocoReader(self.image_dir, contents, scan.groups.names_are_alone()),
            scan.groups.num_images(),
            classes.labels,
            tuple(problems),
            layout,
            is_renumbered=classes.is_renumbered,
            unlisted=file_access.unlisted(self.image_dir, scan.groups.names(), files),
            categories={category['id']: category for category in scan.categories},
            notes=scan.notes() | not_converted(kinds),
        )

    def _left_out(self, scan: 'Scan') -> list[str]:
        """Returns the kinds of what options leave out; contents of rows are categories."""
        kept, needed = coco_annotations.check_categories(
            scan.categories, self.only_objects_of, self.only_images_with
        )
        kinds = []
        if self.only_objects_of:
            found = scan.groups.query('SELECT content FROM rows')
            of_others = sum(unpacked(content) != kept for (content,) in found)
            kinds += ['object of another category (--only_objects_of)'] * of_others
        if self.only_images_with:
            without_it = sum(needed not in of_image for _, of_image in scan.groups)
            kinds += ['image without an object of --only_images_with'] * without_it
        return kinds

    def _further_keys(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yields the files of keypoints and DensePose points, and their keys."""
        if self._keypoints_path:
            yield self._keypoints_path, coco_keypoints.KEYPOINT_KEYS
        if self.densepose_file:
            yield self.densepose_file, coco_keypoints.DENSEPOSE_KEYS

    def entries(self, files: Files) -> Iterator[ImageEntry]:
        further = Groups()  # By the ids of annotations.
        others = [item for item in self._further_keys() if item[0] != self.annotations_file]
        for path, keys in others:
            for name, entry in stream(path, files, []):
                if name == 'annotations':
                    taken = {key: entry[key] for key in keys if key in entry}
                    further.add(entry['id'], taken)
        content = dict if self.masks else without_segmentation
        scan = Scan(self.annotations_file, files, content=content)
        kept, needed = coco_annotations.check_categories(
            scan.categories, self.only_objects_of, self.only_images_with
        )
        for image, annotations in scan.groups:
            if self.only_objects_of:
                annotations = [each for each in annotations if each.get('category_id') == kept]
            of_needed = (each.get('category_id') == needed for each in annotations)
            if self.only_images_with and not any(of_needed):
                continue
            for annotation in annotations if others else ():
                for taken in further.rows_of(annotation['id']):
                    annotation.update(taken)
            yield ImageEntry(image, annotations)

    @classmethod
    def detect(cls, folder: str, files: Files) -> list[Found]:
        found, errors = [], []
        listed = [*formats_source.listed(folder, _JSON_FOLDERS, '.json', files)]
        names = {(below, name) for below, name, _ in listed}
        for below, name, path in listed:
            prefix = next((each for each in _PREFIXES if name.startswith(each)), '')
            rest = name.removeprefix(prefix)
            before = _PREFIXES[: _PREFIXES.index(prefix)] if prefix else ()
            if any((below, each + rest) in names for each in before):
                continue
            # Captions have no boxes, and panoptic annotations have segments.
            head = head_of(path, files, 'bbox')
            if not head:
                continue
            split = below if below in _SPLITS else file_access.without_suffix(rest)
            keypoints = prefix == _KEYPOINTS and any(
                isinstance(item, dict) and item.get('keypoints') for item in head.categories
            )
            try:
                images = image_folder(head, path, split, files)
                source = cls(images, path, masks=head.has_masks, keypoints=keypoints)
            except UserError as error:
                errors.append(error)
            else:
                found.append(Found(split, source, os.path.join(below, name)))
        return formats_source.found_or_raise(found, errors)


@dataclasses.dataclass(frozen=True)
class CocoReader:
    """Reads images, see `source.Reader`.

    Attributes:
      image_dir: folder to which file names are relative.
      contents: the fields to read.
      names_are_alone: see `file_access.are_alone`.
    """

    image_dir: str
    contents: coco_examples.Contents
    names_are_alone: bool = True

    @property
    def provided(self) -> Provided:
        return coco_examples.provided(self.contents)

    @property
    def max_pixels(self) -> int:
        return self.contents.max_pixels

    def annotations(self, entry: ImageEntry, files: Files) -> ImageAnnotations:
        del files
        name = entry.image['file_name']
        found = file_access.image_paths(self.image_dir, name, is_alone=self.names_are_alone)
        said = coco_examples.image_annotations(entry.image, entry.annotations, self.contents)
        return said._replace(paths=found.paths, path_note=found.note)

    def read_object(
        self, annotation: Any, file: ImageFile, *, rasterize: bool = True
    ) -> AnnotatedObject:
        read = coco_examples.read_object if rasterize else coco_examples.check_object
        return read(annotation, file, self.contents)


class Scan:
    """An annotation file, read once as a stream.

    Args:
      path: path of the file.
      files: access to files.
      content: what is kept of an annotation.
      read_keys: keys of annotations that are read besides those of all boxes.

    Attributes:
      groups: the images with what is kept of their annotations.
      categories: its categories.

    Raises:
      FileNotFoundError: if there is no such file.
      ValueError: as `coco.annotations.stream`.
    """

    def __init__(
        self,
        path: str,
        files: Files,
        *,
        content: Callable[[dict[str, Any]], Any],
        read_keys: Collection[str] = (),
    ):
        self.groups, self.categories = Groups(), []
        self._problems: list[EntryProblem] = []
        self._unread: collections.Counter[str] = collections.Counter()
        for name, entry in stream(path, files, self._problems):
            if name == 'categories':
                self.categories.append(entry)
            elif name == 'images':
                self.groups.add_image(entry['id'], entry['file_name'], entry)
            else:
                for kind in coco_annotations.unread(entry, read_keys):
                    self._unread[kind] += 1
                self.groups.add(entry['image_id'], content(entry), entry['id'])

    def problems(self) -> Iterator[EntryProblem]:
        """Yields the problems that do not belong to an image, which the job would not find."""
        yield from self._problems
        for image_id, name in self.groups.repeated_images():
            error = UnusableError('duplicate_image', 'its id is used before')
            yield EntryProblem(error, name, image_id, None)
        for image_id, number in self.groups.without_image():
            error = UnusableError('unknown_image', f'there is no image {image_id}')
            yield EntryProblem(error, None, None, number)

    def notes(self) -> dict[str, int]:
        """Returns what is worth saying of the annotations, see `ImageAnnotations.notes`.

        They are repeated ids, images of one file, and what annotations hold under other keys than
        are read.
        """
        counts = {
            annotation_notes.REPEATED_IDS: self.groups.number(
                'SELECT COUNT(*) - COUNT(DISTINCT CAST(id AS TEXT)) FROM rows'
            ),
            **{f'{NOT_CONVERTED}{kind[:100]}': count for kind, count in self._unread.items()},
            # Those of equal ids are left out.
            annotation_notes.REPEATED_FILES: self.groups.number(
                'SELECT COUNT(*) - COUNT(DISTINCT name) FROM '
                '(SELECT name, MAX(place) FROM images GROUP BY id)'
            ),
        }
        return {name: count for name, count in counts.items() if count}


def without_segmentation(annotation: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in annotation.items() if key != 'segmentation'}


def stream(
    path: str, files: Files, *options: Any, limit: int | None = None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields `coco.annotations.stream` of a file, of at most `limit` bytes."""
    file_access.check_exists(path, 'annotation file', files)
    with file_access.open_to_read(path, files, limit) as file:
        yield from coco_annotations.stream(file, path, *options)


class Head(NamedTuple):
    """What shows the format of a file in the form of COCO's.

    Attributes:
      image: its first image; {} if there is none.
      annotation: its first annotation; {} if there is none.
      categories: all categories.
      has_masks: whether there are annotations, and all have a segmentation.
    """

    image: Any
    annotation: Any
    categories: list[Any]
    has_masks: bool


def head_of(path: str, files: Files, key: str) -> Head | None:
    """Returns the head of a file; None if it is another file, or its annotations lack a key."""
    lists: dict[str, Any] = {}
    first: dict[str, Any] = {'images': {}, 'annotations': {}}
    categories: list[Any] = []
    num_annotations = num_masks = 0
    try:
        with file_access.open_to_read(path, files) as file:
            for item in json_items.items(file, path):
                if item.index == json_items.WHOLE:
                    lists[item.key] = item.value
                elif item.key == 'categories':
                    categories.append(item.value)
                elif item.index == 0 and item.key in first:
                    first[item.key] = item.value
                    if item.key == 'annotations' and key not in _entry(item.value):
                        return None
                if item.key == 'annotations' and item.index != json_items.WHOLE:
                    num_annotations += 1
                    num_masks += coco_masks.is_drawn(_entry(item.value).get('segmentation'))
    except (OSError, UserError):
        return None
    if any(not isinstance(lists.get(name), list) for name in (*first, 'categories')):
        return None
    has_masks = 0 < num_masks == num_annotations
    return Head(first['images'], first['annotations'], categories, has_masks)


def _entry(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def image_folder(head: Head, path: str, split: str, files: Files, title: str = 'COCO') -> str:
    """Returns the folder that has the first image of an annotation file.

    Args:
      head: its head.
      path: its path.
      split: name of its split.
      files: access to files.
      title: name of the format.

    Raises:
      UserError: if none has it.
    """
    first = _entry(head.image)
    coco_annotations.name_by_url(first)
    name = first.get('file_name')
    if not isinstance(name, str):
        raise UserError(f'{path} looks like {title}, but its first image has no file_name.')
    parent = os.path.dirname(path)
    patterns = (pattern.format(split) for pattern in _IMAGE_FOLDERS)
    folders = (os.path.normpath(file_access.join(parent, each)) for each in patterns)
    if not (found := formats_source.first_with(folders, name, files, is_alone=False)):
        raise formats_source.without_images(path, title, name)
    return found
