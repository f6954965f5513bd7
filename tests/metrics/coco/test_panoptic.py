import numpy as np
import pytest

from object_detection.metrics.coco.panoptic import PanopticEvaluator
from tests import goldens
from tests.evaluation import fakes
from tests.metrics.coco import golden_batches

CATEGORIES = [{'id': 1, 'name': 'dog'}, {'id': 2, 'name': 'cat'}, {'id': 3, 'name': 'bird'}]
SIZE = 20
# The reference rounds each IoU to float32, a relative error of at most 2^-24; twice, for its sums.
ROUNDING = 2.0**-23


def test_metrics_equal_reference(monkeypatch):
    params = goldens.load('evaluation', 'coco_panoptic').params
    evaluator = PanopticEvaluator(
        goldens.load('evaluation', 'data').params['categories'],
        per_category=params['include_metrics_per_category'],
        iou_threshold=params['iou_threshold'],
        crowd_threshold=params['ioa_threshold'],
    )
    golden_batches.add_all(evaluator, params, monkeypatch)
    metrics = evaluator.evaluate()
    assert list(metrics) == list(params['metrics'])
    assert metrics == pytest.approx(params['metrics'], rel=ROUNDING, abs=0)


def _mask(box):
    mask = np.zeros((SIZE, SIZE), np.uint8)
    mask[box[0] : box[2], box[1] : box[3]] = 1
    return mask


def _pair(objects, found, crowds=(), name=b'1'):
    """One image: (box, class) of objects and detections; indices of the crowds."""
    batch = {
        'source_id': np.array([name], object),
        'original_image_spatial_shape': np.array([[SIZE, SIZE]]),
        'evaluation_boxes': np.array([b for b, _ in objects], float).reshape(1, -1, 4) / SIZE,
        'evaluation_classes': np.array([[label for _, label in objects]], np.int64),
        'evaluation_is_crowd': np.isin(np.arange(len(objects)), crowds)[np.newaxis],
        'evaluation_area': np.full((1, len(objects)), -1.0),
        'evaluation_masks': np.array([[fakes.png(_mask(b)) for b, _ in objects]], object),
        'num_evaluation_boxes': np.array([len(objects)]),
    }
    detections = {
        'detection_boxes': np.array([b for b, _ in found], float).reshape(1, -1, 4) / SIZE,
        'detection_scores': np.linspace(0.9, 0.1, len(found))[np.newaxis],
        'detection_classes': np.array([[label - 1.0 for _, label in found]]),
        'detection_masks': np.ones((1, len(found), 4, 4), np.float32),
        'num_detections': np.array([float(len(found))]),
    }
    return batch, detections


def _evaluate(*pairs, **options):
    evaluator = PanopticEvaluator(CATEGORIES, **options)
    for pair in pairs:
        evaluator.add_batch(*pair)
    return evaluator.evaluate()


WHOLE, MOST, HALF, REST = (0, 0, 10, 10), (0, 0, 8, 10), (0, 0, 5, 10), (12, 12, 20, 20)


def test_quality_by_hand():
    # Dogs: one found with an IoU of .8, one missed, one wrong; cats: one found exactly.
    dogs = _pair([(WHOLE, 1), (REST, 1)], [(MOST, 1), ((0, 12, 5, 20), 1)])
    cats = _pair([(WHOLE, 2)], [(WHOLE, 2)], name=b'2')
    metrics = _evaluate(dogs, cats, per_category=True)
    assert metrics == pytest.approx(
        {
            'PanopticQuality@0.50IOU_ByCategory/dog': 0.8 * 0.5,
            'PanopticQuality@0.50IOU_ByCategory/cat': 1.0,
            'PanopticQuality@0.50IOU_ByCategory/bird': -1.0,
            'PanopticQuality@0.50IOU': (0.4 + 1.0) / 2,
            'SegmentationQuality@0.50IOU': 0.9,
            'RecognitionQuality@0.50IOU': 0.75,
            'NumValidClasses': 2.0,
            'NumTotalClasses': 3.0,
        }
    )


def test_an_overlap_of_exactly_the_threshold_is_no_match():
    assert _evaluate(_pair([(WHOLE, 1)], [(HALF, 1)]))['RecognitionQuality@0.50IOU'] == 0
    found = _pair([(WHOLE, 1)], [(HALF, 1)])
    assert _evaluate(found, iou_threshold=0.4)['RecognitionQuality@0.40IOU'] == 1


def test_the_better_scored_of_overlapping_segments_is_matched():
    pair = _pair([(WHOLE, 1)], [(MOST, 1), (WHOLE, 1)])
    metrics = _evaluate(pair)
    assert metrics['SegmentationQuality@0.50IOU'] == pytest.approx(0.8)
    assert metrics['RecognitionQuality@0.50IOU'] == pytest.approx(1 / 1.5)


def test_segments_in_a_crowd_do_not_count():
    objects = [(WHOLE, 1), (REST, 1)]
    inside, across = (13, 13, 16, 16), (8, 8, 16, 16)
    for found, quality in (([inside], 1), ([across], 1 / 1.5), ([inside, inside], 1)):
        segments = [(WHOLE, 1)] + [(box, 1) for box in found]
        metrics = _evaluate(_pair(objects, segments, crowds=[1]))
        assert metrics['RecognitionQuality@0.50IOU'] == pytest.approx(quality)
    # A crowd is never missed, and has no match.
    metrics = _evaluate(_pair([(REST, 1)], [(REST, 1)], crowds=[0]))
    assert metrics['NumValidClasses'] == 0
    assert metrics['PanopticQuality@0.50IOU'] == -1


def test_no_detections_and_no_images():
    metrics = _evaluate(_pair([(WHOLE, 1)], []))
    assert metrics['PanopticQuality@0.50IOU'] == 0
    assert _evaluate()['PanopticQuality@0.50IOU'] == -1
    assert _evaluate(_pair([], [(WHOLE, 3)]))['PanopticQuality@0.50IOU'] == 0


def test_masks_are_needed_on_both_sides():
    for side, key in ((0, 'evaluation_masks'), (1, 'detection_masks')):
        pair = _pair([(WHOLE, 1)], [(WHOLE, 1)])
        del pair[side][key]
        with pytest.raises(ValueError, match=key):
            _evaluate(pair)
