"""Networks from the pixels around an object to its mask (DeepMAC, https://arxiv.org/abs/2104.00613).

Hourglasses, ResNets and a fully connected network learn to see a mask; conditional convolutions
(CondInst, https://arxiv.org/abs/2003.05664) and the projection have no weights of their own: the
embedding of an object is their weights.
"""

import itertools

import keras
import tensorflow as tf

from object_detection.core.shapes import dimensions, round_up
from object_detection.errors import UserError, expected
from object_detection.models.backbones import hourglass, resnet_v2
from object_detection.models.convolutions import Dense
from object_detection.models.hyperparams import LayerHyperparams

PROJECTION = 'embedding_projection'
CONDITIONAL = 'cond_inst'
FULLY_CONNECTED = 'fully_connected'
# Type -> depth, and what differs from the hourglasses that detect.
_HOURGLASSES = {
    'hourglass10': (10, {}),
    'hourglass20': (20, {}),
    'hourglass20_uniform_size': (20, {'halves': False}),
    'hourglass20_no_shortcut': (20, {'has_shortcuts': False}),
    'hourglass32': (32, {}),
    'hourglass52': (52, {}),
    'hourglass100': (100, {}),
}
# Type -> factors of the channels, and blocks, of each stage.
_RESNETS = {
    'resnet4': ((2,), (2,)),
    'resnet8': ((2,), (4,)),
    'resnet12': ((2,), (6,)),
    'resnet16': ((2,), (8,)),
    'resnet20': ((2, 3), (8, 2)),
}
LEARNT_TYPES = (*_HOURGLASSES, *_RESNETS, FULLY_CONNECTED)
_HIDDEN_UNITS = 1024
_HYPERPARAMS = LayerHyperparams()


class MaskNetwork(keras.layers.Layer):
    """From pixels, and the embedding of the object, to the mask of the object.

    Args:
      network_type: one of `LEARNT_TYPES`, 'embedding_projection' or 'cond_inst' and a number of
        layers.
      num_inputs: channels C of the pixels.
      num_channels: channels of the first layer.
      embedding_size: D.
      sees_embedding: whether the pixels are joined by the embedding; not for the networks without
        weights.
      mask_size: side of the masks of a fully connected network.
      batch_norm_trainable: False freezes the batch norms.

    Raises:
      ValueError: if the type is unknown, or an argument does not fit it.
    """

    def __init__(
        self,
        network_type: str,
        *,
        num_inputs: int,
        num_channels: int,
        embedding_size: int,
        sees_embedding: bool,
        mask_size: int,
        batch_norm_trainable: bool,
        name: str = 'mask_network',
    ):
        super().__init__(name=name)
        self._type = network_type
        self._num_channels = num_channels
        self._sees_embedding = sees_embedding
        self._multiple = 1
        self._network, self._project = None, None
        if network_type == PROJECTION:
            if num_inputs != embedding_size:
                raise expected(
                    PROJECTION, f'{embedding_size} numbers of a pixel, as of an object', num_inputs
                )
            return
        if network_type.startswith(CONDITIONAL):
            needed = num_parameters(num_inputs, num_channels, self._depth)
            if needed != embedding_size:
                raise expected(
                    network_type, f'an embedding of {needed} numbers, its weights', embedding_size
                )
            return
        num_inputs += embedding_size * sees_embedding
        options = {'num_inputs': num_inputs, 'batch_norm_trainable': batch_norm_trainable}
        if network_type in _HOURGLASSES:
            depth, differences = _HOURGLASSES[network_type]
            variant = hourglass.variant(depth, num_channels, **differences)
            self._multiple = hourglass.size_multiple(variant)
            self._network = hourglass.same_size_network(variant, name='network', **options)
        elif network_type in _RESNETS:
            self._network = _resnet(network_type, num_channels, **options)
        elif network_type == FULLY_CONNECTED:
            self._network = _fully_connected(num_inputs, mask_size)
        else:
            raise UserError(
                f'expected one of {", ".join(LEARNT_TYPES)}, {PROJECTION}, {CONDITIONAL}1, '
                f'{CONDITIONAL}2 ... Received: {network_type!r}.'
            )
        if network_type != FULLY_CONNECTED:
            self._project = _HYPERPARAMS.conv(1, 1, name='project_out')
            self._project.build((None, None, None, self._network.outputs[0].shape[-1]))

    @property
    def _depth(self) -> int:
        return int(self._type.removeprefix(CONDITIONAL))

    def call(self, pixels: tf.Tensor, embeddings: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Returns the logits of the masks, float32 [N, h, w].

        Args:
          pixels: float32 [N, h, w, C]; h and w are `mask_size` for a fully connected network.
          embeddings: float32 [N, D].
          training: whether batch norms that are not frozen use and update batch statistics.
        """
        if self._type == PROJECTION:
            return tf.einsum('nhwc,nc->nhw', pixels, embeddings)
        if self._network is None:
            return conditional_convolutions(pixels, embeddings, self._num_channels, self._depth)
        height, width = dimensions(pixels, 1, 2)
        if self._sees_embedding:
            count = dimensions(pixels, 0)[0]
            shape = [count, height, width, embeddings.shape[-1]]
            spread = tf.broadcast_to(embeddings[:, tf.newaxis, tf.newaxis], shape)
            pixels = tf.concat([pixels, spread], axis=-1)
        pads = [round_up(side, self._multiple) - side for side in (height, width)]
        if any(tf.is_tensor(each) or each for each in pads):
            pixels = tf.pad(pixels, [[0, 0], [0, pads[0]], [0, pads[1]], [0, 0]])
        maps = self._network(tf.cast(pixels, self.compute_dtype), training=training)
        if self._project is not None:
            maps = self._project(maps)
        return tf.cast(maps[:, :height, :width, 0], tf.float32)


def num_parameters(num_inputs: int, num_channels: int, depth: int) -> int:
    """Returns the number of weights and offsets of `conditional_convolutions`."""
    sizes = [num_inputs, *[num_channels] * (depth - 1), 1]
    return sum((before + 1) * after for before, after in itertools.pairwise(sizes))


def conditional_convolutions(
    pixels: tf.Tensor, parameters: tf.Tensor, num_channels: int, depth: int
) -> tf.Tensor:
    """Applies 1x1 convolutions whose weights differ from object to object (CondInst, sec. 3.1).

    Args:
      pixels: float32 [N, h, w, C].
      parameters: float32 [N, P], of each layer the weights [inputs, outputs] and then the offsets;
        P is `num_parameters(C, num_channels, depth)`.
      num_channels: channels of all layers but the last, which has one; a ReLU follows each of them.
      depth: number of layers.

    Returns:
      float32 [N, h, w].

    Raises:
      ValueError: if P is another number.
    """
    sizes = [pixels.shape[-1], *[num_channels] * (depth - 1), 1]
    needed = num_parameters(pixels.shape[-1], num_channels, depth)
    if parameters.shape[-1] != needed:
        raise expected('conditional_convolutions', f'{needed} parameters', parameters.shape[-1])
    x, start = pixels, 0
    for before, after in itertools.pairwise(sizes):
        end = start + before * after
        weights = tf.reshape(parameters[:, start:end], [-1, before, after])
        offsets = parameters[:, end : end + after]
        if start:
            x = tf.nn.relu(x)
        x = tf.einsum('nhwc,ncd->nhwd', x, weights) + offsets[:, tf.newaxis, tf.newaxis]
        start = end + after
    return x[..., 0]


def _resnet(
    network_type: str, num_channels: int, *, num_inputs: int, batch_norm_trainable: bool
) -> keras.Model:
    factors, blocks = _RESNETS[network_type]
    dtype = keras.config.dtype_policy().compute_dtype
    inputs = keras.Input((None, None, num_inputs), name='inputs', dtype=dtype)
    x = _HYPERPARAMS.conv(num_channels, 1, name='input_layer')(inputs)
    for i, (factor, count) in enumerate(zip(factors, blocks, strict=True)):
        x = resnet_v2.append_basic_blocks(
            x,
            factor * num_channels,
            count,
            batch_norm_trainable=batch_norm_trainable,
            name=f'resnet_mask_{i}',
        )
    return keras.Model(inputs, x, name='network')


def _fully_connected(num_inputs: int, mask_size: int) -> keras.Model:
    dtype = keras.config.dtype_policy().compute_dtype
    inputs = keras.Input((mask_size, mask_size, num_inputs), name='inputs', dtype=dtype)
    x = keras.layers.Flatten(name='flatten')(inputs)
    x = Dense(_HIDDEN_UNITS, activation='relu', name='fc1')(x)
    x = Dense(mask_size * mask_size, name='fc2')(x)
    x = keras.layers.Reshape((mask_size, mask_size, 1), name='mask')(x)
    return keras.Model(inputs, x, name='network')
