"""How many detections count: the numbers of pycocotools with other `maxDets`, and notes."""

import contextlib
import io
import re

import numpy as np
import pytest
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from object_detection.protos import eval_pb2
from object_detection.scoring.evaluation import FileOptions, evaluate
from tests import rows
from tests.scoring import coco_cases

SETS = {
    'bbox': ('coco_detection_metrics', 'DetectionBoxes'),
    'segm': ('coco_mask_metrics', 'DetectionMasks'),
    'keypoints': ('coco_keypoint_metrics', 'Keypoints'),
}


@pytest.fixture(scope='module')
def crowded(tmp_path_factory):
    """Two images with 130 and 3 small objects of a class; their detections, some of them wrong."""
    rng = np.random.default_rng(0)
    objects, found = [], []
    for index in range(133):
        x, y = index % 12 * 40, index // 12 * 40
        # Under and over 32² pixels.
        side = 20 if index % 2 else 36
        corners = [x, y, x + side, y, x + side, y + side, x, y + side]
        entry = {'image_id': 1 if index < 130 else 2, 'category_id': 1, 'bbox': [x, y, side, side]}
        entry |= {'segmentation': [corners], 'keypoints': [x + 4, y + 4, 2]}
        more = {'id': index + 1, 'area': side**2, 'iscrowd': 0, 'num_keypoints': 1}
        objects.append(entry | more)
        moved = entry | {'bbox': [x + int(rng.integers(0, 12)), y, side, side]}
        moved['keypoints'] = [x + 4 + int(rng.integers(0, 3)), y + 4, 1]
        found.append(moved | {'score': round(float(rng.random()), 2)})
    document = {
        'images': [{'id': n, 'height': 480, 'width': 480} for n in (1, 2)],
        'annotations': objects,
        'categories': [{'id': 1, 'name': 'grain', 'keypoints': ['tip']}],
    }
    return coco_cases.write(tmp_path_factory.mktemp('crowded'), document, found)


def _metrics(paths, kind, limit):
    config = eval_pb2.EvalConfig(max_detections=limit, all_metrics_per_category=True)
    return evaluate(FileOptions(*paths, metrics=(SETS[kind][0],)), config)


def _pycocotools(paths, kind, numbers):
    """Returns the metrics of `COCOeval` whose `maxDets` are `numbers`, by the names of ours."""
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO(paths[0])
        engine = COCOeval(truth, truth.loadRes(paths[1]), kind)
        engine.params.maxDets = list(numbers)
        if kind == 'keypoints':
            engine.params.kpt_oks_sigmas = np.array([0.05])
        engine.evaluate()
        engine.accumulate()
    areas = {name: index for index, name in enumerate(engine.params.areaRngLbl)}
    precision, recall = engine.eval['precision'][..., -1], engine.eval['recall']

    def mean(values):
        return float(values[values > -1].mean()) if (values > -1).any() else -1.0

    most = numbers[-1]
    found = {
        f'mAP@{most}': mean(precision[..., 0]),
        f'mAP@{most}@.50IOU': mean(precision[0, ..., 0]),
        f'mAP@{most}@.75IOU': mean(precision[5, ..., 0]),
    }
    found |= {f'AR@{n}': mean(recall[:, :, 0, column]) for column, n in enumerate(numbers)}
    for name in areas.keys() - {'all'}:
        found[f'mAP@{most} ({name})'] = mean(precision[..., areas[name]])
        found[f'AR@{most} ({name})'] = mean(recall[:, :, areas[name], -1])
    if kind == 'keypoints':
        found[f'AR@{most}@.50IOU'] = mean(recall[0, :, 0, -1])
        found[f'AR@{most}@.75IOU'] = mean(recall[5, :, 0, -1])
    return found


@rows.parametrize(
    ('kind', 'numbers'),
    [
        ('bbox', (1, 10, 200)),
        ('bbox', (1, 5)),
        ('bbox', (1,)),
        ('segm', (1, 10, 120)),
        ('keypoints', (100,)),
        ('keypoints', (1,)),
    ],
)
def test_equal_to_pycocotools_with_max_dets(crowded, kind, numbers):
    found = _metrics(crowded, kind, numbers[-1]).metrics
    expected = _pycocotools(crowded, kind, numbers)
    prefix = SETS[kind][1]
    own = {name.partition('/')[2]: value for name, value in found.items()}
    if kind == 'keypoints':
        assert own == {f'{name} ByCategory/grain': value for name, value in expected.items()}
        return
    assert {name: own[name] for name in own if 'grain' not in name} == expected
    assert (
        found[f'{prefix}_PerformanceByCategory/mAP@{numbers[-1]}/grain']
        == (expected[f'mAP@{numbers[-1]}'])
    )


def test_more_detections_find_more(crowded):
    assert (
        _metrics(crowded, 'bbox', 0).metrics['DetectionBoxes_Recall/AR@100']
        < (_metrics(crowded, 'bbox', 130).metrics['DetectionBoxes_Recall/AR@130'])
    )


@rows.parametrize(('kind', 'published'), [('bbox', 100), ('segm', 100), ('keypoints', 20)])
def test_names_with_the_published_limit_are_the_published_ones(crowded, kind, published):
    default = _metrics(crowded, kind, 0).metrics
    assert not any('mAP@1' in name or 'mAP@2' in name for name in default)
    assert _metrics(crowded, kind, published).metrics == default


@rows.parametrize(
    ('kind', 'limit', 'note'),
    [
        ('bbox', 0, r'1 of 2 images have more than 100 objects of a class, image .1. 130, and'),
        ('bbox', 129, 'more than 129 objects'),
        ('bbox', 130, None),
        ('keypoints', 0, 'more than 20 objects'),
        ('keypoints', 2, '2 of 2 images have more than 2 objects'),
    ],
)
def test_a_note_says_that_objects_exceed_the_limit(crowded, kind, limit, note):
    notes = [each for each in _metrics(crowded, kind, limit).notes if 'max_detections' in each]
    assert len(notes) == (note is not None)
    for each in notes:
        assert re.search(note, each)


def test_lvis_limits_the_detections_of_an_image(tmp_path):
    square = [[4, 4, 14, 4, 14, 24, 4, 24]]
    entry = {'image_id': 7, 'category_id': 3, 'bbox': [4, 4, 10, 20], 'segmentation': square}
    image = {'id': 7, 'height': 40, 'width': 60}
    image |= {'neg_category_ids': [], 'not_exhaustive_category_ids': []}
    document = {
        'images': [image],
        'annotations': [
            entry | {'id': 1, 'area': 200},
            entry | {'id': 2, 'area': 200, 'category_id': 5},
        ],
        'categories': [{'id': i, 'name': f'{i}', 'frequency': 'f'} for i in (3, 5)],
    }
    # The best detection is of the class 3, the second best of the class 5.
    found = [entry | {'score': 0.9}, entry | {'score': 0.8, 'category_id': 5}]
    paths = coco_cases.write(tmp_path, document, found)
    options = FileOptions(*paths, metrics=('lvis_mask_metrics',))
    config = eval_pb2.EvalConfig(include_metrics_per_category=True, max_detections=1)
    result = evaluate(options, config)
    metrics = {k.removeprefix('DetectionMasks_'): v for k, v in result.metrics.items()}
    assert [metrics[k] for k in ('AR@1', 'AP@1', 'APf@1')] == pytest.approx([0.5] * 3)
    assert metrics['PerformanceByCategory/mAP@1/5'] == 0
    assert 'more than 1 objects, image' in result.notes[-1]
    config.max_detections = 300
    assert evaluate(options, config).metrics == evaluate(options).metrics | {
        f'DetectionMasks_PerformanceByCategory/mAP/{i}': pytest.approx(1) for i in (3, 5)
    }
