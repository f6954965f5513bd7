"""Trains a small Mask R-CNN on real data, from nothing: nuclei in microscope images.

    python benchmarks/nuclei.py --data DIR --output DIR

The data are COCO annotations with masks and the images that they name: the Data Science Bowl 2018
subset. Holds out every fifth image, converts both parts, trains the sample config, evaluates,
exports and predicts on the held-out images, each by the command that a user would type. Writes
report.html with the pictures, and limits.json: the average precision by kind of image, the recall
by size of the objects, and what the limit of 100 detections an image costs. Exits with 1 if the
averages of precision to reach are not reached in time.
"""

import itertools
import json
import pathlib
import sys
import time
from collections import Counter

import click
import numpy as np
from faster_coco_eval import COCO, COCOeval_faster
from learned import tfod

from object_detection.reporting import page

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_CONFIG = _ROOT / 'object_detection/samples/configs/mask_rcnn_resnet18_fpn_nuclei.config'
_BOX, _MASK = 'DetectionBoxes_Precision/mAP@.50IOU', 'DetectionMasks_Precision/mAP@.50IOU'
_SCHEDULE = 'train_config.optimizer.momentum_optimizer.learning_rate.cosine_decay_learning_rate'
_HELD_OUT = 5
_METRIC_DETECTIONS = 100
# Sides of objects, pixels of the original image.
_SIDES = (0, 8, 12, 16, 24, 32, 48, 1000)


@click.command(help=__doc__)
@click.option('--data', required=True, type=click.Path(exists=True, file_okay=False))
@click.option('--annotations', default='instances_rle.json', show_default=True, help='In --data.')
@click.option('--output', required=True, type=click.Path(file_okay=False))
@click.option('--num_steps', default=0, help='Training steps; 0 = as in the sample config.')
@click.option('--max_minutes', default=30.0, show_default=True, help='For the training.')
@click.option('--seed', default=0, show_default=True)
@click.option('--box_ap', default=0.5, show_default=True, help='AP@.50 to reach.')
@click.option('--mask_ap', default=0.5, show_default=True, help='AP@.50 to reach.')
def main(
    data: str,
    annotations: str,
    output: str,
    num_steps: int,
    max_minutes: float,
    seed: int,
    box_ap: float,
    mask_ap: float,
) -> None:
    folder, images = pathlib.Path(output), pathlib.Path(data)
    folder.mkdir(parents=True, exist_ok=True)
    config, model, exported = folder / 'pipeline.config', folder / 'model', folder / 'exported'
    held_out = split(images / annotations, folder)
    start = time.monotonic()
    for part in ('train', 'val'):
        tfod(
            *('convert', 'coco', '--images', images, '--masks', '--shards', 4),
            *('--annotations', folder / f'{part}.json', '--output', folder / part),
        )
    conversion = time.monotonic() - start
    config.write_text(_CONFIG.read_text().replace('PATH_TO_BE_CONFIGURED', folder.as_posix()))
    shortened = ('--num_train_steps', num_steps, '--set', f'{_SCHEDULE}.total_steps={num_steps}')
    steps = shortened if num_steps else ()
    start = time.monotonic()
    tfod(
        *('train', '--config', config, '--model_dir', model, '--seed', seed, *steps),
        max_minutes=max_minutes,
    )
    training = time.monotonic() - start
    tfod('eval', '--config', config, '--checkpoint_dir', model, '--run_once')
    tfod('export', '--config', config, '--checkpoint_dir', model, '--output', exported)
    tfod(
        *('predict', '--model', exported, '--output', folder / 'predictions'),
        *('--label_map', folder / 'train_label_map.pbtxt', '--max_boxes', 300),
        *(word for image in held_out for word in ('--input', images / image['file_name'])),
    )
    limits = find_limits(folder, images)
    (folder / 'limits.json').write_text(json.dumps(limits, indent=1))
    print(json.dumps(limits, indent=1))
    metrics = json.loads(next((model / 'eval').glob('**/metrics.json')).read_text())
    facts = {'conversion': f'{conversion:.0f} s', 'training': f'{training / 60:.1f} min'}
    extras = page.Extras(
        title='Mask R-CNN on nuclei',
        facts=facts,
        pictures=[
            (picture.stem, picture.read_bytes())
            for picture in sorted((folder / 'predictions').glob('*.png'))
        ],
    )
    page.write(model, folder / 'report.html', extras)
    box, mask = metrics[_BOX], metrics[_MASK]
    print(f'box AP@.50 {box:.3f}, mask AP@.50 {mask:.3f}; {facts}')
    if box < box_ap or mask < mask_ap:
        sys.exit(f'to reach: box AP@.50 {box_ap:g}, mask AP@.50 {mask_ap:g}')


def split(annotations: pathlib.Path, folder: pathlib.Path) -> list[dict]:
    """Writes train.json and val.json (every fifth image); returns the entries of val's images."""
    data = json.loads(annotations.read_text())
    parts = {'train': [], 'val': []}
    for number, image in enumerate(data['images'], start=1):
        parts['train' if number % _HELD_OUT else 'val'].append(image)
    for part, images in parts.items():
        ids = {image['id'] for image in images}
        rows = [row for row in data['annotations'] if row['image_id'] in ids]
        content = {**data, 'images': images, 'annotations': rows}
        (folder / f'{part}.json').write_text(json.dumps(content))
    return parts['val']


def find_limits(folder: pathlib.Path, images: pathlib.Path) -> dict:
    """Tells where precision is lost, from the predictions on the held-out images."""
    truth = COCO(str(folder / 'val.json'))
    detected = truth.loadRes(read_predictions(folder / 'predictions', truth, images))
    counts = Counter(row['image_id'] for row in truth.anns.values())
    excess = sum(max(count - _METRIC_DETECTIONS, 0) for count in counts.values())
    kinds: dict[str, list[int]] = {'all': list(truth.imgs)}
    for key, image in truth.imgs.items():
        kinds.setdefault(f'{image["height"]} x {image["width"]}', []).append(key)
    sizes = {
        kind: {
            'images': len(keys),
            'objects': sum(counts[key] for key in keys),
            'box': average_precision(truth, detected, 'bbox', keys),
            'mask': average_precision(truth, detected, 'segm', keys),
        }
        for kind, keys in kinds.items()
    }
    return {
        'largest recall with 100 detections an image': round(1 - excess / len(truth.anns), 3),
        'AP@.50 by size of the image, any number of detections': sizes,
        'recall of masks at IoU .50 by side of the object, pixels': recall_by_side(truth, detected),
    }


def read_predictions(predictions: pathlib.Path, truth: COCO, images: pathlib.Path) -> list[dict]:
    """Reads what `tfod predict` wrote, with the image ids of the annotations."""
    ids = {str(images / image['file_name']): key for key, image in truth.imgs.items()}
    listed = json.loads((predictions / 'images.json').read_text())
    renamed = {entry['id']: ids[entry['file_name']] for entry in listed}
    results = json.loads((predictions / 'detections.json').read_text())
    return [{**row, 'image_id': renamed[row['image_id']]} for row in results]


def average_precision(truth: COCO, detected: COCO, kind: str, ids: list[int]) -> float:
    engine = run_engine(truth, detected, kind, ids)
    return round(float(engine.eval['precision'][0, :, 0, 0, -1].mean()), 3)


def recall_by_side(truth: COCO, detected: COCO) -> dict[str, float]:
    """Share of the objects of each size (root of the area) that a mask finds, of any score."""
    ranges = list(itertools.pairwise(_SIDES))
    engine = run_engine(truth, detected, 'segm', list(truth.imgs), ranges)
    recalls = engine.eval['recall'][0, 0, :, -1]
    return {
        f'{low} to {high}': round(float(recall), 3)
        for (low, high), recall in zip(ranges, recalls, strict=True)
    }


def run_engine(
    truth: COCO,
    detected: COCO,
    kind: str,
    ids: list[int],
    sides: list[tuple[int, int]] | None = None,
) -> COCOeval_faster:
    """Compares 'bbox' or 'segm' at IoU .50, counting more detections an image than COCO does."""
    engine = COCOeval_faster(truth, detected, iouType=kind)
    engine.params.imgIds = ids
    engine.params.iouThrs = np.array([0.5])
    engine.params.maxDets = [1, _METRIC_DETECTIONS, 1000]
    if sides:
        engine.params.areaRng = [[low**2, high**2] for low, high in sides]
        engine.params.areaRngLbl = [f'{low} to {high}' for low, high in sides]
    engine.evaluate()
    engine.accumulate()
    return engine


if __name__ == '__main__':
    main()
