"""Builds the data augmentation that PreprocessingStep protos describe."""

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from google.protobuf import text_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from object_detection.builders.training_rules import step_facts
from object_detection.config import ranges, walk
from object_detection.config.oneof import build_oneof
from object_detection.data.augmentation import (
    colors,
    labels,
    noise,
    padding,
    pixels,
    scale,
    symmetry,
)
from object_detection.data.augmentation.arrangement import RandomJitterBoxes, RandomSelfConcatImage
from object_detection.data.augmentation.choice import OneOf, WithProbability
from object_detection.data.augmentation.crop import RandomSquareCropByScale, SmallObjectCrop
from object_detection.data.augmentation.policies.autoaugment import AutoAugmentImage, RandAugment
from object_detection.data.augmentation.random_crop import (
    CropOperation,
    InOrder,
    RandomCrop,
    RandomCropToAspectRatio,
)
from object_detection.data.augmentation.several_images import CopyPaste, MixUp, Mosaic
from object_detection.data.augmentation.warp import RandomAffine
from object_detection.data.augmentation.zoom import LargeScaleJitter
from object_detection.data.objects import Example
from object_detection.errors import UserError, expected, raise_if_any
from object_detection.protos import options_pb2, preprocessor_pb2
from object_detection.protos.preprocessor_pb2 import PreprocessingStep
from object_detection.registry import Registry
from object_detection.resizers import resizer
from object_detection.resizers.fixed_sizes import FixedShapeResizer

# The operations of the SSD crops in configs that list none: each is a share of an object that the
# crop covers, and of each object that it keeps.
_COVERED = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
_PAD_COVERED = _COVERED[1:]


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


def _padding(config: Message, name: str, pad_color: tuple[float, ...]) -> padding.Padding:
    return padding.Padding(pad_color=pad_color, name=name, **_size_ratios(config))


def _size_ratios(config: Message) -> dict[str, tuple[float, ...]]:
    """Returns the ratios that a config sets."""
    ratios = {
        'min_padded_size_ratio': tuple(config.min_padded_size_ratio),
        'max_padded_size_ratio': tuple(config.max_padded_size_ratio),
    }
    return {field: values for field, values in ratios.items() if values}


def _random_crop_image(config: preprocessor_pb2.RandomCropImage) -> RandomCrop:
    return RandomCrop((_crop_operation(config, 'random_crop_image'),))


def _random_crop_pad_image(config: preprocessor_pb2.RandomCropPadImage) -> padding.RandomCropPad:
    step = 'random_crop_pad_image'
    pads = (_padding(config, step, tuple(config.pad_color)),)
    return padding.RandomCropPad(RandomCrop((_crop_operation(config, step),)), pads)


def _random_pad_image(config: preprocessor_pb2.RandomPadImage) -> padding.RandomPadImage:
    return padding.RandomPadImage(
        min_size=_image_size(config, 'min_image_height', 'min_image_width'),
        max_size=_image_size(config, 'max_image_height', 'max_image_width'),
        pad_color=tuple(config.pad_color),
    )


def _image_size(config: Message, *fields: str) -> tuple[int, ...]:
    """Returns the height and width of two fields, or () if both are unset."""
    values = tuple(getattr(config, field) for field in fields if config.HasField(field))
    if len(values) == 1:
        raise expected('random_pad_image', f'both of {fields[0]} and {fields[1]}, or none', 'one')
    return values


def _ssd_random_crop_pad(config: preprocessor_pb2.SSDRandomCropPad) -> padding.RandomCropPad:
    step = 'ssd_random_crop_pad'
    crop = _random_crop(step, config.operations, covered=_PAD_COVERED)
    paddings = [
        _padding(
            each, f'{step}.operations[{i}]', (each.pad_color_r, each.pad_color_g, each.pad_color_b)
        )
        for i, each in enumerate(config.operations)
    ]
    return padding.RandomCropPad(
        crop, tuple(paddings) or (padding.Padding(),) * len(crop.operations)
    )


def _ssd_random_crop_fixed_aspect_ratio(
    config: preprocessor_pb2.SSDRandomCropFixedAspectRatio,
) -> InOrder:
    step = 'ssd_random_crop_fixed_aspect_ratio'
    # The second crop makes the shape exact, also of images that the first one leaves as they are;
    # as in the reference it always clips boxes.
    to_shape = RandomCropToAspectRatio(aspect_ratio=config.aspect_ratio, name=step)
    return InOrder((_random_crop(step, config.operations, config.aspect_ratio), to_shape))


def _ssd_random_crop_pad_fixed_aspect_ratio(
    config: preprocessor_pb2.SSDRandomCropPadFixedAspectRatio,
) -> InOrder:
    step = 'ssd_random_crop_pad_fixed_aspect_ratio'
    to_shape = padding.RandomPadToAspectRatio(
        aspect_ratio=config.aspect_ratio, name=step, **_size_ratios(config)
    )
    return InOrder((_random_crop(step, config.operations), to_shape))


Augmentation = Callable[..., Example]

_METHODS = {
    preprocessor_pb2.ResizeImage.AREA: resizer.AREA,
    preprocessor_pb2.ResizeImage.BICUBIC: resizer.BICUBIC,
    preprocessor_pb2.ResizeImage.BILINEAR: resizer.BILINEAR,
    preprocessor_pb2.ResizeImage.NEAREST_NEIGHBOR: resizer.NEAREST_NEIGHBOR,
}


class Steps(NamedTuple):
    """The steps of a config in their order, divided into steps of labels and all other steps.

    Steps of labels run before objects are counted and masks decoded.
    """

    label_steps: tuple[Augmentation, ...]
    augmentations: tuple[Augmentation, ...]


def _with_fields_of(step: type[Augmentation], config: Message) -> Augmentation:
    """Builds a step that is a dataclass, whose fields are those of its message."""
    fields = config.DESCRIPTOR.fields_by_name
    return step(
        **{
            field.name: _value(getattr(config, field.name), fields[field.name])
            for field in dataclasses.fields(step)
            if field.name in fields
        }
    )


def _value(value: Any, field: FieldDescriptor) -> Any:
    """Returns the value of a field: a tuple of a repeated one, the name of an enum's value."""
    if field.enum_type is not None:
        return field.enum_type.values_by_number[value].name
    return value if isinstance(value, bool | int | float | str) else tuple(value)


def _symmetry(step: type[symmetry.RandomSymmetry]) -> Callable[[Any], Augmentation]:
    """Returns the function from the message of a flip or rotation to the step."""
    return lambda config: step(
        probability=config.probability,
        keypoint_permutation=tuple(getattr(config, step.permutation_field)),
    )


def _resize_image(config: preprocessor_pb2.ResizeImage) -> Augmentation:
    return scale.ResizeImage(
        FixedShapeResizer(
            height=config.new_height, width=config.new_width, method=_METHODS[config.method]
        )
    )


def _one_of(config: preprocessor_pb2.OneOf) -> Augmentation:
    of_labels = [step for step in config.steps if step_facts(step).is_of_labels]
    if of_labels := [step.WhichOneof('preprocessing_step') for step in of_labels]:
        raise expected('one_of.steps', 'no steps of labels alone', ', '.join(of_labels))
    steps = []
    for index, step in enumerate(config.steps):
        try:
            steps.append(build(step))
        except UserError as error:
            raise UserError(f'one_of.steps[{index}]: {error}') from error
    return OneOf(tuple(steps), tuple(config.weights))


_STEPS: dict[str, Callable[[Any], Augmentation] | type[Augmentation]] = {
    'random_crop_image': _random_crop_image,
    'random_crop_pad_image': _random_crop_pad_image,
    'random_pad_image': _random_pad_image,
    'ssd_random_crop': lambda config: _random_crop('ssd_random_crop', config.operations),
    'ssd_random_crop_fixed_aspect_ratio': _ssd_random_crop_fixed_aspect_ratio,
    'ssd_random_crop_pad': _ssd_random_crop_pad,
    'ssd_random_crop_pad_fixed_aspect_ratio': _ssd_random_crop_pad_fixed_aspect_ratio,
    'adjust_gamma': pixels.AdjustGamma,
    'autoaugment_image': AutoAugmentImage,
    'convert_class_logits_to_softmax': labels.ConvertClassLogitsToSoftmax,
    'copy_paste': CopyPaste,
    'drop_label_probabilistically': labels.DropLabelProbabilistically,
    'gaussian_blur': noise.GaussianBlur,
    'motion_blur': noise.MotionBlur,
    'large_scale_jitter': LargeScaleJitter,
    'mix_up': MixUp,
    'mosaic': Mosaic,
    'normalize_image': pixels.NormalizeImage,
    'object_cutout': noise.ObjectCutout,
    'one_of': _one_of,
    'photometric_distortion': colors.PhotometricDistortion,
    'rand_augment': RandAugment,
    'random_absolute_pad_image': padding.RandomAbsolutePadImage,
    'random_adjust_brightness': colors.RandomAdjustBrightness,
    'random_adjust_contrast': colors.RandomAdjustContrast,
    'random_adjust_hue': colors.RandomAdjustHue,
    'random_adjust_saturation': colors.RandomAdjustSaturation,
    'random_affine': RandomAffine,
    'random_black_patches': noise.RandomBlackPatches,
    'random_crop_to_aspect_ratio': RandomCropToAspectRatio,
    'random_distort_color': colors.RandomDistortColor,
    'random_downscale_to_target_pixels': scale.RandomDownscaleToTargetPixels,
    'random_erasing': noise.RandomErasing,
    'random_horizontal_flip': _symmetry(symmetry.RandomHorizontalFlip),
    'random_image_scale': scale.RandomImageScale,
    'random_jitter_boxes': RandomJitterBoxes,
    'random_jpeg_quality': noise.RandomJpegQuality,
    'random_patch_gaussian': noise.RandomPatchGaussian,
    'random_pixel_value_scale': colors.RandomPixelValueScale,
    'random_resize_method': scale.RandomResizeMethod,
    'random_rgb_to_gray': colors.RandomRgbToGray,
    'random_rotation90': _symmetry(symmetry.RandomRotation90),
    'random_scale_crop_and_pad_to_square': scale.RandomScaleCropAndPadToSquare,
    'random_self_concat_image': RandomSelfConcatImage,
    'random_square_crop_by_scale': RandomSquareCropByScale,
    'random_vertical_flip': _symmetry(symmetry.RandomVerticalFlip),
    'remap_labels': labels.RemapLabels,
    'resize_image': _resize_image,
    'rgb_to_gray': lambda config: pixels.RgbToGray(),
    'small_object_crop': SmallObjectCrop,
    'subtract_channel_mean': pixels.SubtractChannelMean,
}
# Option of PreprocessingStep -> the step, a dataclass whose fields are those of its message, or a
# function from the message to the step. A step of a plug-in is a dataclass of its options.
AUGMENTATIONS: Registry[Callable[..., Augmentation]] = Registry('augmentation', _STEPS)


def build(config: preprocessor_pb2.PreprocessingStep) -> Augmentation:
    """Builds one step, a function (example, seed int [2]) -> example; see `choice.num_partners`.

    Raises:
      ValueError: if no step is set, the step is not supported, or a number is not finite or
        out of its range; the message names it.
    """
    raise_if_any(ranges.find(config).errors)
    for found in walk.set_fields(config):
        if isinstance(found.value, float) and not math.isfinite(found.value):
            raise UserError(f'{found.path}: expected a finite number. Received: {found.value:g}.')
    kind = config.WhichOneof('preprocessing_step')
    row = _STEPS.get(kind)
    if dataclasses.is_dataclass(row):
        step = _with_fields_of(row, getattr(config, kind))
    else:
        step = build_oneof(config, 'preprocessing_step', AUGMENTATIONS)
    return step if config.probability == 1 else WithProbability(step, config.probability)


def build_all(configs: Iterable[preprocessor_pb2.PreprocessingStep], step: int = 0) -> Steps:
    """Builds the steps of a config.

    Steps of labels may always run first, since no other step reads or changes a label.

    Args:
      configs: the steps.
      step: number of training steps done; augmentation steps that stop before the next one are
        left out.

    Raises:
      ValueError: in the cases of `build`.
    """
    label_steps, augmentations = [], []
    for config in configs:
        if 0 < config.stop_after_step <= step:
            continue
        is_of_labels = step_facts(config).is_of_labels
        (label_steps if is_of_labels else augmentations).append(build(config))
    return Steps(tuple(label_steps), tuple(augmentations))


_OPTIONS = PreprocessingStep.DESCRIPTOR.oneofs_by_name['preprocessing_step'].fields
# Step -> its fields in samples, where the defaults would change few images or none.
FIELDS: dict[str, str] = {
    field.name: sample
    for field in _OPTIONS
    if (sample := field.GetOptions().Extensions[options_pb2.step].sample)
}


def build_sample_steps(kind: str, fields: Mapping[str, str] = FIELDS) -> PreprocessingStep:
    """Returns the step `kind` with its fields in `fields`, a table of protobuf texts."""
    return text_format.Parse(f'{kind} {{ {fields.get(kind, "")} }}', PreprocessingStep())


def kinds() -> list[str]:
    """Returns the names of the steps of this package, in the order of their numbers."""
    numbers = {field.name: field.number for field in _OPTIONS}
    return sorted(_STEPS, key=numbers.__getitem__)
