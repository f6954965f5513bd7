"""Detections made of the objects of an annotation file, and what pycocotools computes of files."""

import contextlib
import io
import json

import numpy as np
from pycocotools import mask as mask_api
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from object_detection.data.coco import masks as coco_masks


def detections(document, *, masks=False, boxes=True, keypoints=False, seed=0):
    """Returns results that move most objects, miss some, repeat some, and mistake some classes.

    Scores have two decimals, so that many are equal, within images and across them.
    """
    rng = np.random.default_rng(seed)
    sizes = {image['id']: (image['height'], image['width']) for image in document['images']}
    categories = [category['id'] for category in document['categories']]
    found = []
    for annotation in document['annotations']:
        for _ in range(rng.integers(0, 4)):
            entry = {'image_id': annotation['image_id'], 'category_id': annotation['category_id']}
            if rng.random() < 0.1:
                entry['category_id'] = int(rng.choice(categories))
            x, y, width, height = annotation['bbox']
            # Some boxes are exactly right, of others the overlap is exactly a half.
            if rng.random() < 0.2:
                width /= 2
            elif rng.random() < 0.8:
                x, y = x + rng.normal() * width / 8, y + rng.normal() * height / 8
            if boxes:
                entry['bbox'] = [x, y, width, height]
            if masks:
                entry['segmentation'] = _moved_mask(annotation, sizes[annotation['image_id']], rng)
            if keypoints:
                points = np.array(annotation['keypoints'], float).reshape(-1, 3)
                points[:, :2] += rng.normal(0, rng.choice([0, 2, 8]), points[:, :2].shape)
                entry['keypoints'] = points.ravel().tolist()
            entry['score'] = round(float(rng.random()), 2)
            found.append(entry)
    rng.shuffle(found)
    return found


def _moved_mask(annotation, size, rng):
    mask = coco_masks.decode(annotation['segmentation'], *size)
    mask = np.roll(mask, rng.integers(-4, 5, 2), axis=(0, 1))
    encoded = mask_api.encode(np.asfortranarray(mask))
    return {'size': list(size), 'counts': encoded['counts'].decode()}


def write(folder, document, found):
    """Writes both files and returns their paths."""
    truth, results = folder / 'truth.json', folder / 'results.json'
    truth.write_text(json.dumps(document))
    results.write_text(json.dumps(found))
    return str(truth), str(results)


def pycocotools_metrics(truth_path, results_path, kind):
    """Returns the numbers of COCO's table, and the precision of each category."""
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO(truth_path)
        engine = COCOeval(truth, truth.loadRes(results_path), kind)
        engine.evaluate()
        engine.accumulate()
        engine.summarize()
    precisions = engine.eval['precision'][:, :, :, 0, -1]
    by_category = {}
    for index, category in enumerate(truth.loadCats(engine.params.catIds)):
        values = precisions[:, :, index]
        values = values[values > -1]
        by_category[category['name']] = values.mean() if values.size else -1.0
    return engine.stats.tolist(), by_category
