"""Runs exports of the Mask R-CNN recipe, torchvision's model in OpenVINO, and torchvision by turns.

    python3.11 -m venv /opt/peers
    /opt/peers/bin/pip install torch torchvision openvino
    python benchmarks/peers/openvino_mask_rcnn.py --python /opt/peers/bin/python

OpenVINO converts the same torchvision model that torchvision_mask_rcnn.py measures, for images of
one fixed size, once, and runs it with as many threads as there are cores. Each program is measured
in a process of its own with all cores, one after the other, in `--rounds` rounds. With --step FILE
as the first arguments, the program measures OpenVINO in this process and prints a JSON object.
"""

import argparse
import json
import pathlib
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import torchvision_mask_rcnn as peers

_FILE = pathlib.Path(__file__).resolve()
_PRECISIONS = {'float32': 'f32', 'bfloat16': 'bf16'}


def programs(precision: str, options: argparse.Namespace, model: str) -> list[peers.Program]:
    """Returns what is run by turns: OpenVINO, this toolkit's export, torchvision.

    `model` is where the first run of OpenVINO writes what it converts.
    """
    theirs, ours, _ = peers.programs('inference', precision, options)
    step = (options.python, str(_FILE), '--step', model, *theirs.command[2:])
    return [
        peers.Program('OpenVINO', step, False),
        peers.Program('ours, exported', (*ours.command, '--export'), True),
        theirs,
    ]


def measure(file: pathlib.Path, words: Sequence[str]) -> dict:
    """Times OpenVINO with torchvision's model.

    Args:
      file: the converted model; converted and written if there is none.
      words: arguments of torchvision_step.py.

    Returns:
      `seconds`, the median of the runs; `first`, from the beginning of loading the converted model
      to its first result; `peak_memory`, MB, the conversion included in the process that converts.
    """
    import openvino
    import torch
    import torchvision_step

    options = torchvision_step.arguments().parse_args(words)
    torch.set_num_threads(options.threads or torch.get_num_threads())
    torch.manual_seed(1)
    images = torch.rand(1, 3, options.height, options.width) * 255
    if not file.exists():
        _convert(torchvision_step.build(options), images, file)
    start = time.perf_counter()
    settings = {
        'PERFORMANCE_HINT': 'LATENCY',
        'INFERENCE_PRECISION_HINT': _PRECISIONS[options.precision],
        'INFERENCE_NUM_THREADS': torch.get_num_threads(),
    }
    compiled = openvino.Core().compile_model(file, 'CPU', settings)
    pixels = images.numpy()
    found = compiled(pixels)
    first = time.perf_counter() - start
    seconds = []
    for index in range(options.warmup + options.steps):
        start = time.perf_counter()
        found = compiled(pixels)
        if index >= options.warmup:
            seconds.append(time.perf_counter() - start)
    return {
        'work': options.work,
        'precision': options.precision,
        'batch_size': 1,
        'seconds': statistics.median(seconds),
        'mean': statistics.mean(seconds),
        'images_per_second': 1 / statistics.mean(seconds),
        'first': first,
        # Linux counts in units of 1024 bytes.
        'peak_memory': resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6,
        'mask_rois': len(found[compiled.output(3)]),
        'computed_in': compiled.get_property('INFERENCE_PRECISION_HINT').to_string(),
        'threads': compiled.get_property('INFERENCE_NUM_THREADS'),
        'version': f'OpenVINO {openvino.__version__}',
    }


def _convert(model: Any, images: Any, file: pathlib.Path) -> None:
    """Writes torchvision's model for images, float32 [1, 3, H, W], of one size."""
    import openvino
    import torch

    class Detect(torch.nn.Module):
        """Returns tensors in place of a list of dictionaries, which cannot be traced."""

        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, images):
            (found,) = self.model(images)
            return found['boxes'], found['labels'], found['scores'], found['masks']

    with torch.no_grad():
        converted = openvino.convert_model(
            Detect().eval(), example_input=images, input=[tuple(images.shape)]
        )
    openvino.save_model(converted, file, compress_to_fp16=False)


def main(words: Sequence[str] | None = None) -> None:
    words = sys.argv[1:] if words is None else list(words)
    if words[:1] == ['--step']:
        print(json.dumps(measure(pathlib.Path(words[1]), words[2:])))
        return
    options = arguments().parse_args(words)
    comparisons = []
    folder = tempfile.TemporaryDirectory()
    for precision in options.precision:
        turns = programs(precision, options, f'{folder.name}/model.xml')
        results = peers.alternate(turns, options.rounds)
        comparison = {'work': 'inference', 'precision': precision, 'results': results}
        comparisons.append(comparison | {'ratios': peers.ratios(results)})
        print('\n'.join(peers.report(comparisons[-1])), flush=True)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(comparisons, indent=1) + '\n')


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--python', required=True, help='that has torch, torchvision and openvino')
    parser.add_argument('--precision', nargs='+', default=['float32', 'bfloat16'])
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--steps', type=int, default=5, help='timed in a process, after 2 others')
    # An export resizes its images to the size in its config.
    parser.set_defaults(size=None)
    parser.add_argument('--channels_last', action='store_true', help="torchvision's memory layout")
    results = _FILE.parents[1] / 'results' / 'openvino.json'
    parser.add_argument('--json', type=pathlib.Path, default=results)
    return parser


if __name__ == '__main__':
    main()
