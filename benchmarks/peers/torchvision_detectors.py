"""Runs detectors of the toolkit and of torchvision by turns; prints the ratio of their times.

    python benchmarks/peers/torchvision_detectors.py --python /opt/torchvision/bin/python

For the interpreter see torchvision_mask_rcnn.py. The measurements are those of
benchmarks/inference.py and of torchvision_detector_step.py beside this file, each in a process of
its own, one after the other, in `--rounds` rounds. By default these are the sample configs
torchvision_NAME, each beside the model NAME, in float32 and bfloat16, from normalised images to
detections of any score. Other pairs of `PAIRS` are not the same work: see the floating point
operations of each, two a multiplication with addition.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torchvision_mask_rcnn as turns

from object_detection.config.reader import read_pipeline

_FOLDER = pathlib.Path(__file__).resolve().parent
_BENCHMARKS = _FOLDER.parent
_SAMPLES = _BENCHMARKS.parent / 'object_detection' / 'samples' / 'configs'
_PREFIX = 'torchvision_'


class Pair(NamedTuple):
    """Two detectors that are compared.

    Attributes:
      config: the toolkit's config, by name.
      model: torchvision's model.
      size: side of the images.
      is_same: whether they are the same model; then both keep detections of any score.
    """

    config: str
    model: str
    size: int
    is_same: bool = False


def _size(model: str) -> int:
    """Returns the side of the images of a model that has one, or 640."""
    found = re.search(r'(?:ssd|ssdlite|_large_)(3\d\d)', model)
    return int(found[1]) if found else 640


SAMPLES = tuple(
    Pair(path.stem, model := path.stem.removeprefix(_PREFIX), _size(model), True)
    for path in sorted(_SAMPLES.glob(f'{_PREFIX}*.config'))
)
PAIRS = (
    *SAMPLES,
    Pair('ssd_resnet50_v1_fpn_640x640_coco17_tpu-8', 'retinanet_resnet50_fpn', 640),
    Pair('ssd_mobilenet_v2_fpnlite_320x320_coco17_tpu-8', 'ssdlite320_mobilenet_v3_large', 320),
    Pair('ssdlite_mobilenet_v3_large_320x320_coco', 'ssdlite320_mobilenet_v3_large', 320),
)


def _any_score(config: str) -> str:
    """Returns the setting of a sample that leaves no detection out by its score."""
    kind = read_pipeline(str(_SAMPLES / f'{config}.config')).model.WhichOneof('model')
    stage = 'second_stage_' if kind == 'faster_rcnn' else ''
    return f'model.{kind}.{stage}post_processing.batch_non_max_suppression.score_threshold=0'


def programs(pair: Pair, precision: str, options: argparse.Namespace) -> list[turns.Program]:
    """Returns what is run by turns for one pair."""
    size = options.size or pair.size
    common = ('--precision', precision, '--steps', str(options.steps), '--size', str(size))
    ours = (sys.executable, str(_BENCHMARKS / 'inference.py'), '--config', pair.config, *common)
    ours += ('--work', 'config', '--no_compare', '--json=-')
    peer = (options.python, str(_FOLDER / 'torchvision_detector_step.py'), *common)
    peer += ('--model', pair.model, '--threads', str(len(os.sched_getaffinity(0))))
    if pair.is_same:
        ours += ('--set', _any_score(pair.config))
        peer += ('--score_threshold', '0')
    return [turns.Program(pair.model, peer, False), turns.Program(pair.config, ours, True)]


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
        '--configs', nargs='+', default=[pair.config for pair in SAMPLES], help='of `PAIRS`'
    )
    parser.add_argument('--precision', nargs='+', default=['float32', 'bfloat16'])
    parser.add_argument('--size', type=int, help="side of the images; the pair's if not given")
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--steps', type=int, default=9, help='timed in a process')
    parser.add_argument(
        '--json', type=pathlib.Path, default=_BENCHMARKS / 'results' / 'torchvision_detectors.json'
    )
    return parser


def main(words: Sequence[str] | None = None) -> None:
    options = arguments().parse_args(words)
    comparisons = []
    for precision in options.precision:
        for pair in (pair for pair in PAIRS if pair.config in options.configs):
            both, size = programs(pair, precision, options), options.size or pair.size
            found = [[turns.run(program) for program in both] for _ in range(options.rounds)]
            comparison = compare(found) | {'precision': precision, 'size': size}
            comparison['peer']['name'], comparison['ours']['name'] = pair.model, pair.config
            comparisons.append(comparison)
            print(f'inference, {precision}, 1 image of {size} x {size}')
            print('\n'.join(report(comparison)), flush=True)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(comparisons, indent=1) + '\n')


if __name__ == '__main__':
    main()
