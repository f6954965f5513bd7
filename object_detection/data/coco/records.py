"""Opens a COCO annotation file and a folder of images as `ImageRecords`."""

import functools
import logging
from typing import Any, NamedTuple

from object_detection.data import label_map
from object_detection.data.annotated_image import ClassLabel
from object_detection.data.coco import annotations as coco_annotations
from object_detection.data.coco import categories as coco_categories
from object_detection.data.coco import keypoints as coco_keypoints
from object_detection.data.coco.annotations import CocoFile
from object_detection.data.coco.examples import CLASS_LISTS, Contents
from object_detection.data.file_access import LocalFiles
from object_detection.data.formats.coco import CocoReader, labels_of, names_are_alone
from object_detection.data.formats.records import Entries, ImageRecords, version
from object_detection.data.formats.source import DataSet, ImageEntry
from object_detection.data.image_files import MAX_PIXELS
from object_detection.errors import UserError
from object_detection.system import texts

_log = logging.getLogger(__name__)

# Keys that examples need; captions, URLs and licences would only take memory.
_IMAGE_KEYS = ('id', 'file_name', 'height', 'width', *CLASS_LISTS)
_ANNOTATION_KEYS = (
    *('id', 'category_id', 'bbox', 'area', 'iscrowd', 'segmentation'),
    *coco_keypoints.KEYPOINT_KEYS,
)


class Index(NamedTuple):
    """An annotation file: its entries, with the keys that examples need, and its categories."""

    entries: Entries
    file: CocoFile
    names_are_alone: bool


def load(
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
    categories = index.file.categories
    try:
        labels = (
            {key: ClassLabel(0, text) for key, text in texts.items()}
            if by_text and (texts := coco_categories.texts(categories))
            else coco_categories.from_categories(categories)
        )
    except ValueError as error:
        raise UserError(f'{annotation_file}: {error}') from error
    layout = coco_keypoints.keypoint_layout(index.file) if keypoints else None
    numbered = labels
    if label_map_path:
        numbered = labels_of(categories, label_map.load(label_map_path))
    contents = Contents(
        labels,
        masks,
        layout,
        small_masks=True,
        max_pixels=max_pixels,
        class_ids={key: label.label for key, label in numbered.items()},
    )
    reader = CocoReader(image_dir, contents, index.names_are_alone)
    data = DataSet(reader, len(index.entries), labels, keypoints=layout)
    return ImageRecords(annotation_file, index.entries, data)


# The number of cached files; validation, counting and reading of a config share them.
@functools.lru_cache(maxsize=16)
def _index(path: str, file_version: tuple, segmentations: bool) -> Index:
    del file_version  # Part of the key.
    try:
        # Decoded here, so that the bytes do not stay in memory too.
        content = texts.decode(LocalFiles().read(path), path)
    except OSError as error:
        raise UserError(f'{path} cannot be read: {error}') from error
    file = coco_annotations.parse(content, path, segmentations=segmentations)
    del content
    _warn_of_orphans(file, path)
    alone = names_are_alone(file)
    return Index(entries_of(file), CocoFile([], [], file.categories), alone)


def entries_of(file: CocoFile) -> Entries:
    """Returns the images of a file, with the keys that examples need."""
    return Entries(
        ImageEntry(
            _chosen(item.image, _IMAGE_KEYS),
            [_chosen(annotation, _ANNOTATION_KEYS) for annotation in item.annotations],
        )
        for item in coco_annotations.group_by_image(file)
    )


def _warn_of_orphans(file: CocoFile, path: str) -> None:
    if file.problems:
        _log.warning(
            '%s: %d entries that cannot be used are left out; the first: %s.',
            path,
            len(file.problems),
            file.problems[0].error,
        )
    ids = {image['id'] for image in file.images}
    if len(ids) < len(file.images):
        _log.warning(
            '%s: %d images have the id of an earlier one and are left out.',
            path,
            len(file.images) - len(ids),
        )
    orphans = sum(annotation['image_id'] not in ids for annotation in file.annotations)
    if orphans:
        _log.warning('%s: %d annotations of images that are not there are left out.', path, orphans)


def _chosen(entry: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: entry[key] for key in keys if key in entry}
