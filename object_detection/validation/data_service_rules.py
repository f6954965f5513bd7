"""What has to hold for the `data_service` of a reader."""

from collections.abc import Iterator

from object_detection.protos.input_reader_pb2 import InputReader
from object_detection.protos.train_pb2 import TrainConfig

_PREFIX = 'grpc://'


def check(reader: InputReader, path: str, train_config: TrainConfig) -> Iterator[str]:
    """Yields what is wrong with a reader whose batches other processes make."""
    if not reader.data_service:
        return
    where = f'{path}.data_service'
    if not path.startswith('train'):
        yield f'{where}: expected none, as it is for training. Received: {reader.data_service!r}.'
        return
    address = reader.data_service.removeprefix(_PREFIX)
    host, _, port = address.rpartition(':')
    if address == reader.data_service or not host or not port.isdigit():
        yield f'{where}: expected {_PREFIX}HOST:PORT. Received: {reader.data_service!r}.'
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
