"""The heads of CenterNet's tasks, one of each for every stack of features."""

from collections.abc import Mapping, Sequence

import keras
import tensorflow as tf

from object_detection.meta_architectures.center_net.tasks.task import Head
from object_detection.models.composite import Composite
from object_detection.models.hyperparams import LayerHyperparams


class PredictionHeads(Composite):
    """Convolutions with ReLU, and a last one of 1x1, for each head and stack.

    Their layers are named HEAD_STACK_conv_NUMBER and HEAD_STACK_output, with -- for slashes, as
    checkpoints double dots.

    Args:
      heads: name of a head -> what it is.
      num_stacks: number of stacks of features.
      use_depthwise: whether all but the last convolution are separable.
    """

    def __init__(self, heads: Mapping[str, Head], *, num_stacks: int, use_depthwise: bool = False):
        super().__init__(name='heads')
        self.names = tuple(heads)
        self._networks = {
            name: [
                _network(f'{name.replace("/", "--")}_{stack}', head, use_depthwise)
                for stack in range(num_stacks)
            ]
            for name, head in heads.items()
        }

    def call(
        self, features: Sequence[tf.Tensor], training: bool = False
    ) -> dict[str, list[tf.Tensor]]:
        """Returns the maps of each head, float32 [B, H, W, C] for each stack.

        Args:
          features: [B, H, W, D] for each stack.
          training: not used, as there are no norms.
        """
        del training
        maps = {}
        for name, networks in self._networks.items():
            maps[name] = []
            for layers, x in zip(networks, features, strict=True):
                for layer in layers:
                    x = layer(x)
                maps[name].append(tf.cast(x, tf.float32))
        return maps


def _network(name: str, head: Head, use_depthwise: bool) -> list[keras.layers.Layer]:
    hyperparams = LayerHyperparams()
    convolution = hyperparams.separable_conv if use_depthwise else hyperparams.conv
    sizes = zip(head.filters, head.kernel_sizes, strict=True)
    layers = [
        convolution(filters, size, name=f'{name}_conv_{i}', activation='relu')
        for i, (filters, size) in enumerate(sizes)
    ]
    bias = keras.initializers.Constant(head.bias)
    return [
        *layers,
        hyperparams.conv(head.channels, 1, name=f'{name}_output', bias_initializer=bias),
    ]
