"""Tables of the objects of all images, or of their detections, in which COCO's rules match them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from object_detection.metrics.coco import limits
from object_detection.metrics.instances import Instances


class Table(NamedTuple):
    """The objects of all images, or the detections, sorted by group: image, then category.

    Attributes:
      images, categories: int64 [n], indices into the lists of all images and of all categories.
      groups: int64 [n], ascending; one number for each image and category.
      ranks: int64 [n], positions within the groups; detections are sorted by score.
      boxes: float64 [n, 4], [x, y, width, height] as in COCO's files.
      areas: float64 [n].
      scores: float64 [n]; zeros for objects.
      is_crowd: bool [n]; False for detections.
      is_ignored: bool [n]; objects that never count, and detections that do not count unmatched.
      keypoints: float64 [n, P, 3], (y, x, visibility); P = 0 where there are none.
      masks: n masks in COCO's compressed run-length encoding, or none.
    """

    images: np.ndarray
    categories: np.ndarray
    groups: np.ndarray
    ranks: np.ndarray
    boxes: np.ndarray
    areas: np.ndarray
    scores: np.ndarray
    is_crowd: np.ndarray
    is_ignored: np.ndarray
    keypoints: np.ndarray
    masks: list[bytes]


def table(
    images: Sequence[Instances],
    category_ids: Sequence[int],
    max_detections: int = limits.BOXES_AND_MASKS,
) -> Table:
    """Sorts the objects of all images; only the best detections of a group are kept.

    Args:
      images: the annotated objects of each image, or the detections of each.
      category_ids: ascending ids; they include the categories of all objects.
      max_detections: how many detections of a group are kept.
    """
    lengths = [len(image.classes) for image in images]
    of_images = np.repeat(np.arange(len(images)), lengths)
    classes = concatenate([image.classes for image in images], np.int64)
    categories = np.searchsorted(category_ids, classes)
    groups = of_images * len(category_ids) + categories
    has_scores = images[0].scores is not None
    scores = _column(images, 'scores', np.float64)
    rows = np.lexsort((-scores, groups))
    ranks = np.arange(len(rows)) - np.searchsorted(groups[rows], groups[rows])
    if has_scores:
        rows, ranks = rows[ranks < max_detections], ranks[ranks < max_detections]
    boxes = concatenate([image.boxes for image in images], np.float64).reshape(-1, 4)[rows]
    sides = concatenate([_sides(image) for image in images], np.float64).reshape(-1, 2)[rows]
    masks = [mask for image in images for mask in image.masks or ()]
    has_keypoints = images[0].keypoints is not None
    return Table(
        images=of_images[rows],
        categories=categories[rows],
        groups=groups[rows],
        ranks=ranks,
        boxes=np.concatenate([boxes[:, 1::-1], sides[:, ::-1]], axis=1),
        areas=concatenate([image.areas for image in images], np.float64)[rows],
        scores=scores[rows],
        is_crowd=_column(images, 'is_crowd', bool)[rows],
        is_ignored=_column(images, 'is_ignored', bool)[rows],
        keypoints=(
            concatenate([image.keypoints for image in images], np.float64)[rows]
            if has_keypoints
            else np.zeros((len(rows), 0, 3))
        ),
        masks=[masks[row] for row in rows.tolist()] if masks else [],
    )


def _sides(image: Instances) -> np.ndarray:
    """Returns (height, width) of the boxes, [n, 2]."""
    return image.boxes[:, 2:] - image.boxes[:, :2] if image.sides is None else image.sides


def _column(images: Sequence[Instances], name: str, dtype: type) -> np.ndarray:
    """Joins an entry of all images; zeros where an image has none."""
    parts = [getattr(image, name) for image in images]
    zeros = (np.zeros(len(image.classes), dtype) for image in images)
    joined = zip(parts, zeros, strict=True)
    return concatenate([zero if part is None else part for part, zero in joined], dtype)


def concatenate(parts: Sequence[np.ndarray], dtype: type) -> np.ndarray:
    """Joins arrays; an empty one if there are none."""
    return np.concatenate(parts, dtype=dtype) if parts else np.zeros(0, dtype)
