"""NASNet, by the network of Keras and by the page of facts on the reference."""

import contextlib
import math
import re
from collections.abc import Iterator
from typing import Any
from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.src.applications import nasnet as keras_nasnet

from object_detection.core import tracing
from object_detection.models.backbones import nasnet
from object_detection.models.backbones.nasnet import Size
from object_detection.models.backbones.table import BackboneOptions
from object_detection.training.step import sampling_seeds
from tests import rows
from tests.weights import slim_keys

TINY = Size(cells=2, filters=8, stem_filters=6)
LARGE = Size(cells=6, filters=168, stem_filters=96)


def parts(size: Size) -> dict[str, keras.Model]:
    options = BackboneOptions(nasnet.default_hyperparams(), batch_norm_trainable=False)
    models = (nasnet.trunk(size, options), nasnet.crop_stage(size, options))
    return {model.name: model for model in models}


@pytest.fixture(scope='module')
def tiny() -> dict[str, keras.Model]:
    return parts(TINY)


def scope_of_keras(layer: str, size: Size) -> str:
    """Returns Keras's name of a layer such as cell_3_comb_iter_0_left_bn_sep_5x5_1."""
    if layer in ('conv0', 'conv0_bn'):
        return f'stem_{"bn1" if layer.endswith("bn") else "conv1"}'
    kind, number, name = re.fullmatch(r'(cell_stem|reduction_cell|cell)_(\d+)_(.+)', layer).groups()
    number = int(number)
    block = {
        'cell_stem': f'stem_{number + 1}',
        'reduction_cell': f'reduce_{(number + 1) * size.cells}',
        # The first of the reductions between them counts, too.
        'cell': f'{number + (number >= size.cells)}',
    }[kind]
    kind = 'normal' if kind == 'cell' else 'reduction'
    if found := re.fullmatch(r'comb_iter_(\d)_(left|right)_(separable|bn_sep)_.x._(\d)', name):
        place, side, part, repeat = found.groups()
        # The fifth sum of a reduction is called the fourth.
        place = 4 if (kind, place) == ('reduction', '4') else int(place) + 1
        bn = '_bn' if part == 'bn_sep' else ''
        return f'separable_conv_{repeat}{bn}_{kind}_{side}{place}_{block}'
    names = {
        '1x1': f'{kind}_conv_1',
        'beginning_bn': f'{kind}_bn_1',
        'prev_1x1': 'adjust_conv_projection',
        'prev_bn': 'adjust_bn',
        'path1_conv': 'adjust_conv_1',
        'path2_conv': 'adjust_conv_2',
        'final_path_bn': 'adjust_bn',
    }
    return f'{names[name]}_{block}'


class LayersThatPadAlike:
    """Keras's layers, but the poolings of stride 2 of a NASNet are padded as in TF-Slim.

    Keras pads them with zeros, which count in means and exceed negative maxima.
    """

    def __getattr__(self, name: str):
        kind = getattr(keras.layers, name)

        def make(*arguments, **options):
            layer = options.get('name', '')
            if layer.startswith('reduction_pad_1_'):
                return keras.layers.Identity(name=layer)
            if re.match(r'reduction_(left[23]|right5)_', layer):
                options['padding'] = 'same'
            return kind(*arguments, **options)

        return make


def network_of_keras(size: Size, side: int, layers: Any = keras.layers) -> keras.Model:
    """Keras's network, to the maps of the last two cells of its second stage and the last map."""
    with mock.patch.object(keras_nasnet, 'layers', layers):
        given = keras_nasnet.NASNet(
            (side, side, 3),
            penultimate_filters=24 * size.filters,
            num_blocks=size.cells,
            stem_block_filters=size.stem_filters,
            include_top=False,
            weights=None,
        )
    cells = [given.get_layer(f'normal_concat_{2 * size.cells - i}').output for i in (1, 0)]
    return keras.Model(given.inputs[0], [*cells, given.outputs[0]])


def copy_random_weights(models: dict[str, keras.Model], theirs: keras.Model, size: Size) -> int:
    """Gives both networks the same weights; returns the number of Keras's layers that got some."""
    random, found = np.random.default_rng(0), set()
    for model in models.values():
        for layer in model.layers:
            if layer.weights:
                there = theirs.get_layer(scope_of_keras(layer.name, size))
                values = [_random(random, weight) for weight in there.weights]
                there.set_weights(values)
                layer.set_weights(values)
                found.add(there.name)
    return len(found)


def _random(random: np.random.Generator, weight: keras.Variable) -> np.ndarray:
    if len(weight.shape) == 1:
        low = -0.5 if weight.name in ('beta', 'moving_mean') else 0.5
        return random.uniform(low, low + 1, weight.shape)
    is_depthwise = 'depthwise' in weight.path
    fan_in = np.prod(weight.shape[:2] if is_depthwise else weight.shape[:3])
    return random.normal(0, 1 / math.sqrt(fan_in), weight.shape)


def compare(models: dict[str, keras.Model], size: Size, side: int) -> None:
    """Compares all maps with Keras's."""
    theirs = network_of_keras(size, side, LayersThatPadAlike())
    count = copy_random_weights(models, theirs, size)
    assert count == sum(bool(layer.weights) for layer in theirs.layers)
    images = np.random.default_rng(1).uniform(-1, 1, (1, side, side, 3)).astype(np.float32)
    *cells, last = theirs(images)
    features = models['backbone'](images)
    np.testing.assert_allclose(
        features, np.concatenate(cells, axis=-1), rtol=1e-4, atol=1e-4 * np.abs(features).max()
    )
    # The whole map as a crop.
    ours = models['box_classifier'](features)
    np.testing.assert_allclose(ours, last, rtol=1e-4, atol=1e-4 * np.abs(last).max())


def test_equals_the_network_of_keras(tiny):
    compare(tiny, TINY, 99)


@pytest.mark.slow
@pytest.mark.parametrize(('size', 'side'), [(TINY, 128), (LARGE, 65)])
def test_equals_other_networks_of_keras(size, side):
    compare(parts(size), size, side)


@pytest.mark.slow
def test_the_padding_of_keras_differs_at_borders_alone():
    """In the first stem cell, whose poolings see what is padded."""
    side = 99
    kinds = (LayersThatPadAlike(), keras.layers)
    theirs = [network_of_keras(TINY, side, layers) for layers in kinds]
    theirs[1].set_weights([_random(np.random.default_rng(2), w) for w in theirs[1].weights])
    theirs[0].set_weights(theirs[1].get_weights())
    images = np.random.default_rng(1).uniform(-1, 1, (1, side, side, 3)).astype(np.float32)
    maps = [
        keras.Model(each.inputs[0], each.get_layer('reduction_concat_stem_1').output)(
            images
        ).numpy()
        for each in theirs
    ]
    # conv0 has 49 rows, of which the first and the last are beside padding.
    difference = np.abs(maps[0] - maps[1]).max(axis=(0, 3))
    assert difference.shape == (25, 25)
    np.testing.assert_allclose(difference[1:-1, 1:-1], 0, atol=1e-5)
    assert min(difference[0].max(), difference[-1].max()) > 1e-2


@rows.parametrize(
    ('size', 'expected'),
    [((299, 224), (19, 14)), ((112, 97), (7, 6)), ((98, 99), (6, 7)), ((1200, 1200), (75, 75))],
)
def test_sizes(tiny, size, expected):
    assert tiny['backbone'].compute_output_shape((2, *size, 3)) == (2, *expected, 2 * 6 * 16)


def test_crops(tiny):
    stage = tiny['box_classifier']
    assert stage.compute_output_shape((5, 17, 17, 192)) == (5, 9, 9, 192)
    assert stage(tf.zeros([5, 17, 17, 192])).shape == (5, 9, 9, 192)


def variables(models: dict[str, keras.Model]) -> dict[str, tuple[int, ...]]:
    return {
        f'{part}/{variable.path.removeprefix(part + "/")}': tuple(variable.shape)
        for part, model in models.items()
        for variable in model.variables
    }


def test_number_of_parameters(tiny):
    expected = slim_keys.nasnet(TINY.cells, TINY.filters, TINY.stem_filters)
    found = variables(tiny)
    assert len(found) == len(expected)
    assert sorted(map(math.prod, found.values())) == sorted(map(math.prod, expected.values()))


@pytest.mark.slow
def test_number_of_parameters_of_the_large_network():
    assert nasnet.LARGE == LARGE
    found = variables(parts(LARGE))
    # That of Keras without its top.
    assert sum(map(math.prod, found.values())) == 84_916_818


def test_hyperparameters(tiny):
    layer = tiny['box_classifier'].get_layer('cell_4_comb_iter_0_left_separable_5x5_1')
    for kind in ('depthwise', 'pointwise'):
        initializer = getattr(layer, f'{kind}_initializer')
        assert (initializer.scale, initializer.mode) == (2.0, 'fan_out')
        # The proto's weight is of half the sum of squares.
        assert getattr(layer, f'{kind}_regularizer').l2 == 2.5e-5
    assert not layer.use_bias
    norm = tiny['backbone'].get_layer('conv0_bn')
    assert (norm.momentum, norm.epsilon, norm.scale, norm.center) == (0.9997, 0.001, True, True)


# Share of images that drop path leaves out of the last cell, and of the second of 10 cells.
@rows.parametrize(
    ('step', 'number', 'rate'),
    [(250_000, 9, 0.3), (1_000_000, 9, 0.3), (125_000, 9, 0.15), (250_000, 1, 0.06), (0, 9, 0)],
)
def test_drop_path(step, number, rate):
    layer = nasnet.DropPath(0.3 * (number + 1) / 10, number, name='drop_path')
    maps = tf.ones([20000, 1, 2, 1])
    with training_step(step, step_seeds(20000)):
        dropped = layer(maps, training=True).numpy()
        again = layer(maps, training=True).numpy()
        assert (layer(maps).numpy() == 1).all()
    assert (layer(maps, training=True).numpy() == 1).all()
    np.testing.assert_array_equal(dropped, again)
    kept = dropped[:, 0, 0, 0] > 0
    # Of one image all or nothing is kept, and the mean stays.
    np.testing.assert_allclose(dropped[kept], 1 / (1 - rate), rtol=1e-6)
    np.testing.assert_array_equal(dropped[~kept], 0)
    deviation = math.sqrt(rate * (1 - rate) / 20000)
    assert abs((1 - kept.mean()) - rate) <= 4 * deviation


@contextlib.contextmanager
def training_step(step: int, seeds: tf.Tensor) -> Iterator[None]:
    number = tf.Variable(step, dtype=tf.int64)
    with tracing.training_step(number), tracing.drawing_by(seeds):
        yield


def step_seeds(count: int) -> tf.Tensor:
    return sampling_seeds(3, tf.constant(7), tf.constant(count))


def test_drop_path_of_a_network(tiny):
    """Every pooling and separable convolution has one, of the share of its cell."""
    rates, keys = {}, []
    for model in tiny.values():
        for layer in model.layers:
            if isinstance(layer, nasnet.DropPath):
                rates.setdefault(layer.name.partition('_comb')[0], []).append(layer._rate)
                keys.append(layer._number)
    order = [
        'cell_stem_0', 'cell_stem_1', 'cell_0', 'cell_1', 'reduction_cell_0', 'cell_2', 'cell_3',
        'reduction_cell_1', 'cell_4', 'cell_5',
    ]  # fmt: skip
    assert list(rates) == order
    for number, name in enumerate(order, start=1):
        count = 9 if 'cell_stem' in name or 'reduction' in name else 8
        np.testing.assert_allclose(rates[name], [0.3 * number / 10] * count)
    assert len(set(keys)) == len(keys)
    # Of the large network, the reduction of the crops is number 15 of 22, from 0.
    assert [cell.number for cell in nasnet._stage(LARGE, 2)] == list(range(15, 22))
    assert LARGE.num_cells() == 22


def test_drop_path_is_on_in_training_alone(tiny):
    images = tf.random.stateless_uniform([2, 65, 65, 3], (1, 2), -1, 1)

    def run(step: int | None, training: bool) -> np.ndarray:
        if step is None:
            return tiny['backbone'](images, training=training).numpy()
        with training_step(step, step_seeds(2)):
            return tiny['backbone'](images, training=training).numpy()

    expected = run(None, training=False)
    # Before the first step nothing is left out.
    np.testing.assert_allclose(run(0, training=True), expected, rtol=1e-5, atol=1e-6)
    dropped = run(250_000, training=True)
    assert np.abs(dropped - expected).max() > 1e-2 * np.abs(expected).max()


def test_crops_of_an_image_are_dropped_by_its_seed():
    layer = nasnet.DropPath(0.5, 3, name='drop_path')
    maps = tf.ones([12, 1, 1, 1])
    found = []
    for images in ([0, 1], [1, 0]):
        with training_step(250_000, tf.gather(step_seeds(2), images)):
            found.append(layer(maps, training=True).numpy().reshape(2, 6))
    np.testing.assert_array_equal(found[0], found[1][::-1])
    assert 0 < found[0].mean() < 2


@pytest.mark.slow
def test_images_of_unknown_size(tiny):
    """The reference needs static ones."""
    images = tf.random.stateless_uniform([1, 97, 130, 3], (1, 2), -1, 1)

    @tf.function(input_signature=[tf.TensorSpec([None, None, None, 3])], autograph=False)
    def traced(images):
        return tiny['backbone'](images)

    expected = tiny['backbone'](images)
    assert expected.shape == (1, 6, 8, 192)
    np.testing.assert_allclose(
        traced(images), expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max()
    )
