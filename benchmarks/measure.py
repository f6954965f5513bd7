"""What the benchmarks of a detector's speed share: options, processes, tables, JSON."""

import dataclasses
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import agreement
import click
import numpy as np
from jobs import SETTINGS, Job, family

from object_detection.benchmarking import rows, work
from object_detection.system import tensorflow_setup

_ROOT = pathlib.Path(__file__).resolve().parents[1]
# The toolkit's samples; beside a checkout there may be the reference's.
_FOLDERS = (
    _ROOT / 'object_detection' / 'samples' / 'configs',
    _ROOT.parent / 'shared' / 'reference' / 'configs' / 'tf2',
    _ROOT.parent / 'shared' / 'reference' / 'configs' / 'samples',
)
DEFAULT_CONFIG = 'mask_rcnn_resnet50_fpn_832x1344_coco17'
RESULTS = _ROOT / 'benchmarks' / 'results'
_STANDARD_OUTPUT = '-'
_PERCENTILES = (50, 90, 95, 99)

# Key of a result, heading, format. Columns whose key no result has are left out.
_COLUMNS = (
    ('precision', 'precision', '{}'),
    ('mask_rois', 'mask RoIs', '{:.4g}'),
    ('seconds', 'time s', '{:.3f}'),
    ('fastest', 'fastest s', '{:.3f}'),
    ('mean', 'mean s', '{:.3f}'),
    *((f'p{percent}', f'{percent} %', '{:.3f}') for percent in _PERCENTILES),
    ('images_per_second', 'images/s', '{:.3g}'),
    ('first', 'first s', '{:.1f}'),
    ('imports', 'imports s', '{:.1f}'),
    ('peak_memory', 'peak MB', '{:.0f}'),
    ('memory_beyond_imports', 'own MB', '{:.0f}'),
    ('gigaflop', 'GFLOP', '{:.1f}'),
    ('rate', 'GFLOP/s', '{:.1f}'),
    ('matmul_rate', 'matmul GFLOP/s', '{:.1f}'),
    ('share', 'share', '{:.3f}'),
    ('convolutions', 'convolutions s', '{:.4f}'),
    ('share_of_roof', 'of roof', '{:.3f}'),
    ('share_of_3x3', 'of 3x3', '{:.3f}'),
    ('in_process', 'in process s', '{:.3f}'),
    ('export_by_model', 'export / model', '{:.3f}'),
    ('share_of_postprocessing', 'post-processing', '{:.3f}'),
)


def command(
    what: str, measure: Callable[[Job], dict], variants: Sequence[str] = ('padded',)
) -> click.Command:
    """Makes the program: runs `measure` once a precision, each in a process of its own.

    Args:
      what: the first words of the table; its first word names the JSON file.
      measure: makes a result: what `result` returns, and more.
      variants: of `Job.mask_rois`, one after the other.
    """

    @click.command(help=f'Measures the {what} of a config on random images with random weights.')
    @click.option('--config', default=DEFAULT_CONFIG, show_default=True, help='Name or path.')
    @click.option('--batch_size', default=1, show_default=True)
    @click.option('--size', type=int, help='Side of the images; as the resizer makes them if not.')
    @click.option('--precision', 'precisions', multiple=True, default=['float32'], help='Repeat.')
    @click.option('--jit_compile/--no_jit_compile', help='Compile the whole step with XLA.')
    @click.option('--steps', default=5, show_default=True, help='Timed runs.')
    @click.option('--warmup', default=1, show_default=True, help='Runs between the first and them.')
    @click.option(
        '--work',
        type=click.Choice(list(SETTINGS)),
        help='recipe fixes the numbers of proposals, detections and RoIs; torchvision does, and '
        'crops and proposes as that library; config sets nothing. Default: torchvision for the '
        'default config, config for others.',
    )
    @click.option(
        '--mask_rois',
        type=click.Choice(['padded', 'real', 'both']),
        default='both',
        show_default=True,
        help='Training: a fixed number of mask RoIs, or the positive ones alone.',
    )
    @click.option('--set', 'settings', multiple=True, metavar='PATH=VALUE', help='Repeat.')
    @click.option('--compare/--no_compare', default=True, help='With the plain execution.')
    @click.option('--profile', is_flag=True, help='Add the time of each part of the model.')
    @click.option(
        '--roof',
        is_flag=True,
        help="Inference: time the model's convolutions alone, and the model without its "
        'post-processing, too, in turns.',
    )
    @click.option(
        '--export',
        is_flag=True,
        help='Inference: measure the export as a SavedModel, and the model in process beside it.',
    )
    @click.option(
        '--json',
        'json_path',
        is_flag=False,
        flag_value=_STANDARD_OUTPUT,
        metavar='FILE',
        help='Where to write the results, a list of objects; without FILE, or -, an object a line '
        f'is printed in place of the table. Default: {RESULTS.relative_to(_ROOT)}/NAME.json.',
    )
    @click.option('--here', is_flag=True, help='Measure in this process; implies --json.')
    @click.option('--job', hidden=True)
    def main(precisions, mask_rois, json_path, here, job, **options):
        # As the jobs do.
        tensorflow_setup.keep_freed_memory()
        if job:
            click.echo(json.dumps(measure(Job(**json.loads(job)))))
            return
        if options['export'] and options['size']:
            raise click.UsageError('--export: not with --size; an export resizes its images.')
        options['work'] = options['work'] or (
            'torchvision' if options['config'] == DEFAULT_CONFIG else 'config'
        )
        wanted = [name for name in variants if mask_rois in (name, 'both')] or variants
        if options['jit_compile'] or family(find_config(options['config'])) != 'faster_rcnn':
            # XLA knows no rows that come and go, and one stage has none.
            wanted = ['padded']
        jobs = [
            Job(**options, precision=precision, mask_rois=rois)
            for precision in precisions
            for rois in wanted
        ]
        if here:
            click.echo(json.dumps(measure(jobs[0])))
            return
        with tempfile.TemporaryDirectory() as folder:
            weights = _weights(options['config'], folder) if what == 'inference' else None
            results = [_run_alone(dataclasses.replace(job, weights=weights)) for job in jobs]
        path = json_path or RESULTS / f'{what.split()[0]}.json'
        if json_path == _STANDARD_OUTPUT:
            for row in results:
                click.echo(json.dumps(row))
        else:
            write(results, pathlib.Path(path))
            click.echo('\n'.join(report(what, results)))
        if not all(found['agrees'] for row in results for found in _agreements(row)):
            raise SystemExit('The timed step does not do what the plain execution does.')

    return main


def _weights(config: str, folder: str) -> str | None:
    """Makes the weights that a config is measured with, if random ones do not do.

    They do where detections are not suppressed, and where regions are proposed.
    """
    path = find_config(config)
    if family(path) not in ('ssd', 'center_net'):
        return None
    weights = f'{folder}/weights.npz'
    subprocess.run([sys.executable, '-m', work.__name__, path, weights], check=True)
    return weights


def _run_alone(job: Job) -> dict:
    """Repeats this program in a process that measures one job."""
    arguments = [sys.executable, sys.argv[0], '--job', json.dumps(dataclasses.asdict(job))]
    output = subprocess.run(arguments, check=True, stdout=subprocess.PIPE, text=True).stdout
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


def result(
    *,
    job: Job,
    image_size: Sequence[int],
    imports: float,
    imports_memory: float,
    first: float,
    seconds: Sequence[float],
    matmul_rate: float,
    flops: Any,
) -> dict:
    """One line of the table. To be called right after the timed runs, for the memory.

    Args:
      job: what was measured.
      image_size: (height, width).
      imports: seconds that imports took.
      imports_memory: what the process held after them, MB.
      first: seconds from the start of the process to the first result, without imports.
      seconds: of the timed runs.
      matmul_rate: GFLOP/s of matrix products in the same precision, in the same time.
      flops: `training.flops.FlopCount` of one run.
    """
    median, mean = statistics.median(seconds), statistics.mean(seconds)
    rate, peak = flops.total / median / 1e9, rows.peak_memory()
    return {
        'config': job.config,
        'batch_size': job.batch_size,
        'precision': job.precision,
        'jit_compile': job.jit_compile,
        'image_size': ' x '.join(map(str, image_size)),
        'work': job.work,
        'settings': list(job.all_settings),
        'steps': len(seconds),
        'seconds': median,
        'fastest': min(seconds),
        'mean': mean,
        **{f'p{percent}': float(np.percentile(seconds, percent)) for percent in _PERCENTILES},
        'images_per_second': job.batch_size / mean,
        'first': first,
        'imports': imports,
        'peak_memory': peak,
        'memory_beyond_imports': peak - imports_memory,
        'gigaflop': flops.total / 1e9,
        'rate': rate,
        'matmul_rate': matmul_rate,
        'share': rate / matmul_rate,
        'not_counted': list(flops.unknown),
        'loops_counted_once': list(flops.loops),
    }


def write(results: Sequence[dict], path: pathlib.Path) -> None:
    """Writes a JSON list."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(list(results), indent=1) + '\n')


def report(what: str, results: Sequence[dict]) -> list[str]:
    """Lines about all results: what was done, the table, the comparisons, the parts."""
    first = results[0]
    lines = [
        f'{what} of {first["config"]}, batch size {first["batch_size"]}, {first["image_size"]}'
        + (', compiled by XLA' if first['jit_compile'] else ''),
        f'work: {first["work"]}'
        + ''.join(f', {name} {count:g}' for name, count in first.get('counts', {}).items()),
    ]
    shared = [s for s in first['settings'] if all(s in row['settings'] for row in results)]
    lines += [f'  {setting}' for setting in shared]
    lines += table(results)
    for row in results:
        lines += [agreement.line(found, row['precision']) for found in _agreements(row)]
        for part in row.get('parts', []):
            lines.append(
                f'  {part["part"]:<24} {part["seconds"]:8.3f} s {part["gigaflop"]:8.1f} GFLOP '
                f'{part["rate"]:8.1f} GFLOP/s   {part["slowest"]}'
            )
    return lines


def _agreements(result: dict) -> list[dict]:
    """The comparisons with the plain execution that a result has."""
    return [result[key] for key in ('agreement', 'raw_agreement') if key in result]


def table(results: Sequence[dict]) -> list[str]:
    """Lines of the table, one a result, and what was not counted."""
    columns = [column for column in _COLUMNS if any(column[0] in row for row in results)]
    rows = [[heading for _, heading, _ in columns]]
    rows += [[_cell(shown, row.get(key)) for key, _, shown in columns] for row in results]
    widths = [max(len(row[column]) for row in rows) for column in range(len(columns))]
    lines = [
        '  '.join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]
    missing = sorted({name for row in results for name in row['not_counted']})
    if missing:
        lines.append(f'not counted, sizes are not static: {", ".join(missing)}')
    return lines


def _cell(shown: str, value: object) -> str:
    return '' if value is None else shown.format(value)
