"""Networks of keras.applications as backbones, and detectors on them."""

import dataclasses
import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders import model_builder
from object_detection.core import tracing
from object_detection.core.fields import InputFields
from object_detection.errors import CheckpointError, UserError
from object_detection.export import exporter
from object_detection.meta_architectures.center_net import build as center_net
from object_detection.meta_architectures.faster_rcnn import build as faster_rcnn
from object_detection.meta_architectures.ssd import build as ssd
from object_detection.models import image_channels, precision, rounding
from object_detection.models.backbones import keras_networks
from object_detection.models.backbones.table import find
from object_detection.models.feature_extractor import ExtractorOptions
from object_detection.models.hyperparams import L2, LayerHyperparams
from object_detection.models.normalization import (
    BatchNorm,
    BatchNormParams,
    FrozenBatchNorm,
    GroupNormParams,
)
from object_detection.models.quantization import Quantization, QuantizationParams
from object_detection.protos import pipeline_pb2
from object_detection.protos.center_net_pb2 import CenterNetFeatureExtractor
from object_detection.protos.faster_rcnn_pb2 import FasterRcnnFeatureExtractor
from object_detection.protos.model_pb2 import DetectionModel
from object_detection.protos.ssd_pb2 import SsdFeatureExtractor
from object_detection.training import setup
from object_detection.weights import checkpoints, restore
from tests import rows, slow_cases
from tests.meta_architectures.faster_rcnn.test_rfcn import RFCN
from tests.meta_architectures.ssd.configs import tiny
from tests.tiny_models import (
    SEEDS,
    random_groundtruth,
    random_images,
    tiny_pipeline,
    train_losses,
)
from tests.training import step_runs

SMALL = 'keras:MobileNetV3Small'
TOY = 'keras:Toy'


def toy(*, include_top=True, weights=None, input_shape=(224, 224, 3)) -> keras.Model:
    """A network like those of keras.applications: five strides, a dropped path, and a gate."""
    assert weights is None
    layers = keras.layers
    images = x = keras.Input(input_shape)
    for name in ('conv', 'conv_1', 'conv_2', 'conv_3', 'conv_4'):
        x = layers.Conv2D(8, 3, 2, padding='same', use_bias=False, name=name)(x)
        x = layers.BatchNormalization(name=f'{name}_bn')(x)
        x = layers.Activation('hard_silu')(x)
    gate = layers.GlobalAveragePooling2D(keepdims=True)(x)
    gate = layers.Conv2D(8, 1, activation='hard_sigmoid', name='gate')(layers.Rescaling(2.0)(gate))
    x = layers.Dropout(0.5, noise_shape=(None, 1, 1, 1), name='drop')(x)
    x = layers.Multiply(name='last')([x, gate])
    if include_top:
        x = layers.Dense(3)(layers.GlobalAveragePooling2D()(x))
    return keras.Model(images, x)


def odd(*, include_top=True, weights=None, input_shape=(224, 224, 3)) -> keras.Model:
    """A network whose maps are of size / stride up to stride 2 alone."""
    del include_top, weights
    images = keras.Input(input_shape)
    x = keras.layers.Conv2D(2, 3, 2, padding='same', name='conv')(images)
    for name in ('conv_1', 'conv_2'):
        x = keras.layers.Conv2D(2, 3, 2, name=name)(x)
    return keras.Model(images, x)


@pytest.fixture(autouse=True)
def _with_toy(monkeypatch):
    module = keras.applications.mobilenet_v2
    functions = keras_networks._functions() | {'Toy': (module, toy), 'Odd': (module, odd)}
    monkeypatch.setattr(keras_networks, '_functions', lambda: functions)


PENALTY = L2(0.25)


@functools.cache
def trunk(name: str, *, is_trainable: bool = True):
    """The network with all maps; a frozen one has penalties, too."""
    row = find(name)
    options = ExtractorOptions(
        is_trainable, LayerHyperparams(regularizer=PENALTY), override_backbone=not is_trainable
    )
    return row.trunk(range(2, 6), options.for_backbone(row))


# Numbers of channels as in the papers, of the ends of stages; in networks of inverted residuals,
# of the expansion that the next stage begins with.
@slow_cases.parametrize(
    1,
    ('name', 'channels'),
    [
        ('MobileNetV3Small', [72, 96, 288, 576]),
        ('ResNet50', [256, 512, 1024, 2048]),
        ('ResNet50V2', [256, 512, 1024, 2048]),
        ('EfficientNetV2B0', [32, 192, 672, 1280]),
        ('DenseNet121', [128, 256, 512, 1024]),
        ('ConvNeXtTiny', [96, 192, 384, 768]),
    ],
)
def test_maps_and_the_stage_over_crops(name, channels):
    row = find(f'keras:{name}')
    backbone = trunk(f'keras:{name}')
    images = row.normalize(tf.random.stateless_uniform([1, 96, 64, 3], [1, 2], maxval=255))
    maps = backbone(images)
    assert [tuple(each.shape) for each in maps] == [
        (1, 96 // stride, 64 // stride, depth)
        for stride, depth in zip((4, 8, 16, 32), channels, strict=True)
    ]
    assert all(np.isfinite(each).all() for each in maps)
    # The rest of the network: together, both are the network.
    stage = row.crop_stage(ExtractorOptions(batch_norm_trainable=False).for_backbone(row))
    names = [weight.path for weight in backbone.weights]
    assert len(set(names)) == len(names)
    rest = [weight.path for weight in stage.weights]
    assert names[len(names) - len(rest) :] == rest
    for weight, other in zip(stage.weights, backbone.weights[-len(rest) :], strict=True):
        weight.assign(other)
    np.testing.assert_allclose(stage(maps[2]), maps[3], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize('name', keras_networks._functions())
def test_every_network(name):
    row = find(f'keras:{name}')
    options = ExtractorOptions(batch_norm_trainable=False).for_backbone(row)
    images = row.normalize(tf.random.stateless_uniform([1, 64, 96, 3], [1, 2], maxval=255))
    maps = row.trunk((2, 3, 4, 5), options)(images)
    sizes = [tuple(each.shape[:3]) for each in maps]
    assert sizes == [(1, 64 // stride, 96 // stride) for stride in (4, 8, 16, 32)]
    assert all(np.isfinite(each).all() for each in maps)
    if not name.startswith('NASNet'):
        stage = row.crop_stage(options)
        assert stage(maps[2]).shape == maps[3].shape
        return
    # A cell reads the two before it.
    message = f'keras:{name}: expected a network whose last stage reads the map of stride 16 alone'
    with pytest.raises(UserError, match=message):
        row.crop_stage(options)


def test_layers_are_those_of_the_options():
    frozen = trunk(SMALL, is_trainable=False)
    norms = [layer for layer in frozen.layers if isinstance(layer, BatchNorm)]
    assert len(norms) == 34
    assert all(isinstance(norm, FrozenBatchNorm) for norm in norms)
    # Offset and scale train, as in the networks of this package.
    assert len(norms[0].trainable_weights) == 2
    kernel = frozen.get_layer('conv').kernel
    expected = 0.25 * np.square(kernel).sum()
    np.testing.assert_allclose(PENALTY(kernel.value), expected, rtol=1e-5)
    assert len(frozen.losses) == sum(weight.path.endswith('kernel') for weight in frozen.weights)
    # Variables have the same names in each network of a process.
    assert [w.path for w in trunk(SMALL).weights] == [w.path for w in frozen.weights]


@slow_cases.parametrize(
    1,
    ('name', 'message'),
    [
        (
            'keras:ConvNextTiny',
            "Received: 'keras:ConvNextTiny'; did you mean 'keras:ConvNeXtTiny'.* Expected one of",
        ),
        ('keras:Odd', 'maps of the strides 4, 8, 16, 32.* Received one with 2.'),
    ],
)
def test_unknown_networks(name, message):
    with pytest.raises(UserError, match=f'backbone: .*{message}'):
        trunk(name)


def test_networks_that_cannot_be_built():
    # Keras computes hard sigmoids by bare operations.
    message = f'backbone: {SMALL}: expected no quantization in training, or .* Received: .*Multiply'
    with (
        rounding.rounded_by(Quantization(QuantizationParams())),
        pytest.raises(UserError, match=message),
    ):
        trunk.__wrapped__(SMALL)  # Not the cached one.
    options = ExtractorOptions(
        True, LayerHyperparams(group_norm=GroupNormParams()), override_backbone=True
    )
    row = find(TOY)
    with pytest.raises(UserError, match=f'backbone: {TOY}: expected no group_norm'):
        row.trunk((5,), options.for_backbone(row))


@pytest.mark.parametrize('channels', [1, 4, 5])
def test_images_of_other_channels(channels):
    row = find(TOY)
    with image_channels.scope(channels):
        network = row.trunk((5,), ExtractorOptions(batch_norm_trainable=False).for_backbone(row))
    assert network.get_layer('conv').kernel.shape == (3, 3, channels, 8)
    # VGG's means for blue, green and red, the order that its networks take.
    vgg = find('keras:VGG16').normalize(tf.zeros([1, 1, 1, channels]))[0, 0, 0]
    means = [103.939, 116.779, 123.68] if channels > 3 else []
    means += [114.799333] * (channels - len(means))
    np.testing.assert_allclose(vgg, np.negative(means), rtol=1e-6)


def test_norms_of_the_config():
    norm = BatchNormParams(momentum=0.5, epsilon=0.25, synchronized=True, train=False)
    options = ExtractorOptions(
        True, LayerHyperparams(batch_norm=norm), override_backbone=True
    ).for_backbone(find(TOY))
    layer = find(TOY).trunk((5,), options).get_layer('conv_bn')
    assert (type(layer), layer.momentum, layer.epsilon) == (FrozenBatchNorm, 0.5, 0.25)
    assert layer.synchronized
    assert layer.trainable
    norm = dataclasses.replace(norm, freeze_affine=True)
    options = dataclasses.replace(options, hyperparams=LayerHyperparams(batch_norm=norm))
    assert not find(TOY).trunk((5,), options).get_layer('conv_bn').trainable


def test_random_numbers_follow_from_those_of_the_images():
    row = find(TOY)
    network = row.trunk((5,), ExtractorOptions(batch_norm_trainable=False).for_backbone(row))
    images = tf.random.stateless_uniform([8, 32, 32, 3], [1, 2])

    def kept(seed: int) -> list[bool]:
        with tracing.drawing_by(tf.constant([[seed, i] for i in range(8)])):
            maps = network(images, training=True)
        return np.any(maps, axis=(1, 2, 3)).tolist()

    first = kept(3)
    assert set(first) == {True, False}
    assert kept(3) == first
    assert any(kept(seed) != first for seed in (4, 5))


def check_learns(detector) -> None:
    """Checks that a step of a training changes the backbone."""
    detector.build_variables()
    named = detector.named_trainable_variables()
    weights = [variable for name, variable in named.items() if name.startswith('backbone/')]
    with tf.GradientTape() as tape:
        losses = train_losses(detector, random_images(1), random_groundtruth(1), SEEDS[:1])
        total = tf.add_n([*losses.values()])
    assert np.isfinite(total)
    gradients = tape.gradient(total, weights)
    assert all(gradient is not None and np.isfinite(gradient).all() for gradient in gradients)
    assert any(np.abs(gradient).max() > 0 for gradient in gradients[:4])


def ssd_pipeline() -> pipeline_pb2.TrainEvalPipelineConfig:
    pipeline = pipeline_pb2.TrainEvalPipelineConfig(model=tiny('num_classes: 4'))
    extractor = pipeline.model.ssd.feature_extractor
    for field in ('depth_multiplier', 'min_depth'):
        extractor.ClearField(field)
    extractor.type, extractor.backbone = 'ssd', TOY
    return pipeline


def faster_rcnn_pipeline() -> pipeline_pb2.TrainEvalPipelineConfig:
    return tiny_pipeline(
        f"""model {{ faster_rcnn {{
          feature_extractor {{ type: 'faster_rcnn_fpn' backbone: '{TOY}' }} }} }}"""
    )


def rfcn_pipeline() -> pipeline_pb2.TrainEvalPipelineConfig:
    pipeline = tiny_pipeline(RFCN)
    extractor = pipeline.model.faster_rcnn.feature_extractor
    extractor.Clear()
    extractor.type, extractor.backbone = 'faster_rcnn', TOY
    return pipeline


def one_map_pipeline() -> pipeline_pb2.TrainEvalPipelineConfig:
    """A Mask R-CNN whose last stage processes crops."""
    pipeline = rfcn_pipeline()
    predictor = tiny_pipeline().model.faster_rcnn.second_stage_box_predictor
    pipeline.model.faster_rcnn.second_stage_box_predictor.CopyFrom(predictor)
    return pipeline


def center_net_pipeline() -> pipeline_pb2.TrainEvalPipelineConfig:
    text = f"""
      center_net {{
        num_classes: 4
        image_resizer {{ fixed_shape_resizer {{ height: 64 width: 64 }} }}
        feature_extractor {{ type: 'center_net_fpn' backbone: '{TOY}' }}
        object_center_params {{
          classification_loss {{ penalty_reduced_logistic_focal_loss {{}} }} max_box_predictions: 4
        }}
        object_detection_task {{ localization_loss {{ l1_localization_loss {{}} }} }}
      }}"""
    model = text_format.Parse(text, DetectionModel())
    return pipeline_pb2.TrainEvalPipelineConfig(model=model)


def test_stages_are_frozen():
    pipeline = faster_rcnn_pipeline()
    pipeline.model.faster_rcnn.feature_extractor.frozen_stages = 2
    detector = model_builder.build(pipeline.model, is_training=True)
    detector.build_variables()
    variables = detector.named_trainable_variables()
    trained = {name.split('/')[1] for name in variables if name.startswith('backbone/')}
    names = ('conv', 'conv_1', 'conv_2', 'conv_3')  # The pyramid ends with level 4.
    assert trained & set(names) == set(names[2:])
    norms = [detector.feature_extractor.backbone.get_layer(f'{name}_bn') for name in names]
    assert [norm.trainable for norm in norms] == [False, False, True, True]


PIPELINES = (
    ssd_pipeline,
    faster_rcnn_pipeline,
    rfcn_pipeline,
    one_map_pipeline,
    center_net_pipeline,
)


@pytest.mark.parametrize('pipeline', PIPELINES)
def test_detectors_learn(pipeline):
    detector = model_builder.build(pipeline().model, is_training=True)
    assert detector.feature_extractor.pad_to_multiple == 32
    check_learns(detector)


TRAINING = """
train_config {
  batch_size: 2 num_steps: 2
  optimizer {
    momentum_optimizer {
      learning_rate { constant_learning_rate { learning_rate: 0.001 } }
    }
    use_moving_average: false
  }
}
"""


def test_a_detector_is_trained_and_exported(tmp_path):
    pipeline = ssd_pipeline()
    text_format.Merge(TRAINING, pipeline)
    (batch,) = step_runs.batches(2)
    del batch[InputFields.GROUNDTRUTH_INSTANCE_MASK_CROPS]
    keras.utils.set_random_seed(0)
    detector = setup.build_detector(pipeline)
    before = {name: each.numpy() for name, each in detector.named_trainable_variables().items()}
    spec = step_runs.element_spec(batch)
    losses = step_runs.run(
        setup.build_step(pipeline.train_config, detector, spec, seed=0), [batch, batch]
    )
    assert all(np.isfinite([*each.values()]).all() for each in losses)
    after = detector.named_trainable_variables()
    changed = {name for name in before if np.any(after[name] != before[name])}
    assert 'backbone/conv/kernel' in changed
    checkpoints.save_model(str(tmp_path / 'model'), detector.named_variables(), 2)
    image = tmp_path / 'image.png'
    pixels = tf.cast(random_images(1)[0], tf.uint8)
    tf.io.write_file(str(image), tf.io.encode_png(pixels))
    exported = exporter.export(
        pipeline, str(tmp_path / 'model'), tmp_path / 'exported', images=[image]
    )
    assert exported.comparison.detections > 0
    assert exported.comparison.unmatched == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ('build', 'message', 'strides'),
    [
        (center_net.build_extractor, 'center_net_fpn', [4]),
        (center_net.build_extractor, 'center_net', [4]),
        (faster_rcnn.build_extractor, 'faster_rcnn', [16]),
    ],
)
def test_types_of_other_families(build, message, strides):
    config = (CenterNetFeatureExtractor if 'net' in message else FasterRcnnFeatureExtractor)()
    config.type, config.backbone = message, SMALL
    extractor = build(config, is_training=True)
    assert (extractor.strides, extractor.pad_to_multiple) == (strides, 32)
    ((maps,),) = extractor.feature_stacks(tf.zeros([1, 50, 70, 3]))
    assert tuple(maps.shape[1:3]) == (64 // strides[0], 96 // strides[0])


def test_ssd_with_pooled_maps():
    for backbone, depth in ((TOY, 8), ('resnet_v1_18', 256)):
        text = f"type: 'ssd_ppn' backbone: '{backbone}' num_layers: 3 conv_hyperparams {{}}"
        extractor = ssd.build_extractor(text_format.Parse(text, SsdFeatureExtractor()), True)
        ((*maps,),) = extractor.feature_stacks(tf.zeros([1, 64, 64, 3]))
        assert [tuple(each.shape) for each in maps] == [
            (1, side, side, depth) for side in (4, 2, 1)
        ]
        assert extractor.strides == [16, 32, 64]


def test_ssd_with_a_bidirectional_pyramid_on_a_row():
    text = """type: 'ssd_bifpn' backbone: 'resnet_v1_18' depth_multiplier: 0.1 conv_hyperparams {}
      bifpn { min_level: 3 max_level: 6 num_iterations: 1 num_filters: 8 }"""
    extractor = ssd.build_extractor(text_format.Parse(text, SsdFeatureExtractor()), True)
    ((*maps,),) = extractor.feature_stacks(tf.zeros([1, 64, 64, 3]))
    assert [tuple(each.shape) for each in maps] == [(1, side, side, 8) for side in (8, 4, 2, 1)]


@rows.parametrize(
    ('text', 'message'),
    [
        ("type: 'ssd_fpn'", 'backbone: not set; the type ssd_fpn expects e.g. keras:ConvNeXtTiny'),
        (
            "type: 'ssd_resnet50_v1_fpn_keras' backbone: 'resnet_v1_18'",
            'backbone: expected none, as the type ssd_resnet50_v1_fpn_keras has the backbone '
            "resnet_v1_50. Received: 'resnet_v1_18'",
        ),
        (
            f"type: 'ssd_fpn' backbone: '{SMALL}' depth_multiplier: 0.5",
            'depth_multiplier: expected 1.0, as the backbone keras:MobileNetV3Small does not read',
        ),
        (
            "type: 'ssd' backbone: 'hourglass_104'",
            'backbone: expected a backbone with maps of the levels 4, 5.* one with 2 to 2',
        ),
    ],
)
def test_fields_that_do_not_fit(text, message):
    config = text_format.Parse(f'{text} conv_hyperparams {{}}', SsdFeatureExtractor())
    with pytest.raises(UserError, match=message):
        ssd.build_extractor(config, True)


def test_a_step_in_mixed_precision():
    with precision.scope('mixed_bfloat16'):
        detector = model_builder.build(ssd_pipeline().model, is_training=True)
        detector.build_variables()
        inputs = detector.feature_extractor.normalize(random_images(1))
        ((*maps,),) = detector.feature_extractor.feature_stacks(inputs)
        assert {each.dtype for each in maps} == {tf.bfloat16}
        assert {weight.dtype for weight in detector.feature_extractor.weights} == {'float32'}
        check_learns(detector)


# Keras converts its variables as NumPy 2 advises against.
@pytest.mark.filterwarnings('ignore:__array__ implementation:DeprecationWarning')
@slow_cases.parametrize(
    2,
    ('name', 'include_top'),
    [
        ('Toy', False),
        ('Toy', True),
        ('MobileNetV3Small', False),
        ('MobileNetV3Small', True),
        ('ResNet50', False),
        ('ConvNeXtTiny', False),
        ('EfficientNetV2B0', False),
    ],
)
def test_weights_of_a_file_of_keras(name, include_top, tmp_path):
    _, function = keras_networks._functions()[name]
    given = function(include_top=include_top, weights=None, input_shape=(224, 224, 3))
    rng = np.random.default_rng(0)
    for weight in given.weights:
        if weight.path.endswith('moving_mean') or weight.path.endswith('/bias'):
            weight.assign(rng.uniform(-0.1, 0.1, weight.shape))
    given.save_weights(tmp_path / 'net.weights.h5')
    pipeline = ssd_pipeline()
    extractor = pipeline.model.ssd.feature_extractor
    extractor.backbone = f'keras:{name}'
    # Whose epsilon would be that of the norms.
    extractor.override_base_feature_extractor_hyperparams = False
    detector = model_builder.build(pipeline.model)
    restore.restore(detector, str(tmp_path / 'net.weights.h5'), 'classification')
    images = tf.constant(rng.uniform(-1, 1, (1, 224, 224, 3)), tf.float32)
    expected = given(images) if not include_top else _last_map(given, images)
    found = detector.feature_extractor.backbone(images)[-1]
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


# Keras converts its variables as NumPy 2 advises against.
@pytest.mark.filterwarnings('ignore:__array__ implementation:DeprecationWarning')
def test_weights_of_a_saved_model_of_keras(tmp_path):
    given = toy()
    # Its code would be refused in Keras' safe mode; the weights alone are read.
    outputs = keras.layers.Lambda(lambda x: x + 1)(given.output)
    keras.Model(given.input, outputs).save(tmp_path / 'net.keras')
    detector = model_builder.build(ssd_pipeline().model)
    restore.restore(detector, str(tmp_path / 'net.keras'), 'classification')
    kernel = detector.named_variables()['backbone/conv_3/kernel']
    np.testing.assert_array_equal(kernel, given.get_layer('conv_3').kernel)


# Keras converts its variables as NumPy 2 advises against.
@pytest.mark.filterwarnings('ignore:__array__ implementation:DeprecationWarning')
def test_weights_of_another_network_are_refused(tmp_path):
    other = keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Conv2D(3, 3)])
    other.save_weights(tmp_path / 'net.weights.h5')
    detector = model_builder.build(ssd_pipeline().model)
    with pytest.raises(CheckpointError, match=r'weights of keras\.applications\.Toy'):
        restore.restore(detector, str(tmp_path / 'net.weights.h5'), 'classification')


def test_weights_that_a_network_normalizes_otherwise_are_refused():
    with pytest.raises(CheckpointError, match='the backbone efficientnet-b2, as keras:Effici'):
        keras_networks._read('EfficientNetB2', [], 'b2.h5')


def _last_map(given, images):
    outputs = [layer.output for layer in given.layers if tuple(layer.output.shape[1:3]) == (7, 7)]
    return keras.Model(given.input, outputs[-1])(images)
