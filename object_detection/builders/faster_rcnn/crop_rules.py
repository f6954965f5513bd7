"""Rules of the crops that the second and third stages, and keypoints, are predicted from."""

import math
from collections.abc import Iterator

from object_detection.protos.faster_rcnn_pb2 import FasterRcnn

# Default number of bins along each axis.
OUTPUT_SIZES = {'roi_align': 7, 'mask_roi_align': 14, 'keypoint_roi_align': 14}
_POOLING = ('maxpool_kernel_size', 'maxpool_stride')


def check(config: FasterRcnn, root: str) -> Iterator[str]:
    """Yields the problems of the RoiAlign messages that are set."""
    for field in _set_fields(config):
        yield from _numbers(config, field, root)
    if config.HasField('roi_align'):
        for name in _POOLING:
            if config.HasField(name) and getattr(config, name) != 1:
                yield (
                    f'{root}.{name}: expected 1 or none, as the crops of {root}.roi_align are not '
                    f'pooled. Received: {getattr(config, name)}.'
                )


def check_levels(config: FasterRcnn, root: str, levels: tuple[int, int]) -> Iterator[str]:
    """Yields a sentence for each limit that is not a level of the feature maps.

    Args:
      config: the model's message.
      root: its path.
      levels: first and last level of the feature maps.
    """
    for field in _set_fields(config):
        message = getattr(config, field)
        low = message.min_level if message.HasField('min_level') else levels[0]
        high = message.max_level if message.HasField('max_level') else levels[1]
        if not levels[0] <= low <= high <= levels[1]:
            yield (
                f'{root}.{field}: expected {levels[0]} <= min_level <= max_level <= {levels[1]}, '
                f'the levels of the feature maps. Received: min_level {low}, max_level {high}.'
            )


def mask_crop_size(config: FasterRcnn) -> int | None:
    """Returns the side of the crops for masks; None if RoIAlign does not make them."""
    for field in ('mask_roi_align', 'roi_align'):
        if config.HasField(field):
            message = getattr(config, field)
            size = message.output_size if message.HasField('output_size') else OUTPUT_SIZES[field]
            return max(size, 1)
    return None


def _set_fields(config: FasterRcnn) -> list[str]:
    return [field for field in OUTPUT_SIZES if config.HasField(field)]


def _numbers(config: FasterRcnn, field: str, root: str) -> Iterator[str]:
    message, path = getattr(config, field), f'{root}.{field}'
    if message.HasField('output_size') and message.output_size < 1:
        yield f'{path}.output_size: expected at least 1. Received: {message.output_size}.'
    if message.sampling_ratio < 1:
        yield (
            f'{path}.sampling_ratio: expected at least 1; adaptive sampling, a number of samples '
            f'that depends on the region, is not built. Received: {message.sampling_ratio}.'
        )
    if not 0 < message.canonical_size < math.inf:
        yield f'{path}.canonical_size: expected above 0. Received: {message.canonical_size:g}.'
