"""Runs detection transformers of the toolkit and of transformers by turns; prints ratios of times.

    python3.11 -m venv /opt/transformers
    /opt/transformers/bin/pip install torch torchvision transformers scipy
    python benchmarks/peers/transformers_detectors.py --python /opt/transformers/bin/python \
        --config_json config.json --size 640

The toolkit's config is what `tfod config from_transformers` makes of the config.json, of which
transformers builds its own model; weights of both are random. The measurements are those of
benchmarks/inference.py and of transformers_step.py beside this file, each in a process of its own,
one after the other, in `--rounds` rounds, from normalised images to the detections of any score.
Memory is the peak of a process, what it imports included.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence

import torchvision_mask_rcnn as turns
from torchvision_detectors import compare, report

_FOLDER = pathlib.Path(__file__).resolve().parent
_BENCHMARKS = _FOLDER.parent


def translated(config_json: pathlib.Path, folder: str) -> str:
    """Returns the path of the toolkit's config of a config.json."""
    path = os.path.join(folder, 'pipeline.config')
    command = ('-m', 'object_detection.cli.main', 'config', 'from_transformers', str(config_json))
    done = subprocess.run((sys.executable, *command, '--output', path), capture_output=True)
    if done.returncode:
        raise SystemExit(done.stderr.decode())
    return path


def programs(config: str, precision: str, options: argparse.Namespace) -> list[turns.Program]:
    """Returns what is run by turns: transformers, the toolkit."""
    common = ('--precision', precision, '--steps', str(options.steps), '--size', str(options.size))
    ours = (sys.executable, str(_BENCHMARKS / 'inference.py'), '--config', config, *common)
    ours += ('--work', 'config', '--no_compare', '--json=-')
    peer = (options.python, str(_FOLDER / 'transformers_step.py'), *common)
    peer += ('--config', str(options.config_json))
    peer += ('--threads', str(len(os.sched_getaffinity(0))))
    return [turns.Program('transformers', peer, False), turns.Program('ours', ours, True)]


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--python', required=True, help='that has torch and transformers')
    parser.add_argument('--config_json', type=pathlib.Path, required=True)
    parser.add_argument('--precision', nargs='+', default=['float32', 'bfloat16'])
    parser.add_argument('--size', type=int, default=640, help='side of the images')
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--steps', type=int, default=9, help='timed in a process')
    return parser


def main(words: Sequence[str] | None = None) -> None:
    options = arguments().parse_args(words)
    with tempfile.TemporaryDirectory() as folder:
        config = translated(options.config_json, folder)
        for precision in options.precision:
            both = programs(config, precision, options)
            found = [[turns.run(program) for program in both] for _ in range(options.rounds)]
            comparison = compare(found)
            comparison['peer']['name'], comparison['ours']['name'] = (each.name for each in both)
            print(f'inference, {precision}, 1 image of {options.size} x {options.size}')
            print('\n'.join(report(comparison)))
            memory = [
                statistics.median(row['peak_memory'] for row in rows)
                for rows in zip(*found, strict=True)
            ]
            print(f'  memory {memory[1]:.0f} MB beside {memory[0]:.0f} MB', flush=True)


if __name__ == '__main__':
    main()
