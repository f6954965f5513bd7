"""COCO's metrics of boxes and masks beside pycocotools: time, memory, and the same numbers.

    python benchmarks/evaluation.py
    python benchmarks/evaluation.py --kinds bbox --images 1000

Both score the same detections, 100 an image, against the same annotation file. "collect" is what
comes before: ours takes the detector's batches and pastes its masks, pycocotools reads both files
and indexes them. "evaluate" ends with the twelve metrics. Each runs in a process of its own; the
ratio is that of the processor time of "evaluate".
"""

import argparse
import contextlib
import io
import json
import pathlib
import tempfile

import generated_coco
import measure
import numpy as np
import own_process

from object_detection.benchmarking import timing

_QUICK_IMAGES = 20
_DETECTIONS = 100
_MASK_SIDE = 28
# Between the metrics of both.
_LARGEST_DIFFERENCE = 1e-12
_COLUMNS = (
    ('kind', 'kind', '{}'),
    ('by', 'by', '{}'),
    ('collect_cpu_seconds', 'collect CPU s', '{:.2f}'),
    ('cpu_seconds', 'evaluate CPU s', '{:.2f}'),
    ('peak_memory', 'peak MB', '{:.0f}'),
    ('ratio', 'ratio', '{:.3f}'),
    ('largest_difference', 'largest difference', '{:.1e}'),
)


def main() -> None:
    arguments = _arguments()
    if arguments.here:
        by, folder, kind = arguments.here
        print(json.dumps(_MEASURE[by](pathlib.Path(folder), kind)))
        return
    num_images = _QUICK_IMAGES if arguments.quick else arguments.images
    results = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        document = generated_coco.document(num_images)
        (folder / 'annotations.json').write_text(json.dumps(document))
        for kind in arguments.kinds:
            results += compare(folder, kind, num_images)
    print(
        f'{num_images} images, {_DETECTIONS} detections each, {generated_coco.NUM_CLASSES} classes'
    )
    print('\n'.join(own_process.table(_COLUMNS, results)))
    measure.write(results, arguments.json)


def compare(folder: pathlib.Path, kind: str, num_images: int) -> list[dict]:
    """Scores one kind with both; ours writes the results file that pycocotools reads."""
    rows = [own_process.run_json(__file__, ['--here', by, str(folder), kind]) for by in _MEASURE]
    ours, other = rows
    differences = np.abs(np.subtract(ours['metrics'], other['metrics']))
    for by, row in zip(_MEASURE, rows, strict=True):
        row |= {'kind': kind, 'by': by, 'images': num_images}
        row['ratio'] = row['cpu_seconds'] / other['cpu_seconds']
        row['largest_difference'] = float(differences.max())
    if not differences.max() <= _LARGEST_DIFFERENCE:
        raise SystemExit(f'{kind}: metrics differ from those of pycocotools by {differences.max()}')
    return rows


def measure_toolkit(folder: pathlib.Path, kind: str) -> dict:
    """Runs our evaluator and writes the results file."""
    from object_detection.metrics.coco.annotations import CocoAnnotations
    from object_detection.metrics.coco.evaluator import CocoEvaluator

    path = folder / 'annotations.json'
    start = own_process.cpu_seconds()
    document = json.loads(path.read_text())
    categories = document['categories']
    classes = {category['id']: [category['name']] for category in categories}
    annotations = CocoAnnotations(document, str(path), classes)
    evaluator = CocoEvaluator(categories, iou_type=kind, annotations=annotations)
    collect = own_process.cpu_seconds() - start
    objects = {image['id']: [] for image in document['images']}
    for annotation in document['annotations']:
        objects[annotation['image_id']].append(annotation)
    for image_id, annotated in objects.items():
        batch, detections = _detected(image_id, annotated, with_masks=kind == 'segm')
        start = own_process.cpu_seconds()
        evaluator.add_batch(batch, detections)
        collect += own_process.cpu_seconds() - start
    start = own_process.cpu_seconds()
    metrics = evaluator.evaluate()
    evaluate = own_process.cpu_seconds() - start
    result = _result(collect, evaluate, list(metrics.values()))
    (folder / f'{kind}.json').write_text(json.dumps(evaluator.coco_results()))
    return result


def measure_pycocotools(folder: pathlib.Path, kind: str) -> dict:
    """Runs pycocotools on both files."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    with contextlib.redirect_stdout(io.StringIO()):
        start = own_process.cpu_seconds()
        truth = COCO(str(folder / 'annotations.json'))
        detected = truth.loadRes(str(folder / f'{kind}.json'))
        collect = own_process.cpu_seconds() - start
        start = own_process.cpu_seconds()
        engine = COCOeval(truth, detected, kind)
        engine.evaluate()
        engine.accumulate()
        engine.summarize()
    return _result(collect, own_process.cpu_seconds() - start, engine.stats.tolist())


def _result(collect: float, evaluate: float, metrics: list[float]) -> dict:
    return {
        'collect_cpu_seconds': collect,
        'cpu_seconds': evaluate,
        'peak_memory': timing.peak_memory(),
        'metrics': metrics,
    }


def _detected(image_id: int, objects: list[dict], *, with_masks: bool) -> tuple[dict, dict]:
    """Returns a batch of one image, and detections of which some find its objects."""
    rng = np.random.default_rng(image_id)
    size = np.tile([generated_coco.HEIGHT, generated_coco.WIDTH], 2)
    # Half of the detections are of the class of what they lie on, the others of few classes.
    classes = rng.choice(rng.integers(1, generated_coco.NUM_CLASSES + 1, 8), _DETECTIONS)
    boxes = np.tile([0.3, 0.3, 0.6, 0.6], (_DETECTIONS, 1))
    if objects:
        chosen = rng.integers(0, len(objects), _DETECTIONS)
        labels = np.array([objects[row]['category_id'] for row in chosen])
        classes = np.where(rng.random(_DETECTIONS) < 0.5, labels, classes)
        left, top, width, height = np.array([objects[row]['bbox'] for row in chosen]).T
        boxes = np.stack([top, left, top + height, left + width], axis=1) / size
    sides = np.tile(boxes[:, 2:] - boxes[:, :2], 2)
    boxes = boxes + sides * rng.normal(0, 0.2, boxes.shape) * rng.random((_DETECTIONS, 1))
    boxes = np.sort(boxes.clip(0, 1).reshape(-1, 2, 2), axis=1).reshape(-1, 4)
    detections = {
        'detection_boxes': boxes[np.newaxis].astype(np.float32),
        'detection_scores': -np.sort(-rng.random((1, _DETECTIONS)).astype(np.float32)),
        'detection_classes': classes[np.newaxis] - 1.0,
        'num_detections': np.array([_DETECTIONS]),
    }
    if with_masks:
        detections['detection_masks'] = _masks(rng)[np.newaxis]
    batch = {
        'source_id': np.array([str(image_id).encode()], object),
        'original_image_spatial_shape': size[np.newaxis, :2],
    }
    return batch, detections


def _masks(rng: np.random.Generator) -> np.ndarray:
    """Ellipses with a soft and wavy edge, as a mask head predicts them: float32 [100, 28, 28]."""
    y, x = np.mgrid[-1 : 1 : _MASK_SIDE * 1j, -1 : 1 : _MASK_SIDE * 1j]
    waves = rng.uniform(1, 5, (_DETECTIONS, 1, 1)) * np.arctan2(y, x)
    edge = 1 + rng.normal(0, 0.1, (_DETECTIONS, 1, 1)) * np.cos(waves)
    return (1 / (1 + np.exp(8 * (np.hypot(y, x) - edge)))).astype(np.float32)


_MEASURE = {'toolkit': measure_toolkit, 'pycocotools': measure_pycocotools}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split('\n', 1)[0])
    parser.add_argument('--images', type=int, default=5000)
    parser.add_argument('--kinds', nargs='+', default=['bbox', 'segm'], choices=['bbox', 'segm'])
    parser.add_argument('--quick', action='store_true', help='few images; shows that it runs')
    parser.add_argument('--json', type=pathlib.Path, default=measure.RESULTS / 'evaluation.json')
    parser.add_argument('--here', nargs=3, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == '__main__':
    main()
