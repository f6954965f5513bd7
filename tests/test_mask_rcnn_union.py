"""The features of the Mask R-CNN systems of NVIDIA, Habana and AWS have tests here.

A line of mask_rcnn_union.txt is a feature, the fields or flags that set it, and its tests: the
flags exist, and the tests use the fields.
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
LIST = TESTS / 'mask_rcnn_union.txt'


def read_rows() -> list[tuple[str, list[str], list[str]]]:
    """Feature, backquoted terms of its setting, and test files of each line."""
    rows = []
    for line in LIST.read_text().splitlines():
        row, _, files = line.rpartition(': ')
        feature, _, setting = row.partition(' | ')
        rows.append((feature, re.findall(r'`([^`]+)`', setting), files.split(', ')))
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
