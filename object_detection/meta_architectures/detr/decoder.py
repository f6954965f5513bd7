"""Decoders: queries attend to each other and to the maps, and each layer predicts boxes.

Layers are named as in the published networks, so that the rules for their weights are short.
"""

import abc
import dataclasses

import keras
import tensorflow as tf

from object_detection.core.shapes import dimensions
from object_detection.meta_architectures.detr import boxes as box_ops
from object_detection.meta_architectures.detr import fine_distributions as fine
from object_detection.meta_architectures.detr.predictions import Layer
from object_detection.meta_architectures.detr.queries import Queries, Tokens, prior_bias
from object_detection.models.composite import Composite
from object_detection.models.deformable_attention import DeformableAttention, DeformableOptions
from object_detection.models.transformer import (
    Attention,
    Dropout,
    FeedForward,
    Mlp,
    dense,
    layer_norm,
)

# Encoded boxes of D-FINE are within it.
_MOST_POSITION = 10.0
# Number of the first dropout, beyond those of backbones and encoders.
_FIRST_DROPOUT = 200_000


@dataclasses.dataclass(frozen=True)
class DecoderOptions:
    """Sizes of the decoder; see the message DetrDecoder.

    Attributes:
      width: C.
      num_columns: of the class logits.
      num_layers, num_heads, hidden, activation, dropout: of the layers.
      deformable: of the attention to maps; None attends to all cells.
      epsilon: of the norms.
      share_heads: whether all layers have the same heads.
      distributions: of edges; None predicts boxes.
    """

    width: int
    num_columns: int
    num_layers: int
    num_heads: int
    hidden: int
    activation: str
    dropout: float = 0.0
    deformable: DeformableOptions | None = None
    epsilon: float = 1e-5
    share_heads: bool = False
    distributions: fine.FineOptions | None = None


class Gateway(Composite):
    """D-FINE's sum of a layer's input and result, each times a gate (2410.13842, sec. 4.2)."""

    def __init__(self, width: int, name: str):
        super().__init__(name=name)
        self.gate = dense(2 * width, 'gate', activation='sigmoid')
        # PyTorch's epsilon, whatever that of the others is.
        self.norm = layer_norm(1e-5, 'norm')

    def call(self, x, found):
        ours, others = tf.split(self.gate(tf.concat([x, found], axis=-1)), 2, axis=-1)
        return self.norm(ours * x + others * found)


class DecoderLayer(Composite):
    """Queries attend to each other, to the maps, and pass through a hidden layer.

    Args:
      options: sizes.
      number: of the layer in the decoder.
    """

    def __init__(self, options: DecoderOptions, number: int, name: str):
        super().__init__(name=name, autocast=False)
        width, epsilon = options.width, options.epsilon
        self.self_attn = Attention(width, options.num_heads, 'self_attn')
        self.self_attn_layer_norm = layer_norm(epsilon, 'self_attn_layer_norm')
        if options.deformable is None:
            self.encoder_attn = Attention(width, options.num_heads, 'encoder_attn')
        else:
            self.encoder_attn = DeformableAttention(options.deformable, 'encoder_attn')
        self.gateway = None
        if options.distributions is None:
            self.encoder_attn_layer_norm = layer_norm(epsilon, 'encoder_attn_layer_norm')
        else:
            self.gateway = Gateway(width, 'gateway')
        self.mlp = FeedForward(width, options.hidden, options.activation, 'mlp')
        self.final_layer_norm = layer_norm(epsilon, 'final_layer_norm')
        first = _FIRST_DROPOUT + 3 * number
        self.drop_queries, self.drop_values, self.drop_hidden = (
            Dropout(options.dropout, first + index, f'drop_{part}')
            for index, part in enumerate(('queries', 'values', 'hidden'))
        )

    def call(
        self,
        x,
        positions,
        values,
        boxes=None,
        keys=None,
        seen=None,
        visible=None,
        sizes=None,
        num_groups=1,
        training=False,
    ):
        """Returns [B, Q', C].

        Args:
          x: [B, Q', C].
          positions: [B, Q', C], of the queries.
          values: [B, N, C], the cells of the maps.
          boxes: float32 [B, Q', 4], where queries look at; None without deformable attention.
          keys: [B, N, C], the cells with their positions; None with deformable attention.
          seen, sizes: see `Tokens`.
          visible, num_groups: of `Queries`.
          training: whether dropout is on.
        """
        found = _in_groups(self.self_attn, x, positions, visible, num_groups)
        x = self.self_attn_layer_norm(x + self.drop_queries(found, training=training))
        placed = x + positions
        if boxes is not None:
            found = self.encoder_attn(placed, boxes, values, sizes=sizes, seen=seen)
        else:
            found = self.encoder_attn(placed, keys, values, seen)
        found = self.drop_values(found, training=training)
        if self.gateway is None:
            x = self.encoder_attn_layer_norm(x + found)
        else:
            x = self.gateway(x, found)
        return self.final_layer_norm(x + self.drop_hidden(self.mlp(x), training=training))


def _in_groups(attention: Attention, x, positions, visible, groups: int) -> tf.Tensor:
    """Returns what queries [B, Q', C] find in those of their own group."""
    if groups == 1:
        placed = x + positions
        return attention(placed, placed, x, visible)
    batch, count = dimensions(x, 0, 1)
    size, width = count // groups, x.shape[-1]
    x, positions = (tf.reshape(each, [batch * groups, size, width]) for each in (x, positions))
    placed = x + positions
    return tf.reshape(attention(placed, placed, x), [batch, count, width])


class Decoder(keras.layers.Layer, abc.ABC):
    """The part that all decoders share: layers, heads.

    Args:
      options: sizes.
    """

    def __init__(self, options: DecoderOptions, name: str = 'decoder'):
        super().__init__(name=name, autocast=False)
        self.options = options
        self.layers = [DecoderLayer(options, i, f'layers_{i}') for i in range(options.num_layers)]
        count = 1 if options.share_heads else options.num_layers
        self.class_embed = [
            dense(options.num_columns, f'class_embed_{i}', bias_initializer=prior_bias())
            for i in range(count)
        ]
        width = options.width
        self.bbox_embed = [
            Mlp((width, width, self.box_columns), f'bbox_embed_{i}', last_initializer='zeros')
            for i in range(count)
        ]

    @property
    def box_columns(self) -> int:
        """Number of outputs of a box head."""
        return 4

    @abc.abstractmethod
    def decode(
        self, queries: Queries, tokens: Tokens, training: bool = False
    ) -> tuple[tuple[Layer, ...], Layer | None]:
        """Returns `Predictions.layers` and `Predictions.first`."""

    def attend(
        self, layer: int, x, positions, queries: Queries, tokens: Tokens, boxes, training: bool
    ) -> tf.Tensor:
        """Returns what a layer makes of queries [B, Q', C]; see `DecoderLayer.call`."""
        arguments = {'seen': tokens.seen}
        if boxes is None:
            arguments['keys'] = tokens.values + tf.cast(tokens.positions, tokens.values.dtype)
            if tokens.seen is not None:
                arguments['seen'] = tokens.seen[:, tf.newaxis, tf.newaxis]
        return self.layers[layer](
            x,
            positions,
            tokens.values,
            boxes=None if boxes is None else _on_map(boxes, tokens),
            visible=queries.visible,
            sizes=tokens.sizes,
            num_groups=queries.num_groups,
            training=training,
            **arguments,
        )

    def class_logits(self, layer: int, x) -> tf.Tensor:
        """Returns float32 [B, Q', columns] of a layer."""
        return tf.cast(self.class_embed[min(layer, len(self.class_embed) - 1)](x), tf.float32)

    def box_codes(self, layer: int, x) -> tf.Tensor:
        """Returns float32 [B, Q', box_columns] of a layer."""
        return tf.cast(self.bbox_embed[min(layer, len(self.bbox_embed) - 1)](x), tf.float32)


def _on_map(boxes: tf.Tensor, tokens: Tokens) -> tf.Tensor:
    """Changes boxes [B, Q', 4] from shares of the true images to shares of what the maps cover."""
    if tokens.shares is None:
        return boxes
    return boxes * tf.tile(tokens.shares, [1, 2])[:, tf.newaxis]


class RefiningDecoder(Decoder):
    """RT-DETR's: each layer moves the boxes of the layer before (https://arxiv.org/abs/2304.08069)."""

    def __init__(self, options: DecoderOptions, name: str = 'decoder'):
        super().__init__(options, name)
        self.query_pos_head = Mlp((2 * options.width, options.width), 'query_pos_head')

    def decode(self, queries: Queries, tokens: Tokens, training: bool = False):
        x, boxes, found = queries.contents, queries.boxes, []
        for i in range(len(self.layers)):
            positions = self.query_pos_head(tf.cast(boxes, x.dtype))
            x = self.attend(i, x, positions, queries, tokens, boxes, training)
            predicted = tf.sigmoid(self.box_codes(i, x) + box_ops.logits(boxes))
            found.append(Layer(self.class_logits(i, x), predicted))
            boxes = tf.stop_gradient(predicted)
        return tuple(found), None


class FixedDecoder(Decoder):
    """RF-DETR's: all layers move the boxes of the queries (https://arxiv.org/abs/2511.09554)."""

    def __init__(self, options: DecoderOptions, name: str = 'decoder'):
        super().__init__(options, name)
        width = options.width
        self.ref_point_head = Mlp((width, width), 'ref_point_head')
        self.layernorm = layer_norm(options.epsilon, 'layernorm')

    def decode(self, queries: Queries, tokens: Tokens, training: bool = False):
        x, found = queries.contents, []
        encoded = box_ops.sine_encoding(_on_map(queries.boxes, tokens), self.options.width // 2)
        positions = self.ref_point_head(tf.cast(encoded, x.dtype))
        for i in range(len(self.layers)):
            x = self.attend(i, x, positions, queries, tokens, queries.boxes, training)
            normed = self.layernorm(x)
            boxes = box_ops.moved(queries.boxes, self.box_codes(i, normed))
            found.append(Layer(self.class_logits(i, normed), boxes))
        return tuple(found), None


class PlainDecoder(Decoder):
    """DETR's: queries attend to all cells (https://arxiv.org/abs/2005.12872)."""

    def __init__(self, options: DecoderOptions, name: str = 'decoder'):
        super().__init__(options, name)
        self.layernorm = layer_norm(options.epsilon, 'layernorm')

    def decode(self, queries: Queries, tokens: Tokens, training: bool = False):
        x, found = queries.contents, []
        for i in range(len(self.layers)):
            x = self.attend(i, x, queries.positions, queries, tokens, None, training)
            normed = self.layernorm(x)
            boxes = tf.sigmoid(self.box_codes(i, normed))
            found.append(Layer(self.class_logits(i, normed), boxes))
        return tuple(found), None


class FineDecoder(Decoder):
    """D-FINE's: layers refine distributions of the edges (https://arxiv.org/abs/2410.13842)."""

    def __init__(self, options: DecoderOptions, name: str = 'decoder'):
        super().__init__(options, name)
        width = options.width
        self.query_pos_head = Mlp((2 * width, width), 'query_pos_head')
        self.pre_bbox_head = Mlp((width, width, 4), 'pre_bbox_head', last_initializer='zeros')
        self.lqe_layers = [
            fine.QualityHead(options.distributions, f'lqe_layers_{i}')
            for i in range(options.num_layers)
        ]
        self.build()

    def build(self):
        options = self.options.distributions
        # Published files have them; they do not train.
        self.scale, self.up = (
            self.add_weight(
                shape=(1,),
                initializer=keras.initializers.Constant(value),
                trainable=False,
                autocast=False,
                name=each,
            )
            for each, value in (('reg_scale', options.scale), ('up', options.up))
        )

    @property
    def box_columns(self) -> int:
        return 4 * (self.options.distributions.bins + 1)

    def decode(self, queries: Queries, tokens: Tokens, training: bool = False):
        options = self.options.distributions
        x, boxes, found = queries.contents, queries.boxes, []
        before, edges, first = 0.0, 0.0, None
        for i in range(len(self.layers)):
            positions = self.query_pos_head(tf.cast(boxes, x.dtype))
            positions = tf.clip_by_value(positions, -_MOST_POSITION, _MOST_POSITION)
            x = self.attend(i, x, positions, queries, tokens, boxes, training)
            logits = self.class_logits(i, x)
            if first is None:
                codes = tf.cast(self.pre_bbox_head(x), tf.float32)
                first = Layer(logits, tf.sigmoid(codes + box_ops.logits(boxes)))
                origin = tf.stop_gradient(first.boxes)
            edges = self.box_codes(i, x + before) + edges
            batch, count = dimensions(edges, 0, 1)
            distributions = tf.reshape(edges, [batch, count, 4, options.bins + 1])
            predicted = fine.decode(origin, distributions, self.scale[0], self.up[0])
            logits += self.lqe_layers[i](distributions)
            found.append(Layer(logits, predicted, distributions))
            before, boxes = tf.stop_gradient(x), tf.stop_gradient(predicted)
        return tuple(found), first
