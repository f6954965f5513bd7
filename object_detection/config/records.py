"""Compares the first records of each reader with what the config says of them.

A wrong label map, or a wrong type of masks, otherwise shows as a training that learns nothing or as
an error of TensorFlow that names no field.
"""

import dataclasses
import itertools
import struct
from collections.abc import Iterator

from google.protobuf.message import DecodeError

from object_detection.data import label_map
from object_detection.protos import input_reader_pb2
from object_detection.protos.input_reader_pb2 import InputReader
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig

# Records with objects after which a reader without any mask is told.
_MOST_WITHOUT_MASKS = 20
# Records that are looked through for a class of the label map. As a rule the first has one; many
# are needed where a label map takes a rare class alone.
_MOST_WITHOUT_CLASS = 5000
_MOST_NAMES = 5

_HEADER = struct.Struct('<QI')  # length of a record and its checksum
_FOOTER_SIZE = 4
_HELD = {'PNG_MASKS': 'PNG files', 'NUMERICAL_MASKS': 'numbers'}


class _UnreadableError(Exception):
    """A file that is no TFRecord file of examples; the message is a sentence without its end."""


def check_training(pipeline: TrainEvalPipelineConfig) -> Iterator[str]:
    """Yields what the first records of `train_input_reader` contradict."""
    yield from _reader(pipeline.train_input_reader, 'train_input_reader')


def check_evaluation(pipeline: TrainEvalPipelineConfig) -> Iterator[str]:
    """Yields what the first records of every `eval_input_reader` contradict."""
    for index, reader in enumerate(pipeline.eval_input_reader):
        yield from _reader(reader, f'eval_input_reader[{index}]')


@dataclasses.dataclass
class _Seen:
    """What the records with objects held so far; None where it is not asked for any more."""

    count: int = 0
    mask_type: str | None = None
    texts: dict[str, None] = dataclasses.field(default_factory=dict)
    has_known_class: bool = False

    def add(self, features, known: dict[str, int]) -> None:
        self.count += 1
        masks = features.get('image/object/mask')
        if masks is not None and masks.bytes_list.value:
            self.mask_type = self.mask_type or 'PNG_MASKS'
        elif masks is not None and masks.float_list.value:
            self.mask_type = self.mask_type or 'NUMERICAL_MASKS'
        texts = _texts(features)
        self.texts.update(dict.fromkeys(texts))
        # Records without texts hold ids, which need no label map.
        self.has_known_class |= not texts or not known.keys().isdisjoint(texts)


def _reader(reader: InputReader, path: str) -> Iterator[str]:
    known = label_map.load(reader.label_map_path).text_to_id if reader.label_map_path else None
    if known is None and not reader.load_instance_masks:
        return
    seen = _Seen(has_known_class=known is None)
    try:
        for features in itertools.islice(_features(reader), _MOST_WITHOUT_CLASS):
            if not features['image/object/bbox/ymin'].float_list.value:
                continue
            seen.add(features, known or {})
            needs_masks = reader.load_instance_masks and seen.mask_type is None
            if seen.has_known_class and not (needs_masks and seen.count < _MOST_WITHOUT_MASKS):
                break
    except _UnreadableError as error:
        yield f'{path}.tf_record_input_reader.input_path: {error}.'
        return
    if not seen.count:
        return
    if reader.load_instance_masks:
        yield from _masks(reader, path, seen)
    if not seen.has_known_class:
        yield (
            f'{path}.label_map_path: {reader.label_map_path} has none of the classes of the first '
            f'{seen.count} records with objects. They have {_listed(seen.texts)}; the label map '
            f'has {_listed(known)}.'
        )


def _masks(reader: InputReader, path: str, seen: _Seen) -> Iterator[str]:
    is_png = reader.mask_type == input_reader_pb2.PNG_MASKS
    expected = 'PNG_MASKS' if is_png else 'NUMERICAL_MASKS'
    if seen.mask_type is None:
        yield (
            f'{path}.load_instance_masks is true, but the first {seen.count} records with objects '
            'have no masks; convert the data with `tfod convert coco --masks`.'
        )
    elif seen.mask_type != expected:
        said = '' if reader.HasField('mask_type') else ' (not set)'
        yield (
            f'{path}.mask_type is {expected}{said}, but the records hold masks as '
            f'{_HELD[seen.mask_type]}; set it to {seen.mask_type}.'
        )


def _texts(features) -> list[str]:
    values = features['image/object/class/text'].bytes_list.value
    return [value.decode(errors='replace') for value in values]


def _listed(names) -> str:
    names = list(names)
    shown = ', '.join(map(repr, names[:_MOST_NAMES]))
    return shown if len(names) <= _MOST_NAMES else f'{shown}, ... ({len(names)} in all)'


def _features(reader: InputReader) -> Iterator:
    """Yields the features of the reader's examples, a map from keys to tf.train.Feature."""
    import tensorflow as tf

    for pattern in reader.tf_record_input_reader.input_path:
        for name in sorted(tf.io.gfile.glob(pattern)):
            for record in _records(name):
                try:
                    yield tf.train.Example.FromString(record).features.feature
                except DecodeError:
                    raise _UnreadableError(f'{name} holds records that are no examples') from None


def _records(name: str) -> Iterator[bytes]:
    """Yields the records of a TFRecord file.

    Checksums are left to TensorFlow's reader; that one takes the devices, and this one leaves a GPU
    to the training that may run on it.
    """
    import tensorflow as tf

    size = tf.io.gfile.stat(name).length
    with tf.io.gfile.GFile(name, 'rb') as file:
        position = 0
        while position < size:
            header = file.read(_HEADER.size)
            length = _HEADER.unpack(header)[0] if len(header) == _HEADER.size else size
            position += _HEADER.size + length + _FOOTER_SIZE
            if position > size:
                raise _UnreadableError(f'{name} is no TFRecord file, or its end is missing')
            yield file.read(length)
            file.read(_FOOTER_SIZE)
