"""Data sets in COCO's panoptic format: a JSON file, and PNG files whose colours are segments.

The id of a pixel's segment is R + 256 G + 65536 B. (https://cocodataset.org/#format-data)
"""

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from object_detection.data import file_access, image_files, shard_names
from object_detection.data.annotated_image import (
    NOT_WANTED,
    AnnotatedObject,
    ImageAnnotations,
    Provided,
    not_converted,
)
from object_detection.data.coco import annotations as coco_annotations
from object_detection.data.coco.annotations import NO_CLASSES, Classes, EntryProblem
from object_detection.data.file_access import Files
from object_detection.data.formats import coco as coco_format
from object_detection.data.formats import shapes
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

_MAX_BYTES = 2 << 30
_UNKNOWN = 'segment of the PNG file that segments_info does not list'
_REQUIRED = {
    'images': ('id', 'file_name'),
    'annotations': ('image_id', 'file_name', 'segments_info'),
    'categories': ('id', 'name'),
}


@dataclasses.dataclass(frozen=True)
class PanopticSource(Source):
    """A data set in COCO's panoptic format.

    Attributes:
      image_dir: folder to which the file names of images are relative.
      annotations_file: JSON file.
      masks_dir: folder of the PNG files; '' is the path of the JSON file without suffix.
      stuff: whether segments of stuff, such as sky, are objects too.
      keep_not_annotated: whether images without an annotation are images without objects.
    """

    image_dir: str = option('', 'Folder of the images.', flag='images', required=True)
    annotations_file: str = option('', 'JSON file.', flag='annotations', required=True)
    masks_dir: str = option(
        '', 'Folder of the PNG files; by default the path of the JSON file without suffix.'
    )
    stuff: bool = option(False, 'Also convert segments of stuff, such as sky.')
    keep_not_annotated: bool = option(False, 'Keep images without segments, as empty ones.')

    def open(self, files: Files, label_map: LabelMap | None) -> DataSet:
        file_access.check_exists(self.image_dir, 'image folder', files)
        document = self._document(files)
        categories = [
            item for item in document['categories'] if self.stuff or item.get('isthing', 1)
        ]
        if not categories:
            raise expected(self.annotations_file, '`isthing` 1, or --stuff', 'stuff alone')
        classes = coco_annotations.classes(categories, label_map)
        names = coco_annotations.texts(document['categories'])
        wanted = {item['id'] for item in categories}
        images = [image['file_name'] for image in document['images']]
        reader = PanopticReader(
            self,
            classes.labels,
            file_access.are_alone(images),
            classes,
            ignored={key: f'{name} (stuff)' for key, name in names.items() if key not in wanted},
        )
        return DataSet(
            reader,
            sum(1 for _ in self._entries(document)),
            classes.labels,
            tuple(_problems(document)),
            is_renumbered=classes.is_renumbered,
            unlisted=file_access.unlisted(self.image_dir, images, files),
        )

    def entries(self, files: Files) -> Iterator[ImageEntry]:
        yield from self._entries(self._document(files))

    @classmethod
    def detect(cls, folder: str, files: Files) -> list[Found]:
        found, errors = [], []
        places = ('annotations', '')
        for below, name, path in formats_source.listed(folder, places, '.json', files):
            document = coco_format.document_with('segments_info', path, files, _REQUIRED)
            if document is None or not document['annotations']:
                continue
            split = file_access.without_suffix(name).removeprefix('panoptic_')
            try:
                images = coco_format.image_folder(document, path, split, files, 'COCO panoptic')
            except UserError as error:
                errors.append(error)
                continue
            things = any(item.get('isthing', 1) for item in document['categories'])
            found.append(
                Found(split, cls(images, path, stuff=not things), os.path.join(below, name))
            )
        found = formats_source.found_or_raise(found, errors)
        # The same photos with boxes, and often more of them, are preferred.
        with contextlib.suppress(UserError):
            return [] if found and coco_format.CocoSource.detect(folder, files) else found
        return found

    def _entries(self, document: dict[str, Any]) -> Iterator[ImageEntry]:
        images = {image['id']: image for image in reversed(document['images'])}
        for annotation in document['annotations']:
            image = images.pop(annotation['image_id'], None)
            if image is not None:
                entries = annotation['segments_info']
                yield ImageEntry(
                    {**image, 'masks': annotation['file_name']},
                    entries if isinstance(entries, list) else [entries],
                )
        problem = (formats_source.NOT_ANNOTATED, 'the file has no annotation of it')
        for image in reversed(images.values()):
            yield ImageEntry({**image, 'masks': ''}, [], () if self.keep_not_annotated else problem)

    def _document(self, files: Files) -> dict[str, Any]:
        path = self.annotations_file
        file_access.check_exists(path, 'annotation file', files)
        document = file_access.parse_json(files.read(path, _MAX_BYTES), path)
        coco_annotations.check_document(document, path, _REQUIRED)
        return document


class _Segment(NamedTuple):
    """A segment of an image: `pixels` [H, W] are the ids of the segments."""

    pixels: np.ndarray
    entry: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class PanopticReader(SourceReader[PanopticSource]):
    """Reads images, see `SourceReader`; labels by the id of a category.

    Attributes:
      classes: the categories that are read.
      ignored: category id -> name of the categories of stuff, which are no objects.
    """

    classes: Classes = NO_CLASSES
    ignored: Mapping[Any, str] = dataclasses.field(default_factory=dict)

    provided = Provided(masks=True)

    def annotations(self, entry: ImageEntry, files: Files) -> ImageAnnotations:
        name = entry.image['masks']
        source = self.source
        folder = source.masks_dir or os.path.splitext(source.annotations_file)[0]
        masks = file_access.image_paths(folder, name, is_alone=False)
        path = file_access.first_that_exists(masks.paths, files)
        path = path or file_access.path_within(folder, name or 'no name')
        found = file_access.image_paths(
            source.image_dir, entry.image['file_name'], is_alone=self.names_are_alone
        )
        # An image without an annotation has no file.
        pixels = self._pixels(files.read(path, shapes.MAX_MASK_FILE), path) if name else None
        # 0 is no segment.
        drawn = set() if pixels is None else {*np.unique(pixels).tolist()} - {0}
        listed = {_value(segment, 'id') for segment in entry.annotations}
        return ImageAnnotations(
            file_name=entry.image['file_name'],
            source_id=shard_names.to_text(entry.image['id']),
            annotations=[
                (_value(segment, 'id'), _Segment(pixels, segment)) for segment in entry.annotations
            ],
            paths=found.paths,
            path_note=found.note,
            stated_size=coco_annotations.stated_size(entry.image),
            notes=not_converted(_UNKNOWN for _ in drawn - listed),
        )

    def read_object(
        self, annotation: _Segment, file: ImageFile, *, rasterize: bool = True
    ) -> AnnotatedObject:
        segment = annotation.entry
        if not isinstance(segment, dict):
            text = f'a segment must be an object, is {str(segment)[:100]}'
            raise UnusableError('bad_annotation', text)
        category, number = segment.get('category_id'), segment.get('id')
        if _value(segment, 'category_id') in self.ignored:
            raise UnusableError(NOT_WANTED, self.ignored[category])
        label = self.classes.label_of(category)
        if not isinstance(number, int) or not 0 < number < 1 << 24:
            text = f'id must be a colour, 1 to 16777215, is {str(number)[:100]}'
            raise UnusableError('bad_mask', text)
        is_crowd = coco_annotations.is_crowd(segment)
        mask = annotation.pixels == number
        return shapes.of_mask(label, mask, file, is_crowd=is_crowd, rasterize=rasterize)

    def _pixels(self, encoded: bytes, path: str) -> np.ndarray:
        """Returns the ids of the segments, uint32 [H, W]."""
        pixels = image_files.decode(encoded, self.max_pixels)
        if pixels.ndim != 3 or pixels.shape[2] < 3:
            raise UnusableError('bad_annotations', f'{path} must have three channels')
        red, green, blue = np.moveaxis(pixels[..., :3].astype(np.uint32), -1, 0)
        return red + (green << 8) + (blue << 16)


def _value(segment: Any, key: str) -> Any:
    """Returns an id of a segment; None if it has none."""
    value = segment.get(key) if isinstance(segment, dict) else None
    return value if coco_annotations.is_id(value) else None


def _problems(document: dict[str, Any]) -> Iterator[EntryProblem]:
    """Yields the annotations of images that are unknown, or have some already."""
    images = {image['id'] for image in document['images']}
    seen = set()
    for annotation in document['annotations']:
        number = annotation['image_id']
        if number in images and number not in seen:
            seen.add(number)
            continue
        reason = 'duplicate_image' if number in seen else 'unknown_image'
        text = f'its image_id is {number}, which has segments already or is unknown'
        yield EntryProblem(UnusableError(reason, text), annotation['file_name'], number, None)
