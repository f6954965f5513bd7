"""Feature extractors of Faster R-CNN, by the `type` that a config names them with."""

import dataclasses
import difflib
from collections.abc import Callable, Sequence

import keras
import tensorflow as tf

from object_detection.core.shapes import dimensions
from object_detection.models import fpn
from object_detection.models.backbones import resnet_v1
from object_detection.models.hyperparams import LayerHyperparams

# Means of the ImageNet training images, RGB, as in the VGG paper (arXiv:1409.1556).
VGG_MEANS = (123.68, 116.779, 103.939)


@dataclasses.dataclass(frozen=True)
class ExtractorOptions:
    """What a config says about a feature extractor.

    Attributes:
      batch_norm_trainable: False freezes all batch norms of the extractor.
      hyperparams: set-up of the pyramid's layers; None if the config has none.
      override_backbone: whether `hyperparams` also hold for the backbone.
      stride: of the single feature map of extractors without a pyramid.
      pad_to_multiple: images are padded to a multiple of it; None is the extractor's default.
      levels: (min, max) of the pyramid; None is the default, 2 to 6.
      pyramid_depth: channels of the pyramid; None is the default, 256.
      box_head_depth: units of the fully connected layers over a pyramid's crops; None is 1024.
    """

    batch_norm_trainable: bool
    hyperparams: LayerHyperparams | None = None
    override_backbone: bool = False
    stride: int = 16
    pad_to_multiple: int | None = None
    levels: tuple[int, int] | None = None
    pyramid_depth: int | None = None
    box_head_depth: int | None = None


class FeatureExtractor(keras.layers.Layer):
    """The two networks of Faster R-CNN around the cropping of proposals.

    Args:
      backbone: model from images to a list of feature maps.
      box_classifier: layer from crops [N, h, w, C] to features [N, h', w', C'].
      levels: of the maps that `proposal_features` returns; level l has stride 2**l.
      pyramid: model from the backbone's maps to those maps; None returns the backbone's.
      pad_to_multiple: `proposal_features` pads images with zeros, bottom and right, to it.
      masks_use_roi_features: whether masks are predicted from the crops, not from what
        `box_classifier_features` makes of them.
    """

    def __init__(
        self,
        *,
        backbone: keras.Model,
        box_classifier: keras.layers.Layer,
        levels: Sequence[int],
        pyramid: keras.Model | None = None,
        pad_to_multiple: int = 1,
        masks_use_roi_features: bool = False,
        name: str = 'feature_extractor',
    ):
        super().__init__(name=name)
        self.backbone = backbone
        self.pyramid = pyramid
        self.box_classifier = box_classifier
        self.strides = [2**level for level in levels]
        self.pad_to_multiple = pad_to_multiple
        self.masks_use_roi_features = masks_use_roi_features

    @property
    def num_levels(self) -> int:
        return len(self.strides)

    def parts(self) -> dict[str, keras.layers.Layer]:
        """Returns the layers that hold the variables: backbone, fpn (if any), box_classifier."""
        parts = {'backbone': self.backbone, 'fpn': self.pyramid}
        parts['box_classifier'] = self.box_classifier
        return {name: part for name, part in parts.items() if part is not None}

    def normalize(self, images: tf.Tensor) -> tf.Tensor:
        """Subtracts the ImageNet means from float32 images [B, H, W, 3], RGB in 0..255."""
        return images - tf.constant(VGG_MEANS, images.dtype)

    def proposal_features(self, images: tf.Tensor, training: bool = False) -> list[tf.Tensor]:
        """Returns the feature maps that proposals are made from, and cropped from.

        Args:
          images: float32 [B, H, W, 3], normalised.
          training: whether batch norms that are not frozen use and update batch statistics.

        Returns:
          One map a level, finest first: [B, ceil(H' / stride), ceil(W' / stride), C], where
          (H', W') is (H, W) rounded up to a multiple of `pad_to_multiple`.
        """
        maps = self.backbone(_pad_to_multiple(images, self.pad_to_multiple), training=training)
        if self.pyramid is not None:
            maps = self.pyramid(maps, training=training)
        return tf.nest.flatten(maps)  # Keras unpacks lists of one output

    def box_classifier_features(self, crops: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Returns the features [N, h', w', C'] of crops [N, h, w, C] of the feature maps."""
        return self.box_classifier(crops, training=training)


class FullyConnectedBoxClassifier(keras.layers.Layer):
    """Two fully connected layers over a crop of a pyramid, with a norm in between.

    Maps [N, h, w, C], of static h, w and C, to [N, 1, 1, depth]. The dense layers are not
    penalised; `hyperparams` set up the norm alone.
    """

    def __init__(
        self,
        depth: int,
        *,
        hyperparams: LayerHyperparams,
        batch_norm_trainable: bool,
        name: str = 'box_classifier',
    ):
        super().__init__(name=name)
        self._first = keras.layers.Dense(depth, activation='relu', name='dense_1')
        self._norm = hyperparams.norm(frozen=not batch_norm_trainable, name='dense_1_bn')
        self._second = keras.layers.Dense(depth, activation='relu', name='dense_2')
        self._depth = depth

    def build(self, crops_shape):
        _, height, width, channels = crops_shape
        if None in (height, width, channels):
            raise ValueError(
                f'{self.name}: expected crops of static height, width and depth. '
                f'Received: shape {tuple(crops_shape)}.'
            )
        self._first.build((None, height * width * channels))
        self._norm.build((None, self._depth))
        self._second.build((None, self._depth))

    def call(self, crops, training=False):
        _, height, width, channels = crops.shape
        x = self._first(tf.reshape(crops, [-1, height * width * channels]))
        x = self._second(self._norm(x, training=training))
        return x[:, tf.newaxis, tf.newaxis, :]  # [N, 1, 1, depth]


def _resnet_v1_fpn(depth: int) -> Callable[[ExtractorOptions], FeatureExtractor]:
    """A row: ResNet with a feature pyramid; masks and boxes read the crops of its levels."""

    def build(options: ExtractorOptions) -> FeatureExtractor:
        if options.hyperparams is None:
            raise ValueError(
                'A feature extractor with a pyramid needs `conv_hyperparams`. Received: none.'
            )
        if options.stride not in (8, 16):
            raise ValueError(
                f'first_stage_features_stride: expected 8 or 16. Received: {options.stride}.'
            )
        min_level, max_level = _pyramid_levels(options.levels or (2, 6))
        top_level = min(max_level, resnet_v1.LAST_LEVEL)
        backbone_levels = range(min_level, top_level + 1)
        common = {
            'hyperparams': options.hyperparams,
            'batch_norm_trainable': options.batch_norm_trainable,
        }
        return FeatureExtractor(
            backbone=resnet_v1.trunk(
                depth,
                levels=backbone_levels,
                name='backbone',
                **(common | {'hyperparams': _backbone_hyperparams(options, weight_decay=1e-4)}),
            ),
            pyramid=fpn.feature_pyramid(
                [resnet_v1.stage_channels(depth, level) for level in backbone_levels],
                min_level=min_level,
                depth=256 if options.pyramid_depth is None else options.pyramid_depth,
                num_coarse_levels=max_level - top_level,
                name='fpn',
                **common,
            ),
            box_classifier=FullyConnectedBoxClassifier(
                1024 if options.box_head_depth is None else options.box_head_depth, **common
            ),
            levels=range(min_level, max_level + 1),
            pad_to_multiple=_pyramid_padding(options.pad_to_multiple, top_level),
            masks_use_roi_features=True,
        )

    return build


def _resnet_v1(depth: int) -> Callable[[ExtractorOptions], FeatureExtractor]:
    """A row: ResNet up to stage 4 for proposals, its stage 5 for the crops."""

    def build(options: ExtractorOptions) -> FeatureExtractor:
        if options.stride != 16:
            raise ValueError(
                f'first_stage_features_stride: expected 16. Received: {options.stride}.'
            )
        for field in ('levels', 'pyramid_depth', 'box_head_depth'):
            if getattr(options, field) is not None:
                raise ValueError(
                    'A feature extractor without a pyramid has neither `fpn` nor `box_head_depth`. '
                    f'Received: {field} = {getattr(options, field)}.'
                )
        if options.hyperparams is not None and not options.override_backbone:
            raise ValueError(
                'A feature extractor without a pyramid uses `conv_hyperparams` only with '
                '`override_base_feature_extractor_hyperparams: true`. Received: false.'
            )
        common = {
            'hyperparams': _backbone_hyperparams(options, weight_decay=0.0),
            'batch_norm_trainable': options.batch_norm_trainable,
        }
        return FeatureExtractor(
            backbone=resnet_v1.trunk(depth, levels=[4], name='backbone', **common),
            box_classifier=resnet_v1.stage(depth, 5, name='box_classifier', **common),
            levels=[4],
            pad_to_multiple=options.pad_to_multiple or 1,
        )

    return build


FASTER_RCNN: dict[str, Callable[[ExtractorOptions], FeatureExtractor]] = {
    'faster_rcnn_resnet18_fpn_keras': _resnet_v1_fpn(18),
    'faster_rcnn_resnet34_fpn_keras': _resnet_v1_fpn(34),
    'faster_rcnn_resnet50_fpn_keras': _resnet_v1_fpn(50),
    'faster_rcnn_resnet101_fpn_keras': _resnet_v1_fpn(101),
    'faster_rcnn_resnet152_fpn_keras': _resnet_v1_fpn(152),
    'faster_rcnn_resnet50_keras': _resnet_v1(50),
    'faster_rcnn_resnet101_keras': _resnet_v1(101),
    'faster_rcnn_resnet152_keras': _resnet_v1(152),
}


def build_faster_rcnn(type_name: str, options: ExtractorOptions) -> FeatureExtractor:
    """Builds the feature extractor that `type_name` names.

    Raises:
      ValueError: if there is none of that name, or `options` do not fit it.
    """
    if type_name not in FASTER_RCNN:
        near = difflib.get_close_matches(type_name, FASTER_RCNN, n=1, cutoff=0)
        raise ValueError(
            f'type: expected one of {", ".join(FASTER_RCNN)}. '
            f'Received: {type_name!r}; did you mean {near[0]!r}?'
        )
    return FASTER_RCNN[type_name](options)


def _backbone_hyperparams(options: ExtractorOptions, *, weight_decay: float) -> LayerHyperparams:
    if not options.override_backbone:
        return resnet_v1.default_hyperparams(weight_decay)
    if options.hyperparams is None:
        raise ValueError(
            '`override_base_feature_extractor_hyperparams: true` needs `conv_hyperparams`. '
            'Received: none.'
        )
    return options.hyperparams


def _pyramid_levels(levels: tuple[int, int]) -> tuple[int, int]:
    low, high = levels
    if not (resnet_v1.FIRST_LEVEL <= low <= min(high, resnet_v1.LAST_LEVEL)):
        raise ValueError(
            f'fpn: expected {resnet_v1.FIRST_LEVEL} <= min_level <= {resnet_v1.LAST_LEVEL} and '
            f'min_level <= max_level. Received: min_level {low}, max_level {high}.'
        )
    return low, high


def _pyramid_padding(pad_to_multiple: int | None, top_level: int) -> int:
    """The multiple at which every level down from `top_level` is half the one below."""
    pad_to_multiple = 32 if pad_to_multiple is None else pad_to_multiple
    if pad_to_multiple < 1 or pad_to_multiple % 2**top_level:
        raise ValueError(
            f'pad_to_multiple: expected a multiple of {2**top_level}, the stride of pyramid level '
            f'{top_level}. Received: {pad_to_multiple}.'
        )
    return pad_to_multiple


def _pad_to_multiple(images: tf.Tensor, multiple: int) -> tf.Tensor:
    """Pads [B, H, W, C] with zeros, bottom and right; static sizes stay static."""
    if multiple == 1:
        return images
    sizes = dimensions(images, 1, 2)
    pads = [[0, 0], *([0, -size % multiple] for size in sizes), [0, 0]]
    return tf.pad(images, pads)
