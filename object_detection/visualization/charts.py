"""Charts for pages that work without a network: bars, histograms and points as SVG text, lines.

Lines are data, which uPlot (https://github.com/leeoniya/uPlot) draws in the page.
"""

import collections
import contextlib
import html
import io
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from object_detection.errors import format_list

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


def reliability_chart(precisions: np.ndarray) -> str:
    """Draws the share of right detections by their score, with the line where both are equal.

    Args:
      precisions: float64 [n], of equal ranges of scores from 0 to 1; NaN draws no bar.

    Returns:
      An <svg> element.
    """
    with drawing((_WIDTH, 4.4), 'score', 'precision') as (axes, to_svg):
        centers = (np.arange(len(precisions)) + 0.5) / len(precisions)
        width = 0.92 / len(precisions)
        axes.bar(centers, np.nan_to_num(precisions), width, color=COLORS[0], alpha=0.8)
        axes.plot([0, 1], [0, 1], '--', color=COLORS[1], linewidth=1.25)
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
# Larger numbers overflow in the arithmetic of the axes.
_LARGEST, _SMALLEST = 1e100, 1e-100
# Lengths of strokes and gaps in pixels.
_DASHES: tuple[tuple[int, ...], ...] = ((), (7, 4), (2, 3), (9, 3, 2, 3))

Points = Sequence[tuple[float, float]] | np.ndarray


def line_chart(
    series: Mapping[str, Points],
    *,
    x_label: str,
    y_label: str = '',
    emphasized: str = '',
    groups: Mapping[str, int] | None = None,
    colors: Mapping[str, str] | None = None,
    is_linear: bool = False,
    is_share: bool = False,
    mark: float | None = None,
) -> str:
    """Returns lines over a common axis, which the script of `report.page` draws.

    The legend shows the values at the pointer and hides a line at a click; dragging zooms. Values
    that are not finite, or beyond 1e100, leave a gap and are named below. Long series are drawn as
    the means of successive stretches. The value axis is logarithmic where positive values differ by
    a factor above 20.

    Args:
      series: name -> (x, y) in the order of x.
      x_label, y_label: labels of the axes.
      emphasized: name of the series to draw with a thicker line.
      groups: name -> number of its colour; those of one colour differ by their dashes. None gives
        each series a colour.
      colors: name -> colour as CSS has it, in place of that of its number.
      is_linear: whether the value axis is linear whatever the values.
      is_share: whether x and y are shares of 1, whose axes are from 0 to 1.
      mark: an x to mark with a vertical line.

    Returns:
      An element; or a sentence if there is no finite value.
    """
    drawn = {name: _thinned(points) for name, points in series.items()}
    values = np.concatenate([np.zeros(0), *(points[:, 1] for points, _ in drawn.values())])
    values = values[np.isfinite(values)]
    if not len(values):
        kind = 'finite values' if any(map(len, series.values())) else 'values'
        return f'<p>No {kind} were recorded.</p>'
    low, high = values.min(), values.max()
    lines, seen = [], collections.Counter()
    for i, (name, (points, _)) in enumerate(drawn.items()):
        group = i if groups is None else groups[name]
        color = (colors or {}).get(name, COLORS[group % len(COLORS)])
        dash = _DASHES[seen[group] % len(_DASHES) if groups is not None else 0]
        seen[group] += 1
        width = 2.5 if name == emphasized else 1.5
        # As many digits as are shown.
        shown = [(x, float(f'{y:.4g}') if math.isfinite(y) else None) for x, y in points.tolist()]
        lines.append({'name': name, 'color': color, 'dash': dash, 'width': width, 'points': shown})
    data = {
        'x': x_label,
        'y': y_label,
        'log': bool(low > 0 and high / low > _LOGARITHMIC_FROM and not (is_linear or is_share)),
        'share': is_share,
        'mark': mark,
        'lines': lines,
    }
    text = html.escape(json.dumps(data, separators=(',', ':')))
    lost = ''.join(_lost(name, x_label, each) for name, (_, each) in drawn.items() if len(each))
    return f'<div class="plot" data-plot="{text}"></div>{lost}'


def _thinned(points: Points) -> tuple[np.ndarray, np.ndarray]:
    """Averages successive points to limit their number.

    Returns:
      float64 [n, 2], (x, y), where y is NaN where nothing can be drawn; and the x of such values.
    """
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
    return points, lost


def _mean(points: np.ndarray) -> np.ndarray:
    """Returns the mean of the points [n, 2] that have a value; NaN if there are none."""
    y = points[np.isfinite(points[:, 1]), 1]
    return np.array([points[:, 0].mean(), y.mean() if len(y) else np.nan])


def _lost(name: str, x_label: str, places: np.ndarray) -> str:
    text = f'{name}: not finite at {x_label} {format_list([f"{x:,.10g}" for x in places], 5)}'
    return f'<p class="note">{html.escape(text)}</p>'
