"""Time and peak memory of the conversion from COCO's format to TFRecords, by Beam.

    python benchmarks/conversion.py
    python benchmarks/conversion.py --images 13000 --workers 1 --shards 10
    python benchmarks/conversion.py --large coco --workers 1
    python benchmarks/conversion.py --large open_images --listing

makes photos and annotations in a temporary folder and converts them, masks included, once for each
number of local worker processes. It needs twice the input's size on the disk for a while.

`--large` has as many images and objects as the training set of that name; its images are links to a
small one, so that what is measured is the annotations. `--listing` does all but reading images and
writing records.
"""

import argparse
import pathlib
import sys
import tempfile

import generated_coco
import measure
import own_process

_QUICK_IMAGES = 20
_COLUMNS = (
    ('workers', 'workers', '{}'),
    ('images', 'images', '{}'),
    ('input_megabytes', 'input MB', '{:.0f}'),
    ('seconds', 'time s', '{:.1f}'),
    ('cpu_seconds', 'CPU s', '{:.1f}'),
    ('images_per_second', 'images/s', '{:.0f}'),
    ('images_per_cpu_second', 'images/CPU s', '{:.0f}'),
    ('peak_memory', 'peak MB', '{:.0f}'),
    ('output_megabytes', 'output MB', '{:.0f}'),
)

_START = """
import os, sys
from object_detection.data.formats.coco import CocoSource
from object_detection.data.formats.open_images import OpenImagesSource
source = CocoSource('images', 'annotations.json', masks=True)
if os.path.exists('boxes.csv'):
    source = OpenImagesSource(image_dir='images', boxes_file='boxes.csv')
"""
_CONVERT = f"""{_START}
from object_detection.dataset_tools.converters.conversion import convert
report = convert(source, 'out', int(sys.argv[1]), workers=int(sys.argv[2]))
assert not report['problems'], report['problems'][:3]
print(report['examples'], 'examples,', report['objects'], 'objects')
"""
_LIST = f"""{_START}
from object_detection.dataset_tools.converters import conversion
job = conversion._job(source, False)
conversion._write_index('out-index', source, job.reader)
print(job.num_images, 'images')
os.unlink('out-index')
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split('\n', 1)[0])
    parser.add_argument('--images', type=int, help='2000, or all of --large')
    parser.add_argument('--large', choices=sorted(generated_coco.SIZES))
    parser.add_argument('--listing', action='store_true', help='only read the annotations')
    parser.add_argument('--folder', help='of the temporary folder')
    parser.add_argument('--workers', type=int, nargs='+', default=[1, 2], help='local processes')
    parser.add_argument('--shards', type=int, default=10, help='TFRecord files')
    parser.add_argument('--quick', action='store_true', help='few images; shows that it runs')
    parser.add_argument('--json', type=pathlib.Path, default=measure.RESULTS / 'conversion.json')
    arguments = parser.parse_args()
    num_images = arguments.images or generated_coco.SIZES.get(arguments.large, 2000)
    num_images = _QUICK_IMAGES if arguments.quick else num_images
    program = _LIST if arguments.listing else _CONVERT
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = pathlib.Path(name)
        if arguments.large:
            num_bytes = generated_coco.write_large(folder, arguments.large, num_images)
        else:
            num_bytes = generated_coco.write(folder, num_images)
        results = [
            {'images': num_images, 'input_megabytes': num_bytes / 1e6}
            | convert(program, folder, num_images, arguments.shards, workers)
            for workers in ([1] if arguments.listing else arguments.workers)
        ]
    print('\n'.join(own_process.table(_COLUMNS, results)))
    print('time: with the start of all processes; peak: what all of them hold at a time')
    measure.write(results, arguments.json)


def convert(
    program: str, folder: pathlib.Path, num_images: int, num_shards: int, workers: int
) -> dict:
    """Converts the data set of `folder` once and removes what was written."""
    command = [sys.executable, '-c', program, str(num_shards), str(workers)]
    result = own_process.watch(command, str(folder))
    written = list(folder.glob('out-*-of-*'))
    output = sum(path.stat().st_size for path in written)
    for path in written:
        path.unlink()
    return {
        'workers': workers,
        'shards': num_shards,
        **result,
        'images_per_second': num_images / result['seconds'],
        'images_per_cpu_second': num_images / result['cpu_seconds'],
        'output_megabytes': output / 1e6,
    }


if __name__ == '__main__':
    main()
