"""Builds the data augmentation that PreprocessingStep protos describe."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import tensorflow as tf
from google.protobuf.message import Message

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
from object_detection.data.augmentation.padding import (
    Padding,
    RandomAbsolutePadImage,
    RandomCropPad,
    RandomPadToAspectRatio,
)
from object_detection.data.augmentation.pixels import (
    AdjustGamma,
    NormalizeImage,
    RgbToGray,
    SubtractChannelMean,
)
from object_detection.data.augmentation.random_crop import (
    CropOperation,
    InOrder,
    RandomCrop,
    RandomCropToAspectRatio,
)
from object_detection.data.augmentation.resize import ResizeImage
from object_detection.data.augmentation.rotation import RandomRotation90
from object_detection.data.augmentation.scale import RandomScaleCropAndPadToSquare
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

# The operations of the SSD crops in configs that list none: each is a share of an object that the
# crop covers, and of each object that it keeps.
_COVERED = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
_PAD_COVERED = _COVERED[1:]


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


def _random_scale_crop_and_pad_to_square(
    config: preprocessor_pb2.RandomScaleCropAndPadToSquare,
) -> Augmentation:
    return RandomScaleCropAndPadToSquare(
        output_size=config.output_size, scale_min=config.scale_min, scale_max=config.scale_max
    )


def _random_absolute_pad_image(config: preprocessor_pb2.RandomAbsolutePadImage) -> Augmentation:
    return RandomAbsolutePadImage(
        max_height_padding=config.max_height_padding,
        max_width_padding=config.max_width_padding,
        pad_color=tuple(config.pad_color),
    )


def _crop_operation(
    config: Message, name: str, aspect_ratio_range: tuple[float, float] | None = None
) -> CropOperation:
    """Builds a crop from any message with its fields; a given range replaces that of the config."""
    return CropOperation(
        min_object_covered=config.min_object_covered,
        aspect_ratio_range=aspect_ratio_range or (config.min_aspect_ratio, config.max_aspect_ratio),
        area_range=(config.min_area, config.max_area),
        overlap_thresh=config.overlap_thresh,
        clip_boxes=config.clip_boxes,
        random_coef=config.random_coef,
        name=name,
    )


def _random_crop(
    step: str,
    configs: Sequence[Message],
    aspect_ratio: float | None = None,
    covered: tuple[float, ...] = _COVERED,
) -> RandomCrop:
    """Builds the crops of a list of operations, or those of the reference if it is empty."""
    fixed = aspect_ratio and (aspect_ratio, aspect_ratio)
    if configs:
        return RandomCrop(
            tuple(
                _crop_operation(config, f'{step}.operations[{i}]', fixed)
                for i, config in enumerate(configs)
            )
        )
    return RandomCrop(
        tuple(
            CropOperation(
                min_object_covered=share,
                aspect_ratio_range=fixed or (0.5, 2.0),
                overlap_thresh=share,
                random_coef=0.15,
                name=step,
            )
            for share in covered
        )
    )


def _padding(config: Message, name: str, pad_color: tuple[float, ...]) -> Padding:
    return Padding(pad_color=pad_color, name=name, **_size_ratios(config))


def _size_ratios(config: Message) -> dict[str, tuple[float, ...]]:
    """Returns the ratios that a config sets."""
    ratios = {
        'min_padded_size_ratio': tuple(config.min_padded_size_ratio),
        'max_padded_size_ratio': tuple(config.max_padded_size_ratio),
    }
    return {field: values for field, values in ratios.items() if values}


def _random_crop_image(config: preprocessor_pb2.RandomCropImage) -> Augmentation:
    return RandomCrop((_crop_operation(config, 'random_crop_image'),))


def _ssd_random_crop(config: preprocessor_pb2.SSDRandomCrop) -> Augmentation:
    return _random_crop('ssd_random_crop', config.operations)


def _ssd_random_crop_pad(config: preprocessor_pb2.SSDRandomCropPad) -> Augmentation:
    step = 'ssd_random_crop_pad'
    crop = _random_crop(step, config.operations, covered=_PAD_COVERED)
    paddings = [
        _padding(
            each, f'{step}.operations[{i}]', (each.pad_color_r, each.pad_color_g, each.pad_color_b)
        )
        for i, each in enumerate(config.operations)
    ]
    return RandomCropPad(crop, tuple(paddings) or (Padding(),) * len(crop.operations))


def _ssd_random_crop_fixed_aspect_ratio(
    config: preprocessor_pb2.SSDRandomCropFixedAspectRatio,
) -> Augmentation:
    step = 'ssd_random_crop_fixed_aspect_ratio'
    # The second crop makes the shape exact, also of images that the first one leaves as they are;
    # as in the reference it always clips boxes.
    to_shape = RandomCropToAspectRatio(aspect_ratio=config.aspect_ratio, name=step)
    return InOrder((_random_crop(step, config.operations, config.aspect_ratio), to_shape))


def _ssd_random_crop_pad_fixed_aspect_ratio(
    config: preprocessor_pb2.SSDRandomCropPadFixedAspectRatio,
) -> Augmentation:
    step = 'ssd_random_crop_pad_fixed_aspect_ratio'
    to_shape = RandomPadToAspectRatio(
        aspect_ratio=config.aspect_ratio, name=step, **_size_ratios(config)
    )
    return InOrder((_random_crop(step, config.operations), to_shape))


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
    'random_absolute_pad_image': _random_absolute_pad_image,
    'random_adjust_brightness': _random_adjust_brightness,
    'random_adjust_contrast': _random_adjust_contrast,
    'random_adjust_hue': _random_adjust_hue,
    'random_adjust_saturation': _random_adjust_saturation,
    'random_crop_image': _random_crop_image,
    'random_distort_color': _random_distort_color,
    'random_horizontal_flip': _random_horizontal_flip,
    'random_pixel_value_scale': _random_pixel_value_scale,
    'random_rgb_to_gray': _random_rgb_to_gray,
    'random_rotation90': _random_rotation90,
    'random_scale_crop_and_pad_to_square': _random_scale_crop_and_pad_to_square,
    'random_square_crop_by_scale': _random_square_crop_by_scale,
    'random_vertical_flip': _random_vertical_flip,
    'remap_labels': _remap_labels,
    'resize_image': _resize_image,
    'rgb_to_gray': _rgb_to_gray,
    'ssd_random_crop': _ssd_random_crop,
    'ssd_random_crop_fixed_aspect_ratio': _ssd_random_crop_fixed_aspect_ratio,
    'ssd_random_crop_pad': _ssd_random_crop_pad,
    'ssd_random_crop_pad_fixed_aspect_ratio': _ssd_random_crop_pad_fixed_aspect_ratio,
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
