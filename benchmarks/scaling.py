"""Measures how time and memory grow with the data: objects, annotations, pixels, batches.

    python benchmarks/scaling.py
    python benchmarks/scaling.py --short
    python benchmarks/scaling.py --quick --axis annotations_json

Each axis is measured in a process of its own, from small to large. "exponent" is the slope of the
logarithms over the three largest sizes: 1 is linear. Fails if an exponent is above the limit, twice
in a row, since a busy machine can slow one point down. With `--short`, all axes share a process and
have three smaller sizes, so that the whole takes about two minutes; memory is not judged then. What
several replicas and processes cost is measured by scaling_workers.py.
"""

import json
import math
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence

import click
import measure
import scaling_axes

from object_detection.benchmarking import rows

LIMIT = 1.15
# Time and memory below these do not tell how they grow.
_MIN_SECONDS, _MIN_MEGABYTES = 0.01, 30.0
_SECONDS_PER_POINT, _SHORT_SECONDS_PER_POINT, _MAX_RUNS = 1.0, 0.2, 5
_POINTS = 3


@click.command(help='Measures how time and memory grow with the size of the data.')
@click.option(
    '--axis', 'axes', multiple=True, type=click.Choice(list(scaling_axes.AXES)), help='Repeat.'
)
@click.option('--short', is_flag=True, help='Three smaller sizes of each axis, in one process.')
@click.option('--quick', is_flag=True, help='Small sizes; shows that all runs, not how it grows.')
@click.option(
    '--limit', default=LIMIT, show_default=True, help='The largest exponent that is no failure.'
)
@click.option(
    '--json',
    'path',
    type=click.Path(path_type=pathlib.Path),
    default=measure.RESULTS / 'scaling.json',
    help='Where to write the results, a list of objects.',
)
@click.option('--here', is_flag=True, hidden=True)
def main(axes, short, quick, limit, path, here):
    if here:
        click.echo(json.dumps(measure_axis(axes[0], quick)))
        return
    results = []
    for name in axes or scaling_axes.AXES:
        result = _run(name, short, quick)
        if not quick and worst(result) > limit:
            result = min(result, _run(name, short, quick), key=worst)
        results.append(result)
        click.echo('\n'.join(lines(result)))
    measure.write(results, path)
    failed = [result['axis'] for result in results if worst(result) > limit]
    if failed and not quick:
        raise SystemExit(f'Worse than linear: {", ".join(failed)}.')


def measure_axis(name: str, quick: bool, short: bool = False) -> dict:
    """Measures all sizes of an axis in this process, whose peak memory only grows."""
    axis = scaling_axes.AXES[name]
    sizes = axis.quick_sizes if quick else axis.short_sizes if short else axis.sizes
    points = []
    with tempfile.TemporaryDirectory() as folder:
        # What is paid once: imports, the first trace.
        axis.prepare(sizes[0], pathlib.Path(folder))()
        base = rows.peak_memory()
        for size in sizes:
            run = axis.prepare(size, pathlib.Path(folder))
            seconds = _fastest(run, _SHORT_SECONDS_PER_POINT if short else _SECONDS_PER_POINT)
            points.append({'size': size, 'seconds': seconds, 'memory': rows.peak_memory() - base})
    return {
        'axis': name,
        'what': axis.what,
        'points': points,
        'base_memory': base,
        'time_exponent': exponent(points, 'seconds', _MIN_SECONDS),
        # What other axes have freed is taken first.
        'memory_exponent': None if short else exponent(points, 'memory', _MIN_MEGABYTES),
    }


def exponent(points: Sequence[dict], key: str, least: float) -> float | None:
    """The slope of log(value) over log(size) of the largest sizes; None if there is none to see.

    Args:
      points: with `size`, ascending.
      key: of the values.
      least: smaller values are left out.
    """
    usable = [(p['size'], p[key]) for p in points if p[key] >= least][-_POINTS:]
    if len(usable) < 2:
        return None
    x = [math.log(size) for size, _ in usable]
    y = [math.log(value) for _, value in usable]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    covariance = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return covariance / sum((a - mean_x) ** 2 for a in x)


def worst(result: dict) -> float:
    """The larger exponent; 0 where nothing grows."""
    return max(result['time_exponent'] or 0.0, result['memory_exponent'] or 0.0)


def lines(result: dict) -> list[str]:
    """The table of an axis."""
    heading = f'{result["axis"]}: {result["what"]}'
    rows = [f'{"size":>10} {"time s":>10} {"memory MB":>10}']
    rows += [
        f'{point["size"]:>10} {point["seconds"]:>10.4f} {point["memory"]:>10.1f}'
        for point in result['points']
    ]
    cells = [_shown(result[f'{key}_exponent']) for key in ('time', 'memory')]
    return [heading, *rows, f'{"exponent":>10} {cells[0]:>10} {cells[1]:>10}', '']


def _shown(value: float | None) -> str:
    return 'flat' if value is None else f'{value:.2f}'


def _fastest(run: Callable[[], object], wanted: float) -> float:
    """Seconds of the fastest of a few runs, which take `wanted` seconds together, or one run."""
    seconds, start = [], time.perf_counter()
    while not seconds or (time.perf_counter() - start < wanted and len(seconds) < _MAX_RUNS):
        seconds.append(rows.timed_call(run))
    return min(seconds)


def _run(name: str, short: bool, quick: bool) -> dict:
    return measure_axis(name, False, short=True) if short else _run_alone(name, quick)


def _run_alone(name: str, quick: bool) -> dict:
    arguments = [sys.executable, __file__, '--here', '--axis', name, *(['--quick'] * quick)]
    output = subprocess.run(arguments, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(output.splitlines()[-1])


if __name__ == '__main__':
    main()
