"""HTML pages of sections with charts, tables and pictures, which need no other files."""

import base64
import functools
import html
import pathlib
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
# Tables with more are set closer, so that they fit the page.
_MAX_COLUMNS = 8


def page(title: str, facts: Mapping[str, str], sections: Iterable[str]) -> str:
    """Returns a page of sections, from the functions below; empty ones are left out.

    Args:
      title: title of the page.
      facts: name -> value, below the title.
      sections: HTML.
    """
    body = '\n'.join(section for section in sections if section)
    style, script = _kit('class="plot"' in body)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{html.escape(title)}</title><style>{style}</style></head>\n'
        f'<body><main><h1>{html.escape(title)}</h1>{_fact_list(facts)}\n'
        f'{body}\n</main><script>{script}</script></body></html>\n'
    )


def _kit(has_plots: bool) -> tuple[str, str]:
    """Returns the style sheet and the script of a page, with those of uPlot if it has charts."""
    folder = pathlib.Path(__file__).parent
    style, script = (
        (folder / f'page.{kind}').read_text(encoding='utf-8') for kind in ('css', 'js')
    )
    if not has_plots:
        return style, script
    library = folder / 'uplot'
    licence, theirs, code = (
        (library / name).read_text(encoding='utf-8')
        for name in ('LICENSE', 'uPlot.min.css', 'uPlot.iife.min.js')
    )
    return f'{theirs}\n{style}', f'/* uPlot:\n{licence}*/\n{code}\n{script}'


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


def loss_charts(
    history: Sequence[Mapping[str, Any]], validation: Mapping[str, Sequence[Mapping[str, Any]]]
) -> str:
    """Draws each loss of a training with that of its evaluations: the total, then its parts.

    Args:
      history: entries {'step': number, 'losses': {name: value}}.
      validation: reader -> entries {'step': number, 'metrics': {name: value}}.
    """
    names = dict.fromkeys(name for entry in history for name in entry['losses'])
    total = f'Loss/{_TOTAL_LOSS}'
    charts = {}
    for name in sorted(names, key=lambda each: each != total):
        series = {'training': [(e['step'], e['losses'].get(name)) for e in history]}
        for reader, entries in validation.items():
            words = f'evaluation {reader}'.strip()
            series[words] = [(e['step'], e['metrics'].get(name)) for e in entries]
        known = {n: [p for p in points if p[1] is not None] for n, points in series.items()}
        title = name.removeprefix('Loss/').replace('_', ' ').replace('/', ': ')
        charts[title] = line_chart({n: p for n, p in known.items() if p}, x_label='step')
    if not charts:
        return ''
    first, *others = charts.items()
    return f'<h3>{html.escape(first[0])}</h3>{first[1]}' + side_by_side(others)


def side_by_side(charts: Iterable[tuple[str, str]]) -> str:
    """Returns charts in columns, each under its title; those without content are left out."""
    shown = [f'<div><h3>{html.escape(title)}</h3>{chart}</div>' for title, chart in charts if chart]
    return f'<div class="pair">{"".join(shown)}</div>' if shown else ''


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
