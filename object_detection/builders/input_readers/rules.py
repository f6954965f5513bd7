"""Rules of an input reader that need neither TensorFlow nor files.

`dataset_builder` raises the problems as errors, and the validation lists them.
"""

from collections.abc import Iterator

from google.protobuf.message import Message

from object_detection.protos import input_reader_pb2
from object_detection.protos.input_reader_pb2 import InputReader

_AT_LEAST_ONE = (
    'max_number_of_boxes',
    'num_readers',
    'read_block_length',
    'sample_1_of_n_examples',
)
_NOT_IN_SEQUENCES = (
    'load_instance_masks',
    'load_multiclass_scores',
    'load_dense_pose',
    'load_track_id',
    'load_image_labels',
    'num_keypoints',
)
# The readers of images and annotation files, which need no records.
ANNOTATION_READERS = ('coco_input_reader', 'voc_input_reader', 'yolo_input_reader')
# What TensorFlow would take for a pattern.
_PATTERN_LETTERS = '*?[]\\'


def check(reader: InputReader, path: str) -> Iterator[str]:
    """Yields one sentence a problem of the reader at `path`."""
    kind = reader.WhichOneof('input_reader')
    if kind == 'coco_input_reader':
        yield from _coco(reader.coco_input_reader, f'{path}.{kind}')
    elif kind == 'voc_input_reader':
        yield from _required(reader.voc_input_reader, 'data_dir', f'{path}.{kind}')
        if reader.load_instance_masks:
            yield f'{path}.load_instance_masks: expected false with a {kind}. Received: true.'
    elif kind == 'yolo_input_reader':
        yield from _required(reader.yolo_input_reader, 'data', f'{path}.{kind}')
    elif kind != 'synthetic_input_reader' and not reader.tf_record_input_reader.input_path:
        yield f'{path}.tf_record_input_reader.input_path is not set.'
    if holds_sequences(reader):
        yield from _sequences(reader, path)
    elif reader.frame_index != -1:
        yield (
            f'{path}.frame_index: expected input_type: TF_SEQUENCE_EXAMPLE with it. '
            f'Received: {reader.frame_index}.'
        )
    for name in _AT_LEAST_ONE:
        if getattr(reader, name) < 1:
            yield f'{path}.{name}: expected at least 1. Received: {getattr(reader, name)}.'
    yield from _options(reader, path)
    if not 0 <= reader.max_bad_records_share <= 1:
        yield (
            f'{path}.max_bad_records_share: expected a number from 0 to 1. '
            f'Received: {reader.max_bad_records_share:g}.'
        )
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
    for name in ('filter_empty_images', 'data_service'):
        if getattr(reader, name):
            yield f'{path}.{name}: expected input_type: TF_EXAMPLE with it, no sequences.'
    if reader.frame_index < -1:
        yield f'{path}.frame_index: expected -1 or a frame. Received: {reader.frame_index}.'


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
    if any(weight < 0 for weight in reader.keypoint_type_weight):
        yield (
            f'{path}.keypoint_type_weight: expected at least 0. '
            f'Received: {list(reader.keypoint_type_weight)}.'
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
