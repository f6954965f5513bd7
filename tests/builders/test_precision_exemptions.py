import functools
import logging
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

from object_detection.errors import ConfigError
from object_detection.meta_architectures import detector as detector_builder
from object_detection.models import precision
from object_detection.training import setup
from tests import tiny_models as tiny

IMAGES = np.random.default_rng(0).uniform(0, 255, [1, 8, 8, 3]).astype(np.float32)


class Head(keras.layers.Layer):
    """A layer of layers, of which one has no variables."""

    def __init__(self):
        super().__init__(name='some_head')
        self.first = keras.layers.Dense(2, name='first')
        self.activation = keras.layers.Activation('relu', name='activation')
        self.second = keras.layers.Dense(2, name='second')

    def call(self, maps):
        return self.second(self.activation(self.first(maps)))


@pytest.fixture
def detector():
    """Of two parts, with their variables."""
    with precision.scope('mixed_bfloat16'):
        x = images = keras.Input((None, None, 3), name='images')
        for name in ('conv1', 'conv2'):
            x = keras.layers.Conv2D(4, 3, name=f'{name}_conv')(x)
            x = keras.layers.BatchNormalization(name=f'{name}_bn')(x)
        backbone, head = keras.Model(images, x, name='backbone'), Head()
        head(backbone(tf.zeros([1, 8, 8, 3])))
    return SimpleNamespace(parts=lambda: {'backbone': backbone, 'mask_head': head})


def exempt(detector) -> set[str]:
    return {
        name
        for name, layer in detector_builder._layers(detector)
        if layer.compute_dtype == 'float32' and 'images' not in name
    }


@pytest.mark.parametrize(
    ('pattern', 'expected'),
    [
        # The model of an exempt layer too: it would round the images.
        ('conv1_conv$', {'backbone/', 'backbone/conv1_conv'}),
        ('conv1_conv/kernel', {'backbone/', 'backbone/conv1_conv'}),
        ('/beta', {'backbone/', 'backbone/conv1_bn', 'backbone/conv2_bn'}),
        ('second', {'mask_head/second'}),
        ('second/bias', {'mask_head/second'}),
        (
            '^mask_head/',
            {'mask_head/', 'mask_head/first', 'mask_head/activation', 'mask_head/second'},
        ),
    ],
)
def test_layers_that_match_and_no_others_compute_in_float32(detector, pattern, expected, caplog):
    assert exempt(detector) == set()
    with caplog.at_level(logging.INFO):
        detector_builder.exempt_layers(detector, [pattern], 'mixed_bfloat16')
    assert exempt(detector) == expected
    assert 'layers compute in float32' in caplog.text


def test_exempt_layers_give_the_numbers_of_float32(detector):
    backbone = detector.parts()['backbone']
    rounded = backbone(IMAGES)
    detector_builder.exempt_layers(detector, ['^backbone/'], 'mixed_bfloat16')
    exact = keras.models.clone_model(backbone)
    exact.set_weights(backbone.get_weights())
    for layer in exact.layers:
        layer.dtype_policy = 'float32'
    exact.dtype_policy = 'float32'
    assert rounded.dtype == tf.bfloat16
    np.testing.assert_allclose(backbone(IMAGES), exact(IMAGES), rtol=1e-6)
    assert np.abs(tf.cast(rounded, tf.float32) - exact(IMAGES)).max() > 1e-3


@pytest.mark.parametrize(
    ('patterns', 'name', 'message'),
    [
        (['conv', 'necks'], 'mixed_float16', r'\[1\]: expected a regular .* such as backbone/\w+'),
        (['('], 'mixed_float16', r'\[0\]: expected a regular expression. Received: .\('),
        (['conv'], 'tf32', 'GPUs take TF32 for all layers or none'),
    ],
)
def test_what_cannot_be_is_reported(detector, patterns, name, message):
    with pytest.raises(ConfigError, match=message):
        detector_builder.exempt_layers(detector, patterns, name)
    assert exempt(detector) == set()


@pytest.mark.parametrize(
    'build', [setup.build_detector, functools.partial(detector_builder.build, is_training=False)]
)
def test_training_and_evaluation_read_the_field(build):
    pipeline = tiny.tiny_pipeline(
        'train_config { precision: MIXED_FLOAT16 precision_exempt_patterns: "^rpn/" }'
    )
    found = {name: layer.compute_dtype for name, layer in detector_builder._layers(build(pipeline))}
    assert found['rpn/conv'] == 'float32'
    assert found['fpn/smoothing_2'] == 'float16'
