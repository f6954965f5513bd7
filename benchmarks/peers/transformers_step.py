"""Times inference of a detection transformer of transformers, from normalised images to detections.

    python transformers_step.py --config config.json --size 640

Needs torch, torchvision and transformers only; prints a JSON object. Weights are random.
"""

import argparse
import json
import pathlib
import resource
import statistics
import time

import torch
import transformers
from torch.utils.flop_counter import FlopCounterMode
from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING


def build(path: pathlib.Path) -> tuple[torch.nn.Module, object]:
    """The model of a config.json, and what makes detections of its outputs."""
    fields = json.loads(path.read_text())
    config = transformers.AutoConfig.for_model(fields.pop('model_type'), **fields)
    torch.manual_seed(0)
    model = transformers.AutoModelForObjectDetection.from_config(config).eval()
    processors = IMAGE_PROCESSOR_MAPPING[type(config)]
    if isinstance(processors, dict):
        processors = tuple(processors.values())
    elif not isinstance(processors, tuple):
        processors = (processors,)
    return model, next(filter(None, processors))()


def measure(options: argparse.Namespace) -> dict:
    """Runs the model; `seconds` is the median."""
    if options.threads:
        torch.set_num_threads(options.threads)
    model, processor = build(options.config)
    images = torch.rand(1, 3, options.size, options.size)
    sizes = [(options.size, options.size)]

    @torch.inference_mode()
    def detect():
        with torch.autocast('cpu', torch.bfloat16, options.precision == 'bfloat16'):
            outputs = model((images - 0.45) / 0.225)
        return processor.post_process_object_detection(outputs, 0.0, sizes)

    times = []
    for _ in range(options.warmup + options.steps):
        start = time.perf_counter()
        found = detect()
        times.append(time.perf_counter() - start)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    with torch.inference_mode(), FlopCounterMode(display=False) as counter:
        model(images)
    return {
        'model': model.config.model_type,
        'precision': options.precision,
        'size': options.size,
        'seconds': statistics.median(times[options.warmup :]),
        'gigaflop': counter.get_total_flops() / 1e9,
        'peak_memory': memory,
        'detections': len(found[0]['scores']),
        'threads': torch.get_num_threads(),
        'version': f'torch {torch.__version__}, transformers {transformers.__version__}',
    }


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--config', type=pathlib.Path, required=True)
    parser.add_argument('--precision', choices=['float32', 'bfloat16'], default='float32')
    parser.add_argument('--size', type=int, default=640)
    parser.add_argument('--threads', type=int, help="torch's own number if not given")
    parser.add_argument('--warmup', type=int, default=2)
    parser.add_argument('--steps', type=int, default=5)
    return parser


if __name__ == '__main__':
    print(json.dumps(measure(arguments().parse_args())))
