"""Makes examples from images and their annotations on demand, without converting them.

Each example is bytewise equal to the output of the conversion to TFRecords.

Opens a COCO annotation file and a folder of images as `ImageRecords`.
"""

import array
import functools
import json
import logging
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from object_detection.data import (
    annotated_image,
    annotation_checks,
    annotation_notes,
    file_access,
    label_map,
    tf_examples,
)
from object_detection.data.annotated_image import AnnotatedObject, ClassLabel, ImageAnnotations
from object_detection.data.annotation_notes import LeftOutLog
from object_detection.data.coco import annotations as coco_annotations
from object_detection.data.coco import keypoints as coco_keypoints
from object_detection.data.coco.annotations import Classes
from object_detection.data.coco.examples import CLASS_LISTS, Contents
from object_detection.data.file_access import LocalFiles
from object_detection.data.formats import source as formats_source
from object_detection.data.formats.coco import CocoReader, Scan
from object_detection.data.formats.source import DataSet, ImageEntry, Source
from object_detection.data.image_files import MAX_PIXELS, ImageFile
from object_detection.errors import DataError, UnusableError, UserError, format_list

_log = logging.getLogger(__name__)

_FILES = LocalFiles()


class ImageFileError(DataError):
    """An image is missing, or does not match its annotations."""


class Entries:
    """The entries of a data set, in its order.

    They are stored as JSON, which takes as much memory as the text; Python objects would take
    several times as much.
    """

    def __init__(self, entries: Iterable[ImageEntry]):
        self._images, self._annotations = _Packed(), _Packed()
        for entry in entries:
            self._images.append(entry.image)
            self._annotations.append(entry.annotations)

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int) -> ImageEntry:
        return ImageEntry(self.image(index), self._annotations[index])

    def image(self, index: int) -> dict[str, Any]:
        """Returns the entry of an image without its annotations."""
        return self._images[index]


class _Packed:
    """A list of JSON values, stored as one text and their start positions."""

    def __init__(self):
        self._text, self._starts = bytearray(), array.array('q', [0])

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, index: int) -> Any:
        start, end = self._starts[index : index + 2]
        return json.loads(self._text[start:end])

    def append(self, value: Any) -> None:
        self._text += json.dumps(value, separators=(',', ':')).encode()
        self._starts.append(len(self._text))


class ImageRecords:
    """The examples of one data set.

    Args:
      path: names the data set in messages.
      entries: its images.
      data: the opened data set.
    """

    def __init__(self, path: str, entries: Entries, data: DataSet):
        self.path = path
        self.entries = entries
        self.data = data
        self._reader = data.reader
        self._left_out = LeftOutLog(path, len(entries))

    def __len__(self) -> int:
        return len(self.entries)

    def example(self, index: int) -> bytes:
        """Returns the serialized tf.train.Example of an image.

        Annotations that cannot be used are left out, which is logged, see `LeftOutLog`.

        Raises:
          ImageFileError: if a file cannot be read, or its format or size is wrong; the message
            names the file and the image's id. The image itself is not decoded.
        """
        entry = self.entries[index]
        said = self._annotations(entry)
        file = self._image_file(entry, said)
        result = annotated_image.annotate(
            file, said, self._reader.read_object, self._reader.provided
        )
        self._left_out.add(index, entry.image['id'], result.problems, result.notes)
        return tf_examples.to_example(result.image)

    def objects(self, index: int) -> tuple[list[AnnotatedObject], list[str], dict[str, int]]:
        """Checks the annotations of an image, without decoding masks.

        Returns:
          The usable objects, a sentence without a full stop for each unusable annotation, and what
          `annotated_image.notes_of_boxes` counts.

        Raises:
          ImageFileError: if neither the annotations nor the image file give the size.
        """
        entry = self.entries[index]
        objects, problems, file = self._check_objects(entry)
        image_id = entry.image['id']
        sentences = [
            f'annotation {annotation_id} of image {image_id}: {error}'
            for annotation_id, error in problems
            if error.reason not in annotation_notes.ON_PURPOSE
        ]
        boxes = np.array([item.box for item in objects], np.float64).reshape(-1, 4)
        is_clipped = np.array([item.is_clipped for item in objects], bool)
        of_boxes = annotated_image.notes_of_boxes(boxes, is_clipped, file.height, file.width)
        return objects, sentences, of_boxes

    def usable(
        self, rows: np.ndarray, *, known: Collection[str] | None, skip_crowd: bool
    ) -> np.ndarray:
        """Finds the images with an object that training can use, without decoding masks.

        Args:
          rows: int [n], indices of images.
          known: texts of the classes that are trained on; None for all classes.
          skip_crowd: whether crowds do not count as objects.

        Returns:
          bool [n]; true for an image that cannot be read, which training reports and skips.
        """
        labels = (self._labels(index, known, skip_crowd) for index in rows)
        return np.fromiter((found is None or bool(found) for found in labels), bool, len(rows))

    def classes(
        self, *, ids: Mapping[str, int] | None, skip_crowd: bool
    ) -> list[frozenset[int] | None]:
        """Returns the ids of the classes of the usable objects of each image; see `usable`.

        Args:
          ids: text -> id of the classes that are trained on; None for all, with their own ids.
          skip_crowd: whether crowds do not count as objects.

        Returns:
          A set for each image, None for one that cannot be read.
        """
        known = ids and {text for text, number in ids.items() if number > 0}
        labels = (self._labels(index, known, skip_crowd) for index in range(len(self)))
        return [
            found and frozenset(ids[each.text] if ids else each.label for each in found)
            for found in labels
        ]

    def _labels(
        self, index: int, known: Collection[str] | None, skip_crowd: bool
    ) -> frozenset[ClassLabel] | None:
        """Returns the labels of the usable objects of an image, None if it cannot be read."""
        try:
            objects, _, _ = self._check_objects(self.entries[index])
        except ImageFileError:
            return None

        def is_usable(item: AnnotatedObject) -> bool:
            # Rounded as in examples, since rounding may remove the area of a box.
            ymin, xmin, ymax, xmax = map(np.float32, item.box)
            is_known = known is None or item.label.text in known
            return is_known and not (skip_crowd and item.is_crowd) and ymin < ymax and xmin < xmax

        return frozenset(item.label for item in objects if is_usable(item))

    def image_ids(self) -> Iterator[Any]:
        """Yields the ids of the images."""
        for i in range(len(self)):
            yield self.entries.image(i)['id']

    def missing_images(self) -> Iterator[str]:
        """Yields a sentence without a full stop for each image whose file is missing."""
        listings = _Listings()
        for i in range(len(self)):
            entry = ImageEntry(self.entries.image(i), [])
            try:
                said = self._annotations(entry)
                if not said.embedded and not any(map(listings.has, said.paths)):
                    yield str(self._error(entry, 'does not exist', said))
            except ImageFileError as error:
                yield str(error)

    def file_name(self, index: int) -> str:
        """Returns the file of an image, or of its annotations, as the data set names it."""
        return str(self.entries.image(index)['file_name'])

    def _check_objects(
        self, entry: ImageEntry
    ) -> tuple[list[AnnotatedObject], list[tuple[Any, UnusableError]], ImageFile]:
        """Reads the objects of an image, with the stated size or that of the file."""
        said = self._annotations(entry)
        height, width = said.stated_size
        if height and width:
            file = ImageFile(b'', '', height, width)
        else:
            file = self._image_file(entry, said)
        read = functools.partial(self._reader.read_object, rasterize=False)
        return *annotated_image.read_objects(file, said.annotations, read), file

    def _annotations(self, entry: ImageEntry) -> ImageAnnotations:
        try:
            return formats_source.annotations_of(self._reader, entry, _FILES)
        except UnusableError as error:
            raise self._error(entry, str(error)) from error

    def _image_file(self, entry: ImageEntry, said: ImageAnnotations) -> ImageFile:
        try:
            encoded = formats_source.read_image_file(said, _FILES)
            return annotation_checks.read_image(encoded, said.stated_size, self._reader.max_pixels)
        except UnusableError as error:
            raise self._error(entry, str(error), said) from error

    def _error(
        self, entry: ImageEntry, reason: str, said: ImageAnnotations | None = None
    ) -> ImageFileError:
        name = said.paths[0] if said and said.paths else entry.image['file_name']
        return ImageFileError(f'{name} (image {entry.image["id"]!r} of {self.path}) {reason}')


def load(source: Source, path: str, label_map_path: str) -> ImageRecords:
    """Opens a data set, or returns the cached one if it has not changed.

    Args:
      source: the data set.
      path: its folder or file, whose time of change is that of the data set.
      label_map_path: label map that numbers the classes by name; '' numbers them.

    Raises:
      OSError, ValueError: if it cannot be opened.
    """
    return _load(source, path, label_map_path, (version(path), version(label_map_path)))


# The number of data sets; validation, counting and reading of a config share them.
@functools.lru_cache(maxsize=16)
def _load(source: Source, path: str, label_map_path: str, versions: tuple) -> ImageRecords:
    del versions  # Part of the key.
    labels = label_map.load(label_map_path) if label_map_path else None
    data = source.open(_FILES, labels)
    entries = [*formats_source.entries_of(source, _FILES, data.reader)]
    texts = [f'{item.file_name}: {item.error}' for item in data.problems]
    texts += [f'{each.image["file_name"]}: {each.problem[1]}' for each in entries if each.problem]
    _warn_of_problems(path, texts)
    _warn_of_notes(path, data.notes)
    usable = Entries(entry for entry in entries if not entry.problem)
    return ImageRecords(path, usable, data)


def version(path: str) -> tuple:
    """Returns attributes that change with a file's content and are known without reading it."""
    if file_access.is_url(path) or not os.path.exists(path):
        return ()
    status = os.stat(path)
    return status.st_mtime_ns, status.st_size


class _Listings:
    """Finds files in cached lists of their folders, which is far faster than checking each file."""

    def __init__(self):
        self._names: dict[str, set[str]] = {}

    def has(self, path: str) -> bool:
        folder, name = os.path.split(path)
        if folder not in self._names:
            self._names[folder] = set(_FILES.list(folder))
        return name in self._names[folder]


# Keys that examples need; captions, URLs and licences would only take memory.
_IMAGE_KEYS = ('id', 'file_name', 'height', 'width', *CLASS_LISTS)
_ANNOTATION_KEYS = (
    *('id', 'category_id', 'bbox', 'area', 'iscrowd', 'segmentation'),
    *coco_keypoints.KEYPOINT_KEYS,
)


class Index(NamedTuple):
    """An annotation file: its entries, with the keys that examples need, and its categories."""

    entries: Entries
    categories: list[dict[str, Any]]
    names_are_alone: bool


def load_coco(
    image_dir: str,
    annotation_file: str,
    *,
    by_text: bool = False,
    label_map_path: str = '',
    masks: bool = False,
    keypoints: bool = False,
    max_pixels: int = MAX_PIXELS,
) -> ImageRecords:
    """Reads an annotation file, or uses the cached result if the file has not changed.

    Args:
      image_dir: folder of the images.
      annotation_file: COCO JSON file.
      by_text: whether classes are found by the categories' names in a label map, so that category
        ids need not be integers >= 1.
      label_map_path: the label map, for the lists of classes of images; '' takes the ids.
      masks: whether examples contain instance masks, as PNG.
      keypoints: whether examples contain the keypoints of all categories.
      max_pixels: maximum number of pixels of an image.

    Raises:
      ValueError: if the file cannot be read or is not a COCO JSON file; the message names it.
    """
    index = _index(annotation_file, version(annotation_file), masks)
    categories = index.categories
    try:
        labels = (
            {key: ClassLabel(0, text) for key, text in texts.items()}
            if by_text and (texts := coco_annotations.texts(categories))
            else coco_annotations.from_categories(categories)
        )
    except ValueError as error:
        raise UserError(f'{annotation_file}: {error}') from error
    layout = coco_keypoints.keypoint_layout(categories) if keypoints else None
    numbered = labels
    if label_map_path:
        numbered = coco_annotations.labels_of(categories, label_map.load(label_map_path))
    contents = Contents(
        Classes(labels),
        masks,
        layout,
        max_pixels=max_pixels,
        class_ids={key: label.label for key, label in numbered.items()},
    )
    reader = CocoReader(image_dir, contents, index.names_are_alone)
    entries = _with_own_files(annotation_file, version(annotation_file), masks, image_dir)
    data = DataSet(reader, len(entries), labels, keypoints=layout)
    return ImageRecords(annotation_file, entries, data)


# The number of cached files; validation, counting and reading of a config share them.
@functools.lru_cache(maxsize=16)
def _index(path: str, file_version: tuple, segmentations: bool) -> Index:
    del file_version  # Part of the key.
    keys = tuple(key for key in _ANNOTATION_KEYS if segmentations or key != 'segmentation')
    try:
        # The config says whether masks and keypoints are read.
        scan = Scan(
            path,
            _FILES,
            content=lambda annotation: _chosen(annotation, keys),
            read_keys=('segmentation', 'keypoints'),
        )
    except OSError as error:
        raise UserError(f'{path} cannot be read: {error}') from error
    found = [*scan.problems()]
    names = (item.file_name or f'annotation {item.annotation_id}' for item in found)
    pairs = zip(names, found, strict=True)
    _warn_of_problems(path, (f'{name}: {item.error}' for name, item in pairs))
    _warn_of_notes(path, scan.notes())
    entries = Entries(
        ImageEntry(_chosen(image, _IMAGE_KEYS), annotations) for image, annotations in scan.groups
    )
    return Index(entries, scan.categories, scan.groups.names_are_alone())


@functools.lru_cache(maxsize=16)
def _with_own_files(path: str, file_version: tuple, segmentations: bool, image_dir: str) -> Entries:
    """Returns the images of an annotation file, without those whose file another one has."""
    index = _index(path, file_version, segmentations)
    entries, reader = (
        index.entries,
        CocoReader(image_dir, Contents(coco_annotations.NO_CLASSES), index.names_are_alone),
    )
    images = (ImageEntry(entries.image(i), []) for i in range(len(entries)))
    marked = [each.problem for each in formats_source.marked(images, _FILES, reader)]
    if not any(marked):
        return entries
    _warn_of_problems(
        path,
        (f'{entries.image(i)["file_name"]}: {each[1]}' for i, each in enumerate(marked) if each),
    )
    return Entries(entries[i] for i, problem in enumerate(marked) if not problem)


def _warn_of_notes(path: str, said: Mapping[str, int]) -> None:
    for sentence in annotation_notes.sentences(said):
        _log.warning('%s: %s.', path, sentence)


def _warn_of_problems(path: str, found: Iterable[str]) -> None:
    found = [*found]
    if found:
        _log.warning(
            '%s: %d images, annotations or files are left out: %s.',
            path,
            len(found),
            format_list(found),
        )


def _chosen(entry: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: entry[key] for key in keys if key in entry}
