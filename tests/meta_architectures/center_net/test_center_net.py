"""CenterNet as a whole: golden models, zoo checkpoints, losses and detections."""

import os
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders import model_builder
from object_detection.config import families, ranges
from object_detection.core.fields import DetectionFields
from object_detection.core.groundtruth import Groundtruth
from object_detection.errors import CheckpointError, ConfigError
from object_detection.meta_architectures.center_net import build
from object_detection.meta_architectures.center_net.extractors import EXTRACTORS
from object_detection.meta_architectures.provided_groundtruth import ProvidedGroundtruth
from object_detection.models import image_channels
from object_detection.models.backbones import hourglass
from object_detection.protos import center_net_pb2, pipeline_pb2
from object_detection.runtime.in_process import ProcessRuntime
from object_detection.validation.validate import validate
from object_detection.weights.restore import restore
from tests import rows, slow_cases

CONFIG = """
  model {
    center_net {
      num_classes: 2
      image_resizer { fixed_shape_resizer { height: 64 width: 96 } }
      feature_extractor { type: 'resnet_v1_18_fpn' }
      object_center_params {
        classification_loss { penalty_reduced_logistic_focal_loss { alpha: 2 beta: 4 } }
        max_box_predictions: 6
      }
      object_detection_task { localization_loss { l1_localization_loss {} } }
    }
  }"""

GOLDEN_MODELS = (
    'center_net_deepmac_512x512_voc_only',
    'center_net_deepmac_resnet18_full_resolution',
    'center_net_deepmac_resnet8_mask_network',
    'centernet_hourglass104_512x512',
    'centernet_mobilenet_v2_fpn_masks_densepose',
    'centernet_mobilenet_v2_keypoint_depth',
    'centernet_resnet18_v1_fpn_tracking',
    'centernet_resnet50_v1_fpn_512x512_kpts',
)


def parse(changes=''):
    pipeline = pipeline_pb2.TrainEvalPipelineConfig()
    text_format.Parse(CONFIG, pipeline)
    text_format.Merge(f'model {{ center_net {{ {changes} }} }}', pipeline)
    return pipeline.model


def test_ground_truth_may_be_provided_before_predict(detector):
    images = tf.random.stateless_uniform([2, 64, 96, 3], [1, 2], maxval=255)
    boxes = [[[0.2, 0.1, 0.7, 0.5]], [[0.3, 0.3, 0.9, 0.9], [0.0, 0.0, 0.4, 0.2]]]
    classes = [[[1, 0]], [[0, 1], [1, 0]]]
    inputs, shapes = detector.preprocess(images)
    expected = detector.loss(
        detector.predict(inputs, shapes, training=True), Groundtruth.from_lists(boxes, classes)
    )
    detector.provide_groundtruth(boxes, classes)
    losses = detector.loss(detector.predict(inputs, shapes), shapes)
    detector.provided = ProvidedGroundtruth()
    assert losses.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(losses[name], value, rtol=1e-4)


@pytest.mark.slow
def test_it_learns_one_image(detector):
    images = tf.random.stateless_uniform([2, 64, 96, 3], [1, 2], maxval=255)
    groundtruth = Groundtruth.from_lists(
        [[[0.2, 0.1, 0.7, 0.5]], [[0.3, 0.3, 0.9, 0.9], [0.0, 0.0, 0.4, 0.2]]],
        [[[1, 0]], [[0, 1], [1, 0]]],
    )
    inputs, shapes = detector.preprocess(images)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            predictions = detector.predict(inputs, shapes, training=True)
            losses = detector.loss(predictions, groundtruth)
            total = tf.add_n(list(losses.values()))
        variables = [variable.value for variable in detector.trainable_variables]
        gradients, _ = tf.clip_by_global_norm(tape.gradient(total, variables), 10.0)
        for variable, gradient in zip(variables, gradients, strict=True):
            variable.assign_sub(0.01 * gradient)
        return losses

    losses = [step() for _ in range(12)]
    assert tuple(losses[0]) == detector.loss_names()
    totals = [float(sum(each.values())) for each in losses]
    assert np.isfinite(totals).all()
    assert totals[-1] < 0.7 * totals[0]


def test_predictions_are_exported_where_the_config_asks_for_them(detector):
    images = tf.zeros([1, 64, 96, 3])
    inputs, shapes = detector.preprocess(images)
    assert detector.exported_predictions(detector.predict(inputs, shapes)) == {}
    other = model_builder.build(parse('output_prediction_dict: true'))
    predictions = other.predict(inputs, shapes)
    served = ProcessRuntime(other).run_batch(images)
    assert served['object_center'].shape == (1, 16, 24, 2)
    expected = predictions['box/scale'][-1].numpy()
    # Rounding is relative to the largest terms of the sums.
    largest = np.abs(expected).max()
    np.testing.assert_allclose(served['box/scale'], expected, rtol=0, atol=1e-5 * largest)
    assert served['true_image_shapes'].numpy().tolist() == [[64, 96, 3]]
    assert served['detection_boxes'].shape == (1, 6, 4)


def test_hourglasses_take_no_classifier(tmp_path):
    config = parse("feature_extractor { type: 'hourglass_10' }")
    hourglass = model_builder.build(config)
    hourglass.build_variables()
    path = tf.train.Checkpoint(model=hourglass, step=tf.Variable(0)).save(str(tmp_path / 'ckpt'))
    with pytest.raises(CheckpointError, match='no image classifiers that are hourglass'):
        restore(hourglass, path, 'classification')
    # All but the heads, and all of them.
    names = hourglass.named_variables()
    for checkpoint_type, expected in (
        ('detection', {name for name in names if not name.startswith('heads/')}),
        ('full', set(names)),
    ):
        assert set(restore(hourglass, path, checkpoint_type).restored) == expected


def test_readers_load_what_the_losses_need():
    pipeline = pipeline_pb2.TrainEvalPipelineConfig()
    pipeline.model.CopyFrom(parse('object_center_params { use_labeled_classes: true }'))
    flags = families.needs(pipeline.model).reader_flags
    assert flags == {'load_image_labels': 'object_center_params.use_labeled_classes'}
    pipeline.train_input_reader.SetInParent()
    with pytest.raises(ConfigError, match='load_image_labels is false, but model'):
        validate(pipeline, for_what='train')


def test_checkpoints_restore_all_variables(detector, tmp_path):
    path = tf.train.Checkpoint(model=detector).save(str(tmp_path / 'ckpt'))
    keras.utils.set_random_seed(2)
    other = model_builder.build(parse())
    other.build_variables()
    tf.train.Checkpoint(model=other).restore(path).assert_existing_objects_matched()
    expected = detector.named_variables()
    for name, variable in other.named_variables().items():
        np.testing.assert_array_equal(variable, expected[name], err_msg=name)


def test_detections_have_the_form_of_other_families(detector):
    images = tf.random.stateless_uniform([2, 64, 96, 3], [3, 4], maxval=255)
    inputs, shapes = detector.preprocess(images)
    found = detector.postprocess(detector.predict(inputs, shapes), shapes)
    boxes = found[DetectionFields.BOXES].numpy()
    assert boxes.shape == (2, 6, 4)
    assert ((boxes >= 0) & (boxes <= 1)).all()
    scores = found[DetectionFields.SCORES].numpy()
    assert (np.diff(scores, axis=1) <= 0).all()
    assert found[DetectionFields.MULTICLASS_SCORES].shape == (2, 6, 2)
    np.testing.assert_array_equal(
        scores,
        np.take_along_axis(
            found[DetectionFields.MULTICLASS_SCORES].numpy(),
            found[DetectionFields.CLASSES].numpy().astype(int)[..., np.newaxis],
            axis=2,
        )[..., 0],
    )


TRACKED = """feature_extractor { type: 'hourglass_10' } num_classes: CLASSES
  mask_estimation_task { classification_loss { weighted_sigmoid {} } }
  track_estimation_task {
    num_track_ids: TRACKS reid_embed_size: 4 num_fc_layers: 2
    classification_loss { weighted_softmax {} }
  }"""


def test_layers_of_other_classes_and_tracks_keep_their_initial_values(tmp_path):
    models = []
    for classes, tracks in (('2', '7'), ('5', '9')):
        model = parse(TRACKED.replace('CLASSES', classes).replace('TRACKS', tracks))
        models.append(model_builder.build(model))
        models[-1].build_variables()
    path = tf.train.Checkpoint(model=models[0], step=tf.Variable(0)).save(str(tmp_path / 'ckpt'))
    report = restore(models[1], path, 'full')
    expected = {
        f'{layer}/{kind}'
        for layer in (
            'heads/object_center_0_output',
            'heads/segmentation--heatmap_0_output',
            'track_classifier/dense_1',
        )
        for kind in ('kernel', 'bias')
    }
    assert set(report.mismatched) == expected
    assert set(report.restored) == set(models[1].named_variables()) - expected


@rows.parametrize(
    ('changes', 'expected'),
    [
        (
            'post_processing { score_converter: SOFTMAX }',
            'post_processing.score_converter: expected SIGMOID',
        ),
        ('post_processing { logit_scale: 2 }', 'post_processing.logit_scale: expected none'),
        (
            'post_processing { calibration_config { sigmoid_calibration {} } }',
            'post_processing.calibration_config: expected none',
        ),
        (
            'post_processing { batch_non_max_suppression { iou_threshold: 2 } }',
            'post_processing.batch_non_max_suppression.iou_threshold: expected 0 to 1',
        ),
        ('feature_extractor { channel_stds: [1, 0, 1] }', 'channel_stds[1]: expected above 0'),
        ('feature_extractor { channel_means: [1, 2] }', 'channel_means: expected one number, or'),
        (
            "keypoint_estimation_task { task_name: 'a' box_scale: -1 }",
            'box_scale: expected at least 0',
        ),
        (
            "keypoint_estimation_task { task_name: 'a' candidate_search_scale: -2 }",
            'candidate_search_scale: expected at least 0',
        ),
        (
            "feature_extractor { type: 'resnet' }",
            "Received: 'resnet'; did you mean 'resnet_v2_50'? Exp",
        ),
        ('object_center_params { min_box_overlap_iou: 1 }', 'min_box_overlap_iou: expected'),
        ('object_center_params { max_box_predictions: 0 }', 'max_box_predictions'),
        ('object_center_params { center_head_params { num_filters: [8, 8] } }', 'kernel_sizes'),
        ("keypoint_estimation_task { task_name: 'a' }", 'keypoint_label_map_path is not set'),
        ('track_estimation_task { num_track_ids: 0 }', 'num_track_ids'),
        ('temporal_offset_task {}', 'localization_loss is not set'),
        ('mask_estimation_task {}', 'mask_estimation_task.classification_loss is not set'),
        ('mask_estimation_task { mask_height: 0 }', 'mask_estimation_task.mask_height'),
        ('densepose_estimation_task {}', 'densepose_estimation_task.class_id: expected'),
        ('densepose_estimation_task { class_id: 2 }', 'class_id: expected the class'),
        (
            'object_center_params { keypoint_weights_for_center: 1 }',
            'keypoint_weights_for_center: expected with one keypoint_estimation_task',
        ),
        (
            'object_center_params { keypoint_weights_for_center: [0, 0] }',
            'keypoint_weights_for_center: expected a weight above 0',
        ),
    ],
)
def test_wrong_fields_are_named(changes, expected):
    model = parse(changes)
    problems = ranges.find(model, path='model').errors
    problems += families.find(model).rules(model.center_net)
    assert any(expected in problem for problem in problems), problems


@slow_cases.parametrize(
    2,
    'name',
    [
        'mobilenet_v2',
        'hourglass_10',
        'resnet_v1_18_fpn',
        'resnet_v1_34_fpn',
        'resnet_v1_50_fpn',
        'resnet_v2_50',
        'mobilenet_v2_fpn',
        'mobilenet_v2_fpn_sep_conv',
        'hourglass_32',
    ],
)
def test_maps_have_a_quarter_of_the_resolution(name):
    scale = ' depth_multiplier: 0.5' if 'mobilenet' in name else ''
    extractor = feature_extractor(f"type: '{name}'{scale}")
    multiple = EXTRACTORS[name].padding_multiple
    assert extractor.pad_to_multiple == multiple
    images = extractor.normalize(tf.random.stateless_uniform([1, 50, 70, 3], [5, 6], maxval=255))
    ((maps,),) = extractor.feature_stacks(images)
    sides = [-(-side // multiple) * multiple // 4 for side in (50, 70)]
    depth = 24 if 'mobilenet_v2_fpn' in name else 96 if name == 'hourglass_32' else 64
    assert maps.shape == (1, *sides, depth)
    assert np.isfinite(maps).all()
    # The type says it, as the config may.
    layers = extractor.pyramid.layers if extractor.pyramid else ()
    kinds = {type(layer).__name__ for layer in layers}
    assert ('SeparableConvolution' in kinds) == name.endswith('_sep_conv')


def test_the_check_knows_what_hourglasses_pad():
    for depth, variant in hourglass.VARIANTS.items():
        expected = hourglass.pad_multiple(variant)
        assert EXTRACTORS[f'hourglass_{depth}'].padding_multiple == expected


def feature_extractor(text: str):
    config = text_format.Parse(text, center_net_pb2.CenterNetFeatureExtractor())
    return build.build_extractor(config, is_training=True)


def test_channels_are_normalized_in_the_order_of_the_network():
    extractor = feature_extractor("""type: 'mobilenet_v2' depth_multiplier: 0.5 bgr_ordering: true
      channel_means: [1, 2, 3] channel_stds: [2, 4, 8]""")
    pixel = tf.constant([10.0, 20.0, 30.0], shape=[1, 1, 1, 3])
    expected = np.array([29 / 2, 18 / 4, 7 / 8]) / 127.5 - 1
    np.testing.assert_allclose(extractor.normalize(pixel)[0, 0, 0], expected, rtol=1e-6)


@pytest.mark.slow
def test_a_fourth_channel_has_no_effect_at_first(tmp_path):
    text = (
        "feature_extractor { type: 'mobilenet_v2_fpn' depth_multiplier: 0.25 bgr_ordering: true }"
    )
    three = model_builder.build(parse(text))
    three.build_variables()
    path = tf.train.Checkpoint(model=three, step=tf.Variable(0)).save(str(tmp_path / 'ckpt'))
    with image_channels.scope(4):
        four = model_builder.build(parse(text))
        four.build_variables()
    restore(four, path, 'full')
    images = tf.random.stateless_uniform([1, 64, 64, 4], [1, 2], maxval=255)
    ((expected,),) = three.feature_extractor.feature_stacks(three.normalize(images[..., :3]))
    for extra in (images, images * [1.0, 1.0, 1.0, 0.0]):
        ((found,),) = four.feature_extractor.feature_stacks(four.normalize(extra))
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


def test_the_family_knows_the_losses(detector):
    model = parse()
    assert tuple(families.find(model).loss_names(model.center_net)) == detector.loss_names()


def test_every_golden_model_is_listed(shared):
    paths = (shared / 'goldens' / 'models').glob('center*net*.json')
    assert {path.stem for path in paths} == set(GOLDEN_MODELS)


@pytest.mark.slow
@pytest.mark.parametrize('model', GOLDEN_MODELS)
def test_golden_models(shared, model):
    settings = {
        'CUDA_VISIBLE_DEVICES': '',
        'PYTHONDONTWRITEBYTECODE': '1',
        # The kernels that the numbers were recorded with: with others, the reference itself differs
        # by more than the checker's tolerance in one of the models.
        'TF_ENABLE_ONEDNN_OPTS': '1',
    }
    # A process of its own: the checker imports modules by names of its own folder.
    finished = subprocess.run(
        [sys.executable, str(shared / 'goldens' / 'check_models.py'), '--only', model],
        capture_output=True,
        text=True,
        timeout=900,
        env=os.environ | settings,
    )
    assert finished.returncode == 0, f'{finished.stdout}\n{finished.stderr[-2000:]}'
