"""Rules of an input reader that need neither TensorFlow nor files.

`dataset_builder` raises the problems as errors, and the validation lists them.
"""

from collections.abc import Iterator

from object_detection.protos import input_reader_pb2
from object_detection.protos.input_reader_pb2 import InputReader

_AT_LEAST_ONE = (
    'max_number_of_boxes',
    'num_readers',
    'read_block_length',
    'sample_1_of_n_examples',
)
# What TensorFlow would take for a pattern.
_PATTERN_LETTERS = '*?[]\\'


def check(reader: InputReader, path: str) -> Iterator[str]:
    """Yields one sentence a problem of the reader at `path`."""
    kind = reader.WhichOneof('input_reader')
    if kind == 'coco_input_reader':
        yield from _coco(reader.coco_input_reader, f'{path}.{kind}')
    elif kind != 'synthetic_input_reader' and not reader.tf_record_input_reader.input_path:
        yield f'{path}.tf_record_input_reader.input_path is not set.'
    if reader.input_type == input_reader_pb2.TF_SEQUENCE_EXAMPLE:
        yield f'{path}.input_type: expected TF_EXAMPLE. Received: TF_SEQUENCE_EXAMPLE.'
    for name in _AT_LEAST_ONE:
        if getattr(reader, name) < 1:
            yield f'{path}.{name}: expected at least 1. Received: {getattr(reader, name)}.'
    folder = reader.record_cache.directory
    if '://' in folder or any(letter in folder for letter in _PATTERN_LETTERS):
        yield (
            f'{path}.record_cache.directory: expected a folder of this machine, without any of '
            f'{_PATTERN_LETTERS} in its name. Received: {folder!r}.'
        )


def _coco(reader: input_reader_pb2.CocoInputReader, path: str) -> Iterator[str]:
    counts = len(reader.image_dir), len(reader.annotation_file)
    if not reader.annotation_file or counts[0] != counts[1]:
        yield (
            f'{path}: expected one image_dir for each annotation_file. '
            f'Received: {counts[0]} image_dir and {counts[1]} annotation_file.'
        )
