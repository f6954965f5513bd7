"""Whether ours and faster-coco-eval give the numbers of pycocotools on odd inputs.

    python benchmarks/evaluation_agreement.py
    python benchmarks/evaluation_agreement.py --seeds 20

Each case is a small generated data set with one oddity, by several seeds, for boxes and for masks.
The table gives the largest difference of the twelve metrics and of the precision of each category
from those of pycocotools, or the error.
"""

import argparse
import contextlib
import io
import json
import math
import pathlib
import tempfile
from collections.abc import Callable

import numpy as np
import own_process

_SIDE = 200
_NUM_IMAGES, _NUM_CLASSES = 6, 4
_COLUMNS = (
    ('case', 'case', '{}'),
    ('kind', 'kind', '{}'),
    ('toolkit', 'toolkit', '{}'),
    ('faster', 'faster-coco-eval', '{}'),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split('\n', 1)[0])
    parser.add_argument('--seeds', type=int, default=5)
    parser.add_argument('--cases', nargs='+', default=list(CASES), choices=list(CASES))
    arguments = parser.parse_args()
    rows = [
        compare(case, kind, arguments.seeds)
        for case in arguments.cases
        for kind in ('bbox', 'segm')
    ]
    print('\n'.join(own_process.table(_COLUMNS, rows)))


def compare(case: str, kind: str, seeds: int) -> dict[str, str]:
    """Returns a row of the table."""
    worst: dict[str, list[float | str]] = {'toolkit': [], 'faster': []}
    for seed in range(seeds):
        document, results = make(seed)
        CASES[case](document, results, np.random.default_rng([1, seed]))
        with tempfile.TemporaryDirectory() as folder:
            paths = [pathlib.Path(folder) / name for name in ('truth.json', 'results.json')]
            for path, content in zip(paths, (document, results), strict=True):
                path.write_text(json.dumps(content))
            expected = _attempt(_pycocotools, paths, kind)
            for name, measure in (('toolkit', _toolkit), ('faster', _faster)):
                worst[name].append(_difference(_attempt(measure, paths, kind), expected))
    return {'case': case, 'kind': kind} | {name: _told(found) for name, found in worst.items()}


def make(seed: int) -> tuple[dict, list[dict]]:
    """Returns an annotation file, and results near its objects with scores of one decimal."""
    rng = np.random.default_rng([0, seed])
    images = [
        {'id': 10 * i + 3, 'file_name': f'{i}.jpg', 'height': _SIDE, 'width': _SIDE}
        for i in range(_NUM_IMAGES)
    ]
    categories = [{'id': 3 * k + 2, 'name': f'class {k}'} for k in range(_NUM_CLASSES)]
    annotations, results = [], []
    for image in images:
        for _ in range(rng.integers(0, 9)):
            category = categories[rng.integers(_NUM_CLASSES)]['id']
            box = np.concatenate([rng.integers(0, 100, 2), np.exp(rng.uniform(1, 4.6, 2))]).round(1)
            ids = {'image_id': image['id'], 'category_id': category}
            entry = ids | _shape(box) | {'area': float(box[2] * box[3] * 0.8), 'iscrowd': 0}
            annotations.append(entry | {'id': len(annotations) + 1})
            for _ in range(rng.integers(0, 4)):
                moved = box + rng.normal(0, 0.1, 4) * np.tile(box[2:], 2) * (rng.random() < 0.8)
                moved[2:] = np.maximum(moved[2:], 1)
                score = round(float(rng.random()), 1)
                results.append(ids | _shape(moved) | {'score': score})
    rng.shuffle(results)
    return {'images': images, 'annotations': annotations, 'categories': categories}, results


def _shape(box: np.ndarray) -> dict:
    x, y, width, height = (float(side) for side in box)
    corners = [x, y, x + width, y, x + width, y + height, x, y + height]
    return {'bbox': [x, y, width, height], 'segmentation': [corners]}


def _nothing(document: dict, results: list[dict], rng: np.random.Generator) -> None:
    pass


def _crowds(document: dict, results: list[dict], rng: np.random.Generator) -> None:
    for annotation in document['annotations']:
        annotation['iscrowd'] = int(rng.random() < 0.4)


def _ignored(document: dict, results: list[dict], rng: np.random.Generator) -> None:
    for annotation in document['annotations']:
        annotation['ignore'] = int(rng.random() < 0.4)


def _odd_areas(document: dict, results: list[dict], rng: np.random.Generator) -> None:
    for annotation in document['annotations']:
        annotation['area'] = float(rng.choice([0, 32**2, 96**2, 1e5**2, 1e11]))


def _equal_scores(document: dict, results: list[dict], rng: np.random.Generator) -> None:
    for result in results:
        result['score'] = 0.5


def _copies(document: dict, results: list[dict], rng: np.random.Generator) -> None:
    """Objects and detections in the same place, whose overlaps are equal."""
    document['annotations'] += [
        annotation | {'id': annotation['id'] + 1000} for annotation in document['annotations']
    ]
    results += [dict(result) for result in results]


def _many(document: dict, results: list[dict], rng: np.random.Generator) -> None:
    """More than 100 detections of a class in an image."""
    for _ in range(150):
        result = dict(results[0])
        result['score'] = round(float(rng.random()), 2)
        results.append(result)


def _empty_categories(document: dict, results: list[dict], rng: np.random.Generator) -> None:
    document['categories'] += [{'id': 90, 'name': 'no object'}, {'id': 0, 'name': 'nothing'}]
    for result in results[::4]:
        result['category_id'] = 90


def _no_objects(document: dict, results: list[dict], rng: np.random.Generator) -> None:
    document['annotations'].clear()


def _no_detections(document: dict, results: list[dict], rng: np.random.Generator) -> None:
    results.clear()


def _empty_boxes(document: dict, results: list[dict], rng: np.random.Generator) -> None:
    for entry in (*document['annotations'][::3], *results[::3]):
        entry['bbox'][2] = 0.0


def _exact_halves(document: dict, results: list[dict], rng: np.random.Generator) -> None:
    """Overlaps that are exactly a threshold, or miss it by rounding."""
    boxes = {each['image_id']: each['bbox'] for each in document['annotations']}
    for result in results:
        x, y, width, height = boxes[result['image_id']]
        share = float(rng.choice([0.5, 0.55, 0.6, 0.7, 0.75, 0.95]))
        result |= _shape(np.array([x, y, width * share, height]))


def _text_ids(document: dict, results: list[dict], rng: np.random.Generator) -> None:
    for image in document['images']:
        image['id'] = f'image {image["id"]}'
    for entry in (*document['annotations'], *results):
        entry['image_id'] = f'image {entry["image_id"]}'


def _id_zero(document: dict, results: list[dict], rng: np.random.Generator) -> None:
    for number, annotation in enumerate(document['annotations']):
        annotation['id'] = number


def _large_ids(document: dict, results: list[dict], rng: np.random.Generator) -> None:
    for entry in (*document['annotations'], *results):
        entry['image_id'] += 2**40
    for image in document['images']:
        image['id'] += 2**40


def _without_area(document: dict, results: list[dict], rng: np.random.Generator) -> None:
    for annotation in document['annotations']:
        del annotation['area']


CASES: dict[str, Callable[[dict, list[dict], np.random.Generator], None]] = {
    'plain': _nothing,
    'crowds': _crowds,
    'ignore flags': _ignored,
    'areas at the limits': _odd_areas,
    'equal scores': _equal_scores,
    'equal overlaps': _copies,
    'more than 100': _many,
    'empty categories': _empty_categories,
    'no objects': _no_objects,
    'no detections': _no_detections,
    'boxes without area': _empty_boxes,
    'overlap at a threshold': _exact_halves,
    'image ids of text': _text_ids,
    'annotation id 0': _id_zero,
    'ids above 32 bits': _large_ids,
    'without area': _without_area,
}


def _attempt(measure: Callable, paths: list[pathlib.Path], kind: str) -> np.ndarray | str:
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            return measure(*map(str, paths), kind)
    # Each raises errors of its own on files that it does not take.
    except Exception as error:
        return f'{type(error).__name__}: {error}'[:60]


def _pycocotools(truth_path: str, results_path: str, kind: str) -> np.ndarray:
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    truth = COCO(truth_path)
    engine = COCOeval(truth, truth.loadRes(results_path), kind)
    engine.evaluate()
    engine.accumulate()
    engine.summarize()
    return _with_categories(engine.stats, engine.eval['precision'])


def _faster(truth_path: str, results_path: str, kind: str) -> np.ndarray:
    from faster_coco_eval import COCO, COCOeval_faster

    truth = COCO(truth_path)
    engine = COCOeval_faster(truth, truth.loadRes(results_path), kind)
    engine.run()
    precision = np.reshape(engine.eval['precision'], engine.eval['counts'])
    return _with_categories(np.asarray(engine.all_stats)[:12], precision)


def _with_categories(stats: np.ndarray, precision: np.ndarray) -> np.ndarray:
    found = list(stats)
    for category in range(precision.shape[2]):
        values = precision[:, :, category, 0, -1]
        values = values[values > -1]
        found.append(values.mean() if values.size else -1.0)
    return np.array(found)


def _toolkit(truth_path: str, results_path: str, kind: str) -> np.ndarray:
    from object_detection.protos import eval_pb2
    from object_detection.scoring.evaluation import FileOptions, evaluate

    name = {'bbox': 'coco_detection_metrics', 'segm': 'coco_mask_metrics'}[kind]
    config = eval_pb2.EvalConfig(include_metrics_per_category=True)
    options = FileOptions(truth_path, results_path, metrics=(name,))
    return np.array(list(evaluate(options, config).metrics.values()))


def _difference(found: np.ndarray | str, expected: np.ndarray | str) -> float | str:
    if isinstance(found, str):
        return found
    if isinstance(expected, str):
        return f'has numbers; pycocotools: {expected}'
    return float(np.abs(found - expected).max())


def _told(found: list[float | str]) -> str:
    texts = [each for each in found if isinstance(each, str)]
    if texts:
        return f'{texts[0]} ({len(texts)} of {len(found)})'
    worst = max(found)
    return 'equal' if worst == 0 else f'{worst:.1e}' if math.isfinite(worst) else 'NaN'


if __name__ == '__main__':
    main()
