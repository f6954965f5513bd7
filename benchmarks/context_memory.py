"""Time and peak memory of adding context to the images of one camera trap.

    python benchmarks/context_memory.py
    python benchmarks/context_memory.py --images 100000 --elements 8

generates records of one camera, each with a small JPEG and an embedding of 2057 numbers, in a
temporary folder, and adds context once for each number of images. The whole camera is one group of
the job; banks have at most `--elements` embeddings, as each image carries its bank. It needs
--images * (--elements + 2) * 8.3 kB on the disk for a while.
"""

import argparse
import contextlib
import datetime
import io
import json
import pathlib
import sys
import tempfile

import measure
import numpy as np
import own_process
from PIL import Image

from object_detection.core import tf_example_keys as keys
from object_detection.data import tf_examples, tf_record_files

_LENGTH = 2057
_PICTURES = 32
_START = datetime.datetime(2020, 1, 1)
_QUICK_IMAGES = 20
_COLUMNS = (
    ('images', 'images', '{}'),
    ('output_type', 'records', '{}'),
    ('banks', 'banks', '{}'),
    ('workers', 'workers', '{}'),
    ('seconds', 'time s', '{:.1f}'),
    ('images_per_second', 'images/s', '{:.0f}'),
    ('input_megabytes', 'input MB', '{:.0f}'),
    ('output_megabytes', 'output MB', '{:.0f}'),
    ('peak_memory', 'peak MB', '{:.0f}'),
)

_ADD = """
import json, sys
from object_detection.dataset_tools.context_rcnn import context
from object_detection.dataset_tools.context_rcnn.options import ContextOptions
options = ContextOptions(input_tfrecord='in-?????-of-?????', output_tfrecord='out',
                         **json.loads(sys.argv[1]))
context.run(options)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split('\n', 1)[0])
    parser.add_argument('--images', type=int, nargs='+', default=[2000, 20_000])
    parser.add_argument('--elements', type=int, default=4, help='largest number in a bank')
    parser.add_argument('--workers', type=int, default=1, help='local processes')
    parser.add_argument('--shards', type=int, default=10, help='TFRecord files')
    parser.add_argument(
        '--output_type', choices=('tf_example', 'tf_sequence_example'), default='tf_example'
    )
    parser.add_argument('--quick', action='store_true', help='few images; shows that it runs')
    parser.add_argument(
        '--json', type=pathlib.Path, default=measure.RESULTS / 'context_memory.json'
    )
    arguments = parser.parse_args()
    results = []
    for num_images in [_QUICK_IMAGES] if arguments.quick else arguments.images:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            generate(folder, num_images, arguments.shards)
            results.append(add(folder, num_images, arguments))
        print('\n'.join(own_process.table(_COLUMNS, results)), flush=True)
    print('time: with the start of all processes; peak: what all of them hold at a time')
    measure.write(results, arguments.json)


def generate(folder: pathlib.Path, num_images: int, num_shards: int) -> None:
    """Writes the records of one camera, one image a minute."""
    rng = np.random.default_rng(0)
    pictures = [_picture(rng) for _ in range(_PICTURES)]
    names = [f'in-{shard:05d}-of-{num_shards:05d}' for shard in range(num_shards)]
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(open(folder / name, 'wb')) for name in names]
        for number in range(num_images):
            record = _record(number, pictures[number % _PICTURES], rng)
            tf_record_files.write_record(files[number % num_shards], record)


def _record(number: int, picture: bytes, rng: np.random.Generator) -> bytes:
    date = _START + datetime.timedelta(minutes=number)
    features = {
        keys.ENCODED: tf_examples.bytes_feature([picture]),
        keys.FORMAT: tf_examples.bytes_feature([b'jpeg']),
        keys.HEIGHT: tf_examples.int64_feature([240]),
        keys.WIDTH: tf_examples.int64_feature([320]),
        keys.SOURCE_ID: tf_examples.bytes_feature([f'img{number}'.encode()]),
        keys.LOCATION: tf_examples.bytes_feature([b'camera']),
        keys.DATE_CAPTURED: tf_examples.bytes_feature([f'{date}'.encode()]),
        keys.EMBEDDING: tf_examples.float_feature(rng.random(_LENGTH, np.float32)),
        keys.EMBEDDING_SCORE: tf_examples.float_feature([0.9]),
        keys.EMBEDDING_LENGTH: tf_examples.int64_feature([_LENGTH]),
        keys.EMBEDDING_COUNT: tf_examples.int64_feature([1]),
    }
    return tf_examples.serialize(features)


def _picture(rng: np.random.Generator) -> bytes:
    file = io.BytesIO()
    coarse = Image.fromarray(rng.integers(0, 255, (15, 20, 3), np.uint8))
    coarse.resize((320, 240)).save(file, 'JPEG')
    return file.getvalue()


def add(folder: pathlib.Path, num_images: int, arguments: argparse.Namespace) -> dict:
    """Adds context to the records of `folder` once."""
    options = {
        'max_num_elements_in_context_features': arguments.elements,
        'output_type': arguments.output_type,
        'workers': arguments.workers,
    }
    command = [sys.executable, '-c', _ADD, json.dumps(options)]
    result = own_process.watch(command, str(folder))
    report = json.loads((folder / 'out.report.json').read_text())
    assert report['images'] == num_images, report
    return {
        'images': num_images,
        'output_type': arguments.output_type,
        'banks': report['banks'],
        'workers': arguments.workers,
        **result,
        'images_per_second': num_images / result['seconds'],
        'input_megabytes': _megabytes(folder, 'in'),
        'output_megabytes': _megabytes(folder, 'out'),
    }


def _megabytes(folder: pathlib.Path, prefix: str) -> float:
    return sum(path.stat().st_size for path in folder.glob(f'{prefix}-*-of-*')) / 1e6


if __name__ == '__main__':
    main()
