"""Networks of KerasHub as backbones, from folders of presets with random weights."""

import dataclasses
import importlib.util

import keras
import numpy as np
import pytest
import tensorflow as tf
from click.testing import CliRunner

from object_detection.builders import model_builder
from object_detection.cli.weights import command as weights_command
from object_detection.errors import CheckpointError, UserError
from object_detection.models import image_channels
from object_detection.models.backbones.table import find
from object_detection.models.feature_extractor import ExtractorOptions
from object_detection.models.hyperparams import L2, LayerHyperparams
from object_detection.models.normalization import BatchNorm, FrozenBatchNorm
from object_detection.protos import pipeline_pb2
from object_detection.system import private_names
from object_detection.validation import train_config
from object_detection.weights import restore
from tests.tiny_models import tiny_pipeline

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
}


@pytest.fixture(scope='module')
def hub():
    return pytest.importorskip('keras_hub', reason="needs the extra 'hub'")


@pytest.fixture
def preset(hub, tmp_path):
    """Makes the folder of a preset of a kind, and returns its network."""

    def make(kind: str) -> keras.Model:
        backbone = getattr(hub.models, f'{kind.split()[0]}Backbone')(**KINDS[kind])
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
    return [layer.output for layer in backbone.layers[1:]]


@pytest.mark.parametrize('kind', KINDS)
def test_maps_are_those_of_the_network(kind, preset, tmp_path):
    backbone = preset(kind)
    name = f'keras_hub:{tmp_path}/preset'
    row = find(name)
    options = ExtractorOptions(
        True, LayerHyperparams(regularizer=L2(0.25)), override_backbone=True
    ).for_backbone(row)
    trunk = row.trunk((3, 4, 5), options)
    for variable, value in trunk.read_weights(str(tmp_path / 'preset' / 'model.weights.h5')):
        variable.assign(value)
    images = tf.random.stateless_uniform([1, 64, 96, 3], [1, 2])
    expected = {}
    for each in keras.Model(backbone.inputs, pyramid(backbone))(images):
        expected[tuple(each.shape[1:3])] = each  # the last one of each size
    found = trunk(images)
    assert [tuple(each.shape[1:3]) for each in found] == [(8, 12), (4, 6), (2, 3)]
    for each in found:
        np.testing.assert_allclose(each, expected[tuple(each.shape[1:3])], rtol=1e-4, atol=1e-5)
    # Norms are those of this package, penalties those of kernels, and names are the same again.
    layers = private_names.layers_in(trunk)
    norms = [each for each in layers if isinstance(each, keras.layers.BatchNormalization)]
    assert all(type(norm) is BatchNorm for norm in norms)
    kernels = [each for each in trunk.weights if each.path.endswith('kernel')]
    assert len(trunk.losses) == len(kernels) > 0
    again = row.trunk((3, 4, 5), options)
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
    hub.models.MiTBackbone(
        layerwise_depths=[1, 1],
        num_layers=2,
        layerwise_num_heads=[1, 1],
        layerwise_sr_ratios=[2, 1],
        max_drop_path_rate=0.1,
        layerwise_patch_sizes=[7, 3],
        layerwise_strides=[4, 2],
        image_shape=(32, 32, 3),
        hidden_dims=[8, 8],
    ).save_to_preset(str(tmp_path / 'mit'))
    row = find(f'keras_hub:{tmp_path}/mit')
    options = ExtractorOptions(batch_norm_trainable=False).for_backbone(row)
    with pytest.raises(UserError, match=r'expected a network for images of any size\. MiTBackbone'):
        row.trunk((3,), options)


def test_without_the_extra(monkeypatch):
    monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
    with pytest.raises(UserError, match=r'needs the Python package keras_hub, .*: pip install'):
        find('keras_hub:resnet_50_imagenet')
