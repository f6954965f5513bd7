"""Feature extractors of CenterNet: the channels of images, and initial weights."""

import keras
import numpy as np
import tensorflow as tf

from object_detection.meta_architectures.center_net import feature_extractor as extractors
from object_detection.models import image_values
from object_detection.models.backbones.table import BACKBONES, BackboneOptions
from tests import rows


@rows.parametrize(
    ('options', 'rgb', 'expected'),
    [
        # Channels after the third stay at their places, less the mean of the others' means.
        ({'bgr_ordering': True}, [10, 20, 30, 40, 50], [30, 20, 10, 40, 50]),
        (
            {'bgr_ordering': True, 'means': (1, 2, 3), 'stds': (2, 4, 6)},
            [10, 20, 30, 40],
            [29 / 2, 18 / 4, 7 / 6, 38 / 4],
        ),
        ({'means': (1, 2, 3, 4), 'stds': (2,)}, [10, 20, 30, 40], [4.5, 9, 13.5, 18]),
        ({'means': (1, 2, 3)}, [10], [8]),
    ],
)
def test_channels_after_the_third_are_no_colors(options, rgb, expected):
    options = extractors.CenterNetOptions(batch_norm_trainable=True, **options)
    pixel = tf.constant(rgb, tf.float32, shape=[1, 1, 1, len(rgb)])
    normalized = extractors.normalization(options)(pixel)
    np.testing.assert_allclose(normalized[0, 0, 0], expected, rtol=1e-6)
    colors = extractors.denormalization(options)(normalized)
    np.testing.assert_allclose(colors[0, 0, 0], rgb[:3] if len(rgb) > 1 else rgb * 3, rtol=1e-5)


def test_caffe_reverses_colors_alone():
    means = np.array([103.939, 116.779, 123.68, (103.939 + 116.779 + 123.68) / 3])
    pixel = tf.constant([10.0, 20.0, 30.0, 40.0], shape=[1, 1, 1, 4])
    found = image_values.caffe(pixel)[0, 0, 0]
    np.testing.assert_allclose(found, np.array([30, 20, 10, 40]) - means, rtol=1e-6)


def test_the_first_seed_that_is_drawn_is_that_of_the_first_layer():
    """So that a seed gives the initial weights of earlier versions."""
    row = BACKBONES['hourglass_10']
    keras.utils.set_random_seed(1)
    backbone = row.trunk(range(2, 3), BackboneOptions(row.hyperparams, batch_norm_trainable=True))
    keras.utils.set_random_seed(1)
    options = extractors.CenterNetOptions(batch_norm_trainable=True)
    extractor = extractors.build_center_net('hourglass_10', options)
    for weight, expected in zip(extractor.backbone.weights, backbone.weights, strict=True):
        np.testing.assert_array_equal(weight, expected)
