"""The networks of Faster R-CNN around the cropping of proposals.

Feature extractors of Faster R-CNN by their `type` in configs.
"""

import dataclasses
from collections.abc import Collection
from typing import Any

import keras
import tensorflow as tf

from object_detection.errors import UserError
from object_detection.models import feature_extractor, resnet_options
from object_detection.models.backbones import inception_resnet_v2, inception_v2, resnet_v1
from object_detection.models.convolutions import Dense
from object_detection.models.feature_extractor import (
    ExtractorOptions,
    ExtractorType,
    FeatureExtractor,
    scale_to_unit,
)
from object_detection.models.hyperparams import LayerHyperparams
from object_detection.models.necks import fpn


class TwoStageFeatureExtractor(FeatureExtractor):
    """A feature extractor of one stack, and a network over crops of its maps.

    Args:
      box_classifier: layer from crops [N, h, w, C] to features [N, h', w', C'].
      **options: arguments of `FeatureExtractor`.
    """

    def __init__(self, *, box_classifier: keras.layers.Layer, **options):
        super().__init__(**options)
        self.box_classifier = box_classifier

    def with_box_classifier(self, layer: keras.layers.Layer) -> 'TwoStageFeatureExtractor':
        """Returns an extractor of the same networks with another layer over the crops."""
        return TwoStageFeatureExtractor(
            backbone=self.backbone,
            strides=self.strides,
            pyramid=self.pyramid,
            box_classifier=layer,
            pad_to_multiple=self.pad_to_multiple,
            normalize=self._normalize,
            name=self.name,
        )

    def parts(self) -> dict[str, keras.layers.Layer]:
        """Returns the layers with the variables: backbone, fpn (if any), box_classifier."""
        return super().parts() | {'box_classifier': self.box_classifier}

    def proposal_features(self, images: tf.Tensor, training: bool = False) -> list[tf.Tensor]:
        """Returns the feature maps for the prediction of proposals and for their crops.

        Args:
          images: float32 [B, H, W, 3], normalised.
          training: whether batch norms that are not frozen use and update batch statistics.

        Returns:
          One map per level, finest first; see `feature_stacks`.
        """
        (maps,) = self.feature_stacks(images, training)
        return maps

    def box_classifier_features(self, crops: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Returns the features [N, h', w', C'] of crops [N, h, w, C] of the feature maps."""
        return self.box_classifier(crops, training=training)


class FullyConnectedBoxClassifier(keras.layers.Layer):
    """Two fully connected layers over a crop of a pyramid, with a norm in between.

    Maps [N, h, w, C], of static h, w and C, to [N, 1, 1, depth]. The dense layers are not
    penalised; `hyperparams` only apply to the norm.
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
        self._first = Dense(depth, activation='relu', name='dense_1')
        self._norm = hyperparams.norm(frozen=not batch_norm_trainable, name='dense_1_bn')
        self._second = Dense(depth, activation='relu', name='dense_2')
        self._depth = depth

    def build(self, crops_shape):
        _, height, width, channels = crops_shape
        if None in (height, width, channels):
            raise UserError(
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


@dataclasses.dataclass(frozen=True)
class PyramidOptions:
    """Options of a config for a pyramid.

    Attributes:
      levels: (min, max); level l has stride 2**l.
      depth: number of channels of all levels.
      network: options of the network.
    """

    levels: tuple[int, int] = (2, 6)
    depth: int = 256
    network: fpn.Options = dataclasses.field(default_factory=fpn.Options)


@dataclasses.dataclass(frozen=True)
class TwoStageOptions(ExtractorOptions):
    """Options of a config for a feature extractor of Faster R-CNN.

    Attributes:
      stride: stride of the single feature map of extractors without a pyramid.
      pyramid: None if the config does not describe it.
      box_head_depth: units of the fully connected layers over a pyramid's crops; None is 1024.
    """

    stride: int = 16
    pyramid: PyramidOptions | None = None
    box_head_depth: int | None = None


def _common(options: TwoStageOptions, default: LayerHyperparams) -> dict[str, Any]:
    """Returns the common arguments of the components of an Inception network."""
    return {
        'hyperparams': options.backbone_hyperparams(default),
        'batch_norm_trainable': options.batch_norm_trainable,
    }


def _check_single_map(options: TwoStageOptions, *, strides: Collection[int]) -> None:
    """Checks the options of an extractor without a pyramid."""
    if options.stride not in strides:
        raise UserError(
            f'first_stage_features_stride: expected {" or ".join(map(str, strides))}. '
            f'Received: {options.stride}.'
        )
    levels = options.pyramid and options.pyramid.levels
    for field, value in (('levels', levels), ('box_head_depth', options.box_head_depth)):
        if value is not None:
            raise UserError(
                'A feature extractor without a pyramid has neither `fpn` nor `box_head_depth`. '
                f'Received: {field} = {value}.'
            )
    if options.hyperparams is not None and not options.override_backbone:
        raise UserError(
            'A feature extractor without a pyramid uses `conv_hyperparams` only with '
            '`override_base_feature_extractor_hyperparams: true`. Received: false.'
        )


def _check_pyramid(options: TwoStageOptions) -> None:
    """Checks the options of an extractor with a pyramid on ResNet v1."""
    if options.hyperparams is None:
        raise UserError(
            'A feature extractor with a pyramid needs `conv_hyperparams`. Received: none.'
        )
    if options.stride not in (8, 16):
        raise UserError(
            f'first_stage_features_stride: expected 8 or 16. Received: {options.stride}.'
        )
    pyramid = options.pyramid or PyramidOptions()
    low, high = pyramid.levels
    if not (resnet_v1.FIRST_LEVEL <= low <= min(high, resnet_v1.LAST_LEVEL)):
        raise UserError(
            f'fpn: expected {resnet_v1.FIRST_LEVEL} <= min_level <= {resnet_v1.LAST_LEVEL} and '
            f'min_level <= max_level. Received: min_level {low}, max_level {high}.'
        )
    depths = {
        'fpn.num_filters or additional_layer_depth': pyramid.depth,
        'box_head_depth': options.box_head_depth,
    }
    for field, depth in depths.items():
        if depth is not None and depth < 1:
            raise UserError(f'{field}: expected at least 1. Received: {depth}.')
    resnet_options.check_resnet(options, min(high, resnet_v1.LAST_LEVEL))
    # With this multiple, every level up to the top of the backbone is half the one before.
    multiple = 2 ** min(high, resnet_v1.LAST_LEVEL)
    if _pyramid_padding(options) % multiple:
        raise UserError(
            f'pad_to_multiple: expected a multiple of {multiple}, the stride of the coarsest map '
            f'of the backbone. Received: {options.pad_to_multiple}.'
        )


def _pyramid_padding(options: TwoStageOptions) -> int:
    return 32 if options.pad_to_multiple is None else options.pad_to_multiple


def _resnet_v1_fpn(depth: int) -> ExtractorType:
    """Returns the row of a ResNet with a pyramid and dense layers over the crops of its levels."""

    def build(options: TwoStageOptions) -> TwoStageFeatureExtractor:
        pyramid = options.pyramid or PyramidOptions()
        min_level, max_level = pyramid.levels
        top_level = min(max_level, resnet_v1.LAST_LEVEL)
        backbone_levels = range(min_level, top_level + 1)
        common = {
            'hyperparams': resnet_options.with_freezing(options.hyperparams, options),
            'batch_norm_trainable': options.batch_norm_trainable,
        }
        return TwoStageFeatureExtractor(
            backbone=resnet_v1.trunk(
                depth,
                levels=backbone_levels,
                name='backbone',
                **resnet_options.network_options(options, resnet_v1.default_hyperparams(1e-4)),
            ),
            pyramid=fpn.feature_pyramid(
                [resnet_v1.stage_channels(depth, level) for level in backbone_levels],
                min_level=min_level,
                depth=pyramid.depth,
                num_coarse_levels=max_level - top_level,
                name='fpn',
                options=pyramid.network,
                **common,
            ),
            box_classifier=FullyConnectedBoxClassifier(
                1024 if options.box_head_depth is None else options.box_head_depth, **common
            ),
            strides=[2**level for level in range(min_level, max_level + 1)],
            pad_to_multiple=_pyramid_padding(options),
            normalize=resnet_options.normalization(options),
        )

    return ExtractorType(build, _check_pyramid, resnet_options.ResnetOptions)


def _resnet_v1(depth: int, *, keeps_crops: bool) -> ExtractorType:
    """ResNet up to stage 4 for proposals, its stage 5 for the crops.

    Args:
      depth: of the network.
      keeps_crops: whether stage 5 has stride 1, as in the reference's networks of TensorFlow 1,
        and not 2.
    """

    def build(options: TwoStageOptions) -> TwoStageFeatureExtractor:
        common = resnet_options.network_options(options, resnet_v1.default_hyperparams(0.0))
        return TwoStageFeatureExtractor(
            backbone=resnet_v1.trunk(
                depth, levels=[4], stride=options.stride, name='backbone', **common
            ),
            box_classifier=resnet_v1.stage(
                depth, 5, keeps_resolution=keeps_crops, name='box_classifier', **common
            ),
            strides=[options.stride],
            pad_to_multiple=options.pad_to_multiple or 1,
            normalize=resnet_options.normalization(options),
        )

    def check(options: TwoStageOptions) -> None:
        _check_single_map(options, strides=(8, 16))
        resnet_options.check_resnet(options, top_level=4)

    return ExtractorType(build, check, resnet_options.ResnetOptions)


def _inception_resnet_v2(reduction_padding: str = 'same') -> ExtractorType:
    """Inception-ResNet v2 up to the 17 x 17 blocks for proposals, the rest for the crops."""

    def build(options: TwoStageOptions) -> TwoStageFeatureExtractor:
        common = _common(options, inception_resnet_v2.default_hyperparams())
        return TwoStageFeatureExtractor(
            backbone=inception_resnet_v2.trunk(stride=options.stride, name='backbone', **common),
            box_classifier=inception_resnet_v2.stage(
                reduction_padding=reduction_padding, name='box_classifier', **common
            ),
            strides=[options.stride],
            pad_to_multiple=options.pad_to_multiple or 1,
            normalize=scale_to_unit,
        )

    def check(options: TwoStageOptions) -> None:
        _check_single_map(options, strides=inception_resnet_v2.STRIDES)

    return ExtractorType(build, check)


def _inception_v2() -> ExtractorType:
    """Inception v2 up to Mixed_4e for proposals, Mixed_5a to 5c for the crops."""

    def build(options: TwoStageOptions) -> TwoStageFeatureExtractor:
        common = _common(options, inception_v2.default_hyperparams())
        return TwoStageFeatureExtractor(
            backbone=inception_v2.trunk(name='backbone', **common),
            box_classifier=inception_v2.stage(name='box_classifier', **common),
            strides=[16],
            pad_to_multiple=options.pad_to_multiple or 1,
            normalize=scale_to_unit,
        )

    def check(options: TwoStageOptions) -> None:
        _check_single_map(options, strides=inception_v2.STRIDES)

    return ExtractorType(build, check)


FASTER_RCNN: dict[str, ExtractorType] = {
    'faster_rcnn_resnet18_fpn_keras': _resnet_v1_fpn(18),
    'faster_rcnn_resnet34_fpn_keras': _resnet_v1_fpn(34),
    'faster_rcnn_resnet50_fpn_keras': _resnet_v1_fpn(50),
    'faster_rcnn_resnet101_fpn_keras': _resnet_v1_fpn(101),
    'faster_rcnn_resnet152_fpn_keras': _resnet_v1_fpn(152),
    'faster_rcnn_resnet200_fpn_keras': _resnet_v1_fpn(200),
    'faster_rcnn_resnet50_keras': _resnet_v1(50, keeps_crops=False),
    'faster_rcnn_resnet101_keras': _resnet_v1(101, keeps_crops=False),
    'faster_rcnn_resnet152_keras': _resnet_v1(152, keeps_crops=False),
    'faster_rcnn_inception_resnet_v2_keras': _inception_resnet_v2(),
    # Networks of the reference implementation under TensorFlow 1.
    'faster_rcnn_resnet50': _resnet_v1(50, keeps_crops=True),
    'faster_rcnn_resnet101': _resnet_v1(101, keeps_crops=True),
    'faster_rcnn_resnet152': _resnet_v1(152, keeps_crops=True),
    'faster_rcnn_inception_v2': _inception_v2(),
    'faster_rcnn_inception_resnet_v2': _inception_resnet_v2('valid'),
}


def build_faster_rcnn(type_name: str, options: TwoStageOptions) -> TwoStageFeatureExtractor:
    """Builds the feature extractor that `type_name` names.

    Raises:
      ValueError: in the cases of `check_faster_rcnn`.
    """
    return feature_extractor.build(FASTER_RCNN, type_name, options)


def check_faster_rcnn(type_name: str, options: TwoStageOptions) -> None:
    """Checks the arguments of `build_faster_rcnn` without building the extractor.

    Raises:
      ValueError: if there is no extractor of that name, or `options` do not fit it.
    """
    feature_extractor.check(FASTER_RCNN, type_name, options)
