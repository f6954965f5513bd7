"""Operations of policies: kinds of changes, each with a magnitude of 0 to 10.

Python converts a magnitude to the values of its operation as the graph is built. The graph holds
each distinct change once: operations that differ in their values alone are the same change.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from object_detection.core.example_fields import OBJECT_FIELDS
from object_detection.core.fields import InputFields as F
from object_detection.data.augmentation.choice import draw_below
from object_detection.data.augmentation.policies import enhancement
from object_detection.data.augmentation.warp import affine, warp, warp_image
from object_detection.data.objects import Example

MAX_MAGNITUDE = 10
# Of what an image does not cover, and of erased squares.
_FILL = 128.0
# Objects with a smaller share of their mapped box inside are dropped.
_MIN_OVERLAP = 0.1
# Of the probability of an operation, for each box that it changes independently.
_BOX_SHARE = 1 / 3
# Values of an operation: its own, up to five, and the probability of each box.
NUM_VALUES = 6

# (example, values float32 [NUM_VALUES], seed) -> example, with images float32 of whole numbers.
Change = Callable[[Example, tf.Tensor, tf.Tensor], Example]
# The same of an image, float32 [H, W, 3].
ChangeImage = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]


@dataclasses.dataclass(frozen=True)
class Operation:
    """A kind of change.

    Attributes:
      change: the change.
      values: returns its own values of a magnitude.
      is_in_boxes: whether it changes the pixels in each box independently.
    """

    change: Change
    values: Callable[[float], Sequence[float]] = lambda magnitude: ()
    is_in_boxes: bool = False


class Layers(NamedTuple):
    """Changes of an image, one after another.

    Attributes:
      operations: int32 [L], indices of operations; one above the last is none.
      values: float32 [L, NUM_VALUES].
      seeds: integer [L, 2].
    """

    operations: tf.Tensor
    values: tf.Tensor
    seeds: tf.Tensor


def _motion(size: tf.Tensor, values: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Returns a map either way: a rotation around the centre, a shear, or a translation.

    Args:
      size: int32 [2], height and width.
      values: angle in radians; shear along y and x; translation along y and x in pixels.
      seed: integer [2].
    """
    is_back = tf.random.stateless_uniform([], seed) < 0.5
    angle, shear, shift = tf.split(tf.where(is_back, -values[:5], values[:5]), [1, 2, 2])
    # The first corner stays in its place in a shear.
    shift += shear * (0.5 * tf.cast(size, tf.float32)[::-1])
    return affine(size, angle=angle[0], shear=shear, shift=shift)


def _warp(example: Example, values: tf.Tensor, seed: tf.Tensor) -> Example:
    matrix = _motion(tf.shape(example[F.IMAGE])[:2], values, seed)
    warped = warp(example, matrix, min_overlap=_MIN_OVERLAP, color=(_FILL,))
    return {**warped, F.IMAGE: tf.round(warped[F.IMAGE])}


def _warp_image(image: tf.Tensor, values: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    matrix = _motion(tf.shape(image)[:2], values, seed)
    return tf.round(warp_image(image, matrix, color=(_FILL,)))


def _flip(image: tf.Tensor, values: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    del values, seed
    return image[:, ::-1]


def _cutout(image: tf.Tensor, values: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Fills a square around a random pixel; the value is half of its side, in pixels."""
    size = tf.shape(image)[:2]
    half_sides = tf.cast(tf.repeat(values[:1], 2), tf.int32)
    return _fill_around(image, _draw_pixel(tf.zeros_like(size), size, seed), half_sides)


def _cutout_of_box(example: Example, values: tf.Tensor, seed: tf.Tensor) -> Example:
    """Fills a rectangle around a random pixel of a random box; the value is its share of sides."""
    of_box, of_pixel = tf.unstack(tf.random.split(seed))
    image = example[F.IMAGE]
    start, end = _pixels(example)
    count = tf.shape(start)[0]
    # Without any box, the padding: no pixel.
    row = draw_below(0, count, of_box)
    start, end = (tf.pad(each, [[0, 1], [0, 0]])[row] for each in (start, end))
    half_sides = tf.cast(values[0] * 0.5 * tf.cast(end - start, tf.float32), tf.int32)
    filled = _fill_around(image, _draw_pixel(start, end, of_pixel), half_sides)
    return {**example, F.IMAGE: filled}


def _draw_pixel(start: tf.Tensor, end: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Draws a row and a column, int32 [2], from `start` on and below `end`."""
    number = tf.random.stateless_uniform([2], seed)
    place = tf.cast(number * tf.cast(end - start, tf.float32), tf.int32)
    return tf.minimum(start + place, end - 1)


def _fill_around(image: tf.Tensor, center: tf.Tensor, half_sides: tf.Tensor) -> tf.Tensor:
    start = tf.maximum(center - half_sides, 0)
    end = tf.maximum(center + half_sides, start)
    return _change_within(image, start, end, lambda part: tf.fill(tf.shape(part), _FILL))


def _change_within(
    image: tf.Tensor, start: tf.Tensor, end: tf.Tensor, change: Callable[[tf.Tensor], tf.Tensor]
) -> tf.Tensor:
    """Changes the pixels from a row and column on, int32 [2], to those before another one."""
    (top, left), (bottom, right) = tf.unstack(start), tf.unstack(end)
    rows = image[top:bottom]
    rows = tf.concat([rows[:, :left], change(rows[:, left:right]), rows[:, right:]], axis=1)
    joined = tf.concat([image[:top], rows, image[bottom:]], axis=0)
    return tf.ensure_shape(joined, image.shape)


def _pixels(example: Example) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the first rows and columns of all boxes, and their ends: int32 [n, 2]."""
    sides = tf.tile(tf.cast(tf.shape(example[F.IMAGE])[:2], tf.float32), [2])
    boxes = tf.clip_by_value(example[F.GROUNDTRUTH_BOXES], 0.0, 1.0)
    pixels = tf.cast(tf.round(boxes * sides), tf.int32)
    return pixels[:, :2], pixels[:, 2:]


def _of_image(change: ChangeImage) -> Change:
    """Returns the change of an example whose image alone changes."""

    def change_example(example: Example, values: tf.Tensor, seed: tf.Tensor) -> Example:
        return {**example, F.IMAGE: change(example[F.IMAGE], values, seed)}

    return change_example


def _in_boxes(change: ChangeImage) -> Change:
    """Returns the change of what is in each box, independently; the boxes stay."""

    def change_example(example: Example, values: tf.Tensor, seed: tf.Tensor) -> Example:
        of_choice, of_changes = tf.unstack(tf.random.split(seed))
        start, end = _pixels(example)
        numbers = tf.random.stateless_uniform(tf.shape(start)[:1], of_choice)
        is_chosen = (numbers < values[-1]) & tf.reduce_all(end > start, axis=1)

        def change_box(image: tf.Tensor, row: tf.Tensor) -> tf.Tensor:
            seed = tf.random.fold_in(of_changes, row)
            return _change_within(
                image, start[row], end[row], lambda part: change(part, values, seed)
            )

        chosen = tf.cast(tf.where(is_chosen)[:, 0], tf.int32)
        return {**example, F.IMAGE: tf.foldl(change_box, chosen, example[F.IMAGE])}

    return change_example


def _enhance(change: Callable[..., tf.Tensor], has_value: bool = True) -> ChangeImage:
    """Returns a function of `enhancement` as a change of an image."""

    def change_image(image: tf.Tensor, values: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        del seed
        return change(image, values[0]) if has_value else change(image)

    return change_image


_equalize = _enhance(enhancement.equalize, has_value=False)
_solarize = _enhance(enhancement.solarize)
_warp_boxes = _in_boxes(_warp_image)


def _factor(magnitude: float) -> tuple[float]:
    return (0.1 + 1.8 * magnitude / MAX_MAGNITUDE,)


def _threshold(magnitude: float) -> tuple[float]:
    return (int(256 * magnitude / MAX_MAGNITUDE),)


def _step(magnitude: float) -> tuple[float]:
    """Returns the step of `posterize`; at least one bit is left, as by the published shifts."""
    return (2 ** (8 - max(int(4 * magnitude / MAX_MAGNITUDE), 1)),)


def _angle(magnitude: float) -> tuple[float]:
    return (math.radians(30 * magnitude / MAX_MAGNITUDE),)


def _scaled(number: float, index: int = 0) -> Callable[[float], Sequence[float]]:
    """Returns a function of a magnitude whose value at `index` reaches a number."""
    return lambda magnitude: (*[0.0] * index, number * magnitude / MAX_MAGNITUDE)


def _whole(number: float) -> Callable[[float], Sequence[float]]:
    return lambda magnitude: (int(number * magnitude / MAX_MAGNITUDE),)


# Indices of the values of `_motion`.
_SHEAR_Y, _SHEAR_X, _SHIFT_Y, _SHIFT_X = range(1, 5)

_BoxOperation = functools.partial(Operation, is_in_boxes=True)
OPERATIONS = {
    'AutoContrast': Operation(_of_image(_enhance(enhancement.stretch_contrast, has_value=False))),
    'Equalize': Operation(_of_image(_equalize)),
    'Posterize': Operation(_of_image(_enhance(enhancement.posterize)), _step),
    'Solarize': Operation(_of_image(_solarize), _threshold),
    'SolarizeAdd': Operation(_of_image(_enhance(enhancement.solarize_add)), _whole(110)),
    'Color': Operation(_of_image(_enhance(enhancement.change_color)), _factor),
    'Contrast': Operation(_of_image(_enhance(enhancement.change_contrast)), _factor),
    'Brightness': Operation(_of_image(_enhance(enhancement.change_brightness)), _factor),
    'Sharpness': Operation(_of_image(_enhance(enhancement.change_sharpness)), _factor),
    'Cutout': Operation(_of_image(_cutout), _whole(100)),
    'BBox_Cutout': Operation(_cutout_of_box, _scaled(0.75)),
    'Rotate_BBox': Operation(_warp, _angle),
    'TranslateX_BBox': Operation(_warp, _scaled(250, _SHIFT_X)),
    'TranslateY_BBox': Operation(_warp, _scaled(250, _SHIFT_Y)),
    'ShearX_BBox': Operation(_warp, _scaled(0.3, _SHEAR_X)),
    'ShearY_BBox': Operation(_warp, _scaled(0.3, _SHEAR_Y)),
    'Rotate_Only_BBoxes': _BoxOperation(_warp_boxes, _angle),
    'ShearX_Only_BBoxes': _BoxOperation(_warp_boxes, _scaled(0.3, _SHEAR_X)),
    'ShearY_Only_BBoxes': _BoxOperation(_warp_boxes, _scaled(0.3, _SHEAR_Y)),
    'TranslateX_Only_BBoxes': _BoxOperation(_warp_boxes, _scaled(120, _SHIFT_X)),
    'TranslateY_Only_BBoxes': _BoxOperation(_warp_boxes, _scaled(120, _SHIFT_Y)),
    'Flip_Only_BBoxes': _BoxOperation(_in_boxes(_flip)),
    'Solarize_Only_BBoxes': _BoxOperation(_in_boxes(_solarize), _threshold),
    'Equalize_Only_BBoxes': _BoxOperation(_in_boxes(_equalize)),
    'Cutout_Only_BBoxes': _BoxOperation(_in_boxes(_cutout), _whole(50)),
}


class Choice(NamedTuple):
    """An operation of `OPERATIONS` with its probability and magnitude."""

    name: str
    probability: float
    magnitude: float


def values_of(choice: Choice) -> np.ndarray:
    """Returns the values of an operation: float32 [NUM_VALUES]."""
    values = np.zeros(NUM_VALUES, np.float32)
    own = OPERATIONS[choice.name].values(choice.magnitude)
    values[: len(own)] = own
    values[-1] = choice.probability * _BOX_SHARE
    return values


def apply(example: Example, names: Sequence[str], layers: Layers) -> Example:
    """Applies operations one after another.

    Args:
      example: as for `warp.warp`, with an image uint8 or float32 [H, W, 3], 0..255.
      names: names of the operations that `layers.operations` refers to.
      layers: the operations and their values.

    Returns:
      The changed example; its image, of the same dtype, has whole numbers.
    """
    # Several operations may be the same change with other values.
    changes = list(dict.fromkeys(OPERATIONS[name].change for name in names))
    branch = [changes.index(OPERATIONS[name].change) for name in names] + [len(changes)]
    image = example[F.IMAGE]
    changed = {
        name: value for name, value in example.items() if name in OBJECT_FIELDS or name == F.IMAGE
    }
    changed[F.IMAGE] = tf.round(tf.cast(image, tf.float32))
    # Operations drop objects, and images keep their size.
    shapes = {name: tf.TensorShape([None, *each.shape[1:]]) for name, each in changed.items()}
    shapes[F.IMAGE] = image.shape

    def apply_layer(layer: tf.Tensor, changed: Example) -> tuple[tf.Tensor, Example]:
        operation, values, seed = (each[layer] for each in layers)
        branches = [functools.partial(change, changed, values, seed) for change in changes]
        drawn = tf.gather(branch, operation)
        return layer + 1, tf.switch_case(drawn, [*branches, lambda: dict(changed)])

    _, changed = tf.while_loop(
        lambda layer, _: layer < tf.size(layers.operations),
        apply_layer,
        (0, changed),
        shape_invariants=(tf.TensorShape([]), shapes),
    )
    return {**example, **changed, F.IMAGE: tf.cast(changed[F.IMAGE], image.dtype)}
