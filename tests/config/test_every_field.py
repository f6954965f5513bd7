"""No field of the schema is ignored in silence: it is read somewhere, or listed as unsupported."""

import ast
import collections
import pathlib
import re

import pytest

import object_detection
from object_detection.config import overrides, unsupported, walk
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig

PACKAGE = pathlib.Path(object_detection.__file__).parent
# The parts that see protos. Not `config`: it checks fields, and nothing happens by that alone.
READERS = (
    *(
        'builders',
        'meta_architectures',
        'cli',
        'core/determinism.py',
        'data/label_map.py',
    ),
    *('export', 'models/precision*.py', 'optimizers', 'system', 'training', 'visualization'),
    *('weights', '*.py'),
)
# Their builders copy the fields of a dataclass from the message, name by name.
COPIED = ('core/post_processing.py', 'data/augmentation/**/*.py')
# Unsupported fields that code of its own looks at, only to refuse them.
REFUSED = {
    'parameterized_metric',
}
# Names of such fields that are attributes of other things too: the operation of a tensor.
OTHER_THINGS = {'op', 'resize_masks'}


def names_in_code() -> set[str]:
    """Attribute names and strings in the code that may read fields."""
    names = {
        node.target.id
        for pattern in COPIED
        for path in PACKAGE.glob(pattern)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    for pattern in READERS:
        for path in PACKAGE.glob(pattern if pattern.endswith('.py') else f'{pattern}/**/*.py'):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Attribute):
                    names.add(node.attr)
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    names.add(node.value)
    return names


def schema_fields(skip=frozenset()):
    """The fields of all messages that a config leads to, but for those below a field of `skip`."""
    seen, waiting = set(), [TrainEvalPipelineConfig.DESCRIPTOR]
    while waiting:
        message = waiting.pop()
        if message.full_name in seen or message.GetOptions().map_entry:
            continue
        seen.add(message.full_name)
        for field in message.fields:
            yield field
            if field.message_type and walk.field_key(field) not in skip:
                waiting.append(field.message_type)


def test_every_field_is_read_or_listed():
    read = names_in_code()
    forgotten = [
        walk.field_key(field)
        for field in schema_fields(skip=unsupported.FIELDS)
        if field.name not in read and walk.field_key(field) not in unsupported.FIELDS
    ]
    assert not forgotten, (
        'Nothing reads these fields; read them, or give the reason in '
        f'object_detection/config/unsupported.py: {sorted(forgotten)}'
    )


def test_the_table_names_fields_that_exist():
    existing = {walk.field_key(field) for field in schema_fields()}
    assert unsupported.FIELDS.keys() - existing == set()


def test_nothing_reads_the_fields_of_the_table():
    names = collections.Counter(field.name for field in schema_fields())
    # A name that two messages share does not tell which field the code reads.
    told = {key for key in unsupported.FIELDS if names[key.split('.')[-1]] == 1}
    assert len(told) >= 0.75 * len(unsupported.FIELDS)
    in_code = names_in_code() - REFUSED - OTHER_THINGS
    read = {key for key in told if key.split('.')[-1] in in_code}
    assert not read, (
        'These fields are read; delete their lines in object_detection/config/unsupported.py and '
        f'what the comments of the schema say: {sorted(read)}'
    )


def test_no_line_of_the_table_is_covered_by_another():
    reachable = {walk.field_key(field) for field in schema_fields(skip=unsupported.FIELDS)}
    assert unsupported.FIELDS.keys() - reachable == set()


@pytest.mark.parametrize('key', unsupported.FIELDS)
def test_lines_of_the_table_are_complete(key):
    entry = unsupported.FIELDS[key]
    assert entry.level in (unsupported.ERROR, unsupported.WARNING)
    assert len(entry.reason.split()) > 2
    assert not entry.reason.endswith('.')  # The sentence around it ends it.


def test_all_messages_are_walked():
    root = TrainEvalPipelineConfig.DESCRIPTOR
    entries = {m.full_name for m in overrides.reachable_messages(root)}
    owners = {field.containing_type.full_name for field in schema_fields()}
    fieldless = {m.full_name for m in overrides.reachable_messages(root) if not m.fields}
    maps = {m.full_name for m in overrides.reachable_messages(root) if m.GetOptions().map_entry}
    assert owners == entries - fieldless - maps


def test_comments_of_the_schema_agree_with_the_table():
    marks = {unsupported.ERROR: 'Not supported:', unsupported.WARNING: 'No effect:'}
    marked = {level: set() for level in marks}
    for path in sorted((PACKAGE / 'protos').glob('*.proto')):
        for key, comment in commented_fields(path.read_text()):
            for level, mark in marks.items():
                if mark in comment:
                    marked[level].add(key)
    for level, mark in marks.items():
        listed = {key for key, entry in unsupported.FIELDS.items() if entry.level == level}
        assert marked[level] == listed, f'comments with {mark!r} and the table'


def commented_fields(source: str):
    """Pairs of 'Message.field' and its comment, of a .proto file as these are laid out."""
    scopes, comment = [], []
    for line in map(str.strip, source.splitlines()):
        scope = re.match(r'(message|enum|oneof) (\w+) {', line)
        field = re.match(r'(?:optional |repeated )?[\w.<>, ]+ (\w+) = \d+', line)
        if line.startswith('//'):
            comment.append(line.removeprefix('//').strip())
            continue
        if scope:
            scopes.append('' if scope[1] == 'oneof' else scope[2])
        elif line == '}':
            scopes.pop()
        elif field and scopes:
            yield '.'.join([*filter(None, scopes), field[1]]), ' '.join(comment)
        comment = []
