"""Size, speed and agreement of TFLite files of each quantization, beside the SavedModel.

    python benchmarks/tflite.py --config FILE --calibration IMAGES --images IMAGES
    python benchmarks/tflite.py --config FILE --checkpoint_dir DIR --annotations JSON ...

Times the interpreter and the SavedModel in turns, one image at a time, of the size of the input.
Without --checkpoint_dir the model has random weights whose scores are spread like a trained one's.
With --annotations (COCO) it also gives the average precision on the images, and with --bfloat16 the
same of a SavedModel in bfloat16.
"""

import contextlib
import io
import json
import pathlib
import statistics
import tempfile
from collections.abc import Callable
from typing import Any

import click
import numpy as np
import tensorflow as tf
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from object_detection.benchmarking import work
from object_detection.benchmarking.rows import turns
from object_detection.cli.predict import find_images
from object_detection.config.reader import read_pipeline
from object_detection.export import exporter, saved_model, verification
from object_detection.export.formats import formats, tflite
from object_detection.export.formats.source import ExportSource, FormatOptions
from object_detection.models import precision as precisions
from object_detection.runtime.images import read_image
from object_detection.runtime.saved_detector import SavedModelRuntime


@click.command(help=__doc__)
@click.option('--config', required=True)
@click.option('--checkpoint_dir', default='', help='Trained weights.')
@click.option('--calibration', required=True, help='Images for int8.')
@click.option('--images', required=True, help='Images to compare on, or of --annotations.')
@click.option('--annotations', default='', help='COCO file of --images, a folder then.')
@click.option('--limit', default=100, show_default=True, help='Most images of each.')
@click.option('--steps', default=20, show_default=True, help='Timed runs of each.')
@click.option('--set', 'settings', multiple=True, help='FIELD.PATH=VALUE in the config.')
@click.option('--bfloat16', is_flag=True, help='A SavedModel in bfloat16, too.')
@click.option('--quantization', 'kinds', multiple=True, default=formats.QUANTIZATIONS)
def main(
    config: str,
    checkpoint_dir: str,
    calibration: str,
    images: str,
    annotations: str,
    limit: int,
    steps: int,
    settings: tuple[str, ...],
    bfloat16: bool,
    kinds: tuple[str, ...],
) -> None:
    pipeline = read_pipeline(config, settings=settings)
    source = _source(pipeline, checkpoint_dir, 'float32')
    samples = tuple(find_images((calibration,), readable=True)[:limit])
    paths = find_images((images,), readable=True)[:limit]
    with tempfile.TemporaryDirectory() as folder:
        exported = _saved(source, f'{folder}/float32')
        rows = {'SavedModel': {'run': _saved_model_run(exported, source)}}
        if bfloat16:
            lower = _source(pipeline, checkpoint_dir, 'mixed_bfloat16')
            rows['SavedModel, bfloat16'] = row = {'detector': _saved(lower, f'{folder}/bfloat16')}
            row['run'] = _saved_model_run(row['detector'], source)
        expected = None
        for kind in kinds:
            row = rows[kind] = _write(
                source, pathlib.Path(folder) / f'{kind}.tflite', kind, samples
            )
            expected = expected or _expected(exported, paths)
            row['agreement'] = str(_compare(row['detector'], expected))
        seconds = turns({name: row['run'] for name, row in rows.items()}, steps)
        for name, row in rows.items():
            row['ms'] = round(1000 * statistics.median(seconds[name]), 1)
            if annotations:
                row['ap'] = _precision(
                    row.get('detector', exported).run, images, annotations, limit
                )
    for name, row in rows.items():
        click.echo(json.dumps({'model': name} | {k: v for k, v in row.items() if k not in _HIDDEN}))


def _source(pipeline: Any, checkpoint_dir: str, precision: str) -> ExportSource:
    if checkpoint_dir:
        detector = exporter.load_detector(pipeline, checkpoint_dir, precision)
    else:
        detector = work.build_with_spread_scores(pipeline, precision)
    return ExportSource(detector, pipeline, precision)


def _saved(source: ExportSource, folder: str) -> SavedModelRuntime:
    with precisions.scope(source.precision):
        served = saved_model.ServedDetector(source.detector, 'image_tensor', source.precision)
        tf.saved_model.save(served, f'{folder}/saved_model', {'serving_default': served.serve})
    return SavedModelRuntime(folder)


_HIDDEN = ('run', 'detector')


def _saved_model_run(exported: SavedModelRuntime, source: ExportSource) -> Callable[[], object]:
    image = np.uint8(work.images(1, source.static_shape('tflite')[:2])[0])
    exported.run([image])
    return lambda: exported.run([image])


def _write(source: ExportSource, path: pathlib.Path, kind: str, samples: tuple) -> dict:
    options = FormatOptions(quantization=kind, calibration=samples if kind == formats.INT8 else ())
    tflite.check(source, options)
    described = tflite.write(source, path, options)
    runner = tflite.interpreter(path, path.read_bytes()).get_signature_runner()
    dtype = described.inputs[0].dtype
    image = work.images(1, source.static_shape('tflite')[:2]).astype(dtype)
    runner(image=image)
    return {
        'mb': round(path.stat().st_size / 1e6, 2),
        'edge_tpu_refuses': described.details.get('edge_tpu_refuses'),
        'detector': tflite.load(path, described),
        'run': lambda: runner(image=image),
    }


def _expected(exported: SavedModelRuntime, paths: list[pathlib.Path]) -> list:
    pairs = []
    for path in paths[:20]:
        image = read_image(path)[0]
        found = exported(image[np.newaxis])
        found['detection_classes'] -= 1.0
        pairs.append((image, found))
    return pairs


def _compare(
    detector: tflite.FileRuntime, expected: list
) -> verification.Comparison | verification.Resemblance:
    if detector.description.details['quantization'] == formats.FLOAT32:
        return verification.compare_with(detector, expected)
    return verification.resemble(detector, expected)


def _precision(run: Callable, folder: str, annotations: str, limit: int) -> list[float]:
    """AP, AP@.50 and AP@.75 of boxes."""
    with contextlib.redirect_stdout(io.StringIO()):
        truth, rows = COCO(annotations), []
        ids = sorted(truth.imgs)[:limit]
        for number in ids:
            image = read_image(pathlib.Path(folder) / truth.imgs[number]['file_name'])[0]
            rows += _rows(run(image), number, image.shape)
        evaluation = COCOeval(truth, truth.loadRes(rows), 'bbox')
        evaluation.params.imgIds = ids
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return [round(float(value), 4) for value in evaluation.stats[:3]]


def _rows(found: dict[str, np.ndarray], number: int, shape: tuple[int, ...]) -> list[dict]:
    count = int(found['num_detections'])
    ymin, xmin, ymax, xmax = (found['detection_boxes'][:count] * np.tile(shape[:2], 2)).T
    boxes = np.stack([xmin, ymin, xmax - xmin, ymax - ymin], axis=1)
    return [
        {'image_id': number, 'category_id': int(label), 'bbox': box.tolist(), 'score': float(score)}
        for box, label, score in zip(
            boxes,
            found['detection_classes'][:count],
            found['detection_scores'][:count],
            strict=True,
        )
    ]


if __name__ == '__main__':
    main()
