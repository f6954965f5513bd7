"""The metadata of TFLite files, https://ai.google.dev/edge/litert/conversion/tensorflow/metadata.

A file holds a description of its tensors, a FlatBuffer of the published schema
`metadata_schema.fbs`, and associated files, such as the class names, as a ZIP archive at its end.
Libraries for phones read both.
"""

import io
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import flatbuffers

from object_detection.core.fields import DetectionFields

# Name of the buffer by which readers of TFLite files find the metadata.
BUFFER = 'TFLITE_METADATA'
LABELS = 'labelmap.txt'
_IDENTIFIER = b'M001'
# Version of the schema that has groups of outputs.
_PARSER_VERSION = '1.2.0'
# Of an associated file; files of users are untrusted.
_MAX_BYTES = 16 << 20

# Output -> its name in the metadata of detectors.
_NAMES = {
    DetectionFields.BOXES: 'location',
    DetectionFields.CLASSES: 'category',
    DetectionFields.SCORES: 'score',
    DetectionFields.NUM_DETECTIONS: 'number of detections',
    DetectionFields.MASKS: 'mask',
    DetectionFields.KEYPOINTS: 'keypoint',
    DetectionFields.KEYPOINT_SCORES: 'keypoint score',
    DetectionFields.KEYPOINT_DEPTHS: 'keypoint depth',
    DetectionFields.SURFACE_COORDS: 'surface coordinates',
}
_GROUPED = (DetectionFields.BOXES, DetectionFields.CLASSES, DetectionFields.SCORES)

# Enumerations and members of unions of the schema.
_VALUE_LABELS = 3
_FEATURE, _IMAGE, _BOUNDING_BOX = 1, 2, 3
_NORMALIZATION = 1
_COLOR_SPACES = {3: 1, 1: 2}
_BOUNDARIES, _RATIO = 1, 0


class _Number(NamedTuple):
    """A number of a FlatBuffer; `kind` is part of a method's name, such as 'Int8'."""

    kind: str
    value: float


# Number of a field -> its value: a text, a number, a table, or a list of one of these.
_Table = Mapping[int, Any]


def build_metadata(
    shapes: Sequence[Sequence[int]], outputs: Sequence[str], name: str, text: str
) -> bytes:
    """Builds the FlatBuffer `ModelMetadata` of a detector.

    Args:
      shapes: of the inputs: (1, height, width, channels) of images with values from 0 to 255, and
        of what follows them.
      outputs: names of `DetectionFields`, in the order of the file.
      name: name of the model.
      text: a description of the model.
    """
    grouped = [_NAMES[each] for each in outputs if each in _GROUPED]
    subgraph = {
        2: [_image(shapes[0]), *({0: 'true image shape'} for _ in shapes[1:])],
        3: [_output(each) for each in outputs],
        8: [{0: 'detection_result', 1: grouped}],
    }
    builder = flatbuffers.Builder(1024)
    root = _write(builder, {0: name, 1: text, 2: 'v1', 3: [subgraph], 7: _PARSER_VERSION})
    builder.Finish(root, file_identifier=_IDENTIFIER)
    return bytes(builder.Output())


def with_files(model: bytes, files: Mapping[str, str]) -> bytes:
    """Appends associated files to a TFLite file, as a ZIP archive at its end."""
    stream = io.BytesIO(model)
    with zipfile.ZipFile(stream, 'a') as archive:
        for name, text in files.items():
            # A fixed date, so that equal models are equal files.
            archive.writestr(zipfile.ZipInfo(name), text)
    return stream.getvalue()


def read_file(model: bytes, name: str) -> bytes | None:
    """Reads an associated file; None if there is none, or one of more than 16 MiB."""
    try:
        with zipfile.ZipFile(io.BytesIO(model)) as archive:
            if archive.getinfo(name).file_size > _MAX_BYTES:
                return None
            return archive.read(name)
    except (KeyError, ValueError, NotImplementedError, RuntimeError, zipfile.BadZipFile):
        return None


def labels(class_names: Mapping[int, str]) -> str:
    """Returns the lines of the file of class names: the first line is that of the class 0."""
    return ''.join(f'{class_names.get(i + 1, "???")}\n' for i in range(max(class_names, default=0)))


def _image(shape: Sequence[int]) -> _Table:
    _, height, width, channels = shape
    size = {0: _Number('Uint32', width), 1: _Number('Uint32', height)}
    properties = {0: _Number('Int8', _COLOR_SPACES[channels]), 1: size}
    zeros, ones = ([_Number('Float32', value)] * channels for value in (0, 1))
    return {
        0: 'image',
        1: 'Pixels from 0 to 255, which the model normalizes itself.',
        3: {0: _Number('Uint8', _IMAGE), 1: properties},
        # What a client has to do to the pixels.
        4: [{0: _Number('Uint8', _NORMALIZATION), 1: {0: zeros, 1: ones}}],
        5: {0: [_Number('Float32', 255)] * channels, 1: zeros},
    }


def _output(name: str) -> _Table:
    table: dict[int, Any] = {0: _NAMES[name], 1: name}
    if name == DetectionFields.BOXES:
        # The columns of left, top, right and bottom.
        properties = {
            0: [_Number('Uint32', column) for column in (1, 0, 3, 2)],
            1: _Number('Int8', _BOUNDARIES),
            2: _Number('Int8', _RATIO),
        }
        return table | {3: {0: _Number('Uint8', _BOUNDING_BOX), 1: properties}}
    table[3] = {0: _Number('Uint8', _FEATURE), 1: {}}
    if name == DetectionFields.CLASSES:
        table[6] = [{0: LABELS, 1: 'Names of the classes.', 2: _Number('Int8', _VALUE_LABELS)}]
    return table


def _write(builder: flatbuffers.Builder, table: _Table) -> int:
    """Writes a table after what it refers to, and returns its offset."""
    offsets = {slot: _write_value(builder, value) for slot, value in table.items()}
    builder.StartObject(max(table, default=-1) + 1)
    for slot, offset in offsets.items():
        if isinstance(offset, _Number):
            getattr(builder, f'Prepend{offset.kind}Slot')(slot, offset.value, 0)
        else:
            builder.PrependUOffsetTRelativeSlot(slot, offset, 0)
    return builder.EndObject()


def _write_value(builder: flatbuffers.Builder, value: Any) -> int | _Number:
    """Returns the offset of what was written; numbers are part of their table."""
    if isinstance(value, _Number):
        return value
    if isinstance(value, str):
        return builder.CreateString(value)
    if isinstance(value, Mapping):
        return _write(builder, value)
    elements = [_write_value(builder, each) for each in value]
    builder.StartVector(4, len(elements), 4)
    for each in reversed(elements):
        if isinstance(each, _Number):
            getattr(builder, f'Prepend{each.kind}')(each.value)
        else:
            builder.PrependUOffsetTRelative(each)
    return builder.EndVector()
