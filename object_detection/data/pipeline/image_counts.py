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
    proto = label_map.read(path)
    labels = label_map.classes(proto, path)
    if label_map_path:
        differing = label_map.differing_ids(label_map.load(label_map_path), labels)
        if differing:
            number, there, here = differing[0]
            what = f'the classes of {label_map_path}, such as id {number} for {there!r}'
            raise expected(path, what, repr(here))
    counts = {item.id: item.image_count for item in proto.item if item.HasField('image_count')}
    if not counts:
        raise expected(path, 'items with image_count', 'none')
    most = max(counts.values())
    if min(counts.values()) < 0 or proto.num_images < max(1, most):
        what = f'num_images, of at least the largest image_count, {most}'
        raise expected(path, what, proto.num_images)
    return ImageCounts(proto.num_images, counts)


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
