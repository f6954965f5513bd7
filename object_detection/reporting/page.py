"""The report of a training: one HTML page, from the files of its model_dir.

Some of its parts come from the stored boxes of an evaluation.
"""

import dataclasses
import datetime
import html
import logging
import os
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from object_detection.errors import UserError
from object_detection.metrics.analysis import errors, thresholds
from object_detection.metrics.analysis.errors import Curve, Group, calibrate, confusion_matrix
from object_detection.metrics.analysis.images import EvaluatedImages
from object_detection.reporting import run_files
from object_detection.reporting.run_files import RunFiles
from object_detection.system import disk, files
from object_detection.training import status
from object_detection.visualization import charts
from object_detection.visualization.charts import line_chart
from object_detection.visualization.report import (
    Cell,
    folded,
    grid_table,
    loss_chart,
    note,
    other_values,
    page,
    picture_grid,
    section,
    summary_table,
    super_category_table,
    text_table,
    value_table,
)

# More would not be legible; the others are in the tables.
_MAX_MATRIX = 20
_MAX_CURVES = 5
_MAX_CONFUSED = 15
_IOUS = (0.5, 0.75, 0.9)
_MEANINGS = {
    errors.CLASSIFICATION: 'the box of an object (IoU 0.5 or more) with the wrong class',
    errors.LOCALISATION: 'the right class, but an IoU of 0.1 to 0.5',
    errors.BOTH: 'the wrong class, and an IoU of 0.1 to 0.5',
    errors.DUPLICATE: 'an object that a better detection has found',
    errors.BACKGROUND: 'no object there (IoU up to 0.1)',
    errors.MISSED: 'an object that no detection finds, not even with a wrong class or box',
}


def sections(evaluated: EvaluatedImages) -> list[str]:
    """Returns the sections of one evaluation, without AP by category (see `category_curves`)."""
    images, ids = evaluated.images, list(evaluated.names)
    if not images:
        return []
    return [
        section('Precision and recall', _curves(evaluated)),
        section('Score threshold', _thresholds(evaluated)),
        section('Errors by kind', error_table({'': evaluated})),
        section('Confusion of classes', _confusion(evaluated)),
        section('Calibration of scores', _calibration(evaluated)),
        section(
            'AP by object size and by number of objects',
            note('AP of boxes at IoU 0.5, mean over the categories that have such objects.')
            + _groups('Size', errors.by_size(images, ids))
            + _groups('Objects in the image', errors.by_number(images, ids)),
        ),
        section('Worst images', _pictures(evaluated, is_best=False)),
        section('Best images', _pictures(evaluated, is_best=True)),
    ]


def category_curves(evaluated: EvaluatedImages) -> dict[str, Curve]:
    """Returns the curve at IoU 0.5 of each category, by its name."""
    found = errors.curves(evaluated.images, evaluated.names)
    return {evaluated.names[id_]: each for id_, each in found.items()}


def error_table(runs: Mapping[str, EvaluatedImages]) -> str:
    """Returns a table of the errors by kind, with the numbers of each run in columns of its own."""
    found = {name: errors.measure(each.images, list(each.names)) for name, each in runs.items()}
    heads = ['Kind']
    for name in found:
        heads += [f'{name} errors'.strip(), f'{name} dAP'.strip()]
    rows = [
        [
            f'{kind}: {_MEANINGS[kind]}',
            *(cell for each in found.values() for cell in _error_cells(each[index])),
        ]
        for index, kind in enumerate(errors.KINDS)
    ]
    text = (
        'Kinds as TIDE defines them. dAP is by how much AP of boxes at IoU 0.5 would rise if all '
        'errors of the kind were repaired; the numbers do not add up.'
    )
    return note(text) + grid_table(heads, rows)


def _error_cells(error: errors.ErrorKind) -> list[Cell]:
    return [Cell.count(error.count), Cell(error.cost, f'{error.cost:.3f}', True)]


def _curves(evaluated: EvaluatedImages) -> str:
    ids, names = list(evaluated.names), evaluated.names
    by_iou = {iou: errors.curves(evaluated.images, ids, iou=iou) for iou in _IOUS}
    lines = {}
    for iou, found in by_iou.items():
        mean = errors.mean_precisions(found)
        if mean is not None:
            lines[f'mean, IoU {iou:g}: AP {errors.mean_ap(found):.3f}'] = mean
    if not lines:
        return ''
    first = by_iou[_IOUS[0]]
    worst = sorted((i for i in ids if first[i].num_objects), key=lambda id_: first[id_].ap)
    for id_ in worst[:_MAX_CURVES] if len(worst) > 1 else ():
        lines[f'{names[id_][:24]}, IoU 0.5: AP {first[id_].ap:.3f}'] = first[id_].precisions
    text = 'Precision of boxes at each recall: the mean over categories'
    if len(worst) > 1:
        text += f', and the {min(len(worst), _MAX_CURVES)} categories with the lowest AP'
    return note(f'{text}.') + charts.unit_chart(
        {name: (errors.RECALLS, values) for name, values in lines.items()},
        x_label='recall',
        y_label='precision',
    )


def _thresholds(evaluated: EvaluatedImages) -> str:
    found = thresholds.by_score(evaluated.images, evaluated.names)
    if found is None:
        return ''
    best = found.advice()
    text = (
        f'Advised: {best["score_threshold"]:.2f}, where F1 is greatest: precision '
        f'{best["precision"]:.1%}, recall {best["recall"]:.1%}, F1 {best["f1"]:.1%}, of the boxes '
        'of all categories together at IoU 0.5. A higher threshold gives fewer false detections, '
        'a lower one misses fewer objects.'
    )
    shown = {'precision': found.precisions, 'recall': found.recalls, 'F1': found.f1}
    return note(text) + charts.unit_chart(
        {name: (thresholds.SCORES, values) for name, values in shown.items()},
        x_label='least score',
        y_label='share',
        mark=best['score_threshold'],
    )


def _confusion(evaluated: EvaluatedImages) -> str:
    ids = list(evaluated.names)
    names = [*evaluated.names.values(), 'background']
    matrix = confusion_matrix(evaluated.images, ids)
    if not matrix.any():
        return note('No object, and no detection with a score of 0.5 or more.')
    text = (
        'Rows are annotated, columns detected, with a score of 0.5 or more and an IoU of 0.5 or '
        'more; percentages are shares of the row. In the column "background" are missed objects, '
        'in the row "background" false detections.'
    )
    used = np.flatnonzero(matrix[:-1].sum(axis=1) + matrix[:, :-1].sum(axis=0))
    if len(used) > _MAX_MATRIX:
        mistakes = matrix + matrix.T
        np.fill_diagonal(mistakes, 0)
        used = np.sort(used[np.argsort(-mistakes[used].sum(axis=1), kind='stable')][:_MAX_MATRIX])
        text += f' Of {len(ids):,} categories, the {_MAX_MATRIX} with the most mistakes are shown.'
    used = np.append(used, len(ids))
    return (
        note(text)
        + _matrix_table([names[i] for i in used], matrix[np.ix_(used, used)])
        + _confused(names, matrix)
    )


def _matrix_table(names: Sequence[str], matrix: np.ndarray) -> str:
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    escaped = [html.escape(name) for name in names]
    head = ''.join(f'<th title="{name}">{name}</th>' for name in ['annotated', *escaped])
    rows = ''.join(
        f'<tr><th title="{name}">{name}</th>'
        + ''.join(
            f'<td style="--share:{0.75 * share:.2f}" title="{share:.0%} of {name}">{count}'
            + (f'<br><small>{share:.0%}</small></td>' if count else '</td>')
            for count, share in zip(counts.tolist(), parts.tolist(), strict=True)
        )
        + '</tr>'
        for name, counts, parts in zip(escaped, matrix, shares, strict=True)
    )
    return (
        f'<div class="tables"><table class="matrix"><thead><tr>{head}</tr></thead>'
        f'<tbody>{rows}</tbody></table></div>'
    )


def _confused(names: Sequence[str], matrix: np.ndarray) -> str:
    """Returns a table of the pairs of classes that are confused most often."""
    between = matrix[:-1, :-1].copy()
    np.fill_diagonal(between, 0)
    rows, columns = np.nonzero(between)
    order = np.argsort(-between[rows, columns], kind='stable')[:_MAX_CONFUSED]
    if not len(order):
        return ''
    table = [
        [names[rows[i]], names[columns[i]], Cell.count(int(between[rows[i], columns[i]]))]
        for i in order
    ]
    return '<h3>Most confused</h3>' + grid_table(['Annotated', 'Detected', 'Objects'], table)


def _calibration(evaluated: EvaluatedImages) -> str:
    found = calibrate(evaluated.images)
    if found.ece is None:
        return note('No detection with a score of 0.05 or more.')
    text = (
        f'Expected calibration error {found.ece:.3f}, over {int(found.counts.sum()):,} detections '
        'with a score of 0.05 or more. Bars are the share of detections that match an object (IoU '
        '0.5) by their score: below the line, scores are too high.'
    )
    return note(text) + charts.unit_chart(
        {}, x_label='score', y_label='precision', bars=found.precisions, has_diagonal=True
    )


def _groups(title: str, groups: Sequence[Group]) -> str:
    rows = [[g.name, Cell.count(g.num_objects), Cell.share(g.ap)] for g in groups]
    return grid_table([title, 'Objects', 'AP'], rows)


def _pictures(evaluated: EvaluatedImages, *, is_best: bool) -> str:
    chosen = [each for each in evaluated.pictures if each.is_best == is_best]
    if not chosen:
        return ''
    text = (
        'Ground truth on the left, detections on the right. Images are ordered by the harmonic '
        'mean of precision and recall at IoU 0.5.'
    )
    pictures = [(f'{each.name}: {each.caption}', each.jpeg) for each in chosen]
    return note(text) + picture_grid(pictures, is_wide=True)


FILE_NAME = 'report.html'
_logger = logging.getLogger(__name__)
_CATEGORY = re.compile(r'(\w+?)_PerformanceByCategory/(\S+?)/(.+)')
_SIDES = {'DetectionBoxes': 'box', 'DetectionMasks': 'mask'}
# A number of detections and an IoU may follow.
_MEAN_AP = re.compile(r'[^/]+/(?:mAP|AP)(?:@\d+)?(@[^/ ]*)?')


@dataclasses.dataclass(frozen=True)
class Extras:
    """What a page shows besides the files of the model_dir.

    Attributes:
      title: title of the page; '' names the model_dir.
      facts: name -> value, below the title.
      pictures: (caption, picture) as `picture_grid` takes them.
      base: path of a config that the config of the training is compared with; None takes that of
        the checkpoint that it started from, if there is one.
    """

    title: str = ''
    facts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    pictures: Sequence[tuple[str, str | bytes]] = ()
    base: str | None = None


def write(model_dir: str | os.PathLike, path: str | os.PathLike, extras: Extras = Extras()) -> None:
    """Writes the report of a training; it replaces an earlier one when it is complete.

    Raises:
      UserError: see `run_files.read`.
    """
    run = run_files.read(model_dir)
    title = extras.title or f'Training in {run.name}'
    facts = {**extras.facts, **_facts(run)}
    files.write_text(path, page(title, facts, _sections(run, extras)))


def write_at_end(model_dir: str | os.PathLike) -> None:
    """Writes the report of a training that has finished; an error is only logged."""
    if (pathlib.Path(model_dir) / status.FINISHED_FILE).exists():
        update(model_dir)


def update(model_dir: str | os.PathLike) -> None:
    """Writes the report into a model_dir; an error is only logged."""
    folder = pathlib.Path(model_dir)
    try:
        write(folder, folder / FILE_NAME)
    except (UserError, OSError) as error:
        _logger.warning('no report was written: %s', error)
    else:
        _logger.info('%s shows the results', folder / FILE_NAME)


def _sections(run: RunFiles, extras: Extras) -> Iterator[str]:
    readers = list(dict.fromkeys([*run.evaluations, *run.evaluated]))
    if not readers:
        yield section('Metrics', note('No evaluation has been finished yet.'))
    for reader in readers:
        yield _titled(reader, 'Metrics', summary_table(run.metrics(reader)))
    losses = loss_chart(run.history, run.evaluations) if run.history else ''
    yield section('Training loss', losses)
    yield section('Learning rate', history_chart({'': run}, 'learning_rate'))
    yield section('AP over time', ap_chart({'': run}))
    for reader in readers:
        yield from _reader_sections(run, reader)
    yield section('Pictures', picture_grid(extras.pictures))
    yield section('Speed and memory', _speed(run))
    yield section('Where the time went', _times(run))
    yield from _config_sections(run, extras.base)
    yield folded('Runs', _runs(run))
    for reader in readers:
        yield _titled(reader, 'Other values', value_table({'': other_values(run.metrics(reader))}))
        yield folded(_title(reader, 'All values by name'), value_table({'': run.metrics(reader)}))


def _reader_sections(run: RunFiles, reader: str) -> Iterator[str]:
    evaluated = run.evaluated.get(reader)
    metrics = run.metrics(reader)
    curves = category_curves(evaluated) if evaluated else {}
    yield _titled(reader, 'By category', _category_table(metrics, curves))
    yield _titled(reader, 'By super category', super_category_table(metrics))
    if evaluated is None:
        text = (
            'The sections on errors, confusion and calibration need detections.npz, which an '
            'evaluation by this version writes: tfod eval --run_once does.'
        )
        yield _titled(reader, 'Detections', note(text))
        return
    if len(evaluated.images) < evaluated.num_images:
        text = f'Of {evaluated.num_images:,} images the first {len(evaluated.images):,} are used.'
        yield _titled(reader, 'Detections', note(text))
    if reader:
        yield f'<h2>{html.escape(reader)}</h2>'
    yield from sections(evaluated)


def _title(reader: str, title: str) -> str:
    return f'{title}: {reader}' if reader else title


def _titled(reader: str, title: str, content: str) -> str:
    return section(_title(reader, title), content)


def _facts(run: RunFiles) -> dict[str, str]:
    now = run.status
    steps = '' if now.step is None else f'{now.step:,}'
    if steps and now.num_steps:
        steps += f' of {now.num_steps:,}'
    facts = {'steps': steps, 'state': now.state}
    for reader, evaluated in run.evaluated.items():
        facts[_title(reader, 'evaluated images')] = f'{evaluated.num_images:,}'
    if now.best is not None:
        best = now.best
        facts['best'] = f'{best.metric} {best.value:.4f} at step {best.step:,}'
    return {name: value for name, value in facts.items() if value}


def ap_chart(runs: Mapping[str, RunFiles]) -> str:
    """Draws the mean average precisions of all evaluations; a sentence if a run has only one.

    Of several runs only those without an IoU in their name are drawn; each has one colour.
    """
    series: dict[str, list[tuple[float, float]]] = {}
    groups: dict[str, int] = {}
    for number, (run_name, run) in enumerate(runs.items()):
        for reader, entries in run.evaluations.items():
            for entry in entries:
                for name, value in entry['metrics'].items():
                    match = _MEAN_AP.fullmatch(name)
                    if match and value >= 0 and (len(runs) == 1 or not match[1]):
                        words = ' '.join(filter(None, (run_name, reader, _short(name))))
                        series.setdefault(words, []).append((entry['step'], value))
                        groups.setdefault(words, number if len(runs) > 1 else len(groups))
    steps = {step for points in series.values() for step, _ in points}
    if len(runs) == 1 and len(steps) == 1:
        return note(f'One evaluation so far, at step {steps.pop():,}: its values are above.')
    return line_chart(series, x_label='step', groups=groups) if series else ''


def _short(name: str) -> str:
    """'DetectionBoxes_Precision/mAP@.50IOU' -> 'box mAP@.50IOU'."""
    group, _, rest = name.partition('/')
    return f'{_SIDES.get(group.partition("_")[0], group)} {rest}'


def history_chart(runs: Mapping[str, RunFiles], key: str) -> str:
    """Draws an entry of the history of each run, or one of its losses; '' where there is none."""
    series = {}
    for name, run in runs.items():
        found = [(e['step'], e.get(key, e['losses'].get(key))) for e in run.history]
        points = [(step, value) for step, value in found if value is not None]
        series[name or key.replace('_', ' ')] = points
    groups = {name: number for number, name in enumerate(series)}
    series = {name: points for name, points in series.items() if points}
    return line_chart(series, x_label='step', groups=groups) if series else ''


def category_values(
    metrics: Mapping[str, float], curves: Mapping[str, Curve]
) -> dict[str, dict[str, float | None]]:
    """Returns column -> category -> value, of the metrics by category and of the curves."""
    columns: dict[str, dict[str, float | None]] = {}
    for name, value in metrics.items():
        if match := _CATEGORY.fullmatch(name):
            group, metric, category = match.groups()
            title = f'{_SIDES.get(group, group)} {metric.replace("mAP", "AP")}'
            columns.setdefault(title, {})[category] = value
    if curves:
        columns['box AP@.50'] = {name: curve.ap for name, curve in curves.items()}
        columns['best recall'] = {
            name: curve.recall if curve.num_objects else None for name, curve in curves.items()
        }
    return columns


def _category_table(metrics: Mapping[str, float], curves: Mapping[str, Curve]) -> str:
    columns = category_values(metrics, curves)
    names = list(dict.fromkeys(name for values in columns.values() for name in values))
    heads = ['Category', *(['Objects', 'Detections'] if curves else []), *columns]
    rows = []
    for name in names:
        row: list[str | Cell] = [name]
        if curves:
            found = curves.get(name)
            row += [Cell.count(found and found.num_objects), Cell.count(found and found.num_found)]
        rows.append(row + [Cell.share(values.get(name)) for values in columns.values()])
    return grid_table(heads, rows, is_sortable=True)


def _speed(run: RunFiles) -> str:
    parts = [('Images per second', history_chart({'': run}, 'images_per_second'))]
    memory: dict[str, list[tuple[float, float]]] = {}
    for entry in run.history:
        for device, size in (entry.get('memory') or {}).items():
            memory.setdefault(device, []).append((entry['step'], size / 2**30))
    if memory:
        parts.append(('Memory, GiB', line_chart(memory, x_label='step')))
    shown = [f'<div><h3>{title}</h3>{chart}</div>' for title, chart in parts if chart]
    return f'<div class="pair">{"".join(shown)}</div>' if shown else ''


def _times(run: RunFiles) -> str:
    """Draws the seconds of all runs by what they were spent on."""
    totals: dict[str, float] = {}
    for each in run.runs:
        for name, seconds in ((each.get('averages') or {}).get('seconds') or {}).items():
            if name != 'all':
                totals[name] = totals.get(name, 0.0) + seconds
    if not totals:
        return ''
    whole = max(sum(totals.values()), 1e-9)
    ordered = sorted(totals, key=lambda name: -totals[name])
    names = [f'{name.replace("_", " ")}, {_duration(totals[name])}' for name in ordered]
    return note(f'{_duration(whole)} in all, without runs that were killed.') + charts.bar_chart(
        names, [totals[name] / whole for name in ordered], x_label='share of time', is_share=True
    )


def _runs(run: RunFiles) -> str:
    rows = [['Start', 'Command', 'Source', 'Devices', 'From step', 'Images/s', 'Memory']]
    for each in run.runs:
        averages = each.get('averages') or {}
        memory = (averages.get('memory') or {}).get('host')
        speed = averages.get('images_per_second')
        started = datetime.datetime.fromtimestamp(each.get('time', 0), datetime.UTC)
        rows.append(
            [
                started.strftime('%Y-%m-%d %H:%M UTC'),
                str(each.get('command', '')),
                str(each.get('source') or ''),
                ', '.join(map(str, each.get('devices', []))),
                str(each.get('step', '')),
                '' if speed is None else f'{speed:.1f}',
                '' if memory is None else disk.format_bytes(memory),
            ]
        )
    return text_table(rows) if len(rows) > 1 else ''


def _config_sections(run: RunFiles, base: str | None) -> Iterator[str]:
    base = base or run.base
    if run.config and base is not None:
        name = os.fspath(base)
        text = files.read_bytes(name).decode('utf-8', errors='replace')
        difference = run_files.difference(text, run.config, name)
        yield section('Config: difference from its base', difference)
    yield folded('Config', f'<pre>{html.escape(run.config)}</pre>' if run.config else '')


def _duration(seconds: float) -> str:
    return str(datetime.timedelta(seconds=round(seconds)))


def run_entry(run: RunFiles, key: str) -> Any:
    """Returns the last value of an entry of the averages of the runs; None if there is none."""
    found = [each['averages'].get(key) for each in run.runs if each.get('averages')]
    return found[-1] if found else None
