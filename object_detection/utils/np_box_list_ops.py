"""Functions on `np_box_list.BoxList`, under the names of the reference."""

import enum
from collections.abc import Iterable

import numpy as np

from object_detection.errors import UserError
from object_detection.utils import missing, np_box_ops
from object_detection.utils.np_box_list import BoxList

__getattr__ = missing(__name__, {})


class SortOrder(enum.IntEnum):
    """Order of `sort_by_field`."""

    ASCEND = 1
    DESCEND = 2


def area(boxlist: BoxList) -> np.ndarray:
    """Returns the areas [n]."""
    return np_box_ops.area(boxlist.get())


def intersection(boxlist1: BoxList, boxlist2: BoxList) -> np.ndarray:
    """Returns the area of the intersection of each pair, [n, m]."""
    return np_box_ops.intersection(boxlist1.get(), boxlist2.get())


def iou(boxlist1: BoxList, boxlist2: BoxList) -> np.ndarray:
    """Returns intersection over union of each pair, [n, m]."""
    return np_box_ops.iou(boxlist1.get(), boxlist2.get())


def ioa(boxlist1: BoxList, boxlist2: BoxList) -> np.ndarray:
    """Returns intersection over the area of the second boxes, [n, m]."""
    return np_box_ops.ioa(boxlist1.get(), boxlist2.get())


def gather(boxlist: BoxList, indices: np.ndarray, fields: Iterable[str] | None = None) -> BoxList:
    """Returns the boxes at `indices`, with the given fields, or with all."""
    found = BoxList(boxlist.get()[indices])
    for field in boxlist.get_extra_fields() if fields is None else fields:
        found.add_field(field, boxlist.get_field(field)[indices])
    return found


def sort_by_field(boxlist: BoxList, field: str, order: SortOrder = SortOrder.DESCEND) -> BoxList:
    """Returns the boxes in the order of a field [n]."""
    values = boxlist.get_field(field)
    return gather(
        boxlist, np.argsort(values if order == SortOrder.ASCEND else -values, kind='stable')
    )


def filter_scores_greater_than(boxlist: BoxList, thresh: float) -> BoxList:
    """Returns the boxes whose field 'scores', [n] or [n, 1], is greater than `thresh`."""
    return gather(boxlist, np.flatnonzero(_scores(boxlist) > thresh))


def scale(boxlist: BoxList, y_scale: float, x_scale: float) -> BoxList:
    """Multiplies the coordinates."""
    return _with_boxes(boxlist, boxlist.get() * np.array([y_scale, x_scale] * 2))


def change_coordinate_frame(boxlist: BoxList, window: np.ndarray) -> BoxList:
    """Expresses boxes in the frame in which `window`, [4], is [0, 0, 1, 1]."""
    window = np.asarray(window)
    size = window[2:] - window[:2]
    return _with_boxes(boxlist, (boxlist.get() - np.tile(window[:2], 2)) / np.tile(size, 2))


def clip_to_window(
    boxlist: BoxList, window: np.ndarray, filter_nonoverlapping: bool = True
) -> BoxList:
    """Clips boxes to a window, [4]; boxes without area can be left out."""
    window = np.asarray(window)
    boxes = np.clip(boxlist.get(), np.tile(window[:2], 2), np.tile(window[2:], 2))
    clipped = _with_boxes(boxlist, boxes)
    return gather(clipped, np.flatnonzero(area(clipped) > 0)) if filter_nonoverlapping else clipped


def prune_outside_window(boxlist: BoxList, window: np.ndarray) -> tuple[BoxList, np.ndarray]:
    """Leaves out boxes that reach out of a window, [4]; returns the others and their indices."""
    window, boxes = np.asarray(window), boxlist.get()
    is_inside = (boxes[:, :2] >= window[:2]).all(axis=1) & (boxes[:, 2:] <= window[2:]).all(axis=1)
    indices = np.flatnonzero(is_inside)
    return gather(boxlist, indices), indices


def prune_non_overlapping_boxes(
    boxlist1: BoxList, boxlist2: BoxList, minoverlap: float = 0.0
) -> BoxList:
    """Returns the first boxes of which a second box covers a fraction of `minoverlap` or more."""
    covered = ioa(boxlist2, boxlist1).max(axis=0, initial=-np.inf)
    return gather(boxlist1, np.flatnonzero(covered >= minoverlap))


def concatenate(boxlists: list[BoxList], fields: Iterable[str] | None = None) -> BoxList:
    """Returns all boxes, with the given fields, or with those of the first list.

    Raises:
      UserError: if there is no list, or one lacks a field.
    """
    if not boxlists:
        raise UserError('concatenate: expected at least one BoxList. Received: none.')
    joined = BoxList(np.concatenate([each.get() for each in boxlists]))
    for field in boxlists[0].get_extra_fields() if fields is None else fields:
        joined.add_field(field, np.concatenate([each.get_field(field) for each in boxlists]))
    return joined


def non_max_suppression(
    boxlist: BoxList,
    max_output_size: int = 10000,
    iou_threshold: float = 1.0,
    score_threshold: float = -10.0,
) -> BoxList:
    """Leaves out boxes that overlap a box of a higher score.

    Args:
      boxlist: with a field 'scores', [n].
      max_output_size: maximum number of boxes.
      iou_threshold: a box is left out if its IoU with one that is kept is greater, in [0, 1].
      score_threshold: boxes with this score or a lower one are left out.

    Returns:
      The boxes, in descending order of scores.

    Raises:
      UserError: if there is no field 'scores', or `iou_threshold` is out of range.
    """
    if not 0 <= iou_threshold <= 1:
        raise UserError(f'Expected iou_threshold from 0 to 1. Received: {iou_threshold}.')
    ordered = sort_by_field(filter_scores_greater_than(boxlist, score_threshold), 'scores')
    boxes, is_left, kept = ordered.get(), np.ones(ordered.num_boxes(), bool), []
    for i in range(len(boxes)):
        if is_left[i] and len(kept) < max_output_size:
            kept.append(i)
            is_left &= np_box_ops.iou(boxes[i : i + 1], boxes)[0] <= iou_threshold
    return gather(ordered, np.array(kept, int))


def multi_class_non_max_suppression(
    boxlist: BoxList, score_thresh: float, iou_thresh: float, max_output_size: int
) -> BoxList:
    """Runs `non_max_suppression` for each class.

    Args:
      boxlist: with a field 'scores', [n, K]; other fields are left out.
      score_thresh, iou_thresh, max_output_size: as there; the size is that of each class.

    Returns:
      The boxes of all classes in descending order of scores, with fields 'scores' and 'classes'
      (0-based floats).
    """
    scores, found = boxlist.get_field('scores'), []
    scores = scores[:, np.newaxis] if scores.ndim == 1 else scores
    for number, column in enumerate(scores.T):
        rows = BoxList(boxlist.get())
        rows.add_field('scores', column)
        kept = non_max_suppression(rows, max_output_size, iou_thresh, score_thresh)
        kept.add_field('classes', np.full(kept.num_boxes(), number, np.float32))
        found.append(kept)
    return sort_by_field(concatenate(found), 'scores')


def _scores(boxlist: BoxList) -> np.ndarray:
    scores = boxlist.get_field('scores')
    if scores.ndim > 2 or (scores.ndim == 2 and scores.shape[1] != 1):
        raise UserError(
            f'Expected `scores` of shape [n] or [n, 1]. Received: {list(scores.shape)}.'
        )
    return scores.reshape(len(scores))


def _with_boxes(boxlist: BoxList, boxes: np.ndarray) -> BoxList:
    found = BoxList(boxes.astype(boxlist.get().dtype))
    for field in boxlist.get_extra_fields():
        found.add_field(field, boxlist.get_field(field))
    return found
