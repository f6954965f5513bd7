r"""Adds the rows that the hierarchy of classes implies to a CSV file of Open Images.

    python -m object_detection.dataset_tools.oid_hierarchical_labels_expansion \
        --json_hierarchy_file=bbox_labels_600_hierarchy.json --input_annotations=boxes.csv \
        --output_annotations=expanded.csv --annotation_type=1

A box (`--annotation_type=1`) of a class is one of all classes above it. Of image-level labels
(`--annotation_type=2`), those of a positive confidence hold for all classes above, and those of
confidence 0 for all classes below. The class at the root of the hierarchy is never added.
"""

import collections
import csv
import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from absl import app, flags

from object_detection.data import file_access
from object_detection.data.file_access import LocalFiles
from object_detection.data.formats import csv_files
from object_detection.errors import UserError, expected
from object_detection.system import files as system_files

FLAGS = flags.FLAGS

_MAX_BYTES = 16 << 20
_MAX_DEPTH = 100
# MID -> MIDs of all classes above, or below.
Related = Mapping[str, set[str]]


def read_hierarchy(path: str) -> tuple[Related, Related]:
    """Returns the classes above, and those below, of each class but the root.

    Raises:
      OSError: if the file cannot be read, or is too long.
      UserError: if it is no hierarchy.
    """
    document = file_access.parse_json(LocalFiles().read(path, _MAX_BYTES), path)
    above: dict[str, set[str]] = collections.defaultdict(set)
    below: dict[str, set[str]] = collections.defaultdict(set)
    nodes: list[tuple[Any, tuple[str, ...]]] = [(document, ())]
    while nodes:
        node, parents = nodes.pop()
        children = node.get('Subcategory', []) if isinstance(node, dict) else None
        if not isinstance(children, list) or not isinstance(node.get('LabelName'), str):
            what = 'objects with `LabelName` and a list `Subcategory`'
            raise expected(path, what, json.dumps(node)[:200])
        if len(parents) > _MAX_DEPTH:
            raise UserError(f'{path}: expected at most {_MAX_DEPTH} levels of classes.')
        name = node['LabelName']
        above[name].update(parents)
        for parent in parents:
            below[parent].add(name)
        inherited = (*parents, name) if node is not document else ()
        nodes += [(child, inherited) for child in children]
    return above, below


def expand(path: str, hierarchy: tuple[Related, Related], *, boxes: bool) -> Iterator[list[str]]:
    """Yields the lines of an expanded CSV file, each followed by those that it implies.

    Args:
      path: path of the file.
      hierarchy: what `read_hierarchy` returns.
      boxes: whether the file has boxes; otherwise it has image-level labels.

    Raises:
      OSError, UserError: if the file cannot be read, or a line of it is wrong.
    """
    above, below = hierarchy
    required = ('LabelName',) if boxes else ('LabelName', 'Confidence')
    table = csv_files.table(path, LocalFiles(), required)
    yield [*table.columns]
    column = table.columns['LabelName']
    for line, row in table.rows:
        yield row
        is_present = boxes or _confidence(row[table.columns['Confidence']], path, line) > 0
        related = above if is_present else below
        for name in sorted(related.get(row[column], ())):
            yield [*row[:column], name, *row[column + 1 :]]


def _confidence(text: str, path: str, line: int) -> float:
    try:
        return float(text)
    except ValueError as error:
        where = f'{path}, line {line}'
        raise expected(where, 'a number as Confidence', repr(text[:100])) from error


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f'Unexpected arguments: {argv[1:]}.')
    hierarchy = read_hierarchy(FLAGS.json_hierarchy_file)
    boxes = FLAGS.annotation_type == 1
    with system_files.replacing(FLAGS.output_annotations) as draft, open(draft, 'w') as file:
        writer = csv.writer(file, lineterminator='\n')
        writer.writerows(expand(FLAGS.input_annotations, hierarchy, boxes=boxes))


def run() -> None:
    """Parses the command line and runs; users' errors become one line."""
    flags.DEFINE_string('json_hierarchy_file', None, 'JSON file of the hierarchy.')
    flags.DEFINE_string('input_annotations', None, 'CSV file to expand.')
    flags.DEFINE_string('output_annotations', None, 'CSV file to write.')
    kinds = '1 for boxes, 2 for image-level labels.'
    flags.DEFINE_integer('annotation_type', None, kinds, lower_bound=1, upper_bound=2)
    flags.mark_flags_as_required(
        ('json_hierarchy_file', 'input_annotations', 'output_annotations', 'annotation_type')
    )
    try:
        app.run(main)
    except (OSError, ValueError) as error:
        sys.exit(f'Error: {error}')


if __name__ == '__main__':
    run()
