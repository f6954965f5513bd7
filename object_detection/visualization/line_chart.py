"""A line chart as SVG text, for pages that must work without a network."""

import html
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from object_detection.system.numbers import significant
from object_detection.visualization import svg_figure

_SIZE = (9.5, 4.0)  # inches, of 72 points; the page scales it
_MAX_POINTS = 300
# A range of values wider than this is drawn on a logarithmic axis.
_LOGARITHMIC_FROM = 20.0
# Larger numbers would leave no room for others, or overflow in the arithmetic of the axes.
_LARGEST, _SMALLEST = 1e100, 1e-100

Points = Sequence[tuple[float, float]]


class _Line(NamedTuple):
    """The drawn points of a series.

    Attributes:
      points: float64 [n, 2], (x, y); y is NaN where nothing can be drawn.
      lost: float64 [m], the x of values that are not finite or too large.
    """

    points: np.ndarray
    lost: np.ndarray


def line_chart(series: Mapping[str, Points], *, x_label: str, emphasized: str = '') -> str:
    """Draws lines over a common axis.

    Values that are not finite, or beyond 1e100, leave a gap and are marked with a cross at the
    upper edge. Long series are drawn as the means of successive stretches. The value axis is
    logarithmic where positive values differ by a factor above 20.

    Args:
      series: name -> (x, y) in the order of x.
      x_label: label of the x axis.
      emphasized: name of the series to draw with a thicker line.

    Returns:
      An <svg> element and its legend, or a sentence if there is no finite value.
    """
    lines = {name: _line(points) for name, points in series.items()}
    values = np.concatenate([np.zeros(0), *(line.points[:, 1] for line in lines.values())])
    values = values[np.isfinite(values)]
    if not len(values):
        kind = 'finite values' if any(series.values()) else 'values'
        return f'<p>No {kind} were recorded.</p>'
    colors = {name: svg_figure.COLORS[i % len(svg_figure.COLORS)] for i, name in enumerate(lines)}
    svg = _draw(lines, colors, values, x_label, emphasized)
    legend = ''.join(
        f'<li><span style="background:{colors[name]}"></span>{html.escape(name)}</li>'
        for name in lines
    )
    if any(len(line.lost) for line in lines.values()):
        legend += '<li>&times; not a finite number</li>'
    return f'{svg}<ul class="legend">{legend}</ul>'


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
    colors: Mapping[str, str],
    values: np.ndarray,
    x_label: str,
    emphasized: str,
) -> str:
    """Returns the <svg> element; `values` are all finite values."""
    # Imported here, since the import is slow and few programs draw.
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, StrMethodFormatter

    with svg_figure.drawing(_SIZE) as (axes, to_svg):
        for i, (name, line) in enumerate(lines.items()):
            width = 2.5 if name == emphasized else 1.25
            axes.plot(*line.points.T, color=colors[name], linewidth=width, gid=f'line-{i}')
            alone = line.points[_is_isolated(line.points[:, 1])]
            axes.plot(*alone.T, 'o', color=colors[name], markersize=2 * width)
            at_top = np.ones(len(line.lost))
            axes.plot(
                line.lost,
                at_top,
                'x',
                color=colors[name],
                transform=axes.get_xaxis_transform(),
                clip_on=False,
                gid=f'lost-{i}',
            )
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
        return to_svg()


def _is_isolated(values: np.ndarray) -> np.ndarray:
    """Returns which values, bool [n], have no neighbour to which a line could be drawn."""
    is_finite = np.pad(np.isfinite(values), 1)
    return is_finite[1:-1] & ~is_finite[:-2] & ~is_finite[2:]
