"""Maps of backbones of keras.applications against those of Keras' own networks, same weights."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from object_detection.models.backbones import keras_networks
from object_detection.models.backbones.table import find
from object_detection.models.feature_extractor import ExtractorOptions
from object_detection.system import private_names
from tests import slow_cases

SIDE = 96
LEVELS = (2, 3, 4, 5)
# Keras' own networks of these have windows with VALID padding.
ALIGNED = ('InceptionResNetV2', 'InceptionV3', 'Xception')


def own_network(name: str) -> keras.Model:
    """The network of Keras, with random weights and statistics, and without dropout."""
    side = SIDE + ('NASNet' in name)
    with private_names.fresh_layer_names():
        _, function = keras_networks._functions()[name]
        network = function(include_top=False, weights=None, input_shape=(side, side, 3))
    if name in ALIGNED:
        config = json.dumps(network.get_config()).replace('"valid"', '"same"')
        custom = {type(layer).__name__: type(layer) for layer in network.layers}
        network = keras.Model.from_config(json.loads(config), custom_objects=custom)
    rng = np.random.default_rng(0)
    for weight in network.weights:
        if weight.path.endswith(('/bias', '/beta', 'moving_mean')):
            weight.assign(rng.uniform(-0.1, 0.1, weight.shape))
        elif weight.path.endswith(('/gamma', 'moving_variance')):
            weight.assign(rng.uniform(0.5, 1.5, weight.shape))
        elif 'layer_scale' in weight.path:
            weight.assign(rng.uniform(0.1, 0.5, weight.shape))
    for layer in network.layers:
        if isinstance(layer, keras.layers.Dropout):
            layer.rate = 0.0
    return network


def differences(name: str, folder) -> dict[str, float]:
    """The largest differences of all maps, relative to the largest value of the map."""
    own = own_network(name)
    path = str(folder / 'net.weights.h5')
    own.save_weights(path)
    row = find(f'keras:{name}')
    options = ExtractorOptions(batch_norm_trainable=True).for_backbone(row)
    trunk = row.trunk(LEVELS, options)
    for layer in trunk.layers:
        if isinstance(layer, keras.layers.Dropout):
            layer.rate = 0.0
    for variable, value in trunk.read_weights(path):
        variable.assign(value)
    names = [output._keras_history.operation.name for output in trunk.outputs]
    operations = {operation.name: operation for operation in own.operations}
    reference = keras.Model(own.inputs, [operations[each].output for each in names])
    images = row.normalize(tf.random.stateless_uniform([2, SIDE, SIDE, 3], [1, 2], maxval=255))
    pad = own.input_shape[1] - SIDE
    padded = tf.pad(images, [[0, 0], [0, pad], [0, pad], [0, 0]])
    found = {}
    for mode in ('inference', 'training'):
        training = mode == 'training'
        pairs = zip(
            tf.function(trunk)(images, training=training),
            reference(padded, training=training),
            strict=True,
        )
        found[mode] = max(
            float(tf.reduce_max(tf.abs(ours - theirs)) / tf.reduce_max(tf.abs(theirs)))
            for ours, theirs in pairs
        )
        assert all(
            each.shape[1] == SIDE // 2**level
            for level, each in zip(LEVELS, trunk(images), strict=True)
        )
    return found


# Keras converts its variables as NumPy 2 advises against.
@pytest.mark.filterwarnings('ignore:__array__ implementation:DeprecationWarning')
@slow_cases.parametrize(
    1,
    'name',
    [
        'MobileNet',
        'ConvNeXtTiny',
        'DenseNet121',
        'EfficientNetV2B0',
        'InceptionV3',
        'InceptionResNetV2',
        'MobileNetV2',
        'MobileNetV3Small',
        'NASNetMobile',
        'ResNet50',
        'ResNet50V2',
        'VGG16',
        'Xception',
    ],
)
def test_maps_are_those_of_keras(name, tmp_path):
    found = differences(name, tmp_path)
    # Hundreds of layers in another order of operations: norms are folded into convolutions.
    assert found['inference'] < 2e-4
    assert found['training'] < 1e-3
