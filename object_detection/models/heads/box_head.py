"""The second stage's head: classes and refined boxes of proposals."""

import dataclasses

import keras
import tensorflow as tf

from object_detection.core.sampling import sampling_noise
from object_detection.core.shapes import dimensions
from object_detection.models.convolutions import Dense
from object_detection.models.hyperparams import LayerHyperparams
from object_detection.models.normalization import normalized


class BoxHead(keras.layers.Layer):
    """Predicts classes and box codes from features of proposals.

    Mean over the crop, dropout (if configured), one dense layer for each output, norm (if
    configured). It computes in float32 under any dtype policy. Unlike in the reference
    implementation, the hyperparameters' initializer and regularizer are used.

    Args:
      num_classes: K, without background.
      hyperparams: set-up of the dense layers; the activation is not used, as outputs are unbounded.
      code_size: D, of the box coder.
      share_box_across_classes: whether there is one box for all classes.
      dropout_rate: share of features to drop in training, drawn separately for each output
        (https://jmlr.org/papers/v15/srivastava14a.html); 0 means no dropout.
      batch_norm_trainable: False freezes the norms.
      box_initializer: initializer of the layer that predicts boxes; None takes the initializer of
        the hyperparameters.
    """

    def __init__(
        self,
        num_classes: int,
        *,
        hyperparams: LayerHyperparams,
        code_size: int = 4,
        share_box_across_classes: bool = False,
        dropout_rate: float = 0.0,
        batch_norm_trainable: bool = True,
        box_initializer: keras.initializers.Initializer | None = None,
        name: str = 'box_head',
    ):
        super().__init__(name=name, dtype='float32')
        self._num_boxes = 1 if share_box_across_classes else num_classes
        self._code_size = code_size
        self._dropout_rate = dropout_rate

        def branch(
            units: int, kind: str, hyperparams: LayerHyperparams
        ) -> tuple[keras.layers.Layer, keras.layers.Layer]:
            options = hyperparams.kernel_options()
            dense = Dense(units, name=kind, dtype='float32', **options)
            norm = hyperparams.norm(
                frozen=not batch_norm_trainable, name=f'{kind}_bn', dtype='float32'
            )
            return dense, norm

        of_boxes = hyperparams
        if box_initializer is not None:
            of_boxes = dataclasses.replace(hyperparams, initializer=box_initializer)
        num_codes = self._num_boxes * code_size
        self._box_dense, self._box_norm = branch(num_codes, 'box_codes', of_boxes)
        self._class_dense, self._class_norm = branch(num_classes + 1, 'classes', hyperparams)

    def build(self, features_shape):
        channels = features_shape[-1]
        for dense, norm in (
            (self._box_dense, self._box_norm),
            (self._class_dense, self._class_norm),
        ):
            dense.build((None, channels))
            norm.build((None, dense.units))

    def call(self, features, training=False, seeds=None):
        """Predicts from features of proposals.

        Args:
          features: [N, h, w, C].
          training: whether dropout and norms act as in training.
          seeds: int32 [B, 2], seeds of dropout, each for N / B consecutive proposals; None draws
            from the global generator.

        Returns:
          Box codes float32 [N, K or 1, D] and class logits float32 [N, K + 1], background first.
        """
        pooled = tf.reduce_mean(features, axis=[1, 2])  # [N, C]
        for_boxes = for_classes = pooled
        if training and self._dropout_rate:
            for_boxes, for_classes = self._drop(pooled, seeds)
        box_codes = normalized(self._box_dense, self._box_norm, for_boxes, training)
        box_codes = tf.reshape(box_codes, [-1, self._num_boxes, self._code_size])
        return box_codes, normalized(self._class_dense, self._class_norm, for_classes, training)

    def _drop(self, pooled: tf.Tensor, seeds: tf.Tensor | None) -> list[tf.Tensor]:
        """Returns two versions of [N, C] with independent dropout."""
        # Not a Keras layer: its generator would neither be saved nor accept seeds.
        count, channels = dimensions(pooled, 0, 1)
        images = 1 if seeds is None else dimensions(seeds, 0)[0]
        noise = sampling_noise(seeds, 2 * channels * count // images, batch_size=images)
        is_kept = tf.reshape(noise, [count, 2, channels]) >= self._dropout_rate
        scaled = pooled / (1.0 - self._dropout_rate)
        return tf.unstack(tf.where(is_kept, scaled[:, tf.newaxis], 0.0), axis=1)
