"""Merges what was found in several views of an image: its tiles, flips and scales."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from object_detection.core.detections import Detections

_SUPPRESSION_IOU = 0.5
# The overlap from which boxes are fused, the value of the paper.
_FUSION_IOU = 0.55
# The share of a part of an object that the complete object must cover.
_COVERED = 0.7
# The share of the shorter side that the sides of two parts of an object have in common.
_IN_LINE = 0.5
# A faint object does not replace, and is no part of, one of more than this multiple of its score.
_SCORE_RATIO = 2.0
# The distance from the border of a tile, as a share of its side, up to which a box is cut by it.
_BORDER = 0.01
_MIN_BORDER = 2.0
_TOP, _LEFT, _BOTTOM, _RIGHT = range(4)


class Tile(NamedTuple):
    """A rectangle of an image, in pixels."""

    top: int
    left: int
    bottom: int
    right: int


class _Link(NamedTuple):
    """Two boxes, cut by borders that face each other, that may be parts of one object."""

    quality: float
    first: int
    second: int
    side: int


def concatenate(parts: Sequence[Detections]) -> Detections:
    """Returns the objects of at least one part, which have the same arrays."""
    rows = [part.arrays() for part in parts]
    joint = {key: np.concatenate([each[key] for each in rows]) for key in rows[0]}
    return dataclasses.replace(parts[0], **joint)


def moved(
    objects: Detections,
    offset: tuple[float, float],
    scale: tuple[float, float],
    size: tuple[int, int],
) -> Detections:
    """Returns objects whose positions are scaled, then shifted.

    Args:
      objects: the objects.
      offset: (y, x) in pixels of the result.
      scale: (y, x), the factors.
      size: (height, width) of the image that the result refers to.
    """
    offsets, scales = np.array(offset, np.float32), np.array(scale, np.float32)
    boxes = objects.boxes * np.tile(scales, 2) + np.tile(offsets, 2)
    points = None if objects.keypoints is None else objects.keypoints * scales + offsets
    movements = None if objects.movements is None else objects.movements * scales
    return dataclasses.replace(
        objects, boxes=boxes, keypoints=points, movements=movements, size=size
    )


def suppressed(objects: Detections, iou_threshold: float = _SUPPRESSION_IOU) -> Detections:
    """Returns the objects that no better one of their class overlaps, the best first."""
    kept = [
        rows[tf.image.non_max_suppression(boxes, scores, len(rows), iou_threshold).numpy()]
        for rows in _by_class(objects)
        for boxes, scores in [(objects.boxes[rows], objects.scores[rows])]
    ]
    return objects.take(np.concatenate(kept)).best() if kept else objects


def suppressed_views(found: Sequence[Detections]) -> Detections:
    """Merges the objects of several views of an image, in its frame, by suppression."""
    return suppressed(concatenate(found))


def fused(found: Sequence[Detections]) -> Detections:
    """Merges the objects of several views of an image by weighted boxes fusion.

    Boxes of one class that overlap are averaged with their scores as weights, and so are their
    masks and keypoints. The score is the mean, reduced by the share of the views that lack the
    object (Solovyev et al., 2021, https://arxiv.org/abs/1910.13302).

    Args:
      found: objects of each view, all in the frame of the image.
    """
    objects = concatenate(found)
    if not len(objects):
        return objects
    groups = [group for rows in _by_class(objects) for group in _clusters(objects, rows)]
    averages = [_average(objects, np.array(group), len(found)) for group in groups]
    return concatenate(averages).best()


def _clusters(objects: Detections, rows: np.ndarray) -> list[list[int]]:
    """Returns the rows of one class, the best first, as groups of rows that are one object."""
    rows = rows[np.argsort(-objects.scores[rows], kind='stable')]
    groups: list[list[int]] = []
    sums, weights = np.zeros((len(rows), 4)), np.zeros((len(rows), 1))
    for row in rows:
        box, score = objects.boxes[row], objects.scores[row]
        known = sums[: len(groups)] / np.maximum(weights[: len(groups)], 1e-12)
        ious = _intersections(box, known) / np.maximum(_union_areas(box, known), 1e-12)
        place = int(np.argmax(ious)) if len(ious) else 0
        if not len(ious) or ious[place] <= _FUSION_IOU:
            place = len(groups)
            groups.append([])
        groups[place].append(int(row))
        # A score of 0 has a weight, too, without which it would have no box.
        weight = max(float(score), 1e-6)
        sums[place] += weight * box
        weights[place] += weight
    return groups


def _average(objects: Detections, rows: np.ndarray, num_views: int) -> Detections:
    """Returns the one object that some rows are."""
    weights = np.maximum(objects.scores[rows].astype(np.float64), 1e-6)
    weights /= weights.sum()
    first = objects.take(rows[:1])
    averages = {
        key: np.tensordot(weights, value[rows], 1)[np.newaxis].astype(np.float32)
        for key, value in objects.arrays().items()
        if key not in ('scores', 'classes')
    }
    share = min(len(rows), num_views) / num_views
    scores = np.array([objects.scores[rows].mean() * share], np.float32)
    return dataclasses.replace(first, scores=scores, **averages)


def joined(found: Sequence[Detections], tiles: Sequence[Tile], size: tuple[int, int]) -> Detections:
    """Merges the objects of the tiles of an image, so that none is cut at a seam.

    A box that ends at a border of its tile within the image is a part of an object, unless the
    object ends there by chance. It is dropped if another tile, which overlaps, shows the object
    complete. Parts of one class that continue each other across a seam become one object, with the
    box around them, the highest score, and the union of their masks. At last, the better of two
    objects of a class that overlap suppresses the other.

    Args:
      found: objects of each tile, in the frame of the image.
      tiles: the tiles; one may be the whole image.
      size: (height, width) of the image.
    """
    objects = concatenate(found)
    owners = np.repeat(np.arange(len(tiles)), [len(each) for each in found])
    cuts = np.concatenate([_cuts(*each, size) for each in zip(found, tiles, strict=True)])
    keep = ~_covered(objects, cuts.any(1), ~cuts.any(1))
    objects, owners, cuts = objects.take(keep), owners[keep], cuts[keep]
    groups = _linked(len(objects), _links(objects, owners, cuts))
    objects, is_cut = _unions(objects, cuts, groups)
    # What is still cut is left out if a larger object covers it, which may be cut elsewhere.
    return suppressed(objects.take(~_covered(objects, is_cut, np.ones(len(objects), bool))))


def _cuts(objects: Detections, tile: Tile, size: tuple[int, int]) -> np.ndarray:
    """Returns bool [n, 4]: whether a box ends at each border of its tile within the image."""
    margins = np.array([tile.bottom - tile.top, tile.right - tile.left] * 2) * _BORDER
    inside = np.array(tile) != [0, 0, *size]
    near = np.abs(objects.boxes - np.array(tile)) <= np.maximum(margins, _MIN_BORDER)
    return near & inside


def _covered(objects: Detections, is_cut: np.ndarray, may_cover: np.ndarray) -> np.ndarray:
    """Returns bool [n]: whether a row is a part of an object that another row shows.

    Args:
      objects: the objects.
      is_cut: bool [n], the rows that may be parts.
      may_cover: bool [n], the rows that may be the objects; they are larger than the part.
    """
    covered = np.zeros(len(objects), bool)
    areas = _areas(objects.boxes)
    for rows in _by_class(objects):
        larger = rows[may_cover[rows]]
        for row in rows[is_cut[rows]]:
            shares = _intersections(objects.boxes[row], objects.boxes[larger])
            enough = (shares > _COVERED * areas[row]) & (areas[larger] > areas[row])
            sure = objects.scores[larger] * _SCORE_RATIO >= objects.scores[row]
            covered[row] = bool(np.any(enough & sure))
    return covered


def _links(objects: Detections, owners: np.ndarray, cuts: np.ndarray) -> list[_Link]:
    """Returns the pairs of rows that continue each other across a seam, the best first."""
    links = []
    for rows in _by_class(objects):
        for side in (_BOTTOM, _RIGHT):
            others = rows[cuts[rows, side - 2]]
            for row in rows[cuts[rows, side]]:
                links += _continuations(objects, owners, row, others, side)
    return sorted(links, reverse=True)


def _continuations(
    objects: Detections, owners: np.ndarray, row: int, others: np.ndarray, side: int
) -> Iterator[_Link]:
    """Yields the links of a row, cut at its lower or right side, to rows that are cut opposite."""
    low, across = side - 2, 1 - (side - 2)
    box, boxes = objects.boxes[row], objects.boxes[others]
    lengths = np.minimum(box[across + 2], boxes[:, across + 2]) - np.maximum(
        box[across], boxes[:, across]
    )
    sides = np.stack(np.broadcast_arrays(box[across + 2] - box[across], _sides(boxes, across)))
    follows = (boxes[:, low] >= box[low]) & (boxes[:, side] >= box[side])
    touches = boxes[:, low] <= box[side] + _MIN_BORDER
    in_line = lengths > _IN_LINE * np.maximum(sides.min(0), 1e-12)
    scores = np.stack(np.broadcast_arrays(objects.scores[row], objects.scores[others]))
    alike = scores.min(0) * _SCORE_RATIO >= scores.max(0)
    for place in np.flatnonzero(
        follows & touches & in_line & alike & (owners[others] != owners[row])
    ):
        quality = lengths[place] / max(sides[:, place].max(), 1e-12) * scores[:, place].min()
        yield _Link(float(quality), int(row), int(others[place]), side)


def _linked(count: int, links: Sequence[_Link]) -> list[list[int]]:
    """Returns the groups of rows that are one object; a side of a row has one continuation."""
    parents, used = list(range(count)), set()

    def root(row: int) -> int:
        while parents[row] != row:
            parents[row] = parents[parents[row]]
            row = parents[row]
        return row

    for _, first, second, side in links:
        ends = {(first, side), (second, side - 2)}
        if not ends & used:
            used |= ends
            parents[root(second)] = root(first)
    groups: dict[int, list[int]] = {}
    for row in range(count):
        groups.setdefault(root(row), []).append(row)
    return list(groups.values())


def _unions(
    objects: Detections, cuts: np.ndarray, groups: Sequence[Sequence[int]]
) -> tuple[Detections, np.ndarray]:
    """Returns an object for each group of rows, and bool [groups]: whether it is cut still."""
    single = np.array([rows[0] for rows in groups if len(rows) == 1], int)
    several = [np.array(rows) for rows in groups if len(rows) > 1]
    unions = [_union(objects, rows) for rows in several]
    still = [
        bool((cuts[rows] & (objects.boxes[rows] == union.boxes)).any())
        for rows, union in zip(several, unions, strict=True)
    ]
    found = concatenate([objects.take(single), *unions])
    return found, np.concatenate([cuts[single].any(1), np.array(still, bool)])


def _union(objects: Detections, rows: np.ndarray) -> Detections:
    """Returns the one object of which some rows are parts."""
    best = rows[np.argmax(objects.scores[rows])]
    boxes = objects.boxes[rows]
    box = np.concatenate([boxes[:, :2].min(0), boxes[:, 2:].max(0)])
    changed = {'boxes': box[np.newaxis]}
    if objects.masks is not None:
        masks = [_resampled(objects.masks[row], objects.boxes[row], box) for row in rows]
        changed['masks'] = np.max(masks, axis=0)[np.newaxis]
    if objects.keypoints is not None and objects.keypoint_scores is not None:
        sources = rows[np.argmax(objects.keypoint_scores[rows], axis=0)]
        points = np.arange(len(sources))
        changed['keypoints'] = objects.keypoints[sources, points][np.newaxis]
        changed['keypoint_scores'] = objects.keypoint_scores[sources, points][np.newaxis]
    return dataclasses.replace(objects.take(np.array([best])), **changed)


def _resampled(mask: np.ndarray, box: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Returns a mask, float32 [h, w] relative to a box, relative to another box; 0 outside."""

    def weights(axis: int) -> np.ndarray:
        count, steps = mask.shape[axis], np.arange(mask.shape[axis])
        places = np.linspace(target[axis], target[axis + 2], count)
        length = max(box[axis + 2] - box[axis], 1e-6)
        places = (places - box[axis]) / length * (count - 1)
        # A sample stands for half a step beyond the first and the last one, too.
        inside = (places >= -0.5) & (places <= count - 0.5)
        near = np.clip(places, 0, count - 1)[:, np.newaxis] - steps
        return np.maximum(1 - np.abs(near), 0) * inside[:, np.newaxis]

    return (weights(0) @ mask @ weights(1).T).astype(np.float32)


def _by_class(objects: Detections) -> Iterable[np.ndarray]:
    """Returns the rows of each class that is there."""
    return [np.flatnonzero(objects.classes == each) for each in np.unique(objects.classes)]


def _sides(boxes: np.ndarray, axis: int) -> np.ndarray:
    return boxes[..., axis + 2] - boxes[..., axis]


def _areas(boxes: np.ndarray) -> np.ndarray:
    return np.maximum(_sides(boxes, 0), 0) * np.maximum(_sides(boxes, 1), 0)


def _intersections(box: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """Returns the areas that a box [4] has in common with boxes [n, 4]."""
    low, high = np.maximum(box[:2], boxes[:, :2]), np.minimum(box[2:], boxes[:, 2:])
    return np.prod(np.maximum(high - low, 0), axis=-1)


def _union_areas(box: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    return _areas(box) + _areas(boxes) - _intersections(box, boxes)
