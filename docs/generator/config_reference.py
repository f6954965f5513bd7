"""Pages about every message, field and value of the config language, from the .proto files.

The compiler of protobuf reads the files; comments come from the source information of its
descriptors, ranges and reasons from the options of fields.
"""

import collections
import dataclasses
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)

from object_detection.config import ranges

PROTOS = pathlib.PurePosixPath('object_detection/protos')
# What the other files say about their fields with, and no part of a config.
OPTIONS = str(PROTOS / 'options.proto')
PACKAGE = '.object_detection.protos.'
ROOT_MESSAGE = 'TrainEvalPipelineConfig'
# Numbers of fields within descriptors, which the paths of comments are made of.
MESSAGES, ENUMS = (
    FileDescriptorProto.MESSAGE_TYPE_FIELD_NUMBER,
    FileDescriptorProto.ENUM_TYPE_FIELD_NUMBER,
)
FIELDS, NESTED, NESTED_ENUMS = (
    DescriptorProto.FIELD_FIELD_NUMBER,
    DescriptorProto.NESTED_TYPE_FIELD_NUMBER,
    DescriptorProto.ENUM_TYPE_FIELD_NUMBER,
)
VALUES = EnumDescriptorProto.VALUE_FIELD_NUMBER
F = FieldDescriptorProto
ZEROS = {F.TYPE_BOOL: 'false', F.TYPE_STRING: '""', F.TYPE_BYTES: '""'}
INTRODUCTION = """# Config fields

Every message and field of the config language, from the comments of its `.proto` files. A
`pipeline.config` is one `TrainEvalPipelineConfig`; dots lead to the fields of a message, as in
`--set train_config.batch_size=4`. Fields with numbers from 1000 on are extensions of this toolkit;
the others are those of the TensorFlow Object Detection API. A field without a default that is not
set has the value that the table gives; a message that is not set is absent.
"""


@dataclasses.dataclass(frozen=True)
class Type:
    """A message or an enum: where it is defined and what its comments say."""

    name: str  # without the package; the names of nested types have dots
    file: str  # without folder and extension
    descriptor: DescriptorProto | EnumDescriptorProto
    comment: str
    comments: tuple[str, ...]  # of its fields or values, in order

    def link(self, text: str) -> str:
        return f'[{text}]({self.file}.md#{self.name})'


def read_schema(root: pathlib.Path, files: list[str]) -> FileDescriptorSet:
    """Returns the descriptors of .proto files, given relative to `root`, with their comments.

    Raises:
      ValueError: if the compiler refuses a file; it has printed file and line.
    """
    with tempfile.TemporaryDirectory() as folder:
        output = pathlib.Path(folder) / 'schema'
        options = [f'--proto_path={root}', '--include_source_info', '--include_imports']
        # In a process of its own: within one that has loaded TensorFlow, the compiler meets the
        # symbols of another version of protobuf, and can crash.
        command = [sys.executable, '-m', 'grpc_tools.protoc', *options]
        if subprocess.run([*command, f'--descriptor_set_out={output}', *files]).returncode != 0:
            raise ValueError(f'protoc refuses the files below {root}; see the lines above.')
        return FileDescriptorSet.FromString(output.read_bytes())


def types(file: FileDescriptorProto) -> Iterator[Type]:
    """Yields the messages and enums of a file in order, each before those that it contains."""
    comments = {
        tuple(location.path): _joined(location.leading_comments or location.trailing_comments)
        for location in file.source_code_info.location
    }
    stem = pathlib.PurePosixPath(file.name).stem

    def typed(prefix: str, path: tuple[int, ...], descriptor, parts) -> Type:
        kind = FIELDS if isinstance(descriptor, DescriptorProto) else VALUES
        of_parts = tuple(comments.get((*path, kind, i), '') for i in range(len(parts)))
        name = prefix + descriptor.name
        return Type(name, stem, descriptor, comments.get(path, ''), of_parts)

    def enums(prefix: str, path: tuple[int, ...], found) -> Iterator[Type]:
        for i, enum in enumerate(found):
            yield typed(prefix, (*path, i), enum, enum.value)

    def messages(prefix: str, path: tuple[int, ...], found) -> Iterator[Type]:
        for i, message in enumerate(found):
            if message.options.map_entry:
                continue
            place, inner = (*path, i), f'{prefix}{message.name}.'
            yield typed(prefix, place, message, message.field)
            yield from enums(inner, (*place, NESTED_ENUMS), message.enum_type)
            yield from messages(inner, (*place, NESTED), message.nested_type)

    yield from messages('', (MESSAGES,), file.message_type)
    yield from enums('', (ENUMS,), file.enum_type)


def _joined(comment: str) -> str:
    return ' '.join(comment.split())


def pages(root: pathlib.Path) -> dict[str, str]:
    """Returns the Markdown of each page by its file name: index.md and one for each .proto file."""
    files = sorted(str(PROTOS / path.name) for path in (root / PROTOS).glob('*.proto'))
    schema = read_schema(root, files)
    read = [file for file in schema.file if file.name in files and file.name != OPTIONS]
    return _Reference([each for file in read for each in types(file)]).pages()


class _Reference:
    """The pages about some types, which link to each other."""

    def __init__(self, found: list[Type]):
        self.types = {each.name: each for each in found}
        self.maps = {
            f'{each.name}.{nested.name}': nested
            for each in found
            if isinstance(each.descriptor, DescriptorProto)
            for nested in each.descriptor.nested_type
            if nested.options.map_entry
        }
        self.places = self._places()

    def pages(self) -> dict[str, str]:
        by_file = collections.defaultdict(list)
        for each in self.types.values():
            by_file[each.file].append(each)
        result = {
            f'{file}.md': '\n\n'.join([f'# {file}.proto', *map(self._section, found)]) + '\n'
            for file, found in by_file.items()
        }
        return {'index.md': self._index(by_file)} | result

    def _index(self, by_file: dict[str, list[Type]]) -> str:
        rows = [
            f'| [{file}.proto]({file}.md) | {", ".join(each.link(each.name) for each in found)} |'
            for file, found in sorted(by_file.items())
        ]
        return '\n'.join([INTRODUCTION, '| file | messages and enums |', '|---|---|', *rows, ''])

    def _section(self, of: Type) -> str:
        lines = [f'## {of.name} {{ #{of.name} }}', escaped(of.comment)]
        if of.name in self.places and of.name != ROOT_MESSAGE:
            lines.append(f'In a `pipeline.config`: `{self.places[of.name]}`')
        if isinstance(of.descriptor, EnumDescriptorProto):
            lines.append(_enum_table(of))
        elif of.descriptor.field:
            lines.append(self._field_table(of))
        else:
            lines.append('It has no fields.')
        return '\n\n'.join(line for line in lines if line)

    def _field_table(self, of: Type) -> str:
        oneofs = [each.name for each in of.descriptor.oneof_decl]
        rows = ['| field | type | default | number | meaning |', '|---|---|---|---|---|']
        for field, comment in zip(of.descriptor.field, of.comments, strict=True):
            meaning = ' '.join([escaped(comment), *_reasons(field)])
            if field.HasField('oneof_index'):
                meaning += f' (One of `{oneofs[field.oneof_index]}`.)'
            if field.options.deprecated:
                meaning = f'*Deprecated.* {meaning}'
            rows.append(
                f'| `{field.name}` | {self._type(field)} | {self._default(field)} '
                f'| {field.number} | {meaning} |'
            )
        return '\n'.join(rows)

    def _type(self, field: FieldDescriptorProto) -> str:
        name = field.type_name.removeprefix(PACKAGE)
        if name in self.maps:
            key, value = self.maps[name].field
            return f'map from {self._type(key)} to {self._type(value)}'
        shown = self.types[name].link(name) if name else F.Type.Name(field.type)[5:].lower()
        labels = {F.LABEL_REPEATED: 'repeated ', F.LABEL_REQUIRED: 'required '}
        bounds = ranges.read(field.options).range
        values = f', {ranges.expected(bounds)}' if bounds is not None else ''
        return labels.get(field.label, '') + shown + values

    def _default(self, field: FieldDescriptorProto) -> str:
        if field.label == F.LABEL_REPEATED:
            return 'empty'
        if field.type == F.TYPE_MESSAGE:
            return 'absent'
        if field.type == F.TYPE_STRING and field.default_value:
            return f'`"{field.default_value}"`'
        if field.default_value:
            return f'`{field.default_value}`'
        if field.type == F.TYPE_ENUM:
            enum = self.types[field.type_name.removeprefix(PACKAGE)].descriptor
            return f'`{enum.value[0].name}`'
        return f'`{ZEROS.get(field.type, "0")}`'

    def _places(self) -> dict[str, str]:
        """Returns the shortest path of fields from a pipeline.config to each message and enum."""
        places, queue = {ROOT_MESSAGE: ''}, collections.deque([ROOT_MESSAGE])
        while queue:
            name = queue.popleft()
            of = self.types.get(name)
            fields = of.descriptor if of else self.maps[name]
            if isinstance(fields, EnumDescriptorProto):
                continue
            for field in fields.field:
                inner = field.type_name.removeprefix(PACKAGE)
                if inner and inner not in places:
                    places[inner] = f'{places[name]}.{field.name}'.lstrip('.')
                    queue.append(inner)
        return places


def _reasons(field: FieldDescriptorProto) -> list[str]:
    options = ranges.read(field.options)
    marks = {'No effect': options.ignored, 'Not supported': options.refused}
    return [f'{mark}: {escaped(reason)}.' for mark, reason in marks.items() if reason]


def _enum_table(of: Type) -> str:
    rows = ['| value | number | meaning |', '|---|---|---|']
    for value, comment in zip(of.descriptor.value, of.comments, strict=True):
        rows.append(f'| `{value.name}` | {value.number} | {escaped(comment)} |')
    return '\n'.join(rows)


def escaped(text: str) -> str:
    """Returns a comment, which is plain text apart from `code`, as Markdown within a table."""
    parts = text.split('`')
    for i, part in enumerate(parts):
        if i % 2 == 0:  # outside of code
            for character in '\\*_[]':
                part = part.replace(character, f'\\{character}')
            parts[i] = part.replace('&', '&amp;').replace('<', '&lt;')
    return '`'.join(parts).replace('|', '\\|')
