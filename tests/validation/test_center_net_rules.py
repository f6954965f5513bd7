"""Options of a CenterNet that have no effect, that are wrong, or that are rarely meant."""

import glob
import os

import pytest

from object_detection.config import reader, reading
from object_detection.config.families import FAMILIES
from object_detection.errors import UserError
from object_detection.meta_architectures import tracing
from object_detection.meta_architectures.center_net import build, warnings
from tests import rows
from tests.meta_architectures.center_net.test_center_net import parse
from tests.meta_architectures.center_net.test_zoo_keys import pose_label_map
from tests.unread import unread

LABELS = "item { id: 1 name: 'a' keypoints { id: 0 label: 'head' } }"
LOSS = """loss { classification_loss { penalty_reduced_logistic_focal_loss { alpha: 2 beta: 4 } }
  localization_loss { l1_localization_loss {} } }"""
TASK = """keypoint_estimation_task { task_name: 'pose' FIELDS }"""


@rows.parametrize(
    ('changes', 'paths'),
    [
        ('', []),
        (
            'feature_extractor { depth_multiplier: 0.5 use_separable_conv: true }',
            ['feature_extractor.depth_multiplier', 'feature_extractor.use_separable_conv'],
        ),
        ("feature_extractor { upsampling_interpolation: 'bilinear' }", []),
        ('feature_extractor { use_depthwise: true }', ['feature_extractor.use_depthwise']),
        (
            "feature_extractor { type: 'hourglass_10' upsampling_interpolation: 'bilinear' }",
            ['feature_extractor.upsampling_interpolation'],
        ),
        (
            "feature_extractor { type: 'mobilenet_v2' use_separable_conv: true "
            'depth_multiplier: 0.5 }',
            ['feature_extractor.use_separable_conv'],
        ),
        (
            "feature_extractor { type: 'mobilenet_v2_fpn' use_separable_conv: true "
            "depth_multiplier: 0.5 upsampling_interpolation: 'bilinear' }",
            [],
        ),
        (
            'post_processing { batch_non_max_suppression { '
            'soft_nms_sigma: 1 iou_threshold: 0.5 } }',
            ['post_processing.batch_non_max_suppression.iou_threshold'],
        ),
    ],
)
@pytest.mark.usefixtures('small_backbone')
def test_fields_without_an_effect(changes, paths):
    found = unread(parse(changes))
    assert [path for path, _ in found] == [f'model.center_net.{path}' for path in paths]
    assert all(reason for _, reason in found)


@rows.parametrize(
    ('fields', 'names'),
    [
        (
            "candidate_ranking_mode: 'score_distance_ratio' score_distance_offset: 2 "
            'score_distance_multiplier: 0.5 gaussian_denom_ratio: 0.5 std_dev_multiplier: 2',
            ['score_distance_multiplier', 'std_dev_multiplier', 'gaussian_denom_ratio'],
        ),
        (
            "candidate_ranking_mode: 'score_scaled_distance_ratio' score_distance_multiplier: 0.5 "
            'score_distance_offset: 2 box_scale: 2',
            ['score_distance_offset'],
        ),
        ("candidate_ranking_mode: 'gaussian_weighted' std_dev_multiplier: 2", []),
        (
            "candidate_ranking_mode: 'gaussian_weighted_const' gaussian_denom_ratio: 0.5 "
            'argmax_postprocessing: true num_candidates_per_keypoint: 5 box_scale: 2',
            ['num_candidates_per_keypoint', 'box_scale'],
        ),
        (
            'rescoring_threshold: 0.5 per_keypoint_depth: true keypoint_depth_loss_weight: 2',
            ['rescoring_threshold', 'per_keypoint_depth', 'keypoint_depth_loss_weight'],
        ),
        (
            'rescoring_threshold: 0.5 rescore_instances: true predict_depth: true '
            'per_keypoint_depth: true keypoint_depth_loss_weight: 2',
            [],
        ),
    ],
)
def test_fields_of_keypoints_without_an_effect(fields, names, tmp_path):
    (tmp_path / 'map').write_text(LABELS)
    text = f"{fields} keypoint_class_name: 'a' {LOSS}"
    config = parse(TASK.replace('FIELDS', text)).center_net
    config.keypoint_label_map_path = str(tmp_path / 'map')
    assert sorted(unread_of_keypoints(config)) == sorted(names)
    config.ClearField('object_detection_task')
    assert ('box_scale' in unread_of_keypoints(config)) == ('box_scale' in fields)


def unread_of_keypoints(config):
    """Names of the fields of the task that its builder does not read, all with a reason."""
    view = reading.tracked(config)
    build.build_keypoints(view)
    path = 'keypoint_estimation_task[0].'
    found = [(name, why) for name, why in reading.unread(view) if name.startswith(path)]
    assert all(reason for _, reason in found)
    return [name.removeprefix(path) for name, _ in found]


@rows.parametrize(
    ('changes', 'found'),
    [
        ('', []),
        ('image_resizer { pad_to_multiple_resizer { multiple: 32 } }', ['ignore_padding is false']),
        (
            'image_resizer { keep_aspect_ratio_resizer { pad_to_max_dimension: true } } '
            'ignore_padding: true',
            [],
        ),
        (
            'object_center_params { classification_loss { penalty_reduced_logistic_focal_loss { '
            'alpha: 0 } } }',
            ['object_center_params.classification_loss.penalty_reduced_logistic_focal_loss.alpha'],
        ),
        (
            TASK.replace(
                'FIELDS',
                'loss { classification_loss { penalty_reduced_logistic_focal_loss {} } }',
            ),
            ['[0].loss.classification_loss.penalty_reduced_logistic_focal_loss.alpha is 0'],
        ),
    ],
)
def test_advice(changes, found):
    sentences = list(warnings.find_advice(parse(changes).center_net))
    assert len(sentences) == len(found)
    assert all(part in sentence for part, sentence in zip(found, sentences, strict=True))


@rows.parametrize(
    ('changes', 'expected'),
    [
        ('', None),
        (
            'object_detection_task { localization_loss { weighted_giou {} } }',
            'model.center_net.object_detection_task.localization_loss.weighted_giou compares boxes',
        ),
        (
            'temporal_offset_task { localization_loss { weighted_smooth_l1 { delta: -1 } } }',
            'model.center_net.temporal_offset_task.localization_loss',
        ),
        (
            'image_resizer { fixed_shape_resizer { height: 0 } }',
            'model.center_net.image_resizer',
        ),
        (
            "keypoint_label_map_path: 'FOLDER/none' keypoint_estimation_task {}",
            'model.center_net.keypoint_label_map_path: ',
        ),
        (
            "keypoint_label_map_path: 'FOLDER/map' keypoint_estimation_task { "
            "keypoint_class_name: 'b' }",
            'model.center_net.keypoint_estimation_task[0].keypoint_class_name: expected an item',
        ),
        (
            "keypoint_label_map_path: 'FOLDER/map' keypoint_estimation_task { "
            "keypoint_class_name: 'a' keypoint_label_to_std { key: 'tail' value: 1 } }",
            'model.center_net.keypoint_estimation_task[0].keypoint_label_to_std: expected keypoint',
        ),
    ],
)
@pytest.mark.usefixtures('small_backbone')
def test_components_are_built(changes, expected, tmp_path):
    (tmp_path / 'map').write_text(LABELS)
    changes = changes.replace('FOLDER', str(tmp_path))
    if expected is None:
        assert not tracing.check(parse(changes), 3)
        return
    with pytest.raises(UserError) as caught:
        tracing.check(parse(changes), 3)
    assert str(caught.value).startswith(expected)


def test_published_configs_have_no_problems(shared, tmp_path):
    folder = os.path.join(shared, 'reference', 'configs', 'tf2')
    paths = glob.glob(os.path.join(folder, 'center*net_*.config'))
    assert len(paths) >= 8
    for path in paths:
        config = reader.read_pipeline(path)
        for task in config.model.center_net.keypoint_estimation_task:
            labels = tmp_path / 'labels'
            labels.write_text(pose_label_map(task))
            config.model.center_net.keypoint_label_map_path = str(labels)
        family = FAMILIES['center_net']
        assert not list(family.rules(config.model.center_net)), path
        # The reference finds objects in the padding.
        advice = list(family.warnings(config.model.center_net, False))
        assert all('ignore_padding' in sentence for sentence in advice), path
