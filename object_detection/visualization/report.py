"""A run's report: one HTML page with the loss curve, the metrics and pictures."""

import base64
import html
import os
import pathlib
import re
import urllib.parse
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from object_detection.visualization.line_chart import line_chart

_TOTAL_LOSS = 'total_loss'
_SIDES = {'DetectionBoxes': 'box', 'DetectionMasks': 'mask'}
_SUMMARY = re.compile(r'(Detection(?:Boxes|Masks))_((?:Precision|Recall)/[^/]+)')
_BY_GROUP = {
    'Category': re.compile(r'(Detection(?:Boxes|Masks))_PerformanceByCategory/mAP/(.+)'),
    'Super category': re.compile(r'(Detection(?:Boxes|Masks))_PerformanceBySuperCategory/(.+)'),
}
_OWN_TABLES = tuple(f'{prefix}_' for prefix in _SIDES)
# The reference's names of COCO's metrics -> names in the report.
_WORDS = {
    'Precision/mAP': 'AP, mean over IoU .50 to .95',
    'Precision/mAP@.50IOU': 'AP at IoU .50',
    'Precision/mAP@.75IOU': 'AP at IoU .75',
    'Precision/mAP (small)': 'AP, objects under 32² pixels',
    'Precision/mAP (medium)': 'AP, objects of 32² to 96² pixels',
    'Precision/mAP (large)': 'AP, objects over 96² pixels',
    'Recall/AR@1': 'AR with 1 detection an image',
    'Recall/AR@10': 'AR with 10 detections an image',
    'Recall/AR@100': 'AR with 100 detections an image',
    'Recall/AR@100 (small)': 'AR, objects under 32² pixels',
    'Recall/AR@100 (medium)': 'AR, objects of 32² to 96² pixels',
    'Recall/AR@100 (large)': 'AR, objects over 96² pixels',
}
_STYLE = """
:root { color-scheme: light dark; --ink: #1f2328; --soft: #656d76; --line: #d8dee4;
  --page: #f6f8fa; --card: #ffffff; --bar: #2563eb22; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #9198a1; --line: #30363d;
  --page: #0d1117; --card: #161b22; --bar: #4493f833; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, Helvetica, Arial, sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 32px 20px 64px; }
h1 { font-size: 26px; margin: 0 0 4px; }
h2 { font-size: 18px; margin: 0 0 12px; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 20px 24px; margin-top: 20px; }
.facts { display: flex; flex-wrap: wrap; gap: 4px 28px; margin: 8px 0 0; color: var(--soft); }
.facts div { display: flex; gap: 8px; }
.facts dd { margin: 0; color: var(--ink); }
.chart { width: 100%; height: auto; display: block; }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: 4px 20px; margin: 12px 0 0;
  padding: 0; color: var(--soft); font-size: 13px; }
.legend span { display: inline-block; width: 14px; height: 3px; border-radius: 2px;
  margin-right: 7px; vertical-align: middle; }
.tables { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 6px 12px; border-bottom: 1px solid var(--line); }
thead th { color: var(--soft); font-weight: 600; font-size: 13px; }
tbody th { font-weight: 400; }
tbody tr:last-child > * { border-bottom: 0; }
td, thead th:not(:first-child) { text-align: right; width: 130px; }
td.part { background: linear-gradient(var(--bar), var(--bar)) no-repeat left / var(--part) 100%; }
.pictures { display: grid; gap: 16px;
  grid-template-columns: repeat(auto-fill, minmax(300px, 1fr)); }
figure { margin: 0; }
figure img { width: 100%; display: block; border-radius: 6px; border: 1px solid var(--line); }
summary { cursor: pointer; font-weight: 600; }
figcaption { color: var(--soft); font-size: 13px; margin-top: 4px; overflow-wrap: anywhere; }
"""


def write_report(
    path: str | os.PathLike,
    *,
    title: str,
    loss_history: Sequence[Mapping[str, Any]],
    metrics: Mapping[str, float],
    pictures: Sequence[tuple[str, str | bytes]],
    facts: Mapping[str, str],
) -> None:
    """Writes the page; it needs no other files except the pictures that are given by path.

    Args:
      path: path of the page.
      title: title of the page.
      loss_history: entries {'step': number, 'losses': {name: value}}; other keys are not shown.
      metrics: values under the reference's names. COCO's metrics of boxes and masks are shown side
        by side, AP by category in a separate table; a collapsed list at the end contains all
        values. -1 (undefined) is shown as a dash.
      pictures: (caption, picture): a path relative to the page, or the bytes of a PNG or JPEG file,
        which become part of the page.
      facts: facts about the run: name -> value.
    """
    sections = [
        section('Training loss', _loss_chart(loss_history)),
        section('COCO metrics', _summary_table(metrics)),
        *(
            section(f'By {group.lower()}', _group_table(metrics, group, pattern))
            for group, pattern in _BY_GROUP.items()
        ),
        section('Pictures', picture_grid(pictures)),
        section('Other values', _table({'': _others(metrics)})),
        folded('All values by name', _table({'': metrics})),
    ]
    write_page(path, title, facts, sections)


def write_tables(
    path: str | os.PathLike,
    *,
    title: str,
    facts: Mapping[str, str],
    pictures: Sequence[tuple[str, bytes]],
    tables: Mapping[str, Sequence[Sequence[str]]],
    notes: Sequence[str] = (),
) -> None:
    """Writes a page of pictures, tables of text and notes; it needs no other files.

    Args:
      path: path of the page.
      title: title of the page.
      facts: name -> value, below the title.
      pictures: (caption, bytes of a PNG or JPEG file), as wide as the page.
      tables: title -> rows of cells; the first row holds the headings.
      notes: sentences at the end.
    """
    sections = [section('', _figure(*picture)) for picture in pictures]
    sections += [section(name, text_table(rows)) for name, rows in tables.items()]
    sections.append(section('Notes', ''.join(f'<p>{html.escape(note)}</p>' for note in notes)))
    write_page(path, title, facts, sections)


def write_page(
    path: str | os.PathLike, title: str, facts: Mapping[str, str], sections: Iterable[str]
) -> None:
    """Writes a page of sections, from the functions below; empty ones are left out."""
    page = (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{html.escape(title)}</title><style>{_STYLE}</style></head>\n'
        f'<body><main><h1>{html.escape(title)}</h1>{_fact_list(facts)}\n'
        + '\n'.join(section for section in sections if section)
        + '\n</main></body></html>\n'
    )
    pathlib.Path(path).write_text(page, encoding='utf-8')


def section(title: str, content: str) -> str:
    """Returns a card of the page; '' without content."""
    heading = f'<h2>{html.escape(title)}</h2>' if title else ''
    return f'<section>{heading}{content}</section>' if content else ''


def folded(title: str, content: str) -> str:
    """Returns a card that opens when it is clicked; '' without content."""
    summary = f'<summary>{html.escape(title)}</summary>'
    return f'<section><details>{summary}{content}</details></section>' if content else ''


def _fact_list(facts: Mapping[str, str]) -> str:
    items = (
        f'<div><dt>{html.escape(name)}</dt><dd>{html.escape(str(value))}</dd></div>'
        for name, value in facts.items()
    )
    return f'<dl class="facts">{"".join(items)}</dl>'


def _loss_chart(history: Sequence[Mapping[str, Any]]) -> str:
    series: dict[str, list[tuple[float, float]]] = {}
    for entry in history:
        for name, value in entry['losses'].items():
            series.setdefault(name.removeprefix('Loss/'), []).append((entry['step'], value))
    total_first = sorted(series, key=lambda name: name != _TOTAL_LOSS)
    ordered = {name.replace('_', ' '): series[name] for name in total_first}
    return line_chart(ordered, x_label='step', emphasized=_TOTAL_LOSS.replace('_', ' '))


def _others(metrics: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if not name.startswith(_OWN_TABLES)}


def _summary_table(metrics: Mapping[str, float]) -> str:
    """Boxes and masks side by side, over all categories."""
    columns: dict[str, dict[str, float]] = {}
    for key, value in metrics.items():
        if match := _SUMMARY.fullmatch(key):
            column = columns.setdefault(_SIDES[match[1]], {})
            column[_WORDS.get(match[2], match[2])] = value
    return _table(columns, bars=True)


def _group_table(metrics: Mapping[str, float], group: str, pattern: re.Pattern) -> str:
    """Average precision of boxes and masks, one row a category or super category."""
    columns: dict[str, dict[str, float]] = {}
    for key, value in metrics.items():
        if match := pattern.fullmatch(key):
            columns.setdefault(f'{_SIDES[match[1]]} AP', {})[match[2]] = value
    return _table(columns, first=group, bars=True)


def _table(
    columns: Mapping[str, Mapping[str, float]], *, first: str = '', bars: bool = False
) -> str:
    """Returns a table.

    Args:
      columns: heading -> column (row name -> value).
      first: heading of the column of row names.
      bars: whether values are fractions of 1, which are shown as bars too; -1 is then a dash.
    """
    rows = list(dict.fromkeys(row for values in columns.values() for row in values))
    if not rows:
        return ''
    cell = _part_cell if bars else _plain_cell
    head = ''.join(f'<th>{html.escape(name)}</th>' for name in (first, *columns))
    body = ''.join(
        f'<tr><th>{html.escape(row)}</th>'
        + ''.join(cell(values.get(row, -1.0)) for values in columns.values())
        + '</tr>'
        for row in rows
    )
    return (
        f'<div class="tables"><table><thead><tr>{head}</tr></thead>'
        f'<tbody>{body}</tbody></table></div>'
    )


def text_table(rows: Sequence[Sequence[str]]) -> str:
    """Returns a table of text; the first row holds the headings, the first column names."""
    head = ''.join(f'<th>{html.escape(cell)}</th>' for cell in rows[0])
    body = ''.join(
        f'<tr><th>{html.escape(first)}</th>'
        + ''.join(f'<td>{html.escape(cell)}</td>' for cell in others)
        + '</tr>'
        for first, *others in rows[1:]
    )
    return (
        f'<div class="tables"><table><thead><tr>{head}</tr></thead>'
        f'<tbody>{body}</tbody></table></div>'
    )


def _part_cell(value: float) -> str:
    if value < 0:
        return '<td title="nothing to measure">&ndash;</td>'
    return f'<td class="part" style="--part:{100 * value:.1f}%">{value:.3f}</td>'


def _plain_cell(value: float) -> str:
    return f'<td>{value:.4g}</td>'


def picture_grid(pictures: Iterable[tuple[str, str | bytes]]) -> str:
    """Returns pictures beside each other, (caption, picture) as for `write_report`; '' for none."""
    figures = ''.join(_figure(caption, picture) for caption, picture in pictures)
    return f'<div class="pictures">{figures}</div>' if figures else ''


def _figure(caption: str, picture: str | bytes) -> str:
    caption = html.escape(caption)
    if isinstance(picture, bytes):
        kind = 'jpeg' if picture.startswith(b'\xff\xd8') else 'png'
        source = f'data:image/{kind};base64,{base64.b64encode(picture).decode("ascii")}'
        image = f'<img src="{source}" alt="{caption}">'
    else:
        source = urllib.parse.quote(picture)
        image = f'<a href="{source}"><img src="{source}" alt="{caption}" loading="lazy"></a>'
    return f'<figure>{image}<figcaption>{caption}</figcaption></figure>'
