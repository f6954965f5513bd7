"""Builds the resizer that an ImageResizer proto describes."""

from collections.abc import Sequence

from object_detection.config.oneof import build_named
from object_detection.errors import UserError, expected
from object_detection.protos import image_resizer_pb2
from object_detection.resizers import fixed_sizes, resizer
from object_detection.resizers.keep_aspect_ratio import KeepAspectRatioResizer
from object_detection.resizers.resizer import Resizer
from object_detection.resizers.value_range import ValueRange

METHODS = {
    image_resizer_pb2.BILINEAR: resizer.BILINEAR,
    image_resizer_pb2.NEAREST_NEIGHBOR: resizer.NEAREST_NEIGHBOR,
    image_resizer_pb2.BICUBIC: resizer.BICUBIC,
    image_resizer_pb2.AREA: resizer.AREA,
}

CONDITIONS = {
    image_resizer_pb2.ConditionalShapeResizer.GREATER: fixed_sizes.GREATER,
    image_resizer_pb2.ConditionalShapeResizer.SMALLER: fixed_sizes.SMALLER,
}


def _keep_aspect_ratio(config: image_resizer_pb2.KeepAspectRatioResizer) -> Resizer:
    pad_size = (config.pad_height, config.pad_width)
    drawn = config.min_dimension_range
    return KeepAspectRatioResizer(
        min_dimension=config.min_dimension,
        max_dimension=config.max_dimension,
        pad_to_max_dimension=config.pad_to_max_dimension,
        pad_size=pad_size if any(pad_size) else None,
        min_dimension_range=(
            (drawn.min, drawn.max) if config.HasField('min_dimension_range') else None
        ),
        round_down=config.round_down,
        method=METHODS[config.resize_method],
        half_pixel_centers=config.half_pixel_centers,
        convert_to_grayscale=config.convert_to_grayscale,
        pad_values=tuple(config.per_channel_pad_value),
    )


def _fixed_shape(config: image_resizer_pb2.FixedShapeResizer) -> Resizer:
    return fixed_sizes.FixedShapeResizer(
        height=config.height,
        width=config.width,
        method=METHODS[config.resize_method],
        half_pixel_centers=config.half_pixel_centers,
        convert_to_grayscale=config.convert_to_grayscale,
    )


def _conditional_shape(config: image_resizer_pb2.ConditionalShapeResizer) -> Resizer:
    if config.condition not in CONDITIONS:
        raise expected(f'{config.DESCRIPTOR.full_name}.condition', 'GREATER or SMALLER', 'INVALID')
    return fixed_sizes.ConditionalShapeResizer(
        condition=CONDITIONS[config.condition],
        size_threshold=config.size_threshold,
        method=METHODS[config.resize_method],
        convert_to_grayscale=config.convert_to_grayscale,
    )


def _pad_to_multiple(config: image_resizer_pb2.PadToMultipleResizer) -> Resizer:
    return fixed_sizes.PadToMultipleResizer(
        multiple=config.multiple, convert_to_grayscale=config.convert_to_grayscale
    )


BUILDERS = {
    'keep_aspect_ratio_resizer': _keep_aspect_ratio,
    'fixed_shape_resizer': _fixed_shape,
    'identity_resizer': lambda config: fixed_sizes.IdentityResizer(),
    'conditional_shape_resizer': _conditional_shape,
    'pad_to_multiple_resizer': _pad_to_multiple,
}


def build(
    config: image_resizer_pb2.ImageResizer, buckets: Sequence[tuple[int, int]] = ()
) -> Resizer:
    """Builds the resizer of `config` (an `ImageResizer` message).

    Args:
      config: message of the model.
      buckets: (height, width) of the sizes to pad images to, in place of the size of `config`; ()
        keeps the size of `config`.

    Raises:
      ValueError: if the resizer cannot be built or does not support buckets, or `value_range` is
        no range.
    """
    resizer = build_named(config, 'image_resizer_oneof', BUILDERS)
    if buckets:
        resizer = _with_buckets(resizer, config, buckets)
    resizer.value_range = ValueRange.of(config)
    return resizer


def _with_buckets(
    resizer: Resizer, config: image_resizer_pb2.ImageResizer, buckets: Sequence[tuple[int, int]]
) -> Resizer:
    if not isinstance(resizer, KeepAspectRatioResizer):
        raise UserError(
            'aspect_ratio_buckets: expected keep_aspect_ratio_resizer as the image_resizer of the '
            f'model. Received: {config.WhichOneof("image_resizer_oneof")}.'
        )
    return resizer.with_buckets(buckets)
