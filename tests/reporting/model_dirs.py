"""Folders as trainings leave them."""

import io
import json

import numpy as np
from PIL import Image

from object_detection.metrics.analysis import images as stored
from tests.metrics.analysis.cases import random_images

METRICS = {
    'DetectionBoxes_Precision/mAP': 0.5,
    'DetectionBoxes_Precision/mAP (large)': -1.0,
    'DetectionMasks_Precision/mAP': 0.4375,
    'DetectionMasks_Precision/mAP (large)': 0.25,
    'DetectionBoxes_PerformanceByCategory/mAP/dog/cat': 0.75,
    'DetectionMasks_PerformanceByCategory/mAP/dog/cat': 0.625,
    'DetectionBoxes_Precision/mAP@.50IOU ByCategory/dog/cat': 0.875,
    'DetectionBoxes_PerformanceBySuperCategory/pets': 0.125,
    'Loss/total_loss': 1.25,
}
NAMES = {1: 'dog/cat', 2: '<b>bird</b>', 3: 'fish'}
CONFIG = 'model {\n  ssd {\n    num_classes: 3 # of <b>these</b>\n  }\n}\n'


def jpeg() -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.full((8, 16, 3), 99, np.uint8)).save(file, 'JPEG')
    return file.getvalue()


def evaluated(images=None, names=None, pictures=True) -> stored.EvaluatedImages:
    images = random_images(0) if images is None else images
    found = [stored.Picture('<i>', '1 found', best, jpeg()) for best in (False, True)]
    names = NAMES if names is None else names
    return stored.EvaluatedImages(8, names, images, len(images), found if pictures else [])


def write_history(folder, scale=1.0):
    lines = [
        {
            'step': step,
            'time': 100.0 + step,
            'learning_rate': 0.1 / step,
            'images_per_second': 5.0,
            'losses': {'Loss/total_loss': scale / step, 'Loss/mask_loss': 0.5},
            'memory': {'host': 2**30},
        }
        for step in range(1, 9)
    ]
    run = {'run': 'a', 'time': 0, 'command': 'tfod train <x>', 'num_steps': 8, 'step': 0}
    averages = {
        'run': 'a',
        'images_per_second': 5.0,
        'waiting_share': 0.25,
        'seconds': {'all': 100.0, 'steps': 75.0, 'first_step': 25.0},
        'memory': {'host': 2**30},
    }
    _write_lines(folder / 'train' / 'history.jsonl', lines)
    _write_lines(folder / 'train' / 'runs.jsonl', [run])
    _write_lines(folder / 'train' / 'averages.jsonl', [averages])


def write_evaluation(folder, metrics=METRICS, found=None, **more):
    """Writes two evaluations, of which the last stored its images if `found` is given.

    `more` are other entries of both.
    """
    earlier = {name: value / 2 for name, value in metrics.items()}
    entries = [
        {'step': step, 'time': 100.0 + step, 'metrics': each, **more}
        for step, each in ((4, earlier), (8, metrics))
    ]
    _write_lines(folder / 'eval' / 'metrics.jsonl', entries)
    if found is not None:
        stored.save(folder / 'eval' / 'detections.npz', found)


def whole(folder, scale=1.0):
    write_history(folder, scale)
    write_evaluation(folder, found=evaluated())
    (folder / 'resolved_pipeline.config').write_text(CONFIG)
    return folder


def _write_lines(path, entries):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(''.join(json.dumps(entry) + '\n' for entry in entries))
