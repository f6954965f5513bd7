"""A generated instance segmentation data set: shapes that overlap on textured backgrounds.

    python -m object_detection.dataset_tools.shapes --output DIR --num_train 1000 --num_val 150 \
        --image_size 128 --seed 0

writes

    DIR/train/000001.jpg ...    DIR/instances_train.json    (COCO format)
    DIR/val/000001.jpg ...      DIR/instances_val.json

It is made to be learned from scratch in minutes, and by nothing but the silhouette: colour, size,
texture, position and depth are drawn without looking at the class.

* 1 to 12 objects an image. An object's size, the longer side of its box before anything covers it,
  is uniform in [8, min(64, image_size / 2)] pixels; it lies wholly inside the image. Rotations are
  bounded by 20 degrees.
* Later objects cover earlier ones; annotations hold the visible part only. A place where something
  would be left less than half (or 20 pixels) visible is not taken, so nothing is unannotated.
* Segmentations follow pixel edges, so that they rasterise to exactly the visible pixels. They are
  polygons, of several parts where an object is cut; about one object in ten, and every one with
  a hole, has uncompressed RLE instead.
* Keypoints are centres, corners, and the ends of the arms of crosses, under names that tell left
  from right. One that a later object covers is annotated, but not visible.
* The same arguments give the same files. The validation images come from another random stream.

With `--num_videos` it also writes videos of moving shapes, whose tracks are known:

    DIR/videos/000001/000001.jpg ...    DIR/videos/000001.txt    (format of MOT Challenge)

Shapes move evenly, bounce off the borders and cover each other; some come later or leave earlier. A
line of the tracks, `frame,id,x,y,width,height,1,class,visibility`, has the box around the visible
part; a shape of which less than a quarter is visible has none.
"""

import json
import math
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import click
import numpy as np
from PIL import Image, ImageDraw

from object_detection.data.formats import outlines
from object_detection.errors import expected

MAX_OBJECTS = 12
SIZE_RANGE = (8, 64)
MIN_IMAGE_SIZE = 32
MIN_VISIBLE_FRACTION = 0.5
MIN_VISIBLE_PIXELS = 20
MIN_TRACKED_FRACTION = 0.25
NUM_MOVING = 8

_MAX_ROTATION = math.radians(20)
_RLE_SHARE = 0.1
_PLACEMENT_TRIES = 8
_SUPERSAMPLING = 4
_JPEG_QUALITY = 92


def _polygon(*corners: tuple[float, float]) -> np.ndarray:
    return np.array(corners, np.float64)


def _circle(num_corners: int = 48) -> np.ndarray:
    angles = np.linspace(0, 2 * np.pi, num_corners, endpoint=False)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


# Class name -> corners (x, y) around the origin; rotated, then scaled to the wanted size.
SILHOUETTES: dict[str, np.ndarray] = {
    'circle': _circle(),
    'square': _polygon((-1, -1), (1, -1), (1, 1), (-1, 1)),
    'triangle': _polygon((0, -1.1547), (1, 0.57735), (-1, 0.57735)),
    'cross': _polygon(
        *((-0.3, -1), (0.3, -1), (0.3, -0.3), (1, -0.3), (1, 0.3), (0.3, 0.3)),
        *((0.3, 1), (-0.3, 1), (-0.3, 0.3), (-1, 0.3), (-1, -0.3), (-0.3, -0.3)),
    ),
}
# Class name -> keypoints (x, y) in the frame of its silhouette.
KEYPOINTS: dict[str, dict[str, tuple[float, float]]] = {
    'circle': {'center': (0, 0)},
    'square': {
        'center': (0, 0),
        'top_left': (-1, -1),
        'top_right': (1, -1),
        'bottom_right': (1, 1),
        'bottom_left': (-1, 1),
    },
    'triangle': {
        'center': (0, 0),
        'top': (0, -1.1547),
        'bottom_right': (1, 0.57735),
        'bottom_left': (-1, 0.57735),
    },
    'cross': {'center': (0, 0), 'top': (0, -1), 'right': (1, 0), 'bottom': (0, 1), 'left': (-1, 0)},
}
# Lines between keypoints, counted from 1 as in COCO.
_SKELETONS = {
    'circle': [],
    'square': [[2, 3], [3, 4], [4, 5], [5, 2]],
    'triangle': [[2, 3], [3, 4], [4, 2]],
    'cross': [[1, 2], [1, 3], [1, 4], [1, 5]],
}
CATEGORIES = [
    {
        'id': index,
        'name': name,
        'supercategory': 'shape',
        'keypoints': list(KEYPOINTS[name]),
        'skeleton': _SKELETONS[name],
    }
    for index, name in enumerate(SILHOUETTES, start=1)
]
# COCO's visibilities: annotated, but covered; visible.
_COVERED, _VISIBLE = 1, 2


class Scene(NamedTuple):
    """One image and what is visible in it.

    Attributes:
      image: uint8 [S, S, 3], RGB.
      masks: bool [n, S, S], visible pixels; no pixel belongs to two objects.
      category_ids: int64 [n], ids of `CATEGORIES`.
      keypoints: for each object float64 [P, 3], (x, y, visibility) of the P keypoints of its class,
        in pixels.
    """

    image: np.ndarray
    masks: np.ndarray
    category_ids: np.ndarray
    keypoints: list[np.ndarray]


class MovingShape(NamedTuple):
    """A shape in one frame of a video.

    Attributes:
      track_id: its number in all frames, from 1.
      category_id: id in `CATEGORIES`.
      box: (x, y, width, height) around its visible part, in pixels.
      visibility: the share of it that nothing covers.
    """

    track_id: int
    category_id: int
    box: tuple[int, int, int, int]
    visibility: float


class _Drawn(NamedTuple):
    """A shape that has no place yet.

    Attributes:
      coverage: float32 [h, w], the share of each pixel that the shape covers, cut to the shape.
      keypoints: float64 [P, 2], (x, y) in pixels.
    """

    coverage: np.ndarray
    keypoints: np.ndarray


def write_shapes(
    output_dir: str | os.PathLike,
    *,
    num_train: int,
    num_val: int,
    image_size: int = 128,
    seed: int = 0,
    num_videos: int = 0,
    num_frames: int = 100,
) -> None:
    """Writes the data set: JPEG files and one COCO JSON a split, and videos.

    Args:
      output_dir: folder to write to; made if it is absent. Files of the same names are replaced.
      num_train: number of training images; they are numbered from 1.
      num_val: number of validation images, drawn from another random stream.
      image_size: height and width of the images in pixels, at least 32.
      seed: integer >= 0; the same seed gives the same data set.
      num_videos: number of videos, from a third random stream.
      num_frames: number of frames of each.

    Raises:
      ValueError: if a number is out of its range.
    """
    _check_arguments(
        num_train=num_train,
        num_val=num_val,
        image_size=image_size,
        seed=seed,
        num_videos=num_videos,
        num_frames=num_frames,
    )
    for stream, (split, num_images) in enumerate((('train', num_train), ('val', num_val))):
        _write_split(pathlib.Path(output_dir), split, num_images, image_size, (seed, stream))
    for number in range(1, num_videos + 1):
        rng = np.random.default_rng((seed, 2, number))
        _write_video(
            pathlib.Path(output_dir, 'videos', f'{number:06d}'), rng, image_size, num_frames
        )


def draw_scene(rng: np.random.Generator, image_size: int) -> Scene:
    """Draws one image of `image_size` x `image_size` pixels with 1 to 12 objects."""
    canvas = _background(rng, image_size)
    masks: list[np.ndarray] = []
    silhouette_areas: list[int] = []
    category_ids: list[int] = []
    keypoints: list[np.ndarray] = []
    for _ in range(rng.integers(1, MAX_OBJECTS + 1)):
        category = CATEGORIES[rng.integers(len(CATEGORIES))]
        coverage, points = _draw_silhouette(rng, category['name'], image_size)
        place = _find_place(rng, coverage >= 0.5, masks, silhouette_areas, image_size)
        if place is None:
            continue
        _paint(rng, canvas, coverage, place)
        new_mask = np.zeros((image_size, image_size), bool)
        new_mask[place] = coverage >= 0.5
        for mask in masks:
            mask &= ~new_mask
        for earlier in keypoints:
            _cover(earlier, new_mask)
        place_x_y = [place[1].start, place[0].start]
        visible = np.full((len(points), 1), _VISIBLE, np.float64)
        keypoints.append(np.concatenate([points + place_x_y, visible], axis=1))
        masks.append(new_mask)
        silhouette_areas.append(int(new_mask.sum()))
        category_ids.append(category['id'])
    image = np.clip(canvas, 0, 255).round().astype(np.uint8)
    return Scene(image, np.stack(masks), np.array(category_ids, np.int64), keypoints)


def draw_video(
    rng: np.random.Generator, image_size: int, num_frames: int
) -> Iterator[tuple[np.ndarray, list[MovingShape]]]:
    """Yields the frames of a video, uint8 [S, S, 3], with the shapes that are seen in each."""
    background = _background(rng, image_size)
    shapes = []
    for _ in range(NUM_MOVING):
        category = CATEGORIES[rng.integers(len(CATEGORIES))]
        coverage = _draw_silhouette(rng, category['name'], image_size).coverage
        colors = np.broadcast_to(background.mean((0, 1)), (*coverage.shape, 3)).copy()
        _paint(rng, colors, coverage, (slice(None), slice(None)))
        start, end = rng.uniform(-0.4, 0.4), rng.uniform(0.6, 1.4)
        life = num_frames * start, num_frames * end
        place, speed = rng.uniform(0, 1, 2), rng.uniform(-3, 3, 2)
        shapes.append((category['id'], coverage, colors, life, place, speed))
    for frame in range(num_frames):
        canvas = background.copy()
        owners = np.zeros((image_size, image_size), int)
        areas = {}
        for number, (_, coverage, colors, life, place, speed) in enumerate(shapes, start=1):
            if not life[0] <= frame < life[1]:
                continue
            # Even movement between the borders, as a wave of triangles.
            room = np.array([image_size - side for side in coverage.shape])
            moved = (place * room + speed * frame) % (2 * room)
            top, left = np.minimum(moved, 2 * room - moved).astype(int)
            window = (slice(top, top + coverage.shape[0]), slice(left, left + coverage.shape[1]))
            alpha = coverage[..., np.newaxis]
            canvas[window] = canvas[window] * (1 - alpha) + colors * alpha
            owners[window][coverage >= 0.5] = number
            areas[number] = np.count_nonzero(coverage >= 0.5)
        image = np.clip(canvas, 0, 255).round().astype(np.uint8)
        yield image, [*_seen(owners, areas, [shape[0] for shape in shapes])]


def _seen(
    owners: np.ndarray, areas: Mapping[int, int], category_ids: Sequence[int]
) -> Iterator[MovingShape]:
    """Yields the shapes of a frame of which enough is visible; `owners` has a number a pixel."""
    for number, area in areas.items():
        mask = owners == number
        visibility = np.count_nonzero(mask) / area
        if visibility < MIN_TRACKED_FRACTION:
            continue
        box = _annotation(mask, as_rle=True)['bbox']
        yield MovingShape(number, category_ids[number - 1], tuple(box), visibility)


def _write_video(
    folder: pathlib.Path, rng: np.random.Generator, image_size: int, num_frames: int
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for number, (image, shapes) in enumerate(draw_video(rng, image_size, num_frames), start=1):
        Image.fromarray(image).save(folder / f'{number:06d}.jpg', quality=_JPEG_QUALITY)
        for track_id, category_id, box, visibility in shapes:
            sides = ','.join(map(str, box))
            lines.append(f'{number},{track_id},{sides},1,{category_id},{visibility:.3f}\n')
    folder.with_suffix('.txt').write_text(''.join(lines))


def _check_arguments(**numbers: int) -> None:
    received = ', '.join(f'{name}={value}' for name, value in numbers.items())
    image_size = numbers['image_size']
    if min(value for name, value in numbers.items() if name != 'image_size') < 0:
        raise expected('shapes', 'numbers of images and a seed >= 0', received)
    if image_size < MIN_IMAGE_SIZE:
        raise expected('shapes', f'image_size of at least {MIN_IMAGE_SIZE} pixels', received)


def _write_split(
    output_dir: pathlib.Path, split: str, num_images: int, image_size: int, entropy: tuple[int, int]
) -> None:
    folder = output_dir / split
    folder.mkdir(parents=True, exist_ok=True)
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for image_id in range(1, num_images + 1):
        rng = np.random.default_rng((*entropy, image_id))
        scene = draw_scene(rng, image_size)
        file_name = f'{image_id:06d}.jpg'
        Image.fromarray(scene.image).save(folder / file_name, quality=_JPEG_QUALITY)
        images.append(
            {'id': image_id, 'file_name': file_name, 'height': image_size, 'width': image_size}
        )
        objects = zip(scene.masks, scene.category_ids.tolist(), scene.keypoints, strict=True)
        for mask, category_id, points in objects:
            annotation = _annotation(mask, as_rle=rng.random() < _RLE_SHARE)
            annotation |= {
                'keypoints': points.round(2).ravel().tolist(),
                'num_keypoints': len(points),
                'id': len(annotations) + 1,
                'image_id': image_id,
                'category_id': category_id,
            }
            annotations.append(annotation)
    document = {
        'info': {'description': f'generated shapes, {split}', 'version': '1.0'},
        'images': images,
        'annotations': annotations,
        'categories': CATEGORIES,
    }
    (output_dir / f'instances_{split}.json').write_text(json.dumps(document))


def _annotation(mask: np.ndarray, as_rle: bool) -> dict[str, Any]:
    rows = np.flatnonzero(mask.any(axis=1))
    columns = np.flatnonzero(mask.any(axis=0))
    top, left = int(rows[0]), int(columns[0])
    traced = outlines.trace(mask)
    if as_rle or traced.holes:
        segmentation = outlines.encode_rle(mask)
    else:
        segmentation = [outline.ravel().tolist() for outline in traced.outer]
    return {
        'bbox': [left, top, int(columns[-1]) + 1 - left, int(rows[-1]) + 1 - top],
        'area': int(mask.sum()),
        'iscrowd': 0,
        'segmentation': segmentation,
    }


def _cover(keypoints: np.ndarray, mask: np.ndarray) -> None:
    """Marks the keypoints [P, 3] that a mask [S, S] lies over as covered, in place."""
    last = len(mask) - 1
    columns, rows = np.clip(np.floor(keypoints[:, :2]), 0, last).astype(int).T
    keypoints[mask[rows, columns], 2] = _COVERED


def _draw_silhouette(rng: np.random.Generator, name: str, image_size: int) -> _Drawn:
    """Draws a shape of a class in a random size and rotation."""
    corners, points = SILHOUETTES[name], np.array(list(KEYPOINTS[name].values()), np.float64)
    low, high = SIZE_RANGE
    size = rng.uniform(low, min(high, image_size / 2))
    angle = rng.uniform(-_MAX_ROTATION, _MAX_ROTATION)
    rotation = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    corners, points = corners @ rotation.T, points @ rotation.T
    corner = corners.min(axis=0)
    corners, points = corners - corner, points - corner
    scale = size / corners.max()
    corners, points = corners * scale, points * scale
    width, height = np.ceil(corners.max(axis=0)).astype(int).tolist()
    drawing = Image.new('L', (width * _SUPERSAMPLING, height * _SUPERSAMPLING))
    # PIL's coordinates name pixel centres.
    fine = corners * _SUPERSAMPLING - 0.5
    ImageDraw.Draw(drawing).polygon([tuple(corner) for corner in fine.tolist()], fill=255)
    return _Drawn(np.asarray(drawing.reduce(_SUPERSAMPLING), np.float32) / 255, points)


def _find_place(
    rng: np.random.Generator,
    solid: np.ndarray,
    masks: list[np.ndarray],
    silhouette_areas: list[int],
    image_size: int,
) -> tuple[slice, slice] | None:
    """Returns a place where `solid` hides no earlier object too much; None if none was found."""
    height, width = solid.shape
    for _ in range(_PLACEMENT_TRIES):
        top = rng.integers(image_size - height + 1)
        left = rng.integers(image_size - width + 1)
        place = (slice(top, top + height), slice(left, left + width))
        if all(
            _stays_visible(mask, area, solid, place)
            for mask, area in zip(masks, silhouette_areas, strict=True)
        ):
            return place
    return None


def _stays_visible(
    mask: np.ndarray, silhouette_area: int, solid: np.ndarray, place: tuple[slice, slice]
) -> bool:
    remaining = np.count_nonzero(mask) - np.count_nonzero(mask[place] & solid)
    return remaining >= max(MIN_VISIBLE_FRACTION * silhouette_area, MIN_VISIBLE_PIXELS)


def _background(rng: np.random.Generator, image_size: int) -> np.ndarray:
    """Returns float32 [S, S, 3]: two colours mixed by two textures, with noise."""
    first, second = rng.uniform(20, 235, (2, 3))
    second = first + 0.5 * (second - first)
    mix = (_texture(rng, image_size, image_size) + _texture(rng, image_size, image_size)) / 2
    return _mixed(rng, first, second, mix)


def _paint(
    rng: np.random.Generator, canvas: np.ndarray, coverage: np.ndarray, place: tuple[slice, slice]
) -> None:
    """Paints a textured shape onto the canvas float32 [S, S, 3], in place."""
    below = canvas[place][coverage >= 0.5].mean(axis=0)
    # Of four colours the one that stands out most: a shape that cannot be seen teaches nothing.
    colors = rng.uniform(0, 255, (4, 3))
    first = colors[np.abs(colors - below).sum(axis=1).argmax()]
    second = first + rng.uniform(-50, 50, 3)
    texture = _mixed(rng, first, second, _texture(rng, *coverage.shape))
    alpha = coverage[..., np.newaxis]
    canvas[place] = canvas[place] * (1 - alpha) + texture * alpha


def _mixed(
    rng: np.random.Generator, first: np.ndarray, second: np.ndarray, mix: np.ndarray
) -> np.ndarray:
    """Returns float32 [h, w, 3]: `first` where mix is 0, `second` where it is 1, plus noise."""
    noise = rng.uniform(0, 8) * rng.standard_normal((*mix.shape, 1), np.float32)
    blended = first + (second - first) * mix[..., np.newaxis]
    return (blended + noise).astype(np.float32)


def _texture(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """Returns float32 [height, width] in [0, 1]: one of `_TEXTURES`, turned at random."""
    texture = _TEXTURES[rng.integers(len(_TEXTURES))]
    return texture(rng, height, width).astype(np.float32)


def _plain(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    return np.full((height, width), rng.random())


def _gradient(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    position = _position_along(rng, height, width)
    return position / max(float(position.max()), 1.0)


def _stripes(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    phase = _position_along(rng, height, width) * (2 * np.pi / rng.uniform(4, 16))
    return (np.sin(phase) + 1) / 2


def _checks(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    period = rng.integers(3, 9)
    offset = rng.integers(period, size=2)
    rows = (np.arange(height) + offset[0]) // period
    columns = (np.arange(width) + offset[1]) // period
    return (rows[:, np.newaxis] + columns) % 2


def _clouds(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    cells = rng.integers(3, 10)
    coarse = Image.fromarray(rng.random((cells, cells), np.float32))
    return np.asarray(coarse.resize((width, height), Image.Resampling.BILINEAR))


def _position_along(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """Returns each pixel's distance in pixels, >= 0, along a random direction."""
    angle = rng.uniform(0, 2 * np.pi)
    rows, columns = np.arange(height), np.arange(width)
    position = rows[:, np.newaxis] * math.sin(angle) + columns * math.cos(angle)
    return position - position.min()


_TEXTURES = (_plain, _gradient, _stripes, _checks, _clouds)


@click.command(help='Generates the instance segmentation data set "shapes".')
@click.option('--output', required=True, type=click.Path(file_okay=False), help='Folder.')
@click.option('--num_train', default=1000, show_default=True, help='Training images.')
@click.option('--num_val', default=150, show_default=True, help='Validation images.')
@click.option('--image_size', default=128, show_default=True, help='Height and width in pixels.')
@click.option('--seed', default=0, show_default=True, help='The same seed, the same data.')
@click.option('--num_videos', default=0, show_default=True, help='Videos with tracks.')
@click.option('--num_frames', default=100, show_default=True, help='Frames of a video.')
def main(output: str, num_train: int, num_val: int, **options: int) -> None:
    try:
        write_shapes(output, num_train=num_train, num_val=num_val, **options)
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    videos = f', {options["num_videos"]} videos' if options['num_videos'] else ''
    click.echo(f'{output}: {num_train} training and {num_val} validation images{videos}')


if __name__ == '__main__':
    main()
