import json
import pathlib
import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from object_detection.models.backbones import efficientnet

ZOO_KEYS = pathlib.Path(__file__).resolve().parents[4] / 'shared' / 'goldens' / 'zoo_keys'
KEY = re.compile(
    'model/_feature_extractor/(?:_efficientnet|classification_backbone)/'
    r'layer_with_weights-(\d+)/([^/]+)/\.ATTRIBUTES/VARIABLE_VALUE'
)


def build(size: int, levels=(3, 4, 5), batch_norm_trainable: bool = True) -> keras.Model:
    return efficientnet.trunk(
        size,
        levels=levels,
        hyperparams=efficientnet.default_hyperparams(),
        batch_norm_trainable=batch_norm_trainable,
        name='backbone',
    )


@pytest.fixture(scope='module')
def b0() -> keras.Model:
    return build(0)


def layers_of(model: keras.Model) -> list[dict[str, tuple[int, ...]]]:
    """Variable -> shape for each layer with variables, in their order."""
    layers: dict[str, dict[str, tuple[int, ...]]] = {}
    for variable in model.weights:
        layer, _, name = variable.path.rpartition('/')
        layers.setdefault(layer, {})[name] = tuple(variable.shape)
    return list(layers.values())


def zoo_layers(detector: str) -> list[dict[str, tuple[int, ...]]]:
    if not ZOO_KEYS.is_dir():
        pytest.skip('needs ../shared/goldens')
    (path,) = ZOO_KEYS.glob(f'ssd_efficientdet_{detector}_*.json')
    layers: dict[int, dict[str, tuple[int, ...]]] = {}
    for key, shape, _ in json.loads(path.read_text())['keys']:
        if match := KEY.fullmatch(key):
            layers.setdefault(int(match[1]), {})[match[2]] = tuple(shape)
    return [layers[position] for position in sorted(layers)]


def test_layers_of_b0_are_those_of_the_zoo(b0):
    assert layers_of(b0) == zoo_layers('d0')


# The detector D7 has the backbone B6.
@pytest.mark.slow
@pytest.mark.parametrize('size', range(1, 7))
def test_layers_are_those_of_the_zoo(size):
    assert layers_of(build(size)) == zoo_layers(f'd{size}')


@pytest.mark.slow
@pytest.mark.parametrize('size', [0, 3, 7])
def test_names_are_those_of_keras(size):
    theirs = getattr(keras.applications, f'EfficientNetB{size}')(weights=None)
    layers = [layer.name for layer in theirs.layers if layer.weights]
    layers = [name for name in layers if not name.startswith('normalization')]
    ours = build(size)
    assert list(dict.fromkeys(v.path.partition('/')[0] for v in ours.weights)) == layers


@pytest.mark.slow
def test_maps_are_those_of_keras(b0):
    theirs = keras.applications.EfficientNetB0(weights=None, include_top=False)
    rng = np.random.default_rng(0)
    for layer in theirs.layers:
        if 'normalization' in layer.name:
            continue
        for variable in layer.weights:
            if len(variable.shape) == 1:
                variable.assign(rng.uniform(0.5, 1.5, variable.shape))
    sources = {
        f'{layer.name}/{variable.name}': variable
        for layer in theirs.layers
        for variable in layer.weights
    }
    for variable in b0.weights:
        source = sources.get(variable.path.replace('depthwise_kernel', 'kernel'))
        if source is not None:
            variable.assign(source)
    # Keras pads like SAME for even sizes; its map of level 5 is the one after the last block.
    names = ['block3b_add', 'block5c_add', 'block7a_project_bn']
    outputs = [theirs.get_layer(name).output for name in names]
    taps = keras.Model(theirs.input, [theirs.get_layer('stem_conv_pad').input, *outputs])
    images = rng.uniform(0, 255, [1, 64, 96, 3]).astype('float32')
    normalized, *expected = taps(images)
    for ours, reference in zip(b0(normalized), expected, strict=True):
        np.testing.assert_allclose(ours, reference, atol=2e-4 * np.std(reference))


def test_maps_of_odd_sizes(b0):
    maps = b0(tf.zeros([1, 65, 33, 3]))
    shapes = [(1, 9, 5, 40), (1, 5, 3, 112), (1, 3, 2, 320)]
    assert [tuple(features.shape) for features in maps] == shapes


def test_what_follows_the_last_map_has_variables_but_is_not_computed(b0):
    assert [layer.name for layer in b0.unused] == ['top_conv', 'top_bn', 'predictions']
    images = tf.random.stateless_uniform([1, 32, 32, 3], [1, 2])
    before = [variable.numpy() for variable in b0.unused[1].weights]
    with tf.GradientTape() as tape:
        objective = tf.add_n([tf.reduce_sum(x) for x in b0(images, training=True)])
    gradients = tape.gradient(objective, [v.value for v in b0.trainable_variables])
    missing = [
        variable.path
        for variable, gradient in zip(b0.trainable_variables, gradients, strict=True)
        if gradient is None
    ]
    unused = [variable.path for layer in b0.unused for variable in layer.trainable_variables]
    assert missing == unused
    assert len(unused) == 5
    for variable, value in zip(b0.unused[1].weights, before, strict=True):
        np.testing.assert_array_equal(variable, value)


def test_penalties_leave_out_depthwise_kernels(b0):
    kernels = [v for v in b0.trainable_variables if v.path.endswith(('/kernel', '/bias'))]
    assert len(b0.losses) == len(kernels)
    expected = sum(5e-6 * np.sum(np.square(kernel)) for kernel in kernels)
    np.testing.assert_allclose(sum(float(loss) for loss in b0.losses), expected, rtol=1e-5)


@pytest.mark.parametrize(
    ('size', 'levels', 'message'),
    [(8, (3,), 'size of 0 to 7'), (0, (4, 3), r'levels of \(1, 2, 3, 4, 5\)')],
)
def test_wrong_options(size, levels, message):
    with pytest.raises(ValueError, match=message):
        build(size, levels)
