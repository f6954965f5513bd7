"""The images of the recorded cases of evaluation, as batches of one."""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from pycocotools import mask as mask_api

from object_detection.metrics import detections as tools
from tests import goldens
from tests.evaluation import fakes


def batch(number: int, keys: Collection[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the batch and the detections of one image; `keys` name its ground truth."""
    data = goldens.load('evaluation', 'data')
    prefix = f'img{number}.'
    rows = {k.removeprefix(prefix): v for k, v in data.inputs.items() if k.startswith(prefix)}
    height, width = data.params['height'], data.params['width']
    size = np.array([height, width, height, width], np.float64)
    boxes = rows['gt_boxes']
    # The reference takes an object's area from its box, unless it is given, for masks too.
    own_area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    seen = rows['gt_visibilities'] > 0
    groundtruth = {
        'evaluation_boxes': boxes / size,
        'evaluation_classes': rows['gt_classes'],
        'evaluation_is_crowd': rows['gt_is_crowd'].astype(bool) & ('groundtruth_is_crowd' in keys),
        'evaluation_area': rows['gt_area'] if 'groundtruth_area' in keys else own_area,
        'evaluation_masks': np.array([fakes.png(mask) for mask in rows['gt_masks']], object),
        'evaluation_keypoints': rows['gt_keypoints'] / size[:2],
        'evaluation_keypoint_visibilities': (
            seen if 'groundtruth_keypoint_visibilities' in keys else np.ones_like(seen)
        ),
        # Recorded with the background in front.
        'groundtruth_image_classes': rows['labeled_classes'][1:],
        'groundtruth_verified_neg_classes': rows['verified_neg_classes'][1:],
        'groundtruth_not_exhaustive_classes': rows['not_exhaustive_classes'][1:],
    }
    found = {
        'detection_boxes': rows['det_boxes'] / size,
        'detection_scores': rows['det_scores'],
        'detection_classes': rows['det_classes'].astype(np.float32) - 1,
        'detection_masks': rows['det_masks'],
        'detection_keypoints': rows['det_keypoints'] / size[:2],
    }
    one = {
        'source_id': np.array([str(number).encode()], object),
        'original_image_spatial_shape': np.array([[height, width]]),
        'num_evaluation_boxes': np.array([len(boxes)]),
        **_as_batch(groundtruth),
    }
    return one, _as_batch(found) | {'num_detections': np.array([len(rows['det_boxes'])])}


def add_all(evaluator: Any, params: Mapping[str, Any], monkeypatch: Any) -> None:
    """Adds the images of a case; the recorded masks have the images' size and need no pasting."""
    monkeypatch.setattr(
        tools,
        'encode_masks',
        lambda found, _: [
            mask_api.encode(np.asfortranarray(mask.astype(np.uint8)))['counts']
            for mask in found.masks
        ],
    )
    for number in params['images']:
        evaluator.add_batch(*batch(number, params['groundtruth_keys']))


def _as_batch(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: values[np.newaxis] for name, values in arrays.items()}
