"""Rules and cautions of a reader: its `aspect_ratio_buckets` and its `data_service`."""

from collections.abc import Iterator

from object_detection.builders import families
from object_detection.protos.input_reader_pb2 import InputReader
from object_detection.protos.model_pb2 import DetectionModel
from object_detection.protos.train_pb2 import TrainConfig
from object_detection.validation.models import families as model_rules

_SERVICE_PREFIX = 'grpc://'


def check_buckets(reader: InputReader, path: str, model: DetectionModel) -> Iterator[str]:
    """Yields one sentence per problem of the buckets of the reader at `path`."""
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
    resizer = getattr(families.options(model), 'image_resizer', None)
    kind = resizer.WhichOneof('image_resizer_oneof') if resizer is not None else None
    if reader.aspect_ratio_buckets and kind not in (None, 'keep_aspect_ratio_resizer'):
        yield (
            f'{path}.aspect_ratio_buckets: expected {families.path(model)}.image_resizer.'
            f'keep_aspect_ratio_resizer with them. Received: {kind}.'
        )


def bucket_cautions(reader: InputReader, path: str, model: DetectionModel) -> Iterator[str]:
    """Yields a sentence for each bucket that the feature extractor pads further."""
    rules = model_rules.find(model)
    multiple = rules.padding_multiple(families.options(model)) if rules else 1
    for index, bucket in enumerate(reader.aspect_ratio_buckets):
        size = (bucket.height, bucket.width)
        if multiple > 1 and any(side % multiple for side in size):
            padded = tuple(-(-side // multiple) * multiple for side in size)
            yield (
                f'{path}.aspect_ratio_buckets[{index}]: {_text(size)} is no multiple of {multiple};'
                f' the feature extractor pads to {_text(padded)}, which costs the same as a bucket '
                'of that size.'
            )


def check_data_service(reader: InputReader, path: str, train_config: TrainConfig) -> Iterator[str]:
    """Yields problems of a reader whose batches are prepared by other processes."""
    if not reader.data_service:
        return
    where = f'{path}.data_service'
    if not path.startswith('train'):
        yield f'{where}: expected none, as it is for training. Received: {reader.data_service!r}.'
        return
    address = reader.data_service.removeprefix(_SERVICE_PREFIX)
    host, _, port = address.rpartition(':')
    if address == reader.data_service or not host or not port.isdigit():
        yield f'{where}: expected {_SERVICE_PREFIX}HOST:PORT. Received: {reader.data_service!r}.'
    kind = reader.WhichOneof('input_reader')
    if kind not in (None, 'tf_record_input_reader'):
        yield f'{where}: expected a tf_record_input_reader with it. Received: {kind}.'
    if reader.sample_from_datasets_weights:
        yield f'{where}: expected no sample_from_datasets_weights with it.'
    if reader.sample_1_of_n_examples > 1:
        yield (
            f'{where}: expected sample_1_of_n_examples: 1 with it. '
            f'Received: {reader.sample_1_of_n_examples}.'
        )
    if train_config.deterministic_ops:
        yield f'{where}: expected no train_config.deterministic_ops, as the order is random.'


def _text(size: tuple[int, int]) -> str:
    return f'{size[0]} x {size[1]}'
