"""The tables of docs/migrating.md say what the code does."""

import pathlib
import re

from object_detection.meta_architectures.faster_rcnn import extractors as faster_rcnn
from object_detection.meta_architectures.ssd import extractors as ssd
from tests.schema import unread_fields

PAGE = pathlib.Path(__file__).resolve().parents[1] / 'docs' / 'migrating.md'


def rows(heading: str) -> list[list[list[str]]]:
    """The rows of a section's tables: for each cell, the words in backquotes."""
    _, _, section = PAGE.read_text().partition(f'\n## {heading}\n')
    lines = section.partition('\n## ')[0].splitlines()
    tables = [line.strip('|').split('|') for line in lines if line.startswith('| `')]
    return [[re.findall(r'`([^`]+)`', cell) for cell in cells] for cells in tables]


def test_types_of_feature_extractors():
    listed = [name for types, *_ in rows('Feature extractors') for name in types if name != 'type']
    assert len(set(listed)) == len(listed)
    assert set(listed) == {*faster_rcnn.EXTRACTORS, *ssd.EXTRACTORS}


def test_rejected_fields():
    listed = [
        f'{message}.{field}' for (message,), fields in rows('What is missing') for field in fields
    ]
    assert len(set(listed)) == len(listed)
    rejected = {field for field, options in unread_fields().items() if options.refused}
    assert set(listed) == rejected
