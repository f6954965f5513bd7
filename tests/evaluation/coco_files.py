"""COCO annotation files of the random images, and the same objects as records hold them."""

from typing import Any

import numpy as np
from pycocotools import mask as mask_api

from object_detection.data.coco import masks as coco_masks
from tests.evaluation import fakes

# Other ids than those of the label map, which fakes.CATEGORIES are.
CATEGORY_IDS = {1: 18, 2: 17, 5: 16}
CLASSES = {category['id']: [category['name']] for category in fakes.CATEGORIES}


def document(images: list[dict[str, Any]]) -> dict[str, Any]:
    """Makes an annotation file of random images; every third mask becomes a polygon, in place.

    Crowds have uncompressed run lengths, as in COCO's own files, other objects compressed ones.
    """
    annotations = []
    for image in images:
        for i in range(len(image['boxes'])):
            segmentation = _segmentation(image, i)
            annotations.append(
                {
                    'id': len(annotations) + 1,
                    'image_id': int(image['source_id']),
                    'category_id': CATEGORY_IDS[int(image['classes'][i])],
                    'bbox': _bbox(image, i),
                    'iscrowd': int(image['is_crowd'][i]),
                    'segmentation': segmentation,
                }
            )
            if image['area'][i] >= 0:
                annotations[-1]['area'] = float(image['area'][i])
    return {
        'images': [
            {
                'id': int(image['source_id']),
                'file_name': f'picture {int(image["source_id"])}.jpg',
                'height': int(image['shape'][0]),
                'width': int(image['shape'][1]),
            }
            for image in images
        ],
        'annotations': annotations,
        'categories': [
            {'id': CATEGORY_IDS[category['id']], 'name': category['name']}
            for category in fakes.CATEGORIES
        ],
    }


def _bbox(image: dict[str, Any], i: int) -> list[float]:
    height, width = (int(size) for size in image['shape'])
    ymin, xmin, ymax, xmax = (float(value) for value in image['boxes'][i])
    return [xmin * width, ymin * height, (xmax - xmin) * width, (ymax - ymin) * height]


def _segmentation(image: dict[str, Any], i: int) -> Any:
    height, width = (int(size) for size in image['shape'])
    if i % 3 == 2:
        x, y, w, h = _bbox(image, i)
        triangle = [[x, y, x + w, y + h / 3, x + w / 2, y + h]]
        image['masks'][i] = fakes.png(coco_masks.decode(triangle, height, width))
        return triangle
    mask = image['mask_arrays'][i]
    if image['is_crowd'][i]:
        pixels = mask.T.reshape(-1)
        edges = np.flatnonzero(np.diff(pixels, prepend=0))
        counts = np.diff(edges, prepend=0, append=pixels.size).tolist()
        return {'size': [height, width], 'counts': counts}
    counts = mask_api.encode(np.asfortranarray(mask))['counts'].decode()
    return {'size': [height, width], 'counts': counts}
