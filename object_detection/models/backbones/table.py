"""The backbones by name: rows of this package and of plug-ins, and networks of Keras and KerasHub.

Loads no TensorFlow: a row of this package is in the file of its network, which is imported when the
row is asked for.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from object_detection.registry import Registry

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

    from object_detection.models.hyperparams import LayerHyperparams


# Names of the two models of a row.
TRUNK_NAME, CROP_STAGE_NAME = 'backbone', 'box_classifier'


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
      is_overridden: whether the hyperparameters are those of the config.
      drop_path_rate: probability that training leaves out the last residual block for an image;
        None is the network's own.
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
    is_overridden: bool = False
    drop_path_rate: float | None = None
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def arguments(self, name: str = TRUNK_NAME) -> dict[str, Any]:
        """Returns the arguments that most networks take: the set-up of layers and the name."""
        return {
            'hyperparams': self.hyperparams,
            'batch_norm_trainable': self.batch_norm_trainable,
            'name': name,
        }


@dataclasses.dataclass(frozen=True)
class Backbone:
    """A network from images to feature maps.

    Attributes:
      trunk: ascending levels, and options -> a model named 'backbone' from images [B, H, W, C] to
        one map a level, [B, ceil(H / 2**level), ceil(W / 2**level), C']. A network of several
        stacks returns the maps of the first stack, then those of the second, ...
      levels: those that it has maps of; level l has stride 2**l, unless `level_strides` has it.
      normalize: converts float32 images [B, H, W, C], RGB in 0..255, to the input of the network.
      hyperparams: norms, penalty and initializers unless the config overrides them.
      padding_multiple: multiple that the sides of images must be of; they are padded to it.
      uses: fields of feature extractors that it reads, such as 'depth_multiplier'. Others that a
        config sets are errors.
      refusals: field that it does not read -> why, in place of that it does not. It continues
        'expected false, as '.
      crop_stage: options -> the rest of the network as a layer named 'box_classifier', from crops
        [N, h, w, C'] of the map of level 4 to [N, h', w', C'']; None if it has none.
      strides: those that its map of level 4 may have; see `BackboneOptions.stride`.
      is_aligned: whether its maps have the sizes that `trunk` says. Others have fewer cells, which
        are not those of pyramids.
      least_side: pixels of the shorter side of images, with padding, from which on all maps have
        cells.
      level_strides: level -> stride of its map, where that is the stride of the level before.
      pads_alike: whether the maps that follow those of the network are padded as `padding_mode`
        says, as in the network itself.
    """

    trunk: Callable[[Sequence[int], BackboneOptions], 'keras.Model']
    levels: range
    normalize: Callable[['tf.Tensor'], 'tf.Tensor']
    hyperparams: 'LayerHyperparams'
    padding_multiple: int = 1
    uses: frozenset[str] = frozenset()
    refusals: Mapping[str, str] = dataclasses.field(default_factory=dict)
    crop_stage: Callable[[BackboneOptions], 'keras.layers.Layer'] | None = None
    strides: Sequence[int] = (16,)
    is_aligned: bool = True
    least_side: int = 1
    level_strides: Mapping[int, int] = dataclasses.field(default_factory=dict)
    pads_alike: bool = False

    def stride(self, level: int) -> int:
        """Returns the stride of a map; beyond those of the network it doubles with each level."""
        last = min(level, self.levels[-1])
        return self.level_strides.get(last, 2**last) * 2 ** (level - last)


# Begins the names of functions of keras.applications, and of presets of KerasHub.
KERAS, KERAS_HUB = 'keras:', 'keras_hub:'
# Multiple of the sides of their images: the stride of their last stage.
KERAS_MULTIPLE = 32

_NETWORKS = 'object_detection.models.backbones'
_INCEPTION = f'{_NETWORKS}.inception'

BACKBONES: Registry[Backbone] = Registry(
    'backbone',
    {
        'resnet_v1_18': f'{_NETWORKS}.resnet_v1:RESNET_V1_18',
        'resnet_v1_34': f'{_NETWORKS}.resnet_v1:RESNET_V1_34',
        'resnet_v1_50': f'{_NETWORKS}.resnet_v1:RESNET_V1_50',
        'resnet_v1_101': f'{_NETWORKS}.resnet_v1:RESNET_V1_101',
        'resnet_v1_152': f'{_NETWORKS}.resnet_v1:RESNET_V1_152',
        'resnet_v1_200': f'{_NETWORKS}.resnet_v1:RESNET_V1_200',
        # With the penalty of TF-Slim, and without a penalty.
        'resnet_v1_50_slim': f'{_NETWORKS}.resnet_v1:RESNET_V1_50_SLIM',
        'resnet_v1_101_slim': f'{_NETWORKS}.resnet_v1:RESNET_V1_101_SLIM',
        'resnet_v1_152_slim': f'{_NETWORKS}.resnet_v1:RESNET_V1_152_SLIM',
        'resnet_v1_50_unpenalized': f'{_NETWORKS}.resnet_v1:RESNET_V1_50_UNPENALIZED',
        'resnet_v1_101_unpenalized': f'{_NETWORKS}.resnet_v1:RESNET_V1_101_UNPENALIZED',
        'resnet_v1_152_unpenalized': f'{_NETWORKS}.resnet_v1:RESNET_V1_152_UNPENALIZED',
        # As in CenterNet: convolutions have biases; those of 18 and 34 begin with norm and
        # activation.
        'resnet_v1_18_biased': f'{_NETWORKS}.resnet_v2:RESNET_V1_18_BIASED',
        'resnet_v1_34_biased': f'{_NETWORKS}.resnet_v2:RESNET_V1_34_BIASED',
        'resnet_v1_50_biased': f'{_NETWORKS}.resnet_v1:RESNET_V1_50_BIASED',
        'resnet_v1_101_biased': f'{_NETWORKS}.resnet_v1:RESNET_V1_101_BIASED',
        'resnet_v2_50': f'{_NETWORKS}.resnet_v2:RESNET_V2_50',
        'resnet_v2_101': f'{_NETWORKS}.resnet_v2:RESNET_V2_101',
        # As in RT-DETR, of images in 0..1.
        'resnet_vd_18': f'{_NETWORKS}.resnet_d:RESNET_VD_18',
        'resnet_vd_34': f'{_NETWORKS}.resnet_d:RESNET_VD_34',
        'resnet_vd_50': f'{_NETWORKS}.resnet_d:RESNET_VD_50',
        'resnet_vd_101': f'{_NETWORKS}.resnet_d:RESNET_VD_101',
        'mobilenet_v1': f'{_NETWORKS}.mobilenet:MOBILENET_V1',
        'mobilenet_v1_slim': f'{_NETWORKS}.mobilenet:MOBILENET_V1_SLIM',
        'mobilenet_v2': f'{_NETWORKS}.mobilenet_v2:MOBILENET_V2',
        'mobilenet_v2_slim': f'{_NETWORKS}.mobilenet_v2:MOBILENET_V2_SLIM',
        # Its map of level 4 is expanded, as in SSD.
        'mobilenet_v2_expanded': f'{_NETWORKS}.mobilenet_v2:MOBILENET_V2_EXPANDED',
        'mobilenet_v2_mnasfpn': f'{_NETWORKS}.mobilenet_v2:MOBILENET_V2_MNASFPN',
        'mobilenet_v2_center_net': f'{_NETWORKS}.mobilenet_v2:MOBILENET_V2_CENTER_NET',
        'mobilenet_v3_large': f'{_NETWORKS}.mobilenet_v3:MOBILENET_V3_LARGE',
        'mobilenet_v3_small': f'{_NETWORKS}.mobilenet_v3:MOBILENET_V3_SMALL',
        'mobilenet_edgetpu': f'{_NETWORKS}.mobilenet_v3:MOBILENET_EDGETPU',
        # As in torchvision, with all channels of a classifier, or half of the last ones.
        'mobilenet_v3_large_full': f'{_NETWORKS}.mobilenet_v3:MOBILENET_V3_LARGE_FULL',
        'mobilenet_v3_large_halved': f'{_NETWORKS}.mobilenet_v3:MOBILENET_V3_LARGE_HALVED',
        'mobilenet_v3_large_expanded': f'{_NETWORKS}.mobilenet_v3:MOBILENET_V3_LARGE_EXPANDED',
        'mobilenet_v3_small_expanded': f'{_NETWORKS}.mobilenet_v3:MOBILENET_V3_SMALL_EXPANDED',
        'mobilenet_edgetpu_expanded': f'{_NETWORKS}.mobilenet_v3:MOBILENET_EDGETPU_EXPANDED',
        'mobiledet_cpu': f'{_NETWORKS}.mobiledet:MOBILEDET_CPU',
        'mobiledet_dsp': f'{_NETWORKS}.mobiledet:MOBILEDET_DSP',
        'mobiledet_edgetpu': f'{_NETWORKS}.mobiledet:MOBILEDET_EDGETPU',
        'mobiledet_gpu': f'{_NETWORKS}.mobiledet:MOBILEDET_GPU',
        'efficientnet-b0': f'{_NETWORKS}.efficientnet:EFFICIENTNET_B0',
        'efficientnet-b1': f'{_NETWORKS}.efficientnet:EFFICIENTNET_B1',
        'efficientnet-b2': f'{_NETWORKS}.efficientnet:EFFICIENTNET_B2',
        'efficientnet-b3': f'{_NETWORKS}.efficientnet:EFFICIENTNET_B3',
        'efficientnet-b4': f'{_NETWORKS}.efficientnet:EFFICIENTNET_B4',
        'efficientnet-b5': f'{_NETWORKS}.efficientnet:EFFICIENTNET_B5',
        'efficientnet-b6': f'{_NETWORKS}.efficientnet:EFFICIENTNET_B6',
        'efficientnet-b7': f'{_NETWORKS}.efficientnet:EFFICIENTNET_B7',
        # As in D-FINE, of images in 0..1.
        'hgnet_v2_b0': f'{_NETWORKS}.hgnet_v2:HGNET_V2_B0',
        'hgnet_v2_b1': f'{_NETWORKS}.hgnet_v2:HGNET_V2_B1',
        'hgnet_v2_b2': f'{_NETWORKS}.hgnet_v2:HGNET_V2_B2',
        'hgnet_v2_b3': f'{_NETWORKS}.hgnet_v2:HGNET_V2_B3',
        'hgnet_v2_b4': f'{_NETWORKS}.hgnet_v2:HGNET_V2_B4',
        'hgnet_v2_b5': f'{_NETWORKS}.hgnet_v2:HGNET_V2_B5',
        'hgnet_v2_b6': f'{_NETWORKS}.hgnet_v2:HGNET_V2_B6',
        'inception_v2': f'{_INCEPTION}.inception_v2:INCEPTION_V2',
        # Its map of level 4 is an earlier one, as in SSD.
        'inception_v2_mixed_4c': f'{_INCEPTION}.inception_v2:INCEPTION_V2_MIXED_4C',
        'inception_v3': f'{_INCEPTION}.inception_v3:INCEPTION_V3',
        'inception_resnet_v2': f'{_INCEPTION}.inception_resnet_v2:INCEPTION_RESNET_V2',
        'inception_resnet_v2_slim': f'{_INCEPTION}.inception_resnet_v2:INCEPTION_RESNET_V2_SLIM',
        # Its two maps are those that SSD takes.
        'vgg16': f'{_NETWORKS}.vgg:VGG16',
        'nasnet_large': f'{_NETWORKS}.nasnet:NASNET_LARGE',
        'hourglass_10': f'{_NETWORKS}.hourglass:HOURGLASS_10',
        'hourglass_20': f'{_NETWORKS}.hourglass:HOURGLASS_20',
        'hourglass_32': f'{_NETWORKS}.hourglass:HOURGLASS_32',
        'hourglass_52': f'{_NETWORKS}.hourglass:HOURGLASS_52',
        'hourglass_104': f'{_NETWORKS}.hourglass:HOURGLASS_104',
    },
    Backbone,
)


def is_foreign(name: str) -> bool:
    """Returns whether a name is one of a network of another package."""
    return name.startswith((KERAS, KERAS_HUB))


def is_backbone(name: str) -> bool:
    """Returns whether `find` has a row, as far as this is known without TensorFlow."""
    return is_foreign(name) or name in BACKBONES


def find(name: str) -> Backbone:
    """Returns the row of `BACKBONES`, or that of a network of another package.

    Raises:
      UserError: if there is none.
    """
    if not is_foreign(name):
        return BACKBONES[name]
    # These load TensorFlow.
    from object_detection.models.backbones import keras_hub_networks, keras_networks

    kind, _, network = name.partition(':')
    rows = {KERAS: keras_networks.row, KERAS_HUB: keras_hub_networks.row}
    return rows[f'{kind}:'](network)
