"""Blocks of code of the documents: commands and options exist, programs and configs are valid."""

import ast
import importlib.util
import pathlib
import pkgutil
import re
import shlex
import types

import click
from google.protobuf import message, message_factory, text_format

import object_detection.protos
from object_detection.cli import main
from tests.test_docs import DOCUMENTS

ROOT = pathlib.Path(__file__).resolve().parents[1]
BLOCK = re.compile(r'^``` ?(.*)\n((?:.*\n)*?)```$', re.MULTILINE)
LANGUAGES = {'bash', 'console', 'json', 'proto', 'python', 'text', 'textproto', 'toml', '{.python}'}


def blocks(*languages: str) -> list[tuple[str, str]]:
    """(document, text) of the blocks in one of the languages."""
    found = []
    for document in DOCUMENTS:
        for language, text in BLOCK.findall(document.read_text()):
            assert language in LANGUAGES, (document.name, language)
            if language in languages:
                found.append((document.name, text))
    return found


def test_blocks_are_fenced_with_a_language():
    assert len(blocks(*LANGUAGES)) > 150
    for document in DOCUMENTS:
        text = BLOCK.sub('', document.read_text())
        assert not re.search(r'\n\n    [^ ]', text), document.name


def commands() -> list[tuple[str, list[str]]]:
    """(document, words) of each command, without comments, variables and prompts."""
    found = []
    for document, text in blocks('bash', 'console'):
        if '$ ' in text:  # what is printed has no prompt
            text = '\n'.join(re.findall(r'^\$ (.*)$', text, re.MULTILINE))
        for line in text.replace('\\\n', ' ').splitlines():
            if words := shlex.split(line, comments=True):
                found.append((document, words))
    for document in DOCUMENTS:
        for line in re.findall(r'`(tfod [a-z_]+[^`]*)`', document.read_text()):
            found.append((document.name, shlex.split(line.replace('\n', ' '))))
    return found


def options_of(words: list[str]) -> tuple[set[str], list[str]]:
    """The options that a command has, and the words after its name."""
    command, rest = main.main, words[1:]
    while isinstance(command, click.Group) and rest and re.fullmatch(r'[a-z][a-z0-9_-]+', rest[0]):
        command = command.get_command(click.Context(command), rest[0])
        assert command, words
        rest = rest[1:]
    flags = {flag for p in command.params for flag in (*p.opts, *p.secondary_opts)}
    return flags | {'--help'}, rest


def test_commands_have_the_options_that_documents_give_them():
    wrong, seen = [], 0
    for document, words in commands():
        # `lines` is a format of the examples of plug-ins.
        if words[0] != 'tfod' or '--debug' in words or 'lines' in words:
            continue
        known, rest = options_of(words)
        # Options of other programs follow.
        end = {'--': rest.index('--')} if '--' in rest else {}
        end |= {'--runner': rest.index('--runner')} if '--runner' in rest else {}
        rest = rest[: min(end.values(), default=len(rest))]
        flags = [word.partition('=')[0] for word in rest if word.startswith('--')]
        seen += len(flags)
        wrong += [f'{document}: {" ".join(words)}: {flag}' for flag in flags if flag not in known]
    assert wrong == []
    assert seen > 100


def test_programs_and_scripts_exist():
    paths = []
    for _, words in commands():
        if words[:1] == ['python']:
            module = words[1:3] if words[1] == '-m' else words[1:2]
            paths.append(f'{module[1].replace(".", "/")}.py' if len(module) > 1 else module[0])
    assert len(paths) > 10
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_programs_are_valid_and_import_what_exists():
    missing = []
    for document, text in blocks('python'):
        # A row of a table stands for itself.
        for node in ast.walk(ast.parse(f'{{{text}}}' if text.startswith(' ') else text)):
            if isinstance(node, ast.ImportFrom) and node.module.startswith('object_detection'):
                module = importlib.import_module(node.module)
                for alias in node.names:
                    found = hasattr(module, alias.name) or _is_module(module, alias.name)
                    missing += [] if found else [f'{document}: {node.module}.{alias.name}']
    assert missing == []


def _is_module(package: types.ModuleType, name: str) -> bool:
    return bool(importlib.util.find_spec(f'{package.__name__}.{name}'))


def messages() -> list[type[message.Message]]:
    """All messages of the schema."""
    found = []
    for module in pkgutil.iter_modules(object_detection.protos.__path__):
        content = importlib.import_module(f'object_detection.protos.{module.name}').DESCRIPTOR
        waiting = list(content.message_types_by_name.values())
        while waiting:
            descriptor = waiting.pop()
            waiting += descriptor.nested_types
            found.append(message_factory.GetMessageClass(descriptor))
    return found


def test_configs_are_parts_of_a_message():
    kinds = messages()
    wrong = []
    for document, text in blocks('textproto'):
        if not any(_parses(text.replace('...', ''), kind) for kind in kinds):
            wrong.append(f'{document}: {text}')
    assert wrong == []


def _parses(text: str, kind: type[message.Message]) -> bool:
    try:
        text_format.Parse(text, kind())
    except text_format.ParseError:
        return False
    return True
