"""A feature extractor of a single stage with two stacks of depthwise convolutions, and a detector.

It shows what a family brings along: its extractor, and a tower shared over levels with a norm for
each level.
"""

import keras
import tensorflow as tf

from object_detection.models.feature_extractor import ExtractorOptions, FeatureExtractor
from object_detection.models.hyperparams import LayerHyperparams, SeparableSetup
from object_detection.models.image_values import scale_to_unit
from object_detection.models.normalization import BatchNormParams, normalized
from tests.toy_family import ToyDetector

# Not all of them are powers of two.
STRIDES = (4, 12)
DEFAULTS = LayerHyperparams(batch_norm=BatchNormParams(scale=True))


def hourglass(num_stacks: int, options: ExtractorOptions, depth: int = 8) -> FeatureExtractor:
    hyperparams = options.hyperparams if options.override_backbone else DEFAULTS
    frozen = not options.batch_norm_trainable

    def block(x, conv: keras.layers.Layer):
        norm = hyperparams.norm(frozen=frozen, name=f'{conv.name}_bn')
        activation = hyperparams.activation_layer(name=f'{conv.name}_activation')
        return activation(normalized(conv, norm, x))

    images = keras.Input((None, None, 3))
    x = block(images, hyperparams.conv(depth, 3, strides=4, name='stem'))
    outputs = []
    for i in range(num_stacks):
        x = block(x, hyperparams.depthwise_conv(3, name=f'depthwise_{i}'))
        x = block(x, hyperparams.conv(depth, 1, name=f'pointwise_{i}'))
        coarse = block(x, hyperparams.separable_conv(depth, 3, strides=3, name=f'coarse_{i}'))
        outputs += [x, coarse]
    return FeatureExtractor(
        backbone=keras.Model(images, outputs, name='backbone'),
        strides=STRIDES,
        num_stacks=num_stacks,
        pad_to_multiple=options.pad_to_multiple or 12,
        normalize=scale_to_unit,
    )


class Tower(keras.layers.Layer):
    """One separable convolution for all levels, with a norm for each of them."""

    def __init__(self, depth: int, num_levels: int, *, hyperparams: LayerHyperparams):
        super().__init__(name='tower')
        self._conv = hyperparams.separable_conv(
            depth, 3, setup=SeparableSetup.DEPTHWISE, name='conv'
        )
        self._norms = [
            hyperparams.norm(frozen=False, name=f'bn_{level}') for level in range(num_levels)
        ]

    def call(self, maps, training=False):
        return [
            tf.nn.relu(normalized(self._conv, norm, level, training))
            for level, norm in zip(maps, self._norms, strict=True)
        ]


class StackedDetector(ToyDetector):
    """The toy detector on the means of what a tower makes of the last stack."""

    def __init__(self, extractor: FeatureExtractor, *, num_classes, resizer):
        super().__init__(num_classes=num_classes, resizer=resizer)
        self.extractor = extractor
        self.tower = Tower(6, extractor.num_levels, hyperparams=DEFAULTS)

    def normalize(self, images):
        return self.extractor.normalize(images)

    def forward(self, images, true_shapes, training, groundtruth, seeds):
        maps = self.tower(self.extractor.feature_stacks(images, training)[-1], training=training)
        means = tf.concat([tf.reduce_mean(level, axis=[1, 2]) for level in maps], axis=1)
        return {'boxes': self.boxes(means), 'class_logits': self.classes(means)}

    def parts(self):
        return {**self.extractor.parts(), 'tower': self.tower, **super().parts()}

    def build_variables(self):
        self.predict(tf.zeros([1, 24, 24, 3]), None)
