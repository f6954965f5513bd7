"""Rules of an input reader that need neither TensorFlow nor files.

`dataset_builder` raises the problems as errors, and the validation lists them.

Rules and warnings of a reader: its `aspect_ratio_buckets` and its `data_service`.
"""

from collections.abc import Iterator

from google.protobuf.message import Message

from object_detection.config import families
from object_detection.protos import input_reader_pb2
from object_detection.protos.input_reader_pb2 import InputReader
from object_detection.protos.model_pb2 import DetectionModel
from object_detection.protos.train_pb2 import TrainConfig

_NOT_IN_SEQUENCES = (
    'load_instance_masks',
    'load_multiclass_scores',
    'load_dense_pose',
    'load_track_id',
    'load_image_labels',
    'num_keypoints',
)
# The readers of images and annotation files, which need no records.
ANNOTATION_READERS = (
    'coco_input_reader',
    'voc_input_reader',
    'yolo_input_reader',
    'annotation_input_reader',
)
# What TensorFlow would take for a pattern.
_PATTERN_LETTERS = '*?[]\\'


def check(reader: InputReader, path: str) -> Iterator[str]:
    """Yields one sentence a problem of the reader at `path`."""
    kind = reader.WhichOneof('input_reader')
    if kind == 'coco_input_reader':
        yield from _coco(reader.coco_input_reader, f'{path}.{kind}')
    elif kind == 'voc_input_reader':
        yield from _required(reader.voc_input_reader, 'data_dir', f'{path}.{kind}')
    elif kind == 'yolo_input_reader':
        yield from _required(reader.yolo_input_reader, 'data', f'{path}.{kind}')
    elif kind == 'annotation_input_reader':
        yield from _required(reader.annotation_input_reader, 'format', f'{path}.{kind}')
    elif kind != 'synthetic_input_reader' and not reader.tf_record_input_reader.input_path:
        yield f'{path}.tf_record_input_reader.input_path is not set.'
    if holds_sequences(reader):
        yield from _sequences(reader, path)
    elif reader.frame_index != -1:
        yield (
            f'{path}.frame_index: expected input_type: TF_SEQUENCE_EXAMPLE with it. '
            f'Received: {reader.frame_index}.'
        )
    yield from _options(reader, path)
    folder = reader.record_cache.directory
    if '://' in folder or any(letter in folder for letter in _PATTERN_LETTERS):
        yield (
            f'{path}.record_cache.directory: expected a folder of this machine, without any of '
            f'{_PATTERN_LETTERS} in its name. Received: {folder!r}.'
        )


def holds_sequences(reader: InputReader) -> bool:
    """Whether the records of a reader are tf.SequenceExamples."""
    return reader.input_type == input_reader_pb2.TF_SEQUENCE_EXAMPLE


def _sequences(reader: InputReader, path: str) -> Iterator[str]:
    where = f'{path}.input_type: TF_SEQUENCE_EXAMPLE'
    if reader.WhichOneof('input_reader') != 'tf_record_input_reader':
        yield f'{where} needs a tf_record_input_reader.'
    if not reader.label_map_path:
        yield f'{where} needs a label_map_path, as sequences hold texts of classes, no ids.'
    for name in _NOT_IN_SEQUENCES:
        if getattr(reader, name):
            yield f'{path}.{name}: sequences have nothing of the kind; leave it out.'
    for name in ('filter_empty_images', 'data_service', 'repeat_factor_sampling'):
        if reader.HasField(name) and getattr(reader, name):
            yield f'{path}.{name}: expected input_type: TF_EXAMPLE with it, no sequences.'


def _options(reader: InputReader, path: str) -> Iterator[str]:
    """Yields the problems of what is read of each record."""
    for name in ('use_keypoint_label_map', 'expand_labels_hierarchy'):
        if getattr(reader, name) and not reader.label_map_path:
            yield f'{path}.{name}: expected a label_map_path with it. Received: none.'
    for name in ('use_keypoint_label_map', 'load_keypoint_depth_features'):
        if getattr(reader, name) and not reader.num_keypoints:
            yield f'{path}.{name}: expected num_keypoints with it. Received: 0.'
    if len(reader.keypoint_type_weight) not in (0, reader.num_keypoints):
        yield (
            f'{path}.keypoint_type_weight: expected one for each of the num_keypoints: '
            f'{reader.num_keypoints}. Received: {len(reader.keypoint_type_weight)}.'
        )


def reads_annotations(reader: InputReader) -> bool:
    """Whether a reader reads images and annotation files, and no records."""
    return reader.WhichOneof('input_reader') in ANNOTATION_READERS


def _required(reader: Message, name: str, path: str) -> Iterator[str]:
    if not getattr(reader, name):
        yield f'{path}.{name} is not set.'


def _coco(reader: input_reader_pb2.CocoInputReader, path: str) -> Iterator[str]:
    counts = len(reader.image_dir), len(reader.annotation_file)
    if not reader.annotation_file or counts[0] != counts[1]:
        yield (
            f'{path}: expected one image_dir for each annotation_file. '
            f'Received: {counts[0]} image_dir and {counts[1]} annotation_file.'
        )


_SERVICE_PREFIX = 'grpc://'


def check_buckets(reader: InputReader, path: str, model: DetectionModel) -> Iterator[str]:
    """Yields one sentence per problem of the buckets of the reader at `path`."""
    first: dict[tuple[int, int], int] = {}
    for index, bucket in enumerate(reader.aspect_ratio_buckets):
        where, size = f'{path}.aspect_ratio_buckets[{index}]', (bucket.height, bucket.width)
        if first.setdefault(size, index) != index:
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


def bucket_warnings(reader: InputReader, path: str, model: DetectionModel) -> Iterator[str]:
    """Yields a sentence for each bucket that the feature extractor pads further."""
    multiple = families.needs(model).padding_multiple
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
    if reader.HasField('repeat_factor_sampling'):
        yield f'{where}: expected no repeat_factor_sampling with it.'
    if train_config.deterministic_ops:
        yield f'{where}: expected no train_config.deterministic_ops, as the order is random.'


def _text(size: tuple[int, int]) -> str:
    return f'{size[0]} x {size[1]}'
