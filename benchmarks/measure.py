"""What the benchmarks of a detector's speed share: configs by name, rates, times, tables."""

import json
import pathlib
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

import click

_ROOT = pathlib.Path(__file__).resolve().parents[1]
# The toolkit's samples; beside a checkout there may be the reference's.
_FOLDERS = (
    _ROOT / 'object_detection' / 'samples' / 'configs',
    _ROOT.parent / 'shared' / 'reference' / 'configs' / 'tf2',
    _ROOT.parent / 'shared' / 'reference' / 'configs' / 'samples',
)
DEFAULT_CONFIG = 'faster_rcnn_resnet50_v1_fpn_640x640_coco17_tpu-8'
_MATRIX_SIDE = 2048

# Key of a result, heading, format.
_COLUMNS = (
    ('precision', 'precision', '{}'),
    ('seconds', 'time s', '{:.3f}'),
    ('fastest', 'fastest s', '{:.3f}'),
    ('first', 'first s', '{:.1f}'),
    ('imports', 'imports s', '{:.1f}'),
    ('peak_memory', 'peak MB', '{:.0f}'),
    ('gigaflop', 'GFLOP', '{:.1f}'),
    ('rate', 'GFLOP/s', '{:.1f}'),
    ('matmul_rate', 'matmul GFLOP/s', '{:.1f}'),
    ('share', 'share', '{:.2f}'),
)


def command(what: str, measure: Callable[..., dict]) -> click.Command:
    """Makes the program: runs `measure` once a precision, each in a process of its own.

    Args:
      what: the first line of the table.
      measure: `(config, batch_size, size, steps, precision, settings)` -> the result, keys of
        `result`.
    """

    @click.command(help=f'Measures the {what} of a config on random images.')
    @click.option('--config', default=DEFAULT_CONFIG, show_default=True, help='Name or path.')
    @click.option('--batch_size', default=1, show_default=True)
    @click.option('--size', type=int, help='Side of the images; as the resizer makes them if not.')
    @click.option('--precision', 'precisions', multiple=True, default=['float32'], help='Repeat.')
    @click.option('--steps', default=5, show_default=True, help='Runs after the first.')
    @click.option('--set', 'settings', multiple=True, metavar='PATH=VALUE')
    @click.option('--json', 'as_json', is_flag=True, help='Print a JSON object a line instead.')
    @click.option('--here', is_flag=True, help='Measure in this process; implies --json.')
    def main(config, batch_size, size, precisions, steps, settings, as_json, here):
        if here:
            found = measure(config, batch_size, size, steps, precisions[0], settings)
            click.echo(json.dumps(found))
            return
        results = [_run_alone(precision) for precision in precisions]
        if as_json:
            for row in results:
                click.echo(json.dumps(row))
            return
        click.echo(f'{what} of {config}, batch size {batch_size}, {results[0]["image_size"]}')
        for line in table(results):
            click.echo(line)

    return main


def _run_alone(precision: str) -> dict:
    """Repeats this program's command line in a process that measures one precision."""
    arguments = [sys.executable, *sys.argv, '--here']
    words = iter(arguments)
    kept = []
    for word in words:
        if word == '--precision':
            next(words)
        elif not word.startswith('--precision='):
            kept.append(word)
    output = subprocess.run(
        [*kept, '--precision', precision], check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    return json.loads(output.splitlines()[-1])


def find_config(name: str) -> str:
    """Returns the path of a config: `name` is one, or the name of a sample without its ending."""
    paths = [pathlib.Path(name), *(folder / f'{name}.config' for folder in _FOLDERS)]
    for path in paths:
        if path.is_file():
            return str(path)
    known = sorted(path.stem for path in _FOLDERS[0].glob('*.config'))
    raise click.UsageError(
        f'--config: expected a file or one of {", ".join(known)}. Received: {name}.'
    )


def timed(function: Callable[[], object]) -> float:
    """Seconds that a call takes."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def matmul_rate(precision: str) -> float:
    """GFLOP/s of large matrix products in `precision`, the median of a few."""
    import tensorflow as tf

    matrix = tf.cast(tf.random.normal([_MATRIX_SIDE, _MATRIX_SIDE]), precision)
    # A sum, so that the result is waited for.
    multiply = tf.function(lambda: tf.reduce_sum(tf.matmul(matrix, matrix)), autograph=False)
    multiply().numpy()
    seconds = statistics.median(timed(lambda: multiply().numpy()) for _ in range(3))
    return 2 * _MATRIX_SIDE**3 / seconds / 1e9


def run(function: Callable[[], object], steps: int, precision: str) -> tuple[list[float], float]:
    """Times `function`, with the rate of matrix products measured between the runs.

    Returns:
      Seconds of each run, and the median rate, GFLOP/s.
    """
    seconds, rates = [], [matmul_rate(precision)]
    for _ in range(steps):
        seconds.append(timed(function))
        rates.append(matmul_rate(precision))
    return seconds, statistics.median(rates)


def result(
    *,
    precision: str,
    image_size: Sequence[int],
    imports: float,
    first: float,
    seconds: Sequence[float],
    matmul_rate: float,
    flops: int,
    unknown: Sequence[str],
) -> dict:
    """One line of the table.

    Args:
      precision: of the run.
      image_size: (height, width).
      imports: seconds that imports took.
      first: seconds from the start of the process to the first result, without imports.
      seconds: of the runs after the first.
      matmul_rate: GFLOP/s of matrix products in the same precision, in the same time.
      flops: of one run.
      unknown: what could not be counted.
    """
    median = statistics.median(seconds)
    rate = flops / median / 1e9
    return {
        'precision': precision,
        'image_size': ' x '.join(map(str, image_size)),
        'seconds': median,
        'fastest': min(seconds),
        'first': first,
        'imports': imports,
        # Linux counts in units of 1024 bytes.
        'peak_memory': resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6,
        'gigaflop': flops / 1e9,
        'rate': rate,
        'matmul_rate': matmul_rate,
        'share': rate / matmul_rate,
        'not_counted': list(unknown),
    }


def table(results: Sequence[dict]) -> list[str]:
    """Lines of the table, one a result, and what was not counted."""
    rows = [[heading for _, heading, _ in _COLUMNS]]
    rows += [[shown.format(row[key]) for key, _, shown in _COLUMNS] for row in results]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    lines = [
        '  '.join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]
    missing = sorted({name for row in results for name in row['not_counted']})
    if missing:
        lines.append(f'not counted, sizes are not static: {", ".join(missing)}')
    return lines
