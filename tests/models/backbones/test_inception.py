"""Inception v2 and v3, by the networks of TF-Slim and of Keras."""

import math
import re
from collections.abc import Iterator, Sequence

import keras
import numpy as np
import pytest
import tensorflow as tf

from object_detection.core.variable_names import by_number
from object_detection.meta_architectures.faster_rcnn.variable_names import FASTER_RCNN_NAMES
from object_detection.models.backbones.inception import inception, inception_v3
from object_detection.models.backbones.table import BACKBONES, BackboneOptions
from object_detection.models.hyperparams import L2, LayerHyperparams
from object_detection.weights import slim
from tests import rows, slow_cases
from tests.models.backbones import slim_network


def options(*, hyperparams=None, **fields) -> BackboneOptions:
    hyperparams = hyperparams or inception.default_hyperparams()
    return BackboneOptions(hyperparams, batch_norm_trainable=False, min_depth=16, **fields)


def trunk(name: str, levels: Sequence[int], **fields) -> keras.Model:
    return BACKBONES[name].trunk(levels, options(**fields))


def named_variables(models: dict[str, keras.Model]) -> dict[str, keras.Variable]:
    return {
        f'{part}/{variable.path.removeprefix(model.name + "/")}': variable
        for part, model in models.items()
        for variable in model.variables
    }


@pytest.fixture
def images() -> np.ndarray:
    return np.random.default_rng(1).uniform(-1, 1, (2, 97, 129, 3)).astype(np.float32)


def test_v2_equals_the_network_of_tf_slim(images):
    network = slim_network.Inception('inception_v2', depth_multiplier=0.25)
    expected = network(images)
    given = {'depth_multiplier': 0.25}
    models = {
        'backbone': trunk('inception_v2', (2, 3, 4), **given),
        'box_classifier': BACKBONES['inception_v2'].crop_stage(options(**given)),
    }
    variables = named_variables(models)
    found = slim.match(variables, network.arrays, FASTER_RCNN_NAMES)
    assert found.keys() == variables.keys()
    assert sorted(found.values()) == sorted(network.arrays)
    for name, variable in variables.items():
        variable.assign(network.arrays[found[name]])
    maps = models['backbone'](images)
    maps.append(models['box_classifier'](maps[-1]))
    for name, ours in zip(('Conv2d_2c_3x3', 'Mixed_3c', 'Mixed_4e', 'Mixed_5c'), maps, strict=True):
        np.testing.assert_allclose(ours, expected[name], rtol=1e-4, atol=1e-4, err_msg=name)


@slow_cases.parametrize(
    1,
    ('name', 'levels', 'ends'),
    [
        ('inception_v3', (3, 4, 5), ('Mixed_5d', 'Mixed_6e', 'Mixed_7c')),
        ('inception_v2_mixed_4c', (4, 5), ('Mixed_4c', 'Mixed_5c')),
    ],
)
def test_maps_of_ssd_equal_those_of_the_network_of_tf_slim(images, name, levels, ends):
    network = slim_network.Inception(name.removesuffix('_mixed_4c'), depth_multiplier=0.125)
    expected = network(images)
    backbone = trunk(name, levels, depth_multiplier=0.125)
    variables = named_variables({'backbone': backbone})
    keys = {f'FeatureExtractor/{key}': key for key in network.arrays}
    found = slim.match(variables, keys, FASTER_RCNN_NAMES)
    assert found.keys() == variables.keys()
    assert sorted(keys[key] for key in found.values()) == sorted(network.arrays)
    for key, variable in variables.items():
        variable.assign(network.arrays[keys[found[key]]])
    for end, ours in zip(ends, backbone(images), strict=True):
        np.testing.assert_allclose(ours, expected[end], rtol=1e-4, atol=1e-4, err_msg=end)


@pytest.mark.slow
def test_v3_equals_the_network_of_keras():
    theirs = keras.applications.InceptionV3(include_top=False, weights=None)
    ours = trunk('inception_v3', (3, 4, 5))
    random = np.random.default_rng(0)
    for there, here in zip(_of_keras(theirs), _of_ours(ours), strict=True):
        fan_in = np.prod(there[0].kernel.shape[:-1])
        kernel = random.normal(0, math.sqrt(2 / fan_in), there[0].kernel.shape)
        norm = [random.uniform(0.5, 1.5, weight.shape) for weight in there[1].weights]
        for conv, bn in (there, here):
            conv.set_weights([kernel])
            bn.set_weights(norm)
    images = np.random.default_rng(1).uniform(-1, 1, (1, 139, 171, 3)).astype(np.float32)
    ends = [theirs.get_layer(name).output for name in ('mixed2', 'mixed7', 'mixed10')]
    expected = keras.Model(theirs.inputs[0], ends)(images)
    for found, there in zip(ours(images), expected, strict=True):
        np.testing.assert_allclose(found, there, rtol=1e-4, atol=1e-4 * np.abs(there).max())


def _of_keras(model: keras.Model) -> Iterator[tuple[keras.Layer, keras.Layer]]:
    """Yields the convolutions with their norms in the order in which Keras numbers them."""

    def of_kind(name: str) -> list[keras.Layer]:
        found = [layer for layer in model.layers if re.fullmatch(rf'{name}(_\d+)?', layer.name)]
        return sorted(found, key=lambda layer: by_number(f'{layer.name}_0'))

    return zip(of_kind('conv2d'), of_kind('batch_normalization'), strict=True)


def _of_ours(model: keras.Model) -> Iterator[tuple[keras.Layer, keras.Layer]]:
    """Yields the convolutions with their norms, block by block and branch by branch."""
    names = sorted(layer.name for layer in model.layers if isinstance(layer, keras.layers.Conv2D))
    for row in inception_v3.NETWORK:
        for name in names:
            if re.fullmatch(rf'{row}(_branch.+)?', name):
                yield model.get_layer(name), model.get_layer(f'{name}_bn')


@pytest.mark.slow
def test_sizes_of_v2():
    models = {
        'backbone': trunk('inception_v2', [4]),
        'box_classifier': BACKBONES['inception_v2'].crop_stage(options()),
    }
    assert models['backbone'](tf.zeros([1, 65, 33, 3])).shape == (1, 5, 3, 576)
    assert models['box_classifier'](tf.zeros([3, 7, 7, 576])).shape == (3, 4, 4, 1024)
    # Inception v2 has 10.2 million parameters without its logits, norms by their offsets alone.
    count = sum(
        np.prod(variable.shape)
        for model in models.values()
        for variable in model.trainable_variables
    )
    assert count == 10_153_336
    norm = models['backbone'].get_layer('mixed_4e_branch1_2_bn')
    assert (norm.momentum, norm.epsilon, norm.scale, norm.center) == (0.9997, 0.001, False, True)
    assert not models['backbone'].losses


# Layers whose kernels have an initializer of their own in v2, and its standard deviation.
STDDEVS = {
    'conv_1a': 1.0,
    'conv_2b': 0.1,
    'conv_2c': None,
    'mixed_3b_branch0_1': None,
    'mixed_3b_branch1_1': 0.09,
    'mixed_3b_branch1_2': None,
    'mixed_3b_branch3_1': 0.1,
    'mixed_4a_branch0_1': 0.09,
    'mixed_4a_branch0_2': None,
    'mixed_4c_branch3_1': 0.1,
}


def test_initializers_that_a_config_does_not_replace():
    hyperparams = LayerHyperparams(initializer=keras.initializers.RandomNormal(stddev=7))
    fields = {'hyperparams': hyperparams, 'depth_multiplier': 0.01}
    v2 = trunk('inception_v2_mixed_4c', [4], **fields)
    for name, stddev in STDDEVS.items():
        layer = v2.get_layer(name)
        kinds = ('depthwise', 'pointwise') if name == 'conv_1a' else ('kernel',)
        for kind in kinds:
            found = getattr(layer, f'{kind}_initializer')
            assert found.stddev == (stddev or 7), name
            assert isinstance(found, keras.initializers.TruncatedNormal) == bool(stddev), name
    v3 = trunk('inception_v3', [3], **fields)
    convs = [layer for layer in v3.layers if isinstance(layer, keras.layers.Conv2D)]
    assert {layer.kernel_initializer.stddev for layer in convs} == {7}


@rows.parametrize('depthwise', [False, True])
def test_hyperparams_reach_the_separable_convolution(depthwise):
    hyperparams = LayerHyperparams(regularizer=L2(0.1), regularize_depthwise=depthwise)
    stem = trunk('inception_v2', [2], depth_multiplier=0.25, hyperparams=hyperparams)
    layer = stem.get_layer('conv_1a')
    # Without a norm it has a bias, which is not penalised.
    assert [variable.path.split('/')[-1] for variable in layer.variables] == [
        'depthwise_kernel',
        'pointwise_kernel',
        'bias',
    ]
    assert layer.depthwise_kernel.shape == (7, 7, 3, 5)
    assert len(layer.losses) == 1 + depthwise


@rows.parametrize('name', ['inception_v2', 'inception_v3'])
def test_a_multiplier_must_be_positive(name):
    with pytest.raises(ValueError, match=r'depth_multiplier: expected a positive.* Received: 0'):
        trunk(name, [3], depth_multiplier=0.0)
