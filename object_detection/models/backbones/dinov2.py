"""DINOv2 (https://arxiv.org/abs/2304.07193), the backbone of RF-DETR, as functional Keras models.

A vision transformer: tokens of patches of the image and a class token, to which register tokens
(https://arxiv.org/abs/2309.16588) may be added, go through blocks of attention and a perceptron. In
RF-DETR (https://arxiv.org/abs/2511.09554) most blocks attend within windows of the image, each with
a class token of its own. The networks are those of transformers, `rf_detr_dinov2`, `dinov2` and
`dinov2_with_registers`, for all of their options but dropout. Its mask token, which only
pretraining uses, is left out.
"""

import dataclasses
import math
from collections.abc import Sequence

import keras
import tensorflow as tf

from object_detection.core.sampling import noise_of_images
from object_detection.core.shapes import dimensions
from object_detection.errors import expected
from object_detection.models import activations, image_channels, rounding
from object_detection.models.backbones.dinov2_tokens import (
    DEVIATION,
    CheckedImages,
    Embeddings,
    Maps,
)
from object_detection.models.backbones.resnet_d import check_indices
from object_detection.models.backbones.table import TRUNK_NAME, BackboneOptions
from object_detection.models.convolutions import Dense
from object_detection.models.hyperparams import L2, LayerHyperparams
from object_detection.models.normalization import LayerNorm


@dataclasses.dataclass(frozen=True, kw_only=True)
class Dinov2Spec:
    """A DINOv2; the names are those of transformers' configs.

    Attributes:
      hidden_size: channels of tokens and maps.
      num_hidden_layers: number of blocks.
      num_attention_heads: of each block.
      mlp_ratio: inner channels of the perceptrons / `hidden_size`; with `use_swiglu_ffn` two thirds
        of it, in multiples of 8.
      patch_size: side of patches in pixels, the stride of the maps.
      image_size: side of the images in pixels that the position embeddings are of, or height and
        width; for others they are interpolated.
      num_windows: windows along each side of the image; 1 is no windows.
      window_block_indexes: blocks, counted from 0, that attend within windows.
      num_register_tokens: 0 without registers.
      layerscale_value: initial factor of the results of attention and perceptrons.
      use_swiglu_ffn: whether perceptrons have a gate, silu(a) * b, in place of `hidden_act`.
      layer_norm_eps: epsilon of the norms.
      qkv_bias: whether queries, keys and values have a bias.
      drop_path_rate: probability that training leaves out an attention or a perceptron, for each
        window by itself.
      apply_layernorm: whether a last norm is applied to the maps.
      hidden_act: activation of the perceptrons, as transformers calls it.
      antialias: whether position embeddings are interpolated as by `torch`'s antialiasing, whose
        cubic is another one: false in `dinov2` alone.
    """

    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    mlp_ratio: float = 4
    patch_size: int = 14
    image_size: int | Sequence[int] = 224
    num_windows: int = 1
    window_block_indexes: Sequence[int] = ()
    num_register_tokens: int = 0
    layerscale_value: float = 1.0
    use_swiglu_ffn: bool = False
    layer_norm_eps: float = 1e-6
    qkv_bias: bool = True
    drop_path_rate: float = 0.0
    apply_layernorm: bool = True
    hidden_act: str = 'gelu'
    antialias: bool = True

    def __post_init__(self):
        for field in ('hidden_size', 'num_hidden_layers', 'patch_size', 'num_windows'):
            if getattr(self, field) < 1:
                raise expected(f'DINOv2: {field}', 'at least 1', getattr(self, field))
        if not 1 <= self.num_attention_heads <= self.hidden_size:
            wanted = f'1 to the hidden_size {self.hidden_size}'
            raise expected('DINOv2: num_attention_heads', wanted, self.num_attention_heads)
        if not 0 <= self.drop_path_rate < 1:
            raise expected('DINOv2: drop_path_rate', 'at least 0, below 1', self.drop_path_rate)
        if self._num_positions < 1 or self.grid**2 != self._num_positions:
            wanted = f'patches of {self.patch_size} pixels whose number is a square'
            raise expected('DINOv2: image_size', wanted, self.image_size)

    @property
    def _num_positions(self) -> int:
        sides = self.image_size
        height, width = (sides, sides) if isinstance(sides, int) else sides
        return (height // self.patch_size) * (width // self.patch_size)

    @property
    def grid(self) -> int:
        """Position embeddings along each side."""
        return math.isqrt(self._num_positions)

    @property
    def padding_multiple(self) -> int:
        """What both sides of images have to be multiples of."""
        return self.patch_size * self.num_windows

    @property
    def inner_channels(self) -> int:
        """Inner channels of the perceptrons."""
        channels = int(self.hidden_size * self.mlp_ratio)
        return (int(channels * 2 / 3) + 7) // 8 * 8 if self.use_swiglu_ffn else channels


def default_hyperparams(weight_decay: float = 0.0) -> LayerHyperparams:
    """Returns the hyperparameters of the network.

    Args:
      weight_decay: factor of the sum of squares of the kernels.
    """
    return LayerHyperparams(
        initializer=keras.initializers.TruncatedNormal(stddev=DEVIATION),
        regularizer=L2(weight_decay) if weight_decay else None,
    )


def network(spec: Dinov2Spec, out_indices: Sequence[int], options: BackboneOptions) -> keras.Model:
    """Builds a DINOv2 from the image up to the last of its maps.

    Args:
      spec: the network.
      out_indices: ascending: the maps to return. 0 is that before the first block, i the one after
        i blocks.
      options: initializer and penalty of the kernels; the rest is not read.

    Returns:
      A model named 'backbone' from images [B, H, W, C] to a list of
      [B, H / patch_size, W / patch_size, hidden_size]. For images that are not square, windows are
      not rectangles, and the cells of the maps are in another order than those of the image, as in
      transformers. Images whose sides are not multiples of `spec.padding_multiple` are a UserError.

    Raises:
      UserError: if there is no such map, or the activation is not known.
    """
    check_indices('DINOv2', out_indices, spec.num_hidden_layers)
    builder = _Builder(spec, options.hyperparams)
    images = keras.Input((None, None, image_channels.current()), name='images')
    patches = options.hyperparams.conv(
        spec.hidden_size,
        spec.patch_size,
        strides=spec.patch_size,
        padding='valid',
        use_bias=True,
        name='patch_embeddings',
    )(CheckedImages(spec.padding_multiple, name='checked_images')(images))
    x = Embeddings(
        grid=spec.grid,
        windows=spec.num_windows,
        registers=spec.num_register_tokens,
        antialias=spec.antialias,
        name='embeddings',
    )(patches)
    norm = LayerNorm(epsilon=spec.layer_norm_eps, name='norm') if spec.apply_layernorm else None
    maps = []
    for index in range(out_indices[-1] + 1):
        x = builder.block(x, index - 1) if index else x
        if index in out_indices:
            tokens = x if norm is None else norm(x)
            maps.append(
                Maps(spec.num_windows, 1 + spec.num_register_tokens, name=f'map{index}')(
                    [tokens, patches]
                )
            )
    return keras.Model(images, maps, name=TRUNK_NAME)


class _Builder:
    """Appends blocks.

    Args:
      spec: the network.
      hyperparams: set-up of the dense layers.
    """

    def __init__(self, spec: Dinov2Spec, hyperparams: LayerHyperparams):
        self._spec = spec
        self._hyperparams = hyperparams
        activation = activations.of_pytorch('DINOv2: hidden_act', spec.hidden_act)
        self._inner = dataclasses.replace(hyperparams, activation=activation)

    def block(self, x, i: int):
        """Appends the block counted from 0."""
        name = f'block{i}'
        y = LayerNorm(epsilon=self._spec.layer_norm_eps, name=f'{name}_norm1')(x)
        x = self._add(x, self._attention(y, i, name), 2 * i, f'{name}_{{}}1')
        y = LayerNorm(epsilon=self._spec.layer_norm_eps, name=f'{name}_norm2')(x)
        return self._add(x, self._perceptron(y, name), 2 * i + 1, f'{name}_{{}}2')

    def _attention(self, x, i: int, name: str):
        heads = self._spec.num_attention_heads
        channels = heads * (self._spec.hidden_size // heads)
        bias = self._spec.qkv_bias
        parts = [
            self._dense(x, channels, f'{name}_{part}', bias) for part in ('query', 'key', 'value')
        ]
        is_within = i in self._spec.window_block_indexes
        merged = 1 if is_within else self._spec.num_windows**2
        x = _Attention(heads, merged, name=f'{name}_attention')(parts)
        return self._dense(x, self._spec.hidden_size, f'{name}_output')

    def _perceptron(self, x, name: str):
        inner = self._spec.inner_channels
        if self._spec.use_swiglu_ffn:
            gate = self._dense(x, inner, f'{name}_gate')
            gate = rounding.Activation('silu', name=f'{name}_silu')(gate)
            x = rounding.Multiply(name=f'{name}_gated')([gate, self._dense(x, inner, f'{name}_up')])
            return self._dense(x, self._spec.hidden_size, f'{name}_down')
        x = self._dense(x, inner, f'{name}_fc1')
        x = self._inner.activation_layer(name=f'{name}_activation')(x)
        return self._dense(x, self._spec.hidden_size, f'{name}_fc2')

    def _add(self, x, y, number: int, name: str):
        """Adds a result, scaled and at random left out, to the tokens."""
        y = _LayerScale(self._spec.layerscale_value, name=name.format('scale'))(y)
        if self._spec.drop_path_rate:
            y = _DropPath(self._spec.drop_path_rate, number, name=name.format('drop'))(y)
        return rounding.Add(name=name.format('add'))([y, x])

    def _dense(self, x, channels: int, name: str, use_bias: bool = True):
        options = self._hyperparams.kernel_options()
        return Dense(channels, use_bias=use_bias, name=name, **options)(x)


class _Attention(keras.layers.Layer):
    """Scaled dot-product attention: queries, keys and values [N, S, C] -> [N, S, C].

    Args:
      heads: number of heads.
      merged: number of sequences in a row that are one.
    """

    def __init__(self, heads: int, merged: int, *, name: str):
        super().__init__(name=name)
        self._heads, self._merged = heads, merged

    def call(self, parts):
        length, channels = dimensions(parts[0], 1, 2)
        size = channels // self._heads
        shape = [-1, self._merged * length, self._heads, size]
        query, key, value = (tf.transpose(tf.reshape(part, shape), [0, 2, 1, 3]) for part in parts)
        scores = tf.matmul(query, key, transpose_b=True) * size**-0.5
        # In float32, as sums over many tokens.
        weights = tf.cast(tf.nn.softmax(tf.cast(scores, tf.float32)), value.dtype)
        results = tf.transpose(tf.matmul(weights, value), [0, 2, 1, 3])
        return tf.reshape(results, [-1, length, channels])

    def compute_output_shape(self, shapes):
        return shapes[0]


class _LayerScale(keras.layers.Layer):
    """A learnt factor for each channel (https://arxiv.org/abs/2103.17239)."""

    def __init__(self, initial: float, *, name: str):
        super().__init__(name=name)
        self._initial = initial

    def build(self, shape):
        initializer = keras.initializers.Constant(self._initial)
        self._scale = self.add_weight(shape=shape[-1:], initializer=initializer, name='scale')

    def call(self, tokens):
        return tokens * self._scale

    def compute_output_shape(self, shape):
        return shape


class _DropPath(keras.layers.Layer):
    """In training, leaves out some sequences, and scales the others accordingly.

    Args:
      rate: their share.
      number: of the layer; see `noise_of_images`.
    """

    def __init__(self, rate: float, number: int, *, name: str):
        super().__init__(name=name)
        self._rate, self._number = rate, number

    def call(self, tokens, training=False):
        if not training:
            return tokens
        is_kept = noise_of_images(dimensions(tokens, 0)[0], self._number) >= self._rate
        factors = tf.cast(is_kept, tokens.dtype) / (1.0 - self._rate)
        return tokens * factors[:, tf.newaxis, tf.newaxis]

    def compute_output_shape(self, shape):
        return shape
