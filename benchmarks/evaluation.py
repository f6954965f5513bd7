"""COCO's metrics beside pycocotools and faster-coco-eval: time, memory, and the same numbers.

    python benchmarks/evaluation.py
    python benchmarks/evaluation.py --kinds bbox --images 1000

All score the same detections against the same annotation file: boxes and masks of 5,000 images, 100
detections an image, and keypoints of 1,000 images, 20 an image. "collect" is what comes before:
ours takes the detector's batches and pastes its masks, or reads the files of keypoints; the others
read both files and index them. "evaluate" ends with the metrics. Each runs in a process of its own,
and of `--repeats` runs the one with the least processor time counts. The ratios are those of the
processor time of "evaluate": by that of pycocotools, and by that of ours.
"""

import argparse
import contextlib
import io
import json
import pathlib
import tempfile
import time

import generated_coco
import measure
import numpy as np
import own_process

from object_detection.benchmarking import rows
from object_detection.data.coco.keypoints import PERSON_KEYPOINTS

_QUICK_IMAGES = 20
_IMAGES = {'bbox': 5000, 'segm': 5000, 'keypoints': 1000}
_DETECTIONS = 100
_POSES = 20
_MASK_SIDE = 28
# Between the metrics of both.
_LARGEST_DIFFERENCE = 1e-12
_COLUMNS = (
    ('kind', 'kind', '{}'),
    ('by', 'by', '{}'),
    ('images', 'images', '{}'),
    ('collect_cpu_seconds', 'collect CPU s', '{:.2f}'),
    ('cpu_seconds', 'evaluate CPU s', '{:.2f}'),
    ('seconds', 'evaluate s', '{:.2f}'),
    ('peak_memory', 'peak MB', '{:.0f}'),
    ('ratio', 'by pycocotools', '{:.3f}'),
    ('ratio_to_ours', 'by ours', '{:.2f}'),
    ('largest_difference', 'largest difference', '{:.1e}'),
)


def main() -> None:
    arguments = _arguments()
    if arguments.here:
        by, folder, kind = arguments.here
        print(json.dumps(_MEASURE[by](pathlib.Path(folder), kind)))
        return
    results = []
    for kind in arguments.kinds:
        num_images = arguments.images or _IMAGES[kind]
        num_images = _QUICK_IMAGES if arguments.quick else num_images
        with tempfile.TemporaryDirectory() as name:
            write(pathlib.Path(name), kind, num_images)
            results += compare(pathlib.Path(name), kind, num_images, arguments.repeats)
    print(
        f'{_DETECTIONS} detections of {generated_coco.NUM_CLASSES} classes an image, and '
        f'{_POSES} of keypoints'
    )
    print('\n'.join(own_process.table(_COLUMNS, results)))
    measure.write(results, arguments.json)


def compare(folder: pathlib.Path, kind: str, num_images: int, repeats: int = 1) -> list[dict]:
    """Scores one kind with all; ours writes the results file that the others read."""
    rows = {}
    for by in _MEASURE:
        runs = [
            own_process.run_json(__file__, ['--here', by, str(folder), kind])
            for _ in range(repeats)
        ]
        rows[by] = min(runs, key=lambda run: run['cpu_seconds'])
    ours, other = rows['toolkit'], rows['pycocotools']
    for by, row in rows.items():
        difference = np.abs(np.subtract(row['metrics'], other['metrics'])).max()
        row |= {'kind': kind, 'by': by, 'images': num_images}
        row['ratio'] = row['cpu_seconds'] / other['cpu_seconds']
        row['ratio_to_ours'] = row['cpu_seconds'] / ours['cpu_seconds']
        row['largest_difference'] = float(difference)
        if not difference <= _LARGEST_DIFFERENCE:
            raise SystemExit(f'{kind}: metrics of {by} differ from pycocotools by {difference}')
    return list(rows.values())


def write(folder: pathlib.Path, kind: str, num_images: int) -> None:
    """Writes the annotation file, and the results of keypoints; ours writes other results."""
    document = generated_coco.document(num_images)
    if kind == 'keypoints':
        results = _poses(document)
        (folder / f'{kind}.json').write_text(json.dumps(results))
    (folder / 'annotations.json').write_text(json.dumps(document))


def _poses(document: dict) -> list[dict]:
    """Makes all objects persons with keypoints, in place, and returns detections of them."""
    rng = np.random.default_rng(0)
    document['categories'] = [{'id': 1, 'name': 'person', 'keypoints': list(PERSON_KEYPOINTS)}]
    by_image = {image['id']: [] for image in document['images']}
    for annotation in document['annotations']:
        x, y, width, height = annotation['bbox']
        points = rng.random((len(PERSON_KEYPOINTS), 2)) * [width, height] + [x, y]
        seen = rng.integers(0, 3, len(points)) * (rng.random() < 0.9)
        points = np.where(seen[:, np.newaxis] > 0, points.round(), 0)
        annotation |= {
            'category_id': 1,
            'keypoints': np.column_stack([points, seen]).ravel().tolist(),
            'num_keypoints': int((seen > 0).sum()),
        }
        by_image[annotation['image_id']].append(annotation)
    results = []
    for image_id, annotations in by_image.items():
        for _ in range(_POSES if annotations else 0):
            annotation = annotations[rng.integers(len(annotations))]
            points = np.reshape(annotation['keypoints'], (-1, 3)).astype(float)
            spread = max(annotation['bbox'][2:]) * 0.1 * rng.random()
            points[:, :2] += rng.normal(0, spread, points[:, :2].shape)
            results.append(
                {
                    'image_id': image_id,
                    'category_id': 1,
                    'keypoints': points.round(2).ravel().tolist(),
                    'bbox': annotation['bbox'],
                    'score': round(float(rng.random()), 3),
                }
            )
    return results


def measure_toolkit(folder: pathlib.Path, kind: str) -> dict:
    """Runs our evaluator and writes the results file."""
    if kind == 'keypoints':
        return _measure_keypoints(folder)
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
    with _Timer() as timer:
        metrics = evaluator.evaluate()
    result = _result(collect, timer, list(metrics.values()))
    (folder / f'{kind}.json').write_text(json.dumps(evaluator.coco_results()))
    return result


def _measure_keypoints(folder: pathlib.Path) -> dict:
    """Runs our engine on the keypoints of both files."""
    from pycocotools.cocoeval import Params

    from object_detection.data.file_access import LocalFiles
    from object_detection.metrics.coco import metrics as coco_metrics
    from object_detection.metrics.coco.metrics import keypoints
    from object_detection.scoring import coco_files, coco_results
    from object_detection.scoring.tables import Parts

    start, parts = own_process.cpu_seconds(), Parts(keypoints=True)
    truth = coco_files.read_truth(str(folder / 'annotations.json'), LocalFiles())
    found = coco_results.read_detections(str(folder / 'keypoints.json'), LocalFiles(), truth)
    sides = [[side.objects(image, parts) for image in truth.images] for side in (truth, found)]
    collect = own_process.cpu_seconds() - start
    areas = {name: coco_metrics.AREA_RANGES[name] for name in ('all', 'medium', 'large')}
    with _Timer() as timer:
        measured = coco_metrics.measure(
            *sides,
            [1],
            compare=keypoints(Params('keypoints').kpt_oks_sigmas),
            rules=coco_metrics.Rules(areas, (_POSES,)),
        )
        metrics = []
        recalls = {name: measured.recall[name, _POSES] for name in areas}
        for tables in (measured.precision, recalls):
            # The thresholds 0.5 and 0.75 are the first and the sixth of ten.
            slices = [tables['all'], tables['all'][0], tables['all'][5]]
            slices += [tables['medium'], tables['large']]
            metrics += [float(each[each > -1].mean()) for each in slices]
    return _result(collect, timer, metrics)


def measure_pycocotools(folder: pathlib.Path, kind: str) -> dict:
    """Runs pycocotools on both files."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    with contextlib.redirect_stdout(io.StringIO()):
        start = own_process.cpu_seconds()
        truth = COCO(str(folder / 'annotations.json'))
        detected = truth.loadRes(str(folder / f'{kind}.json'))
        collect = own_process.cpu_seconds() - start
        with _Timer() as timer:
            engine = COCOeval(truth, detected, kind)
            engine.evaluate()
            engine.accumulate()
            engine.summarize()
    return _result(collect, timer, engine.stats.tolist())


def measure_faster_coco_eval(folder: pathlib.Path, kind: str) -> dict:
    """Runs faster-coco-eval on both files."""
    from faster_coco_eval import COCO, COCOeval_faster

    start = own_process.cpu_seconds()
    truth = COCO(str(folder / 'annotations.json'))
    detected = truth.loadRes(str(folder / f'{kind}.json'))
    collect = own_process.cpu_seconds() - start
    with _Timer() as timer:
        engine = COCOeval_faster(truth, detected, kind)
        engine.run()
    count = 10 if kind == 'keypoints' else 12
    return _result(collect, timer, np.asarray(engine.all_stats)[:count].tolist())


class _Timer:
    """Measures the time of a block, in seconds, and that of the processors."""

    def __enter__(self) -> '_Timer':
        self._start, self._cpu_start = time.perf_counter(), own_process.cpu_seconds()
        return self

    def __exit__(self, *error: object) -> None:
        self.seconds = time.perf_counter() - self._start
        self.cpu_seconds = own_process.cpu_seconds() - self._cpu_start


def _result(collect: float, evaluate: _Timer, metrics: list[float]) -> dict:
    return {
        'collect_cpu_seconds': collect,
        'cpu_seconds': evaluate.cpu_seconds,
        'seconds': evaluate.seconds,
        'peak_memory': rows.peak_memory(),
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


_MEASURE = {
    'toolkit': measure_toolkit,
    'pycocotools': measure_pycocotools,
    'faster-coco-eval': measure_faster_coco_eval,
}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split('\n', 1)[0])
    parser.add_argument('--images', type=int, help='instead of 5,000, and 1,000 with keypoints')
    parser.add_argument('--kinds', nargs='+', default=list(_IMAGES), choices=list(_IMAGES))
    parser.add_argument('--repeats', type=int, default=1)
    parser.add_argument('--quick', action='store_true', help='few images; shows that it runs')
    parser.add_argument('--json', type=pathlib.Path, default=measure.RESULTS / 'evaluation.json')
    parser.add_argument('--here', nargs=3, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == '__main__':
    main()
