"""Converts a detector's batched output to boxes in pixels, encoded masks and COCO results."""

from typing import Any

import numpy as np
from pycocotools import mask as mask_api

from object_detection.core import tf_example_keys as keys
from object_detection.core.detections import Detections
from object_detection.data import shard_names
from object_detection.errors import DataError
from object_detection.metrics.mask_pasting import MASK_THRESHOLD, PasteMethod, mask_window


def encode_window(mask: np.ndarray, top: int, left: int, height: int, width: int) -> bytes:
    """Encodes a mask that is zero outside a window, without creating the full-size mask.

    Args:
      mask: bool or uint8 [h, w], the window's content.
      top, left: where the window begins in the image.
      height, width: size of the image.

    Returns:
      The counts of COCO's compressed run-length encoding.
    """
    # Runs go down the columns; one zero at either end closes the first and the last run.
    columns = np.zeros(mask.shape[1] * height + 2, bool)
    columns[1:-1].reshape(mask.shape[1], height)[:, top : top + mask.shape[0]] = mask.T
    edges = np.flatnonzero(columns[1:] != columns[:-1]) + left * height
    counts = np.diff(edges, prepend=0, append=height * width)
    if counts[-1] == 0:
        counts = counts[:-1]
    runs = {'counts': counts.tolist(), 'size': [height, width]}
    return mask_api.frPyObjects(runs, height, width)['counts']


def encode_masks(detections: Detections, method: PasteMethod = PasteMethod.UNCROP) -> list[bytes]:
    """Pastes and encodes the masks of one image one by one; returns counts as `encode_window`."""
    counts = []
    for mask, box in zip(detections.masks, detections.boxes, strict=True):
        window, top, left = mask_window(mask, box, *detections.size, method)
        counts.append(encode_window(window > MASK_THRESHOLD, top, left, *detections.size))
    return counts


def coco_results(
    detections: Detections,
    image_id: int | str,
    *,
    boxes: bool = True,
    masks: bool = True,
    method: PasteMethod = PasteMethod.UNCROP,
) -> list[dict[str, Any]]:
    """Returns the detections of one image as entries of a COCO results file.

    Args:
      detections: detections of the image; without classes all are of category 1.
      image_id: `images.id` of the annotation file.
      boxes: whether entries have `bbox`. Leave it out of a file that is to be scored by its masks:
        pycocotools takes an object's area from `bbox` if there is one.
      masks: whether entries have `segmentation`, if the detections have masks.
      method: how masks are pasted.

    Returns:
      The entries; with keypoints they have `keypoints`, one list of x and y in pixels and the score
      of each, 1 without scores; of tracked objects, `track_id`.
    """
    points = None if detections.keypoints is None else scored_keypoints(detections)
    classes = detections.ids()
    counts = encode_masks(detections, method) if masks and detections.masks is not None else None
    results = []
    for i in range(len(detections)):
        result = {'image_id': image_id, 'category_id': int(classes[i])}
        if boxes:
            result['bbox'] = box_to_coco(detections.boxes[i])
        if counts is not None:
            text = counts[i].decode('ascii')
            result['segmentation'] = {'size': list(detections.size), 'counts': text}
        if points is not None:
            result['keypoints'] = points[i][:, [1, 0, 2]].ravel().tolist()
        if detections.track_ids is not None and detections.track_ids[i]:
            result['track_id'] = int(detections.track_ids[i])
        results.append(result | {'score': float(detections.scores[i])})
    return results


def scored_keypoints(detections: Detections) -> np.ndarray:
    """Returns float64 [n, P, 3]: (y, x) and the score of each keypoint, 1 without scores."""
    points, scores = detections.keypoints, detections.keypoint_scores
    scores = np.ones(points.shape[:2]) if scores is None else scores
    return np.concatenate([points, scores[..., np.newaxis]], axis=-1, dtype=np.float64)


def coco_image_id(source_id: str | bytes) -> int | float | str:
    """Returns the id in the annotation file from which a source id was made."""
    return shard_names.from_text(source_text(source_id))


def source_text(source_id: str | bytes) -> str:
    """Returns a source id as text.

    Raises:
      DataError: if its bytes are not UTF-8.
    """
    try:
        return source_id.decode('utf-8') if isinstance(source_id, bytes) else str(source_id)
    except UnicodeDecodeError as error:
        raise DataError(f'{keys.SOURCE_ID}: expected UTF-8. Received: {error}.') from error


def box_to_coco(box: np.ndarray) -> list[float]:
    """[ymin, xmin, ymax, xmax] -> [x, y, width, height]."""
    ymin, xmin, ymax, xmax = (float(value) for value in box)
    return [xmin, ymin, xmax - xmin, ymax - ymin]
