"""Networks of KerasHub as backbones, from folders of presets with random weights."""

import dataclasses
import importlib.util
import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from click.testing import CliRunner
from google.protobuf import text_format

from object_detection.builders import model_builder
from object_detection.cli.weights import command as weights_command
from object_detection.core import tracing
from object_detection.core.fields import InputFields
from object_detection.errors import CheckpointError, UserError
from object_detection.export import exporter
from object_detection.models import image_channels, image_sizes
from object_detection.models.backbones.table import find
from object_detection.models.feature_extractor import ExtractorOptions
from object_detection.models.hyperparams import L2, LayerHyperparams
from object_detection.models.normalization import BatchNorm, FrozenBatchNorm
from object_detection.protos import pipeline_pb2
from object_detection.system import private_names
from object_detection.training import setup
from object_detection.validation import train_config
from object_detection.weights import checkpoints, restore
from tests import slow_cases
from tests.meta_architectures.ssd.configs import tiny
from tests.models.backbones.test_keras_networks import TRAINING
from tests.tiny_models import random_images, tiny_pipeline
from tests.training import step_runs

# Keras converts its variables as NumPy 2 advises against.
pytestmark = pytest.mark.filterwarnings('ignore:__array__ implementation:DeprecationWarning')

RESNET = {
    'input_conv_filters': [64],
    'input_conv_kernel_sizes': [7],
    'stackwise_num_filters': [64, 8, 8, 8],
    'stackwise_num_blocks': [1, 1, 1, 1],
    'stackwise_num_strides': [1, 2, 2, 2],
    'block_type': 'basic_block',
}
KINDS = {
    'ResNet': RESNET,
    'ResNet vd': RESNET
    | {
        'input_conv_filters': [4, 4, 8],
        'input_conv_kernel_sizes': [3, 3, 3],
        'block_type': 'bottleneck_block_vd',
    },
    'CSPNet': {
        'stem_filters': 8,
        'stem_kernel_size': 3,
        'stem_strides': 1,
        'stackwise_depth': [1] * 5,
        'stackwise_strides': [2] * 5,
        'stackwise_num_filters': [8, 16, 32, 64, 128],
        'bottle_ratio': [0.5, 1.0],
        'block_ratio': [1.0, 0.5],
        'expand_ratio': [2.0, 1.0],
        'stem_padding': 'same',
        'down_growth': True,
        'block_type': 'dark_block',
        'stage_type': 'csp',
    },
    'DenseNet': {'stackwise_num_repeats': [1, 1, 1, 1], 'growth_rate': 4},
    'EfficientNet': {
        'stackwise_width_coefficients': [1.0] * 5,
        'stackwise_depth_coefficients': [1.0] * 5,
        'stackwise_kernel_sizes': [3] * 5,
        'stackwise_num_repeats': [1] * 5,
        'stackwise_input_filters': [8] * 5,
        'stackwise_output_filters': [8] * 5,
        'stackwise_expansion_ratios': [1, 2, 2, 2, 2],
        'stackwise_squeeze_and_excite_ratios': [0.0, 0.0, 0.25, 0.25, 0.25],
        'stackwise_strides': [1, 2, 2, 2, 2],
        'stackwise_block_types': ['fused', 'fused', 'unfused', 'unfused', 'unfused'],
        'stackwise_force_input_filters': [0] * 5,
        'stackwise_nores_option': [False] * 5,
        'dropout': 0.2,
        'min_depth': 8,
    },
    'HGNetV2': {
        'depths': [1, 1, 1, 1],
        'embedding_size': 8,
        'hidden_sizes': [8, 8, 16, 16],
        'stem_channels': [3, 8, 8],
        'hidden_act': 'relu',
        'use_learnable_affine_block': False,
        'stackwise_stage_filters': [
            (8, 4, 8, 1, 2, 3),
            (8, 4, 8, 1, 2, 3),
            (8, 4, 16, 1, 2, 3),
            (16, 4, 16, 1, 2, 3),
        ],
        'apply_downsample': [False, True, True, True],
        'use_lightweight_conv_block': [False, False, True, True],
    },
    'VGG': {'stackwise_num_repeats': [1] * 5, 'stackwise_num_filters': [4, 4, 8, 8, 8]},
    'MobileNet': {
        'stackwise_expansion': [[16], [16], [16, 16], [16]],
        'stackwise_num_blocks': [1, 1, 2, 1],
        'stackwise_num_filters': [[8], [8], [8, 8], [8]],
        'stackwise_kernel_size': [[3], [5], [5, 3], [5]],
        'stackwise_num_strides': [[2], [2], [2, 1], [1]],
        'stackwise_se_ratio': [[None], [0.25], [0.25, None], [0.25]],
        'stackwise_activation': [['relu'], ['hard_swish'], ['hard_swish'] * 2, ['hard_swish']],
        'stackwise_padding': [[1], [2], [2, 1], [2]],
        'output_num_filters': 16,
        'depthwise_filters': 8,
        'depthwise_stride': 2,
        'depthwise_residual': False,
        'last_layer_filter': 16,
        'squeeze_and_excite': 0.5,
        'input_num_filters': 8,
    },
    'MobileNetV5': {
        'stackwise_block_types': [['er'], ['uir'], ['uir', 'mqa'], ['uir', 'mqa']],
        'stackwise_num_blocks': [1, 1, 2, 2],
        'stackwise_num_filters': [[8], [8], [16, 16], [16, 16]],
        'stackwise_strides': [[2], [2], [2, 1], [2, 1]],
        'stackwise_act_layers': [['relu'], ['relu'], ['relu'] * 2, ['relu'] * 2],
        'stackwise_exp_ratios': [[2.0], [2.0], [2.0] * 2, [2.0] * 2],
        'stackwise_se_ratios': [[0.0], [0.0], [0.0] * 2, [0.0] * 2],
        'stackwise_dw_kernel_sizes': [[0], [3], [3, 0], [3, 0]],
        'stackwise_dw_start_kernel_sizes': [[0], [0], [0, 0], [0, 0]],
        'stackwise_dw_end_kernel_sizes': [[0], [0], [0, 0], [0, 0]],
        'stackwise_exp_kernel_sizes': [[3], [0], [0, 0], [0, 0]],
        'stackwise_pw_kernel_sizes': [[1], [0], [0, 0], [0, 0]],
        'stackwise_num_heads': [[0], [0], [0, 2], [0, 2]],
        'stackwise_key_dims': [[0], [0], [0, 4], [0, 4]],
        'stackwise_value_dims': [[0], [0], [0, 4], [0, 4]],
        'stackwise_kv_strides': [[0], [0], [0, 2], [0, 1]],
        'stackwise_use_cpe': [[False], [False], [False] * 2, [False] * 2],
        'use_msfa': False,
    },
    'Xception': {
        'stackwise_conv_filters': [[8, 8], [16, 16], [8, 8], [16, 16], [24, 24], [16]],
        'stackwise_pooling': [False, True, True, True, True, False],
    },
    # Its pyramid begins with stride 8. `preset` adds the encoder.
    'RetinaNet': {'min_level': 3, 'max_level': 5, 'use_p5': False},
    'MiT': {
        'layerwise_depths': [1, 1, 1, 2],
        'num_layers': 4,
        'layerwise_num_heads': [1, 1, 2, 2],
        'layerwise_sr_ratios': [8, 4, 2, 1],
        'max_drop_path_rate': 0.1,
        'layerwise_patch_sizes': [7, 3, 3, 3],
        'layerwise_strides': [4, 2, 2, 2],
        'image_shape': (96, 96, 3),
        'hidden_dims': [8, 8, 16, 16],
    },
    # Its map of stride 16 is the only one.
    'ViTDet': {
        'hidden_size': 8,
        'num_layers': 2,
        'intermediate_dim': 8,
        'num_heads': 1,
        'global_attention_layer_indices': [1],
        'image_shape': (64, 64, 3),
        'num_output_channels': 8,
        'window_size': 2,
    },
}
TRANSFORMER = {
    'patch_size': 16,
    'num_layers': 1,
    'hidden_dim': 8,
    'num_heads': 2,
    'intermediate_dim': 8,
    'image_shape': (64, 64, 3),
}
# Those that take images of one square size alone.
SQUARE = ('MiT', 'ViTDet')
SIZE = (64, 64, 3)
LEVELS = 'min_level: 3 max_level: 5 additional_layer_depth: 8'


@pytest.fixture(scope='module')
def hub():
    return pytest.importorskip('keras_hub', reason="needs the extra 'hub'")


@pytest.fixture
def preset(hub, tmp_path):
    """Makes the folder of a preset of a kind, and returns its network."""

    def make(kind: str) -> keras.Model:
        options = OTHERS[kind] if kind in OTHERS else KINDS[kind]
        if kind in ('RetinaNet', 'DeepLabV3'):
            options = options | {'image_encoder': hub.models.ResNetBackbone(**RESNET)}
        backbone = getattr(hub.models, f'{kind.split()[0]}Backbone')(**options)
        rng = np.random.default_rng(0)
        for weight in backbone.weights:
            if weight.path.endswith('moving_mean'):
                weight.assign(rng.uniform(-0.1, 0.1, weight.shape))
        backbone.save_to_preset(str(tmp_path / 'preset'))
        return backbone

    return make


def pyramid(backbone: keras.Model) -> list[keras.KerasTensor]:
    maps = getattr(backbone, 'pyramid_outputs', None)
    if maps:
        return [maps[name] for name in sorted(maps)]
    if isinstance(backbone.output, dict):
        return [backbone.output[name] for name in sorted(backbone.output)]
    # Where blocks have residuals, the next block computes further maps of the size before it pools.
    sums = [layer for layer in backbone.layers if isinstance(layer, keras.layers.Add)]
    layers = [*sums, backbone.layers[-1]] if sums else backbone.layers[1:]
    return [layer.output for layer in layers]


@pytest.mark.parametrize('kind', KINDS)
def test_maps_are_those_of_the_network(kind, preset, tmp_path):
    backbone = preset(kind)
    name = f'keras_hub:{tmp_path}/preset'
    row = find(name)
    options = ExtractorOptions(
        True, LayerHyperparams(regularizer=L2(0.25)), override_backbone=True
    ).for_backbone(row)
    size = SIZE if kind in SQUARE else None
    levels = (4,) if kind == 'ViTDet' else (3, 4, 5)
    with image_sizes.scope(size):
        trunk = row.trunk(levels, options)
    for variable, value in trunk.read_weights(str(tmp_path / 'preset' / 'model.weights.h5')):
        variable.assign(value)
    height, width = (64, 64) if size else (64, 96)
    images = tf.random.stateless_uniform([1, height, width, 3], [1, 2])
    if size:  # The same network for the other size.
        weights = backbone.get_weights()
        backbone = type(backbone).from_config(backbone.get_config() | {'image_shape': size})
        backbone.set_weights(weights)
    expected = {}
    for each in keras.Model(backbone.inputs, pyramid(backbone))(images):
        expected[tuple(each.shape[1:3])] = each  # the last one of each size
    found = tf.nest.flatten(trunk(images))
    assert [tuple(each.shape[1:3]) for each in found] == [
        (height // 2**level, width // 2**level) for level in levels
    ]
    for each in found:
        np.testing.assert_allclose(each, expected[tuple(each.shape[1:3])], rtol=1e-4, atol=1e-5)
    # Norms are those of this package, penalties those of kernels, and names are the same again.
    layers = private_names.layers_in(trunk)
    norms = [each for each in layers if isinstance(each, keras.layers.BatchNormalization)]
    assert all(type(norm) is BatchNorm for norm in norms)
    kernels = [each for each in trunk.weights if each.path.endswith('kernel')]
    assert len(trunk.losses) == len(kernels) > 0
    with image_sizes.scope(size):
        again = row.trunk(levels, options)
    paths = [weight.path for weight in trunk.weights]
    assert paths == [weight.path for weight in again.weights]
    assert len(set(paths)) == len(paths)


def test_stages_are_frozen_where_layers_are_of_one_stage(preset, tmp_path):
    preset('HGNetV2')
    row = find(f'keras_hub:{tmp_path}/preset')
    options = ExtractorOptions(batch_norm_trainable=False).for_backbone(row)
    options = dataclasses.replace(options, settings={'frozen_stages': 2})
    with pytest.raises(
        UserError, match=r'frozen_stages: expected 0, as .*encoder computes further'
    ):
        row.trunk((5,), options)


def test_a_preset_is_copied_to_a_folder(preset, tmp_path):
    preset('VGG')
    arguments = ['download', f'keras_hub:{tmp_path}/preset', '--output', str(tmp_path / 'weights')]
    result = CliRunner().invoke(weights_command, arguments)
    assert f"backbone: 'keras_hub:{tmp_path}/weights/preset'" in result.output
    pipeline = pipeline_pb2.TrainEvalPipelineConfig()
    pipeline.train_config.fine_tune_checkpoint = str(tmp_path / 'weights' / 'preset')
    assert not [*train_config.check_fine_tuning(pipeline)]
    assert find(f'keras_hub:{tmp_path}/weights/preset').trunk


def test_norms_are_frozen(preset, tmp_path):
    preset('ResNet')
    row = find(f'keras_hub:{tmp_path}/preset')
    trunk = row.trunk((5,), ExtractorOptions(batch_norm_trainable=False).for_backbone(row))
    before = [weight.numpy() for weight in trunk.non_trainable_weights]
    trunk(tf.ones([1, 64, 64, 3]), training=True)
    for weight, value in zip(trunk.non_trainable_weights, before, strict=True):
        np.testing.assert_array_equal(weight, value)
    assert any(type(layer) is FrozenBatchNorm for layer in trunk.layers)


def test_a_detector_takes_the_weights_of_a_folder(preset, tmp_path):
    backbone = preset('ResNet')
    pipeline = tiny_pipeline(
        f"""model {{ faster_rcnn {{
          feature_extractor {{ type: 'faster_rcnn_fpn' backbone: 'keras_hub:{tmp_path}/preset' }}
        }} }}"""
    )
    detector = model_builder.build(pipeline.model)
    report = restore.restore(detector, str(tmp_path / 'preset'), 'classification')
    assert not report.mismatched
    kernel = detector.named_variables()['backbone/conv1_conv/kernel']
    np.testing.assert_array_equal(kernel, backbone.get_layer('conv1_conv').kernel)
    other = keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Conv2D(3, 3)])
    other.save_weights(tmp_path / 'net.weights.h5')
    with pytest.raises(CheckpointError, match='expected weights of keras_hub:'):
        restore.restore(detector, str(tmp_path / 'net.weights.h5'), 'classification')


def test_images_of_other_channels(preset, tmp_path):
    preset('ResNet')
    row = find(f'keras_hub:{tmp_path}/preset')
    with image_channels.scope(4):
        trunk = row.trunk((5,), ExtractorOptions(batch_norm_trainable=False).for_backbone(row))
    assert trunk.get_layer('conv1_conv').kernel.shape[2] == 4


def test_what_is_refused(hub, tmp_path):
    with pytest.raises(UserError, match=r"'resnet_50_imagenot'; did you mean 'resnet_50_imagenet'"):
        find('keras_hub:resnet_50_imagenot')
    with pytest.raises(
        UserError, match=r'expected a preset, .* there are: .*resnet_vd_50_imagenet'
    ):
        find('keras_hub:ResNetBackbone')
    with pytest.raises(UserError, match='expected a preset that can be read'):
        find(f'keras_hub:{tmp_path}')


# Networks without maps of strides, or with that of one stride.
OTHERS = {
    'Bert': {
        'vocabulary_size': 9,
        'num_layers': 1,
        'num_heads': 1,
        'hidden_dim': 8,
        'intermediate_dim': 8,
    },
    'DINOV2': TRANSFORMER | {'position_embedding_shape': (64, 64, 3)},
    'DINOV3': TRANSFORMER,
    'SwinTransformer': {
        'image_shape': (64, 64, 3),
        'embed_dim': 8,
        'depths': [1, 1],
        'num_heads': [1, 1],
        'window_size': 2,
    },
    'DeepLabV3': {
        'low_level_feature_key': 'P2',
        'spatial_pyramid_pooling_key': 'P5',
        'upsampling_size': 8,
        'dilation_rates': [6, 12],
    },
    'MobileNetV5 with fusion': KINDS['MobileNetV5'] | {'use_msfa': True, 'num_features': 8},
    'MobileNetV5 with drop path': KINDS['MobileNetV5'] | {'drop_path_rate': 0.1},
}


@pytest.mark.parametrize(
    ('kind', 'size', 'message'),
    [
        ('Bert', SIZE, 'BertBackbone: expected a network from images alone. Received: one from .*'),
        *(
            (kind, SIZE, rf'{kind}Backbone: expected maps \[B, H, W, C\] as outputs. Received: \(')
            for kind in ('DINOV2', 'DINOV3', 'SwinTransformer')
        ),
        ('MiT', None, r'MiTBackbone: expected images of one square size, such as of fixed_shape_r'),
        ('MiT', (64, 128, 3), 'no others. Received: images of 64 x 128'),
        ('ViTDet', None, 'ViTDetBackbone: expected images of one square size'),
        ('ViTDet', SIZE, 'expected a network with maps of the strides 16, 32, .* one with 16'),
        (
            'DeepLabV3',
            SIZE,
            r'outputs of stride 2, .* Received: \(None, 224, 224, 256\) for',
        ),
        ('MobileNetV5 with fusion', SIZE, r'outputs of stride 2, .* Received: \(None, 16, 16, 8\)'),
        ('MobileNetV5 with drop path', SIZE, 'expected drop_path_rate: 0, as .*Received: 0.1'),
        ('Xception', SIZE, 'maps of the strides 4, 16, 32, .* Received one with 8, 16, 32'),
        ('RetinaNet', SIZE, 'maps of the strides 4, 16, 32, .* Received one with 8, 16, 32'),
    ],
)
def test_networks_that_are_refused(kind, size, message, preset, tmp_path):
    preset(kind)
    levels = (2, 4, 5) if kind in ('Xception', 'RetinaNet') else (4, 5)

    def build() -> None:
        row = find(f'keras_hub:{tmp_path}/preset')
        row.trunk(levels, ExtractorOptions(batch_norm_trainable=False).for_backbone(row))

    with image_sizes.scope(size), pytest.raises(UserError, match=message):
        build()


def test_square_networks_have_no_stage_over_crops(preset, tmp_path):
    preset('MiT')
    row = find(f'keras_hub:{tmp_path}/preset')
    options = ExtractorOptions(batch_norm_trainable=False).for_backbone(row)
    with image_sizes.scope(SIZE), pytest.raises(UserError, match='as its last stage takes crops'):
        row.crop_stage(options)


def test_padding_beyond_the_only_size_is_refused(preset, tmp_path):
    preset('MiT')
    pipeline = ssd_pipeline(f'keras_hub:{tmp_path}/preset')
    pipeline.model.ssd.feature_extractor.pad_to_multiple = 128
    with pytest.raises(UserError, match='pad_to_multiple: expected a divisor of 64'):
        model_builder.build(pipeline.model)


def test_vit_det_normalizes_images_itself_and_has_positions_of_one_size(preset, tmp_path):
    preset('ViTDet')
    row = find(f'keras_hub:{tmp_path}/preset')
    np.testing.assert_allclose(row.normalize(tf.fill([1, 1, 1, 3], 51.0)), 0.2, rtol=1e-6)
    options = ExtractorOptions(batch_norm_trainable=False).for_backbone(row)
    with image_sizes.scope((96, 96, 3)):
        trunk = row.trunk((4,), options)
    with pytest.raises(CheckpointError, match=r'expected weights of keras_hub:'):
        [*trunk.read_weights(str(tmp_path / 'preset' / 'model.weights.h5'))]


def test_random_numbers_follow_from_those_of_the_images(preset, tmp_path):
    preset('MiT')
    row = find(f'keras_hub:{tmp_path}/preset')
    options = ExtractorOptions(batch_norm_trainable=False).for_backbone(row)
    with image_sizes.scope(SIZE):
        network = row.trunk((5,), options)
    generators = [
        each
        for layer in private_names.layers_in(network)
        for each in vars(layer).values()
        if isinstance(each, keras.random.SeedGenerator)
    ]
    assert {type(layer).__name__ for layer in private_names.layers_in(network)} >= {'DropPath'}
    images = tf.random.stateless_uniform([8, *SIZE], [1, 2])

    def drawn(seed: int) -> np.ndarray:
        with tracing.drawing_by(tf.constant([[seed, i] for i in range(8)])):
            return network(images, training=True).numpy()

    states = [each.state.numpy() for each in generators]
    np.testing.assert_array_equal(drawn(3), drawn(3))
    assert np.any(drawn(3) != drawn(4))
    for each, state in zip(generators, states, strict=True):
        np.testing.assert_array_equal(each.state, state)


def ssd_pipeline(backbone: str) -> pipeline_pb2.TrainEvalPipelineConfig:
    pipeline = pipeline_pb2.TrainEvalPipelineConfig(model=tiny('num_classes: 4'))
    extractor = pipeline.model.ssd.feature_extractor
    for field in ('depth_multiplier', 'min_depth', 'num_layers'):
        extractor.ClearField(field)
    text = f"type: 'ssd_fpn' backbone: '{backbone}' fpn {{ {LEVELS} }}"
    text_format.Merge(text, extractor)
    return pipeline


def pooled_pipeline(backbone: str) -> pipeline_pb2.TrainEvalPipelineConfig:
    pipeline = ssd_pipeline(backbone)
    extractor = pipeline.model.ssd.feature_extractor
    extractor.ClearField('fpn')
    extractor.type, extractor.num_layers = 'ssd_ppn', 3
    return pipeline


def faster_rcnn_pipeline(backbone: str) -> pipeline_pb2.TrainEvalPipelineConfig:
    text = f"type: 'faster_rcnn_fpn' backbone: '{backbone}' fpn {{ {LEVELS} }}"
    return tiny_pipeline(f'model {{ faster_rcnn {{ feature_extractor {{ {text} }} }} }}')


@slow_cases.parametrize(
    1,
    ('kind', 'pipeline'),
    [
        *itertools.product(
            ('MiT', 'MobileNet', 'MobileNetV5', 'Xception', 'RetinaNet'),
            (ssd_pipeline, faster_rcnn_pipeline),
        ),
        ('ViTDet', pooled_pipeline),
    ],
)
def test_a_detector_is_trained_and_exported(kind, pipeline, preset, tmp_path):
    preset(kind)
    pipeline = pipeline(f'keras_hub:{tmp_path}/preset')
    text_format.Merge(TRAINING, pipeline)
    (batch,) = step_runs.batches(2)
    if pipeline.model.HasField('ssd'):
        del batch[InputFields.GROUNDTRUTH_INSTANCE_MASK_CROPS]
    keras.utils.set_random_seed(0)
    detector = setup.build_detector(pipeline)
    report = restore.restore(detector, str(tmp_path / 'preset'), 'classification')
    assert not report.mismatched
    before = {name: each.numpy() for name, each in detector.named_trainable_variables().items()}
    step = setup.build_step(pipeline.train_config, detector, step_runs.element_spec(batch), seed=0)
    losses = step_runs.run(step, [batch, batch])
    assert all(np.isfinite([*each.values()]).all() for each in losses)
    after = detector.named_trainable_variables()
    assert any(np.any(after[name] != before[name]) for name in before if 'backbone/' in name)
    checkpoints.save_model(str(tmp_path / 'model'), detector.named_variables(), 2)
    image = tmp_path / 'image.png'
    tf.io.write_file(str(image), tf.io.encode_png(tf.cast(random_images(1)[0], tf.uint8)))
    exported = exporter.export(
        pipeline, str(tmp_path / 'model'), tmp_path / 'exported', images=[image]
    )
    assert exported.comparison.detections > 0
    assert exported.comparison.unmatched == 0


def test_without_the_extra(monkeypatch):
    monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
    with pytest.raises(UserError, match=r'needs the Python package keras_hub, .*: pip install'):
        find('keras_hub:resnet_50_imagenet')
