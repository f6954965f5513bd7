"""Converts a detector's batched output to boxes in pixels, encoded masks and COCO results."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from pycocotools import mask as mask_api

from object_detection.core import tf_example_keys as keys
from object_detection.core.fields import DetectionFields
from object_detection.data import shard_names
from object_detection.errors import DataError
from object_detection.metrics.mask_pasting import MASK_THRESHOLD, PasteMethod, mask_window


class ImageDetections(NamedTuple):
    """The n detections of one image, without padding, in the detector's order (best first).

    Attributes:
      boxes: float64 [n, 4], [ymin, xmin, ymax, xmax] in pixels of the original image.
      scores: float32 [n].
      classes: int64 [n], 1-based, or None if the detector does not classify (one stage).
      masks: float32 [n, mask height, mask width], probabilities relative to the box, or None.
      height, width: size of the original image.
      keypoints: float64 [n, P, 2], (y, x) in pixels of the original image, or None.
      keypoint_scores: float32 [n, P], or None.
    """

    boxes: np.ndarray
    scores: np.ndarray
    classes: np.ndarray | None
    masks: np.ndarray | None
    height: int
    width: int
    keypoints: np.ndarray | None = None
    keypoint_scores: np.ndarray | None = None


def unbatch(
    detections: Mapping[str, Any], image_shapes: np.ndarray, *, label_id_offset: int = 1
) -> list[ImageDetections]:
    """Splits a batch into its images and drops the padding.

    Args:
      detections: what `postprocess` returns, as numpy (keys of `DetectionFields`): boxes
        [B, T, 4] normalized to the true image, scores [B, T], classes [B, T], masks
        [B, T, mask height, mask width], keypoints [B, T, P, 2] normalized to the true image, their
        scores [B, T, P], num_detections [B]; classes, masks and keypoints may be absent.
      image_shapes: int [B, 2], (height, width) of the original images.
      label_id_offset: what to add to the classes to make them 1-based: 1 for a detector, 0 for an
        exported model.
    """
    boxes = np.asarray(detections[DetectionFields.BOXES])
    classes = detections.get(DetectionFields.CLASSES)
    masks = detections.get(DetectionFields.MASKS)
    keypoints = detections.get(DetectionFields.KEYPOINTS)
    keypoint_scores = detections.get(DetectionFields.KEYPOINT_SCORES)
    images = []
    for i, count in enumerate(np.asarray(detections[DetectionFields.NUM_DETECTIONS]).astype(int)):
        height, width = (int(size) for size in image_shapes[i])
        images.append(
            ImageDetections(
                boxes=boxes_to_absolute(boxes[i, :count], height, width),
                scores=np.asarray(detections[DetectionFields.SCORES])[i, :count],
                classes=None if classes is None else _ids(classes[i][:count], label_id_offset),
                # Numbers of body parts, of CenterNet's DensePose, all belong to the object.
                masks=None if masks is None else np.minimum(np.asarray(masks[i][:count]), 1.0),
                height=height,
                width=width,
                keypoints=(
                    None
                    if keypoints is None
                    else points_to_absolute(keypoints[i][:count], height, width)
                ),
                keypoint_scores=(
                    None if keypoint_scores is None else np.asarray(keypoint_scores[i][:count])
                ),
            )
        )
    return images


def boxes_to_absolute(boxes_normalized: np.ndarray, height: int, width: int) -> np.ndarray:
    """Returns boxes [n, 4] of the unit frame in pixels, float64."""
    sizes = np.array([height, width, height, width], np.float64)
    return np.asarray(boxes_normalized, np.float64).reshape(-1, 4) * sizes


def points_to_absolute(points_normalized: np.ndarray, height: int, width: int) -> np.ndarray:
    """Returns points [n, P, 2], (y, x), of the unit frame in pixels, float64."""
    return np.asarray(points_normalized, np.float64) * np.array([height, width], np.float64)


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


def encode_masks(
    detections: ImageDetections, method: PasteMethod = PasteMethod.UNCROP
) -> list[bytes]:
    """Pastes and encodes the masks of one image one by one; returns counts as `encode_window`."""
    counts = []
    size = (detections.height, detections.width)
    for mask, box in zip(detections.masks, detections.boxes, strict=True):
        window, top, left = mask_window(mask, box, *size, method)
        counts.append(encode_window(window > MASK_THRESHOLD, top, left, *size))
    return counts


def coco_results(
    detections: ImageDetections,
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
      of each, 1 without scores.
    """
    rows = len(detections.scores)
    points = None if detections.keypoints is None else _coco_keypoints(detections)
    classes = np.ones(rows, int) if detections.classes is None else detections.classes
    counts = encode_masks(detections, method) if masks and detections.masks is not None else None
    results = []
    for i in range(rows):
        result = {'image_id': image_id, 'category_id': int(classes[i])}
        if boxes:
            result['bbox'] = box_to_coco(detections.boxes[i])
        if counts is not None:
            size = [detections.height, detections.width]
            result['segmentation'] = {'size': size, 'counts': counts[i].decode('ascii')}
        if points is not None:
            result['keypoints'] = points[i].tolist()
        results.append(result | {'score': float(detections.scores[i])})
    return results


def _coco_keypoints(detections: ImageDetections) -> np.ndarray:
    """Returns float64 [n, P * 3]: x, y and score of each keypoint."""
    points, scores = detections.keypoints[..., ::-1], detections.keypoint_scores
    scores = np.ones(points.shape[:2]) if scores is None else scores
    rows = np.concatenate([points, scores[..., np.newaxis]], axis=-1)
    return rows.astype(np.float64).reshape(len(rows), points.shape[1] * 3)


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


def _ids(classes: np.ndarray, offset: int) -> np.ndarray:
    return np.asarray(classes).astype(np.int64) + offset
