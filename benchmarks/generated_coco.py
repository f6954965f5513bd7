"""A generated data set like COCO: sizes of files, numbers and sizes of objects, polygons."""

import io
import json
import pathlib

import numpy as np
from PIL import Image

HEIGHT, WIDTH = 480, 640
NUM_CLASSES = 80
OBJECTS_PER_IMAGE = 7.3
_CROWDS = 0.01
_CORNERS = 24
# With this the files have about 155 kB, as COCO's.
_QUALITY = 93


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
