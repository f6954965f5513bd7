import numpy as np
import pytest
from google.protobuf import text_format

from object_detection.builders import evaluator_builder
from object_detection.metrics import detections
from object_detection.metrics.mask_pasting import PasteMethod
from object_detection.protos import eval_pb2, pipeline_pb2
from tests import goldens, rows

CATEGORIES = [
    {'id': 1, 'name': 'alpha', 'frequency': 'r', 'keypoints': {'nose': 0, 'ear': 1}},
    {'id': 2, 'name': 'beta', 'frequency': 'f', 'keypoints': {'nose': 0}},
]


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


def test_sets_of_pascal_and_open_images():
    sets = {
        'pascal_voc_detection_metrics': 'PascalBoxes',
        'weighted_pascal_voc_instance_segmentation_metrics': 'WeightedPascalMasks',
        'oid_V2_detection_metrics': 'OpenImagesV2',
        'oid_challenge_segmentation_metrics': 'OpenImagesInstanceSegmentationChallenge',
    }
    config = eval_pb2.EvalConfig(metrics_set=sets)
    names = [list(e.evaluate()) for e in evaluator_builder.build(config, CATEGORIES)]
    assert names == [
        [
            f'{prefix}_Precision/mAP@0.5IOU',
            f'{prefix}_PerformanceByCategory/AP@0.5IOU/alpha',
            f'{prefix}_PerformanceByCategory/AP@0.5IOU/beta',
        ]
        for prefix in sets.values()
    ]


def test_bounds_of_recall_are_those_of_the_config():
    (names,) = _metric_names(
        'metrics_set: "precision_at_recall_detection_metrics" recall_lower_bound: 0.2 '
        'recall_upper_bound: 0.6'
    )
    assert names[0] == 'PrecisionAtRecallBoxes_Precision/mAP@0.5IOU@[0.2,0.6]Recall'


def test_lvis_and_coco_masks_share_the_names_of_metrics_by_category():
    both = 'metrics_set: ["lvis_mask_metrics", "coco_mask_metrics"]'
    lvis, coco = _metric_names(both)
    assert lvis[0] == 'DetectionMasks_AP'
    assert not set(lvis) & set(coco)
    with pytest.raises(ValueError, match='coco_mask_metrics and lvis_mask_metrics'):
        _metric_names(f'{both} include_metrics_per_category: true')
    (names,) = _metric_names('metrics_set: "lvis_mask_metrics" include_metrics_per_category: true')
    assert names[-1] == 'DetectionMasks_PerformanceByCategory/mAP/beta'


def _set_of(evaluator):
    """The set of metrics of the reference's evaluator that computes the same metrics."""
    (name, *_) = evaluator.evaluate()
    return name.partition('_')[0].partition('@')[0]


# Class of the reference -> the beginning of the names of its metrics.
_PREFIXES = {
    'CocoDetectionEvaluator': 'DetectionBoxes',
    'CocoMaskEvaluator': 'DetectionMasks',
    'LVISMaskEvaluator': 'DetectionMasks',
    'CocoKeypointEvaluator': 'Keypoints',
    'CocoPanopticSegmentationEvaluator': 'PanopticQuality',
    'PascalDetectionEvaluator': 'PascalBoxes',
    'WeightedPascalDetectionEvaluator': 'WeightedPascalBoxes',
    'PascalInstanceSegmentationEvaluator': 'PascalMasks',
    'WeightedPascalInstanceSegmentationEvaluator': 'WeightedPascalMasks',
    'PrecisionAtRecallDetectionEvaluator': 'PrecisionAtRecallBoxes',
    'OpenImagesDetectionEvaluator': 'OpenImagesV2',
    'OpenImagesDetectionChallengeEvaluator': 'OpenImagesDetectionChallenge',
    'OpenImagesInstanceSegmentationChallengeEvaluator': 'OpenImagesInstanceSegmentationChallenge',
}


def test_every_set_of_the_reference_is_built():
    recorded = dict(goldens.load('evaluation', 'metric_registry').params)
    # It needs a class, so it is no set but a parameterized metric.
    name = 'coco_keypoint_metrics'
    assert set(evaluator_builder.METRIC_SETS) | {name} == set(recorded)
    config = text_format.Parse(_keypoint_metrics('alpha'), eval_pb2.EvalConfig())
    config.metrics_set.extend(evaluator_builder.METRIC_SETS)
    built = evaluator_builder.build(config, CATEGORIES)
    sets = [*evaluator_builder.METRIC_SETS, name]
    assert [_set_of(each) for each in built] == [_PREFIXES[recorded[each]] for each in sets]
    metrics = [key for each in built for key in each.evaluate()]
    assert len(set(metrics)) == len(metrics)


def test_configs_build_the_evaluators_of_the_reference():
    for text, recorded in goldens.load('evaluation', 'from_eval_config').params.items():
        config = text_format.Parse(text, eval_pb2.EvalConfig())
        if 'raises' in recorded:
            with pytest.raises(ValueError, match='metrics_set: expected some of'):
                evaluator_builder.build(config, CATEGORIES)
            continue
        built = evaluator_builder.build(config, CATEGORIES)
        assert [_set_of(each) for each in built] == [
            _PREFIXES[name] for name in recorded['evaluators']
        ]
        for evaluator, options in zip(built, recorded['options'].values(), strict=False):
            _check_options(evaluator, options, config)


def _check_options(evaluator, options, config):
    """Compares the options of the reference with what an evaluator computes."""
    names = list(evaluator.evaluate())
    of_categories = [name for name in names if 'PerformanceByCategory' in name]
    if 'include_metrics_per_category' in options:
        # Here all_metrics_per_category implies it.
        asked = any(options.get(f'{each}_metrics_per_category') for each in ('include', 'all'))
        assert bool(of_categories) == asked
    assert any(' ByCategory/' in name for name in names) == bool(
        options.get('all_metrics_per_category')
    )
    groups = options.get('super_categories', {})
    assert [n.rpartition('/')[2] for n in names if 'BySuperCategory' in n] == list(groups)
    if 'recall_lower_bound' in options:
        bounds = options['recall_lower_bound'], options['recall_upper_bound']
        assert '@[{:.1f},{:.1f}]Recall'.format(*bounds) in names[0]
    if options.get('skip_predictions_for_unlabeled_class'):
        with pytest.raises(ValueError, match='load_image_labels'):
            evaluator.add_batch({'source_id': []}, {'detection_classes': []})
        assert config.skip_predictions_for_unlabeled_class


def test_names_of_the_evaluators_are_in_their_order():
    config = text_format.Parse(_keypoint_metrics('beta'), eval_pb2.EvalConfig())
    config.metrics_set.extend(['oid_V2_detection_metrics', 'lvis_mask_metrics'])
    assert evaluator_builder.evaluator_names(config) == [
        'oid_V2_detection_metrics',
        'lvis_mask_metrics',
        'coco_keypoint_metrics-beta',
    ]


@pytest.mark.parametrize('method', ['', 'RESIZE', 'ACCURATE'])
def test_masks_are_pasted_as_the_config_says(monkeypatch, method):
    text = f'mask_paste_method: {method}' if method else ''
    config = text_format.Parse(text, eval_pb2.EvalConfig(metrics_set=['coco_mask_metrics']))
    (evaluator,) = evaluator_builder.build(config, CATEGORIES)
    asked = []
    monkeypatch.setattr(
        detections, 'encode_masks', lambda _, paste_method: asked.append(paste_method) or []
    )
    batch = {
        'source_id': [b'1'],
        'original_image_spatial_shape': np.array([[9, 9]]),
        'evaluation_boxes': np.zeros((1, 0, 4)),
        'evaluation_classes': np.zeros((1, 0), int),
        'evaluation_is_crowd': np.zeros((1, 0), bool),
        'evaluation_area': np.zeros((1, 0)),
        'evaluation_masks': np.zeros((1, 0), object),
        'num_evaluation_boxes': np.zeros(1, int),
    }
    found = {
        'detection_boxes': np.zeros((1, 0, 4)),
        'detection_scores': np.zeros((1, 0)),
        'detection_classes': np.zeros((1, 0)),
        'detection_masks': np.zeros((1, 0, 28, 28)),
        'num_detections': np.zeros(1),
    }
    evaluator.add_batch(batch, found)
    assert asked == [PasteMethod[method or 'UNCROP']]


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
        ('metrics_set: "coco_keypoint_metrics"', 'needs a class: write parameterized_metric'),
    ],
)
def test_other_sets_are_rejected(text, received):
    with pytest.raises(ValueError, match=f'coco_detection_metrics, coco_mask_.*{received}'):
        _metric_names(text)


def _keypoint_metrics(*labels):
    return ' '.join(
        f'parameterized_metric {{ coco_keypoint_metrics {{ class_label: "{label}" '
        'keypoint_label_to_sigmas { key: "nose" value: 0.1 } } }'
        for label in labels
    )


def test_keypoints_of_each_class_have_metrics_of_their_own():
    boxes, alpha, beta = _metric_names(_keypoint_metrics('alpha', 'beta'))
    assert boxes[0] == 'DetectionBoxes_Precision/mAP'
    assert alpha[0] == 'Keypoints_Precision/mAP ByCategory/alpha'
    assert beta[5] == 'Keypoints_Recall/AR ByCategory/beta'


@rows.parametrize(
    ('text', 'message'),
    [
        ('parameterized_metric {}', 'expected coco_keypoint_metrics in each entry'),
        (_keypoint_metrics('alpha', 'alpha'), r"one coco_keypoint_metrics for each class.*'alpha'"),
        (_keypoint_metrics('gamma'), r"\['alpha', 'beta'\]. Received: 'gamma'"),
    ],
)
def test_metrics_of_keypoints_that_cannot_be(text, message):
    with pytest.raises(ValueError, match=message):
        _metric_names(text)


def _annotation_file(tmp_path, text):
    (tmp_path / 'val.json').write_text(text)
    (tmp_path / 'labels.pbtxt').write_text(
        'item { id: 0 name: "background" } item { id: 1 name: "/m/1" display_name: "alpha" }'
    )
    return str(tmp_path / 'val.json'), str(tmp_path / 'labels.pbtxt')


def test_annotations_have_the_classes_of_the_label_map(tmp_path):
    text = '{"images": [], "annotations": [], "categories": [{"id": 9, "name": "alpha"}]}'
    annotations = evaluator_builder.read_annotations(*_annotation_file(tmp_path, text))
    assert annotations.category_ids == {1: 9}


def test_what_is_no_json_file(tmp_path):
    with pytest.raises(ValueError, match=r'val.json: expected a JSON file. Received: '):
        evaluator_builder.read_annotations(*_annotation_file(tmp_path, 'images:'))


@pytest.mark.parametrize(
    ('stages', 'has_masks', 'count'), [(1, False, 4), (2, False, 6), (3, True, 7), (3, False, 0)]
)
def test_names_of_metrics_and_losses(tmp_path, stages, has_masks, count):
    pipeline = pipeline_pb2.TrainEvalPipelineConfig()
    pipeline.model.faster_rcnn.number_of_stages = stages
    reader = pipeline.eval_input_reader.add(load_instance_masks=has_masks)
    reader.label_map_path = _annotation_file(tmp_path, '')[1]
    pipeline.eval_config.include_metrics_per_category = True
    names = evaluator_builder.metric_names(pipeline, 0)
    assert names[12] == 'DetectionBoxes_PerformanceByCategory/mAP/alpha'
    assert len(names) == 13 + count
    assert all(name.startswith('Loss/') for name in names[13:])
