"""How many images of a data set have each class, and how often rare ones are to be seen.

Repeat factor sampling is that of LVIS (https://arxiv.org/abs/1908.03195).
"""

import collections
import math
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from object_detection.data import label_map
from object_detection.errors import expected


class ImageCounts(NamedTuple):
    """The images of a data set.

    Attributes:
      num_images: number of images, also of those without objects.
      by_class: 1-based id -> number of images with an object of the class.
    """

    num_images: int
    by_class: Mapping[int, int]


def read(path: str, label_map_path: str = '') -> ImageCounts:
    """Reads the counts that a label map holds.

    Args:
      path: label map with `image_count` and `num_images`.
      label_map_path: label map whose ids are meant; '' is not compared.

    Raises:
      ValueError: if the file cannot be read, lacks `num_images` or `image_count` of all items, has
        more images of a class than of all, or other classes for the same ids.
    """
    labels, counts, num_images = _read(path)
    if label_map_path:
        differing = label_map.differing_ids(label_map.load(label_map_path), labels)
        if differing:
            number, there, here = differing[0]
            what = f'the classes of {label_map_path}, such as id {number} for {there!r}'
            raise expected(path, what, repr(here))
    most = max(counts.values())
    if num_images < max(1, most):
        what = f'num_images, of at least the largest image_count, {most}'
        raise expected(path, what, num_images)
    return ImageCounts(num_images, counts)


def read_classes(path: str) -> dict[int, int]:
    """Reads the counts of the classes alone; a label map may lack `num_images`.

    Raises:
      ValueError: if the file cannot be read, or lacks `image_count` of all items.
    """
    return _read(path)[1]


def _read(path: str) -> tuple[label_map.LabelMap, dict[int, int], int]:
    proto = label_map.read(path)
    counts = {item.id: item.image_count for item in proto.item if item.HasField('image_count')}
    if min(counts.values(), default=-1) < 0:
        raise expected(path, 'items with image_count, at least 0', [*counts.values()] or 'none')
    return label_map.classes(proto, path), counts, proto.num_images


def count(classes: Iterable[Collection[int]]) -> ImageCounts:
    """Counts images, of each of which `classes` yields the ids, in any number."""
    by_class: collections.Counter[int] = collections.Counter()
    num_images = 0
    for ids in classes:
        num_images += 1
        by_class.update(set(ids))
    return ImageCounts(num_images, by_class)


def repeat_factors(counts: ImageCounts, threshold: float) -> dict[int, float]:
    """Returns id -> max(1, sqrt(threshold / share of the images)), of the classes with images."""
    return {
        number: max(1.0, math.sqrt(threshold * counts.num_images / images))
        for number, images in counts.by_class.items()
        if images
    }
