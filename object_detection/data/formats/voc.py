"""Data sets in PASCAL VOC format: one XML file an image, and lists of the images of each set.

A pixel of a file of SegmentationObject has the number of its object in the XML file, from 1 on; 0
is background, and 255 the border of objects. Some tools write colours of VOC's palette.
"""

import dataclasses
import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from lxml import etree

from object_detection.core import tf_example_keys as keys
from object_detection.data import annotated_image, file_access, image_files
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
from object_detection.errors import UnusableError, UserError, expected, format_list

_YEARS = ('VOC2007', 'VOC2012')
_SETS, _SETS_WITH_MASKS = 'ImageSets/Main', 'ImageSets/Segmentation'
_MASKS = 'SegmentationObject'
_BORDER = 255
_UNDRAWN = f'image without a file in {_MASKS} (--masks)'
_UNKNOWN = f'number in {_MASKS} of no object'
# Names of the folders; '.' is for XML files beside their images.
_ANNOTATION_FOLDERS = ('Annotations', 'annotations', '.')
_IMAGE_FOLDERS = ('JPEGImages', 'images', 'Images', '.')
_MAX_LIST = 64 << 20  # bytes of a list of images
_HEAD = 1 << 10
# The elements of objects that are read.
_READ = ('name', 'bndbox', 'difficult', 'truncated', 'pose')
# The further values of objects.
DETAILS = {keys.DIFFICULT: int, keys.TRUNCATED: int, keys.VIEW: str}


@dataclasses.dataclass(frozen=True)
class VocSource(Source):
    """A data set in PASCAL VOC format.

    Attributes:
      data_dir: folder of the data set.
      year: folder in it, such as VOC2007; 'merged' reads VOC2007 and VOC2012. '' if `data_dir`
        itself holds the folders of annotations and images.
      split: list of the images, ImageSets/Main/SPLIT.txt; '' reads all annotations.
      annotations_dir: folder of the XML files, in that of the year.
      images_dir: folder of the images, in that of the year.
      ignore_difficult: whether objects that are marked as difficult are left out.
      masks: whether masks are written, of the images with a file in SegmentationObject; `split` is
        then the list ImageSets/Segmentation/SPLIT.txt, if there is one.
    """

    data_dir: str = option('', 'Folder of the data set.', required=True)
    year: str = option(
        '', "Folder in it, such as VOC2007; 'merged' reads VOC2007 and VOC2012 as one."
    )
    split: str = option(
        '', 'List of images, ImageSets/Main/SET.txt; by default all images.', flag='set'
    )
    annotations_dir: str = option('Annotations', 'Folder of the XML files.')
    images_dir: str = option('JPEGImages', 'Folder of the images.')
    ignore_difficult: bool = option(False, 'Leave out objects that are marked as difficult.')
    masks: bool = option(
        False,
        'Write the masks of SegmentationObject; images without are left out, and lists are those '
        'of ImageSets/Segmentation.',
    )

    def open(self, files: Files, label_map: LabelMap | None) -> DataSet:
        if self.masks and not any(_drawn(root, files) for root in self._roots()):
            raise expected(self.data_dir, f'masks in a folder {_MASKS}', 'none')
        images = [entry.image['file_name'] for entry in self.entries(files)]
        # All files, so that the label maps of all sets agree.
        names = label_map.text_to_id if label_map else self._class_names(files)
        labels = formats_source.number_classes(names, label_map, sort=True)
        unlisted: list[str] = []
        # A list leaves images to other sets.
        for root in [] if self.split else self._roots():
            folder = file_access.join(root, self.images_dir)
            unlisted += file_access.unlisted(folder, images, files)
        lost = [] if self.split or not self.masks else self._without_masks(files)
        return DataSet(
            VocReader(self, labels),
            len(images),
            labels,
            unlisted=unlisted,
            notes=not_converted(_UNDRAWN for _ in lost),
        )

    def entries(self, files: Files) -> Iterator[ImageEntry]:
        for root in self._roots():
            drawn = _drawn(root, files) if self.masks else set()
            for name in self._names(root, files):
                stem = file_access.without_suffix(name)
                path = file_access.path_within(
                    file_access.join(root, self.annotations_dir), name, 'the list of images'
                )
                problem = ()
                if self.masks and stem not in drawn:
                    # The list of a set with masks is a promise; a folder of XML files is none.
                    if not self.split:
                        continue
                    problem = (formats_source.NOT_ANNOTATED, f'there is no {_MASKS}/{stem}.png')
                image = {'id': stem, 'file_name': name, 'path': path, 'root': root}
                yield ImageEntry(image, [], problem)

    @classmethod
    def detect(cls, folder: str, files: Files) -> list[Found]:
        years = [year for year in _YEARS if _folder_of_xml(file_access.join(folder, year), files)]
        root = file_access.join(folder, years[0]) if years else folder
        annotations = _folder_of_xml(root, files)
        if not annotations:
            return []
        made = cls(
            data_dir=folder,
            year='merged' if len(years) > 1 else ''.join(years),
            annotations_dir=annotations,
            images_dir=_image_folder(root, files),
        )
        listed = made._sets(root, files)
        sets = [name for name in listed if not _is_of_class(root, name, listed, files)]
        if {'train', 'val'} <= {*sets}:
            sets = [name for name in sets if name != 'trainval']
        reason = f'{annotations}/*.xml with <annotation>'
        if any(_drawn(each, files) for each in made._roots()):
            if made._without_masks(files):
                reason += f'; --masks reads {_MASKS}'
            else:
                made = dataclasses.replace(made, masks=True)
        return [Found(name, dataclasses.replace(made, split=name), reason) for name in sets or ['']]

    def _roots(self) -> list[str]:
        if self.year == 'merged':
            return [file_access.join(self.data_dir, year) for year in _YEARS]
        return [file_access.join(self.data_dir, self.year) if self.year else self.data_dir]

    def _without_masks(self, files: Files) -> list[str]:
        """Returns the names of the XML files of images without a file of masks."""
        found = []
        for root in self._roots():
            drawn = _drawn(root, files)
            names = _xml_files(file_access.join(root, self.annotations_dir), files)
            found += [name for name in names if file_access.without_suffix(name) not in drawn]
        return found

    def _names(self, root: str, files: Files) -> list[str]:
        """Returns the names of the XML files of the set, which may be in folders."""
        folder = file_access.join(root, self.annotations_dir)
        if not files.exists(folder):
            raise FileNotFoundError(
                f'There is no folder {folder}; expected one of XML files. It is '
                '`annotations_dir` below `year` below `data_dir`.'
            )
        if self.split:
            return [f'{stem}.xml' for stem in self._listed(root, files)]
        names = _xml_files(folder, files)
        if not names:
            raise UserError(f'{folder}: expected XML files. Received: none.')
        return names

    def _listed(self, root: str, files: Files) -> list[str]:
        # The lists of each class name all images; the original data set has no others.
        names = [(_SETS, self.split), (_SETS, f'aeroplane_{self.split}')]
        if self.masks:
            names.insert(0, (_SETS_WITH_MASKS, self.split))
        for folder, name in names:
            path = file_access.join(root, folder, f'{name}.txt')
            if files.exists(path):
                return [words[0] for _, words in csv_files.words(path, files, _MAX_LIST)]
        raise FileNotFoundError(
            f'There is no list of images {file_access.join(root, _SETS, self.split)}.txt. '
            f'Sets in its folder: {format_list(self._sets(root, files)) or "none"}.'
        )

    def _sets(self, root: str, files: Files) -> list[str]:
        names = files.list(file_access.join(root, _SETS))
        return [name[: -len('.txt')] for name in names if name.endswith('.txt')]

    def _class_names(self, files: Files) -> set[str]:
        names = set()
        for root in self._roots():
            folder = file_access.join(root, self.annotations_dir)
            for name in _xml_files(folder, files):
                try:
                    annotation = csv_files.read(file_access.join(folder, name), files)
                # The conversion counts it.
                except (OSError, UnusableError):
                    continue
                names |= {csv_files.text(item, 'name') for item in annotation.iterfind('object')}
        return names


@dataclasses.dataclass(frozen=True)
class VocReader(SourceReader[VocSource]):
    """Reads images, see `SourceReader`; labels by the name of a class."""

    @property
    def provided(self) -> Provided:
        return Provided(masks=self.source.masks, details=DETAILS)

    def annotations(self, entry: ImageEntry, files: Files) -> ImageAnnotations:
        annotation = _read(entry.image['path'], files)
        folder = file_access.join(entry.image['root'], self.source.images_dir)
        below, stem = os.path.split(entry.image['id'])
        name = csv_files.text(annotation, 'filename', f'{stem}.jpg')
        found = file_access.image_paths(folder, name, stem, key='filename')
        self._check_name(entry, folder, name, found.paths, files)
        # Images may have the folders of their XML files.
        inner = file_access.image_paths(folder, name, stem, below=below) if below else None
        is_inner = inner and file_access.first_that_exists(inner.paths, files)
        objects = annotation.findall('object')
        annotations: list[tuple[Any, Any]] = [*enumerate(objects)]
        unknown = 0
        if self.source.masks:
            pixels = self._pixels(entry, files)
            annotations = [(i, _Drawn(item, pixels == i + 1)) for i, item in annotations]
            unknown = len({*np.unique(pixels)} - {*range(len(objects) + 1), _BORDER})
        return ImageAnnotations(
            file_name=name,
            source_id=f'{below}/{name}' if is_inner else name,
            annotations=annotations,
            paths=inner.paths if is_inner else found.paths,
            path_note=found.note,
            stated_size=stated_size(annotation),
            notes=not_converted(
                [item.tag for item in annotation.iterfind('object/*') if _is_unread(item)]
                + [_UNKNOWN] * unknown
            ),
        )

    def _pixels(self, entry: ImageEntry, files: Files) -> np.ndarray:
        """Returns the numbers of the objects, uint8 [H, W]."""
        path = file_access.join(entry.image['root'], _MASKS, f'{entry.image["id"]}.png')
        content = files.read(path, shapes.MAX_MASK_FILE)
        pixels = image_files.decode(content, self.max_pixels)
        return pixels if pixels.ndim == 2 else _of_colors(pixels)

    def _check_name(
        self, entry: ImageEntry, folder: str, name: str, paths: Sequence[str], files: Files
    ) -> None:
        """Raises an UnusableError if an XML file names the image of another one.

        Its objects may be those of either, as after files were renamed and their contents were not.
        """
        stem = entry.image['id']
        named = file_access.without_suffix(name.replace('\\', '/'))
        if os.path.basename(named).lower() == os.path.basename(stem).lower():
            return
        own = file_access.image_paths(folder, '', stem).paths
        named_file = file_access.first_that_exists(
            [path for path in paths if path not in own], files
        )
        if not named_file:
            return
        other = file_access.join(os.path.dirname(entry.image['path']), f'{named}.xml')
        for path in (file_access.first_that_exists(own, files), other):
            if path and files.exists(path):
                text = f'<filename> is {name}, but there is {path} too; correct it'
                raise UnusableError(formats_source.DUPLICATE, text)

    def read_object(
        self, annotation: Any, file: ImageFile, *, rasterize: bool = True
    ) -> AnnotatedObject:
        if not isinstance(annotation, _Drawn):
            return self.object_of(annotation, file)
        found = self.object_of(annotation.item, file)
        drawn = shapes.of_mask(found.label, annotation.mask, file, rasterize=rasterize)
        return found._replace(mask=drawn.mask, area=drawn.area)

    def object_of(self, annotation: etree._Element, file: ImageFile) -> AnnotatedObject:
        if self.source.ignore_difficult and _flag(annotation, 'difficult'):
            raise UnusableError(NOT_WANTED, 'difficult')
        label = formats_source.label_of(csv_files.text(annotation, 'name'), self.labels)
        return shapes.of_box(label, corners_of(annotation), file, details=details_of(annotation))


class _Drawn(NamedTuple):
    """An object and its mask, bool [H, W]."""

    item: etree._Element
    mask: np.ndarray


def _drawn(root: str, files: Files) -> set[str]:
    """Returns the names without suffix of the files of masks."""
    names = files.list(file_access.join(root, _MASKS), recursive=True)
    return {file_access.without_suffix(name) for name in names if name.endswith('.png')}


def _of_colors(pixels: np.ndarray) -> np.ndarray:
    """Returns the numbers, uint8 [H, W], of colours of VOC's palette, uint8 [H, W, 3 or 4].

    The bits of a number go to red, green and blue in turns, the lowest first, and the highest bit
    of a colour is filled first.
    """
    numbers = np.zeros(pixels.shape[:2], np.uint8)
    for bit in range(8):
        numbers |= (pixels[..., bit % 3] >> (7 - bit // 3) & 1) << bit
    return numbers


def _xml_files(folder: str, files: Files) -> list[str]:
    names = files.list(folder, recursive=True)
    return [name for name in names if file_access.has_suffix(name, '.xml')]


def _read(path: str, files: Files) -> etree._Element:
    try:
        return csv_files.read(path, files)
    except OSError:
        # A list does not say the letters of the suffix.
        upper = file_access.without_suffix(path) + '.XML'
        if not files.exists(upper):
            raise
        return csv_files.read(upper, files)


def corners_of(item: etree._Element) -> list[float]:
    """Returns (ymin, xmin, ymax, xmax) of an object, in pixels.

    They are taken as they are, like the reference system does, although the pixels of PASCAL VOC
    count from 1.

    Raises:
      UnusableError: if one is absent or not a number.
    """
    corners = item.find('bndbox')
    if corners is None:
        raise UnusableError('bad_box', 'object has no bndbox')
    sides = ('ymin', 'xmin', 'ymax', 'xmax')
    return [shapes.number(csv_files.text(corners, side), f'bndbox.{side}') for side in sides]


def details_of(item: etree._Element) -> dict[str, int | str]:
    """Returns the further values of an object, by the keys of `DETAILS`."""
    return {
        keys.DIFFICULT: _flag(item, 'difficult'),
        keys.TRUNCATED: _flag(item, 'truncated'),
        keys.VIEW: csv_files.text(item, 'pose'),
    }


def _is_unread(item: etree._Element) -> bool:
    """Whether an element of an object says something for which examples have no place."""
    is_empty = not len(item) and (item.text or '').strip() in ('', '0', 'Unspecified')
    return not is_empty and item.tag not in _READ


def stated_size(annotation: etree._Element) -> tuple[int | None, int | None]:
    """Returns (height, width) of the image; None for a side that is absent or 0.

    Raises:
      UnusableError: if a side is not a whole number.
    """
    sides = ('size/height', 'size/width')
    texts = {side: csv_files.text(annotation, side) for side in sides}
    return annotated_image.stated_size(texts, *sides)


def _flag(item: etree._Element, name: str) -> int:
    """Returns 0 or 1; 0 if there is no such element. Some tools write 'true' or 'Unspecified'."""
    return int(csv_files.text(item, name, '0').lower() in ('1', 'true', 'yes'))


def _is_of_class(root: str, name: str, listed: list[str], files: Files) -> bool:
    """Whether a list is one of a class, such as cat_train, which says which images have it."""
    if any(name.endswith(f'_{other}') for other in listed):
        return True
    if '_' not in name:
        return False
    path = file_access.join(root, _SETS, f'{name}.txt')
    first = files.head(path, _HEAD).decode(errors='replace').strip().partition('\n')[0]
    return first.split()[1:] in (['1'], ['0'], ['-1'])


def _folder_of_xml(root: str, files: Files) -> str:
    """Returns the folder below `root` of XML files that are annotations; '' if there is none."""
    for name in _ANNOTATION_FOLDERS:
        folder = file_access.join(root, name)
        listed = files.list(folder)
        first = next((item for item in listed if file_access.has_suffix(item, '.xml')), None)
        if first is None:
            continue
        try:
            annotation = csv_files.read(file_access.join(folder, first), files)
        except (OSError, UnusableError):
            continue
        if annotation.tag == 'annotation' and annotation.find('filename') is not None:
            return name
    return ''


def _image_folder(root: str, files: Files) -> str:
    for name in _IMAGE_FOLDERS:
        names = files.list(file_access.join(root, name))
        if any(map(file_access.is_image, names)):
            return name
    return _IMAGE_FOLDERS[0]
