"""Charts as SVG text, for pages that work without a network: bars, histograms, points, lines."""

import collections
import contextlib
import html
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from object_detection.system.numbers import significant

COLORS = ('#2563eb', '#dc2626', '#059669', '#d97706', '#7c3aed', '#0891b2', '#db2777', '#65a30d')
# Readable on light and dark pages.
GREY, _GRID_COLOR = '#7d8590', '#8b949e55'
_STYLE = {
    'svg.fonttype': 'none',
    # Makes the SVG text of equal charts equal.
    'svg.hashsalt': 'line_chart',
    'text.color': GREY,
    'axes.labelcolor': GREY,
    'xtick.color': GREY,
    'ytick.color': GREY,
    'axes.xmargin': 0.01,
    'axes.grid': True,
    'axes.grid.axis': 'y',
    'grid.color': _GRID_COLOR,
    'axes.spines.left': False,
    'axes.spines.right': False,
    'axes.spines.top': False,
    'axes.edgecolor': _GRID_COLOR,
    'lines.solid_capstyle': 'round',
    'xtick.major.size': 0,
    'ytick.major.size': 0,
}


@contextlib.contextmanager
def drawing(
    size: tuple[float, float], x_label: str, y_label: str = ''
) -> Iterator[tuple[Any, Callable[[], str]]]:
    """Yields the axes of a figure, and a function that returns the figure as an <svg> element.

    Args:
      size: width and height in inches of 72 points; the page scales it.
      x_label, y_label: labels of the axes.
    """
    # Imported here, since the import is slow and few programs draw.
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=size, layout='constrained')
        axes = figure.add_subplot()
        axes.set_xlabel(x_label, parse_math=False)
        axes.set_ylabel(y_label, parse_math=False)
        yield axes, lambda: _to_svg(figure)


def _to_svg(figure: Any) -> str:
    file = io.StringIO()
    nothing = dict.fromkeys(('Creator', 'Date', 'Format', 'Type'))
    figure.savefig(file, format='svg', transparent=True, metadata=nothing)
    text = file.getvalue()
    return text[text.index('<svg ') :].replace('<svg ', '<svg role="img" class="chart" ', 1)


_WIDTH, _HEIGHT, _BAR = 9.5, 2.8, 0.26  # inches
_NUM_BINS = 40
_MAX_POINTS = 4000
_MAX_LETTERS = 40


def bar_chart(
    names: Sequence[str], values: Sequence[float], *, x_label: str, is_share: bool = False
) -> str:
    """Draws one horizontal bar for each name, from top to bottom.

    Args:
      names: as many as values; long ones are cut.
      values: at least 0.
      x_label: label of the axis of values.
      is_share: whether values are shares of 1; the axis then ends at 1. Otherwise it is logarithmic
        where positive values differ by a factor above 100.

    Returns:
      An <svg> element; '' without values.
    """
    if not len(values):
        return ''
    with drawing((_WIDTH, 0.7 + _BAR * len(values)), x_label) as (axes, to_svg):
        places = np.arange(len(values))
        axes.barh(places, values, color=COLORS[0], height=0.7)
        positive = [value for value in values if value > 0]
        if is_share:
            axes.set_xlim(0, 1)
        elif positive and max(positive) > 100 * min(positive):
            axes.set_xscale('log')
            axes.set_xlim(min(0.8, min(positive)), max(positive) * 2)
        for place, value in zip(places, values, strict=True):
            text = f'{value:.1%}' if is_share else f'{value:,.10g}'
            axes.annotate(
                f' {text}', (value, place), va='center', annotation_clip=False, parse_math=False
            )
        axes.set_yticks(places, [name[:_MAX_LETTERS] for name in names], parse_math=False)
        axes.set_ylim(len(values) - 0.4, -0.6)
        axes.grid(axis='y', visible=False)
        axes.grid(axis='x')
        return to_svg()


def histogram(
    values: np.ndarray, *, x_label: str, is_log: bool = False, marks: Sequence[float] = ()
) -> str:
    """Draws how often values occur.

    Args:
      values: float [n]; those that are not finite, or not positive with `is_log`, are left out.
      x_label: label of the axis of values.
      is_log: whether the axis of values is logarithmic, to the base 2.
      marks: values to mark with a vertical line.

    Returns:
      An <svg> element; '' without values.
    """
    values = np.asarray(values, np.float64)
    values = values[np.isfinite(values) & ((values > 0) | (not is_log))]
    if not len(values):
        return ''
    low, high = values.min(), values.max()
    with drawing((_WIDTH, _HEIGHT), x_label) as (axes, to_svg):
        if is_log:
            edges = np.geomspace(low / 1.01, high * 1.01, _NUM_BINS + 1)
            axes.set_xscale('log', base=2)
            _plain_ticks(axes, low, high)
        elif np.all(values == np.rint(values)) and high - low < _NUM_BINS:
            edges = np.arange(low - 0.5, high + 1)
        else:
            edges = np.linspace(low, high if high > low else low + 1, _NUM_BINS + 1)
        axes.hist(values, edges, color=COLORS[0], rwidth=0.92)
        for mark in marks:
            axes.axvline(mark, color=COLORS[1], linewidth=1.5)
        return to_svg()


def unit_chart(
    lines: Mapping[str, tuple[np.ndarray, np.ndarray]],
    *,
    x_label: str,
    y_label: str,
    bars: np.ndarray | None = None,
    has_diagonal: bool = False,
    mark: float | None = None,
) -> str:
    """Draws curves of shares of 1, such as precision over recall, on axes from 0 to 1.

    Args:
      lines: name -> x and y, float [n]; at most eight.
      x_label, y_label: labels of the axes.
      bars: float [n], heights of bars of equal width from 0 to 1; NaN draws none.
      has_diagonal: whether to draw the line on which both shares are equal.
      mark: a value to mark with a vertical line.

    Returns:
      An <svg> element; '' without lines and bars.
    """
    if not lines and bars is None:
        return ''
    with drawing((_WIDTH, 4.4), x_label, y_label) as (axes, to_svg):
        if bars is not None:
            edges = np.linspace(0, 1, len(bars) + 1)
            width = 0.92 / len(bars)
            centers = (edges[1:] + edges[:-1]) / 2
            axes.bar(centers, np.nan_to_num(bars), width, color=COLORS[0], alpha=0.8)
        if has_diagonal:
            axes.plot([0, 1], [0, 1], '--', color=COLORS[1], linewidth=1.25)
        if mark is not None:
            axes.axvline(mark, linestyle='--', color=GREY, linewidth=1.25)
        for (name, points), color in zip(lines.items(), COLORS, strict=False):
            axes.plot(*points, color=color, linewidth=1.5, label=name[:_MAX_LETTERS])
        if lines:
            legend = axes.legend(frameon=False, loc='center left', bbox_to_anchor=(1.0, 0.5))
            for text in legend.get_texts():
                text.set_parse_math(False)
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1.02)
        axes.grid(axis='x')
        return to_svg()


def scatter(
    x: np.ndarray,
    y: np.ndarray,
    *,
    x_label: str,
    y_label: str,
    groups: Sequence[tuple[str, np.ndarray]] = (),
) -> str:
    """Draws points on two logarithmic axes to the base 2; of many points, some.

    Args:
      x, y: float [n], positive.
      x_label, y_label: labels of the axes.
      groups: (name, points [m, 2]) to draw on top in another colour, such as anchors.

    Returns:
      An <svg> element; '' without points.
    """
    if not len(x):
        return ''
    step = math.ceil(len(x) / _MAX_POINTS)
    with drawing((_WIDTH, 5.0), x_label, y_label) as (axes, to_svg):
        color = COLORS[0]
        axes.plot(x[::step], y[::step], '.', color=color, alpha=0.35, markersize=3, rasterized=True)
        for (name, points), other in zip(groups, COLORS[1:], strict=False):
            points = points[:: math.ceil(len(points) / _MAX_POINTS) or 1]
            axes.plot(*points.T, '+', color=other, markersize=9, markeredgewidth=1.8, label=name)
        axes.set_xscale('log', base=2)
        axes.set_yscale('log', base=2)
        _plain_ticks(axes, float(np.min(x)), float(np.max(x)))
        axes.yaxis.set_major_formatter(_short_number)
        if groups:
            axes.legend(frameon=False)
        return to_svg()


def _plain_ticks(axes, low: float, high: float) -> None:
    """Labels a logarithmic axis with numbers in place of powers."""
    from matplotlib.ticker import LogLocator, NullLocator

    few = high / low < 16
    axes.xaxis.set_major_locator(LogLocator(base=2, subs=(1.0, 1.5) if few else (1.0,)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(_short_number)


def _short_number(value: float, place: int | None = None) -> str:
    """Returns a number with at most three digits after its leading zeros."""
    del place
    return f'{value:.0f}' if value >= 100 else f'{value:.3g}'


_LINE_CHART_MAX_POINTS = 300
# A range of values wider than this is drawn on a logarithmic axis.
_LOGARITHMIC_FROM = 20.0
# Larger numbers would leave no room for others, or overflow in the arithmetic of the axes.
_LARGEST, _SMALLEST = 1e100, 1e-100

_DASHES = ('-', '--', ':', '-.')

Points = Sequence[tuple[float, float]]


class _Line(NamedTuple):
    """The drawn points of a series.

    Attributes:
      points: float64 [n, 2], (x, y); y is NaN where nothing can be drawn.
      lost: float64 [m], the x of values that are not finite or too large.
    """

    points: np.ndarray
    lost: np.ndarray


class _Style(NamedTuple):
    """The colour of a line, and which of `_DASHES` it has."""

    color: str
    dash: int


def line_chart(
    series: Mapping[str, Points],
    *,
    x_label: str,
    emphasized: str = '',
    groups: Mapping[str, int] | None = None,
) -> str:
    """Draws lines over a common axis.

    Values that are not finite, or beyond 1e100, leave a gap and are marked with a cross at the
    upper edge. Long series are drawn as the means of successive stretches. The value axis is
    logarithmic where positive values differ by a factor above 20.

    Args:
      series: name -> (x, y) in the order of x.
      x_label: label of the x axis.
      emphasized: name of the series to draw with a thicker line.
      groups: name -> number of its colour; those of one colour differ by their dashes. None gives
        each series a colour.

    Returns:
      An <svg> element and its legend, which shows the values at the pointer by the script of
      `report.page`; or a sentence if there is no finite value.
    """
    lines = {name: _line(points) for name, points in series.items()}
    values = np.concatenate([np.zeros(0), *(line.points[:, 1] for line in lines.values())])
    values = values[np.isfinite(values)]
    if not len(values):
        kind = 'finite values' if any(series.values()) else 'values'
        return f'<p>No {kind} were recorded.</p>'
    styles = _styles(lines, groups)
    svg, frame = _draw(lines, styles, values, x_label, emphasized)
    legend = ''.join(
        f'<li><span style="border-top: 3px {"dashed" if style.dash else "solid"} {style.color}">'
        f'</span>{html.escape(name)} <output></output></li>'
        for name, style in styles.items()
    )
    if any(len(line.lost) for line in lines.values()):
        legend += '<li>&times; not a finite number</li>'
    # As many digits as are shown.
    shown = [
        [(x, float(f'{y:.4g}')) for x, y in line.points.tolist() if math.isfinite(y)]
        for line in lines.values()
    ]
    data = {'frame': frame, 'lines': shown}
    text = html.escape(json.dumps(data, separators=(',', ':')))
    return f'<div class="plot" data-plot="{text}">{svg}<ul class="legend">{legend}</ul></div>'


def _styles(names: Iterable[str], groups: Mapping[str, int] | None) -> dict[str, _Style]:
    styles, seen = {}, collections.Counter()
    for i, name in enumerate(names):
        group = i if groups is None else groups[name]
        dash = 0 if groups is None else seen[group]
        seen[group] += 1
        styles[name] = _Style(COLORS[group % len(COLORS)], dash)
    return styles


def _line(points: Points) -> _Line:
    """Averages successive points to limit their number."""
    points = np.array(points, np.float64).reshape(-1, 2)
    # Comparisons with NaN are false.
    is_drawn = np.abs(points[:, 1]) <= _LARGEST
    lost = points[~is_drawn, 0]
    points[~is_drawn, 1] = np.nan
    points[np.abs(points[:, 1]) < _SMALLEST, 1] = 0.0
    stretch = math.ceil(len(points) / _LINE_CHART_MAX_POINTS)
    if stretch > 1:
        groups = np.split(points, range(stretch, len(points), stretch))
        points = np.stack([_mean(group) for group in groups])
    return _Line(points, lost)


def _mean(points: np.ndarray) -> np.ndarray:
    """Returns the mean of the points [n, 2] that have a value; NaN if there are none."""
    y = points[np.isfinite(points[:, 1]), 1]
    return np.array([points[:, 0].mean(), y.mean() if len(y) else np.nan])


def _draw(
    lines: Mapping[str, _Line],
    styles: Mapping[str, _Style],
    values: np.ndarray,
    x_label: str,
    emphasized: str,
) -> tuple[str, list[float]]:
    """Returns the <svg> element, and where its x axis begins and ends.

    `values` are all finite values. The axis is given as two shares of the width and the two values
    of x there.
    """
    # Imported here, since the import is slow and few programs draw.
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, StrMethodFormatter

    with drawing((9.5, 4.0), x_label) as (axes, to_svg):
        for i, (name, line) in enumerate(lines.items()):
            _draw_line(axes, line, styles[name], 2.5 if name == emphasized else 1.25, str(i))
        low, high = values.min(), values.max()
        if low > 0 and high / low > _LOGARITHMIC_FROM:
            axes.set_yscale('log')
            axes.set_ylim(low / 1.1, high * 1.1)
            few = high / low < 1e4
            axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if few else (1.0,)))
            axes.yaxis.set_minor_locator(NullLocator())
        else:
            low = min(0.0, low)
            axes.set_ylim(low, low + ((high - low) * 1.05 or 1.0))
            axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
        axes.xaxis.set_major_locator(MaxNLocator(9, steps=[1, 2, 5, 10]))
        axes.xaxis.set_major_formatter(StrMethodFormatter('{x:,.10g}'))
        axes.yaxis.set_major_formatter(lambda y, position: significant(y, 4))
        svg = to_svg()
        return svg, [*axes.get_position().intervalx.round(4).tolist(), *map(float, axes.get_xlim())]


def _draw_line(axes: Any, line: _Line, style: _Style, width: float, name: str) -> None:
    dash = _DASHES[style.dash % len(_DASHES)]
    color = {'color': style.color}
    axes.plot(*line.points.T, dash, linewidth=width, gid=f'line-{name}', **color)
    alone = line.points[_is_isolated(line.points[:, 1])]
    # Marks without points would count as one in the corner of the figure, and move the axes.
    if len(alone):
        axes.plot(*alone.T, 'o', markersize=2 * width, **color)
    if len(line.lost):
        at_top = np.ones(len(line.lost))
        where = {'transform': axes.get_xaxis_transform(), 'clip_on': False}
        axes.plot(line.lost, at_top, 'x', gid=f'lost-{name}', **where, **color)


def _is_isolated(values: np.ndarray) -> np.ndarray:
    """Returns which values, bool [n], have no neighbour to which a line could be drawn."""
    is_finite = np.pad(np.isfinite(values), 1)
    return is_finite[1:-1] & ~is_finite[:-2] & ~is_finite[2:]
