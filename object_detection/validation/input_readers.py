"""What has to hold for the `aspect_ratio_buckets` of a reader."""

from collections.abc import Iterator

from object_detection.protos.input_reader_pb2 import InputReader
from object_detection.protos.model_pb2 import DetectionModel
from object_detection.validation.models import faster_rcnn as model_rules

# Strides of the coarsest map of a backbone, to which a pyramid pads by default.
_PYRAMID_MULTIPLE = 32


def check(reader: InputReader, path: str, model: DetectionModel) -> Iterator[str]:
    """Yields one sentence a problem of the buckets of the reader at `path`."""
    first: dict[tuple[int, int], int] = {}
    for index, bucket in enumerate(reader.aspect_ratio_buckets):
        where, size = f'{path}.aspect_ratio_buckets[{index}]', (bucket.height, bucket.width)
        if min(size) < 1:
            yield (
                f'{where}: expected a positive height and width. '
                f'Received: height={size[0]}, width={size[1]}.'
            )
        elif first.setdefault(size, index) != index:
            yield (
                f'{where}: expected another size than that of {path}.aspect_ratio_buckets'
                f'[{first[size]}]. Received: {_text(size)} twice.'
            )
    kind = model.faster_rcnn.image_resizer.WhichOneof('image_resizer_oneof')
    if reader.aspect_ratio_buckets and kind not in (None, 'keep_aspect_ratio_resizer'):
        yield (
            f'{path}.aspect_ratio_buckets: expected {model_rules.ROOT}.image_resizer.'
            f'keep_aspect_ratio_resizer with them. Received: {kind}.'
        )


def cautions(reader: InputReader, path: str, model: DetectionModel) -> Iterator[str]:
    """Yields a sentence for each bucket that the feature extractor enlarges once more."""
    extractor = model.faster_rcnn.feature_extractor
    multiple = extractor.pad_to_multiple if extractor.HasField('pad_to_multiple') else 0
    if not multiple and model_rules.has_pyramid(extractor):
        multiple = _PYRAMID_MULTIPLE
    for index, bucket in enumerate(reader.aspect_ratio_buckets):
        size = (bucket.height, bucket.width)
        if multiple > 1 and any(side % multiple for side in size):
            padded = tuple(-(-side // multiple) * multiple for side in size)
            yield (
                f'{path}.aspect_ratio_buckets[{index}]: {_text(size)} is no multiple of {multiple};'
                f' the feature extractor pads to {_text(padded)}, which costs the same as a bucket '
                'of that size.'
            )


def _text(size: tuple[int, int]) -> str:
    return f'{size[0]} x {size[1]}'
