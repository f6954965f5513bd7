"""Data sets in COCO format: one JSON file, and a folder of images."""

import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from object_detection.data import file_access
from object_detection.data.annotated_image import (
    AnnotatedObject,
    ImageAnnotations,
    Provided,
    not_converted,
)
from object_detection.data.coco import annotations as coco_annotations
from object_detection.data.coco import examples as coco_examples
from object_detection.data.coco import keypoints as coco_keypoints
from object_detection.data.coco.annotations import CocoFile, EntryProblem
from object_detection.data.file_access import Files
from object_detection.data.formats import shapes
from object_detection.data.formats import source as formats_source
from object_detection.data.formats.source import DataSet, Found, ImageEntry, Source, option
from object_detection.data.image_files import ImageFile
from object_detection.data.label_map import LabelMap
from object_detection.errors import UnusableError, UserError

# Folders that may have JSON files; those named as a split have its images too.
_SPLITS = ('train', 'valid', 'val', 'test')
_JSON_FOLDERS = ('annotations', '', *_SPLITS)
# What the names of the JSON files of one split begin with; the first of them that is there is read.
_INSTANCES, _KEYPOINTS = 'instances_', 'person_keypoints_'
_PREFIXES = (_INSTANCES, _KEYPOINTS, 'stuff_')
_LISTS = {'images': (), 'annotations': (), 'categories': ()}
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
        file = read_annotation_file(self.annotations_file, files, segmentations=False)
        others = {self.annotations_file: file}
        for path in {self._keypoints_path, self.densepose_file} - {'', *others}:
            others[path] = read_annotation_file(path, files, segmentations=False)
        # Those of the annotations themselves are among `problems`.
        further = [
            each for other in others.values() if other is not file for each in other.problems
        ]
        layout = None
        if self._keypoints_path:
            layout = coco_keypoints.keypoint_layout(others[self._keypoints_path])
        classes = coco_annotations.classes(file.categories, label_map)
        contents = coco_examples.Contents(
            classes,
            self.masks,
            layout,
            bool(self.densepose_file),
            max_pixels=self.max_pixels,
            class_ids={key: label.label for key, label in classes.labels.items()},
        )
        return DataSet(
            CocoReader(self.image_dir, contents, names_are_alone(file)),
            len(file.images),
            classes.labels,
            (*problems(file), *further),
            layout,
            is_renumbered=classes.is_renumbered,
            unlisted=unlisted(self.image_dir, file.images, files),
            categories={category['id']: category for category in file.categories},
            notes=self._notes(file, others),
        )

    def _notes(self, file: CocoFile, others: Mapping[str, CocoFile]) -> dict[str, int]:
        """Returns the notes of the file, of what options leave out, and of `others`."""
        ids = {annotation['id'] for annotation in file.annotations}
        read_keys = ('segmentation',) if self.masks else ()
        kinds: list[str] = []
        for path, keys in self._further_keys():
            read_keys += keys
            lost = [each for each in others[path].annotations if each['id'] not in ids]
            kinds += [f'{keys[0]} of annotations that are only in {os.path.basename(path)}'] * len(
                lost
            )
        kept, needed = coco_annotations.check_categories(
            file, self.only_objects_of, self.only_images_with
        )
        if self.only_objects_of:
            of_others = (each.get('category_id') != kept for each in file.annotations)
            kinds += ['object of another category (--only_objects_of)'] * sum(of_others)
        if self.only_images_with:
            with_it = {
                each['image_id'] for each in file.annotations if each.get('category_id') == needed
            }
            kinds += ['image without an object of --only_images_with'] * sum(
                image['id'] not in with_it for image in file.images
            )
        return coco_annotations.notes(file, read_keys) | not_converted(kinds)

    def _further_keys(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yields the files of keypoints and DensePose points, and their keys."""
        if self._keypoints_path:
            yield self._keypoints_path, coco_keypoints.KEYPOINT_KEYS
        if self.densepose_file:
            yield self.densepose_file, coco_keypoints.DENSEPOSE_KEYS

    def entries(self, files: Files) -> Iterator[ImageEntry]:
        file = read_annotation_file(self.annotations_file, files, segmentations=self.masks)
        for path, keys in self._further_keys():
            if path != self.annotations_file:
                other = read_annotation_file(path, files, segmentations=False)
                coco_annotations.take_over(file, other, keys)
        grouped = coco_annotations.group_by_image(
            file, only_objects_of=self.only_objects_of, only_images_with=self.only_images_with
        )
        for item in grouped:
            yield ImageEntry(item.image, item.annotations)

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
            document = document_with('images', path, files, _LISTS)
            if document is None or not _is_of_boxes(document):
                continue
            split = below if below in _SPLITS else file_access.without_suffix(rest)
            keypoints = prefix == _KEYPOINTS and any(
                isinstance(item, dict) and item.get('keypoints') for item in document['categories']
            )
            try:
                source = cls(image_folder(document, path, split, files), path, keypoints=keypoints)
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


def read_annotation_file(path: str, files: Files, *, segmentations: bool = True) -> CocoFile:
    """Reads an annotation file in COCO format.

    Args:
      path: path of the file.
      files: access to files.
      segmentations: whether to keep the segmentations.

    Raises:
      FileNotFoundError: if there is no such file.
      ValueError: as `coco.annotations.parse`.
    """
    file_access.check_exists(path, 'annotation file', files)
    return coco_annotations.parse(files.read(path), path, segmentations=segmentations)


def names_are_alone(file: CocoFile) -> bool:
    """Returns `file_access.are_alone` of the images of a file."""
    return file_access.are_alone(image['file_name'] for image in file.images)


def unlisted(image_dir: str, images: Iterable[Mapping[str, Any]], files: Files) -> list[str]:
    """Returns `file_access.unlisted` of the images of a file."""
    return file_access.unlisted(image_dir, (image['file_name'] for image in images), files)


def problems(file: CocoFile) -> Iterator[EntryProblem]:
    """Yields the problems that do not belong to an image, which the job would not find."""
    yield from file.problems
    seen: set[Any] = set()
    for image in file.images:
        if image['id'] in seen:
            error = UnusableError('duplicate_image', 'its id is used before')
            yield EntryProblem(error, image['file_name'], image['id'], None)
        seen.add(image['id'])
    for annotation in file.annotations:
        if annotation['image_id'] not in seen:
            error = UnusableError('unknown_image', f'there is no image {annotation["image_id"]}')
            yield EntryProblem(error, None, None, annotation['id'])


def document_with(
    key: str, path: str, files: Files, required: Mapping[str, Sequence[str]]
) -> dict[str, Any] | None:
    """Returns a JSON file to recognize its format; None if it is another file.

    Args:
      key: a key that the file has somewhere; other files take long to parse.
      path: the file.
      files: access to files.
      required: as of `coco.annotations.check_document`.
    """
    try:
        content = files.read(path)
        document = file_access.parse_json(content, path) if shapes.may_have(content, key) else None
        coco_annotations.check_document(document, path, required)
    except (OSError, UserError):
        return None
    return document


def _is_of_boxes(document: dict[str, Any]) -> bool:
    """Whether annotations have boxes: captions have none, and panoptic ones in segments."""
    first = next(iter(document['annotations']), {'bbox': []})
    return isinstance(first, dict) and 'bbox' in first


def image_folder(
    document: dict[str, Any], path: str, split: str, files: Files, title: str = 'COCO'
) -> str:
    """Returns the folder that has the first image of an annotation file.

    Args:
      document: its content.
      path: its path.
      split: name of its split.
      files: access to files.
      title: name of the format.

    Raises:
      UserError: if none has it.
    """
    first = next(iter(document['images']), {})
    if isinstance(first, dict):
        coco_annotations.name_by_url(first)
    name = first.get('file_name') if isinstance(first, dict) else None
    if not isinstance(name, str):
        raise UserError(f'{path} looks like {title}, but its first image has no file_name.')
    parent = os.path.dirname(path)
    patterns = (pattern.format(split) for pattern in _IMAGE_FOLDERS)
    folders = (os.path.normpath(file_access.join(parent, each)) for each in patterns)
    if not (found := formats_source.first_with(folders, name, files, is_alone=False)):
        raise formats_source.without_images(path, title, name)
    return found
