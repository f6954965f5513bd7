import keras
import tensorflow as tf

from object_detection.models.composite import Composite


class Nested(Composite):
    """Layers of the class within each other; it counts its calls."""

    def __init__(self, depth, name='nested'):
        super().__init__(name=name)
        self.calls = 0
        self.inner = Nested(depth - 1, 'inner') if depth else keras.layers.Dense(3, name='dense')

    def call(self, x):
        self.calls += 1
        return self.inner(x)


def test_layers_at_any_depth_are_called_once_and_built():
    outer = Nested(2)
    assert outer(tf.zeros([1, 4])).shape == (1, 3)
    layers = [outer, outer.inner, outer.inner.inner]
    assert [each.calls for each in layers] == [1, 1, 1]
    assert [each.path for each in outer.weights] == [
        f'nested/inner/inner/dense/{name}' for name in ('kernel', 'bias')
    ]


def test_a_model_of_keras_builds_them():
    images = keras.Input([4])
    model = keras.Model(images, Nested(1)(images))
    assert [tuple(each.shape) for each in model.weights] == [(4, 3), (3,)]
