"""HTML pages of sections with charts, tables and pictures, which need no other files."""

import base64
import functools
import html
import re
import urllib.parse
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from object_detection.system import numbers
from object_detection.visualization.charts import line_chart

_TOTAL_LOSS = 'total_loss'
_SIDES = {'DetectionBoxes': 'box', 'DetectionMasks': 'mask'}
_SUMMARY = re.compile(r'(Detection(?:Boxes|Masks))_((?:Precision|Recall)/[^/]+)')
_SUPER_CATEGORY = re.compile(r'(Detection(?:Boxes|Masks))_PerformanceBySuperCategory/(.+)')
_OWN_TABLES = tuple(f'{prefix}_' for prefix in _SIDES)
# The reference's names of COCO's metrics -> names in the report.
_WORDS = {
    'Precision/mAP': 'AP, mean over IoU .50 to .95',
    'Precision/mAP@.50IOU': 'AP at IoU .50',
    'Precision/mAP@.75IOU': 'AP at IoU .75',
    'Precision/mAP (small)': 'AP, objects under 32² pixels',
    'Precision/mAP (medium)': 'AP, objects of 32² to 96² pixels',
    'Precision/mAP (large)': 'AP, objects over 96² pixels',
    'Recall/AR': 'AR with {} detections an image',
    'Recall/AR (small)': 'AR, objects under 32² pixels',
    'Recall/AR (medium)': 'AR, objects of 32² to 96² pixels',
    'Recall/AR (large)': 'AR, objects over 96² pixels',
}
# A number of detections, in all names of recall and in others if the config sets it.
_LIMIT = re.compile(r'(?<=mAP|/AR)@(\d+)')
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
.legend output { color: var(--ink); font-variant-numeric: tabular-nums; }
.legend span { display: inline-block; width: 14px; height: 0;
  margin-right: 7px; vertical-align: middle; }
.tables { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 6px 12px; border-bottom: 1px solid var(--line); }
thead th { color: var(--soft); font-weight: 600; font-size: 13px; }
tbody th { font-weight: 400; }
tbody tr:last-child > * { border-bottom: 0; }
td, thead th:not(:first-child) { text-align: right; width: 130px; }
td.part { background: linear-gradient(var(--bar), var(--bar)) no-repeat left / var(--part) 100%; }
.dense, .dense thead th { font-size: 12px; }
.dense td, .dense thead th:not(:first-child) { width: auto; padding: 6px 4px; }
.dense th { padding: 6px 4px; }
.tall { max-height: 520px; overflow-y: auto; }
.tall thead th { position: sticky; top: 0; background: var(--card); }
table.sortable thead th { cursor: pointer; user-select: none; white-space: nowrap; }
table.sortable thead th::after { content: " \\2195"; opacity: .4; }
th[aria-sort="ascending"]::after { content: " \\2191" !important; opacity: 1 !important; }
th[aria-sort="descending"]::after { content: " \\2193" !important; opacity: 1 !important; }
.matrix { width: auto; font-size: 13px; }
.matrix td, .matrix thead th:not(:first-child) { width: auto; min-width: 44px; padding: 6px 8px;
  text-align: center; background: rgb(37 99 235 / var(--share, 0)); }
.matrix th { max-width: 160px; overflow: hidden; text-overflow: ellipsis; }
.note { color: var(--soft); font-size: 13px; margin: 0 0 12px; max-width: 80ch; }
h3 { font-size: 15px; margin: 20px 0 8px; }
pre { overflow-x: auto; font: 13px/1.45 ui-monospace, Menlo, Consolas, monospace; }
pre .added { color: #059669; } pre .removed { color: #dc2626; }
.pictures { display: grid; gap: 16px;
  grid-template-columns: repeat(auto-fill, minmax(300px, 1fr)); }
.pictures.wide { grid-template-columns: repeat(auto-fill, minmax(460px, 1fr)); }
.pair { display: grid; gap: 24px; grid-template-columns: repeat(auto-fit, minmax(400px, 1fr)); }
.pair h3 { margin-top: 0; }
figure { margin: 0; }
figure img { width: 100%; display: block; border-radius: 6px; border: 1px solid var(--line); }
summary { cursor: pointer; font-weight: 600; }
figcaption { color: var(--soft); font-size: 13px; margin-top: 4px; overflow-wrap: anywhere; }
"""
# Tables with more are set closer, so that they fit the page.
_MAX_COLUMNS = 8
# Shows the values of a line chart at the pointer in its legend.
# Sorts a table by the column whose heading is clicked; cells without a value come last.
_SCRIPT = """
for (const plot of document.querySelectorAll('.plot')) {
  const {frame: [left, right, low, high], lines} = JSON.parse(plot.dataset.plot);
  const shown = plot.querySelectorAll('output'), svg = plot.querySelector('svg');
  svg.addEventListener('pointermove', event => {
    const box = svg.getBoundingClientRect(), share = (event.clientX - box.left) / box.width;
    const x = low + (share - left) / (right - left) * (high - low);
    lines.forEach((points, i) => {
      if (!points.length) return;
      const near = (a, b) => Math.abs(b[0] - x) < Math.abs(a[0] - x) ? b : a;
      const [at, value] = points.reduce(near);
      shown[i].textContent = `${value} at ${Math.round(at).toLocaleString('en')}`;
    });
  });
  svg.addEventListener('pointerleave', () => shown.forEach(each => { each.textContent = ''; }));
}
for (const table of document.querySelectorAll('table.sortable')) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  heads.forEach((head, column) => head.addEventListener('click', () => {
    const sign = head.getAttribute('aria-sort') === 'descending' ? 1 : -1;
    heads.forEach(each => each.removeAttribute('aria-sort'));
    head.setAttribute('aria-sort', sign > 0 ? 'ascending' : 'descending');
    const key = row => row.cells[column].dataset.value ?? row.cells[column].textContent;
    const isNumber = [...body.rows].every(row => key(row) === '' || !isNaN(key(row)));
    body.append(...[...body.rows].sort((a, b) => {
      const [left, right] = [key(a), key(b)];
      if (left === '' || right === '') return (left === '') - (right === '');
      return sign * (isNumber ? left - right : left.localeCompare(right));
    }));
  }));
}
"""


def page(title: str, facts: Mapping[str, str], sections: Iterable[str]) -> str:
    """Returns a page of sections, from the functions below; empty ones are left out.

    Args:
      title: title of the page.
      facts: name -> value, below the title.
      sections: HTML.
    """
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{html.escape(title)}</title><style>{_STYLE}</style></head>\n'
        f'<body><main><h1>{html.escape(title)}</h1>{_fact_list(facts)}\n'
        + '\n'.join(section for section in sections if section)
        + f'\n</main><script>{_SCRIPT}</script></body></html>\n'
    )


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


def loss_chart(
    history: Sequence[Mapping[str, Any]], validation: Mapping[str, Sequence[Mapping[str, Any]]]
) -> str:
    """Draws the losses of a training, and the total losses of its evaluations.

    Args:
      history: entries {'step': number, 'losses': {name: value}}.
      validation: reader -> entries {'step': number, 'metrics': {name: value}}.
    """
    series: dict[str, list[tuple[float, float]]] = {}
    for entry in history:
        for name, value in entry['losses'].items():
            series.setdefault(name.removeprefix('Loss/'), []).append((entry['step'], value))
    for reader, entries in validation.items():
        points = [(e['step'], e['metrics'].get(f'Loss/{_TOTAL_LOSS}')) for e in entries]
        points = [(step, value) for step, value in points if value is not None]
        if points:
            series[f'{_TOTAL_LOSS} of evaluation {reader}'.strip()] = points
    total_first = sorted(series, key=lambda name: name != _TOTAL_LOSS)
    ordered = {name.replace('_', ' '): series[name] for name in total_first}
    return line_chart(ordered, x_label='step', emphasized=_TOTAL_LOSS.replace('_', ' '))


def other_values(metrics: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if not name.startswith(_OWN_TABLES)}


def summary_table(metrics: Mapping[str, float]) -> str:
    """Boxes and masks side by side, over all categories."""
    columns: dict[str, dict[str, float]] = {}
    for key, value in metrics.items():
        if match := _SUMMARY.fullmatch(key):
            column = columns.setdefault(_SIDES[match[1]], {})
            column[_words(match[2])] = value
    return value_table(columns, bars=True)


def metric_name(key: str) -> str:
    """Returns the name of a metric in the tables of `summary_table`, with its side."""
    match = _SUMMARY.fullmatch(key)
    return f'{_SIDES[match[1]]}: {_words(match[2])}' if match else key


def _words(name: str) -> str:
    """Returns a name of `_WORDS` with its number of detections; other names as they are."""
    limit = _LIMIT.search(name)
    words = _WORDS.get(_LIMIT.sub('', name), name)
    if limit and 'mAP' in name and words != name:
        return f'{words}, {limit[1]} detections'
    return words.format(limit and limit[1])


def super_category_table(metrics: Mapping[str, float]) -> str:
    """Average precision of boxes and masks by super category."""
    columns: dict[str, dict[str, float]] = {}
    for key, value in metrics.items():
        if match := _SUPER_CATEGORY.fullmatch(key):
            columns.setdefault(f'{_SIDES[match[1]]} AP', {})[match[2]] = value
    return value_table(columns, first='Super category', bars=True)


def value_table(
    columns: Mapping[str, Mapping[str, float]], *, first: str = '', bars: bool = False
) -> str:
    """Returns a table.

    Args:
      columns: heading -> column (row name -> value).
      first: heading of the column of row names.
      bars: whether values are fractions of 1, which are shown as bars too; -1 is then a dash.
    """
    rows = list(dict.fromkeys(row for values in columns.values() for row in values))
    cell = Cell.share if bars else Cell.number
    cells = [[row, *(cell(values.get(row)) for values in columns.values())] for row in rows]
    return grid_table([first, *columns], cells)


class Cell(NamedTuple):
    """A cell of a table with a number.

    Attributes:
      value: what the column is sorted by; None comes last.
      text: what is shown.
      is_share: whether the value is a share of 1, which is shown as a bar too.
    """

    value: float | None
    text: str
    is_share: bool = False

    @classmethod
    def share(cls, value: float | None) -> 'Cell':
        """Returns a cell of a share of 1; a dash if it is None or, as in COCO's metrics, -1."""
        if value is None or value < 0:
            return cls(None, '\u2013')
        return cls(value, f'{value:.3f}', True)

    @classmethod
    def count(cls, value: int | None) -> 'Cell':
        """Returns a cell of a number of things."""
        return cls.number(value, '{:,}'.format)

    @classmethod
    def number(cls, value: float | None, write: Callable[[float], str] | None = None) -> 'Cell':
        """Returns a cell of any number, of four digits or as `write` does; a dash if it is None."""
        write = write or functools.partial(numbers.significant, digits=4)
        return cls(value, '\u2013' if value is None else write(value))


def grid_table(
    heads: Sequence[str],
    rows: Sequence[Sequence[str | Cell]],
    *,
    is_sortable: bool = False,
    is_dense: bool = False,
) -> str:
    """Returns a table of texts and numbers; '' without rows.

    Args:
      heads: the headings.
      rows: as many cells each; the first is the name of the row.
      is_sortable: whether a click on a heading sorts the rows; of many rows, some are shown.
      is_dense: whether cells are set closer.
    """
    if not rows:
        return ''
    head = ''.join(f'<th>{html.escape(name)}</th>' for name in heads)
    body = ''.join(
        f'<tr><th>{html.escape(str(row[0]))}</th>{"".join(map(_grid_cell, row[1:]))}</tr>'
        for row in rows
    )
    outer, kind = 'tables tall' if is_sortable else 'tables', ''
    if is_sortable or is_dense:
        kind = ' class="sortable"' if is_sortable else ' class="dense"'
    return (
        f'<div class="{outer}"><table{kind}><thead><tr>{head}</tr></thead>'
        f'<tbody>{body}</tbody></table></div>'
    )


def _grid_cell(cell: str | Cell) -> str:
    if isinstance(cell, str):
        return f'<td>{html.escape(cell)}</td>'
    value = '' if cell.value is None else f'{cell.value:.6g}'
    bar = ''
    if cell.is_share:
        bar = f' class="part" style="--part:{min(max(100 * cell.value, 0), 100):.1f}%"'
    return f'<td{bar} data-value="{value}">{html.escape(cell.text)}</td>'


def note(text: str) -> str:
    """Returns a paragraph that explains a section."""
    return f'<p class="note">{html.escape(text)}</p>'


def text_table(rows: Sequence[Sequence[str]]) -> str:
    """Returns a table of text; the first row holds the headings, the first column names."""
    return grid_table(rows[0], rows[1:], is_dense=len(rows[0]) > _MAX_COLUMNS)


def picture_grid(pictures: Iterable[tuple[str, str | bytes]], *, is_wide: bool = False) -> str:
    """Returns pictures beside each other; '' for none.

    Args:
      pictures: (caption, picture): a path relative to the page, or the bytes of a PNG or JPEG file,
        which become part of the page.
      is_wide: whether two of them fill the width of the page.
    """
    kind = 'pictures wide' if is_wide else 'pictures'
    figures = ''.join(figure(caption, picture) for caption, picture in pictures)
    return f'<div class="{kind}">{figures}</div>' if figures else ''


def figure(caption: str, picture: str | bytes) -> str:
    """Returns one picture, as wide as the page; arguments as those of `picture_grid`."""
    caption = html.escape(caption)
    if isinstance(picture, bytes):
        kind = 'jpeg' if picture.startswith(b'\xff\xd8') else 'png'
        source = f'data:image/{kind};base64,{base64.b64encode(picture).decode("ascii")}'
        image = f'<img src="{source}" alt="{caption}">'
    else:
        source = urllib.parse.quote(picture)
        image = f'<a href="{source}"><img src="{source}" alt="{caption}" loading="lazy"></a>'
    return f'<figure>{image}<figcaption>{caption}</figcaption></figure>'
