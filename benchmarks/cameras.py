"""Generated photos of camera traps, whose species cannot always be known from one photo alone.

Each camera watches one place, where animals of one species come by. By day a photo shows the colour
of the coat, in which alone the species differ. By night the photos are grey, and a coat is as
bright as chance has it: the species follows from other photos of the same camera only. The
annotations are those of COCO Camera Traps.
"""

import datetime
import json
import math
import pathlib
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

SIZE = 128
SPECIES = {
    'red': (200, 60, 50),
    'green': (60, 160, 70),
    'blue': (60, 90, 200),
    'gold': (210, 170, 50),
}
_START = datetime.datetime(2026, 1, 1)


class Camera(NamedTuple):
    """A place with its species.

    Attributes:
      name: of the place.
      species: key of `SPECIES`.
      background: uint8 [SIZE, SIZE, 3].
    """

    name: str
    species: str
    background: np.ndarray


def write(
    folder: pathlib.Path, *, num_cameras: int, photos: int, seed: int, prefix: str = 'camera'
) -> dict[str, int]:
    """Writes `folder`/images/*.jpg and `folder`/annotations.json.

    Args:
      folder: is made.
      num_cameras: number of cameras; species take turns.
      photos: number of photos of each camera, half of them by night.
      seed: of everything.
      prefix: beginning of the cameras' names.

    Returns:
      The numbers of 'images', of 'night' photos among them, and of 'objects'.
    """
    rng = np.random.default_rng(seed)
    (folder / 'images').mkdir(parents=True)
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for number in range(num_cameras):
        camera = _camera(rng, f'{prefix}_{number:04d}', list(SPECIES)[number % len(SPECIES)])
        is_night = rng.permutation(np.arange(photos) % 2).astype(bool)
        for index in range(photos):
            picture, boxes = _photo(rng, camera, bool(is_night[index]))
            name = f'{camera.name}_{index:04d}'
            picture.save(folder / 'images' / f'{name}.jpg', quality=92)
            images.append(_image_entry(name, camera, index, photos, bool(is_night[index])))
            annotations += [
                {
                    'id': f'{name}_{row}',
                    'image_id': name,
                    'category_id': list(SPECIES).index(camera.species) + 1,
                    'bbox': box,
                }
                for row, box in enumerate(boxes)
            ]
    categories = [{'id': row + 1, 'name': name} for row, name in enumerate(SPECIES)]
    content = {'images': images, 'annotations': annotations, 'categories': categories}
    (folder / 'annotations.json').write_text(json.dumps(content))
    return {
        'images': len(images),
        'night': sum(image['is_night'] for image in images),
        'objects': len(annotations),
    }


def write_label_map(path: pathlib.Path) -> None:
    """Writes the label map of the species."""
    items = [f"item {{ id: {row + 1} name: '{name}' }}\n" for row, name in enumerate(SPECIES)]
    path.write_text(''.join(items))


def _image_entry(
    name: str, camera: Camera, index: int, photos: int, is_night: bool
) -> dict[str, Any]:
    # A day of 24 hours for each pair of photos would say too much: the hour is drawn of all.
    time = _START + datetime.timedelta(days=index, minutes=(37 * index) % 1440)
    return {
        'id': name,
        'file_name': f'{name}.jpg',
        'height': SIZE,
        'width': SIZE,
        'location': camera.name,
        'seq_id': f'{camera.name}_all',
        'seq_num_frames': photos,
        'frame_num': index,
        'date_captured': time.strftime('%Y-%m-%d %H:%M:%S'),
        'is_night': is_night,
    }


def _camera(rng: np.random.Generator, name: str, species: str) -> Camera:
    coarse = rng.integers(60, 190, (6, 6, 3)).astype(np.uint8)
    # Grey-green grounds of low contrast, on which every coat can be seen.
    ground = np.clip(coarse * 0.35 + rng.integers(50, 110, 3), 0, 255).astype(np.uint8)
    smooth = Image.fromarray(ground).resize((SIZE, SIZE), Image.Resampling.BICUBIC)
    return Camera(name, species, np.asarray(smooth))


def _photo(
    rng: np.random.Generator, camera: Camera, is_night: bool
) -> tuple[Image.Image, list[list[float]]]:
    picture = Image.fromarray(camera.background)
    boxes = []
    for corner in rng.permutation(4)[: rng.integers(1, 3)]:
        color = np.array(SPECIES[camera.species]) * rng.uniform(0.75, 1.15)
        if is_night:
            # The brightness is random and does not depend on the species.
            color = np.full(3, rng.uniform(150, 250))
        center = np.array([corner % 2, corner // 2]) * SIZE / 2 + rng.uniform(22, 42, 2)
        length = rng.uniform(10, 19)
        boxes.append(
            _draw_animal(picture, rng, center, length, tuple(color.clip(0, 255).astype(int)))
        )
    pixels = np.asarray(picture.filter(ImageFilter.GaussianBlur(0.6))).astype(np.float32)
    if is_night:
        pixels = np.repeat(pixels.mean(axis=-1, keepdims=True) * 0.7, 3, axis=-1)
    pixels += rng.normal(0, 5, pixels.shape[:2])[..., np.newaxis]
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8)), boxes


def _draw_animal(
    picture: Image.Image,
    rng: np.random.Generator,
    center: np.ndarray,
    length: float,
    color: tuple[int, ...],
) -> list[float]:
    """Draws a body with a head, legs and a tail; returns its box as [x, y, width, height]."""
    mask = Image.new('L', picture.size)
    pencil = ImageDraw.Draw(mask)
    side, height = rng.choice([-1, 1]), length * rng.uniform(0.45, 0.65)
    x, y = center
    pencil.ellipse((x - length, y - height, x + length, y + height), fill=255)
    head, radius = (x + side * length, y - height), height * 0.6
    pencil.ellipse(
        (head[0] - radius, head[1] - radius, head[0] + radius, head[1] + radius), fill=255
    )
    for share in (-0.6, -0.3, 0.3, 0.6):
        foot = x + length * share + rng.uniform(-2, 2)
        pencil.line((x + length * share, y, foot, y + 2 * height), fill=255, width=3)
    angle = rng.uniform(-0.8, 0.8)
    tail = (x - side * length, y)
    tip = (tail[0] - side * length / 2 * math.cos(angle), y - length / 2 * math.sin(angle))
    pencil.line((*tail, *tip), fill=255, width=2)
    picture.paste(color, mask=mask)
    left, top, right, bottom = mask.getbbox()
    return [float(left), float(top), float(right - left), float(bottom - top)]
