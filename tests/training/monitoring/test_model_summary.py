"""The table of a tiny detector against its variables and hand-made numbers."""

import keras
import pytest
import tensorflow as tf

from object_detection.models.hyperparams import LayerHyperparams
from object_detection.models.necks import bifpn
from object_detection.training.monitoring import model_summary
from tests import tiny_models as tiny


@pytest.fixture(scope='module')
def detector():
    with tiny.plain_backbone():
        return tiny.tiny_detector(tiny.PLAIN_BACKBONE)


@pytest.fixture(scope='module')
def summary(detector):
    return model_summary.summarize(detector)


def test_counts_each_parameter_once(detector, summary):
    everything = sum(v.shape.num_elements() for v in detector.named_variables().values())
    trainable = sum(v.value.shape.num_elements() for v in detector.trainable_variables)
    assert sum(row.trained for row in summary.layers) == trainable
    assert sum(row.trained + row.frozen for row in summary.layers) == everything
    assert list(dict.fromkeys(row.part for row in summary.layers)) == list(detector.parts())


def test_flops_and_shapes_by_hand(summary):
    assert summary.image_size == (tiny.IMAGE_SIZE, tiny.IMAGE_SIZE)
    assert summary.unknown == []
    rows = {(row.part, row.name): row for row in summary.layers}
    first = rows['backbone', 'conv_1']
    assert first.output == (1, 32, 32, 8)
    assert first.flops == 2 * 32 * 32 * 8 * 3 * 3 * 3
    assert first.trained == 3 * 3 * 3 * 8
    # Called once a level: maps of 16, 8 and 4 pixels, 3 x 3 x 8 products for 8 channels.
    assert rows['rpn', 'conv'].flops == 2 * (256 + 64 + 16) * 9 * 8 * 8
    assert summary.flops >= sum(row.flops for row in summary.layers)


def test_trained_are_those_that_the_run_trains(detector):
    names = [name for name in detector.named_variables() if name.startswith('box_head/')]
    size = (tiny.IMAGE_SIZE, tiny.IMAGE_SIZE)
    rows = model_summary.summarize(detector, trained=names, image_size=size).layers
    assert {row.part for row in rows if row.trained} == {'box_head'}


def test_lines_are_grouped_or_complete(detector, summary):
    grouped = model_summary.table(summary, 'tiny')
    assert len(grouped) < 40
    assert max(map(len, grouped)) <= 100
    assert grouped[1].split() == ['part', 'layers', 'output', 'trained', 'frozen', 'GFLOP']
    assert grouped[-1].startswith('total')
    every = model_summary.table(summary, 'tiny', every_layer=True)
    assert len(every) >= len(summary.layers) + 3
    # The layers are as they were before.
    assert 'call' not in vars(detector.rpn.head)


class _Pyramid:
    """A bidirectional pyramid alone, some layers of which take several maps."""

    def __init__(self):
        options = bifpn.Options(min_level=3, max_level=4, num_iterations=1, num_filters=8)
        self.pyramid = bifpn.bidirectional_pyramid(
            [8, 8],
            hyperparams=LayerHyperparams(),
            batch_norm_trainable=False,
            name='fpn',
            options=options,
        )

    num_image_channels = 3

    def parts(self):
        return {'fpn': self.pyramid}

    def side_inputs(self):
        return {}

    def named_variables(self):
        return {v.path: v.value for v in self.pyramid.weights}

    def predict(self, images, shape):
        return self.pyramid([tf.zeros([1, 8, 8, 8]), tf.zeros([1, 4, 4, 8])])

    def postprocess(self, predictions, shape):
        return {str(i): x for i, x in enumerate(predictions)}


def test_layers_that_take_several_maps_are_counted():
    rows = {
        row.name: row for row in model_summary.summarize(_Pyramid(), image_size=(64, 64)).layers
    }
    assert rows['node_0_weights'].output == (1, 8, 8, 8)
    assert rows['node_0_weights'].trained == 2


class _Halves(keras.layers.Layer):
    """A layer with two outputs, which are of different shapes."""

    def build(self, shape):
        self.scale = self.add_weight(shape=shape[-1:], name='scale')

    def call(self, maps):
        scaled = self.scale * maps
        return scaled, scaled[..., :4]


class _SplitPyramid(_Pyramid):
    def __init__(self):
        super().__init__()
        self.halves = _Halves(name='halves')
        self.halves.build([1, 8, 8, 8])

    def parts(self):
        return super().parts() | {'halves': self.halves}

    def named_variables(self):
        return super().named_variables() | {'halves/scale': self.halves.scale.value}

    def predict(self, images, shape):
        fine, _ = super().predict(images, shape)
        return self.halves(maps=fine)


def test_layers_may_have_several_outputs_and_take_maps_by_name():
    summary = model_summary.summarize(_SplitPyramid(), image_size=(64, 64))
    (row,) = (row for row in summary.layers if row.part == 'halves')
    assert (row.output, row.trained) == ((1, 8, 8, 8), 8)


class _Weighted(keras.layers.Layer):
    """A layer that has a weight beside a layer, each a factor of the other's output."""

    def __init__(self, inner, shape, name):
        super().__init__(name=name)
        self.inner, self._shape = inner, shape

    def build(self, shape):
        self.inner.build(shape)
        self.kernel = self.add_weight(shape=self._shape, name='kernel')

    def call(self, rows):
        return tf.matmul(self.inner(rows), self.kernel)


class _Nested(_Pyramid):
    """A weight, and inside a weight, and inside a dense layer."""

    def __init__(self):
        dense = keras.layers.Dense(6, use_bias=False, name='dense')
        self.outer = _Weighted(_Weighted(dense, (6, 2), 'middle'), (2, 5), 'outer')
        self.outer.build((4, 8))

    def parts(self):
        return {'outer': self.outer}

    def named_variables(self):
        return {v.path: v.value for v in self.outer.weights}

    def predict(self, images, shape):
        return [self.outer(tf.zeros([4, 8]))]


def test_layers_with_weights_beside_layers_have_rows():
    summary = model_summary.summarize(_Nested(), image_size=(64, 64))
    found = [(row.name, row.trained, row.flops) for row in summary.layers]
    # Two operations for each of the products of 4 rows.
    assert found == [
        ('outer', 2 * 5, 2 * 4 * 2 * 5),
        ('middle', 6 * 2, 2 * 4 * 6 * 2),
        ('middle/dense', 8 * 6, 2 * 4 * 8 * 6),
    ]
    assert summary.flops == sum(row.flops for row in summary.layers)
