"""The tables of docs/mask_rcnn_union.md name flags that exist, and fields that tests use.

mask_rcnn_union.txt names the tests of each feature.
"""

import importlib
import pathlib
import pkgutil
import re

from google.protobuf import descriptor_pb2

import object_detection.protos
from object_detection.config.job_options import EvalOptions, TrainOptions
from tests import rows

TESTS = pathlib.Path(__file__).resolve().parent
PAGE = TESTS.parent / 'docs' / 'mask_rcnn_union.md'


def read_rows() -> list[tuple[str, list[str], list[str]]]:
    """Feature, backquoted terms of its row, and test files of each feature with tests."""
    cells = {}
    for line in PAGE.read_text().splitlines():
        if line.startswith('| '):
            feature, setting = (cell.strip() for cell in line.strip('|').split('|'))
            cells[feature] = setting
    rows = []
    for line in (TESTS / 'mask_rcnn_union.txt').read_text().splitlines():
        feature, _, files = line.rpartition(': ')
        rows.append((feature, re.findall(r'`([^`]+)`', cells[feature]), files.split(', ')))
    return rows


def find_field_names() -> set[str]:
    names = set()
    for module in pkgutil.iter_modules(object_detection.protos.__path__):
        content = importlib.import_module(f'object_detection.protos.{module.name}').DESCRIPTOR
        file = descriptor_pb2.FileDescriptorProto.FromString(content.serialized_pb)
        messages = list(file.message_type)
        while messages:
            message = messages.pop()
            messages += message.nested_type
            names.update(field.name for field in message.field)
    return names


ROWS = read_rows()
FIELDS = find_field_names()


@rows.parametrize('row', ROWS)
def test_a_row_names_tests_that_use_its_fields_and_flags(row):
    _, terms, files = row
    content = ''.join((TESTS / file).read_text() for file in files)
    words = {word for term in terms for word in re.findall(r'[a-z][a-z0-9_]{3,}', term)}
    # A path names its last field; what comes before is the place.
    places = {word for term in terms for word in re.findall(r'([a-z][a-z0-9_]+)\.[a-z]', term)}
    fields = (words & FIELDS) - places
    assert {field for field in fields if field not in content} == set()
    assert {term for term in terms if term.startswith('--') and not _is_flag(term)} == set()


def _is_flag(term: str) -> bool:
    known = TrainOptions.__dataclass_fields__ | EvalOptions.__dataclass_fields__
    return term.lstrip('-').split()[0] in known


def test_every_row_is_read():
    assert len(ROWS) > 100
