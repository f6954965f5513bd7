"""A line chart as SVG text, for pages that must work without a network."""

import html
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

_WIDTH, _HEIGHT = 760, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 12, 12, 40
_COLORS = ('#2563eb', '#dc2626', '#059669', '#d97706', '#7c3aed', '#0891b2', '#db2777', '#65a30d')
_MAX_POINTS = 300
# Readable on light and dark pages.
_TEXT_COLOR, _GRID_COLOR = '#7d8590', '#8b949e55'
# A range of values wider than this is drawn on a logarithmic axis.
_LOGARITHMIC_FROM = 20.0

Points = Sequence[tuple[float, float]]


class _Axis(NamedTuple):
    """Maps values to positions between two ends."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def position(self, value: float) -> float:
        low, high, value = (math.log10(v) if self.logarithmic else v for v in (*self[:2], value))
        share = (value - low) / (high - low) if high > low else 0.5
        return self.start + share * (self.end - self.start)


def line_chart(series: Mapping[str, Points], *, x_label: str, emphasized: str = '') -> str:
    """Draws lines over a common axis.

    Values that are not finite leave a gap. Long series are drawn as the means of successive
    stretches. The value axis is logarithmic where positive values differ by a factor above 20.

    Args:
      series: name -> (x, y) in the order of x.
      x_label: what x is.
      emphasized: name of the series to draw with a thicker line.

    Returns:
      An <svg> element and its legend; a sentence instead if there is not one finite value.
    """
    series = {name: _thin(points) for name, points in series.items()}
    finite = [point for points in series.values() for point in points if math.isfinite(point[1])]
    if not finite:
        return '<p>No values were recorded.</p>'
    x_values, y_values = zip(*finite, strict=True)
    x_axis = _Axis(min(x_values), max(x_values), _LEFT, _WIDTH - _RIGHT)
    y_axis = _value_axis(y_values)
    colors = {name: _COLORS[i % len(_COLORS)] for i, name in enumerate(series)}
    lines = [
        _polyline(points, x_axis, y_axis, colors[name], 2.5 if name == emphasized else 1.25)
        for name, points in series.items()
    ]
    legend = ''.join(
        f'<li><span style="background:{colors[name]}"></span>{html.escape(name)}</li>'
        for name in series
    )
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" class="chart" font-size="12" '
        f'fill="{_TEXT_COLOR}">'
        f'{_y_grid(y_axis)}{_x_ticks(x_axis, x_label)}{"".join(lines)}</svg>'
        f'<ul class="legend">{legend}</ul>'
    )


def _thin(points: Points) -> list[tuple[float, float]]:
    """Averages successive points so that not too many are left."""
    points = [(float(x), float(y)) for x, y in points]
    stretch = math.ceil(len(points) / _MAX_POINTS)
    if stretch <= 1:
        return points
    groups = (points[i : i + stretch] for i in range(0, len(points), stretch))
    return [
        tuple(math.fsum(values) / len(group) for values in zip(*group, strict=True))
        for group in groups
    ]


def _value_axis(values: Sequence[float]) -> _Axis:
    low, high = min(values), max(values)
    start, end = _HEIGHT - _BOTTOM, _TOP
    if low > 0 and high / low > _LOGARITHMIC_FROM:
        return _Axis(low / 1.1, high * 1.1, start, end, logarithmic=True)
    low = min(0.0, low)
    return _Axis(low, low + (high - low) * 1.05 or 1.0, start, end)


def _polyline(points: Points, x_axis: _Axis, y_axis: _Axis, color: str, width: float) -> str:
    runs: list[list[str]] = [[]]
    for x, y in points:
        if math.isfinite(y):
            runs[-1].append(f'{x_axis.position(x):.1f},{y_axis.position(y):.1f}')
        elif runs[-1]:
            runs.append([])
    # A line of one point would not show; round caps make it a dot.
    return ''.join(
        f'<polyline points="{" ".join(run if len(run) > 1 else run * 2)}" fill="none" '
        f'stroke="{color}" stroke-width="{width}" stroke-linejoin="round" '
        f'stroke-linecap="round"/>'
        for run in runs
        if run
    )


def _y_grid(axis: _Axis) -> str:
    ticks = _log_ticks(axis) if axis.logarithmic else _even_ticks(axis.low, axis.high)
    return ''.join(
        f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" '
        f'stroke="{_GRID_COLOR}"/>'
        f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:.4g}</text>'
        for value in ticks
        for y in [axis.position(value)]
    )


def _x_ticks(axis: _Axis, label: str) -> str:
    ticks = ''.join(
        f'<text x="{axis.position(value):.1f}" y="{_HEIGHT - _BOTTOM + 18}" '
        f'text-anchor="middle">{value:,.10g}</text>'
        for value in _even_ticks(axis.low, axis.high, wanted=8)
    )
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    name = f'<text x="{middle}" y="{_HEIGHT - 4}" text-anchor="middle">{html.escape(label)}</text>'
    return ticks + name


def _even_ticks(low: float, high: float, wanted: int = 5) -> list[float]:
    """Round numbers (1, 2 or 5 times a power of ten apart) between two values."""
    if not high > low:
        return [low]
    rough = (high - low) / wanted
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [i * step for i in range(first, last + 1)]


def _log_ticks(axis: _Axis) -> list[float]:
    """1, 2 and 5 times powers of ten; powers of ten alone where those are many."""
    powers = range(math.floor(math.log10(axis.low)), math.ceil(math.log10(axis.high)) + 1)
    factors = (1, 2, 5) if len(powers) <= 4 else (1,)
    ticks = (factor * 10.0**power for power in powers for factor in factors)
    return [tick for tick in ticks if axis.low <= tick <= axis.high]
