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

from object_detection.errors import UserError
from object_detection.metrics.analysis.errors import Curve
from object_detection.reporting import evaluation_sections, run_files
from object_detection.reporting.run_files import RunFiles
from object_detection.system import disk, files
from object_detection.training import status
from object_detection.visualization import charts
from object_detection.visualization.charts import line_chart
from object_detection.visualization.report import (
    Cell,
    folded,
    grid_table,
    loss_charts,
    metric_name,
    note,
    other_values,
    page,
    picture_grid,
    section,
    side_by_side,
    summary_table,
    super_category_table,
    text_table,
    value_table,
)

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
    for reader, pictures in evaluation_sections.reduced(run.evaluated).items():
        yield from evaluation_sections.pictures(pictures, f': {reader}' if reader else '')
    yield section('Pictures', picture_grid(extras.pictures))
    for reader in readers:
        yield _titled(reader, 'Metrics', summary_table(run.metrics(reader)))
    if not readers:
        yield section('Metrics', note('No evaluation has been finished yet.'))
    yield section('Losses', loss_charts(run.history, run.evaluations))
    yield section('AP over time', ap_chart({'': run}))
    for reader in readers:
        yield from _reader_sections(run, reader)
    yield section('Learning rate', history_chart({'': run}, 'learning_rate', is_linear=True))
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
    curves = evaluation_sections.category_curves(evaluated) if evaluated else {}
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
    yield from evaluation_sections.sections(evaluated)


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
    for reader in run.evaluations:
        for name, value in run.metrics(reader).items():
            if (match := _MEAN_AP.fullmatch(name)) and not match[1] and value >= 0:
                facts[_title(reader, metric_name(name))] = f'{value:.3f}'
    for reader, evaluated in run.evaluated.items():
        facts[_title(reader, 'evaluated images')] = f'{evaluated.num_images:,}'
    if now.best is not None:
        best = now.best
        facts['best'] = f'{metric_name(best.metric)} {best.value:.4f} at step {best.step:,}'
    return {name: value for name, value in facts.items() if value}


def ap_chart(runs: Mapping[str, RunFiles]) -> str:
    """Draws the mean average precisions of all evaluations; '' if no run has two of them.

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
                        words = ' '.join(filter(None, (run_name, reader, metric_name(name))))
                        series.setdefault(words, []).append((entry['step'], value))
                        groups.setdefault(words, number if len(runs) > 1 else len(groups))
    return _over_time(series, groups, is_linear=True)


def _over_time(
    series: Mapping[str, Sequence[tuple[float, float]]],
    groups: Mapping[str, int] | None = None,
    *,
    is_linear: bool = False,
) -> str:
    """Draws series by step; '' if none has two steps, as single points say nothing about time."""
    if max((len(points) for points in series.values()), default=0) < 2:
        return ''
    series = {name: points for name, points in series.items() if points}
    return line_chart(series, x_label='step', groups=groups, is_linear=is_linear)


def history_chart(runs: Mapping[str, RunFiles], key: str, *, is_linear: bool = False) -> str:
    """Draws an entry of the history of each run, or one of its losses with that of evaluations.

    '' where there is none. Lines of a run have one colour.
    """
    series, groups = {}, {}
    for number, (name, run) in enumerate(runs.items()):
        lines = {name or key.replace('_', ' '): [*run.history]}
        for reader, entries in run.evaluations.items():
            words = ' '.join(filter(None, (name, 'evaluation', reader)))
            lines[words] = [{'step': e['step'], 'losses': e['metrics']} for e in entries]
        for line, entries in lines.items():
            found = [(e['step'], e.get(key, e['losses'].get(key))) for e in entries]
            series[line] = [(step, value) for step, value in found if value is not None]
            groups[line] = number
    return _over_time(series, groups, is_linear=is_linear)


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
    return side_by_side([*parts, ('Memory, GiB', _over_time(memory))])


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
