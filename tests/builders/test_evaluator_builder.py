import pytest
from google.protobuf import text_format

from object_detection.builders import evaluator_builder
from object_detection.protos import eval_pb2

CATEGORIES = [{'id': 1, 'name': 'alpha'}, {'id': 2, 'name': 'beta'}]


def _metric_names(text):
    config = text_format.Parse(text, eval_pb2.EvalConfig())
    return [list(e.evaluate()) for e in evaluator_builder.build(config, CATEGORIES)]


def test_boxes_are_scored_by_default():
    (names,) = _metric_names('')
    assert len(names) == 12
    assert all(name.startswith('DetectionBoxes_') for name in names)


def test_sets_in_their_order_and_once():
    boxes, masks = _metric_names(
        'metrics_set: ["coco_detection_metrics", "coco_mask_metrics", "coco_mask_metrics"]'
    )
    assert boxes[0] == 'DetectionBoxes_Precision/mAP'
    assert masks[0] == 'DetectionMasks_Precision/mAP'


def test_metrics_by_category():
    (names,) = _metric_names('include_metrics_per_category: true')
    assert names[12:] == [
        f'DetectionBoxes_PerformanceByCategory/mAP/{c}' for c in ('alpha', 'beta')
    ]
    (names,) = _metric_names('all_metrics_per_category: true')
    assert len(names) == 12 + 2 * 13
    assert 'DetectionBoxes_Precision/mAP@.50IOU ByCategory/beta' in names


def test_super_categories_are_a_list_with_commas():
    (names,) = _metric_names('super_categories { key: "greek" value: "alpha, beta" }')
    assert names[12:] == ['DetectionBoxes_PerformanceBySuperCategory/greek']
    with pytest.raises(ValueError, match='gamma'):
        _metric_names('super_categories { key: "greek" value: "alpha,gamma" }')


@pytest.mark.parametrize(
    ('text', 'received'),
    [
        ('metrics_set: "nope"', 'nope'),
        ('metrics_set: "pascal_voc_detection_metrics"', 'pascal_voc_detection_metrics'),
        ('parameterized_metric { coco_keypoint_metrics {} }', 'coco_keypoint_metrics'),
    ],
)
def test_other_sets_are_rejected(text, received):
    with pytest.raises(ValueError, match=f'coco_detection_metrics, coco_mask_.*{received}'):
        _metric_names(text)
