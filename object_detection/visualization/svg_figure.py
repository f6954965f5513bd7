"""The style of charts on pages, and their SVG text."""

import contextlib
import io
from collections.abc import Callable, Iterator
from typing import Any

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
}


@contextlib.contextmanager
def drawing(size: tuple[float, float]) -> Iterator[tuple[Any, Callable[[], str]]]:
    """Yields the axes of a figure, and a function that returns the figure as an <svg> element.

    Args:
      size: width and height in inches of 72 points; the page scales it.
    """
    # Imported here, since the import is slow and few programs draw.
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=size, layout='constrained')
        yield figure.add_subplot(), lambda: _to_svg(figure)


def _to_svg(figure: Any) -> str:
    file = io.StringIO()
    nothing = dict.fromkeys(('Creator', 'Date', 'Format', 'Type'))
    figure.savefig(file, format='svg', transparent=True, metadata=nothing)
    text = file.getvalue()
    return text[text.index('<svg ') :].replace('<svg ', '<svg role="img" class="chart" ', 1)
