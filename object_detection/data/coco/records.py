"""Makes examples from a COCO annotation file and a folder of images on demand.

Each example is bytewise equal to the output of the conversion to TFRecords, except for the
compression of masks.
"""

import array
import functools
import json
import logging
import os
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import numpy as np

from object_detection.data import tf_examples
from object_detection.data.coco import annotations as coco_annotations
from object_detection.data.coco import categories as coco_categories
from object_detection.data.coco import examples as coco_examples
from object_detection.data.coco import keypoints as coco_keypoints
from object_detection.data.coco.annotations import CocoImage
from object_detection.data.coco.examples import CocoObject, Contents
from object_detection.data.image_files import MAX_PIXELS, ImageFile
from object_detection.errors import DataError, UnusableError, UserError

_log = logging.getLogger(__name__)

# Keys that examples need; captions, URLs and licences would only take memory.
_IMAGE_KEYS = ('id', 'file_name', 'height', 'width')
_ANNOTATION_KEYS = (
    *('id', 'category_id', 'bbox', 'area', 'iscrowd', 'segmentation'),
    *coco_keypoints.KEYPOINT_KEYS,
)
_MAX_WARNINGS = 10


class ImageFileError(DataError):
    """An image is missing, or does not match the annotation file."""


class _Packed:
    """A list of JSON values, stored as one text and their start positions.

    It takes as much memory as the text; Python objects would take several times as much.
    """

    def __init__(self, values: Iterable[Any]):
        text, starts = bytearray(), array.array('q', [0])
        for value in values:
            text += json.dumps(value, separators=(',', ':')).encode()
            starts.append(len(text))
        self._text, self._starts = text, starts

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, index: int) -> Any:
        start, end = self._starts[index : index + 2]
        return json.loads(self._text[start:end])


class AnnotationIndex:
    """The images of an annotation file with their annotations, in the order of the file.

    Attributes:
      path: path of the annotation file.
      file: the annotation file's categories, without images and annotations.
    """

    def __init__(self, path: str, file: coco_annotations.CocoFile):
        self.path = path
        self.file = coco_annotations.CocoFile([], [], file.categories)
        grouped = list(coco_annotations.group_by_image(file))
        self._images = _Packed(_chosen(item.image, _IMAGE_KEYS) for item in grouped)
        self._annotations = _Packed(
            [_chosen(annotation, _ANNOTATION_KEYS) for annotation in item.annotations]
            for item in grouped
        )
        self._warn_of_orphans(file)

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int) -> CocoImage:
        return CocoImage(index, self.image(index), self._annotations[index])

    def image(self, index: int) -> dict[str, Any]:
        """Returns the entry of an image without its annotations."""
        return self._images[index]

    def _warn_of_orphans(self, file: coco_annotations.CocoFile) -> None:
        if file.problems:
            _log.warning(
                '%s: %d entries that cannot be used are left out; the first: %s.',
                self.path,
                len(file.problems),
                file.problems[0].error,
            )
        ids = {image['id'] for image in file.images}
        if len(ids) < len(file.images):
            _log.warning(
                '%s: %d images have the id of an earlier one and are left out.',
                self.path,
                len(file.images) - len(ids),
            )
        orphans = sum(annotation['image_id'] not in ids for annotation in file.annotations)
        if orphans:
            _log.warning(
                '%s: %d annotations of images that are not there are left out.', self.path, orphans
            )


class CocoRecords:
    """The examples of one annotation file.

    Args:
      image_dir: folder that the file names in the annotation file are relative to.
      index: the annotation file.
      contents: what the examples hold.
    """

    def __init__(self, image_dir: str, index: AnnotationIndex, contents: Contents):
        self.image_dir = image_dir
        self.index = index
        self.contents = contents
        self._warned: set[Any] = set()

    def __len__(self) -> int:
        return len(self.index)

    def example(self, index: int) -> bytes:
        """Returns the serialized tf.train.Example of an image.

        Annotations that cannot be used are left out; the first few are logged.

        Raises:
          ImageFileError: if the file cannot be read, or its format or size is wrong; the message
            names the file and the image's id. The image itself is not decoded.
        """
        coco_image = self.index[index]
        file = self._image_file(coco_image.image, self._read(coco_image.image))
        result = coco_examples.annotate(coco_image, file, self.contents)
        for annotation_id, error in result.problems:
            self._warn(coco_image, annotation_id, error)
        return tf_examples.to_example(result.image)

    def objects(self, index: int) -> tuple[list[CocoObject], list[str]]:
        """Checks the annotations of an image, without decoding masks.

        Returns:
          The usable objects, and a sentence without a full stop for each unusable annotation.

        Raises:
          ImageFileError: if neither the annotation file nor the image file gives the size.
        """
        coco_image = self.index[index]
        file = self._size(coco_image.image)
        objects, problems = [], []
        for annotation in coco_image.annotations:
            try:
                objects.append(coco_examples.check_object(annotation, file, self.contents))
            except UnusableError as error:
                problems.append(
                    f'annotation {annotation["id"]} of image {coco_image.image["id"]}: {error}'
                )
        return objects, problems

    def usable(
        self, rows: np.ndarray, *, known: Collection[str] | None, skip_crowd: bool
    ) -> np.ndarray:
        """Finds the images with an object that training can use, without decoding masks.

        Args:
          rows: int [n], indices of images.
          known: texts of the classes that are trained on; None for all categories.
          skip_crowd: whether crowds do not count as objects.

        Returns:
          bool [n].
        """

        def is_usable(coco_image: CocoImage) -> bool:
            file = self._size(coco_image.image)
            return any(
                self._is_usable(annotation, file, known, skip_crowd)
                for annotation in coco_image.annotations
            )

        return np.fromiter((is_usable(self.index[i]) for i in rows), bool, len(rows))

    def image_ids(self) -> Iterator[Any]:
        """Yields the ids of the images."""
        for i in range(len(self)):
            yield self.index.image(i)['id']

    def missing_images(self) -> Iterator[str]:
        """Yields a sentence without a full stop for each image whose file is missing."""
        listings = _Listings()
        for i in range(len(self)):
            image = self.index.image(i)
            try:
                if not listings.has(self._path(image)):
                    yield str(self._error(image, 'does not exist'))
            except ImageFileError as error:
                yield str(error)

    def first_corrupt_image(self) -> str | None:
        """Decodes all images; returns a description of the first one that cannot be decoded."""
        for i in range(len(self)):
            image = self.index.image(i)
            try:
                coco_examples.check_image(image, self._read(image), self.contents.max_pixels)
            except UnusableError as error:
                return str(self._error(image, str(error)))
            except ImageFileError as error:
                return str(error)
        return None

    def _is_usable(
        self,
        annotation: dict[str, Any],
        file: ImageFile,
        known: Collection[str] | None,
        skip_crowd: bool,
    ) -> bool:
        try:
            item = coco_examples.check_object(annotation, file, self.contents)
        except UnusableError:
            return False
        # Rounded as in examples, since rounding may remove the area of a box.
        ymin, xmin, ymax, xmax = map(np.float32, item.box)
        is_known = known is None or item.label.text in known
        return is_known and not (skip_crowd and item.is_crowd) and ymin < ymax and xmin < xmax

    def _warn(self, coco_image: CocoImage, annotation_id: Any, error: UnusableError) -> None:
        if annotation_id in self._warned or len(self._warned) > _MAX_WARNINGS:
            return
        self._warned.add(annotation_id)
        if len(self._warned) > _MAX_WARNINGS:
            _log.warning('%s: further unusable annotations are not named.', self.index.path)
            return
        _log.warning(
            '%s: annotation %s of image %s is left out: %s.',
            self.index.path,
            annotation_id,
            coco_image.image['id'],
            error,
        )

    def _size(self, image: dict[str, Any]) -> ImageFile:
        """Returns the size in the annotation file; if it has none, the size of the image file."""
        try:
            height, width = coco_annotations.stated_size(image)
        except UnusableError as error:
            raise self._error(image, str(error)) from error
        if height and width:
            return ImageFile(b'', '', height, width)
        return self._image_file(image, self._read(image))

    def _image_file(self, image: dict[str, Any], encoded: bytes) -> ImageFile:
        try:
            return coco_examples.read_image(image, encoded, self.contents.max_pixels)
        except UnusableError as error:
            raise self._error(image, str(error)) from error

    def _read(self, image: dict[str, Any]) -> bytes:
        path = self._path(image)
        try:
            with _open(path) as file:
                return file.read()
        except _os_errors(path) as error:
            reason = getattr(error, 'strerror', None) or str(error)
            raise self._error(image, f'cannot be read ({reason})') from error

    def _path(self, image: dict[str, Any]) -> str:
        try:
            return coco_examples.image_path(self.image_dir, image['file_name'])
        except UnusableError as error:
            raise self._error(image, str(error)) from error

    def _error(self, image: dict[str, Any], reason: str) -> ImageFileError:
        path = os.path.join(self.image_dir, image['file_name'])
        return ImageFileError(f'{path} (image {image["id"]!r} of {self.index.path}) {reason}')


def load(
    image_dir: str,
    annotation_file: str,
    *,
    by_text: bool = False,
    masks: bool = False,
    keypoints: bool = False,
    max_pixels: int = MAX_PIXELS,
) -> CocoRecords:
    """Reads an annotation file, or returns the cached result if the file has not changed.

    Args:
      image_dir: folder of the images.
      annotation_file: COCO JSON file.
      by_text: whether classes are found by the categories' names in a label map, so that category
        ids need not be integers >= 1.
      masks: whether examples contain instance masks, as PNG.
      keypoints: whether examples contain the keypoints of all categories.
      max_pixels: maximum number of pixels of an image.

    Raises:
      ValueError: if the file cannot be read or is not a COCO JSON file; the message names it.
    """
    index = _index(annotation_file, _version(annotation_file), masks)
    categories = index.file.categories
    try:
        labels = (
            {key: coco_categories.CategoryLabel(0, text) for key, text in texts.items()}
            if by_text and (texts := coco_categories.texts(categories))
            else coco_categories.from_categories(categories)
        )
    except ValueError as error:
        raise UserError(f'{annotation_file}: {error}') from error
    layout = coco_keypoints.keypoint_layout(index.file) if keypoints else None
    contents = Contents(labels, masks, layout, small_masks=True, max_pixels=max_pixels)
    return CocoRecords(image_dir, index, contents)


# The number of cached files; validation, counting and reading of a config share them.
@functools.lru_cache(maxsize=16)
def _index(path: str, version: tuple, segmentations: bool) -> AnnotationIndex:
    del version  # Part of the key.
    try:
        with _open(path) as file:
            # Decoded here, so that the bytes do not stay in memory too.
            content = file.read().decode()
    except _os_errors(path) as error:
        raise UserError(f'{path} cannot be read: {error}') from error
    except UnicodeDecodeError as error:
        raise UserError(f'{path} is not a JSON file: {error}.') from error
    file = coco_annotations.parse(content, path, segmentations=segmentations)
    del content
    return AnnotationIndex(path, file)


def _version(path: str) -> tuple:
    """Returns attributes that change with a file's content and are known without reading it."""
    if _is_url(path) or not os.path.exists(path):
        return ()
    status = os.stat(path)
    return status.st_mtime_ns, status.st_size


def _chosen(entry: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: entry[key] for key in keys if key in entry}


class _Listings:
    """Finds files in cached lists of their folders, which is far faster than checking each file."""

    def __init__(self):
        self._names: dict[str, set[str]] = {}

    def has(self, path: str) -> bool:
        folder, name = os.path.split(path)
        if folder not in self._names:
            self._names[folder] = self._list(folder)
        return name in self._names[folder]

    @staticmethod
    def _list(folder: str) -> set[str]:
        if _is_url(folder):
            gfile = _gfile()
            return set(gfile.listdir(folder)) if gfile.isdir(folder) else set()
        return set(os.listdir(folder or '.')) if os.path.isdir(folder or '.') else set()


def _is_url(path: str) -> bool:
    return '://' in path


def _open(path: str):
    return _gfile().GFile(path, 'rb') if _is_url(path) else open(path, 'rb')


def _os_errors(path: str) -> tuple[type[Exception], ...]:
    if not _is_url(path):
        return (OSError,)
    import tensorflow as tf

    return (OSError, tf.errors.OpError)


def _gfile():
    # TensorFlow takes seconds to import, and most images are local files.
    import tensorflow as tf

    return tf.io.gfile
