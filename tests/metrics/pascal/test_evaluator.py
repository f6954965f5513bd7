import dataclasses
import pickle

import numpy as np
import pytest
from pycocotools import mask as mask_api

from object_detection.errors import UserError
from object_detection.metrics import detections as tools
from object_detection.metrics.instances import Instances, box_areas
from object_detection.metrics.pascal.evaluator import (
    PascalEvaluator,
    average_precision,
    precision_recall,
)
from object_detection.metrics.pascal.options import METRIC_SETS
from tests import goldens
from tests.evaluation import fakes

SETS = {
    'PascalDetectionEvaluator': 'pascal_voc_detection_metrics',
    'WeightedPascalDetectionEvaluator': 'weighted_pascal_voc_detection_metrics',
    'PascalInstanceSegmentationEvaluator': 'pascal_voc_instance_segmentation_metrics',
    'WeightedPascalInstanceSegmentationEvaluator': (
        'weighted_pascal_voc_instance_segmentation_metrics'
    ),
    'PrecisionAtRecallDetectionEvaluator': 'precision_at_recall_detection_metrics',
    'OpenImagesDetectionEvaluator': 'oid_V2_detection_metrics',
    'OpenImagesDetectionChallengeEvaluator': 'oid_challenge_detection_metrics',
    'OpenImagesInstanceSegmentationChallengeEvaluator': 'oid_challenge_segmentation_metrics',
}
CASES = ('pascal', 'weighted_pascal', 'precision_at_recall', 'oid_')
# What no config of the reference sets.
UNREACHABLE = ('pascal_nms',)
# The order in which an unstable sort leaves equal scores.
TIES = 'weighted_pascal_masks'

CATEGORIES = [{'id': 1, 'name': 'dog'}, {'id': 2, 'name': 'cat'}]


def _golden_batch(data, number, keys):
    prefix = f'img{number}.'
    rows = {k.removeprefix(prefix): v for k, v in data.inputs.items() if k.startswith(prefix)}
    height, width = data.params['height'], data.params['width']
    size = np.array([height, width, height, width], np.float64)
    flags = {
        name: rows[f'gt_{name}'].astype(bool) & (f'groundtruth_{name}' in keys)
        for name in ('difficult', 'group_of')
    }
    labels = np.zeros(4, np.float32)
    labels[rows['image_classes'] - 1] = 1
    batch = {
        'source_id': np.array([f'img{number}'.encode()], object),
        'original_image_spatial_shape': np.array([[height, width]]),
        'evaluation_boxes': (rows['gt_boxes'] / size)[np.newaxis],
        'evaluation_classes': rows['gt_classes'][np.newaxis],
        'evaluation_is_crowd': np.zeros((1, len(rows['gt_boxes'])), bool),
        'evaluation_area': np.full((1, len(rows['gt_boxes'])), -1.0),
        'evaluation_difficult': flags['difficult'][np.newaxis],
        'evaluation_group_of': flags['group_of'][np.newaxis],
        'evaluation_masks': np.array([[fakes.png(mask) for mask in rows['gt_masks']]], object),
        'num_evaluation_boxes': np.array([len(rows['gt_boxes'])]),
        'groundtruth_image_classes': labels[np.newaxis],
    }
    detections = {
        'detection_boxes': (rows['det_boxes'] / size)[np.newaxis],
        'detection_scores': rows['det_scores'][np.newaxis],
        'detection_classes': rows['det_classes'][np.newaxis].astype(np.float32) - 1,
        'detection_masks': rows['det_masks'][np.newaxis],
        'num_detections': np.array([len(rows['det_boxes'])]),
    }
    return batch, detections


def _add_goldens(evaluator, params, monkeypatch):
    data = goldens.load('evaluation', 'data')
    # The golden detections have masks of the image's size, which need no pasting.
    monkeypatch.setattr(
        tools,
        'encode_masks',
        lambda found, _: [
            mask_api.encode(np.asfortranarray(mask.astype(np.uint8)))['counts']
            for mask in found.masks
        ],
    )
    for number in params['images']:
        evaluator.add_batch(*_golden_batch(data, number, params['groundtruth_keys']))


def _golden_evaluator(params):
    data = goldens.load('evaluation', 'data')
    options = METRIC_SETS[SETS[params['class_name']]]
    if params.get('evaluate_corlocs') and params['class_name'] == 'OpenImagesDetectionEvaluator':
        # There, the flag arrives as both bounds of recall.
        params = params | {'recall_lower_bound': 1.0, 'recall_upper_bound': 1.0}
    options = dataclasses.replace(
        options,
        recall_bounds=(
            params.get('recall_lower_bound', 0.0),
            params.get('recall_upper_bound', 1.0),
        ),
        iou_threshold=params.get('matching_iou_threshold', 0.5),
        masks=params.get('evaluate_masks', options.masks),
        only_labeled=params.get('skip_predictions_for_unlabeled_class', options.only_labeled),
    )
    return PascalEvaluator(data.params['categories'], options)


@goldens.parametrize('evaluation', prefix=CASES, without=(*UNREACHABLE, TIES))
def test_metrics_equal_reference(case_name, monkeypatch):
    params = goldens.load('evaluation', case_name).params
    evaluator = _golden_evaluator(params)
    _add_goldens(evaluator, params, monkeypatch)
    metrics, expected = evaluator.evaluate(), params['metrics']
    assert list(metrics) == list(expected)
    expected = {name: float(value) for name, value in expected.items()}
    assert metrics == pytest.approx(expected, abs=1e-12, nan_ok=True)


@goldens.parametrize('evaluation', names=(TIES,))
def test_weighted_mean_equals_reference_up_to_the_order_of_equal_scores(case_name, monkeypatch):
    params = goldens.load('evaluation', case_name).params
    evaluator = _golden_evaluator(params)
    _add_goldens(evaluator, params, monkeypatch)
    metrics = evaluator.evaluate()
    (name, *categories), expected = metrics, params['metrics']
    for category in categories:
        assert metrics[category] == pytest.approx(float(expected[category]), nan_ok=True)
    outcomes = [image.outcome for image in evaluator.part()[1]]
    columns = [np.concatenate(column) for column in zip(*outcomes, strict=True)]
    classes, scores, is_correct, objects, _ = columns
    rows = np.isin(classes, objects)
    worst, best = (
        average_precision(
            *precision_recall((scores + favour * is_correct)[rows], is_correct[rows], len(objects))
        )
        for favour in (-1e-6, 1e-6)
    )
    assert worst <= metrics[name] <= best
    assert worst < expected[name] < best


@goldens.parametrize('evaluation', names=('object_detection_all',))
def test_curves_equal_reference(case_name, monkeypatch):
    params = goldens.load('evaluation', case_name).params
    evaluator = _golden_evaluator(params | {'class_name': 'PrecisionAtRecallDetectionEvaluator'})
    _add_goldens(evaluator, params, monkeypatch)
    found = evaluator.curves()
    for name in ('alpha', 'beta', 'gamma'):
        for kind, values in zip(('Precision', 'Recall', 'AP'), found[name], strict=True):
            expected = params['metrics'][f'Pre_PerformanceByCategory/{kind}@0.5IOU/{name}']
            assert values == pytest.approx(expected, abs=1e-12)
    assert np.isnan(found['delta'].average_precision)


@goldens.parametrize('evaluation', names=('precision_recall', 'precision_recall_float_labels'))
def test_precision_and_recall_equal_reference(case_name):
    case = goldens.load('evaluation', case_name)
    precision, recall = precision_recall(
        case.inputs['scores'], case.inputs['labels'], case.params['num_gt']
    )
    np.testing.assert_allclose(precision, case.outputs['precision'], rtol=1e-14)
    np.testing.assert_allclose(recall, case.outputs['recall'], rtol=1e-14)
    assert average_precision(precision, recall) == pytest.approx(float(case.outputs['ap']))


@goldens.parametrize('evaluation', names=('precision_recall_too_many_tp',))
def test_more_correct_detections_than_objects_are_an_error(case_name):
    assert goldens.load('evaluation', case_name).raises == 'ValueError'
    with pytest.raises(UserError, match=r'at most 1 correct. Received: 2'):
        precision_recall(np.array([0.5, 0.6]), np.ones(2, bool), 1)


@goldens.parametrize('evaluation', names=('precision_recall_zero_gt',))
def test_class_without_objects_is_nan(case_name):
    assert goldens.load('evaluation', case_name).params['ap'] == 'nan'
    detected = _instances([LEFT], scores=[0.5])
    assert np.isnan(_measure('pascal_voc_detection_metrics', _instances([]), detected)).all()


def _instances(boxes, classes=None, **fields):
    boxes = np.array(boxes, np.float64).reshape(-1, 4)
    classes = np.ones(len(boxes), int) if classes is None else np.array(classes)
    fields = {name: np.array(values) for name, values in fields.items()}
    return Instances(boxes, classes, box_areas(boxes), **fields)


LEFT, RIGHT = [0, 0, 10, 10], [0, 20, 10, 30]


def _measure(name, annotated, detected, labels=None):
    """Mean, and average precision of dogs and of cats."""
    evaluator = PascalEvaluator(CATEGORIES, METRIC_SETS[name])
    evaluator.add_image('1', (40, 40), annotated, detected, labels)
    return list(evaluator.evaluate().values())


def test_second_detection_of_an_object_is_false_though_another_object_is_free():
    # Both overlap the left object most; the other one overlaps them enough.
    annotated = _instances([[0, 0, 10, 10], [0, 2, 10, 12]])
    detected = _instances([[0, 0, 10, 10], [0, 0.5, 10, 10.5]], scores=[0.9, 0.8])
    mean, dog, cat = _measure('pascal_voc_detection_metrics', annotated, detected)
    assert mean == dog == 0.5
    assert np.isnan(cat)


def test_false_detection_before_a_correct_one_halves_the_precision():
    annotated = _instances([LEFT])
    detected = _instances([RIGHT, LEFT], scores=[0.9, 0.8])
    assert _measure('pascal_voc_detection_metrics', annotated, detected)[:2] == [0.5, 0.5]


def test_no_ground_truth_is_nan_and_no_detection_is_zero():
    name = 'pascal_voc_detection_metrics'
    nothing = _instances([], scores=[])
    assert np.isnan(_measure(name, _instances([]), nothing)).all()
    assert _measure(name, _instances([LEFT]), nothing)[:2] == [0, 0]
    evaluator = PascalEvaluator(CATEGORIES, METRIC_SETS[name])
    assert np.isnan(list(evaluator.evaluate().values())).all()


def test_difficult_objects_do_not_count_nor_do_detections_of_them():
    detected = _instances([LEFT, LEFT, RIGHT], scores=[0.9, 0.8, 0.7])
    both = _instances([LEFT, RIGHT], is_difficult=[True, False])
    assert _measure('pascal_voc_detection_metrics', both, detected)[:2] == [1, 1]
    only = _instances([LEFT], is_difficult=[True])
    assert np.isnan(_measure('pascal_voc_detection_metrics', only, detected)).all()
    # Open Images has no difficult objects.
    assert _measure('oid_V2_detection_metrics', only, detected)[1] == 1


def test_group_counts_once_in_the_challenge_and_not_at_all_in_version_2():
    group = _instances([[0, 0, 20, 20]], is_group_of=[True])
    # Two are in the group, one of which by half of its area, and one is outside of it.
    detected = _instances([[0, 0, 4, 4], [0, 18, 4, 22], RIGHT], scores=[0.7, 0.8, 0.9])
    labels = np.array([1])
    challenge = _measure('oid_challenge_detection_metrics', group, detected, labels)
    assert challenge[:2] == [0.5, 0.5]
    assert np.isnan(_measure('oid_V2_detection_metrics', group, detected)).all()
    # With an object in it as well.
    both = _instances([[0, 0, 20, 20], LEFT], is_group_of=[True, False])
    detected = _instances([LEFT, [10, 10, 20, 20], [12, 12, 18, 18]], scores=[0.7, 0.8, 0.9])
    assert _measure('oid_challenge_detection_metrics', both, detected, labels)[1] == 1
    assert _measure('oid_V2_detection_metrics', both, detected)[1] == 1
    # To other sets a group is one large object, which these detections overlap too little.
    assert _measure('pascal_voc_detection_metrics', both, detected)[1] == pytest.approx(1 / 6)


def test_challenge_counts_only_classes_that_were_verified():
    annotated = _instances([LEFT], classes=[1])
    detected = _instances([LEFT, RIGHT, RIGHT], classes=[1, 1, 2], scores=[0.6, 0.5, 0.9])
    cat = _instances([LEFT], classes=[2], scores=[0.5])
    evaluator = PascalEvaluator(CATEGORIES, METRIC_SETS['oid_challenge_detection_metrics'])
    for labels, expected in ((None, [1, 1, 1]), (np.array([2]), [0.75, 1, 0.5])):
        evaluator.clear()
        evaluator.add_image('1', (40, 40), annotated, detected, labels)
        evaluator.add_image('2', (40, 40), cat, cat)
        assert list(evaluator.evaluate().values()) == expected


def test_weighted_mean_is_the_area_below_one_curve():
    annotated = _instances([LEFT, RIGHT], classes=[1, 2])
    detected = _instances([RIGHT, LEFT, RIGHT], classes=[1, 1, 2], scores=[0.9, 0.8, 0.7])
    metrics = _measure('weighted_pascal_voc_detection_metrics', annotated, detected)
    # Precision 0, 1/2, 2/3 at recall 0, 1/2, 1: the envelope is 2/3 all along.
    assert metrics == pytest.approx([2 / 3, 0.5, 1])


def test_detections_without_classes_count_as_one_category():
    image = fakes.random_image(np.random.default_rng(1), 1, with_areas=False)
    evaluator = PascalEvaluator(fakes.CATEGORIES, METRIC_SETS['pascal_voc_detection_metrics'])
    ((batch, detections),) = fakes.batches([image], 1)
    del detections['detection_classes']
    evaluator.add_batch(batch | _no_flags(batch), detections)
    ((name, value),) = evaluator.evaluate().items()
    assert name == 'PascalBoxes_Precision/mAP@0.5IOU'
    assert 0 < value <= 1


def test_workers_merge_to_the_same_metrics_in_any_order():
    images = [fakes.random_image(np.random.default_rng(1), n, with_areas=False) for n in range(8)]
    parts = []
    for start in (0, 1):
        evaluator = _random_evaluator()
        for batch, detections in fakes.batches(images[start::2], 3):
            evaluator.add_batch(batch | _no_flags(batch), detections)
        parts.append(evaluator.part())
    merged = []
    for order in (parts, parts[::-1], [*parts, parts[0]]):
        evaluator = _random_evaluator()
        for part in order:
            evaluator.merge(pickle.loads(pickle.dumps(part)))
        merged.append(evaluator.evaluate())
    assert merged[0] == merged[1] == merged[2]
    assert 0 < merged[0]['PascalMasks_Precision/mAP@0.5IOU'] < 1


def test_stored_images_hold_a_few_numbers_for_each_object():
    evaluator = _random_evaluator()
    image = fakes.random_image(np.random.default_rng(1), 1, with_areas=False)
    ((batch, detections),) = fakes.batches([image], 1)
    evaluator.add_batch(batch | _no_flags(batch), detections)
    (stored,) = evaluator.part()[1]
    numbers = 3 * len(image['detection_boxes']) + 2 * len(image['boxes'])
    assert sum(row.nbytes for row in stored.outcome) <= 8 * numbers


def test_missing_entries_are_named():
    image = fakes.random_image(np.random.default_rng(1), 1, with_areas=False)
    ((batch, detections),) = fakes.batches([image], 1)
    challenge = METRIC_SETS['oid_challenge_detection_metrics']
    with pytest.raises(UserError, match='`load_image_labels: true` in eval_input_reader'):
        PascalEvaluator(fakes.CATEGORIES, challenge).add_batch(batch | _no_flags(batch), detections)
    del detections['detection_masks']
    message = 'PascalMasks: the detections have no `detection_masks`; they need a model with a mask'
    with pytest.raises(UserError, match=message):
        _random_evaluator().add_batch(batch, detections)


def test_bounds_of_recall_are_checked():
    options = METRIC_SETS['precision_at_recall_detection_metrics']
    with pytest.raises(UserError, match=r'in ascending order. Received: 0.7 and 0.2'):
        dataclasses.replace(options, recall_bounds=(0.7, 0.2))


def _random_evaluator():
    options = METRIC_SETS['pascal_voc_instance_segmentation_metrics']
    return PascalEvaluator(fakes.CATEGORIES, options)


def _no_flags(batch):
    none = np.zeros_like(batch['evaluation_is_crowd'])
    return {'evaluation_difficult': none, 'evaluation_group_of': none}
