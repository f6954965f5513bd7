"""Peak memory and time of the COCO to TFRecord conversion.

    python benchmarks/conversion_memory.py [--gigabytes 2] [--workers 1] [--shards 10]

makes photos of noise with annotations in a temporary folder, converts them in a process of its own
and prints a table: what the process and all it starts hold at most, and how long they take. It
needs twice the input's size on the disk for a while, and psutil.
"""

import argparse
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np
import psutil
from PIL import Image

HEIGHT, WIDTH = 480, 640
NUM_DIFFERENT_IMAGES = 64
OBJECTS_PER_IMAGE = 7
CORNERS_PER_POLYGON = 40

_CONVERT = """
import sys
from object_detection.dataset_tools.coco_conversion import convert_coco
from object_detection.dataset_tools.coco_job import CocoSource
source = CocoSource(sys.argv[1], sys.argv[2], masks=True)
report = convert_coco(source, sys.argv[3], int(sys.argv[4]), workers=int(sys.argv[5]))
assert not report['problems'], report['problems'][:3]
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split('\n', 1)[0])
    parser.add_argument('--gigabytes', type=float, default=2, help='size of the images')
    parser.add_argument('--workers', type=int, default=1, help='local processes')
    parser.add_argument('--shards', type=int, default=10, help='TFRecord files')
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        num_images, num_bytes = make_input(folder, int(arguments.gigabytes * 1e9))
        peak, seconds = measure(folder, arguments.shards, arguments.workers)
        written = sum(path.stat().st_size for path in folder.glob('out-*'))
    print(f'images            {num_images:>8}    {num_bytes / 1e9:.2f} GB')
    print(f'records           {arguments.shards:>8}    {written / 1e9:.2f} GB')
    print(f'workers           {arguments.workers:>8}')
    print(f'peak memory       {peak / 1e6:>8.0f} MB (all processes, resident)')
    print(f'time              {seconds:>8.1f} s ({num_images / seconds:.0f} images/s)')


def make_input(folder: pathlib.Path, num_bytes: int) -> tuple[int, int]:
    """Writes images of `num_bytes` in all and their annotations; returns (images, bytes)."""
    rng = np.random.default_rng(0)
    # Noise in rising strength: files of different sizes.
    encoded = [_encode_noise(rng, 20 + 3 * index) for index in range(NUM_DIFFERENT_IMAGES)]
    (folder / 'images').mkdir()
    images, annotations = [], []
    total = 0
    while total < num_bytes:
        image_id = len(images) + 1
        data = encoded[image_id % NUM_DIFFERENT_IMAGES]
        images.append(
            {'id': image_id, 'file_name': f'{image_id}.jpg', 'height': HEIGHT, 'width': WIDTH}
        )
        (folder / 'images' / f'{image_id}.jpg').write_bytes(data)
        total += len(data)
        for _ in range(OBJECTS_PER_IMAGE):
            annotations.append(_annotation(rng, len(annotations) + 1, image_id))
    document = {
        'images': images,
        'annotations': annotations,
        'categories': [{'id': 1, 'name': 'thing'}],
    }
    (folder / 'annotations.json').write_text(json.dumps(document))
    return len(images), total


def measure(folder: pathlib.Path, num_shards: int, workers: int) -> tuple[int, float]:
    """Converts the input of `folder`; returns (most resident bytes of all processes, seconds)."""
    arguments = ['images', 'annotations.json', 'out', str(num_shards), str(workers)]
    start = time.monotonic()
    job = subprocess.Popen([sys.executable, '-c', _CONVERT, *arguments], cwd=folder)
    process = psutil.Process(job.pid)
    peak = 0
    while job.poll() is None:
        peak = max(peak, _resident_bytes(process))
        time.sleep(0.05)
    if job.returncode:
        raise SystemExit(f'The conversion failed with exit status {job.returncode}.')
    return peak, time.monotonic() - start


def _resident_bytes(process: psutil.Process) -> int:
    total = 0
    try:
        for member in [process, *process.children(recursive=True)]:
            total += member.memory_info().rss
    # It may end between two looks.
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        pass
    return total


def _encode_noise(rng: np.random.Generator, strength: int) -> bytes:
    pixels = rng.integers(0, min(strength, 255), (HEIGHT, WIDTH, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, 'JPEG', quality=95)
    return file.getvalue()


def _annotation(rng: np.random.Generator, annotation_id: int, image_id: int) -> dict:
    """Returns an object with a round polygon somewhere in the image."""
    radius = rng.uniform(5, 100)
    center = rng.uniform(radius, [WIDTH - radius, HEIGHT - radius])
    angles = np.linspace(0, 2 * np.pi, CORNERS_PER_POLYGON, endpoint=False)
    corners = center + radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    return {
        'id': annotation_id,
        'image_id': image_id,
        'category_id': 1,
        'bbox': [*(center - radius).round(2).tolist(), *[round(2 * radius, 2)] * 2],
        'area': round(np.pi * radius**2, 2),
        'iscrowd': 0,
        'segmentation': [corners.round(2).ravel().tolist()],
    }


if __name__ == '__main__':
    main()
