"""Builds the random crops and borders of PreprocessingStep protos."""

from collections.abc import Sequence

from google.protobuf.message import Message

from object_detection.data.augmentation.padding import (
    Padding,
    RandomCropPad,
    RandomPadImage,
    RandomPadToAspectRatio,
)
from object_detection.data.augmentation.random_crop import (
    CropOperation,
    InOrder,
    RandomCrop,
    RandomCropToAspectRatio,
)
from object_detection.errors import UserError
from object_detection.protos import preprocessor_pb2

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


def _padding(config: Message, name: str, pad_color: tuple[float, ...]) -> Padding:
    return Padding(pad_color=pad_color, name=name, **_size_ratios(config))


def _size_ratios(config: Message) -> dict[str, tuple[float, ...]]:
    """Returns the ratios that a config sets."""
    ratios = {
        'min_padded_size_ratio': tuple(config.min_padded_size_ratio),
        'max_padded_size_ratio': tuple(config.max_padded_size_ratio),
    }
    return {field: values for field, values in ratios.items() if values}


def _random_crop_image(config: preprocessor_pb2.RandomCropImage) -> RandomCrop:
    return RandomCrop((_crop_operation(config, 'random_crop_image'),))


def _random_crop_pad_image(config: preprocessor_pb2.RandomCropPadImage) -> RandomCropPad:
    step = 'random_crop_pad_image'
    padding = _padding(config, step, tuple(config.pad_color))
    return RandomCropPad(RandomCrop((_crop_operation(config, step),)), (padding,))


def _random_pad_image(config: preprocessor_pb2.RandomPadImage) -> RandomPadImage:
    return RandomPadImage(
        min_size=_image_size(config, 'min_image_height', 'min_image_width'),
        max_size=_image_size(config, 'max_image_height', 'max_image_width'),
        pad_color=tuple(config.pad_color),
    )


def _image_size(config: Message, *fields: str) -> tuple[int, ...]:
    """Returns the height and width of two fields, or () if both are unset."""
    values = tuple(getattr(config, field) for field in fields if config.HasField(field))
    if len(values) == 1:
        raise UserError(
            f'random_pad_image: expected both of {fields[0]} and {fields[1]}, or none. '
            'Received: one.'
        )
    return values


def _ssd_random_crop(config: preprocessor_pb2.SSDRandomCrop) -> RandomCrop:
    return _random_crop('ssd_random_crop', config.operations)


def _ssd_random_crop_pad(config: preprocessor_pb2.SSDRandomCropPad) -> RandomCropPad:
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
    to_shape = RandomPadToAspectRatio(
        aspect_ratio=config.aspect_ratio, name=step, **_size_ratios(config)
    )
    return InOrder((_random_crop(step, config.operations), to_shape))


BUILDERS = {
    'random_crop_image': _random_crop_image,
    'random_crop_pad_image': _random_crop_pad_image,
    'random_pad_image': _random_pad_image,
    'ssd_random_crop': _ssd_random_crop,
    'ssd_random_crop_fixed_aspect_ratio': _ssd_random_crop_fixed_aspect_ratio,
    'ssd_random_crop_pad': _ssd_random_crop_pad,
    'ssd_random_crop_pad_fixed_aspect_ratio': _ssd_random_crop_pad_fixed_aspect_ratio,
}
