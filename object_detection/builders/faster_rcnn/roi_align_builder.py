"""Builds the croppers that RoiAlign protos describe."""

from collections.abc import Sequence

from object_detection.core.roi_align import SampleGrid
from object_detection.errors import UserError
from object_detection.meta_architectures.faster_rcnn.croppers import LevelRule, RoiAlignCropper
from object_detection.protos.faster_rcnn_pb2 import FasterRcnn, RoiAlign

# Bins along each axis, where a message does not say it.
_OUTPUT_SIZES = {'roi_align': 7, 'mask_roi_align': 14}


def build(config: FasterRcnn, field: str, strides: Sequence[int]) -> RoiAlignCropper:
    """Builds the cropper of one field.

    Args:
      config: the model's message.
      field: 'roi_align' or 'mask_roi_align'.
      strides: of the feature maps, fine to coarse.

    Raises:
      ValueError: if a number is out of its range, or a level is none of the maps'.
    """
    message = getattr(config, field)

    def number(name: str, default: int) -> int:
        return getattr(message, name) if message.HasField(name) else default

    use_matmul = {
        RoiAlign.AUTO: config.use_matmul_crop_and_resize,
        RoiAlign.GATHER: False,
        RoiAlign.MATMUL: True,
    }
    size = number('output_size', _OUTPUT_SIZES[field])
    levels = [stride.bit_length() - 1 for stride in strides]
    try:
        return RoiAlignCropper(
            grid=SampleGrid(
                output_size=(size, size),
                sampling_ratio=message.sampling_ratio,
                offset=-0.5 if message.aligned else 0.0,
            ),
            rule=LevelRule(
                min_level=number('min_level', levels[0]),
                max_level=number('max_level', levels[-1]),
                canonical_level=message.canonical_level,
                canonical_size=message.canonical_size,
            ),
            strides=strides,
            use_matmul=use_matmul[message.impl],
        )
    except ValueError as error:
        raise UserError(f'{config.DESCRIPTOR.full_name}.{field}: {error}') from error
