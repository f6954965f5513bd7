"""Builds the data augmentation that PreprocessingStep protos describe."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import tensorflow as tf

from object_detection.builders.oneof import build_oneof
from object_detection.data.augmentation.colors import (
    RandomAdjustBrightness,
    RandomAdjustContrast,
    RandomAdjustHue,
    RandomAdjustSaturation,
    RandomDistortColor,
    RandomPixelValueScale,
    RandomRgbToGray,
)
from object_detection.data.augmentation.crop import RandomSquareCropByScale
from object_detection.data.augmentation.flip import RandomHorizontalFlip, RandomVerticalFlip
from object_detection.data.augmentation.labels import (
    ConvertClassLogitsToSoftmax,
    DropLabelProbabilistically,
    RemapLabels,
)
from object_detection.data.augmentation.pixels import (
    AdjustGamma,
    NormalizeImage,
    RgbToGray,
    SubtractChannelMean,
)
from object_detection.data.augmentation.resize import ResizeImage
from object_detection.data.augmentation.rotation import RandomRotation90
from object_detection.data.objects import Example
from object_detection.errors import UserError
from object_detection.protos import preprocessor_pb2
from object_detection.resizers import resizer
from object_detection.resizers.fixed_sizes import FixedShapeResizer

Augmentation = Callable[[Example, tf.Tensor], Example]

# Steps that read labels alone, and therefore run before objects are counted and masks decoded.
_LABEL_STEPS = ('convert_class_logits_to_softmax', 'drop_label_probabilistically', 'remap_labels')

_METHODS = {
    preprocessor_pb2.ResizeImage.AREA: resizer.AREA,
    preprocessor_pb2.ResizeImage.BICUBIC: resizer.BICUBIC,
    preprocessor_pb2.ResizeImage.BILINEAR: resizer.BILINEAR,
    preprocessor_pb2.ResizeImage.NEAREST_NEIGHBOR: resizer.NEAREST_NEIGHBOR,
}


class Steps(NamedTuple):
    """The steps of a config in their order, divided into steps of labels and all other steps."""

    label_steps: tuple[Augmentation, ...]
    augmentations: tuple[Augmentation, ...]


def _random_horizontal_flip(config: preprocessor_pb2.RandomHorizontalFlip) -> Augmentation:
    return RandomHorizontalFlip(
        probability=config.probability,
        keypoint_permutation=tuple(config.keypoint_flip_permutation),
    )


def _random_vertical_flip(config: preprocessor_pb2.RandomVerticalFlip) -> Augmentation:
    return RandomVerticalFlip(
        probability=config.probability,
        keypoint_permutation=tuple(config.keypoint_flip_permutation),
    )


def _random_rotation90(config: preprocessor_pb2.RandomRotation90) -> Augmentation:
    return RandomRotation90(
        probability=config.probability,
        keypoint_permutation=tuple(config.keypoint_rot_permutation),
    )


def _normalize_image(config: preprocessor_pb2.NormalizeImage) -> Augmentation:
    return NormalizeImage(
        original_minval=config.original_minval,
        original_maxval=config.original_maxval,
        target_minval=config.target_minval,
        target_maxval=config.target_maxval,
    )


def _resize_image(config: preprocessor_pb2.ResizeImage) -> Augmentation:
    if config.new_height < 1 or config.new_width < 1:
        raise UserError(
            'resize_image: expected a positive new_height and new_width. '
            f'Received: {config.new_height} and {config.new_width}.'
        )
    return ResizeImage(
        FixedShapeResizer(
            height=config.new_height, width=config.new_width, method=_METHODS[config.method]
        )
    )


def _subtract_channel_mean(config: preprocessor_pb2.SubtractChannelMean) -> Augmentation:
    return SubtractChannelMean(means=tuple(config.means))


def _rgb_to_gray(config: preprocessor_pb2.RGBtoGray) -> Augmentation:
    del config  # The message has no fields.
    return RgbToGray()


def _adjust_gamma(config: preprocessor_pb2.AdjustGamma) -> Augmentation:
    return AdjustGamma(gamma=config.gamma, gain=config.gain)


def _random_pixel_value_scale(config: preprocessor_pb2.RandomPixelValueScale) -> Augmentation:
    return RandomPixelValueScale(minval=config.minval, maxval=config.maxval)


def _random_rgb_to_gray(config: preprocessor_pb2.RandomRGBtoGray) -> Augmentation:
    return RandomRgbToGray(probability=config.probability)


def _random_adjust_brightness(config: preprocessor_pb2.RandomAdjustBrightness) -> Augmentation:
    return RandomAdjustBrightness(max_delta=config.max_delta)


def _random_adjust_contrast(config: preprocessor_pb2.RandomAdjustContrast) -> Augmentation:
    return RandomAdjustContrast(min_delta=config.min_delta, max_delta=config.max_delta)


def _random_adjust_hue(config: preprocessor_pb2.RandomAdjustHue) -> Augmentation:
    return RandomAdjustHue(max_delta=config.max_delta)


def _random_adjust_saturation(config: preprocessor_pb2.RandomAdjustSaturation) -> Augmentation:
    return RandomAdjustSaturation(min_delta=config.min_delta, max_delta=config.max_delta)


def _random_distort_color(config: preprocessor_pb2.RandomDistortColor) -> Augmentation:
    return RandomDistortColor(color_ordering=config.color_ordering)


def _random_square_crop_by_scale(
    config: preprocessor_pb2.RandomSquareCropByScale,
) -> Augmentation:
    return RandomSquareCropByScale(
        max_border=config.max_border,
        scale_min=config.scale_min,
        scale_max=config.scale_max,
        num_scales=config.num_scales,
    )


def _convert_class_logits_to_softmax(
    config: preprocessor_pb2.ConvertClassLogitsToSoftmax,
) -> Augmentation:
    return ConvertClassLogitsToSoftmax(temperature=config.temperature)


def _drop_label_probabilistically(
    config: preprocessor_pb2.DropLabelProbabilistically,
) -> Augmentation:
    return DropLabelProbabilistically(label=config.label, drop_probability=config.drop_probability)


def _remap_labels(config: preprocessor_pb2.RemapLabels) -> Augmentation:
    return RemapLabels(original_labels=tuple(config.original_labels), new_label=config.new_label)


BUILDERS = {
    'adjust_gamma': _adjust_gamma,
    'convert_class_logits_to_softmax': _convert_class_logits_to_softmax,
    'drop_label_probabilistically': _drop_label_probabilistically,
    'normalize_image': _normalize_image,
    'random_adjust_brightness': _random_adjust_brightness,
    'random_adjust_contrast': _random_adjust_contrast,
    'random_adjust_hue': _random_adjust_hue,
    'random_adjust_saturation': _random_adjust_saturation,
    'random_distort_color': _random_distort_color,
    'random_horizontal_flip': _random_horizontal_flip,
    'random_pixel_value_scale': _random_pixel_value_scale,
    'random_rgb_to_gray': _random_rgb_to_gray,
    'random_rotation90': _random_rotation90,
    'random_square_crop_by_scale': _random_square_crop_by_scale,
    'random_vertical_flip': _random_vertical_flip,
    'remap_labels': _remap_labels,
    'resize_image': _resize_image,
    'rgb_to_gray': _rgb_to_gray,
    'subtract_channel_mean': _subtract_channel_mean,
}


def build(config: preprocessor_pb2.PreprocessingStep) -> Augmentation:
    """Builds one step, a function (example, seed int [2]) -> example.

    Raises:
      ValueError: if no step is set, or the step is not supported; the message names it.
    """
    return build_oneof(config, 'preprocessing_step', BUILDERS)


def build_all(configs: Iterable[preprocessor_pb2.PreprocessingStep]) -> Steps:
    """Builds the steps of a config.

    Steps of labels may always run first, since no other step reads or changes a label.

    Raises:
      ValueError: in the cases of `build`.
    """
    label_steps, augmentations = [], []
    for config in configs:
        is_of_labels = config.WhichOneof('preprocessing_step') in _LABEL_STEPS
        (label_steps if is_of_labels else augmentations).append(build(config))
    return Steps(tuple(label_steps), tuple(augmentations))
