"""The picture of a benchmark: throughput, and bars of the time of each part of the model."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

from object_detection.benchmarking.node_times import PARTS
from object_detection.system import numbers

_OTHER = 'other'
_GRADIENT = ' gradient'
_NAMES = (*dict.fromkeys(PARTS.values()), _OTHER)
_ALL_NAMES = (*_NAMES, *(name + _GRADIENT for name in _NAMES))
# One colour for each name; gradients are hatched. No two are alike.
_COLORS = (
    *('#6b7280', '#2563eb', '#38bdf8', '#7c3aed', '#f472b6', '#ea580c'),
    *('#15803d', '#fde047', '#84cc16', '#b91c1c', '#78350f', '#d1d5db'),
)
_WIDTH = 10.0  # inches


def shares(row: Mapping[str, Any]) -> dict[str, float]:
    """Returns name of a part -> its share of the time of all nodes, the largest first.

    It is empty where the nodes of the model are not known.
    """
    seconds = _seconds(row)
    total = sum(seconds.values())
    ordered = sorted(seconds.items(), key=lambda item: -item[1])
    return {name: time / total for name, time in ordered} if total else {}


def label(row: Mapping[str, Any]) -> str:
    """Returns what distinguishes a measurement from the others."""
    return f'{row["precision"]}, batch {row["batch_size"]}'


def _seconds(row: Mapping[str, Any]) -> dict[str, float]:
    """Returns the seconds of nodes by the names of the picture, in the order of the model."""
    found: dict[str, float] = {}
    for part in row.get('parts', ()):
        name, is_gradient, _ = part['part'].partition(_GRADIENT)
        shown = PARTS.get(name, _OTHER) + is_gradient
        found[shown] = found.get(shown, 0.0) + part['seconds']
    return {name: found[name] for name in _ALL_NAMES if name in found}


def draw(title: str, rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Draws images per second of each measurement, and below it the time of an image by part.

    The seconds of nodes, which may run at the same time, are scaled to the median time of a call.

    Args:
      title: of the picture.
      rows: measurements; those that failed are left out.

    Returns:
      A PNG file.
    """
    # Imported here, since the import is slow and few programs draw.
    from matplotlib.figure import Figure

    rows = [row for row in rows if 'mean' in row]
    with_parts = [row for row in rows if shares(row)]
    heights = [0.7 + 0.34 * len(rows)]
    if with_parts:
        heights.append(1.2 + 0.34 * len(with_parts))
    figure = Figure(figsize=(_WIDTH, 1.0 + sum(heights)), layout='constrained')
    figure.suptitle(title, fontsize=11, parse_math=False)
    grid = {'height_ratios': heights}
    axes = figure.subplots(len(heights), squeeze=False, gridspec_kw=grid)[:, 0]
    _draw_throughput(axes[0], rows)
    if with_parts:
        _draw_parts(axes[1], with_parts)
    file = io.BytesIO()
    figure.savefig(file, format='png', dpi=110, metadata={'Software': None})
    return file.getvalue()


def _draw_throughput(axes: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    positions = range(len(rows))
    rates = [row['images_per_second'] for row in rows]
    axes.barh(positions, rates, height=0.62, color='#2563eb', label='model')
    roofs = {
        i: row['batch_size'] / row['convolutions']
        for i, row in enumerate(rows)
        if row.get('convolutions')
    }
    if roofs:
        axes.vlines(
            list(roofs.values()),
            [i - 0.4 for i in roofs],
            [i + 0.4 for i in roofs],
            color='#dc2626',
            linewidth=2,
            label="the model's convolutions alone",
        )
        axes.legend(fontsize=8, frameon=False, loc='lower left', bbox_to_anchor=(0, 1), ncols=2)
    # Beside the bars, the numbers would lie on the roofs.
    labels = [
        f'{label(row)}: {numbers.significant(rate)}' for row, rate in zip(rows, rates, strict=True)
    ]
    _finish(axes, labels, 'images per second')
    axes.set_xlim(0, 1.12 * max([*rates, *roofs.values()]))


def _draw_parts(axes: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    starts = [0.0] * len(rows)
    parts = [shares(row) for row in rows]
    for name in _ALL_NAMES:
        widths = [
            1e3 * row['p50'] / row['batch_size'] * share.get(name, 0.0)
            for row, share in zip(rows, parts, strict=True)
        ]
        if not any(widths):
            continue
        plain = name.removesuffix(_GRADIENT)
        axes.barh(
            range(len(rows)),
            widths,
            left=starts,
            height=0.62,
            color=_COLORS[_NAMES.index(plain)],
            hatch='////' if plain != name else None,
            edgecolor='white',
            linewidth=0.5,
            label=name,
        )
        starts = [start + width for start, width in zip(starts, widths, strict=True)]
    axes.legend(fontsize=8, frameon=False, loc='lower left', bbox_to_anchor=(0, 1), ncols=6)
    _finish(axes, [label(row) for row in rows], 'milliseconds an image')


def _finish(axes: Any, labels: Sequence[str], x_label: str) -> None:
    axes.set_yticks(range(len(labels)), labels, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel(x_label, fontsize=9)
    axes.tick_params(axis='x', labelsize=8)
    axes.tick_params(axis='y', length=0)
    axes.grid(axis='x', color='#d1d5db', linewidth=0.5)
    axes.set_axisbelow(True)
    for side in ('top', 'right', 'left'):
        axes.spines[side].set_visible(False)
