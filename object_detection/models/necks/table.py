"""The necks by name: what feature extractors put on the maps of a backbone.

Loads no TensorFlow: a row of this package is in the file of its network, which is imported when the
row is asked for.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from object_detection.registry import Registry

if TYPE_CHECKING:
    import keras

    from object_detection.models.hyperparams import LayerHyperparams


@dataclasses.dataclass(frozen=True)
class NeckOptions:
    """What a feature extractor asks of its neck; see `Neck.uses`.

    Attributes:
      hyperparams: hyperparameters of all layers.
      batch_norm_trainable: False freezes the batch norms.
      levels: of the maps that it returns; level l has stride 2**l.
      inputs: levels of the maps that it takes.
      depth: number of channels of its maps; None leaves them to the neck.
      nominal_depth: the same before the factor, for necks that round the product in their own way.
      depth_multiplier: factor of the numbers of channels that are the neck's own.
      min_depth: minimum number of channels of a convolution after that factor.
      use_depthwise: whether the 3x3 convolutions are separable.
      explicit_padding: whether convolutions of stride 2 are padded alike on both sides.
      bilinear: whether maps are enlarged linearly, not by nearest neighbour.
      settings: further arguments of the network, by name.
    """

    hyperparams: 'LayerHyperparams'
    batch_norm_trainable: bool
    levels: range
    inputs: range
    depth: int | None = None
    nominal_depth: int | None = None
    depth_multiplier: float = 1.0
    min_depth: int = 1
    use_depthwise: bool = False
    explicit_padding: bool = False
    bilinear: bool = False
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def arguments(self) -> dict[str, Any]:
        """Returns the arguments that all networks take: the set-up of layers and the name."""
        return {
            'hyperparams': self.hyperparams,
            'batch_norm_trainable': self.batch_norm_trainable,
            'name': 'fpn',
        }


class Neck(NamedTuple):
    """A network from maps to maps.

    Attributes:
      build: numbers of channels of the maps of the backbone, finest first, and options -> a model
        named 'fpn' from the list of these maps to the list of maps of all levels of the options.
      uses: fields of feature extractors that it reads, such as 'use_depthwise'. Others that a
        config sets are errors. It fits types whose own neck reads the same one of `MAPS`; without
        one of them it fits those of CenterNet.
      hyperparams: those of all its layers, for every config; None takes them from the config.
      levels: those that its maps must have; None allows any.
    """

    build: Callable[[Sequence[int], NeckOptions], 'keras.Model']
    uses: frozenset[str] = frozenset()
    hyperparams: 'LayerHyperparams | None' = None
    levels: range | None = None


# Fields that say which maps there are.
MAPS = frozenset({'fpn', 'bifpn', 'num_layers'})
_NETWORKS = 'object_detection.models.necks'

NECKS: Registry[Neck] = Registry(
    'neck',
    {
        'fpn': f'{_NETWORKS}.fpn:FPN',
        'bifpn': f'{_NETWORKS}.bifpn:BIFPN',
        'mnasfpn': f'{_NETWORKS}.mnasfpn:MNASFPN',
        # The coarser maps of SSD.
        'multi_resolution': f'{_NETWORKS}.multi_resolution:MULTI_RESOLUTION',
        'pooling_pyramid': f'{_NETWORKS}.multi_resolution:POOLING_PYRAMID',
        # Of CenterNet, whose only map is the finest one.
        'merged_pyramid': f'{_NETWORKS}.multi_resolution:MERGED_PYRAMID',
        'upsampling': f'{_NETWORKS}.resizing:UPSAMPLING',
    },
    Neck,
)
