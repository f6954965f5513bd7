"""Random changes of the arrangement of objects: moved box corners, repeated images."""

import dataclasses

import tensorflow as tf

from object_detection.core.boxes import ANY_WAY, JITTER_MODES, move_sides
from object_detection.core.example_fields import Geometry, names_of
from object_detection.core.fields import InputFields as F
from object_detection.data import instance_masks, objects
from object_detection.data.objects import Example
from object_detection.errors import UserError


@dataclasses.dataclass(frozen=True)
class RandomJitterBoxes:
    """Moves the sides of boxes; the image and what it shows stay.

    Boxes are clipped to the image. Objects whose box has no area left are dropped.

    Attributes:
      ratio: twice the greatest distance, as a share of the box's height or width.
      jitter_mode: the direction, and which sides of a box move by the same share: DEFAULT, EXPAND
        and SHRINK none, the SYMMETRIC ones opposite sides, the SYMMETRIC_XY ones all.

    Raises:
      ValueError: if the mode is unknown.
    """

    ratio: float = 0.05
    jitter_mode: str = ANY_WAY

    def __post_init__(self):
        if self.jitter_mode not in JITTER_MODES:
            raise UserError(
                f'random_jitter_boxes.jitter_mode: expected one of {sorted(JITTER_MODES)}. '
                f'Received: {self.jitter_mode!r}.'
            )

    def __call__(self, example: Example, seed: tf.Tensor) -> Example:
        """Moves the boxes of `example` by numbers that depend only on `seed`, integer [2]."""
        boxes = example[F.GROUNDTRUTH_BOXES]
        # Drawn within these bounds: graphs may multiply by a constant factor in another order, and
        # would not round as alone.
        greatest = 0.5 * self.ratio
        shares = tf.random.stateless_uniform(tf.shape(boxes), seed, -greatest, greatest)
        return self.change(example, shares)

    def change(self, example: Example, shares: tf.Tensor) -> Example:
        """Moves the boxes of an example by random shares of their sides.

        Args:
          example: example with boxes.
          shares: float32 [n, 4], in [-ratio / 2, ratio / 2].
        """
        boxes = example[F.GROUNDTRUTH_BOXES]
        sizes = tf.tile(boxes[:, 2:] - boxes[:, :2], [1, 2])
        moved = move_sides(boxes, shares, self.jitter_mode)
        example = {**example, F.GROUNDTRUTH_BOXES: moved}
        parts = tf.math.divide_no_nan(moved - tf.tile(boxes[:, :2], [1, 2]), sizes)
        for name in names_of(Geometry.BOX_MASK):
            if name in example:
                example[name] = instance_masks.resample(example[name], parts)
        return objects.clip_boxes(example)


@dataclasses.dataclass(frozen=True)
class RandomSelfConcatImage:
    """Repeats an image and its objects below itself, to its right, or both.

    Attributes:
      concat_vertical_probability: probability of a copy below.
      concat_horizontal_probability: probability of a copy of all this to its right.
    """

    concat_vertical_probability: float = 0.1
    concat_horizontal_probability: float = 0.1

    def __call__(self, example: Example, seed: tf.Tensor) -> Example:
        """Repeats `example`; the copies depend only on `seed`, integer [2]."""
        probabilities = [self.concat_vertical_probability, self.concat_horizontal_probability]
        return repeat(example, tf.random.stateless_uniform([2], seed) < probabilities)


def repeat(example: Example, is_repeated: tf.Tensor) -> Example:
    """Repeats an image and its objects along y and x where `is_repeated`, bool [2], is true."""
    counts = 1 + tf.cast(is_repeated, tf.int32)
    num_copies = tf.reduce_prod(counts)
    num_objects = tf.shape(example[F.GROUNDTRUTH_BOXES])[0]
    size = tf.shape(example[F.IMAGE])[:2]
    copies = objects.select(example, tf.tile(tf.range(num_objects), [num_copies]))
    copies[F.IMAGE] = tf.tile(example[F.IMAGE], tf.concat([counts, [1]], axis=0))
    # Copies are numbered downwards first.
    number = tf.repeat(tf.range(num_copies), num_objects)
    offset = tf.cast(tf.stack([number % counts[0], number // counts[0]], axis=1), tf.float32)
    scale = tf.cast(counts, tf.float32)
    for name in names_of(Geometry.BOX):
        if name in copies:
            copies[name] = (copies[name] + tf.tile(offset, [1, 2])) / tf.tile(scale, [2])
    for name in names_of(Geometry.POINTS):
        if name in copies:
            copies[name] = (copies[name] + offset[:, tf.newaxis]) / scale
    for name in names_of(Geometry.IMAGE_MASK):
        if name in copies:
            rows, columns = (tf.range(size[i] * counts[i]) // size[i] for i in range(2))
            copy = rows[:, tf.newaxis] + columns * counts[0]  # [H, W]
            masks = tf.tile(copies[name], tf.concat([[1], counts], axis=0))
            is_own = copy == number[:, tf.newaxis, tf.newaxis]
            copies[name] = tf.where(is_own, masks, tf.zeros([], masks.dtype))
    return copies
