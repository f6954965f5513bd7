import numpy as np
import pytest
from hypothesis import assume, given, settings
from pycocotools import mask as mask_api

from object_detection.metrics.coco import metrics as coco_metrics
from object_detection.metrics.coco import metrics as overlaps
from object_detection.metrics.coco.metrics import Summary
from object_detection.metrics.coco.tables import table
from object_detection.metrics.instances import Instances
from tests import rows, slow_cases
from tests.metrics.coco import cases, peers

SIZE = 40
CATEGORIES = (2, 3, 7, 9)


def _boxes(rng, count):
    """Boxes on whole pixels, so that many are the same and overlaps are exactly on thresholds."""
    corners = rng.integers(0, 4, (count, 2)) * 5
    return np.concatenate([corners, corners + rng.choice([4, 8, 10, 20], (count, 2))], 1) * 1.0


def _instances(rng, count, categories, *, detected):
    boxes = _boxes(rng, count)
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    masks = []
    for box in boxes.astype(int):
        mask = np.zeros((SIZE, SIZE), np.uint8, order='F')
        mask[box[0] : box[2], box[1] : box[3]] = 1
        masks.append(mask_api.encode(mask)['counts'])
    return Instances(
        boxes,
        rng.choice(categories, count),
        # With areas of objects on the edges of the ranges.
        areas if detected else rng.choice([20.0, 32.0**2, 50.0**2, 96.0**2, 1e5], count),
        masks,
        scores=rng.choice(np.linspace(0, 1, 6), count).astype(np.float32) if detected else None,
        is_crowd=None if detected else rng.random(count) < 0.2,
    )


def _assert_equals_pycocotools(annotated, detected, with_masks=False):
    sizes = [(SIZE, SIZE)] * len(annotated)
    compare = overlaps.masks(sizes) if with_masks else overlaps.boxes
    metrics = coco_metrics.measure(annotated, detected, CATEGORIES, compare=compare)
    iou_type = 'segm' if with_masks else 'bbox'
    expected = peers.pycocotools(annotated, detected, CATEGORIES, iou_type, size=SIZE)
    for area, name in enumerate(coco_metrics.AREA_RANGES):
        np.testing.assert_array_equal(
            metrics.precision[name], expected['precision'][..., area, -1], err_msg=name
        )
        for maximum, number in enumerate(coco_metrics.MAX_DETECTIONS):
            np.testing.assert_array_equal(
                metrics.recall[name, number], expected['recall'][..., area, maximum], err_msg=name
            )
    return metrics


@rows.parametrize('with_masks', [False, True])
@rows.parametrize('seed', range(4))
def test_equals_pycocotools_to_the_last_bit(seed, with_masks):
    rng = np.random.default_rng(seed)
    # The last category has no objects, the one before no detections.
    annotated, detected = [], []
    for _ in range(25):
        counts = rng.integers(0, 12), rng.integers(0, 60) * rng.integers(0, 2)
        annotated.append(_instances(rng, counts[0], CATEGORIES[:3], detected=False))
        detected.append(_instances(rng, counts[1], [2, 3, 9], detected=True))
    metrics = _assert_equals_pycocotools(annotated, detected, with_masks)
    precision = metrics.precision['all']
    assert (precision[..., 0] > 0).any()
    assert (precision[..., 2] == 0).all()
    assert (precision[..., 3] == coco_metrics.UNDEFINED).all()


@slow_cases.parametrize(1, 'with_masks', [False, True])
@settings(max_examples=40, deadline=None)
@given(images=cases.IMAGES)
def test_odd_images_equal_pycocotools_to_the_last_bit(with_masks, images):
    _assert_equals_pycocotools(*zip(*images, strict=True), with_masks)


@pytest.fixture(scope='module')
def torchmetrics():
    server = peers.Server('TORCHMETRICS_PYTHON', 'torchmetrics_server.py')
    yield server
    server.close()


def _for_torchmetrics(instances):
    side = {
        'boxes': instances.boxes[:, [1, 0, 3, 2]].tolist(),
        'labels': instances.classes.tolist(),
        'size': [SIZE, SIZE],
        'masks': [mask.decode() for mask in instances.masks],
    }
    if instances.scores is not None:
        return side | {'scores': instances.scores.tolist()}
    return side | {
        'area': instances.areas.tolist(),
        'iscrowd': instances.is_crowd.astype(int).tolist(),
    }


_OF_TORCHMETRICS = {
    'map': Summary('precision'),
    'map_50': Summary('precision', iou=0.5),
    'map_75': Summary('precision', iou=0.75),
    'map_small': Summary('precision', area='small'),
    'map_medium': Summary('precision', area='medium'),
    'map_large': Summary('precision', area='large'),
    'mar_1': Summary('recall', max_detections=1),
    'mar_10': Summary('recall', max_detections=10),
    'mar_100': Summary('recall'),
    'mar_small': Summary('recall', area='small'),
    'mar_medium': Summary('recall', area='medium'),
    'mar_large': Summary('recall', area='large'),
}


@pytest.mark.parametrize('iou_type', ['bbox', 'segm'])
@settings(max_examples=50, deadline=None)
@given(images=cases.IMAGES)
def test_odd_images_equal_torchmetrics(torchmetrics, iou_type, images):
    if iou_type == 'segm':
        # It leaves out images without annotated masks, and is undefined without detected ones.
        images = [image for image in images if len(image[0].classes)]
        assume(any(len(found.classes) for _, found in images))
    annotated, detected = zip(*images, strict=True)
    problem = {
        'iou_type': iou_type,
        'annotated': [_for_torchmetrics(each) for each in annotated],
        'detected': [_for_torchmetrics(each) for each in detected],
    }
    expected = torchmetrics.ask(problem)
    compare = overlaps.masks([(SIZE, SIZE)] * len(images)) if iou_type == 'segm' else overlaps.boxes
    metrics = coco_metrics.measure(annotated, detected, CATEGORIES, compare=compare)
    ours = {name: coco_metrics.mean(metrics, each) for name, each in _OF_TORCHMETRICS.items()}
    # It returns float32.
    assert ours == pytest.approx({name: expected[name] for name in ours}, abs=2.0**-24)


def test_more_detections_of_a_category_than_count(monkeypatch):
    rng = np.random.default_rng(5)
    # Not all pairs are compared at once.
    monkeypatch.setattr(overlaps, '_PAIRS', 100)
    annotated = [_instances(rng, 9, CATEGORIES[:1], detected=False) for _ in range(3)]
    detected = [_instances(rng, count, CATEGORIES[:1], detected=True) for count in (250, 100, 3)]
    _assert_equals_pycocotools(annotated, detected)
    assert len(table(detected, CATEGORIES).groups) == 203


@rows.parametrize('counts', [(0, 0), (0, 3), (3, 0)])
@rows.parametrize('with_masks', [False, True])
def test_nothing_on_one_side(counts, with_masks):
    rng = np.random.default_rng(6)
    annotated = [_instances(rng, counts[0], CATEGORIES, detected=False)]
    _assert_equals_pycocotools(
        annotated, [_instances(rng, counts[1], CATEGORIES, detected=True)], with_masks
    )
