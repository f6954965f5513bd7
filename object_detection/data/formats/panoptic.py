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
from object_detection.system.grouping import Groups, given, is_first, unpacked

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
        groups, every = self._scan(files)
        categories = [item for item in every if self.stuff or item.get('isthing', 1)]
        if not categories:
            raise expected(self.annotations_file, '`isthing` 1, or --stuff', 'stuff alone')
        classes = coco_annotations.classes(categories, label_map)
        names = coco_annotations.texts(every)
        wanted = {item['id'] for item in categories}
        reader = PanopticReader(
            self,
            classes.labels,
            groups.names_are_alone(),
            classes,
            ignored={key: f'{name} (stuff)' for key, name in names.items() if key not in wanted},
        )
        return DataSet(
            reader,
            groups.number('SELECT COUNT(DISTINCT id) FROM images'),
            classes.labels,
            tuple(_problems(groups)),
            is_renumbered=classes.is_renumbered,
            unlisted=file_access.unlisted(self.image_dir, groups.names(), files),
        )

    def entries(self, files: Files) -> Iterator[ImageEntry]:
        """Yields the images that have annotations in their order, and then the others."""
        groups, _ = self._scan(files)
        annotated = groups.query(
            f'SELECT images.content, rows.content FROM rows JOIN images ON images.id = image_id '
            f'WHERE {is_first("rows", "image_id")} AND {is_first("images", "id")} '
            'ORDER BY rows.place'
        )
        for image, row in annotated:
            masks, entries = unpacked(row)
            entries = entries if isinstance(entries, list) else [entries]
            yield ImageEntry({**unpacked(image), 'masks': masks}, entries)
        others = groups.query(
            'SELECT content FROM images WHERE '
            f'NOT EXISTS (SELECT 1 FROM rows WHERE image_id = images.id) '
            f'AND {is_first("images", "id")} ORDER BY place'
        )
        problem = (formats_source.NOT_ANNOTATED, 'the file has no annotation of it')
        for (image,) in others:
            known = {**unpacked(image), 'masks': ''}
            yield ImageEntry(known, [], () if self.keep_not_annotated else problem)

    @classmethod
    def detect(cls, folder: str, files: Files) -> list[Found]:
        found, errors = [], []
        places = ('annotations', '')
        for below, name, path in formats_source.listed(folder, places, '.json', files):
            head = coco_format.head_of(path, files, 'segments_info')
            if not head or not head.annotation:
                continue
            split = file_access.without_suffix(name).removeprefix('panoptic_')
            try:
                images = coco_format.image_folder(head, path, split, files, 'COCO panoptic')
            except UserError as error:
                errors.append(error)
                continue
            things = any(
                isinstance(item, dict) and item.get('isthing', 1) for item in head.categories
            )
            found.append(
                Found(split, cls(images, path, stuff=not things), os.path.join(below, name))
            )
        found = formats_source.found_or_raise(found, errors)
        # The same photos with boxes, and often more of them, are preferred.
        with contextlib.suppress(UserError):
            return [] if found and coco_format.CocoSource.detect(folder, files) else found
        return found

    def _scan(self, files: Files) -> tuple[Groups, list[dict[str, Any]]]:
        """Returns the images with their annotations, [masks, segments], and the categories."""
        groups, categories = Groups(), []
        path = self.annotations_file
        for name, entry in coco_format.stream(path, files, None, _REQUIRED, limit=_MAX_BYTES):
            if name == 'categories':
                categories.append(entry)
            elif name == 'images':
                groups.add_image(entry['id'], entry['file_name'], entry)
            else:
                masks = entry['file_name']
                groups.add(entry['image_id'], [masks, entry['segments_info']], masks)
        return groups, categories


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


def _problems(groups: Groups) -> Iterator[EntryProblem]:
    """Yields the annotations of images that are unknown, or have some already."""
    is_known = 'EXISTS (SELECT 1 FROM images WHERE images.id = image_id)'
    found = groups.query(
        f'SELECT id, image_id, {is_known} FROM rows '
        f'WHERE NOT ({is_known} AND {is_first("rows", "image_id")}) ORDER BY place'
    )
    for name, number, is_image in found:
        name, number = given(name), given(number)
        reason = 'duplicate_image' if is_image else 'unknown_image'
        text = f'its image_id is {number}, which has segments already or is unknown'
        yield EntryProblem(UnusableError(reason, text), name, number, None)
