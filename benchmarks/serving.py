"""Measures an export as a server runs it: JPEG files in, detections out, several clients at once.

    python benchmarks/serving.py
    python benchmarks/serving.py --config NAME --precision bfloat16 --images 'photos/*.jpg'
    python benchmarks/serving.py --model exported

Clients are threads of the process that holds the model; each sends its next request when it has the
answer to the last. Without --model, a config's model gets random weights and is exported with
encoded images as its input. Latencies are those of requests, which hold --batch_size images each;
"peak MB" is the most that the process held, whose imports are a part of it. The photos are those of
../shared/data/coco_permissive if they are there, and random ones if not.
"""

import dataclasses
import functools
import glob
import io
import itertools
import json
import os
import pathlib
import statistics
import tempfile
import threading
import time
from collections.abc import Callable

import click
import measure
import numpy as np
import own_process
from PIL import Image

from object_detection.benchmarking import rows, work
from object_detection.system import tensorflow_setup

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_PHOTOS = str(_ROOT.parent / 'shared' / 'data' / 'coco_permissive' / 'images' / '*.jpg')
_MAX_PHOTOS = 64
_RANDOM_PHOTOS, _RANDOM_SIZE = 8, (480, 640)
_INPUT_TYPE = 'encoded_image_string_tensor'
_COLUMNS = (
    ('precision', 'precision', '{}'),
    ('clients', 'clients', '{}'),
    ('batch_size', 'images a request', '{}'),
    ('requests', 'requests', '{}'),
    ('p50', 'p50 ms', '{:.0f}'),
    ('p99', 'p99 ms', '{:.0f}'),
    ('mean', 'mean ms', '{:.0f}'),
    ('images_per_second', 'images/s', '{:.3g}'),
    ('cores', 'cores used', '{:.2f}'),
    ('peak_memory', 'peak MB', '{:.0f}'),
    ('first', 'first s', '{:.1f}'),
)


@dataclasses.dataclass(frozen=True)
class Point:
    """One measurement.

    Attributes:
      model: folder of an export.
      clients: number of threads that send requests.
      batch_size: images of a request.
      requests: timed ones of all clients together.
      images: pattern of the photos; '' takes random ones.
    """

    model: str
    clients: int
    batch_size: int
    requests: int
    images: str


@click.command(help=__doc__.split('\n')[0])
@click.option('--model', help='Export with encoded images as its input; in place of --config.')
@click.option('--config', default='ssd_mobilenet_v2_fpnlite_320x320_coco17_tpu-8')
@click.option('--precision', 'precisions', multiple=True, default=['float32'], help='Repeat.')
@click.option('--clients', type=int, multiple=True, default=[1, 8], show_default=True)
@click.option('--batch_size', 'sizes', type=int, multiple=True, default=[1, 8], show_default=True)
@click.option('--requests', default=40, show_default=True, help='Timed ones of all clients.')
@click.option('--images', default=_PHOTOS, help='Quoted pattern of JPEG files.')
@click.option('--set', 'settings', multiple=True, metavar='PATH=VALUE', help='Repeat.')
@click.option(
    '--json', 'path', type=pathlib.Path, default=measure.RESULTS / 'serving.json', metavar='FILE'
)
@click.option('--here', hidden=True)
def main(model, config, precisions, clients, sizes, requests, images, settings, path, here):
    if here:
        job = json.loads(here)
        click.echo(json.dumps(_export(job) if 'output' in job else serve(Point(**job))))
        return
    if not glob.glob(images):
        click.echo(f'no file matches {images}: the photos are random.', err=True)
        images = ''
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for precision in [''] if model else precisions:
            exported = model or f'{folder}/{precision}'
            if not model:
                job = {'config': measure.find_config(config), 'settings': settings}
                _alone(job | {'precision': precision, 'output': exported})
            for batch_size, count in itertools.product(sizes, clients):
                point = Point(exported, count, batch_size, requests, images)
                row = _alone(dataclasses.asdict(point)) | {'source': model or config}
                rows.append(row)
                click.echo(f'{count} clients, {batch_size} images a request: done', err=True)
    measure.write(rows, path)
    first = rows[0]
    click.echo(f'{first["source"]}, {first["photos"]} photos ({"given" if images else "random"})')
    shown = [{**row, **{k: 1e3 * row[k] for k in ('p50', 'p99', 'mean')}} for row in rows]
    click.echo('\n'.join(own_process.table(_COLUMNS, shown)))


def _alone(job: dict) -> dict:
    return own_process.run_json(__file__, ['--here', json.dumps(job)])


def _export(job: dict) -> dict:
    """Exports a config's model with random weights; a process of its own, for its memory."""
    from object_detection.config.reader import read_pipeline
    from object_detection.export import saved_model
    from object_detection.models import precision as precisions

    pipeline = read_pipeline(job['config'], settings=job['settings'])
    precision = precisions.write(pipeline.train_config, job['precision'])
    detector = work.build_with_spread_scores(pipeline, precision)
    saved_model.export(
        detector,
        job['output'],
        input_type=_INPUT_TYPE,
        save_checkpoint=os.mkdir,
        pipeline_text='',
        precision=precision,
    )
    return {}


def serve(point: Point) -> dict:
    """Measures one point in this process."""
    start = time.perf_counter()
    # As `tfod predict` does, before TensorFlow is imported.
    tensorflow_setup.keep_freed_memory()
    tensorflow_setup.assume_constant_weights()
    tensorflow_setup.import_tensorflow()
    from object_detection.runtime.saved_detector import SavedModelRuntime

    photos = read_photos(point.images)
    detector = SavedModelRuntime(point.model)

    def send(index: int) -> None:
        first = index * point.batch_size
        batch = [photos[(first + i) % len(photos)] for i in range(point.batch_size)]
        rows = [detector.as_input(photo) for photo in batch]
        for value in detector.run_serialized(rows).values():
            value.numpy()

    send(0)
    first = time.perf_counter() - start
    run_clients(send, point.clients, 2 * point.clients)
    cpu, before = own_process.cpu_seconds(), time.perf_counter()
    latencies = run_clients(send, point.clients, point.requests)
    seconds = time.perf_counter() - before
    return {
        **dataclasses.asdict(point),
        'precision': detector.precision or 'not known',
        'photos': len(photos),
        'requests': len(latencies),
        'p50': float(np.percentile(latencies, 50)),
        'p99': float(np.percentile(latencies, 99)),
        'mean': statistics.mean(latencies),
        'images_per_second': len(latencies) * point.batch_size / seconds,
        'cores': (own_process.cpu_seconds() - cpu) / seconds,
        'peak_memory': rows.peak_memory(),
        'first': first,
    }


def read_photos(pattern: str) -> list[bytes]:
    """Returns JPEG files: those of a pattern, or random ones for ''."""
    if pattern:
        paths = sorted(glob.glob(pattern))[:_MAX_PHOTOS]
        return [pathlib.Path(path).read_bytes() for path in paths]
    photos = []
    for image in work.images(_RANDOM_PHOTOS, _RANDOM_SIZE).astype(np.uint8):
        file = io.BytesIO()
        Image.fromarray(image).save(file, format='jpeg')
        photos.append(file.getvalue())
    return photos


def run_clients(send: Callable[[int], None], clients: int, requests: int) -> list[float]:
    """Sends requests 0, 1, ... from several threads; returns the seconds of each.

    Raises:
      BaseException: the first error of a request.
    """
    indices = iter(range(requests))
    lock = threading.Lock()
    latencies: list[float] = []
    errors: list[BaseException] = []

    def client() -> None:
        while not errors:
            with lock:
                index = next(indices, None)
            if index is None:
                return
            try:
                latencies.append(rows.timed_call(functools.partial(send, index)))
            except BaseException as error:
                errors.append(error)

    threads = [threading.Thread(target=client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return latencies


if __name__ == '__main__':
    main()
