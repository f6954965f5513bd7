"""The compiled .proto files agree with the facts about the reference's schema."""

import json
import pathlib
import re
import struct

import google.protobuf
from google.protobuf import descriptor_pb2, text_format

import object_detection.protos
from object_detection.protos import pipeline_pb2, string_int_label_map_pb2, target_assigner_pb2
from tests import rows

FIRST_OWN_NUMBER = 1000
CLOSED_TO_OWN_FIELDS = ('TrainEvalPipelineConfig', 'GraphRewriter')
TYPES = {
    value.number: value.name.removeprefix('TYPE_').lower()
    for value in descriptor_pb2.FieldDescriptorProto.Type.DESCRIPTOR.values
}
LABELS = {1: 'optional', 2: 'required', 3: 'repeated'}
OWN_FILES = {'object_detection/protos/detr.proto', 'object_detection/protos/plugin.proto'}
ROOTS = (pipeline_pb2, string_int_label_map_pb2, target_assigner_pb2)
# What is said about fields, and nothing of a config.
OPTIONS = ('object_detection/protos/options.proto', 'google/protobuf/descriptor.proto')


def test_messages_and_fields_equal_the_reference(shared):
    facts, ours = _reference_messages(shared), _our_messages()
    assert facts.keys() <= ours.keys()
    for name, message in facts.items():
        expected = {field['name']: _field_facts(field) for field in message['fields']}
        actual = {field.name: _our_field(field, ours[name]) for field in ours[name].field}
        own = {field for field in actual if actual[field]['number'] >= FIRST_OWN_NUMBER}
        assert {field: actual[field] for field in actual if field not in own} == expected, name


def test_own_messages_are_those_of_own_fields(shared):
    ours = _our_messages()
    own = ours.keys() - _reference_messages(shared).keys()
    types = {
        field.type_name.removeprefix('.')
        for name, message in ours.items()
        for field in message.field
        if name in own or field.number >= FIRST_OWN_NUMBER
    }
    assert own <= types


def test_own_fields_stay_out_of_the_reference_extension_ranges():
    for name, message in _our_messages().items():
        own = [field.name for field in message.field if field.number >= FIRST_OWN_NUMBER]
        if name.rpartition('.')[2] in CLOSED_TO_OWN_FIELDS:
            assert own == []


def test_oneofs_ranges_and_reserved_numbers_equal_the_reference(shared):
    ours = _our_messages()
    for name, message in _reference_messages(shared).items():
        proto = ours[name]
        assert [item.name for item in proto.oneof_decl] == list(message.get('oneofs', [])), name
        assert _ranges(proto.extension_range) == _pairs(message.get('extension_ranges')), name
        assert _numbers(proto.reserved_range) == _reference_numbers(message), name
        assert list(proto.reserved_name) == message.get('reserved_names', []), name
        assert proto.options.map_entry == message.get('map_entry', False), name


def test_enums_equal_the_reference(shared):
    ours = {}
    for file in _our_files():
        for prefix, enums in _enum_scopes(file):
            ours |= {
                f'{prefix}.{enum.name}': {
                    value.name: value.number
                    for value in enum.value
                    if value.number < FIRST_OWN_NUMBER
                }
                for enum in enums
            }
    expected = {
        enum['full_name']: {value['name']: value['number'] for value in enum['values']}
        for enum in _reference_enums(shared)
    }
    assert {name: ours[name] for name in expected} == expected
    own = {name.rpartition('.')[2] for name in ours.keys() - expected.keys()}
    assert own == {
        'Block',
        'Boxes',
        'Classification',
        'Decoding',
        'EraseFill',
        'ExtraLevelInput',
        'ExtraLevelType',
        'Impl',
        'LearningRateUnit',
        'LocalizationNormalizer',
        'MaskPasteMethod',
        'Method',
        'ObjectnessType',
        'OutsideAnchors',
        'PaddingMode',
        'Precision',
        'SmoothingType',
        'UpsampleType',
        'Implementation',
    }


def test_files_equal_the_reference(shared):
    facts = json.loads((shared / 'reference' / 'schema.json').read_text())['files']
    ours = {file.name for file in _our_files()}
    assert ours - {file['file'] for file in facts} <= OWN_FILES
    assert ours >= {file['file'] for file in facts}
    assert {file.package for file in _our_files()} == {'object_detection.protos'}


def test_every_reference_config_parses(shared):
    paths = sorted((shared / 'reference' / 'configs').rglob('*.config'))
    assert len(paths) == 104
    for path in paths:
        parsed = text_format.Parse(path.read_text(), pipeline_pb2.TrainEvalPipelineConfig())
        assert parsed.HasField('model'), path.name


def test_generated_code_is_not_newer_than_the_runtime():
    runtime = _version(google.protobuf.__version__)
    folder = object_detection.protos.__path__[0]
    code = (pathlib.Path(folder) / 'pipeline_pb2.py').read_text()
    generated = re.search(r'Protobuf Python Version: ([\d.]+)', code)
    assert _version(generated[1]) <= runtime


@rows.parametrize(
    ('message', 'field', 'default'),
    [
        ('FasterRcnn', 'groundtruth_mask_crop_size', 112),
        ('FasterRcnnFeatureExtractor', 'box_head_depth', 1024),
        ('TrainConfig', 'precision', 0),
    ],
)
def test_own_fields(message, field, default):
    pool = pipeline_pb2.DESCRIPTOR.pool
    found = pool.FindMessageTypeByName(f'object_detection.protos.{message}').fields_by_name[field]
    assert (found.number, found.default_value) == (FIRST_OWN_NUMBER, default)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split('.'))


def _reference_messages(shared) -> dict:
    files = json.loads((shared / 'reference' / 'schema.json').read_text())['files']
    return {message['full_name']: message for file in files for message in file['messages']}


def _reference_enums(shared) -> list:
    files = json.loads((shared / 'reference' / 'schema.json').read_text())['files']
    return [enum for file in files for enum in file['enums']]


def _field_facts(field: dict) -> dict:
    return {
        'number': field['number'],
        'label': field['label'],
        'type': field['type'],
        'type_name': field.get('type_name', ''),
        'default': _default(field['type'], field.get('default', '')),
        'oneof': field.get('oneof', ''),
        'deprecated': bool(field.get('options', {}).get('deprecated', False)),
    }


def _default(kind: str, text: str) -> str | float:
    """Floats by value: their text differs between protobuf's implementations."""
    return (
        struct.unpack('f', struct.pack('f', float(text)))[0] if kind == 'float' and text else text
    )


def _our_field(
    field: descriptor_pb2.FieldDescriptorProto, message: descriptor_pb2.DescriptorProto
) -> dict:
    oneof = message.oneof_decl[field.oneof_index].name if field.HasField('oneof_index') else ''
    return {
        'number': field.number,
        'label': LABELS[field.label],
        'type': TYPES[field.type],
        'type_name': field.type_name.removeprefix('.'),
        'default': _default(TYPES[field.type], field.default_value),
        'oneof': oneof,
        'deprecated': field.options.deprecated,
    }


def _our_files() -> list[descriptor_pb2.FileDescriptorProto]:
    """The roots' files and all that they import, each once."""
    waiting, files = [module.DESCRIPTOR for module in ROOTS], {}
    while waiting:
        file = waiting.pop()
        if file.name not in files:
            files[file.name] = descriptor_pb2.FileDescriptorProto()
            file.CopyToProto(files[file.name])
            waiting += file.dependencies
    return [file for name, file in files.items() if name not in OPTIONS]


def _our_messages() -> dict[str, descriptor_pb2.DescriptorProto]:
    messages = {}
    for file in _our_files():
        waiting = [(file.package, message) for message in file.message_type]
        while waiting:
            prefix, message = waiting.pop()
            name = f'{prefix}.{message.name}'
            messages[name] = message
            waiting += [(name, nested) for nested in message.nested_type]
    return messages


def _enum_scopes(file: descriptor_pb2.FileDescriptorProto):
    yield file.package, file.enum_type
    for name, message in _our_messages().items():
        yield name, message.enum_type


def _ranges(ranges) -> list[tuple[int, int]]:
    return [(item.start, item.end) for item in ranges]


def _pairs(ranges: list | None) -> list[tuple[int, int]]:
    return [tuple(item) for item in ranges or []]


def _numbers(ranges) -> set[int]:
    return {number for item in ranges for number in range(item.start, item.end)}


def _reference_numbers(message: dict) -> set[int]:
    ranges = message.get('reserved_ranges', [])
    return {number for start, end in ranges for number in range(start, end)}
