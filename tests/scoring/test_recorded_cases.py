"""The recorded cases of the reference, written out as files."""

import numpy as np
import pytest
from pycocotools import mask as mask_api

from object_detection.data.coco.keypoints import PERSON_KEYPOINTS
from object_detection.protos import eval_pb2
from object_detection.scoring.evaluation import FileOptions, evaluate
from tests import goldens
from tests.scoring import coco_cases

# The reference rounds IoUs of panoptic quality to float32, by at most 2^-24; twice, for its sums.
ROUNDING = 2.0**-23


def _encoded(mask):
    counts = mask_api.encode(np.asfortranarray(mask.astype(np.uint8)))['counts']
    return {'size': list(mask.shape), 'counts': counts.decode()}


def _box(corners):
    ymin, xmin, ymax, xmax = map(float, corners)
    return [xmin, ymin, xmax - xmin, ymax - ymin]


def _keypoints(points, third):
    return np.concatenate([points[:, ::-1], third[:, np.newaxis]], axis=1).ravel().tolist()


def _classes(vector):
    return (np.flatnonzero(vector[1:]) + 1).tolist()


def _documents(params, *, boxes, keypoints=False):
    """Returns the annotations and the results of the images of a case."""
    data = goldens.load('evaluation', 'data')
    keys = params['groundtruth_keys']
    images, annotations, found = [], [], []
    for number in params['images']:
        prefix = f'img{number}.'
        rows = {k.removeprefix(prefix): v for k, v in data.inputs.items() if k.startswith(prefix)}
        images.append(
            {
                'id': number,
                'height': data.params['height'],
                'width': data.params['width'],
                'neg_category_ids': _classes(rows['verified_neg_classes']),
                'not_exhaustive_category_ids': _classes(rows['not_exhaustive_classes']),
            }
        )
        for i, corners in enumerate(rows['gt_boxes']):
            box = _box(corners)
            annotation = {
                'id': len(annotations) + 1,
                'image_id': number,
                'category_id': int(rows['gt_classes'][i]),
                'bbox': box,
                'area': float(rows['gt_area'][i])
                if 'groundtruth_area' in keys
                else box[2] * box[3],
                'iscrowd': int(rows['gt_is_crowd'][i]) if 'groundtruth_is_crowd' in keys else 0,
                'segmentation': _encoded(rows['gt_masks'][i]),
            }
            if keypoints:
                seen = rows['gt_visibilities'][i] > 0
                if 'groundtruth_keypoint_visibilities' not in keys:
                    seen = np.ones_like(seen)
                points = np.where(seen[:, np.newaxis], rows['gt_keypoints'][i], 0)
                annotation['keypoints'] = _keypoints(points, 2 * seen)
            annotations.append(annotation)
        for i, corners in enumerate(rows['det_boxes']):
            entry = {'image_id': number, 'category_id': int(rows['det_classes'][i])}
            if boxes:
                entry['bbox'] = _box(corners)
            if keypoints:
                points = rows['det_keypoints'][i]
                entry['keypoints'] = _keypoints(points, np.ones(len(points)))
            else:
                entry['segmentation'] = _encoded(rows['det_masks'][i])
            found.append(entry | {'score': float(rows['det_scores'][i])})
    categories = [dict(category) for category in data.params['categories']]
    return {'images': images, 'annotations': annotations, 'categories': categories}, found


def _metrics(folder, document, found, name, **config):
    truth, results = coco_cases.write(folder, document, found)
    options = FileOptions(truth, results, metrics=(name,))
    return evaluate(options, eval_pb2.EvalConfig(**config)).metrics


def test_panoptic_quality(tmp_path):
    params = goldens.load('evaluation', 'coco_panoptic').params
    document, found = _documents(params, boxes=True)
    metrics = _metrics(
        tmp_path,
        document,
        found,
        'coco_panoptic_metrics',
        include_metrics_per_category=params['include_metrics_per_category'],
    )
    assert list(metrics) == list(params['metrics'])
    assert metrics == pytest.approx(params['metrics'], rel=ROUNDING, abs=0)


def test_lvis(tmp_path):
    params = goldens.load('evaluation', 'lvis_mask').params
    document, found = _documents(params, boxes=False)
    for category, frequency in zip(document['categories'], params['frequency'], strict=True):
        category['frequency'] = frequency
    metrics = _metrics(
        tmp_path, document, found, 'lvis_mask_metrics', include_metrics_per_category=True
    )
    assert len(params['metrics']) >= 13
    for name, value in params['metrics'].items():
        assert metrics[name] == pytest.approx(value, abs=1e-12), name


def test_keypoints_equal_pycocotools(tmp_path):
    """Persons have 17 keypoints in pycocotools; the images are those of a recorded case."""
    params = goldens.load('evaluation', 'coco_keypoints').params
    document, found = _documents(params, boxes=True, keypoints=True)
    for entry in (*document['annotations'], *found):
        entry['keypoints'] = (entry['keypoints'] * 6)[: 3 * len(PERSON_KEYPOINTS)]
        entry['category_id'] = 1
    for annotation in document['annotations']:
        annotation['num_keypoints'] = sum(seen > 0 for seen in annotation['keypoints'][2::3])
    for image in document['images']:
        del image['neg_category_ids'], image['not_exhaustive_category_ids']
    document['categories'] = [{'id': 1, 'name': 'person', 'keypoints': list(PERSON_KEYPOINTS)}]
    metrics = _metrics(tmp_path, document, found, 'coco_keypoint_metrics')
    paths = str(tmp_path / 'truth.json'), str(tmp_path / 'results.json')
    expected, _ = coco_cases.pycocotools_metrics(*paths, 'keypoints')
    assert expected[0] > 0.05
    assert list(metrics.values())[:10] == expected
