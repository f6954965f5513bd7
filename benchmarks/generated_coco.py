"""Generated data sets like COCO and Open Images: files, numbers and sizes of objects, polygons."""

import io
import itertools
import json
import os
import pathlib
from collections.abc import Iterable, Iterator

import numpy as np
from PIL import Image

HEIGHT, WIDTH = 480, 640
NUM_CLASSES = 80
OBJECTS_PER_IMAGE = 7.3
_CROWDS = 0.01
_CORNERS = 24
# With this the files have about 155 kB, as COCO's.
_QUALITY = 93
# Of the training sets of COCO 2017 and Open Images.
SIZES = {'coco': 118_000, 'open_images': 1_700_000}
_BOXES_PER_IMAGE = 8.4
# Of one file in file systems such as ext4.
_MAX_LINKS = 50_000
# Annotations of so many images are mixed: those of COCO are in no order of images.
_MIXED = 1000
_BOX_COLUMNS = (
    'ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsOccluded,IsTruncated,IsGroupOf,'
    'IsDepiction,IsInside,XClick1X,XClick2X,XClick3X,XClick4X,XClick1Y,XClick2Y,XClick3Y,XClick4Y'
)


def write(folder: pathlib.Path, num_images: int, num_different: int = 64, seed: int = 0) -> int:
    """Writes `images/*.jpg` and `annotations.json`; returns the bytes of all images.

    Args:
      folder: exists.
      num_images: each with objects of its own.
      num_different: photos that are drawn; the files repeat them.
      seed: of everything.
    """
    rng = np.random.default_rng(seed)
    photos = [photo(rng) for _ in range(min(num_different, num_images))]
    (folder / 'images').mkdir()
    num_bytes = 0
    for image_id in range(1, num_images + 1):
        data = photos[image_id % len(photos)]
        (folder / 'images' / f'{image_id}.jpg').write_bytes(data)
        num_bytes += len(data)
    (folder / 'annotations.json').write_text(json.dumps(document(num_images, seed)))
    return num_bytes


def write_large(folder: pathlib.Path, kind: str, num_images: int) -> int:
    """Writes annotations of as many images, which are links to a few small files, piece by piece.

    Args:
      folder: exists; gets `images`, and `annotations.json` or `boxes.csv`.
      kind: a key of `SIZES`.
      num_images: each with objects of its own.

    Returns:
      The bytes of the annotations.
    """
    (folder / 'images').mkdir()
    grey = io.BytesIO()
    Image.new('RGB', (WIDTH, HEIGHT), (128, 128, 128)).save(grey, 'JPEG')
    for number in range(1, num_images + 1):
        path = folder / 'images' / f'{number}.jpg'
        if number % _MAX_LINKS == 1:
            first = path
            path.write_bytes(grey.getvalue())
        else:
            os.link(first, path)
    if kind == 'open_images':
        path = folder / 'boxes.csv'
        with open(path, 'w') as file:
            file.writelines(_box_lines(num_images))
        return path.stat().st_size
    path = folder / 'annotations.json'
    images = (
        {'id': number, 'file_name': f'{number}.jpg', 'height': HEIGHT, 'width': WIDTH}
        for number in range(1, num_images + 1)
    )
    with open(path, 'w') as file:
        file.write('{"images": [')
        file.writelines(_json_items(images))
        file.write('], "annotations": [')
        file.writelines(_json_items(_mixed_annotations(num_images)))
        file.write(f'], "categories": {json.dumps(categories())}}}')
    return path.stat().st_size


def _json_items(entries: Iterable[dict]) -> Iterator[str]:
    for index, entry in enumerate(entries):
        yield (', ' if index else '') + json.dumps(entry)


def _mixed_annotations(num_images: int) -> Iterator[dict]:
    numbers = itertools.count(1)
    for start in range(1, num_images + 1, _MIXED):
        found = []
        for image_id in range(start, min(start + _MIXED, num_images + 1)):
            rng = np.random.default_rng([0, image_id])
            found += [_annotation(rng, box, next(numbers), image_id) for box in boxes(rng)]
        np.random.default_rng(start).shuffle(found)
        yield from found


def _box_lines(num_images: int) -> Iterator[str]:
    """Yields the lines of a CSV file of boxes; those of different images repeat."""
    yield _BOX_COLUMNS + '\n'
    rng = np.random.default_rng(0)
    ends = []
    for _ in range(10_000):
        low, high = np.sort(rng.uniform(0, 1, (2, 2)), axis=0)
        clicks = ','.join(f'{value:.6f}' for value in rng.uniform(0, 1, 8))
        ends.append(
            f',xclick,/m/{rng.integers(600):05d},1,{low[0]:.6f},{high[0]:.6f},{low[1]:.6f},'
            f'{high[1]:.6f},{rng.integers(2)},{rng.integers(2)},0,0,0,{clicks}\n'
        )
    counts = rng.poisson(_BOXES_PER_IMAGE, num_images).tolist()
    following = itertools.cycle(ends)
    for number, count in enumerate(counts, start=1):
        for _ in range(count):
            yield f'{number}{next(following)}'


def photo(rng: np.random.Generator) -> bytes:
    """Returns a JPEG file: clouds of all sizes with a little noise, as smooth as a photo."""
    pixels = np.full((HEIGHT, WIDTH, 3), 128.0, np.float32)
    for cells in (2, 5, 12, 30, 80, 200):
        coarse = rng.normal(0, 40 / cells**0.3, (cells, cells, 3)) + 128
        layer = Image.fromarray(coarse.clip(0, 255).astype(np.uint8))
        pixels += np.asarray(layer.resize((WIDTH, HEIGHT), Image.BICUBIC), np.float32) - 128
    pixels += rng.normal(0, 8, (HEIGHT, WIDTH, 1))
    file = io.BytesIO()
    image = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
    image.save(file, 'JPEG', quality=_QUALITY, subsampling='4:2:0')
    return file.getvalue()


def document(num_images: int, seed: int = 0) -> dict:
    """Returns the annotation file of as many images."""
    images, annotations = [], []
    for image_id in range(1, num_images + 1):
        name = f'{image_id}.jpg'
        images.append({'id': image_id, 'file_name': name, 'height': HEIGHT, 'width': WIDTH})
        rng = np.random.default_rng([seed, image_id])
        for box in boxes(rng):
            annotations.append(_annotation(rng, box, len(annotations) + 1, image_id))
    return {'images': images, 'annotations': annotations, 'categories': categories()}


def categories() -> list[dict]:
    """Returns the categories of the annotation file."""
    return [{'id': number, 'name': f'class {number}'} for number in range(1, NUM_CLASSES + 1)]


def boxes(rng: np.random.Generator) -> np.ndarray:
    """Returns the boxes of an image, normalized [n, 4]; half of their sides are below 0.15."""
    count = rng.poisson(OBJECTS_PER_IMAGE)
    sides = np.exp(rng.normal(-1.9, 0.9, (count, 2))).clip(0.015, 0.95)
    corners = rng.uniform(0, 1 - sides)
    return np.concatenate([corners, corners + sides], axis=1)


def _annotation(rng: np.random.Generator, box: np.ndarray, number: int, image_id: int) -> dict:
    """Returns an object whose outline is an ellipse."""
    ymin, xmin, ymax, xmax = box * [HEIGHT, WIDTH, HEIGHT, WIDTH]
    angles = np.linspace(0, 2 * np.pi, _CORNERS, endpoint=False)
    radii = np.array([xmax - xmin, ymax - ymin]) / 2
    outline = [(xmin + xmax) / 2, (ymin + ymax) / 2] + radii * np.stack(
        [np.cos(angles), np.sin(angles)], axis=1
    )
    return {
        'id': number,
        'image_id': image_id,
        'category_id': int(rng.integers(1, NUM_CLASSES + 1)),
        'bbox': np.round([xmin, ymin, xmax - xmin, ymax - ymin], 2).tolist(),
        'area': round(float(np.pi * radii.prod()), 2),
        'iscrowd': int(rng.random() < _CROWDS),
        'segmentation': [outline.round(2).ravel().tolist()],
    }
