"""Answers each line of standard input with the metrics of torchmetrics' MeanAveragePrecision."""

import contextlib
import json
import sys

import numpy as np
import torch
from pycocotools import mask as mask_api

try:
    import torchvision  # noqa: F401
except RuntimeError:
    # Its kernels for GPUs do not load beside torch for CPUs alone; nothing here computes with them.
    for name in [name for name in sys.modules if name.startswith('torchvision')]:
        del sys.modules[name]
    kernels = torch.library.Library('torchvision', 'DEF')
    for name in ('nms', 'qnms'):
        kernels.define(f'{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor')
from torchmetrics.detection import MeanAveragePrecision


def tensors(side):
    values = {
        'boxes': torch.tensor(side['boxes'], dtype=torch.float64).reshape(-1, 4),
        'labels': torch.tensor(side['labels'], dtype=torch.int64),
    }
    masks = [mask_api.decode({'size': side['size'], 'counts': each}) for each in side['masks']]
    masks = np.array(masks, np.uint8).reshape(-1, *side['size'])
    values['masks'] = torch.tensor(masks, dtype=torch.uint8)
    for name in ('scores', 'area', 'iscrowd'):
        if name in side:
            dtype = torch.int64 if name == 'iscrowd' else torch.float64
            values[name] = torch.tensor(side[name], dtype=dtype)
    return values


for line in sys.stdin:
    problem = json.loads(line)
    metric = MeanAveragePrecision(
        iou_type=problem['iou_type'],
        # Its own are rounded to float32, so that a recall of exactly .6 does not reach .6.
        iou_thresholds=np.linspace(0.5, 0.95, 10).tolist(),
        rec_thresholds=np.linspace(0.0, 1.0, 101).tolist(),
    )
    metric.warn_on_many_detections = False
    with contextlib.redirect_stdout(sys.stderr):
        metric.update(
            [tensors(each) for each in problem['detected']],
            [tensors(each) for each in problem['annotated']],
        )
        values = metric.compute()
    names = [name for name in values if name.startswith(('map', 'mar')) and 'class' not in name]
    print(json.dumps({name: float(values[name]) for name in names}))
    sys.stdout.flush()
