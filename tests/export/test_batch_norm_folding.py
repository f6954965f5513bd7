import keras
import numpy as np
import pytest
import tensorflow as tf

from object_detection.export import batch_norm_folding
from tests import tiny_models as tiny

IMAGES = np.random.default_rng(0).uniform(-1, 1, (1, 6, 6, 3)).astype(np.float32)


def batch_norm(name: str) -> keras.layers.BatchNormalization:
    """One that is not the identity."""
    return keras.layers.BatchNormalization(
        beta_initializer=keras.initializers.Constant(0.3),
        gamma_initializer=keras.initializers.Constant(1.7),
        moving_mean_initializer=keras.initializers.Constant(0.2),
        moving_variance_initializer=keras.initializers.Constant(2.5),
        name=name,
    )


def functional(connect) -> keras.Model:
    """Image -> convolution -> `connect(convolution's output)`."""
    image = keras.Input((6, 6, 3))
    return keras.Model(image, connect(keras.layers.Conv2D(4, 3, name='conv')(image)))


def fold(model: keras.Model) -> int:
    """Folds and checks that the outputs stay."""
    before = keras.tree.flatten(model(IMAGES))
    folded = batch_norm_folding.fold([model], lambda: model(tf.constant(IMAGES), training=False))
    for a, b in zip(before, keras.tree.flatten(model(IMAGES)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    return folded


class ReadByAnOperation(keras.layers.Layer):
    """Adds the convolution's output to the batch norm's, outside any layer."""

    def __init__(self):
        super().__init__()
        self.conv = keras.layers.Conv2D(4, 3, name='conv')
        self.norm = batch_norm('norm')

    def call(self, images, training=False):
        features = self.conv(images)
        return self.norm(features, training=training) + tf.nn.relu(features)


def test_a_batch_norm_behind_a_convolution_is_folded():
    assert fold(functional(batch_norm('norm'))) == 1


@pytest.mark.parametrize(
    'connect',
    [
        lambda features: [batch_norm('a')(features), batch_norm('b')(features)],
        lambda features: keras.layers.Add()([batch_norm('a')(features), features]),
        lambda features: [batch_norm('a')(features), features],
        lambda features: batch_norm('a')(keras.layers.ReLU()(features)),
    ],
    ids=['two batch norms', 'another layer', 'the output', 'an activation between'],
)
def test_a_convolution_that_something_else_reads_is_not_folded(connect):
    assert fold(functional(connect)) == 0


def test_a_reader_that_is_no_layer_counts():
    assert fold(ReadByAnOperation()) == 0


def test_a_convolution_or_batch_norm_that_runs_twice_is_not_folded():
    norm, conv = batch_norm('norm'), keras.layers.Conv2D(3, 3, padding='same', name='conv2')
    assert fold(functional(lambda features: norm(norm(features)))) == 0
    image = keras.Input((6, 6, 3))
    assert fold(keras.Model(image, batch_norm('a')(conv(conv(image))))) == 0


def test_folding_leaves_no_batch_norm_and_the_same_numbers():
    detector = tiny.tiny_detector(is_training=False)
    tiny.disturb_batch_norms(detector)
    images = detector.normalize(tiny.random_images(1))
    before = detector.feature_extractor.proposal_features(images)
    backbone = detector.parts()['backbone']
    norms = [layer for layer in backbone.layers if layer.name.endswith('_bn')]
    folded = batch_norm_folding.fold([backbone], lambda: backbone(images, training=False))
    assert folded == len(norms) == 15
    after = detector.feature_extractor.proposal_features(images)
    for a, b in zip(before, after, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3 * np.abs(a).max())


def test_a_first_convolution_that_reads_a_constant_is_folded():
    model = functional(batch_norm('norm'))
    before = model(IMAGES, training=False)
    images = tf.constant(IMAGES)
    assert batch_norm_folding.fold([model], lambda: model(images, training=False)) == 1
    np.testing.assert_allclose(model(IMAGES, training=False), before, rtol=1e-5, atol=1e-5)
