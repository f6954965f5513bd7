"""The comparison of several trainings: one HTML page, from the files of their model_dirs."""

import os
from collections.abc import Iterator, Mapping, Sequence

from object_detection.reporting import evaluation_sections, page, run_files
from object_detection.reporting.run_files import RunFiles
from object_detection.system import disk, files, numbers
from object_detection.visualization import report
from object_detection.visualization.report import Cell, grid_table, note, section

FILE_NAME = 'comparison.html'


def write(model_dirs: Sequence[str | os.PathLike], path: str | os.PathLike) -> None:
    """Writes the page; differences are those of the second run and later ones from the first.

    Raises:
      UserError: see `run_files.read`.
    """
    runs = {os.fspath(model_dir): run_files.read(model_dir) for model_dir in model_dirs}
    names = dict(zip(runs, _short_names(list(runs)), strict=True))
    named = {names[folder]: run for folder, run in runs.items()}
    facts = {short: folder for folder, short in names.items()}
    title = 'Comparison of ' + ', '.join(named)
    files.write_text(path, report.page(title, facts, _sections(named)))


def _short_names(folders: Sequence[str]) -> list[str]:
    """Returns the parts of the paths that differ, such as 'a' of 'runs/a/model'."""
    parts = [os.path.normpath(folder).split(os.sep) for folder in folders]
    while len({each[-1] for each in parts}) == 1 and all(len(each) > 1 for each in parts):
        parts = [each[:-1] for each in parts]
    names = [each[-1] for each in parts]
    return names if len(set(names)) == len(names) else list(folders)


def _sections(runs: Mapping[str, RunFiles]) -> Iterator[str]:
    readers = list(dict.fromkeys(r for run in runs.values() for r in run.evaluations))
    for reader in readers:
        metrics = {n: {**run.metrics(reader), **_advice(run, reader)} for n, run in runs.items()}
        common = f': {reader}' if reader else ''
        yield section(f'Metrics{common}', _metrics_table(metrics))
        yield section(f'By category{common}', _category_table(runs, reader))
        evaluated = {n: run.evaluated[reader] for n, run in runs.items() if reader in run.evaluated}
        if evaluated:
            table = evaluation_sections.error_table(evaluated)
            yield section(f'Errors by kind{common}', table)
    yield section('Total loss', page.history_chart(runs, 'Loss/total_loss'))
    yield section('Learning rate', page.history_chart(runs, 'learning_rate', is_linear=True))
    yield section('AP over time', page.ap_chart(runs))
    yield section('Speed and memory', _speed_table(runs))
    first, *others = runs
    for name in others:
        if runs[first].config and runs[name].config:
            text = run_files.difference(runs[first].config, runs[name].config, first)
            yield section(f'Config of {name}: difference', text)


def _advice(run: RunFiles, reader: str) -> dict[str, float]:
    """Returns the advised score threshold of the last evaluation, and what it gives."""
    found = (run.evaluations.get(reader) or [{}])[-1].get('advised_threshold', {})
    words = {
        'score_threshold': 'advised score threshold',
        **{name: f'{name} at the advised threshold' for name in ('f1', 'precision', 'recall')},
    }
    return {word: found[name] for name, word in words.items() if name in found}


def _metrics_table(metrics: Mapping[str, Mapping[str, float]]) -> str:
    """Returns the metrics over all categories, of each run and the difference from the first."""
    keys = list(dict.fromkeys(key for values in metrics.values() for key in values))
    keys = [key for key in keys if 'ByCategory' not in key and 'BySuperCategory' not in key]
    keys.sort(key=lambda key: key.startswith('Loss/'))  # The others are what people compare.
    rows = [
        [report.metric_name(key), *_with_differences([m.get(key) for m in metrics.values()])]
        for key in keys
    ]
    return grid_table(['Metric', *_heads(list(metrics))], rows, is_sortable=True)


def _category_table(runs: Mapping[str, RunFiles], reader: str) -> str:
    columns = {}
    for name, run in runs.items():
        evaluated = run.evaluated.get(reader)
        curves = evaluation_sections.category_curves(evaluated) if evaluated else {}
        values = page.category_values(run.metrics(reader), curves)
        if values:
            # The first is the metric of the config; without metrics by category, AP at IoU 0.5.
            columns[name] = next(iter(values.items()))
    titles = {title for title, _ in columns.values()}
    if len(titles) != 1 or len(columns) < 2:
        return ''
    categories = list(dict.fromkeys(c for _, values in columns.values() for c in values))
    rows = [
        [each, *_with_differences([values.get(each) for _, values in columns.values()])]
        for each in categories
    ]
    heads = ['Category', *_heads(list(columns))]
    return note(f'{titles.pop()}.') + grid_table(heads, rows, is_sortable=True)


def _heads(names: Sequence[str]) -> list[str]:
    return [*names, *(f'{name}: difference' for name in names[1:])]


def _with_differences(values: Sequence[float | None]) -> list[Cell]:
    # COCO's metrics are -1 where there is nothing to measure.
    values = [None if value is None or value == -1 else value for value in values]
    cells = [Cell.number(value) for value in values]
    for value in values[1:]:
        is_known = value is not None and values[0] is not None
        difference = value - values[0] if is_known else None
        cells.append(Cell.number(difference, lambda value: numbers.significant(value, 4, '+')))
    return cells


def _speed_table(runs: Mapping[str, RunFiles]) -> str:
    rows = []
    for name, run in runs.items():
        speed = page.run_entry(run, 'images_per_second')
        waiting = page.run_entry(run, 'waiting_share')
        memory = (page.run_entry(run, 'memory') or {}).get('host')
        rows.append(
            [
                name,
                Cell.number(speed, '{:.1f}'.format),
                Cell.number(waiting, '{:.1%}'.format),
                Cell.number(memory, disk.format_bytes),
            ]
        )
    return grid_table(['Run', 'Images/s', 'Waiting for input', 'Memory of the host'], rows)
