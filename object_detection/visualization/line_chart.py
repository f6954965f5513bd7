"""A line chart as SVG text, for pages that must work without a network."""

import collections
import html
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from object_detection.system.numbers import significant
from object_detection.visualization import svg_figure

_SIZE = (9.5, 4.0)  # inches, of 72 points; the page scales it
_MAX_POINTS = 300
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
    shown = [[p for p in line.points.tolist() if math.isfinite(p[1])] for line in lines.values()]
    data = {'frame': frame, 'lines': _short(shown)}
    text = html.escape(json.dumps(data, separators=(',', ':')))
    return f'<div class="plot" data-plot="{text}">{svg}<ul class="legend">{legend}</ul></div>'


def _styles(names: Iterable[str], groups: Mapping[str, int] | None) -> dict[str, _Style]:
    styles, seen = {}, collections.Counter()
    for i, name in enumerate(names):
        group = i if groups is None else groups[name]
        dash = 0 if groups is None else seen[group]
        seen[group] += 1
        styles[name] = _Style(svg_figure.COLORS[group % len(svg_figure.COLORS)], dash)
    return styles


def _short(lines: list[list[list[float]]]) -> list[list[list[float]]]:
    """Returns the points with as many digits as are shown."""
    return [[[x, float(f'{y:.4g}')] for x, y in line] for line in lines]


def _line(points: Points) -> _Line:
    """Averages successive points to limit their number."""
    points = np.array(points, np.float64).reshape(-1, 2)
    # Comparisons with NaN are false.
    is_drawn = np.abs(points[:, 1]) <= _LARGEST
    lost = points[~is_drawn, 0]
    points[~is_drawn, 1] = np.nan
    points[np.abs(points[:, 1]) < _SMALLEST, 1] = 0.0
    stretch = math.ceil(len(points) / _MAX_POINTS)
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

    with svg_figure.drawing(_SIZE) as (axes, to_svg):
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
        axes.tick_params(length=0)
        axes.set_xlabel(x_label, parse_math=False)
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
