"""The transformer of DETR (https://arxiv.org/abs/2005.12872, sec. 3.2 and fig. 10).

As in DAB-DETR (https://arxiv.org/abs/2201.12329), a query is a box besides its content, and each
layer of the decoder moves the boxes of the one before: it learns in a fraction of the steps.
"""

import math
from typing import NamedTuple

import keras
import tensorflow as tf

_TEMPERATURE = 20.0
# Score of all classes in the beginning, as of focal losses.
_PRIOR = 0.01
# Side of the boxes in the beginning, as a share of that of the image.
_FIRST_SIDE = 0.3


class Cells(NamedTuple):
    """The cells of a feature map of H * W = N cells.

    Attributes:
      features: [B, N, C].
      centers: float32 [N, 2], (y, x) as shares of the image.
      is_seen: bool [B, N], False beyond the true image.
    """

    features: tf.Tensor
    centers: tf.Tensor
    is_seen: tf.Tensor


def sine_encoding(shares: tf.Tensor, width: int) -> tf.Tensor:
    """Encodes positions by sines and cosines of many frequencies.

    Args:
      shares: float32 [..., D], coordinates in 0..1.
      width: number of channels a coordinate, even.

    Returns:
      float32 [..., D * width].
    """
    frequencies = (
        2 * math.pi * _TEMPERATURE ** -(tf.range(width // 2, dtype=tf.float32) * 2 / width)
    )
    angles = shares[..., tf.newaxis] * frequencies
    encoded = tf.concat([tf.sin(angles), tf.cos(angles)], axis=-1)
    return tf.reshape(encoded, tf.concat([tf.shape(shares)[:-1], [shares.shape[-1] * width]], 0))


class Attention(keras.layers.Layer):
    """Attention to features, added to the input and normalized."""

    def __init__(self, width: int, heads: int, name: str):
        super().__init__(name=name)
        # Biases of keys would have no effect, nor a gradient.
        self.attention = keras.layers.MultiHeadAttention(
            heads, width // heads, use_bias=False, name='attention'
        )
        self.norm = keras.layers.LayerNormalization(epsilon=1e-5, name='norm')

    def call(self, x, position, others, other_position, mask=None):
        """[B, M, C], its encoded positions, [B, N, C], their positions, [B, 1, N] -> [B, M, C]."""
        found = self.attention(x + position, others, others + other_position, attention_mask=mask)
        return self.norm(x + found)


class FeedForward(keras.layers.Layer):
    """A network on each feature, [..., C], added to it and normalized."""

    def __init__(self, width: int, name: str):
        super().__init__(name=name)
        self.hidden = keras.layers.Dense(4 * width, activation='relu', name='hidden')
        self.output_layer = keras.layers.Dense(width, name='output')
        self.norm = keras.layers.LayerNormalization(epsilon=1e-5, name='norm')

    def call(self, x):
        return self.norm(x + self.output_layer(self.hidden(x)))


class EncoderLayer(keras.layers.Layer):
    """Cells attend to each other."""

    def __init__(self, width: int, heads: int, name: str):
        super().__init__(name=name)
        self.to_cells = Attention(width, heads, 'to_cells')
        self.feed_forward = FeedForward(width, 'feed_forward')

    def call(self, x, position, mask):
        return self.feed_forward(self.to_cells(x, position, x, position, mask))


class DecoderLayer(keras.layers.Layer):
    """Queries attend to each other and to cells, and move their boxes."""

    def __init__(self, width: int, heads: int, name: str):
        super().__init__(name=name)
        self.position_hidden = keras.layers.Dense(width, activation='relu', name='position_hidden')
        self.position = keras.layers.Dense(width, name='position')
        self.to_queries = Attention(width, heads, 'to_queries')
        self.to_cells = Attention(width, heads, 'to_cells')
        self.feed_forward = FeedForward(width, 'feed_forward')

    def call(self, x, encoded_boxes, cells, cell_position, mask):
        position = self.position(self.position_hidden(encoded_boxes))
        x = self.to_queries(x, position, x, position)
        x = self.to_cells(x, position, cells, cell_position, mask)
        return self.feed_forward(x)


class Heads(keras.layers.Layer):
    """Class logits, and how boxes move, of queries [B, Q, C]."""

    def __init__(self, num_classes: int, width: int, name: str):
        super().__init__(name=name)
        prior = keras.initializers.Constant(-math.log(1 / _PRIOR - 1))
        self.classes = keras.layers.Dense(num_classes, bias_initializer=prior, name='classes')
        self.hidden = keras.layers.Dense(width, activation='relu', name='hidden')
        # At first, boxes stay where they are.
        self.moves = keras.layers.Dense(4, kernel_initializer='zeros', name='moves')

    def call(self, x):
        """Returns float32 [B, Q, K] and [B, Q, 4]."""
        found = self.classes(x), self.moves(self.hidden(x))
        return tuple(tf.cast(each, tf.float32) for each in found)


class Queries(keras.layers.Layer):
    """The learned queries: their contents, and the boxes where they begin, as logits."""

    def __init__(self, count: int, width: int):
        super().__init__(name='queries')
        self._shape = (count, width)

    def build(self, _):
        count, width = self._shape
        self.contents = self.add_weight(
            shape=(count, width), initializer=keras.initializers.RandomNormal(), name='contents'
        )
        self.boxes = self.add_weight(
            shape=(count, 4), initializer=_first_boxes, name='boxes', autocast=False
        )

    def call(self, cells):
        """Returns [B, Q, C] and float32 [B, Q, 4], (y, x, height, width), for B images of cells."""
        repeats = [tf.shape(cells)[0], 1, 1]
        return tuple(tf.tile(each[tf.newaxis], repeats) for each in (self.contents, self.boxes))


def _first_boxes(shape, dtype=None) -> tf.Tensor:
    """Returns the logits of boxes of one size that are spread over the image."""
    count = shape[0]
    # Points that leave no gaps, however many there are (R2 of M. Roberts).
    index = tf.range(1, count + 1, dtype=tf.float32)
    shares = [index * step % 1.0 for step in (0.7548776662, 0.5698402910)]
    centers = tf.clip_by_value(tf.stack(shares, axis=-1), 0.05, 0.95)
    boxes = tf.concat([centers, tf.fill([count, 2], _FIRST_SIDE)], axis=-1)
    return tf.cast(tf.math.log(boxes / (1.0 - boxes)), dtype or tf.float32)


class Transformer(keras.layers.Layer):
    """From cells to class logits and boxes, of each layer of the decoder.

    Args:
      num_classes: K.
      width: number of channels C.
      heads: number of attention heads.
      encoder_layers, decoder_layers: numbers of layers.
      queries: their number Q.
    """

    def __init__(
        self,
        *,
        num_classes: int,
        width: int,
        heads: int,
        encoder_layers: int,
        decoder_layers: int,
        queries: int,
    ):
        super().__init__(name='transformer', autocast=False)
        self.width = width
        self.projection = keras.layers.Dense(width, name='projection')
        self.norm = keras.layers.LayerNormalization(epsilon=1e-5, name='norm')
        self.encoder = [
            EncoderLayer(width, heads, f'encoder_{index}') for index in range(encoder_layers)
        ]
        self.queries = Queries(queries, width)
        self.decoder = [
            DecoderLayer(width, heads, f'decoder_{index}') for index in range(decoder_layers)
        ]
        self.heads = [Heads(num_classes, width, f'heads_{i}') for i in range(decoder_layers)]

    def call(self, features, centers, is_seen):
        """Returns class logits [B, Q, K] and boxes (y, x, height, width) [B, Q, 4] of each layer.

        The boxes are shares of the image in which `centers` are; both are float32.

        Args:
          features: [B, N, C'], of N cells.
          centers: float32 [N, 2], (y, x) of the cells as shares of the image.
          is_seen: bool [B, N], False beyond the true image.
        """
        position = tf.cast(sine_encoding(centers, self.width // 2), self.compute_dtype)
        mask = is_seen[:, tf.newaxis]
        cells = self.norm(self.projection(features))
        for layer in self.encoder:
            cells = layer(cells, position, mask)
        x, boxes = self.queries(cells)
        found = []
        for layer, heads in zip(self.decoder, self.heads, strict=True):
            encoded = sine_encoding(tf.sigmoid(boxes), self.width // 2)
            x = layer(x, encoded, cells, position, mask)
            logits, moves = heads(x)
            moved = boxes + moves
            found.append((logits, tf.sigmoid(moved)))
            # Each layer learns to move boxes alone, not to make those before it fit to be moved.
            boxes = tf.stop_gradient(moved)
        return found
