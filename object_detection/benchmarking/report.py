"""What `tfod benchmark` shows: a table, sentences, and a page with a picture."""

import json
import pathlib
from collections.abc import Sequence
from typing import Any

from object_detection.benchmarking import picture
from object_detection.system import files, numbers, texts
from object_detection.visualization import report

PAGE, PICTURE = 'benchmark.html', 'benchmark.png'
_PARTS_SHOWN = 6
# Calls of an idle machine differ by less.
_STEADY = 1.3  # p90 / p50

# Key of a row, heading, factor, format or function. Columns whose key no row has are left out.
_COLUMNS = (
    ('precision', 'precision', None, '{}'),
    ('batch_size', 'batch', None, '{}'),
    ('mean', 'mean ms', 1e3, '{:.1f}'),
    ('p50', 'p50 ms', 1e3, '{:.1f}'),
    ('p90', 'p90 ms', 1e3, '{:.1f}'),
    ('p99', 'p99 ms', 1e3, '{:.1f}'),
    ('images_per_second', 'images/s', 1, numbers.significant),
    ('gigaflop', 'GFLOP', 1, '{:.1f}'),
    ('rate', 'GFLOP/s', 1, '{:.1f}'),
    ('matmul_rate', 'matmul GFLOP/s', 1, '{:.1f}'),
    ('share_of_matmul', 'of matmul', 1, '{:.2f}'),
    ('convolutions', 'convolutions ms', 1e3, '{:.1f}'),
    ('share_of_convolutions', 'of convolutions', 1, '{:.2f}'),
    ('peak_memory', 'peak MB', 1, '{:.0f}'),
    ('device_memory', 'GPU peak MB', 1, '{:.0f}'),
    ('first', 'first result s', 1, '{:.1f}'),
)


_ROOFS = ('matmul', 'convolutions')


def table(rows: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Returns the cells of the measurements; the first row holds the headings."""
    columns = [column for column in _COLUMNS if any(column[0] in row for row in rows)]
    cells = [[heading for _, heading, _, _ in columns]]
    return cells + [[_cell(row, *column) for column in columns] for row in rows]


def _cell(row: dict[str, Any], key: str, _: str, factor: float | None, shown: str) -> str:
    value = row.get(key)
    if value is None:
        return ''
    write = shown if callable(shown) else shown.format
    return write(value if factor is None else factor * value)


def lines(document: dict[str, Any]) -> list[str]:
    """Returns the lines for a terminal.

    Args:
      document: as `write_json` writes it.
    """
    result = [title(document), *(f'{name}: {value}' for name, value in _facts(document).items())]
    result += texts.aligned(table(document['rows']))
    for row in document['rows']:
        parts = picture.shares(row)
        if parts:
            named = ', '.join(
                f'{name} {share:.0%}' for name, share in list(parts.items())[:_PARTS_SHOWN]
            )
            result.append(f'{picture.label(row)}: {named}')
    return result + _notes(document)


def title(document: dict[str, Any]) -> str:
    """Returns what was measured."""
    what = {'training': 'Training step'}.get(document['mode'], 'Inference')
    return f'{what} of {document["source"]}'


def _facts(document: dict[str, Any]) -> dict[str, str]:
    machine, rows = document['machine'], document['rows']
    facts = {
        'machine': f'{machine["cpu"]}, {machine["cores"]:g} cores '
        f'({" ".join(machine["instructions"])}), {machine["memory_gb"]:.0f} GB; '
        f'TensorFlow {machine["tensorflow"]}',
        'weights': document['weights'],
        'images': document['images'],
    }
    measured = [row for row in rows if 'error' not in row]
    if measured:
        first = measured[0]
        sizes = sorted({' x '.join(map(str, row['image_size'])) for row in measured})
        facts['size of the images'] = ', '.join(sizes)
        facts['devices'] = ', '.join(first['devices']) + (
            f', {first["replicas"]} replicas' if first['replicas'] > 1 else ''
        )
        facts['calls'] = f'{first["steps"]} timed'
        counts = [row['detections'] for row in measured if 'detections' in row]
        if counts:
            facts['detections'] = f'{sum(counts) / len(counts):.3g} an image'
    if document['threads']:
        facts['threads'] = str(document['threads'])
    return facts


def _notes(document: dict[str, Any]) -> list[str]:
    rows = document['rows']
    notes = _busy_notes(document)
    if any('rate' in row for row in rows):
        notes.append(
            'GFLOP are those of convolutions and matrix products; "of matmul" is the rate as a '
            'share of that of products of large matrices in the same precision.'
        )
    if any('share_of_convolutions' in row for row in rows):
        notes.append(
            '"of convolutions" is the time of the model\'s convolutions alone, measured in turns '
            'with the model, as a share of its time.'
        )
    notes.append('"first result" is the time from the start of the process, imports included.')
    if any(row.get('not_counted') for row in rows):
        notes.append('Matrix products within loops of unknown length are not counted.')
    notes += [f'{picture.label(row)}: {row["error"]}' for row in rows if 'error' in row]
    return notes


def _busy_notes(document: dict[str, Any]) -> list[str]:
    """Returns sentences about signs that other programs disturbed the measurements."""
    notes = []
    load, cores = document['machine'].get('load'), document['machine']['cores']
    if load is not None and load > cores:
        notes.append(
            f'The machine was busy before the benchmark: a load of {load:.1f} with {cores:g} '
            'cores. Measure again on an idle machine.'
        )
    spread = [row for row in document['rows'] if 'p50' in row and row['p90'] > _STEADY * row['p50']]
    if spread:
        named = ', '.join(f'{picture.label(row)}: {row["p90"] / row["p50"]:.1f}' for row in spread)
        notes.append(
            f'Calls took unequal times (p90 / p50 above {_STEADY}: {named}), as on a machine that '
            'does other work.'
        )
    if any((row.get(f'share_of_{what}') or 0) > 1 for row in document['rows'] for what in _ROOFS):
        notes.append(
            'A share above 1 is no speed of the model: what it is compared with was measured '
            'while the machine was slower.'
        )
    return notes


def write_json(document: dict[str, Any], path: str) -> None:
    """Writes the results: machine, source, mode, and a list of rows."""
    files.write_text(path, json.dumps(document, indent=1) + '\n')


def write_page(document: dict[str, Any], folder: str) -> None:
    """Writes the page into a folder, which is created, and the picture if anything was measured."""
    target = pathlib.Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    sections = []
    if any('mean' in row for row in document['rows']):
        drawn = picture.draw(title(document), document['rows'])
        with files.replacing(target / PICTURE) as draft:
            pathlib.Path(draft).write_bytes(drawn)
        figure = report.figure('Throughput, and where the time goes', drawn)
        sections.append(report.section('', figure))
    sections.append(report.section('Measurements', report.text_table(table(document['rows']))))
    sections.append(report.section('Notes', ''.join(map(report.note, _notes(document)))))
    files.write_text(target / PAGE, report.page(title(document), _facts(document), sections))
