"""Residual blocks of networks of keras.applications that a training leaves out at random."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from object_detection.core import tracing
from object_detection.meta_architectures.center_net import build as center_net
from object_detection.meta_architectures.faster_rcnn import build as faster_rcnn
from object_detection.meta_architectures.ssd import build as ssd
from object_detection.models.backbones import keras_networks
from object_detection.models.backbones.table import find
from object_detection.models.feature_extractor import ExtractorOptions
from object_detection.protos.center_net_pb2 import CenterNetFeatureExtractor
from object_detection.protos.faster_rcnn_pb2 import FasterRcnnFeatureExtractor
from object_detection.protos.ssd_pb2 import SsdFeatureExtractor

TOY = 'keras:ConvNeXtToy'


def toy(*, include_top=True, weights=None, input_shape=(224, 224, 3)) -> keras.Model:
    """Two residual blocks, as those of a ConvNeXt, on a map of stride 32."""
    del include_top, weights
    layers = keras.layers
    images = x = keras.Input(input_shape)
    for level in range(1, 6):
        x = layers.Conv2D(4, 3, 2, padding='same', name=f'conv_{level}')(x)
    for block in range(2):
        y = layers.Conv2D(4, 3, padding='same', name=f'block_{block}')(x)
        x = x + layers.Activation('linear', name=f'block_{block}_identity')(y)
    return keras.Model(images, x)


@pytest.fixture(autouse=True)
def _with_toy(monkeypatch):
    functions = keras_networks._functions() | {'ConvNeXtToy': (keras.applications.convnext, toy)}
    monkeypatch.setattr(keras_networks, '_functions', lambda: functions)


def _trunk(rate, name=TOY):
    row = find(name)
    options = ExtractorOptions(batch_norm_trainable=False, drop_path_rate=rate)
    return row.trunk((5,), options.for_backbone(row))


def test_a_block_is_left_out_or_scaled_by_hand():
    network = _trunk(0.6)
    images = tf.random.stateless_uniform([64, 32, 32, 3], [1, 2])
    branch = keras.Model(network.inputs, network.get_layer('block_1').output)(images).numpy()
    before = network(images).numpy() - branch

    def kept(seed):
        with tracing.drawing_by(tf.constant([[seed, i] for i in range(64)])):
            found = network(images, training=True).numpy()
        # The first block is never left out, the last one with the probability of the config.
        is_kept = np.abs(found - before).max((1, 2, 3)) > 1e-6
        expected = before + branch / 0.4 * is_kept[:, np.newaxis, np.newaxis, np.newaxis]
        np.testing.assert_allclose(found, expected, atol=1e-5)
        return is_kept

    first = kept(3)
    assert 0.15 < first.mean() < 0.65
    np.testing.assert_array_equal(kept(3), first)
    assert (kept(4) != first).any()


def test_rates_by_hand():
    inputs = keras.Input((4, 4, 2))
    x = inputs
    for number, rate in enumerate((0.05, 0.1, 0.15)):
        x = keras.layers.Dropout(rate, noise_shape=(None, 1, 1, 1), name=f'drop_{number}')(x)
    network = keras.Model(inputs, keras.layers.Dropout(0.5, name='top')(x))
    rates = keras_networks._drop_path_rates(network, 0.4)
    assert rates == pytest.approx({'drop_0': 0.1, 'drop_1': 0.2, 'drop_2': 0.3})
    assert keras_networks._drop_path_rates(network, None) == {}
    assert keras_networks._drop_path_rates(toy(), 0.4) == {
        'block_0_identity': 0.0,
        'block_1_identity': 0.4,
    }


@pytest.mark.parametrize(
    ('build', 'message'),
    [
        (ssd.build_extractor, SsdFeatureExtractor(type='ssd_fpn', conv_hyperparams={})),
        (faster_rcnn.build_extractor, FasterRcnnFeatureExtractor(type='faster_rcnn')),
        (center_net.build_extractor, CenterNetFeatureExtractor(type='center_net')),
    ],
    ids=['ssd', 'faster_rcnn', 'center_net'],
)
def test_families_read_the_field_or_refuse_it(build, message):
    message.backbone, message.drop_path_rate = 'resnet_v1_18', 0.25
    with pytest.raises(ValueError, match=r'drop_path_rate: expected none, as .*Received: 0\.25'):
        build(message, True)
    message.backbone = TOY
    if isinstance(message, SsdFeatureExtractor):
        message.fpn.min_level = message.fpn.max_level = 5
    elif isinstance(message, FasterRcnnFeatureExtractor):
        message.type, message.fpn.min_level, message.fpn.max_level = 'faster_rcnn_fpn', 5, 6
        message.conv_hyperparams.SetInParent()
    backbone = build(message, True).backbone
    assert backbone.get_layer('block_1_identity').rate == 0.25


@pytest.mark.slow
@pytest.mark.parametrize(
    ('name', 'count'), [('EfficientNetB0', 9), ('EfficientNetV2B0', 15), ('ConvNeXtTiny', 18)]
)
def test_real_networks(name, count):
    layers = _trunk(0.4, f'keras:{name}').layers
    rates = [each.rate for each in layers if getattr(each, 'noise_shape', None)]
    assert len(rates) == count
    assert rates == sorted(rates)
    assert 0.35 < rates[-1] <= 0.4
    off = _trunk(0.0, f'keras:{name}').layers
    assert {each.rate for each in off if getattr(each, 'noise_shape', None)} == {0.0}
