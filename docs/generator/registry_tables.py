"""Writes the tables of docs/models.md and docs/migrating.md that registries hold.

    python docs/generator/registry_tables.py

A table is what lies between the two comments that name it.
"""

import pathlib
import re
from collections.abc import Iterator

from object_detection.dataset_tools.downloads.published_detectors import DETECTORS
from object_detection.meta_architectures.faster_rcnn.extractors import EXTRACTORS as FASTER_RCNN
from object_detection.meta_architectures.ssd.extractors import EXTRACTORS as SSD

DOCS = pathlib.Path(__file__).resolve().parents[1]


def detectors() -> Iterator[str]:
    """Yields the lines of the published detectors with what their publishers measured."""
    yield '| name | published AP on val2017, % |\n|---|---|'
    for name, row in DETECTORS.items():
        if row.accuracy:
            yield f'| `{name}` | {row.accuracy} |'


def extractors() -> Iterator[str]:
    """Yields the lines of the types of feature extractors with their parts."""
    yield '| `type` | backbone | neck |\n|---|---|---|'
    for family in (FASTER_RCNN, SSD):
        for name, row in family.items():
            backbone = f'`{row.backbone}`' if row.backbone else 'that of the field `backbone`'
            yield f'| `{name}` | {backbone} | {row.neck or ""} |'


TABLES = {'detectors': ('models.md', detectors), 'extractors': ('migrating.md', extractors)}


def written(name: str) -> tuple[pathlib.Path, str]:
    """Returns the page of a table, and its text with the table of today."""
    page, lines = TABLES[name]
    path = DOCS / page
    begin, end = f'<!-- table of {name}: docs/generator/registry_tables.py -->', '<!-- end -->'
    table = '\n'.join(lines())
    text, count = re.subn(
        f'{begin}\n.*?\n{end}',
        lambda _: f'{begin}\n\n{table}\n\n{end}',
        path.read_text(),
        flags=re.DOTALL,
    )
    assert count == 1, f'{page}: expected one {begin}. Found: {count}.'
    return path, text


def main() -> None:
    for name in TABLES:
        path, text = written(name)
        path.write_text(text)


if __name__ == '__main__':
    main()
