"""Bar charts, histograms and scatter plots as SVG text; see `line_chart` for curves."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from object_detection.visualization import svg_figure

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
    with svg_figure.drawing((_WIDTH, 0.7 + _BAR * len(values))) as (axes, to_svg):
        places = np.arange(len(values))
        axes.barh(places, values, color=svg_figure.COLORS[0], height=0.7)
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
        axes.tick_params(length=0)
        axes.set_xlabel(x_label, parse_math=False)
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
    with svg_figure.drawing((_WIDTH, _HEIGHT)) as (axes, to_svg):
        if is_log:
            edges = np.geomspace(low / 1.01, high * 1.01, _NUM_BINS + 1)
            axes.set_xscale('log', base=2)
            _plain_ticks(axes, low, high)
        elif np.all(values == np.rint(values)) and high - low < _NUM_BINS:
            edges = np.arange(low - 0.5, high + 1)
        else:
            edges = np.linspace(low, high if high > low else low + 1, _NUM_BINS + 1)
        axes.hist(values, edges, color=svg_figure.COLORS[0], rwidth=0.92)
        for mark in marks:
            axes.axvline(mark, color=svg_figure.COLORS[1], linewidth=1.5)
        axes.tick_params(length=0)
        axes.set_xlabel(x_label, parse_math=False)
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
    with svg_figure.drawing((_WIDTH, 4.4)) as (axes, to_svg):
        if bars is not None:
            edges = np.linspace(0, 1, len(bars) + 1)
            width = 0.92 / len(bars)
            centers = (edges[1:] + edges[:-1]) / 2
            axes.bar(centers, np.nan_to_num(bars), width, color=svg_figure.COLORS[0], alpha=0.8)
        if has_diagonal:
            axes.plot([0, 1], [0, 1], '--', color=svg_figure.COLORS[1], linewidth=1.25)
        if mark is not None:
            axes.axvline(mark, linestyle='--', color=svg_figure.GREY, linewidth=1.25)
        for (name, points), color in zip(lines.items(), svg_figure.COLORS, strict=False):
            axes.plot(*points, color=color, linewidth=1.5, label=name[:_MAX_LETTERS])
        if lines:
            legend = axes.legend(frameon=False, loc='center left', bbox_to_anchor=(1.0, 0.5))
            for text in legend.get_texts():
                text.set_parse_math(False)
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1.02)
        axes.grid(axis='x')
        axes.tick_params(length=0)
        axes.set_xlabel(x_label, parse_math=False)
        axes.set_ylabel(y_label, parse_math=False)
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
    with svg_figure.drawing((_WIDTH, 5.0)) as (axes, to_svg):
        color = svg_figure.COLORS[0]
        axes.plot(x[::step], y[::step], '.', color=color, alpha=0.35, markersize=3, rasterized=True)
        for (name, points), other in zip(groups, svg_figure.COLORS[1:], strict=False):
            points = points[:: math.ceil(len(points) / _MAX_POINTS) or 1]
            axes.plot(*points.T, '+', color=other, markersize=9, markeredgewidth=1.8, label=name)
        axes.set_xscale('log', base=2)
        axes.set_yscale('log', base=2)
        _plain_ticks(axes, float(np.min(x)), float(np.max(x)))
        axes.yaxis.set_major_formatter(_short_number)
        if groups:
            axes.legend(frameon=False)
        axes.tick_params(length=0)
        axes.set_xlabel(x_label, parse_math=False)
        axes.set_ylabel(y_label, parse_math=False)
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
