"""Generated street scenes with objects, masks and keypoints, to draw augmentation steps on."""

import functools

import numpy as np
import tensorflow as tf
from PIL import Image, ImageDraw, ImageFilter

from object_detection.core.fields import InputFields as F
from object_detection.data import instance_masks
from object_detection.data.objects import Example

HEIGHT, WIDTH = 108, 144
CLASSES = ('house', 'tree', 'car', 'person')
# Keypoints of an object: top, left, right, lower left, lower right; classes without some have NaN.
NUM_KEYPOINTS = 5
_ABSENT = (float('nan'), float('nan'))
# Scenes are drawn enlarged, which makes their edges smooth.
_ENLARGEMENT = 4
_CROP_SIZE = 56
_HORIZON = 0.52

Color = tuple[int, int, int]
Points = list[tuple[float, float]]


class _Scene:
    """An image that objects are drawn on, the nearest last.

    Coordinates are (x, y) in pixels of the small image.
    """

    def __init__(self, rng: np.random.Generator):
        self.rng = rng
        self.image = Image.fromarray(_landscape(rng))
        self.masks: list[np.ndarray] = []
        self.class_ids: list[int] = []
        self.keypoints: list[np.ndarray] = []

    def polygon(self, corners: Points, color: Color, texture: float = 8.0) -> Image.Image:
        """Fills a polygon, whose colour varies by `texture`, and returns its mask."""
        return self._fill('polygon', corners, color, texture)

    def ellipse(self, x: float, y: float, radii: tuple[float, float], color: Color) -> Image.Image:
        """Fills an ellipse around (x, y), and returns its mask."""
        corners = [(x - radii[0], y - radii[1]), (x + radii[0], y + radii[1])]
        return self._fill('ellipse', corners, color, 14.0)

    def _fill(self, shape: str, points: Points, color: Color, texture: float) -> Image.Image:
        mask = Image.new('L', self.image.size)
        large = [(x * _ENLARGEMENT, y * _ENLARGEMENT) for x, y in points]
        getattr(ImageDraw.Draw(mask), shape)(large, fill=255)
        noise = _clouds(self.rng, mask.height, mask.width, 24) - 0.5
        fine = self.rng.standard_normal((mask.height, mask.width)) * 0.4
        shade = np.linspace(12, -12, mask.height)[:, np.newaxis]
        values = np.array(color) + (2 * texture * (noise + fine) + shade)[..., np.newaxis]
        paint = Image.fromarray(np.clip(values, 0, 255).astype(np.uint8))
        self.image.paste(paint, mask=mask)
        return mask

    def add(self, name: str, parts: list[Image.Image], keypoints: Points) -> None:
        """Adds an object of some masks, which hides what lies behind it."""
        union = np.max([np.asarray(part) for part in parts], axis=0)
        small = Image.fromarray(union).resize((WIDTH, HEIGHT), Image.Resampling.BOX)
        mask = np.asarray(small) > 127
        self.masks = [other & ~mask for other in self.masks]
        self.masks.append(mask)
        self.class_ids.append(CLASSES.index(name) + 1)
        points = np.full((NUM_KEYPOINTS, 2), np.nan, np.float32)
        points[: len(keypoints)] = [(y / HEIGHT, x / WIDTH) for x, y in keypoints]
        self.keypoints.append(points)

    def house(self, x: float, y: float, size: float) -> None:
        """Draws a house whose ground line begins at (x, y), of the given width."""
        wall = (214, 190, 150) if self.rng.random() < 0.5 else (190, 205, 214)
        top = y - 0.62 * size
        corners = [(x, y), (x, top), (x + size, top), (x + size, y)]
        ridge = (x + size / 2, top - 0.4 * size)
        roof = [(x - 0.08 * size, top), ridge, (x + 1.08 * size, top)]
        parts = [self.polygon(corners, wall), self.polygon(roof, (166, 66, 48), 14.0)]
        for left in (0.14, 0.6):
            window = [(x + (left + dx) * size, top + dy * size) for dx, dy in _square(0.24, 0.22)]
            self.polygon(window, (66, 92, 120))
        door = [(x + (0.43 + dx) * size, y - (0.3 - dy) * size) for dx, dy in _square(0.14, 0.3)]
        self.polygon(door, (104, 66, 44))
        self.add('house', parts, [ridge, corners[1], corners[2], corners[0], corners[3]])

    def tree(self, x: float, y: float, size: float) -> None:
        """Draws a tree that stands at (x, y), of the given height."""
        trunk = [(x - 0.06 * size, y), (x - 0.04 * size, y - 0.5 * size)]
        trunk += [(x + 0.04 * size, y - 0.5 * size), (x + 0.06 * size, y)]
        parts = [self.polygon(trunk, (98, 70, 46), 12.0)]
        for dx, dy, radius in ((-0.16, 0.5, 0.2), (0.16, 0.52, 0.2), (0.0, 0.74, 0.24)):
            green = (52, 106, 50) if dx else (70, 130, 58)
            radii = (radius * size, 0.9 * radius * size)
            parts.append(self.ellipse(x + dx * size, y - dy * size, radii, green))
        self.add('tree', parts, [(x, y - 0.96 * size)])

    def car(self, x: float, y: float, size: float) -> None:
        """Draws a car whose wheels stand at height y, from x on, of the given length."""
        color = [(196, 40, 44), (236, 184, 36), (40, 88, 176)][self.rng.integers(3)]
        body = [(0, 0.1), (0, 0.28), (0.2, 0.32), (0.32, 0.5), (0.7, 0.5), (0.82, 0.32)]
        body += [(1, 0.26), (1, 0.1)]
        glass = [(0.26, 0.32), (0.35, 0.46), (0.67, 0.46), (0.75, 0.32)]
        parts = [self.polygon([(x + dx * size, y - dy * size) for dx, dy in body], color)]
        self.polygon([(x + dx * size, y - dy * size) for dx, dy in glass], (150, 190, 210))
        wheels = [(x + dx * size, y - 0.1 * size) for dx in (0.22, 0.78)]
        for wheel in wheels:
            parts.append(self.ellipse(*wheel, (0.1 * size, 0.1 * size), (30, 30, 34)))
            self.ellipse(*wheel, (0.045 * size, 0.045 * size), (168, 168, 172))
        self.add('car', parts, [_ABSENT, _ABSENT, _ABSENT, *wheels])

    def person(self, x: float, y: float, size: float) -> None:
        """Draws a person who stands at (x, y), of the given height."""
        shirt = [(214, 92, 40), (60, 130, 190), (150, 60, 140)][self.rng.integers(3)]
        reach = self.rng.uniform(0.2, 0.3, 2)
        hands = [(x - reach[0] * size, y - 0.55 * size), (x + reach[1] * size, y - 0.5 * size)]
        feet = [(x - 0.13 * size, y), (x + 0.13 * size, y)]
        head = (x, y - 0.89 * size)
        parts = [self._limb((x, y - 0.46 * size), foot, size, (50, 56, 84)) for foot in feet]
        parts += [self._limb((x, y - 0.74 * size), hand, size, shirt) for hand in hands]
        body = [(x + dx * size, y - dy * size) for dx, dy in _square(0.24, 0.36, -0.12, 0.44)]
        parts.append(self.polygon(body, shirt))
        parts.append(self.ellipse(*head, (0.1 * size, 0.11 * size), (226, 178, 146)))
        self.add('person', parts, [head, *hands, *feet])

    def _limb(
        self, start: tuple[float, float], end: tuple[float, float], size: float, color: Color
    ) -> Image.Image:
        across = np.array([start[1] - end[1], end[0] - start[0]])
        across *= 0.05 * size / np.linalg.norm(across)
        ends = [np.add(start, across), np.subtract(start, across)]
        ends += [np.subtract(end, across), np.add(end, across)]
        return self.polygon([tuple(point.tolist()) for point in ends], color)

    def example(self, name: str) -> Example:
        """Returns the example that augmentation steps take, with masks as crops."""
        small = self.image.resize((WIDTH, HEIGHT), Image.Resampling.BOX)
        image = np.asarray(small.filter(ImageFilter.UnsharpMask(1, 60)))
        masks = np.stack(self.masks)
        boxes = np.array([_box(mask) for mask in masks], np.float32)
        keypoints = np.stack(self.keypoints)
        count = len(boxes)
        classes = np.array(self.class_ids)
        return {
            F.IMAGE: tf.constant(image),
            F.SOURCE_ID: tf.constant(name),
            F.GROUNDTRUTH_BOXES: tf.constant(boxes),
            F.GROUNDTRUTH_CLASSES: tf.one_hot(classes - 1, len(CLASSES)),
            F.GROUNDTRUTH_WEIGHTS: tf.ones([count]),
            F.GROUNDTRUTH_IS_CROWD: tf.zeros([count], tf.bool),
            F.GROUNDTRUTH_AREA: tf.constant(masks.sum((1, 2)).astype(np.float32)),
            F.GROUNDTRUTH_KEYPOINTS: tf.constant(keypoints),
            F.GROUNDTRUTH_KEYPOINT_VISIBILITIES: tf.constant(np.isfinite(keypoints).all(-1)),
            F.GROUNDTRUTH_INSTANCE_MASK_CROPS: instance_masks.crop(
                tf.constant(masks.astype(np.uint8)), tf.constant(boxes), _CROP_SIZE
            ),
        }


@functools.cache
def example(number: int) -> Example:
    """Draws scene `number`, always the same: what `ExampleTransform.prepare` returns of it.

    The image is uint8 [HEIGHT, WIDTH, 3]; `CLASSES` are the classes.
    """
    rng = np.random.default_rng(number)
    scene = _Scene(rng)
    side = number % 2
    scene.tree(rng.uniform(62, 74), 70, 34)
    scene.house(86 if side == 0 else 14, rng.uniform(72, 76), rng.uniform(34, 42))
    scene.tree(24 if side == 0 else 122, 80, rng.uniform(46, 56))
    scene.person(rng.uniform(52, 66), 88, 30)
    scene.car(80 if side == 0 else 12, 99, rng.uniform(44, 52))
    if number % 3 == 0:
        scene.person(rng.uniform(34, 42), 97, 36)
    return scene.example(f'scene {number}')


def _square(
    width: float, height: float, left: float = 0.0, top: float = 0.0
) -> list[tuple[float, float]]:
    right, bottom = left + width, top + height
    return [(left, top), (left, bottom), (right, bottom), (right, top)]


def _box(mask: np.ndarray) -> list[float]:
    """Returns the normalized box of the pixels of a mask."""
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    top, left = rows[0] / HEIGHT, columns[0] / WIDTH
    return [top, left, (rows[-1] + 1) / HEIGHT, (columns[-1] + 1) / WIDTH]


def _landscape(rng: np.random.Generator) -> np.ndarray:
    """Returns sky, hills, grass and a road: uint8, `_ENLARGEMENT` times the size of a scene."""
    height, width = HEIGHT * _ENLARGEMENT, WIDTH * _ENLARGEMENT
    y = np.linspace(0, 1, height)[:, np.newaxis, np.newaxis]
    zenith, low = [((58, 118, 196), (206, 224, 236)), ((92, 110, 172), (246, 204, 158))][
        rng.integers(2)
    ]
    image = np.array(zenith) + (np.array(low) - zenith) * np.minimum(1, y / _HORIZON)
    image = np.repeat(image, width, axis=1)
    cloud = np.clip(2.2 * _clouds(rng, height, width, 9) - 1.2, 0, 1)[..., np.newaxis]
    image += (np.array([250.0, 250.0, 250.0]) - image) * cloud * (y < _HORIZON)
    x = np.linspace(0, 1, width)[np.newaxis, :, np.newaxis]
    for base, color in ((_HORIZON - 0.07, (96, 128, 132)), (_HORIZON, (86, 126, 66))):
        phase = rng.uniform(0, 6, 2)
        ridge = base + 0.035 * np.sin(5 * x + phase[0]) + 0.02 * np.sin(13 * x + phase[1])
        texture = 46 * (_clouds(rng, height, width, 30) - 0.5)[..., np.newaxis]
        image = np.where(y > ridge, np.array(color) + texture + 40 * (y - ridge), image)
    grain = rng.standard_normal((height // 2, width // 2)).repeat(2, 0).repeat(2, 1)
    is_road = (y > 0.84) & (y < 0.98)
    image = np.where(is_road, 96 + 16 * grain[..., np.newaxis], image)
    is_line = (np.abs(y - 0.91) < 0.008) & (np.sin(26 * x + 1) > 0)
    image = np.where(is_line, 226, image)
    image += 10 * grain[..., np.newaxis] * (y > _HORIZON)
    return np.clip(image, 0, 255).astype(np.uint8)


def _clouds(rng: np.random.Generator, height: int, width: int, cells: int) -> np.ndarray:
    """Returns smooth noise, float [height, width], 0..1, with about `cells` spots in a row."""
    coarse = Image.fromarray(rng.random((max(2, cells * 3 // 4), cells), np.float32))
    return np.clip(np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC)), 0, 1)
