"""Names of readers and of the metrics that decide something."""

import re

import pytest
from google.protobuf import text_format

from object_detection.errors import ConfigError
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.validation import eval_config as rules
from object_detection.validation.validate import validate
from tests import rows
from tests.validation.pipelines import sound_pipeline

BOXES, MASKS = 'DetectionBoxes_Precision/mAP', 'DetectionMasks_Precision/mAP'


def _pipeline(eval_config='', readers=('',)):
    text = f'eval_config {{ {eval_config} }}'
    text += ''.join(f' eval_input_reader {{ name: "{name}" }}' for name in readers)
    return text_format.Parse(text, TrainEvalPipelineConfig())


@rows.parametrize(
    ('names', 'expected'),
    [
        ([], []),
        ([''], ['']),
        (['val'], ['val']),
        (['', 'val'], ['reader_0', 'val']),
        (['val', 'val'], ['val_0', 'val_1']),
        (['val', 'val', 'val_0'], ['val_0_', 'val_1', 'val_0']),
        (['reader_1', ''], ['reader_1', 'reader_1_']),
    ],
)
def test_names_of_readers_are_distinct(names, expected):
    assert rules.reader_names(_pipeline(readers=names)) == expected


def test_the_best_is_chosen_by_masks_where_they_are_evaluated():
    assert rules.best_metric(_pipeline()) == (BOXES, '')
    both = 'metrics_set: ["coco_detection_metrics", "coco_mask_metrics"]'
    assert rules.best_metric(_pipeline(both, ['a', 'b'])) == (MASKS, 'a')
    chosen = 'best_checkpoint { metric: "Loss/total_loss" reader: "b" }'
    assert rules.best_metric(_pipeline(chosen, ['a', 'b'])) == ('Loss/total_loss', 'b')


def test_stopping_uses_the_metric_of_the_best():
    best = 'best_checkpoint { metric: "Loss/total_loss" reader: "b" }'
    assert rules.stopping_metric(_pipeline(best, ['a', 'b'])) == ('Loss/total_loss', 'b')
    own = f'{best} early_stopping {{ metric: "{BOXES}" reader: "a" }}'
    assert rules.stopping_metric(_pipeline(own, ['a', 'b'])) == (BOXES, 'a')


def test_a_plateau_uses_the_metric_of_the_best():
    pipeline = _pipeline('best_checkpoint { metric: "Loss/total_loss" reader: "b" }', ['a', 'b'])
    assert rules.plateau_metric(pipeline) == ('Loss/total_loss', 'b')
    plateau = pipeline.train_config.optimizer.reduce_on_plateau
    plateau.metric, plateau.reader = BOXES, 'a'
    assert rules.plateau_metric(pipeline) == (BOXES, 'a')
    assert not list(rules.check(pipeline))
    plateau.reader = 'c'
    (problem,) = rules.check(pipeline)
    assert problem.startswith('train_config.optimizer.reduce_on_plateau.reader: expected the name')


@rows.parametrize(
    ('text', 'message'),
    [
        ('best_checkpoint { reader: "c" }', "best_checkpoint.reader: .*'a', 'b'. Received: 'c'"),
        ('early_stopping { patience: 1 reader: "c" }', 'early_stopping.reader: '),
        ('async_evaluation { device: "tpu" }', "device: expected 'cpu'.* Received: 'tpu'"),
        ('async_evaluation { cpu_affinity: "x" }', 'cpu_affinity .*: expected CPU cores such as'),
        ('early_stopping {}', 'early_stopping: expected patience or a target'),
        ('early_stopping { target { value: 1 } }', r'target\[0\].metric is not set'),
        ('early_stopping { target { metric: "a" } }', r'target\[0\].value: .* Received: nothing'),
    ],
)
def test_one_mistake_gives_one_line(text, message):
    (problem,) = rules.check(_pipeline(text, ['a', 'b']))
    assert re.search(message, problem)


@rows.parametrize('name', ['../other', '/tmp/x', 'a/../../b', '.'])
def test_results_stay_in_their_folder(name):
    (problem,) = rules.check(_pipeline(readers=[name]))
    assert problem.startswith('eval_input_reader[0].name: expected the name of a folder')


def test_a_sound_config_has_nothing_wrong():
    text = f'best_checkpoint {{ reader: "a" }} early_stopping {{ target {{ metric: "{BOXES}" '
    assert not list(rules.check(_pipeline(text + 'value: 0.3 } patience: 3 }', ['a', 'b/c'])))


@rows.parametrize(
    ('text', 'field'),
    [
        ('best_checkpoint { metric: "mAP" }', 'best_checkpoint.metric'),
        ('early_stopping { patience: 1 metric: "mAP" }', 'early_stopping.metric'),
        (
            'early_stopping { target { metric: "mAP" value: 1 } }',
            'early_stopping.target[0].metric',
        ),
    ],
)
def test_metrics_that_do_not_exist_are_reported_before_the_start(tmp_path, text, field):
    pipeline = sound_pipeline(tmp_path)
    text_format.Merge(text, pipeline.eval_config)
    with pytest.raises(ConfigError) as error:
        validate(pipeline, for_what='eval')
    assert f"eval_config.{field}: expected a metric of the evaluation: '{BOXES}'" in str(
        error.value
    )
    assert "Received: 'mAP'." in str(error.value)


def test_a_metric_of_a_plateau_that_does_not_exist(tmp_path):
    pipeline = sound_pipeline(tmp_path)
    pipeline.train_config.optimizer.reduce_on_plateau.metric = 'mAP'
    with pytest.raises(ConfigError, match=r'reduce_on_plateau\.metric: expected a metric of'):
        validate(pipeline, for_what=['train', 'eval'])


def test_metrics_that_exist_pass(tmp_path):
    pipeline = sound_pipeline(tmp_path)
    text_format.Merge(
        'best_checkpoint { metric: "DetectionMasks_PerformanceByCategory/mAP/a" } '
        'early_stopping { patience: 2 metric: "Loss/BoxClassifierLoss/mask_loss" } '
        'include_metrics_per_category: true',
        pipeline.eval_config,
    )
    validate(pipeline, for_what='eval')


def test_an_annotation_file_needs_one_reader(tmp_path):
    path = tmp_path / 'val.json'
    with pytest.raises(ConfigError, match='--val_json_file: there is no file'):
        rules.check_val_json_file(_pipeline(), str(path))
    path.write_text('{}')
    rules.check_val_json_file(_pipeline(), str(path))
    with pytest.raises(ConfigError, match=r'expected one eval_input_reader.* Received: 2'):
        rules.check_val_json_file(_pipeline(readers=['a', 'b']), str(path))


@rows.parametrize(
    ('text', 'metric'),
    [
        ('metrics_set: "open_images_metrics"', 'OpenImagesV2_Precision/mAP@0.5IOU'),
        ('metrics_set: "open_images_V2_detection_metrics"', 'OpenImagesV2_Precision/mAP@0.5IOU'),
        ('metrics_set: ["pascal_voc_detection_metrics", "coco_detection_metrics"]', BOXES),
        ('max_detections: 500', f'{BOXES}@500'),
        ('max_detections: 100', BOXES),
        ('metrics_set: "oid_V2_detection_metrics"', 'OpenImagesV2_Precision/mAP@0.5IOU'),
        (
            'metrics_set: "precision_at_recall_detection_metrics" recall_lower_bound: 0.5',
            'PrecisionAtRecallBoxes_Precision/mAP@0.5IOU@[0.5,1.0]Recall',
        ),
    ],
)
def test_best_checkpoint_follows_a_metric_that_is_evaluated(tmp_path, text, metric):
    pipeline = sound_pipeline(tmp_path)
    pipeline.eval_config.ClearField('metrics_set')
    text_format.Merge(text, pipeline.eval_config)
    assert rules.best_metric(pipeline).metric == metric
    validate(pipeline, for_what='eval')


@rows.parametrize(
    ('metrics_set', 'metric'),
    [
        ('lvis_mask_metrics', 'DetectionMasks_AP'),
        ('coco_panoptic_metrics', 'PanopticQuality@0.50IOU'),
        ('coco_mask_metrics', MASKS),
    ],
)
def test_best_of_sets_that_compare_masks_only(metrics_set, metric):
    pipeline = _pipeline(f'metrics_set: "{metrics_set}"')
    assert rules.best_metric(pipeline).metric == metric
    assert rules.mask_sets(pipeline.eval_config) == [metrics_set]
    pipeline.eval_config.max_detections = 500
    limit = '' if metrics_set == 'coco_panoptic_metrics' else '@500'
    assert rules.best_metric(pipeline).metric == metric + limit


@rows.parametrize(
    ('text', 'names'),
    [
        ('', []),
        ('skip_predictions_for_unlabeled_class: true', [rules.BOX_METRICS]),
        (
            'metrics_set: ["lvis_mask_metrics", "coco_detection_metrics"]',
            ['lvis_mask_metrics'],
        ),
        (
            'metrics_set: ["coco_mask_metrics", "precision_at_recall_detection_metrics"] '
            'skip_predictions_for_unlabeled_class: true',
            ['precision_at_recall_detection_metrics'],
        ),
    ],
)
def test_sets_that_need_the_labels_of_images(text, names):
    assert rules.label_sets(_pipeline(text).eval_config) == names


def test_detections_are_written_to_this_machine():
    pipeline = _pipeline('export_path: "gs://bucket/a.json"')
    (problem,) = rules.check(pipeline)
    assert problem.startswith('eval_config.export_path: expected a folder on this machine')
    assert list(rules.check(_pipeline('export_path: "a.json"'))) == []


def test_metrics_of_keypoints_need_them_on_both_sides(tmp_path):
    pipeline = sound_pipeline(tmp_path)
    pipeline.eval_config.parameterized_metric.add().coco_keypoint_metrics.class_label = 'cat'
    with pytest.raises(ConfigError) as error:
        validate(pipeline, for_what='eval')
    assert 'eval_input_reader[0].num_keypoints is 0' in str(error.value)
    assert 'measures keypoints, but the model predicts none' in str(error.value)


def test_verified_classes_need_the_labels_of_images(tmp_path):
    pipeline = sound_pipeline(tmp_path)
    pipeline.eval_config.metrics_set.append('oid_challenge_detection_metrics')
    with pytest.raises(ConfigError, match=r'eval_input_reader\[0\].load_image_labels is false'):
        validate(pipeline, for_what='eval')
    pipeline.eval_input_reader[0].load_image_labels = True
    validate(pipeline, for_what='eval')


def test_an_unknown_set_is_reported_with_paths_that_are_missing(tmp_path):
    pipeline = sound_pipeline(tmp_path)
    pipeline.eval_config.metrics_set.append('coco_detection_metric')
    pipeline.eval_input_reader[0].label_map_path = 'nowhere.pbtxt'
    with pytest.raises(
        ConfigError, match=r'Did you mean coco_detection_metrics(.|\n)*nowhere.pbtxt'
    ):
        validate(pipeline, for_what='eval')
