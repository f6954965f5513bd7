"""The backbones by name: rows of this package, of plug-ins, and the networks of keras.applications.

Loads no TensorFlow: the rows of this package are in `rows`, which is imported when one of them is
asked for.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from object_detection.registry import Registry

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

    from object_detection.models.hyperparams import LayerHyperparams


@dataclasses.dataclass(frozen=True)
class BackboneOptions:
    """What a feature extractor asks of its backbone; see `Backbone.uses`.

    Attributes:
      hyperparams: hyperparameters of all layers: those of the row, or of the config.
      batch_norm_trainable: False freezes the batch norms.
      depth_multiplier: factor of the numbers of channels.
      min_depth: minimum number of channels of a convolution after that factor.
      explicit_padding: whether convolutions of stride 2 are padded alike on both sides.
      is_thin: whether the last layers have few channels, as before a separable pyramid.
      stride: stride of the last map, if it is not 2**level but half of it (atrous); None is
        2**level.
      keeps_crops: whether the stage over crops keeps their size.
      settings: further arguments of the network, by name.
    """

    hyperparams: 'LayerHyperparams'
    batch_norm_trainable: bool
    depth_multiplier: float = 1.0
    min_depth: int = 1
    explicit_padding: bool = False
    is_thin: bool = False
    stride: int | None = None
    keeps_crops: bool = False
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Backbone:
    """A network from images to feature maps.

    Attributes:
      trunk: ascending levels, and options -> a model named 'backbone' from images [B, H, W, C] to
        one map a level, [B, ceil(H / 2**level), ceil(W / 2**level), C']. A network of several
        stacks returns the maps of the first stack, then those of the second, ...
      levels: those that it has maps of; level l has stride 2**l.
      normalize: converts float32 images [B, H, W, C], RGB in 0..255, to the input of the network.
      hyperparams: norms, penalty and initializers unless the config overrides them.
      padding_multiple: multiple that the sides of images must be of; they are padded to it.
      uses: fields of feature extractors that it reads, such as 'depth_multiplier'. Others that a
        config sets are errors.
      crop_stage: options -> the rest of the network as a layer named 'box_classifier', from crops
        [N, h, w, C'] of the map of level 4 to [N, h', w', C'']; None if it has none.
      strides: those that its map of level 4 may have; see `BackboneOptions.stride`.
    """

    trunk: Callable[[Sequence[int], BackboneOptions], 'keras.Model']
    levels: range
    normalize: Callable[['tf.Tensor'], 'tf.Tensor']
    hyperparams: 'LayerHyperparams'
    padding_multiple: int = 1
    uses: frozenset[str] = frozenset()
    crop_stage: Callable[[BackboneOptions], 'keras.layers.Layer'] | None = None
    strides: Sequence[int] = (16,)


_NAMES = (
    *(f'resnet_v1_{depth}' for depth in (18, 34, 50, 101, 152, 200)),
    # With the penalty of TF-Slim, and without a penalty.
    *(f'resnet_v1_{depth}_slim' for depth in (50, 101, 152)),
    *(f'resnet_v1_{depth}_unpenalized' for depth in (50, 101, 152)),
    # As in CenterNet: convolutions have biases; those of 18 and 34 begin with norm and activation.
    *(f'resnet_v1_{depth}_biased' for depth in (18, 34, 50, 101)),
    *(f'resnet_v2_{depth}' for depth in (50, 101)),
    'mobilenet_v1',
    'mobilenet_v1_slim',
    'mobilenet_v2',
    'mobilenet_v2_slim',
    # Its map of level 4 is expanded, as in SSD.
    'mobilenet_v2_expanded',
    'mobilenet_v2_center_net',
    *(f'efficientnet-b{size}' for size in range(8)),
    'inception_v2',
    'inception_resnet_v2',
    'inception_resnet_v2_slim',
    *(f'hourglass_{depth}' for depth in (10, 20, 32, 52, 104)),
)

# Begins the names of functions of keras.applications.
KERAS = 'keras:'
# Multiple of the sides of their images: the stride of their last stage.
KERAS_MULTIPLE = 32

BACKBONES: Registry[Backbone] = Registry(
    'backbone',
    {
        name: f'object_detection.models.backbones.rows:{name.upper().replace("-", "_")}'
        for name in _NAMES
    },
    Backbone,
)


def is_backbone(name: str) -> bool:
    """Returns whether `find` has a row, as far as this is known without TensorFlow."""
    return name.startswith(KERAS) or name in BACKBONES


def find(name: str) -> Backbone:
    """Returns the row of `BACKBONES`, or that of a function of keras.applications.

    Raises:
      UserError: if there is none.
    """
    if not name.startswith(KERAS):
        return BACKBONES[name]
    from object_detection.models.backbones import keras_networks  # loads TensorFlow

    return keras_networks.row(name.removeprefix(KERAS))
