"""Data sets of images and masks in image files: a file an instance, or all in one file.

    ID/images/ID.png    ID/masks/*.png         a folder an image, a mask for each instance
    images/NAME.jpg     masks/NAME/*.png       a folder of masks an image
    images/NAME.jpg     masks/NAME.png         the values of pixels number the instances

Of the last, NAME_mask.png is a mask of NAME.jpg too.
"""

import collections
import dataclasses
import os
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from object_detection.data import file_access, image_files
from object_detection.data.annotated_image import AnnotatedObject, ImageAnnotations, Provided
from object_detection.data.file_access import Files
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
from object_detection.errors import UnusableError, expected

_IMAGE_FOLDERS = ('images', 'Images', 'PNGImages', 'JPEGImages')
_MASK_FOLDERS = ('masks', 'Masks', 'PedMasks')
_MASK_SUFFIXES = ('.png', '.bmp', '.gif')
_MAX_INSTANCES = 10_000


@dataclasses.dataclass(frozen=True)
class MaskFilesSource(Source):
    """A data set of images and masks.

    Attributes:
      data_dir: folder of the data set.
      class_name: name of the class of all objects.
      images_dir: name of the folders of images.
      masks_dir: name of the folders of masks.
      keep_not_annotated: whether images without a mask are images without objects.
    """

    data_dir: str = option('', 'Folder of the data set.', required=True)
    class_name: str = option('object', 'Name of the class of all objects.')
    images_dir: str = option('images', 'Name of the folders of images.')
    masks_dir: str = option('masks', 'Name of the folders of masks.')
    keep_not_annotated: bool = option(False, 'Keep images without masks, as empty ones.')

    def open(self, files: Files, label_map: LabelMap | None) -> DataSet:
        file_access.check_exists(self.data_dir, 'folder', files)
        entries = list(self.entries(files))
        if not entries:
            raise expected(self.data_dir, f'folders of images named {self.images_dir!r}')
        labels = formats_source.number_classes([self.class_name], label_map)
        used = {name for entry in entries for name in entry.annotations}
        masks = self._below(filter(file_access.is_image, self._names(files)), self.masks_dir)
        others = [name for _, _, name in masks if name not in used]
        why = f'expected {", ".join(_MASK_SUFFIXES)} files named as an image, or as its folder'
        problems = formats_source.unread(others, why)
        return DataSet(MaskFilesReader(self, labels), len(entries), labels, problems)

    def entries(self, files: Files) -> Iterator[ImageEntry]:
        names = self._names(files)
        images = self._below(filter(file_access.is_image, names), self.images_dir)
        num_images = collections.Counter(folder for folder, _, _ in images)
        num_folders = collections.Counter(map(os.path.basename, num_images))
        masks = collections.defaultdict(list)  # (folder, stem of the image) -> names
        loose = collections.defaultdict(list)  # folder -> names
        usable = (name for name in names if file_access.has_suffix(name, *_MASK_SUFFIXES))
        for folder, rest, name in self._below(usable, self.masks_dir):
            parent, base = os.path.split(rest)
            masks[folder, parent or os.path.splitext(base)[0].removesuffix('_mask')].append(name)
            if not parent:
                loose[folder].append(name)
        for folder, rest, name in images:
            stem = os.path.splitext(rest)[0]
            found = masks[folder, stem]
            # A file with the image's name has all instances, any other file has one.
            instances = 'values' if len(found) == 1 and found[0] in loose[folder] else ''
            if not found and num_images[folder] == 1:
                found = loose[folder]
            # ID/images/ID.png has the id ID.
            is_id = os.path.basename(folder) == stem and num_folders[stem] == 1
            is_id = is_id and num_images[folder] == 1
            image_id = stem if is_id else f'{folder}/{stem}'.strip('/')
            problem = ()
            if not found and not self.keep_not_annotated:
                problem = (
                    formats_source.NOT_ANNOTATED,
                    f'there is no mask of it in {self.masks_dir}',
                )
            image = {'id': image_id, 'file_name': name, 'instances': instances}
            yield ImageEntry(image, found, problem)

    @classmethod
    def detect(cls, folder: str, files: Files) -> list[Found]:
        names = [f'/{name}' for name in files.list(folder, recursive=True)]
        parts = {part for name in names for part in name.split('/')[1:-1]}
        images = next((name for name in _IMAGE_FOLDERS if name in parts), '')
        masks = next((name for name in _MASK_FOLDERS if name in parts), '')
        if not images or not masks:
            return []
        made = cls(data_dir=folder, images_dir=images, masks_dir=masks)
        has_masks = any(entry.annotations for entry in made.entries(files))
        return [Found('', made, f'folders {images} and {masks}')] if has_masks else []

    def _names(self, files: Files) -> list[str]:
        return files.list(self.data_dir, recursive=True)

    def _below(self, names: Iterable[str], part: str) -> list[tuple[str, str, str]]:
        """Returns (folder above, path below, name) of the files that are below folders `part`."""
        found = []
        for name in names:
            folder, separator, rest = f'/{name}'.rpartition(f'/{part}/')
            if separator:
                found.append((folder, rest, name))
        return found


class _Mask(NamedTuple):
    """A mask: of an instance in a file of its own (`value` is 0), or of the pixels of a value."""

    pixels: np.ndarray
    value: int


@dataclasses.dataclass(frozen=True)
class MaskFilesReader(SourceReader[MaskFilesSource]):
    """Reads images, see `SourceReader`; the label of all objects by the name of their class."""

    provided = Provided(masks=True)

    def annotations(self, entry: ImageEntry, files: Files) -> ImageAnnotations:
        found: list[tuple[Any, Any]] = []
        for name in entry.annotations:
            path = file_access.path_within(self.source.data_dir, name)
            try:
                content = files.read(path, shapes.MAX_MASK_FILE)
            except OSError as error:
                content = UnusableError('bad_mask', f'cannot be read: {error}')
            found.append((os.path.basename(name), content))
        if entry.image['instances']:
            found = [item for each in found for item in self._instances(*each)]
        path = file_access.path_within(self.source.data_dir, entry.image['file_name'])
        return ImageAnnotations(
            file_name=entry.image['file_name'],
            source_id=entry.image['id'],
            annotations=found,
            paths=(path,),
        )

    def read_object(
        self, annotation: Any, file: ImageFile, *, rasterize: bool = True
    ) -> AnnotatedObject:
        if isinstance(annotation, UnusableError):
            raise annotation
        if isinstance(annotation, bytes):
            mask = _plain(image_files.decode(annotation, self.max_pixels)) > 0
        else:
            mask = annotation.pixels == annotation.value
        [label] = self.labels.values()
        return shapes.of_mask(label, mask, file, rasterize=rasterize)

    def _instances(self, name: str, content: Any) -> list[tuple[Any, Any]]:
        """Returns an annotation for each value of a mask but 0."""
        try:
            if isinstance(content, UnusableError):
                raise content
            pixels = _plain(image_files.decode(content, self.max_pixels))
            values = np.unique(pixels)
            values = values[values > 0]
            if len(values) > _MAX_INSTANCES:
                text = f'has {len(values)} values; expected at most {_MAX_INSTANCES}'
                raise UnusableError('bad_mask', text)
        except UnusableError as error:
            return [(name, error)]
        return [(f'{name} {value}', _Mask(pixels, int(value))) for value in values]


def _plain(pixels: np.ndarray) -> np.ndarray:
    """Returns the values of a mask, [H, W], of one channel, or coloured with or without alpha."""
    if pixels.ndim == 2:
        return pixels.astype(np.uint8) if pixels.dtype == bool else pixels
    colors = pixels[..., :3] if pixels.shape[2] > 2 else pixels[..., :1]
    shifts = np.arange(colors.shape[2], dtype=np.uint32) * 8
    return (colors.astype(np.uint32) << shifts).sum(-1, dtype=np.uint32)
