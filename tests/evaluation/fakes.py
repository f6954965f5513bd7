"""Random annotated images, and detections that roughly find them."""

import io
from typing import Any

import numpy as np
from PIL import Image

from object_detection.core.detections import Detections

CATEGORIES = [{'id': 1, 'name': 'dog'}, {'id': 2, 'name': 'cat'}, {'id': 5, 'name': 'bird'}]


def png(mask: np.ndarray) -> bytes:
    """Encodes a mask uint8 [H, W]."""
    buffer = io.BytesIO()
    Image.fromarray(mask).save(buffer, 'png')
    return buffer.getvalue()


def ellipse(box: np.ndarray, height: int, width: int) -> np.ndarray:
    """A mask uint8 [height, width] that fills most of a box in pixels."""
    y, x = np.mgrid[:height, :width] + 0.5
    center, radius = (box[:2] + box[2:]) / 2, np.maximum(box[2:] - box[:2], 1e-3) / 2
    distance = ((y - center[0]) / radius[0]) ** 2 + ((x - center[1]) / radius[1]) ** 2
    return (distance <= 1).astype(np.uint8)


def random_image(rng: np.random.Generator, number: int, *, with_areas: bool) -> dict[str, Any]:
    """One image as single rows of the evaluation batch and of the detections.

    Returns:
      Keys: source_id, shape, boxes (normalized float32), classes, is_crowd, area, masks (PNG),
      detection_boxes, detection_classes (0-based), detection_scores, detection_masks.
    """
    height, width = rng.integers(90, 140, 2)
    size = np.array([height, width, height, width])
    count = 0 if number % 5 == 4 else int(rng.integers(1, 6))
    corners = rng.uniform(0, 0.6, (count, 2))
    boxes = np.concatenate([corners, corners + rng.uniform(0.1, 0.4, (count, 2))], 1)
    boxes = boxes.astype(np.float32)
    classes = rng.choice([1, 2, 5], count)
    masks = [ellipse(box * size, height, width) for box in boxes]
    found = np.concatenate([np.repeat(boxes, 2, axis=0), rng.uniform(0, 0.4, (3, 4))])
    found[:, 2:] = np.maximum(found[:, 2:], found[:, :2] + 0.05)
    found = (found + rng.normal(0, 0.02, found.shape)).astype(np.float32)
    total = len(found)
    found_classes = np.concatenate([np.repeat(classes, 2), rng.choice([1, 2, 5], 3)]) - 1
    return {
        'source_id': str(100 + number).encode(),
        'shape': np.array([height, width], np.int32),
        'boxes': boxes,
        'classes': classes.astype(np.int64),
        'is_crowd': rng.random(count) < 0.25,
        # Some are 0, which makes an object small; below 0 is not recorded.
        'area': (
            np.where(np.arange(count) % 3 == 2, 0, boxes[:, 2] * 2000)
            if with_areas
            else np.full(count, -1)
        ).astype(np.float32),
        'masks': [png(mask) for mask in masks],
        'mask_arrays': masks,
        'detection_boxes': found,
        'detection_classes': found_classes.astype(np.float32),
        # Rounded, so that some are equal.
        'detection_scores': np.round(rng.random(total), 1).astype(np.float32),
        'detection_masks': rng.uniform(0.3, 1.0, (total, 14, 14)).astype(np.float32),
    }


def batches(images: list[dict[str, Any]], batch_size: int):
    """Yields (batch, detections) as a dataset and a detector give them; the last may be partial."""
    for start in range(0, len(images), batch_size):
        rows = images[start : start + batch_size]
        groundtruth = {
            'source_id': np.array([row['source_id'] for row in rows], object),
            'original_image_spatial_shape': np.stack([row['shape'] for row in rows]),
            'evaluation_boxes': _pad([row['boxes'] for row in rows]),
            'evaluation_classes': _pad([row['classes'] for row in rows]),
            'evaluation_is_crowd': _pad([row['is_crowd'] for row in rows]),
            'evaluation_area': _pad([row['area'] for row in rows]),
            'evaluation_masks': _pad([np.array(row['masks'], object) for row in rows]),
            'num_evaluation_boxes': np.array([len(row['boxes']) for row in rows]),
        }
        found = {
            key: _pad([row[key] for row in rows], spare=2)
            for key in (
                'detection_boxes',
                'detection_classes',
                'detection_scores',
                'detection_masks',
            )
        }
        found['num_detections'] = np.array(
            [len(row['detection_boxes']) for row in rows], np.float32
        )
        yield groundtruth, found


def image_detections(image: dict[str, Any]) -> Detections:
    height, width = (int(size) for size in image['shape'])
    size = np.array([height, width, height, width], np.float64)
    return Detections(
        boxes=image['detection_boxes'].astype(np.float64) * size,
        scores=image['detection_scores'],
        classes=image['detection_classes'].astype(np.int64) + 1,
        masks=image['detection_masks'],
        size=(height, width),
    )


def _pad(rows: list[np.ndarray], spare: int = 0) -> np.ndarray:
    """Stacks rows [n_i, ...]; missing ones are zero, or empty strings."""
    length = max(len(row) for row in rows) + spare
    fill = b'' if rows[0].dtype == object else 0
    padded = np.full((len(rows), length, *rows[0].shape[1:]), fill, rows[0].dtype)
    for i, row in enumerate(rows):
        padded[i, : len(row)] = row
    return padded
