"""The rows of the built-in backbones; `table` names them."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from object_detection.models.backbones import (
    efficientnet,
    hourglass,
    inception_resnet_v2,
    inception_v2,
    mobilenet,
    mobilenet_v2,
    resnet_v1,
    resnet_v2,
)
from object_detection.models.backbones.table import Backbone, BackboneOptions
from object_detection.models.hyperparams import LayerHyperparams
from object_detection.models.image_values import (
    Preprocess,
    caffe,
    scale_to_unit,
    subtract_means,
    to_unit,
)
from object_detection.models.normalization import BatchNormParams

_NAME, _CROP_STAGE_NAME = 'backbone', 'box_classifier'
_LEVELS = range(2, 6)
# Channels at the end of a MobileNet under a pyramid with separable convolutions.
_THIN_V1, _THIN_V2 = (512, 256), 256
# Of the reference's CenterNet: networks of keras.applications, whose convolutions have a bias
# although a norm follows.
_BIASED = LayerHyperparams(
    batch_norm=BatchNormParams(momentum=0.99, epsilon=1.001e-5, scale=True), force_use_bias=True
)
_CENTER_NET_MOBILENET = LayerHyperparams(
    activation='relu6', batch_norm=BatchNormParams(momentum=0.999, epsilon=1e-3, scale=True)
)
# Statistics of ImageNet.
_IMAGENET = Preprocess(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), scale=1 / 255)
_FACTORS = ('depth_multiplier', 'min_depth')
# Of a ResNet v1, beyond those: of the network, of its norms and of its images.
_RESNET = ('stride_in_1x1', 'padding_mode', 'frozen_stages', 'freeze_affine', 'preprocess')
# Factor of the sum of squares of a backbone under TensorFlow 1: TF-Slim's weight decay is 1e-4, and
# its penalty is half of the sum of squares.
_SLIM_PENALTY = 0.5 * 1e-4


def _common(options: BackboneOptions, name: str = _NAME) -> dict[str, Any]:
    return {
        'hyperparams': options.hyperparams,
        'batch_norm_trainable': options.batch_norm_trainable,
        'name': name,
    }


def _resnet_v1(depth: int, penalty: float, strides: Sequence[int] = (8, 16)) -> Backbone:
    def trunk(levels: Sequence[int], options: BackboneOptions) -> keras.Model:
        return resnet_v1.trunk(
            depth,
            levels=levels,
            stride=options.stride,
            options=network_options(options),
            **_common(options),
        )

    def crop_stage(options: BackboneOptions) -> keras.Model:
        return resnet_v1.stage(
            depth,
            5,
            keeps_resolution=options.keeps_crops,
            options=network_options(options),
            **_common(options, _CROP_STAGE_NAME),
        )

    def network_options(options: BackboneOptions) -> resnet_v1.Options:
        return resnet_v1.Options(
            depth_multiplier=options.depth_multiplier,
            min_depth=options.min_depth,
            **options.settings,
        )

    # Without bottlenecks a stride has one place.
    unread = {'stride_in_1x1'} if depth in (18, 34) else set()
    return Backbone(
        trunk,
        _LEVELS,
        subtract_means,
        resnet_v1.default_hyperparams(penalty),
        uses=frozenset((*_FACTORS, *_RESNET)) - unread,
        crop_stage=crop_stage,
        strides=strides,
    )


def _biased_resnet(depth: int) -> Backbone:
    def trunk(levels: Sequence[int], options: BackboneOptions) -> keras.Model:
        return resnet_v1.trunk(
            depth,
            levels=levels,
            options=resnet_v1.Options(padding=resnet_v1.Padding.SYMMETRIC_ALL),
            **_common(options),
        )

    return Backbone(trunk, _LEVELS, caffe, _BIASED)


def _resnet_v2(depth: int, normalize: Callable[[tf.Tensor], tf.Tensor], levels: range) -> Backbone:
    def trunk(levels: Sequence[int], options: BackboneOptions) -> keras.Model:
        return resnet_v2.trunk(
            depth, stages=levels, batch_norm_trainable=options.batch_norm_trainable, name=_NAME
        )

    return Backbone(trunk, levels, normalize, resnet_v2.HYPERPARAMS)


RESNET_V1_18 = _resnet_v1(18, 1e-4)
RESNET_V1_34 = _resnet_v1(34, 1e-4)
RESNET_V1_50 = _resnet_v1(50, 1e-4)
RESNET_V1_101 = _resnet_v1(101, 1e-4)
RESNET_V1_152 = _resnet_v1(152, 1e-4)
RESNET_V1_200 = _resnet_v1(200, 1e-4)
RESNET_V1_50_SLIM = _resnet_v1(50, _SLIM_PENALTY)
RESNET_V1_101_SLIM = _resnet_v1(101, _SLIM_PENALTY)
RESNET_V1_152_SLIM = _resnet_v1(152, _SLIM_PENALTY)
RESNET_V1_50_UNPENALIZED = _resnet_v1(50, 0.0)
RESNET_V1_101_UNPENALIZED = _resnet_v1(101, 0.0)
RESNET_V1_152_UNPENALIZED = _resnet_v1(152, 0.0)
RESNET_V1_18_BIASED = _resnet_v2(18, caffe, _LEVELS)
RESNET_V1_34_BIASED = _resnet_v2(34, caffe, _LEVELS)
RESNET_V1_50_BIASED = _biased_resnet(50)
RESNET_V1_101_BIASED = _biased_resnet(101)
# Their strides are at the ends of stages, and the last stage has none.
RESNET_V2_50 = _resnet_v2(50, to_unit, range(5, 6))
RESNET_V2_101 = _resnet_v2(101, to_unit, range(5, 6))


def _mobilenet_arguments(options: BackboneOptions) -> dict[str, Any]:
    network = mobilenet.Options(
        depth_multiplier=options.depth_multiplier,
        min_depth=options.min_depth,
        explicit_padding=options.explicit_padding,
    )
    return {'options': network, **_common(options)}


def _mobilenet_v1(*, squares_multiplier: bool) -> Backbone:
    def trunk(levels: Sequence[int], options: BackboneOptions) -> keras.Model:
        return mobilenet.trunk(
            [mobilenet.LEVELS[level] for level in levels],
            squares_multiplier=squares_multiplier,
            last_filters=_THIN_V1 if options.is_thin else None,
            **_mobilenet_arguments(options),
        )

    return _mobilenet(trunk)


def _mobilenet_v2(outputs: dict[int, str], *, thins: bool = False) -> Backbone:
    def trunk(levels: Sequence[int], options: BackboneOptions) -> keras.Model:
        thin = {'last_filters': _THIN_V2} if thins and options.is_thin else {}
        return mobilenet_v2.trunk(
            [outputs[level] for level in levels], **_mobilenet_arguments(options), **thin
        )

    return _mobilenet(trunk)


def _mobilenet(trunk: Callable[[Sequence[int], BackboneOptions], keras.Model]) -> Backbone:
    return Backbone(
        trunk,
        _LEVELS,
        scale_to_unit,
        mobilenet.default_hyperparams(),
        uses=frozenset((*_FACTORS, 'use_explicit_padding')),
    )


MOBILENET_V1 = _mobilenet_v1(squares_multiplier=True)
MOBILENET_V1_SLIM = _mobilenet_v1(squares_multiplier=False)
MOBILENET_V2 = _mobilenet_v2(mobilenet_v2.LEVELS)
MOBILENET_V2_SLIM = _mobilenet_v2(mobilenet_v2.LEVELS, thins=True)
MOBILENET_V2_EXPANDED = _mobilenet_v2(mobilenet_v2.LEVELS | {4: mobilenet_v2.BEFORE_LAST_STRIDE})
MOBILENET_V2_CENTER_NET = dataclasses.replace(
    _mobilenet_v2(mobilenet_v2.LEVELS | {4: 'block_9'}),
    normalize=to_unit,
    hyperparams=_CENTER_NET_MOBILENET,
    uses=frozenset({'depth_multiplier'}),
)


def _efficientnet(size: int) -> Backbone:
    default = efficientnet.default_hyperparams()

    def trunk(levels: Sequence[int], options: BackboneOptions) -> keras.Model:
        # As in the reference, a config that overrides the hyperparameters determines the penalty
        # alone: norms, initializers and activations are always those of EfficientNet.
        return efficientnet.trunk(
            size,
            levels=levels,
            hyperparams=dataclasses.replace(default, regularizer=options.hyperparams.regularizer),
            batch_norm_trainable=options.batch_norm_trainable,
            name=_NAME,
        )

    levels = range(min(efficientnet.LEVELS), max(efficientnet.LEVELS) + 1)
    return Backbone(trunk, levels, _IMAGENET, default)


EFFICIENTNET_B0 = _efficientnet(0)
EFFICIENTNET_B1 = _efficientnet(1)
EFFICIENTNET_B2 = _efficientnet(2)
EFFICIENTNET_B3 = _efficientnet(3)
EFFICIENTNET_B4 = _efficientnet(4)
EFFICIENTNET_B5 = _efficientnet(5)
EFFICIENTNET_B6 = _efficientnet(6)
EFFICIENTNET_B7 = _efficientnet(7)


def _inception_v2_trunk(levels: Sequence[int], options: BackboneOptions) -> keras.Model:
    del levels  # It has one.
    return inception_v2.trunk(**_common(options))


INCEPTION_V2 = Backbone(
    _inception_v2_trunk,
    range(4, 5),
    scale_to_unit,
    inception_v2.default_hyperparams(),
    crop_stage=lambda options: inception_v2.stage(**_common(options, _CROP_STAGE_NAME)),
    strides=inception_v2.STRIDES,
)


def _inception_resnet_v2(padding: str) -> Backbone:
    def trunk(levels: Sequence[int], options: BackboneOptions) -> keras.Model:
        stride = options.stride or 2 ** levels[-1]
        return inception_resnet_v2.trunk(stride=stride, **_common(options))

    def stage(options: BackboneOptions) -> keras.Model:
        common = _common(options, _CROP_STAGE_NAME)
        return inception_resnet_v2.stage(reduction_padding=padding, **common)

    return Backbone(
        trunk,
        range(4, 5),
        scale_to_unit,
        inception_v2.default_hyperparams(),
        crop_stage=stage,
        strides=inception_resnet_v2.STRIDES,
    )


INCEPTION_RESNET_V2 = _inception_resnet_v2('same')
INCEPTION_RESNET_V2_SLIM = _inception_resnet_v2('valid')


def _hourglass(depth: int) -> Backbone:
    variant = hourglass.VARIANTS[depth]

    def trunk(levels: Sequence[int], options: BackboneOptions) -> keras.Model:
        del levels  # It has one, in each stack.
        return hourglass.trunk(
            variant, batch_norm_trainable=options.batch_norm_trainable, name=_NAME
        )

    return Backbone(
        trunk,
        range(2, 3),
        tf.identity,
        hourglass.HYPERPARAMS,
        padding_multiple=hourglass.pad_multiple(variant),
    )


HOURGLASS_10 = _hourglass(10)
HOURGLASS_20 = _hourglass(20)
HOURGLASS_32 = _hourglass(32)
HOURGLASS_52 = _hourglass(52)
HOURGLASS_104 = _hourglass(104)
