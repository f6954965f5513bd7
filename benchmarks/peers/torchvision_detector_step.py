"""Times inference of torchvision's detectors, from images of their size to detections.

    python torchvision_detector_step.py --model retinanet_resnet50_fpn --size 640

Needs torch and torchvision only; prints a JSON object. Resizing, and pasting masks into images, are
left out; normalising is not. Weights are random, but batch norm has the statistics of an image, and
class logits of a single-shot detector vary by 1.5 about their bias, so that suppression has work.
"""

import argparse
import json
import statistics
import time

import torch
import torchvision
from torch.utils.flop_counter import FlopCounterMode
from torchvision_step import Normalize

_SPREAD = 1.5


def build(options: argparse.Namespace) -> torch.nn.Module:
    """The model with the classes of COCO and the background that torchvision's have."""
    torch.manual_seed(0)
    words = {'num_classes': 2 if options.model.startswith('keypoint') else 91}
    if options.score_threshold is not None:
        kind = 'box_score_thresh' if 'rcnn' in options.model else 'score_thresh'
        words[kind] = options.score_threshold
    # Without weights, models have batch norm that trains; its statistics are then an image's.
    model = getattr(torchvision.models.detection, options.model)(
        weights=None, weights_backbone=None, **words
    )
    model.transform = Normalize((options.size, options.size))
    for layer in model.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            layer.momentum = 1.0
    model.train()
    images = torch.rand(2, 3, options.size, options.size)
    with torch.no_grad():
        features = list(model.backbone((images - 0.5) / 0.25).values())
        if not hasattr(model, 'head'):
            return model.eval()
        logits = model.head(features)['cls_logits']
        scale = _SPREAD / float(logits.std())
        for name, values in model.head.named_parameters():
            is_last = name.endswith('cls_logits.weight') or (
                'classification_head.module_list' in name and name.endswith('.1.weight')
            )
            if is_last:
                values.mul_(scale)
    return model.eval()


def measure(options: argparse.Namespace) -> dict:
    """Runs the model; `seconds` is the median."""
    if options.threads:
        torch.set_num_threads(options.threads)
    model = build(options)
    images = torch.rand(1, 3, options.size, options.size) * 255

    @torch.inference_mode()
    def detect():
        with torch.autocast('cpu', torch.bfloat16, options.precision == 'bfloat16'):
            return model(images)

    with torch.inference_mode(), FlopCounterMode(display=False) as counter:
        model(images)
    times = []
    for _ in range(options.warmup + options.steps):
        start = time.perf_counter()
        found = detect()
        times.append(time.perf_counter() - start)
    return {
        'model': options.model,
        'precision': options.precision,
        'size': options.size,
        'seconds': statistics.median(times[options.warmup :]),
        'gigaflop': counter.get_total_flops() / 1e9,
        'detections': len(found[0]['scores']),
        'threads': torch.get_num_threads(),
        'version': f'torch {torch.__version__}, torchvision {torchvision.__version__}',
    }


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--model', default='retinanet_resnet50_fpn')
    parser.add_argument('--precision', choices=['float32', 'bfloat16'], default='float32')
    parser.add_argument('--size', type=int, default=640)
    parser.add_argument('--score_threshold', type=float, help="the model's own if not given")
    parser.add_argument('--threads', type=int, help="torch's own number if not given")
    parser.add_argument('--warmup', type=int, default=2)
    parser.add_argument('--steps', type=int, default=5)
    return parser


if __name__ == '__main__':
    print(json.dumps(measure(arguments().parse_args())))
