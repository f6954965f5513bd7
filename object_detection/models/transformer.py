"""Layers of transformers (https://arxiv.org/abs/1706.03762) on sequences [B, N, C].

The dense layers of attention are named and shaped as in the published networks, so that their
weights fit as they are.
"""

import math

import keras
import numpy as np
import tensorflow as tf

from object_detection.core.sampling import noise_of_images
from object_detection.core.shapes import dimensions
from object_detection.errors import expected
from object_detection.models.activations import of_pytorch
from object_detection.models.composite import Composite
from object_detection.models.hyperparams import LayerHyperparams

# Score of tokens that are not seen, before the softmax; finite in float16, too.
_UNSEEN = -3e4


def sine_positions(height: int | tf.Tensor, width: int | tf.Tensor, channels: int, temperature):
    """Encodes the cells of a map by sines and cosines (https://arxiv.org/abs/2304.08069).

    Args:
      height, width: of the map, in cells.
      channels: C, a multiple of 4: a quarter each for sines and cosines of y, then of x.
      temperature: the longest wave is 2 * pi * temperature cells.

    Returns:
      float32 [height * width, C].
    """
    frequencies = np.float64(temperature) ** -(np.arange(channels // 4) / (channels // 4))
    frequencies = tf.constant(frequencies, tf.float32)
    y, x = (
        tf.range(count, dtype=tf.float32)[:, tf.newaxis] * frequencies for count in (height, width)
    )
    rows, columns = (tf.concat([tf.sin(each), tf.cos(each)], axis=-1) for each in (y, x))
    half = channels // 2
    grid = [
        tf.broadcast_to(rows[:, tf.newaxis], [height, width, half]),
        tf.broadcast_to(columns[tf.newaxis], [height, width, half]),
    ]
    return tf.reshape(tf.concat(grid, axis=-1), [height * width, channels])


def dense(units: int, name: str, **options) -> keras.layers.Dense:
    """Returns a dense layer with the initial weights of transformers: Xavier, and no offset."""
    return keras.layers.Dense(units, name=name, **options)


def layer_norm(epsilon: float, name: str) -> keras.layers.LayerNormalization:
    """Returns a norm over the channels of each token."""
    return keras.layers.LayerNormalization(epsilon=epsilon, name=name)


def activation_layer(name: str) -> keras.layers.Layer:
    """Returns the activation of a name in configs of transformers."""
    return LayerHyperparams(activation=of_pytorch('activation', name)).activation_layer(
        name='activation'
    )


class Dropout(keras.layers.Layer):
    """In training, leaves out some values and scales the others accordingly.

    (https://jmlr.org/papers/v15/srivastava14a.html). What is left out follows from the seeds of the
    images, so that a resumed training draws the same, in whichever parts a batch is computed.

    Args:
      rate: share of values that are left out.
      number: of the layer; see `noise_of_images`.
    """

    def __init__(self, rate: float, number: int, name: str):
        super().__init__(name=name)
        self._rate, self._number = rate, number

    def call(self, x, training=False):
        """[B, N, C] -> [B, N, C]."""
        if not training or not self._rate:
            return x
        shape = dimensions(x, 0, 1, 2)
        noise = noise_of_images(math.prod(shape), self._number)
        is_kept = tf.reshape(noise, shape) >= self._rate
        return tf.where(is_kept, x / (1.0 - self._rate), tf.zeros([], x.dtype))


class Mlp(Composite):
    """Dense layers with an activation between them, [..., C] -> [..., units[-1]]."""

    def __init__(
        self, units, name: str, activation: str = 'relu', last_initializer='glorot_uniform'
    ):
        super().__init__(name=name)
        self.layers = [
            dense(each, f'layers_{i}', activation=activation) for i, each in enumerate(units[:-1])
        ]
        last = f'layers_{len(units) - 1}'
        self.layers.append(dense(units[-1], last, kernel_initializer=last_initializer))

    def call(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class Attention(Composite):
    """Attention with several heads.

    Args:
      width: C, a multiple of `num_heads`.
      num_heads: number of heads.
    """

    def __init__(self, width: int, num_heads: int, name: str):
        super().__init__(name=name)
        if width % num_heads:
            raise expected(f'{name}: num_heads', f'a divisor of {width}', num_heads)
        self._num_heads = num_heads
        self._scale = 1.0 / math.sqrt(width // num_heads)
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (
            dense(width, f'{each}_proj') for each in 'qkvo'
        )

    def call(self, queries, keys, values, visible=None):
        """Returns [B, Q, C].

        Args:
          queries: [B, Q, C].
          keys, values: [B, N, C].
          visible: bool, broadcast to [B, heads, Q, N]: which keys a query sees; None is all.
        """
        queries = self._split(self.q_proj(queries) * self._scale)
        keys, values = self._split(self.k_proj(keys)), self._split(self.v_proj(values))
        scores = tf.matmul(queries, keys, transpose_b=True)  # [B, heads, Q, N]
        if visible is not None:
            scores = tf.where(visible, scores, tf.cast(_UNSEEN, scores.dtype))
        shares = tf.nn.softmax(tf.cast(scores, tf.float32), axis=-1)
        found = tf.transpose(tf.matmul(tf.cast(shares, values.dtype), values), [0, 2, 1, 3])
        batch, count = dimensions(found, 0, 1)
        return self.o_proj(tf.reshape(found, [batch, count, found.shape[2] * found.shape[3]]))

    def _split(self, x):
        """[B, N, C] -> [B, heads, N, C / heads]."""
        batch, count = dimensions(x, 0, 1)
        heads = self._num_heads
        return tf.transpose(
            tf.reshape(x, [batch, count, heads, x.shape[-1] // heads]), [0, 2, 1, 3]
        )


class FeedForward(Composite):
    """Two dense layers, [..., C] -> [..., C]."""

    def __init__(self, width: int, hidden: int, activation: str, name: str):
        super().__init__(name=name)
        self.fc1 = dense(hidden, 'fc1')
        self.activation = activation_layer(activation)
        self.fc2 = dense(width, 'fc2')

    def call(self, x):
        return self.fc2(self.activation(self.fc1(x)))


class EncoderLayer(Composite):
    """Tokens attend to each other, then pass through a hidden layer.

    Args:
      width, num_heads, hidden, activation: sizes.
      epsilon: of the norms.
      normalize_before: whether norms come before both parts, not after them.
      dropout: share of results that training leaves out.
      number: of the first of two dropouts; see `Dropout`.
    """

    def __init__(
        self,
        *,
        width: int,
        num_heads: int,
        hidden: int,
        activation: str,
        epsilon: float,
        normalize_before: bool = False,
        dropout: float = 0.0,
        number: int,
        name: str,
    ):
        super().__init__(name=name)
        self._normalize_before = normalize_before
        self.self_attn = Attention(width, num_heads, 'self_attn')
        self.self_attn_layer_norm = layer_norm(epsilon, 'self_attn_layer_norm')
        self.mlp = FeedForward(width, hidden, activation, 'mlp')
        self.final_layer_norm = layer_norm(epsilon, 'final_layer_norm')
        self.drop_found = Dropout(dropout, number, 'drop_found')
        self.drop_hidden = Dropout(dropout, number + 1, 'drop_hidden')

    def call(self, x, positions, visible=None, training=False):
        """Returns [B, N, C] for tokens [B, N, C]; `positions` [N, C] say where they are."""
        before = self._normalize_before
        tokens = self.self_attn_layer_norm(x) if before else x
        placed = tokens + tf.cast(positions, tokens.dtype)
        x += self.drop_found(self.self_attn(placed, placed, tokens, visible), training=training)
        # With norms before it, the published network adds the hidden layer to what is normalized.
        x = self.final_layer_norm(x) if before else self.self_attn_layer_norm(x)
        x += self.drop_hidden(self.mlp(x), training=training)
        return x if before else self.final_layer_norm(x)
