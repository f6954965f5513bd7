"""Times torchvision's Mask R-CNN, ResNet-50 with a feature pyramid, on work that is fixed.

    python torchvision_step.py --work inference --precision bfloat16 --score_threshold 0.05

Needs torch and torchvision only; prints a JSON object. Resizing, and pasting the masks into the
images, are left out; normalising is not. The backbone is what `maskrcnn_resnet50_fpn` gives to
weights that are known: frozen batch norm, stem and first stage. Weights are random.
"""

import argparse
import json
import resource
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
import torchvision
from torchvision.models.detection import MaskRCNN
from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
from torchvision.models.detection.image_list import ImageList

_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
# Of residual branches: without batch norm, random ones would double the variance at each block.
_BRANCH_SCALE = 0.2
# The time does not depend on it; random weights would diverge with a usual one.
_LEARNING_RATE = 1e-6
_PERCENTILES = (50, 90, 95, 99)


class Normalize(torch.nn.Module):
    """In place of torchvision's transform: images are resized, and masks are not pasted.

    Args:
      size: (height, width) of all images.
    """

    def __init__(self, size: tuple[int, int]):
        super().__init__()
        self._size = size
        self.register_buffer('mean', torch.tensor(_MEAN).view(1, 3, 1, 1))
        self.register_buffer('std', torch.tensor(_STD).view(1, 3, 1, 1))

    def forward(self, images, targets=None):
        pixels = (images / 255 - self.mean) / self.std
        return ImageList(pixels, [self._size] * len(images)), targets

    def postprocess(self, result, image_shapes, original_image_sizes):
        return result


def build(options: argparse.Namespace) -> MaskRCNN:
    """The model with the work's limits, on its device."""
    torch.manual_seed(0)
    backbone = resnet_fpn_backbone(backbone_name='resnet50', weights=None, trainable_layers=3)
    for name, values in backbone.named_buffers():
        if name.endswith('bn3.weight'):
            values.fill_(_BRANCH_SCALE)
    model = MaskRCNN(
        backbone,
        num_classes=91,
        rpn_pre_nms_top_n_train=options.proposals,
        rpn_pre_nms_top_n_test=options.proposals,
        rpn_post_nms_top_n_train=options.proposals,
        rpn_post_nms_top_n_test=options.proposals,
        box_score_thresh=options.score_threshold,
        box_detections_per_img=100,
    )
    model.transform = Normalize((options.height, options.width))
    model.train(options.work == 'training')
    layout = torch.channels_last if options.channels_last else torch.contiguous_format
    return model.to(options.device, memory_format=layout)


def random_targets(options: argparse.Namespace) -> list[dict[str, torch.Tensor]]:
    """Objects of each image; their masks fill their boxes."""
    sides = torch.tensor([options.width, options.height]).repeat(2)
    targets = []
    for _ in range(options.batch_size):
        corners = torch.rand(options.objects, 2) * 0.6
        sizes = 0.05 + torch.rand(options.objects, 2) * 0.35
        boxes = (torch.cat([corners, corners + sizes], 1) * sides).round()
        masks = torch.zeros(options.objects, options.height, options.width, dtype=torch.uint8)
        for mask, (x0, y0, x1, y1) in zip(masks, boxes.int().tolist(), strict=True):
            mask[y0:y1, x0:x1] = 1
        labels = torch.randint(1, 91, (options.objects,))
        target = {'boxes': boxes, 'labels': labels, 'masks': masks}
        targets.append({name: values.to(options.device) for name, values in target.items()})
    return targets


def make_step(
    model: MaskRCNN, images: torch.Tensor, options: argparse.Namespace
) -> Callable[[], object]:
    """One detection of `images`, or one training step on them."""
    autocast = torch.autocast(
        torch.device(options.device).type, torch.bfloat16, options.precision == 'bfloat16'
    )

    @torch.inference_mode()
    def detect():
        with autocast:
            return model(images)

    targets = random_targets(options)
    trained = [values for values in model.parameters() if values.requires_grad]
    optimizer = torch.optim.SGD(trained, _LEARNING_RATE, momentum=0.9, weight_decay=1e-4)

    def train():
        optimizer.zero_grad()
        with autocast:
            losses = model(images, targets)
        sum(losses.values()).backward()
        optimizer.step()
        return losses

    return train if options.work == 'training' else detect


def count_rows(model: MaskRCNN, step: Callable[[], object]) -> dict[str, int]:
    """Runs `step` once; the regions that boxes and masks were computed for."""
    counts = {}

    def hook(name):
        def count(module, arguments):
            counts[name] = sum(len(boxes) for boxes in arguments[1])

        return count

    heads = model.roi_heads
    hooks = [
        heads.box_roi_pool.register_forward_pre_hook(hook('box_rois')),
        heads.mask_roi_pool.register_forward_pre_hook(hook('mask_rois')),
    ]
    step()
    for added in hooks:
        added.remove()
    return counts


def measure(options: argparse.Namespace) -> dict:
    """Runs the work; `seconds` is the median, `peak_memory` in MB."""
    on_gpu = torch.device(options.device).type == 'cuda'
    if options.threads:
        torch.set_num_threads(options.threads)
    if on_gpu:
        torch.backends.cuda.matmul.allow_tf32 = options.precision != 'float32'
        torch.backends.cudnn.allow_tf32 = options.precision != 'float32'
        torch.backends.cudnn.benchmark = True
    torch.manual_seed(1)
    model = build(options)
    images = torch.rand(options.batch_size, 3, options.height, options.width) * 255
    step = make_step(model, images.to(options.device), options)
    counts = count_rows(model, step)
    if options.compile:
        model.compile()
    times = []
    for _ in range(options.warmup + options.steps):
        start = time.perf_counter()
        step()
        if on_gpu:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    times = times[options.warmup :]
    # Linux counts in units of 1024 bytes.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        'work': options.work,
        'precision': options.precision,
        'batch_size': options.batch_size,
        'seconds': statistics.median(times),
        'mean': statistics.mean(times),
        **{f'p{percent}': float(np.percentile(times, percent)) for percent in _PERCENTILES},
        'images_per_second': options.batch_size / statistics.mean(times),
        'peak_memory': (torch.cuda.max_memory_allocated() if on_gpu else peak) / 1e6,
        **counts,
        'threads': torch.get_num_threads(),
        'version': f'torch {torch.__version__}, torchvision {torchvision.__version__}',
    }


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--work', choices=['inference', 'training'], default='inference')
    parser.add_argument('--precision', choices=['float32', 'tf32', 'bfloat16'], default='float32')
    parser.add_argument('--batch_size', type=int, default=1)
    parser.add_argument('--height', type=int, default=832)
    parser.add_argument('--width', type=int, default=1344)
    parser.add_argument('--proposals', type=int, default=1000)
    parser.add_argument('--objects', type=int, default=20, help='of an image, in training')
    parser.add_argument('--score_threshold', type=float, default=0.0)
    parser.add_argument('--channels_last', action='store_true')
    parser.add_argument('--compile', action='store_true', help='the model by torch.compile')
    parser.add_argument('--device', default='cpu')
    parser.add_argument('--threads', type=int, help="torch's own number if not given")
    parser.add_argument('--warmup', type=int, default=1, help='runs after the first')
    parser.add_argument('--steps', type=int, default=5)
    return parser


if __name__ == '__main__':
    print(json.dumps(measure(arguments().parse_args())))
