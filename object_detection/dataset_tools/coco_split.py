"""Holds out images of a COCO annotation file for validation."""

import json
import logging
import os
import random
from collections import Counter
from typing import Any, NamedTuple

from object_detection.data import file_access
from object_detection.data.coco import annotations as coco_annotations
from object_detection.errors import expected
from object_detection.system import files

_logger = logging.getLogger(__name__)


class Part(NamedTuple):
    """The contents of one of the two files.

    Attributes:
      num_images: number of images.
      num_annotations: number of annotations.
      objects: name of each category with objects -> number of objects.
    """

    num_images: int
    num_annotations: int
    objects: Counter[str]


def split(path: str, output: str, *, val_share: float, seed: int) -> dict[str, Part]:
    """Writes `OUTPUT/train.json` and `OUTPUT/val.json`, with images drawn at random.

    `OUTPUT/train.txt` and `OUTPUT/val.txt` list their image files, one a line; an image without
    `file_name` by its id.

    Images and annotations are copied unchanged; everything else (categories, licences) is written
    to both files. Annotations of images that the file does not list are left out and logged.

    Args:
      path: annotation file in COCO format.
      output: folder of the two files; created if necessary.
      val_share: share of the images to hold out, above 0 and below 1; at least one image.
      seed: the same seed draws the same images.

    Returns:
      'train' and 'val' -> contents of the file.

    Raises:
      ValueError: if the file is not a COCO annotation file, has fewer than two images, or would be
        overwritten by one of its parts.
    """
    targets = {name: os.path.join(output, f'{name}.json') for name in ('train', 'val')}
    for target in targets.values():
        if os.path.exists(target) and os.path.samefile(target, path):
            raise expected(f'--output {output}', f'another folder than that of {path}', 'the same')
    document = _read(path)
    order = list(range(len(document['images'])))
    random.Random(seed).shuffle(order)
    held_out = min(max(1, round(val_share * len(order))), len(order) - 1)
    parts = {}
    for part, places in (('train', order[held_out:]), ('val', order[:held_out])):
        images = [document['images'][place] for place in sorted(places)]
        ids = {image['id'] for image in images}
        annotations = [row for row in document['annotations'] if row['image_id'] in ids]
        content = {**document, 'images': images, 'annotations': annotations}
        files.write_text(targets[part], json.dumps(content, ensure_ascii=False))
        names = [f'{image.get("file_name") or image["id"]}\n' for image in images]
        files.write_text(os.path.join(output, f'{part}.txt'), ''.join(names))
        parts[part] = _count(content)
    lost = len(document['annotations']) - sum(part.num_annotations for part in parts.values())
    if lost > 0:
        _logger.warning(
            '%s: %d annotations are in neither part, for their image_id is that of no image',
            path,
            lost,
        )
    return parts


def _read(path: str) -> dict[str, Any]:
    document = file_access.parse_json(files.read_bytes(path), path)
    required = {'images': ('id',), 'annotations': ('image_id',)}
    coco_annotations.check_document(document, path, required)
    if len(document['images']) < 2:
        raise expected(path, 'at least two images to split', len(document['images']))
    return document


def _count(document: dict[str, Any]) -> Part:
    names = {
        category['id']: str(category.get('name'))
        for category in document.get('categories') or []
        if isinstance(category, dict) and coco_annotations.is_id(category.get('id'))
    }
    objects = Counter(
        names[row['category_id']]
        for row in document['annotations']
        if coco_annotations.is_id(row.get('category_id')) and row['category_id'] in names
    )
    return Part(len(document['images']), len(document['annotations']), objects)
