"""The Oxford-IIIT Pet data set: XML files with boxes of faces, trimaps of full bodies.

The class is the breed, the file name without its number.
"""

import dataclasses
import io
import os
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
from PIL import Image

from object_detection.data import annotation_checks, file_access, image_files
from object_detection.data.annotated_image import AnnotatedObject, ImageAnnotations, Provided
from object_detection.data.file_access import Files
from object_detection.data.formats import csv_files, shapes, voc
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
from object_detection.errors import UnusableError, UserError

_LIST = 'annotations/trainval.txt'
_XML_FOLDER = 'annotations/xmls'
_TRIMAP_FOLDER = 'annotations/trimaps'
_BACKGROUND = 2  # in trimaps; 1 is the pet, and 3 its border
_SETS = ('', 'train', 'val')
_TRAIN_SHARE, _SEED = 0.7, 42
_MAX_LIST = 16 << 20  # bytes


@dataclasses.dataclass(frozen=True)
class PetsSource(Source):
    """The Oxford-IIIT Pet data set.

    Attributes:
      data_dir: folder of `images` and `annotations`.
      split: 'train' reads 70 % of the images of annotations/trainval.txt, drawn at random as the
        reference system draws them, 'val' the others, '' all.
      bodies: whether boxes and masks are those of full bodies, from the trimaps; otherwise boxes
        are those of the faces.
    """

    data_dir: str = option('', 'Folder of images and annotations.', required=True)
    split: str = option('', 'train (70 %) or val; by default all images.', flag='set')
    bodies: bool = option(
        False, 'Boxes and masks of the full bodies, in place of boxes of the faces.'
    )

    def open(self, files: Files, label_map: LabelMap | None) -> DataSet:
        if self.split not in _SETS:
            raise UserError(f'--set: expected train or val. Received: {self.split}.')
        breeds = {_breed(stem) for stem in self._stems(files)}
        labels = formats_source.number_classes(sorted(breeds, key=str.lower), label_map)
        num_images = sum(1 for _ in self.entries(files))
        folder = file_access.join(self.data_dir, 'images')
        unlisted = file_access.unlisted(folder, self._stems(files), files)
        return DataSet(PetsReader(self, labels), num_images, labels, unlisted=unlisted)

    def entries(self, files: Files) -> Iterator[ImageEntry]:
        stems = self._stems(files)
        random.Random(_SEED).shuffle(stems)
        num_train = int(_TRAIN_SHARE * len(stems))
        parts = {'': stems, 'train': stems[:num_train], 'val': stems[num_train:]}
        for stem in parts[self.split]:
            yield ImageEntry({'id': stem, 'file_name': f'{stem}.jpg'}, [])

    @classmethod
    def detect(cls, folder: str, files: Files) -> list[Found]:
        if not all(files.exists(file_access.join(folder, name)) for name in (_LIST, _XML_FOLDER)):
            return []
        return [
            Found(name, cls(data_dir=folder, split=name), f'{_LIST} and {_XML_FOLDER}')
            for name in ('train', 'val')
        ]

    def _stems(self, files: Files) -> list[str]:
        path = file_access.join(self.data_dir, _LIST)
        file_access.check_exists(path, 'list of images', files)
        names = (words[0] for _, words in csv_files.words(path, files, _MAX_LIST))
        stems = [name for name in names if not name.startswith('#')]
        if not stems:
            raise UserError(f'{path}: expected names of images. Received: none.')
        return stems


@dataclasses.dataclass(frozen=True)
class PetsReader(SourceReader[PetsSource]):
    """Reads images, see `SourceReader`; labels by the breed."""

    @property
    def provided(self) -> Provided:
        return Provided(masks=self.source.bodies, details=voc.DETAILS)

    def annotations(self, entry: ImageEntry, files: Files) -> ImageAnnotations:
        stem, name = entry.image['id'], entry.image['file_name']
        annotation = csv_files.read(self._path(_XML_FOLDER, f'{stem}.xml'), files)
        body = None
        if self.source.bodies:
            path = self._path(_TRIMAP_FOLDER, f'{stem}.png')
            body = read_trimap(files.read(path), path, self.max_pixels)
        folder = file_access.join(self.source.data_dir, 'images')
        found = file_access.image_paths(folder, name, key=_LIST)
        return ImageAnnotations(
            file_name=name,
            source_id=name,
            annotations=[
                (number, (stem, item, body))
                for number, item in enumerate(annotation.iterfind('object'))
            ],
            paths=found.paths,
            path_note=found.note,
            stated_size=voc.stated_size(annotation),
        )

    def read_object(
        self, annotation: Any, file: ImageFile, *, rasterize: bool = True
    ) -> AnnotatedObject:
        stem, item, body = annotation
        label = formats_source.label_of(_breed(stem), self.labels)
        details = voc.details_of(item)
        if body is None:
            return shapes.of_box(label, voc.corners_of(item), file, details=details)
        found = shapes.of_mask(label, body, file, rasterize=rasterize)
        # The last pixels themselves, like the reference system, and not their outer edges.
        ends = np.rint(np.multiply(found.box, (file.height, file.width) * 2)) - [0, 0, 1, 1]
        box, _ = annotation_checks.check_box(*ends.tolist(), file)
        return found._replace(box=box, details=details)

    def _path(self, folder: str, name: str) -> str:
        return file_access.path_within(
            file_access.join(self.source.data_dir, folder), name, 'trainval.txt'
        )


def _breed(stem: str) -> str:
    """Returns the class of an image: 'american_bulldog' for american_bulldog_203."""
    return os.path.basename(stem).rpartition('_')[0]


def read_trimap(encoded: bytes, path: str, max_pixels: int) -> np.ndarray:
    """Returns where the pet or its border is, bool [H, W].

    Raises:
      UnusableError: if the file cannot be decoded, or has too many pixels.
    """
    try:
        image_files.check(encoded, max_pixels)
        with Image.open(io.BytesIO(encoded), formats=('PNG',)) as image:
            pixels = np.asarray(image)
    except Exception as error:
        raise UnusableError('bad_annotations', f'{path}: {error}') from error
    if pixels.ndim != 2:
        raise UnusableError('bad_annotations', f'{path}: expected one channel')
    return pixels != _BACKGROUND
