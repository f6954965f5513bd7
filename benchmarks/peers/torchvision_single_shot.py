"""Runs single-shot detectors of the toolkit and of torchvision by turns; prints the time's ratio.

    python benchmarks/peers/torchvision_single_shot.py --python /opt/torchvision/bin/python

For the interpreter see torchvision_mask_rcnn.py. The measurements are those of
benchmarks/inference.py and of torchvision_single_shot_step.py beside this file, each in a process
of its own, one after the other, in `--rounds` rounds. The models are not the same work: see the
floating point operations of each, two a multiplication with addition.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
from collections.abc import Iterator, Sequence

import torchvision_mask_rcnn as turns

_FOLDER = pathlib.Path(__file__).resolve().parent
_BENCHMARKS = _FOLDER.parent
# The toolkit's config, torchvision's model, side of the images.
PAIRS = (
    ('ssd_resnet50_v1_fpn_640x640_coco17_tpu-8', 'retinanet_resnet50_fpn', 640),
    ('ssd_mobilenet_v2_fpnlite_320x320_coco17_tpu-8', 'ssdlite320_mobilenet_v3_large', 320),
    ('ssdlite_mobilenet_v3_large_320x320_coco', 'ssdlite320_mobilenet_v3_large', 320),
)


def programs(
    config: str, model: str, size: int, precision: str, options: argparse.Namespace
) -> list[turns.Program]:
    """Returns what is run by turns for one pair."""
    common = ('--precision', precision, '--steps', str(options.steps))
    ours = (sys.executable, str(_BENCHMARKS / 'inference.py'), '--config', config, *common)
    peer = (options.python, str(_FOLDER / 'torchvision_single_shot_step.py'), *common)
    peer += ('--model', model, '--size', str(size))
    peer += ('--threads', str(len(os.sched_getaffinity(0))))
    return [
        turns.Program(model, peer, False),
        turns.Program(config, (*ours, '--size', str(size), '--no_compare', '--json=-'), True),
    ]


def compare(found: Sequence[dict]) -> dict:
    """Makes one comparison of the results (peer, ours) of each round."""
    ratios = [ours['seconds'] / peer['seconds'] for peer, ours in found]
    peer, ours = (
        {
            'seconds': statistics.median(row['seconds'] for row in rows),
            'gigaflop': rows[0]['gigaflop'],
        }
        for rows in zip(*found, strict=True)
    )
    return {'peer': peer, 'ours': ours, 'time': statistics.median(ratios), 'rounds': ratios}


def report(comparison: dict) -> Iterator[str]:
    """Lines about one comparison."""
    for side in ('ours', 'peer'):
        row = comparison[side]
        yield f'  {row["name"]:<46} {row["seconds"]:.4f} s  {row["gigaflop"]:.2f} GFLOP'
    spread = f'{min(comparison["rounds"]):.3f} to {max(comparison["rounds"]):.3f}'
    work = comparison['ours']['gigaflop'] / comparison['peer']['gigaflop']
    yield f'  time {comparison["time"]:.3f} of it ({spread}), operations {work:.3f} of it'


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--python', required=True, help='that has torch and torchvision')
    parser.add_argument(
        '--configs', nargs='+', default=[pair[0] for pair in PAIRS], help='of the toolkit'
    )
    parser.add_argument('--precision', nargs='+', default=['float32'])
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--steps', type=int, default=9, help='timed in a process')
    parser.add_argument(
        '--json', type=pathlib.Path, default=_BENCHMARKS / 'results' / 'single_shot_peers.json'
    )
    return parser


def main(words: Sequence[str] | None = None) -> None:
    options = arguments().parse_args(words)
    comparisons = []
    for precision in options.precision:
        for config, model, size in (pair for pair in PAIRS if pair[0] in options.configs):
            both = programs(config, model, size, precision, options)
            found = [[turns.run(program) for program in both] for _ in range(options.rounds)]
            comparison = compare(found) | {'precision': precision, 'size': size}
            comparison['peer']['name'], comparison['ours']['name'] = model, config
            comparisons.append(comparison)
            print(f'inference, {precision}, 1 image of {size} x {size}')
            print('\n'.join(report(comparison)), flush=True)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(comparisons, indent=1) + '\n')


if __name__ == '__main__':
    main()
