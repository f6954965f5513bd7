"""Examples of noise, as a decoder gives them: for measuring speed without any data."""

import math
from collections.abc import Sequence

import tensorflow as tf

from object_detection.core.example_fields import IMAGE_FIELDS, OBJECT_FIELDS, ImageField
from object_detection.core.fields import InputFields as F
from object_detection.data.objects import Example

# Sides of the boxes, relative to those of the image.
_SMALLEST, _LARGEST = 0.05, 0.5


def examples(
    sizes: Sequence[tuple[int, int]],
    count: int,
    *,
    num_objects: int,
    num_classes: int,
    with_masks: bool,
    seed: int,
    context_size: tuple[int, int] | None = None,
) -> tf.data.Dataset:
    """Makes images of noise with elliptic objects, the same ones for the same seed.

    Args:
      sizes: (height, width) of the images, pixels.
      count: images of each size; those of one size follow each other.
      num_objects: n, in every image.
      num_classes: K, without background.
      with_masks: whether the objects have masks.
      seed: seed of everything that is random.
      context_size: number and length of the context features of each image; None makes none.

    Returns:
      Examples with what `ExampleDecoder` gives for records, except for keypoints and scores of all
      classes; masks as groundtruth_instance_masks.
    """
    parts = []
    for index, (height, width) in enumerate(sizes):

        def make(number: tf.Tensor, height: int = height, width: int = width) -> Example:
            return _example(
                number,
                (height, width),
                tf.stack([tf.cast(seed, tf.int64), number]),
                num_objects=num_objects,
                num_classes=num_classes,
                with_masks=with_masks,
                context_size=context_size,
            )

        numbers = tf.data.Dataset.range(index * count, (index + 1) * count)
        parts.append(numbers.map(make, num_parallel_calls=tf.data.AUTOTUNE))
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.concatenate(part)
    return whole


def numbered(batches: tf.data.Dataset, size: int, count: int) -> tf.data.Dataset:
    """Repeats batches until there are `count` images, each with a source id of its own.

    Args:
      batches: for evaluation, all of `size` images.
      size: images a batch.
      count: images in all.
    """

    def number(index: tf.Tensor, batch: Example) -> Example:
        first = index * size
        ids = tf.strings.as_string(first + tf.range(size, dtype=tf.int64))
        return {name: value[: count - first] for name, value in {**batch, F.SOURCE_ID: ids}.items()}

    return batches.repeat().take(-(-count // size)).enumerate().map(number)


def _example(
    number: tf.Tensor,
    size: tuple[int, int],
    seed: tf.Tensor,
    *,
    num_objects: int,
    num_classes: int,
    with_masks: bool,
    context_size: tuple[int, int] | None,
) -> Example:
    height, width = size
    of_image, of_sides, of_corners, of_classes = tf.unstack(tf.random.split(seed, 4))
    pixels = tf.random.stateless_uniform([height, width, 3], of_image, 0, 256, tf.int32)
    sides = tf.random.stateless_uniform([num_objects, 2], of_sides, _SMALLEST, _LARGEST)
    corners = tf.random.stateless_uniform([num_objects, 2], of_corners) * (1.0 - sides)
    boxes = tf.concat([corners, corners + sides], axis=1)
    example = {
        F.IMAGE: tf.cast(pixels, tf.uint8),
        F.ORIGINAL_IMAGE_SPATIAL_SHAPE: tf.constant(size, tf.int32),
        **{
            name: _default_of_image(field)
            for name, field in IMAGE_FIELDS.items()
            if not field.is_optional
        },
        **{
            name: tf.fill([num_objects], tf.cast(field.stored.default, field.dtype))
            for name, field in OBJECT_FIELDS.items()
            if field.stored and not (field.is_by_keypoint or field.is_optional)
        },
        F.SOURCE_ID: tf.strings.as_string(number),
        F.GROUNDTRUTH_BOXES: boxes,
        F.GROUNDTRUTH_CLASSES: tf.random.stateless_uniform(
            [num_objects], of_classes, 1, num_classes + 1, tf.int64
        ),
        F.GROUNDTRUTH_AREA: math.pi / 4 * tf.reduce_prod(sides, axis=1) * height * width,
    }
    if context_size is not None:
        of_context = tf.random.fold_in(of_image, 1)
        example[F.CONTEXT_FEATURES] = tf.random.stateless_normal(context_size, of_context)
    if with_masks:
        example[F.GROUNDTRUTH_INSTANCE_MASKS] = _ellipses(boxes, size)
    return example


def _default_of_image(field: ImageField) -> tf.Tensor:
    if field.is_list:
        return tf.zeros([0], field.dtype)
    return tf.cast(field.stored.default, field.dtype)


def _ellipses(boxes: tf.Tensor, size: tuple[int, int]) -> tf.Tensor:
    """The largest ellipses in boxes float32 [n, 4], normalized -> uint8 [n, height, width]."""
    ymin, xmin, ymax, xmax = tf.unstack(boxes[:, tf.newaxis], axis=-1)  # [n, 1] each

    def offsets(low: tf.Tensor, high: tf.Tensor, length: int) -> tf.Tensor:
        centers = (tf.range(length, dtype=tf.float32) + 0.5) / length
        return (2.0 * centers - low - high) / (high - low)

    y, x = offsets(ymin, ymax, size[0]), offsets(xmin, xmax, size[1])
    # No sum of the two, which would be an array of floats.
    return tf.cast(1.0 - y[:, :, tf.newaxis] ** 2 >= x[:, tf.newaxis] ** 2, tf.uint8)
