"""Runs the Mask R-CNN recipe and torchvision's by turns on the same work; prints the time's ratio.

    python3.11 -m venv /opt/torchvision
    /opt/torchvision/bin/pip install torch torchvision
    python benchmarks/peers/torchvision_mask_rcnn.py --python /opt/torchvision/bin/python

Torchvision's operators need the CUDA build of torch, which is the registry's, on CPUs too. The
measurements are those of benchmarks/inference.py and training.py, and of torchvision_step.py beside
this file, each in a process of its own with all cores, one after the other, in `--rounds` rounds.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence

_FOLDER = pathlib.Path(__file__).resolve().parent
_BENCHMARKS = _FOLDER.parent
_WORK = """\
1 image of 832 x 1344 (--size: a square of that side), batch size 1, random weights, 1000 proposals
(1000 a level before suppression), sampling ratio 2 of RoIAlign, class-specific boxes.
inference: normalising to detections; 100 of them with a mask of 28 x 28, not pasted into the image.
  "score > 0" leaves none out. "score > 0.05" is torchvision's default; of random weights' scores
  hardly any is above it, so that it detects and masks little or nothing ("mask RoIs").
training: 20 objects, 512 RoIs, losses, gradients, SGD with momentum and weight decay; stem, first
  stage and batch norm frozen. torchvision computes masks of the positive RoIs only."""
# Key of a result, heading, format.
_COLUMNS = (
    ('name', 'program', '{}'),
    ('seconds', 'time s', '{:.3f}'),
    ('mean', 'mean s', '{:.3f}'),
    ('p90', '90 %', '{:.3f}'),
    ('p95', '95 %', '{:.3f}'),
    ('p99', '99 %', '{:.3f}'),
    ('images_per_second', 'images/s', '{:.3g}'),
    ('peak_memory', 'peak MB', '{:.0f}'),
    ('mask_rois', 'mask RoIs', '{:.4g}'),
)


@dataclasses.dataclass(frozen=True)
class Program:
    """What is measured in a process of its own.

    Attributes:
      name: in the tables.
      command: that prints a JSON object in its last line.
      is_ours: whether it is the numerator of the ratios, or their denominator.
    """

    name: str
    command: tuple[str, ...]
    is_ours: bool


def programs(work: str, precision: str, options: argparse.Namespace) -> list[Program]:
    """Returns what is run by turns for 'inference' or 'training' in one precision."""
    common = ['--precision', precision, '--steps', str(options.steps)]
    ours = [sys.executable, str(_BENCHMARKS / f'{work}.py'), *common, '--no_compare', '--json=-']
    peer = [options.python, str(_FOLDER / 'torchvision_step.py'), *common, '--work', work]
    peer += ['--threads', str(len(os.sched_getaffinity(0)))]
    if options.size:
        ours += ['--size', str(options.size)]
        peer += ['--height', str(options.size), '--width', str(options.size)]
    if options.channels_last:
        peer.append('--channels_last')
    if work == 'training':
        return [
            Program('ours, padded mask RoIs', (*ours, '--mask_rois', 'padded'), True),
            Program('torchvision', tuple(peer), False),
            Program('ours, real mask RoIs', (*ours, '--mask_rois', 'real'), True),
        ]
    return [
        Program('torchvision, score > 0', tuple(peer), False),
        Program('ours, score > 0', tuple(ours), True),
        Program('torchvision, score > 0.05', (*peer, '--score_threshold', '0.05'), False),
    ]


def run(program: Program) -> dict:
    """Runs it; returns the JSON object of its last line.

    Raises:
      SystemExit: if it fails, or prints no such object.
    """
    with tempfile.TemporaryFile('w+') as errors:
        done = subprocess.run(program.command, stdout=subprocess.PIPE, stderr=errors, text=True)
        errors.seek(0)
        problem = errors.read()[-2000:]
    lines = done.stdout.splitlines()
    if done.returncode == 0 and lines and lines[-1].startswith('{'):
        return json.loads(lines[-1])
    raise SystemExit(
        f'{program.name}: expected a JSON object in the last line. Received: exit status '
        f'{done.returncode} of {" ".join(program.command)}\n{problem}'
    )


def alternate(
    turns: Sequence[Program], rounds: int, measure: Callable[[Program], dict] = run
) -> list[dict]:
    """Measures the programs by turns.

    Returns:
      One result a program: medians of the numbers over the rounds (the largest `peak_memory`),
      `rounds` with the `seconds` of each, `name` and `is_ours`.
    """
    found = [[] for _ in turns]
    for _ in range(rounds):
        for program, results in zip(turns, found, strict=True):
            results.append(measure(program))
    return [
        {**combined(results), 'name': program.name, 'is_ours': program.is_ours}
        for program, results in zip(turns, found, strict=True)
    ]


def combined(results: Sequence[dict]) -> dict:
    """Makes one result of those of the rounds."""
    first = results[0]
    numbers = [name for name, value in first.items() if type(value) in (int, float)]
    return {
        **first,
        **{name: statistics.median(row[name] for row in results) for name in numbers},
        # Those of inference are among ours' counts.
        'mask_rois': first.get('mask_rois', first.get('counts', {}).get('masks')),
        'peak_memory': max(row['peak_memory'] for row in results),
        'rounds': [row['seconds'] for row in results],
    }


def ratios(results: Sequence[dict]) -> list[dict]:
    """Compares each of ours with each of the peer's: time and memory, below 1 is less."""
    return [
        {
            'ours': ours['name'],
            'peer': peer['name'],
            'time': ours['seconds'] / peer['seconds'],
            'rounds': [a / b for a, b in zip(ours['rounds'], peer['rounds'], strict=True)],
            'memory': ours['peak_memory'] / peer['peak_memory'],
        }
        for ours in results
        if ours['is_ours']
        for peer in results
        if not peer['is_ours']
    ]


def report(comparison: dict) -> Iterator[str]:
    """Lines of a table of the programs, and of their ratios."""
    yield f'{comparison["work"]}, {comparison["precision"]}'
    rows = [[heading for _, heading, _ in _COLUMNS]]
    for result in comparison['results']:
        cells = ((shown, result.get(key)) for key, _, shown in _COLUMNS)
        rows.append(['' if value is None else shown.format(value) for shown, value in cells])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, *numbers in rows:
        cells = (cell.rjust(width) for cell, width in zip(numbers, widths[1:], strict=True))
        yield '  '.join(['', name.ljust(widths[0]), *cells])
    for ratio in comparison['ratios']:
        spread = f'{min(ratio["rounds"]):.3f} to {max(ratio["rounds"]):.3f}'
        yield (
            f'  {ratio["ours"]} / {ratio["peer"]}: time {ratio["time"]:.3f} ({spread}), '
            f'memory {ratio["memory"]:.3f}'
        )


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--python', required=True, help='that has torch and torchvision')
    parser.add_argument('--work', nargs='+', default=['inference', 'training'])
    parser.add_argument('--precision', nargs='+', default=['float32', 'bfloat16'])
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--steps', type=int, default=5, help='timed in a process, after 2 others')
    parser.add_argument('--size', type=int, help='side of square images; 832 x 1344 if not given')
    parser.add_argument('--channels_last', action='store_true', help="torchvision's memory layout")
    parser.add_argument(
        '--json', type=pathlib.Path, default=_BENCHMARKS / 'results' / 'torchvision.json'
    )
    return parser


def main(words: Sequence[str] | None = None) -> None:
    options = arguments().parse_args(words)
    print(_WORK)
    comparisons = []
    for work in options.work:
        for precision in options.precision:
            results = alternate(programs(work, precision, options), options.rounds)
            comparison = {'work': work, 'precision': precision, 'results': results}
            comparisons.append(comparison | {'ratios': ratios(results)})
            print('\n'.join(report(comparisons[-1])), flush=True)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(comparisons, indent=1) + '\n')


if __name__ == '__main__':
    main()
