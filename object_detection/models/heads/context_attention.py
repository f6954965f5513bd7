"""Attention of boxes to features of other images (https://arxiv.org/abs/1912.03538, sec. 3.3)."""

from typing import NamedTuple

import keras
import tensorflow as tf

from object_detection.core import tracing
from object_detection.core.shapes import dimensions
from object_detection.models import rounding
from object_detection.models.convolutions import Dense
from object_detection.models.normalization import BatchNorm, FrozenBatchNorm, normalized

# Of the batch norms of projections, as in the reference implementation.
_MOMENTUM, _EPSILON = 0.97, 0.001
# Added to the cosines of keys that are padding, which softmax then leaves out.
_PADDING = -1e5


class Memory(NamedTuple):
    """What boxes attend to: the projected context features of each image.

    Attributes:
      keys, values: float32 [B, N, D] of each head of each layer, by layer, then by head; unit
        vectors, zero where `is_valid` is false.
      is_valid: bool [B, N], false for padding.
    """

    keys: list[tf.Tensor]
    values: list[tf.Tensor]
    is_valid: tf.Tensor


class Projection(keras.layers.Layer):
    """A fully connected layer, batch normalisation and ReLU6.

    The norm trains if the detector does, independent of the norms of the feature extractor, and
    takes its statistics over all rows, padding included, as in the reference implementation.
    """

    def __init__(self, depth: int, *, norm_trainable: bool, name: str):
        super().__init__(name=name)
        self.depth = depth
        self._dense = Dense(depth, name='dense')
        kind = BatchNorm if norm_trainable else FrozenBatchNorm
        self._norm = kind(momentum=_MOMENTUM, epsilon=_EPSILON, name='dense_bn')
        # There, rows are not maps, which have the other variance.
        self._norm.population_variance = False
        self._activation = rounding.Activation('relu6', name='activation')

    def build(self, rows_shape):
        self._dense.build((None, None, 1, rows_shape[-1]))
        self._norm.build((None, None, 1, self.depth))

    def call(self, rows, training=False):
        """Projects rows [B, N, L] to float32 [B, N, depth]."""
        # With an axis of width, one kernel normalizes, as for feature maps.
        maps = normalized(self._dense, self._norm, rows[:, :, tf.newaxis], training)
        return tf.cast(self._activation(maps)[:, :, 0], tf.float32)


class KeysAndValues(keras.layers.Layer):
    """Projects rows to keys and values of attention: unit vectors, zero for padding.

    Under any dtype policy all but the projections computes in float32: the temperature multiplies
    the rounding errors of cosines.
    """

    def __init__(self, depth: int, *, norm_trainable: bool, name: str):
        super().__init__(name=name, dtype='float32')
        self._key = Projection(depth, norm_trainable=norm_trainable, name='key')
        self._value = Projection(depth, norm_trainable=norm_trainable, name='value')

    def build(self, rows_shape):
        for projection in (self._key, self._value):
            projection.build(rows_shape)

    def call(self, rows, is_valid, training=False):
        """Returns keys and values, float32 [B, N, depth], of rows [B, N, L]; `is_valid` [B, N]."""
        return tuple(
            _unit_vectors(projection(rows, training=training), is_valid)
            for projection in (self._key, self._value)
        )


class Attention(keras.layers.Layer):
    """Attention of rows to keys and values, projected to the depth of the rows.

    Args:
      depth: D, the depth of queries, keys and values.
      temperature: divides the cosines of queries and keys before the softmax.
      norm_trainable: False freezes the batch norms.
    """

    def __init__(self, depth: int, *, temperature: float, norm_trainable: bool, name: str):
        super().__init__(name=name, dtype='float32')
        self._temperature = temperature
        self._norm_trainable = norm_trainable
        self._query = Projection(depth, norm_trainable=norm_trainable, name='query')

    def build(self, rows_shape):
        self._query.build(rows_shape)
        self._output = Projection(
            rows_shape[-1], norm_trainable=self._norm_trainable, name='output'
        )
        self._output.build((*rows_shape[:-1], self._query.depth))

    def call(self, rows, is_valid, keys, values, are_keys_valid, training=False):
        """Returns what rows [B, P, C] see, float32 [B, P, C].

        Args:
          rows: the rows.
          is_valid: bool [B, P]; all keys are alike to the other rows.
          keys, values: float32 [B, N, D].
          are_keys_valid: bool [B, N]; without any, rows see zeros.
          training: whether norms act as in training.
        """
        queries = _unit_vectors(self._query(rows, training=training), is_valid)
        cosines = tf.matmul(queries, keys, transpose_b=True)  # [B, P, N]
        cosines = without_padding(cosines, are_keys_valid)
        weights = tf.nn.softmax(cosines / self._temperature)
        return self._output(tf.matmul(weights, values), training=training)


class ContextMemory(keras.layers.Layer):
    """Projects the context features of images to what boxes attend to, once an image.

    Args:
      depth: D, the depth of keys and values.
      num_heads: number of attentions side by side.
      num_layers: number of attentions one after another.
      norm_trainable: False freezes the batch norms.
    """

    def __init__(
        self,
        depth: int,
        *,
        num_heads: int = 1,
        num_layers: int = 1,
        norm_trainable: bool = True,
        name: str = 'context_memory',
    ):
        super().__init__(name=name, dtype='float32')
        self._heads = [
            KeysAndValues(depth, norm_trainable=norm_trainable, name=_head_name(layer, head))
            for layer in range(num_layers)
            for head in range(num_heads)
        ]

    def build(self, features_shape):
        for head in self._heads:
            head.build(features_shape)

    def call(self, features, counts, training=False):
        """Returns the `Memory` of context features [B, N, L], the first `counts` int32 [B] valid.

        In inference, rows that are padding in all images of the batch are left out, unless XLA
        compiles, which needs their number to be constant.
        """
        if not training and not tracing.is_compiled():
            features = features[:, : tf.maximum(tf.reduce_max(counts), 1)]
        is_valid = valid_rows(counts, dimensions(features, 1)[0])
        pairs = [head(features, is_valid, training=training) for head in self._heads]
        keys, values = ([pair[i] for pair in pairs] for i in (0, 1))
        return Memory(keys, values, is_valid)


class ContextAttention(keras.layers.Layer):
    """What boxes see in the context of their image, and in each other.

    Each box is the mean of its features over their cells. In each layer, it attends to the memory
    by several heads, whose mean is added to it for the next layer. The result is the sum of all
    that was added. Self-attention, to the other boxes of the image, comes before the first layer
    (`self_in_sequence`), so that what boxes see in each other is part of their queries, or side by
    side with the layers.

    With one head and one layer, this is the attention of the reference implementation in
    TensorFlow 2, which has no more than that.

    Args:
      depth: D, the depth of queries, keys and values.
      temperature: divides the cosines of queries and keys before the softmax.
      num_heads, num_layers: as of the memory; 0 layers without a memory.
      use_self_attention: whether boxes attend to each other.
      self_in_sequence: see above.
      norm_trainable: False freezes the batch norms.
    """

    def __init__(
        self,
        depth: int,
        *,
        temperature: float,
        num_heads: int = 1,
        num_layers: int = 1,
        use_self_attention: bool = False,
        self_in_sequence: bool = False,
        norm_trainable: bool = True,
        name: str = 'context_attention',
    ):
        super().__init__(name=name, dtype='float32')
        options = {'temperature': temperature, 'norm_trainable': norm_trainable}
        self._layers_of_heads = [
            [Attention(depth, name=_head_name(layer, head), **options) for head in range(num_heads)]
            for layer in range(num_layers)
        ]
        self._self_in_sequence = self_in_sequence
        self._self_memory = self._self_attention = None
        if use_self_attention:
            self._self_memory = KeysAndValues(
                depth, norm_trainable=norm_trainable, name='self_memory'
            )
            self._self_attention = Attention(depth, name='self_attention', **options)

    def build(self, features_shape):
        rows_shape = (None, None, features_shape[-1])
        heads = [head for heads in self._layers_of_heads for head in heads]
        if self._self_attention is not None:
            heads += [self._self_memory, self._self_attention]
        for head in heads:
            head.build(rows_shape)

    def call(self, features, counts, memory=None, training=False):
        """Returns what is to be added to the features of each box, float32 [B * P, 1, 1, C].

        Args:
          features: [B * P, h, w, C], of P boxes in each image.
          counts: int32 [B], how many of the P boxes of an image are valid, the first ones.
          memory: of `ContextMemory`; not needed without layers.
          training: whether norms act as in training.
        """
        channels, (batch,) = features.shape[-1], dimensions(counts, 0)
        pooled = tf.reduce_mean(tf.cast(features, tf.float32), axis=[1, 2])
        rows = dimensions(pooled, 0)[0] // batch
        boxes = tf.reshape(pooled, [batch, rows, channels])
        is_valid = valid_rows(counts, rows)
        seen = []
        if self._self_attention is not None:
            keys, values = self._self_memory(boxes, is_valid, training=training)
            seen.append(
                self._self_attention(boxes, is_valid, keys, values, is_valid, training=training)
            )
            if self._self_in_sequence:
                boxes += seen[0]
        for layer, heads in enumerate(self._layers_of_heads):
            first = layer * len(heads)
            found = [
                head(
                    *(boxes, is_valid, memory.keys[i], memory.values[i], memory.is_valid),
                    training=training,
                )
                for i, head in enumerate(heads, first)
            ]
            seen.append(tf.add_n(found) / len(found))
            boxes += seen[-1]
        return tf.reshape(tf.add_n(seen), [batch * rows, 1, 1, channels])


def valid_rows(counts: tf.Tensor, size: int | tf.Tensor) -> tf.Tensor:
    """Returns which of `size` rows are among the first `counts`, int32 [B]: bool [B, size]."""
    return tf.range(size) < counts[:, tf.newaxis]


def without_padding(cosines: tf.Tensor, is_valid: tf.Tensor) -> tf.Tensor:
    """Lowers cosines [B, P, N] of keys that are padding, bool [B, N], below all others."""
    return cosines + tf.where(is_valid, 0.0, _PADDING)[:, tf.newaxis]


def with_zeros(rows: tf.Tensor, is_valid: tf.Tensor) -> tf.Tensor:
    """Makes rows [B, N, D] zero where they are not valid, bool [B, N]."""
    return tf.where(is_valid[..., tf.newaxis], rows, 0.0)


def _unit_vectors(rows: tf.Tensor, is_valid: tf.Tensor) -> tf.Tensor:
    return with_zeros(tf.math.l2_normalize(rows, axis=-1), is_valid)


def _head_name(layer: int, head: int) -> str:
    return f'layer_{layer + 1}_head_{head + 1}'
