"""R-FCN as a whole, on a small backbone."""

from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf

from object_detection.builders import model_builder
from object_detection.config import overrides, reader
from object_detection.meta_architectures.faster_rcnn import build
from object_detection.meta_architectures.faster_rcnn.feature_extractor import (
    TwoStageFeatureExtractor,
)
from object_detection.meta_architectures.faster_rcnn.rfcn import Rfcn
from object_detection.models import image_channels
from object_detection.models.hyperparams import LayerHyperparams
from object_detection.models.normalization import BatchNormParams
from tests import goldens, rows
from tests import tiny_models as tiny
from tests.tiny_models import shapes, train_losses

SAMPLES = goldens.COMPONENTS.parents[1] / 'reference' / 'configs' / 'samples'
# Beside this, what `tiny_models` says.
RFCN = """
model {
  faster_rcnn {
    number_of_stages: 2
    first_stage_anchor_generator {
      grid_anchor_generator {
        height: 16 width: 16 height_stride: 16 width_stride: 16
        scales: [1.0, 2.0] aspect_ratios: 1.0
      }
    }
    second_stage_box_predictor {
      rfcn_box_predictor {
        conv_hyperparams { initializer { truncated_normal_initializer { stddev: 0.1 } } }
        depth: 8 crop_height: 6 crop_width: 4 num_spatial_bins_height: 3 num_spatial_bins_width: 2
      }
    }
  }
}
"""

# The static sampler of the reference fills samples up with other rows.
SAMPLE_AS_NATIVE = 'model { faster_rcnn { use_static_balanced_label_sampler: false } }'


def small_extractor(config, is_training):
    """One convolution instead of each network; none of the registered types is small."""
    hyperparams = LayerHyperparams(batch_norm=BatchNormParams(scale=True))

    def network(channels: int, filters: int, stride: int, name: str) -> keras.Model:
        features = keras.Input((None, None, channels))
        x = hyperparams.conv(filters, stride, strides=stride, name=f'{name}_conv')(features)
        x = hyperparams.norm(frozen=not is_training, name=f'{name}_conv_bn')(x)
        return keras.Model(features, hyperparams.activation_layer(name='relu')(x), name=name)

    return TwoStageFeatureExtractor(
        backbone=network(image_channels.current(), 8, 16, 'backbone'),
        box_classifier=network(8, 12, 2, 'box_classifier'),
        strides=[16],
        pad_to_multiple=config.pad_to_multiple,
    )


def tiny_rfcn(*settings: str) -> Rfcn:
    with mock.patch.object(build, 'build_extractor', small_extractor):
        return tiny.tiny_detector(RFCN, *settings)


@pytest.fixture(scope='module')
def detector():
    return tiny_rfcn()


def test_predictions_and_detections_have_the_documented_shapes(detector, images):
    predictions = detector.predict(detector.normalize(images), shapes(images))
    named = predictions.to_dict()
    found = {
        key: tuple(named[key].shape)
        for key in (
            'box_classifier_features',
            'refined_box_encodings',
            'class_predictions_with_background',
            'proposal_boxes',
        )
    }
    assert found == {
        'box_classifier_features': (2, 2, 2, 12),
        'refined_box_encodings': (32, 4, 4),
        'class_predictions_with_background': (32, 5),
        'proposal_boxes': (2, 16, 4),
    }
    detections = detector.postprocess(predictions, shapes(images))
    assert detections['detection_boxes'].shape == (2, 6, 4)
    assert detections['raw_detection_scores'].shape == (2, 16, 5)
    assert 'detection_masks' not in detections


def test_the_head_sees_the_whole_padded_map_and_its_own_proposals(detector):
    images = tiny.random_images(2)[:, :50, :40]  # Padded to 64 x 64.
    predictions = detector.predict(images, shapes(images))
    padded = tf.pad(images, [[0, 0], [0, 14], [0, 24], [0, 0]])
    maps = detector.feature_extractor.backbone(padded)
    maps = detector.feature_extractor.box_classifier(tf.nest.flatten(maps)[0])
    boxes = predictions.proposals.boxes / 64.0  # In the frame that the maps cover.
    codes, logits = detector.box_stages[0].head(maps, boxes)
    np.testing.assert_allclose(predictions.regions.box_codes, codes, atol=1e-5)
    np.testing.assert_allclose(predictions.regions.class_logits, logits, atol=1e-5)
    assert np.ptp(logits, axis=0).max() > 1e-3


def test_final_anchors_are_absolute_as_in_the_reference(detector, images, groundtruth):
    for training in (False, True):
        predictions = detector.predict(images, shapes(images), training, groundtruth, tiny.SEEDS)
        assert predictions.final_anchors.numpy().max() > 2
        np.testing.assert_array_equal(predictions.final_anchors, predictions.proposals.boxes)


@pytest.mark.parametrize('training', [False, True])
def test_gradients_of_the_second_stage_reach_the_first_at_inference_alone(
    detector, images, groundtruth, training
):
    with tf.GradientTape() as tape:
        predictions = detector.predict(images, shapes(images), training, groundtruth, tiny.SEEDS)
        logits = predictions.regions.class_logits
        total = tf.reduce_sum(tf.square(logits))
    codes = [v for v in detector.rpn.head.trainable_variables if '/box_codes' in v.path]
    gradients = tape.gradient(total, [variable.value for variable in codes])
    if training:
        assert gradients == [None] * len(codes)
    else:
        assert all(np.any(gradient) for gradient in gradients)


def test_a_step_down_the_gradient_lowers_the_loss(images, groundtruth):
    detector = tiny_rfcn()
    # Objects where proposals are, so that some are positive.
    predictions = detector.predict(detector.normalize(images), shapes(images))
    objects = predictions.proposals_normalized[:, :5]
    groundtruth = groundtruth._replace(boxes=objects * groundtruth.weights[..., tf.newaxis])

    def losses_and_gradients():
        with tf.GradientTape() as tape:
            losses = train_losses(detector, images, groundtruth)
            total = tf.add_n(list(losses.values()))
        variables = {v.path: v.value for v in detector.trainable_variables}
        return losses, total, tape.gradient(total, variables)

    losses, before, gradients = losses_and_gradients()
    assert set(losses) == {
        'Loss/RPNLoss/localization_loss',
        'Loss/RPNLoss/objectness_loss',
        'Loss/BoxClassifierLoss/localization_loss',
        'Loss/BoxClassifierLoss/classification_loss',
    }
    assert [path for path, gradient in gradients.items() if gradient is None] == []
    assert [path for path, gradient in gradients.items() if not np.any(gradient)] == []
    # The step is small, so that the same proposals are sampled.
    norm = tf.linalg.global_norm(list(gradients.values()))
    for variable in detector.trainable_variables:
        variable.assign_sub(0.01 * gradients[variable.path] / norm)
    _, after, _ = losses_and_gradients()
    assert after < before


@pytest.mark.slow
def test_graph_with_unknown_sizes_equals_eager(detector, images):
    signature = [tf.TensorSpec([None, None, None, 3], tf.float32)]

    @tf.function(input_signature=signature, autograph=False)
    def detect(batch):
        predictions = detector.predict(detector.normalize(batch), shapes(batch))
        return detector.postprocess(predictions, shapes(batch))

    predictions = detector.predict(detector.normalize(images), shapes(images))
    eager = detector.postprocess(predictions, shapes(images))
    for key, value in detect(images).items():
        np.testing.assert_allclose(value, eager[key], rtol=1e-4, atol=1e-4, err_msg=key)


@pytest.mark.slow
def test_static_execution_gives_the_same_numbers_and_compiles(images, groundtruth):
    native, static = tiny_rfcn(), tiny_rfcn(tiny.STATIC, SAMPLE_AS_NATIVE)
    for name, variable in static.named_variables().items():
        variable.assign(native.named_variables()[name])
    wanted = train_losses(native, images, groundtruth)
    compiled = tf.function(train_losses, jit_compile=True, autograph=False)(
        static, images, groundtruth
    )
    for name, loss in compiled.items():
        np.testing.assert_allclose(loss, wanted[name], rtol=1e-3, err_msg=name)


@rows.parametrize(
    ('setting', 'message'),
    [
        ('number_of_stages: 3', 'number_of_stages is 3, but .* predicts no masks; .*mask_rcnn'),
        ('output_final_box_features: true', 'no features of single boxes'),
        ('output_final_box_rpn_features: true', 'no features of single boxes'),
    ],
)
def test_what_there_is_not(setting, message):
    with pytest.raises(ValueError, match=message):
        tiny_rfcn(f'model {{ faster_rcnn {{ {setting} }} }}')


def test_pyramids_are_rejected():
    extractor = mock.Mock(num_levels=3)
    with pytest.raises(ValueError, match=r'one map\. Received: 3'):
        Rfcn(num_classes=1, resizer=None, feature_extractor=extractor, rpn=None)


@pytest.mark.skipif(not SAMPLES.is_dir(), reason='needs ../shared/reference')
@pytest.mark.parametrize('name', ['rfcn_resnet101_coco', 'rfcn_resnet101_pets'])
def test_configs_of_the_reference(name):
    pipeline = reader.read_pipeline(str(SAMPLES / f'{name}.config'))
    config = 'model.faster_rcnn'
    for setting in (
        f'{config}.image_resizer={{fixed_shape_resizer {{ height: 64 width: 96 }}}}',
        f'{config}.first_stage_max_proposals=10',
        f'{config}.second_stage_box_predictor.rfcn_box_predictor.depth=8',
    ):
        overrides.apply_setting(pipeline, setting)
    with mock.patch.object(build, 'build_extractor', small_extractor):
        detector = model_builder.build(pipeline.model, is_training=False)
    images, true_shapes = detector.preprocess(tf.zeros([1, 50, 70, 3], tf.uint8))
    detections = detector.postprocess(detector.predict(images, true_shapes), true_shapes)
    num_classes = pipeline.model.faster_rcnn.num_classes
    assert detections['detection_multiclass_scores'].shape == (1, 300, num_classes + 1)
    assert detections['num_detections'] > 0
