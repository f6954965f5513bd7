import contextlib
import io
import logging
import pickle
from functools import partial

import numpy as np
import pytest
from pycocotools import mask as mask_api
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from object_detection.metrics import detections as tools
from object_detection.metrics.coco import metrics as coco_metrics
from object_detection.metrics.coco.evaluator import CocoEvaluator
from object_detection.metrics.coco.lvis import LvisEvaluator
from object_detection.metrics.coco.panoptic import PanopticEvaluator
from object_detection.metrics.instances import Instances, box_areas
from tests import goldens, rows
from tests.evaluation import fakes
from tests.metrics.coco import golden_batches

# Cases of other evaluators, and the case below.
OTHER_CASES = ('coco_panoptic', 'coco_keypoints', 'coco_per_category_stock')
SUMMARY = [
    *('Precision/mAP', 'Precision/mAP@.50IOU', 'Precision/mAP@.75IOU'),
    *('Precision/mAP (small)', 'Precision/mAP (medium)', 'Precision/mAP (large)'),
    *('Recall/AR@1', 'Recall/AR@10', 'Recall/AR@100'),
    *('Recall/AR@100 (small)', 'Recall/AR@100 (medium)', 'Recall/AR@100 (large)'),
]
PREFIX = {'bbox': 'DetectionBoxes_', 'segm': 'DetectionMasks_'}


def _images(seed=0, count=12, with_areas=False):
    rng = np.random.default_rng(seed)
    return [fakes.random_image(rng, n, with_areas=with_areas) for n in range(count)]


def _evaluate(images, iou_type='bbox', batch_size=4, **options):
    evaluator = CocoEvaluator(fakes.CATEGORIES, iou_type=iou_type, **options)
    for batch, detections in fakes.batches(images, batch_size):
        evaluator.add_batch(batch, detections)
    return evaluator.evaluate()


def test_a_score_that_is_none_is_the_lowest():
    values = []
    for score in (np.nan, -1):
        evaluator = CocoEvaluator(fakes.CATEGORIES)
        for batch, detections in fakes.batches(_images(), 4):
            scores = np.array(detections['detection_scores'])
            scores[0, 0] = score
            evaluator.add_batch(batch, {**detections, 'detection_scores': scores})
        values.append(evaluator.evaluate())
    assert values[0] == pytest.approx(values[1])


@goldens.parametrize('evaluation', prefix='coco_', without=OTHER_CASES)
def test_metrics_equal_reference(case_name, monkeypatch):
    params = goldens.load('evaluation', case_name).params
    evaluator = CocoEvaluator(
        goldens.load('evaluation', 'data').params['categories'],
        iou_type='segm' if 'Mask' in params['class_name'] else 'bbox',
        per_category=params.get('include_metrics_per_category', False),
        all_per_category=params.get('all_metrics_per_category', False),
        super_categories=params.get('super_categories'),
        only_labeled=params.get('skip_predictions_for_unlabeled_class', False),
    )
    golden_batches.add_all(evaluator, params, monkeypatch)
    metrics = evaluator.evaluate()
    assert list(metrics) == list(params['metrics'])
    assert metrics == pytest.approx(params['metrics'], abs=1e-9)


@goldens.parametrize('evaluation', names=('coco_per_category_stock',))
def test_metrics_of_each_category_need_no_patched_engine(case_name):
    assert goldens.load('evaluation', case_name).raises == 'ValueError'
    metrics = _evaluate(_images(), per_category=True)
    name = 'DetectionBoxes_PerformanceByCategory/mAP/' + fakes.CATEGORIES[0]['name']
    assert 0 < metrics[name] <= 1


def _as_annotations(images, iou_type):
    """The same annotations as a COCO file would hold them."""
    annotations = []
    for image in images:
        height, width = (int(size) for size in image['shape'])
        for i, box in enumerate(image['boxes'].astype(np.float64)):
            ymin, xmin, ymax, xmax = box * [height, width, height, width]
            rle = mask_api.encode(np.asfortranarray(image['mask_arrays'][i]))
            own = (ymax - ymin) * (xmax - xmin) if iou_type == 'bbox' else mask_api.area(rle)
            annotations.append(
                {
                    'id': len(annotations) + 1,
                    'image_id': int(image['source_id']),
                    'category_id': int(image['classes'][i]),
                    'iscrowd': int(image['is_crowd'][i]),
                    'area': float(own if image['area'][i] < 0 else image['area'][i]),
                    'bbox': [xmin, ymin, xmax - xmin, ymax - ymin],
                    'segmentation': rle,
                }
            )
    return {
        'images': [
            {'id': int(i['source_id']), 'height': int(i['shape'][0]), 'width': int(i['shape'][1])}
            for i in images
        ],
        'annotations': annotations,
        'categories': fakes.CATEGORIES,
    }


def _pycocotools(annotations, results, iou_type):
    with contextlib.redirect_stdout(io.StringIO()):
        groundtruth = COCO()
        groundtruth.dataset = annotations
        groundtruth.createIndex()
        engine = COCOeval(groundtruth, groundtruth.loadRes(results), iou_type)
        engine.evaluate()
        engine.accumulate()
        engine.summarize()
    return dict(zip((PREFIX[iou_type] + name for name in SUMMARY), engine.stats, strict=True))


@rows.parametrize('iou_type', ['bbox', 'segm'])
@rows.parametrize('with_areas', [False, True])
def test_metrics_equal_pycocotools(iou_type, with_areas):
    images = _images(with_areas=with_areas)
    assert any(image['is_crowd'].any() for image in images)
    assert any(len(image['boxes']) == 0 for image in images)
    results = [
        result
        for image in images
        for result in tools.coco_results(
            fakes.image_detections(image),
            int(image['source_id']),
            boxes=iou_type == 'bbox',
            masks=iou_type == 'segm',
        )
        if result['category_id'] in (1, 2, 5)
    ]
    expected = _pycocotools(_as_annotations(images, iou_type), results, iou_type)
    metrics = _evaluate(images, iou_type)
    assert 0.05 < metrics[f'{PREFIX[iou_type]}Precision/mAP'] < 0.95
    assert metrics == pytest.approx(expected, abs=1e-12)


def test_counts_by_score():
    boxes = np.array([[0, 0, 10, 10], [20, 20, 40, 40], [50, 50, 60, 60]], np.float64)
    annotated = Instances(boxes, np.array([1, 2, 2]), box_areas(boxes))
    # The first box is exact, the second has an IoU of 0.6, the third is of another class.
    boxes = boxes - np.array([[0] * 4, [0, 0, 0, 8], [0] * 4])
    scores = np.array([0.9, 0.402, 1.0])
    detected = Instances(boxes, np.array([1, 2, 1]), box_areas(boxes), scores=scores)
    counts = coco_metrics.measure([annotated], [detected], [1, 2]).counts['all']
    assert counts.shape == (10, 3, 201)
    # For IoUs of 0.5 and 0.75, from a score on.
    for score, (low, high) in {
        0.0: ([2, 1, 1], [1, 2, 2]),
        0.4: ([2, 1, 1], [1, 2, 2]),
        0.405: ([1, 1, 2], [1, 1, 2]),
        0.905: ([0, 1, 3], [0, 1, 3]),
        1.0: ([0, 1, 3], [0, 1, 3]),
    }.items():
        assert counts[[0, 5], :, round(score * 200)].tolist() == [low, high], score


def test_counts_are_of_the_last_evaluation():
    evaluator = CocoEvaluator(fakes.CATEGORIES)
    assert evaluator.counts_by_score() == {}
    images = _images()
    for batch, detections in fakes.batches(images, 4):
        evaluator.add_batch(batch, detections)
    evaluator.evaluate()
    counts = evaluator.counts_by_score()
    assert list(counts) == ['DetectionBoxes IoU 0.50', 'DetectionBoxes IoU 0.75']
    num_objects = sum(int((~image['is_crowd'].astype(bool)).sum()) for image in images)
    for each in counts.values():
        assert (each[0] + each[2] == num_objects).all()
    evaluator.clear()
    assert evaluator.counts_by_score() == {}


@rows.parametrize('iou_type', ['bbox', 'segm'])
def test_results_file_scores_the_same(iou_type):
    images = _images()
    evaluator = CocoEvaluator(fakes.CATEGORIES, iou_type=iou_type)
    for batch, detections in fakes.batches(images, 4):
        evaluator.add_batch(batch, detections)
    expected = _pycocotools(_as_annotations(images, iou_type), evaluator.coco_results(), iou_type)
    assert evaluator.evaluate() == pytest.approx(expected, abs=1e-12)


@rows.parametrize('iou_type', ['bbox', 'segm'])
@rows.parametrize('batch_size', [1, 3])
def test_metrics_do_not_depend_on_the_batch_size(iou_type, batch_size):
    images = _images(count=10)
    assert _evaluate(images, iou_type, batch_size) == _evaluate(images, iou_type, 4)


def _simple_image(source_id, boxes, found, *, found_classes=None):
    """An image of 100 x 100 pixels; boxes in pixels, all of class 1, detections best first."""
    rows = np.array(found, np.float32).reshape(-1, 4) / 100
    return {
        'source_id': source_id,
        'shape': np.array([100, 100]),
        'boxes': np.array(boxes, np.float32).reshape(-1, 4) / 100,
        'classes': np.ones(len(boxes), np.int64),
        'is_crowd': np.zeros(len(boxes), bool),
        'area': np.full(len(boxes), -1, np.float32),
        'masks': [fakes.png(fakes.ellipse(np.array(box, float), 100, 100)) for box in boxes],
        'detection_boxes': rows,
        'detection_classes': np.array(found_classes or [0] * len(rows), np.float32),
        'detection_scores': np.linspace(0.9, 0.5, len(rows), dtype=np.float32),
        'detection_masks': np.ones((len(rows), 4, 4), np.float32),
    }


BOX, OTHER = [10, 10, 40, 40], [50, 50, 90, 90]


@rows.parametrize('iou_type', ['bbox', 'segm'])
def test_parts_of_the_images_are_merged(iou_type):
    images = _images()
    options = {'iou_type': iou_type, 'per_category': True}
    first, second, none = (CocoEvaluator(fakes.CATEGORIES, **options) for _ in range(3))
    for evaluator, part in ((first, images[1::2]), (second, images[::2])):
        for batch in fakes.batches(part, 4):
            evaluator.add_batch(*batch)
    for evaluator in (second, none):
        first.merge(pickle.loads(pickle.dumps(evaluator.part())))
    # As one sees it that has all images, to the bit; and twice is as once.
    expected = _evaluate(images, **options)
    assert first.evaluate() == expected
    first.merge(second.part())
    none.merge(first.part())
    assert none.evaluate() == expected


def test_average_precision_by_hand():
    metrics = _evaluate([_simple_image(b'1', [BOX, OTHER], [BOX])])
    # One of two objects found without error: precision 1 at recalls 0, .01 ... .5, else 0.
    assert metrics['DetectionBoxes_Precision/mAP'] == pytest.approx(51 / 101)
    assert metrics['DetectionBoxes_Recall/AR@100'] == pytest.approx(0.5)
    assert metrics['DetectionBoxes_Precision/mAP (large)'] == -1
    assert all(type(value) is float for value in metrics.values())


def test_detections_on_images_without_groundtruth_count():
    images = [_simple_image(b'1', [BOX], [OTHER, BOX])]
    empty = _simple_image(b'0', [], [BOX, OTHER])
    # Scores .9 (wrong), .5 (right); the empty image adds two wrong ones at .9 and .5.
    assert _evaluate(images)['DetectionBoxes_Precision/mAP'] == pytest.approx(1 / 2)
    metrics = _evaluate([empty, *images])
    assert metrics['DetectionBoxes_Precision/mAP'] == pytest.approx(1 / 4)


def test_second_image_of_a_source_id_is_ignored_and_named(caplog):
    first, second = _simple_image(b'abc', [BOX], [BOX]), _simple_image(b'abc', [BOX], [OTHER])
    with caplog.at_level(logging.WARNING):
        metrics = _evaluate([first, second])
    assert metrics['DetectionBoxes_Precision/mAP'] == pytest.approx(1)
    assert "'abc'" in caplog.text


def test_images_without_source_id_count(caplog):
    images = [_simple_image(b'', [BOX], [BOX]), _simple_image(b'', [BOX], [])]
    with caplog.at_level(logging.WARNING):
        metrics = _evaluate(images)
    assert metrics['DetectionBoxes_Recall/AR@100'] == pytest.approx(0.5)
    assert caplog.text.count('no source id') == 1


def test_detector_without_classes():
    image = _simple_image(b'1', [BOX, OTHER], [BOX, OTHER])
    image['classes'] = np.array([1, 5])
    evaluator = CocoEvaluator(fakes.CATEGORIES, per_category=True)
    for batch, detections in fakes.batches([image], 1):
        del detections['detection_classes']
        evaluator.add_batch(batch, detections)
    metrics = evaluator.evaluate()
    assert metrics['DetectionBoxes_Precision/mAP'] == pytest.approx(1)
    assert len(metrics) == 12
    (batch, detections), *_ = fakes.batches([_simple_image(b'2', [BOX], [BOX])], 1)
    with pytest.raises(ValueError, match='some batches have `detection_classes`'):
        evaluator.add_batch(batch, detections)


def test_unknown_classes_are_reported_and_left_out(caplog):
    image = _simple_image(b'1', [BOX, OTHER], [OTHER, BOX], found_classes=[2, 0])
    image['classes'] = np.array([1, 4])
    with caplog.at_level(logging.WARNING):
        metrics = _evaluate([image], 'segm')
    assert metrics['DetectionMasks_Recall/AR@100'] > 0
    assert metrics['DetectionMasks_Precision/mAP@.50IOU'] == pytest.approx(1)
    assert '[4]' in caplog.text
    assert '[3]' in caplog.text


@rows.parametrize(
    'make', [partial(CocoEvaluator, iou_type='segm'), LvisEvaluator, PanopticEvaluator]
)
def test_state_does_not_grow_with_the_image(make):
    evaluator = make([category | {'frequency': 'r'} for category in fakes.CATEGORIES])
    box = np.array([0.1, 0.1, 0.9, 0.9], np.float32)
    image = _simple_image(b'1', [BOX], [BOX])
    image |= {
        'shape': np.array([2000, 1500]),
        'boxes': box[np.newaxis],
        'masks': [fakes.png(np.ones((2000, 1500), np.uint8))],
        'detection_boxes': box[np.newaxis],
    }
    for batch, detections in fakes.batches([image], 1):
        names = ('verified_neg', 'not_exhaustive')
        labels = {f'groundtruth_{name}_classes': np.zeros((1, 5)) for name in names}
        evaluator.add_batch(batch | labels, detections)
    assert len(evaluator.part()[1]) == 1
    assert len(pickle.dumps(evaluator)) < 10_000


@rows.parametrize('iou_type', ['bbox', 'segm'])
def test_nothing_found(iou_type):
    metrics = _evaluate([_simple_image(b'1', [BOX], [])], iou_type)
    assert metrics[f'{PREFIX[iou_type]}Precision/mAP'] == 0


def test_no_images_and_clear():
    evaluator = CocoEvaluator(fakes.CATEGORIES)
    assert set(evaluator.evaluate().values()) == {-1.0}
    images = list(fakes.batches([_simple_image(b'1', [BOX], [BOX])], 1))
    for _ in range(2):
        evaluator.clear()
        evaluator.add_batch(*images[0])
        assert evaluator.evaluate()['DetectionBoxes_Precision/mAP'] == pytest.approx(1)


@rows.parametrize('mode', ['L', '1', 'P', 'RGB', 'RGBA', 'LA'])
def test_masks_of_every_kind_of_png(mode):
    from PIL import Image

    mask = np.zeros((100, 100), np.uint8)
    mask[20:60, 30:70] = 255
    buffer = io.BytesIO()
    Image.fromarray(mask).convert(mode).save(buffer, 'png')
    image = _simple_image(b'1', [[20, 30, 60, 70]], [])
    expected = _evaluate([image | {'masks': [fakes.png(mask)]}], 'segm')
    assert _evaluate([image | {'masks': [buffer.getvalue()]}], 'segm') == expected
    assert expected['DetectionMasks_Precision/mAP (medium)'] == 0


@rows.parametrize(
    ('changes', 'message'),
    [
        ({'masks': [b'']}, "image '1': expected a mask"),
        ({'masks': [fakes.png(np.ones((9, 8), np.uint8))]}, r'\(100, 100\). Received: \(9, 8\)'),
    ],
)
def test_masks_that_cannot_be_scored(changes, message):
    with pytest.raises(ValueError, match=message):
        _evaluate([_simple_image(b'1', [BOX], [BOX]) | changes], 'segm')


@rows.parametrize(
    ('side', 'key', 'message'),
    [
        (0, 'evaluation_masks', 'load_instance_masks'),
        (1, 'detection_masks', 'number_of_stages: 3'),
    ],
)
def test_masks_are_needed_on_both_sides(side, key, message):
    pair = next(fakes.batches([_simple_image(b'1', [BOX], [BOX])], 1))
    del pair[side][key]
    with pytest.raises(ValueError, match=message):
        CocoEvaluator(fakes.CATEGORIES, iou_type='segm').add_batch(*pair)


@rows.parametrize(
    ('categories', 'options', 'message'),
    [
        (fakes.CATEGORIES, {'iou_type': 'box'}, "'bbox' or 'segm'"),
        ([{'id': 1, 'name': 'a'}, {'id': 1, 'name': 'b'}], {}, 'an own id'),
        ([{'id': 1, 'name': 'a'}, {'id': 2, 'name': 'a'}], {}, 'an own name'),
        (fakes.CATEGORIES, {'super_categories': {'pets': ['dog', 'horse']}}, 'pets'),
        (fakes.CATEGORIES, {'super_categories': {'none': []}}, 'none'),
    ],
)
def test_wrong_arguments(categories, options, message):
    with pytest.raises(ValueError, match=message):
        CocoEvaluator(categories, **options)
