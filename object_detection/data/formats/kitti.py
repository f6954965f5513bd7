"""The object detection data set of KITTI: one text file an image, with a line for each object.

A line is `TYPE TRUNCATED OCCLUDED ALPHA LEFT TOP RIGHT BOTTOM HEIGHT WIDTH LENGTH X Y Z ROTATION`.
Types are written in small letters here, as the reference system does.
"""

import dataclasses
from collections.abc import Iterator

import numpy as np

from object_detection.core import tf_example_keys as keys
from object_detection.data import file_access
from object_detection.data.annotated_image import (
    NOT_WANTED,
    AnnotatedObject,
    ImageAnnotations,
    Provided,
    not_converted,
)
from object_detection.data.file_access import Files
from object_detection.data.formats import csv_files, shapes
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

# The areas in which objects were not annotated.
_DONT_CARE = 'dontcare'
_TYPES = (
    *('car', 'van', 'truck', 'pedestrian', 'person_sitting', 'cyclist', 'tram', 'misc'),
    _DONT_CARE,
)
# Where the two downloads are unpacked.
_IMAGE_FOLDERS = ('data_object_image_2/training/image_2', 'training/image_2')
_LABEL_FOLDERS = ('training/label_2', 'data_object_label_2/training/label_2')
_SETS = ('', 'train', 'val')
_MAX_LABELS = 8 << 20  # bytes of the file of one image
_NUM_COLUMNS = 15
_MAX_NUMBER = 1e9
_DETAILS = {
    keys.TRUNCATED: 1,
    keys.OCCLUDED: 2,
    keys.ALPHA: 3,
    keys.HEIGHT_3D: 8,
    keys.WIDTH_3D: 9,
    keys.LENGTH_3D: 10,
    keys.X_3D: 11,
    keys.Y_3D: 12,
    keys.Z_3D: 13,
    keys.ROTATION_3D: 14,
}


@dataclasses.dataclass(frozen=True)
class KittiSource(Source):
    """The data set of KITTI.

    Attributes:
      data_dir: folder of `training/label_2`, and of `data_object_image_2/training/image_2` or
        `training/image_2`.
      classes: the types that are read, separated by commas; '' reads all of KITTI and those that
        the label map names. With dontcare, the objects that overlap with an area of this type are
        left out.
      split: 'val' reads the images whose number is below `validation_set_size`, 'train' the others,
        '' all.
      validation_set_size: see `split`.
    """

    data_dir: str = option('', 'Folder of training/label_2 and training/image_2.', required=True)
    classes: str = option(
        '',
        'Types to read, separated by commas; by default all. With dontcare, objects that overlap '
        'with such an area are left out.',
        flag='classes_to_use',
    )
    split: str = option(
        '',
        'val takes the images with a number below --validation_set_size, train the others; by '
        'default all.',
        flag='set',
    )
    validation_set_size: int = option(500, 'Number of the first image of the set train.')

    def open(self, files: Files, label_map: LabelMap | None) -> DataSet:
        if self.split not in _SETS:
            raise UserError(f'--set: expected train or val. Received: {self.split}.')
        # Other programs write other types, which a label map can name.
        named = {text.lower(): text for text in label_map.text_to_id} if label_map else {}
        known = tuple(dict.fromkeys((*_TYPES, *named)))
        types = self._types() or known
        if unknown := {*types} - {*known}:
            what = f'types of {", ".join(_TYPES)}, or classes of --label_map'
            raise expected('--classes_to_use', what, ', '.join(sorted(unknown)))
        names = [named.get(name, name) for name in types if name != _DONT_CARE]
        labels = formats_source.number_classes(names, label_map)
        labels = {name.lower(): label for name, label in labels.items()}
        num_images = sum(1 for _ in self.entries(files))
        if not num_images:
            raise UserError(f'{self.data_dir}: the set {self.split!r} has no images.')
        return DataSet(KittiReader(self, labels, types=types), num_images, labels)

    def entries(self, files: Files) -> Iterator[ImageEntry]:
        images = self._folder(_IMAGE_FOLDERS, files)
        labels = self._folder(_LABEL_FOLDERS, files)
        names = [name for name in files.list(images) if file_access.is_image(name)]
        texts = {
            file_access.without_suffix(name): name
            for name in files.list(labels)
            if file_access.has_suffix(name, '.txt')
        }
        # The image of a label file may be missing, which is counted.
        images_of = {*map(file_access.without_suffix, names)}
        names += [f'{stem}.png' for stem in sorted({*texts} - images_of)]
        for position, name in enumerate(names):
            stem = file_access.without_suffix(name)
            number = int(stem) if stem.isdecimal() else position
            is_val = number < self.validation_set_size
            if self.split in ('', 'val' if is_val else 'train'):
                paths = {
                    'path': file_access.join(images, name),
                    'labels': file_access.join(labels, texts.get(stem, f'{stem}.txt')),
                }
                yield ImageEntry({'id': stem, 'file_name': name, **paths}, [])

    @classmethod
    def detect(cls, folder: str, files: Files) -> list[Found]:
        found = [
            [name for name in names if files.list(file_access.join(folder, name))]
            for names in (_IMAGE_FOLDERS, _LABEL_FOLDERS)
        ]
        if not all(found):
            return []
        return [Found('', cls(data_dir=folder), f'{found[1][0]}/*.txt')]

    def _types(self) -> tuple[str, ...]:
        given = [name.strip().lower() for name in self.classes.split(',')]
        return tuple(filter(None, given))

    def _folder(self, names: tuple[str, ...], files: Files) -> str:
        for name in names:
            path = file_access.join(self.data_dir, name)
            if files.exists(path):
                return path
        raise FileNotFoundError(f'{self.data_dir}: there is no folder {" or ".join(names)}.')


@dataclasses.dataclass(frozen=True)
class KittiReader(SourceReader[KittiSource]):
    """Reads images, see `SourceReader`; labels by the type, without dontcare.

    Attributes:
      types: types that are read.
    """

    types: tuple[str, ...] = ()

    provided = Provided(
        details={keys.DIFFICULT: int}
        | {key: int if key == keys.OCCLUDED else float for key in _DETAILS}
    )

    def annotations(self, entry: ImageEntry, files: Files) -> ImageAnnotations:
        lines = csv_files.words(entry.image['labels'], files, _MAX_LABELS)
        areas = []
        if _DONT_CARE in self.types:
            areas = [_box(words) for _, words in lines if words[0].lower() == _DONT_CARE]
        name = entry.image['file_name']
        return ImageAnnotations(
            file_name=name,
            source_id=name,
            annotations=[(i, (words, areas)) for i, words in lines],
            paths=(entry.image['path'],),
            notes=not_converted(
                f'column {_NUM_COLUMNS + 1}' for _, words in lines if words[_NUM_COLUMNS:]
            ),
        )

    def object_of(
        self, annotation: tuple[list[str], list[np.ndarray]], file: ImageFile
    ) -> AnnotatedObject:
        words, areas = annotation
        name = words[0].lower()
        if name not in self.types or name == _DONT_CARE:
            known = name in _TYPES
            raise UnusableError(NOT_WANTED if known else 'unknown_category', name[:100])
        label = formats_source.label_of(name, self.labels)
        xmin, ymin, xmax, ymax = _box(words).tolist()
        said = f'left, top, right, bottom are {" ".join(words[4:8])}'
        found = shapes.of_box(label, (ymin, xmin, ymax, xmax), file, said)
        for left, top, right, bottom in areas:
            if min(xmax, right) > max(xmin, left) and min(ymax, bottom) > max(ymin, top):
                raise UnusableError(NOT_WANTED, f'{name} in an area of {_DONT_CARE}')
        numbers = _numbers(words)
        details = {keys.DIFFICULT: 0} | {key: numbers[i] for key, i in _DETAILS.items()}
        return found._replace(details=details)


def _box(words: list[str]) -> np.ndarray:
    """Returns left, top, right and bottom, float64 [4], in pixels."""
    return np.array(_numbers(words)[4:8])


def _numbers(words: list[str]) -> list[float]:
    """Returns the columns of a line; that of the type is 0.

    Raises:
      UnusableError: if it has too few columns, or one is not a number.
    """
    try:
        numbers = [0.0, *map(float, words[1:])]
    except ValueError as error:
        raise UnusableError('bad_box', f'expected numbers: {" ".join(words)[:200]}') from error
    if not all(abs(number) < _MAX_NUMBER for number in numbers):  # NaN is not below either.
        raise UnusableError('bad_box', f'expected finite numbers: {" ".join(words)[:200]}')
    if len(numbers) < _NUM_COLUMNS:
        raise UnusableError('bad_box', f'expected {_NUM_COLUMNS} columns, received {len(numbers)}')
    return numbers
