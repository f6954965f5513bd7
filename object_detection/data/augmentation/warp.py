"""Affine maps of an image and its objects: rotation, shear, scale and translation.

A map is a matrix, float32 [2, 3], that maps (y, x, 1) to (y, x), in pixels; (0, 0) is the corner of
the first pixel, and (0.5, 0.5) its centre.
"""

import dataclasses
import math
from typing import NamedTuple

import tensorflow as tf

from object_detection.core.example_fields import Geometry, names_of
from object_detection.core.fields import InputFields as F
from object_detection.data import objects
from object_detection.data.augmentation.checks import check_positive_order
from object_detection.data.augmentation.padding import Color, check_color
from object_detection.data.augmentation.window import hide_points_outside, is_kept
from object_detection.data.objects import Example

_WHOLE = (0.0, 0.0, 1.0, 1.0)
# Corners of a box (ymin, xmin, ymax, xmax).
_CORNERS = ((0, 1), (0, 3), (2, 1), (2, 3))
# Samples beyond the first or last one of a mask crop that still belong to it.
_ROUNDING = 1e-4


def affine(
    size: tf.Tensor,
    *,
    angle: float | tf.Tensor = 0.0,
    scale: float | tf.Tensor = 1.0,
    shear: tuple[float, float] | tf.Tensor = (0.0, 0.0),
    shift: tuple[float, float] | tf.Tensor = (0.0, 0.0),
) -> tf.Tensor:
    """Returns the map that shears, scales and rotates around the centre of an image, then shifts.

    Args:
      size: int32 [2], height and width of the image.
      angle: radians, counterclockwise.
      scale: factor.
      shear: float32 [2], what is added to y for each pixel along x, and to x for each along y.
      shift: float32 [2], pixels along y and x.

    Returns:
      float32 [2, 3].
    """
    cos, sin = scale * tf.cos(angle), scale * tf.sin(angle)
    rotation = tf.reshape(tf.stack([cos, -sin, sin, cos]), [2, 2])
    of_y, of_x = tf.unstack(tf.convert_to_tensor(shear, tf.float32))
    linear = rotation @ tf.reshape(tf.stack([1.0, of_y, of_x, 1.0]), [2, 2])
    center = 0.5 * tf.cast(size, tf.float32)
    return tf.concat([linear, (shift + center - _apply(linear, center))[:, tf.newaxis]], axis=1)


def warp(
    example: Example, matrix: tf.Tensor, *, min_overlap: float = 0.0, color: Color = (0.0,)
) -> Example:
    """Maps an image and its objects; the image keeps its size.

    The box of an object becomes the smallest one around its mapped corners, with and without a
    mask, clipped to the image; objects without a remaining area are dropped. Keypoints outside of
    the image become NaN and invisible.

    Args:
      example: image [H, W, C] and, if present: boxes float32 [n, 4] and keypoints [n, P, 2],
        normalized to the image; mask crops uint8 [n, S, S] relative to the boxes, or full-size
        masks [n, H, W].
      matrix: the map, which has an inverse.
      min_overlap: smallest share of an object's mapped box inside the image with which it is kept.
      color: one value, or one for each channel, 0..255, of what the image does not cover.

    Returns:
      The mapped example, with an image float32 [H, W, C].
    """
    image = example[F.IMAGE]
    sides = tf.cast(tf.shape(image)[:2], tf.float32)
    # The same map of normalized coordinates.
    normalized = matrix / sides[:, tf.newaxis] * tf.concat([sides, [1.0]], axis=0)
    boxes = map_boxes(example[F.GROUNDTRUTH_BOXES], normalized)
    before = {**example, F.GROUNDTRUTH_BOXES: boxes}
    is_left = is_kept(boxes, tf.constant(_WHOLE), min_overlap)
    old_boxes = tf.boolean_mask(example[F.GROUNDTRUTH_BOXES], is_left)
    warped = objects.select(before, is_left)
    warped[F.GROUNDTRUTH_BOXES] = tf.clip_by_value(warped[F.GROUNDTRUTH_BOXES], 0.0, 1.0)
    warped[F.IMAGE] = warp_image(image, matrix, color)
    for name in names_of(Geometry.POINTS):
        if name in warped:
            warped[name] = _apply(normalized, warped[name])
    for name in names_of(Geometry.IMAGE_MASK):
        if name in warped:
            masks = warped[name][..., tf.newaxis]
            masks = _sample(masks, _of_pixels(matrix)[tf.newaxis], interpolation='NEAREST')
            warped[name] = tf.ensure_shape(masks[..., 0], warped[name].shape)
    for name in names_of(Geometry.BOX_MASK):
        if name in warped:
            new_boxes = warped[F.GROUNDTRUTH_BOXES]
            warped[name] = _warp_crops(warped[name], old_boxes, new_boxes, normalized)
    return hide_points_outside(warped, tf.constant(True))


def warp_image(image: tf.Tensor, matrix: tf.Tensor, color: Color) -> tf.Tensor:
    """Maps an image [H, W, C], by bilinear interpolation, to a float32 one of the same size.

    Args:
      image: the image, of any dtype, 0..255.
      matrix: the map, which has an inverse.
      color: one value, or one for each channel, 0..255, of what the image does not cover.
    """
    images, transform = tf.cast(image, tf.float32)[tf.newaxis], _of_pixels(matrix)[tf.newaxis]
    if len(set(color)) == 1:
        warped = _sample(images, transform, fill=color[0])
    else:
        # The operation fills all channels with one value.
        warped = _sample(images - color, transform) + color
    return tf.ensure_shape(tf.clip_by_value(warped[0], 0.0, 255.0), image.shape)


def map_boxes(boxes: tf.Tensor, matrix: tf.Tensor) -> tf.Tensor:
    """Returns the smallest boxes around mapped ones, float32 [n, 4]."""
    corners = _apply(matrix, tf.gather(boxes, _CORNERS, axis=1))  # [n, 4, 2]
    return tf.concat([tf.reduce_min(corners, axis=1), tf.reduce_max(corners, axis=1)], axis=1)


def _apply(matrix: tf.Tensor, points: tf.Tensor) -> tf.Tensor:
    """Maps points, float32 [..., 2], by a matrix [2, 3], or [2, 2] without a translation."""
    mapped = points[..., :1] * matrix[:, 0] + points[..., 1:] * matrix[:, 1]
    return mapped + matrix[:, 2] if matrix.shape[1] == 3 else mapped


def _inverse(matrix: tf.Tensor) -> tf.Tensor:
    """Returns the inverse map, float32 [2, 3]."""
    linear = tf.linalg.inv(matrix[:, :2])
    return tf.concat([linear, -_apply(linear, matrix[:, 2])[:, tf.newaxis]], axis=1)


def _of_pixels(matrix: tf.Tensor) -> tf.Tensor:
    """Returns the inverse map of indices of pixels, which are half a pixel before their centres."""
    inverse = _inverse(matrix)
    # Graphs keep the order of this sum; that of products with 0.5 they change, and so its bits.
    half = 0.5 * (tf.reduce_sum(inverse[:, :2], axis=1) - 1.0)
    return inverse + tf.pad(half[:, tf.newaxis], [[0, 0], [2, 0]])


def _warp_crops(
    crops: tf.Tensor, boxes: tf.Tensor, new_boxes: tf.Tensor, matrix: tf.Tensor
) -> tf.Tensor:
    """Samples mask crops, uint8 [n, S, S], of boxes at the samples of other boxes.

    Args:
      crops: the crops; samples outside of them become 0.
      boxes, new_boxes: float32 [n, 4], whose first and last samples are on their sides.
      matrix: the map from the old boxes' frame to the new boxes'.
    """
    inverse, last = _inverse(matrix), float(crops.shape[1] - 1)
    sizes, new_sizes = boxes[:, 2:] - boxes[:, :2], new_boxes[:, 2:] - new_boxes[:, :2]
    # Index of a sample of the new crop -> index of a sample of the old one, for each object.
    linear = inverse[:, :2] * new_sizes[:, tf.newaxis] / sizes[:, :, tf.newaxis]
    offset = last * (_apply(inverse, new_boxes[:, :2]) - boxes[:, :2]) / sizes
    transforms = tf.concat([linear, offset[..., tf.newaxis]], axis=2)
    sampled = _sample(tf.cast(crops, tf.float32)[..., tf.newaxis], transforms, fill_mode='NEAREST')
    indices = tf.range(last + 1.0)
    rows = linear[:, :, 0, tf.newaxis] * indices + offset[..., tf.newaxis]
    places = rows[..., tf.newaxis] + (linear[:, :, 1, tf.newaxis] * indices)[:, :, tf.newaxis]
    is_inside = (places >= -_ROUNDING) & (places <= last + _ROUNDING)  # [n, 2, S, S]
    sampled = tf.where(tf.reduce_all(is_inside, axis=1), sampled[..., 0], 0.0)
    return tf.ensure_shape(tf.cast(tf.round(sampled), crops.dtype), crops.shape)


def _sample(
    images: tf.Tensor,
    transforms: tf.Tensor,
    *,
    interpolation: str = 'BILINEAR',
    fill_mode: str = 'CONSTANT',
    fill: float = 0.0,
) -> tf.Tensor:
    """Samples images [N, H, W, C].

    Args:
      images: the images.
      transforms: float32 [N or 1, 2, 3], from the index of a pixel of the result to that of a pixel
        of the image.
      interpolation: BILINEAR or NEAREST.
      fill_mode: CONSTANT or NEAREST, of what is outside of the images.
      fill: the constant.
    """
    # In the order of the operation: x before y.
    rows = tf.reshape(tf.gather(transforms[:, ::-1], [1, 0, 2], axis=2), [-1, 6])
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=images,
        transforms=tf.pad(rows, [[0, 0], [0, 2]]),
        output_shape=tf.shape(images)[1:3],
        interpolation=interpolation,
        fill_mode=fill_mode,
        fill_value=fill,
    )


class AffineDraws(NamedTuple):
    """Random numbers of a map.

    Attributes:
      angle: radians, counterclockwise, float32 [].
      scale: factor, float32 [].
      shear: angles of the shear along y and x, radians, float32 [2].
      translation: shares of the height and width, float32 [2].
    """

    angle: tf.Tensor
    scale: tf.Tensor
    shear: tf.Tensor
    translation: tf.Tensor


@dataclasses.dataclass(frozen=True)
class RandomAffine:
    """Shears, scales and rotates an image around its centre, then shifts it; its size stays.

    See `warp` for what becomes of the objects.

    Attributes:
      max_degrees: greatest rotation either way.
      min_scale, max_scale: bounds of the factor.
      max_shear_degrees: greatest shear either way, along y and along x, below 45.
      max_translation: greatest shift either way, as a share of the height and of the width.
      overlap_thresh: objects with a smaller share of their box inside are dropped.
      pad_color: one value, or one for each channel, of what the image does not cover, 0..255; () is
        black.

    Raises:
      ValueError: if the factors are not positive and in order, or the number of values of the
        colour is wrong.
    """

    max_degrees: float = 0.0
    min_scale: float = 0.5
    max_scale: float = 1.5
    max_shear_degrees: float = 0.0
    max_translation: float = 0.1
    overlap_thresh: float = 0.1
    pad_color: Color = ()

    def __post_init__(self):
        name = 'random_affine'
        check_positive_order(name, self, 'min_scale', 'max_scale')
        check_color(name, self.pad_color, or_one=True)

    def __call__(self, example: Example, seed: tf.Tensor) -> Example:
        """Maps `example`; all random numbers depend only on `seed`, integer [2]."""
        return self.change(example, self.draw(seed))

    def draw(self, seed: tf.Tensor) -> AffineDraws:
        """Draws the numbers of a map."""
        seeds = tf.unstack(tf.random.split(seed, 4))

        def within(shape: list[int], greatest: float, seed: tf.Tensor) -> tf.Tensor:
            return tf.random.stateless_uniform(shape, seed, -greatest, greatest)

        return AffineDraws(
            angle=within([], math.radians(self.max_degrees), seeds[0]),
            scale=tf.random.stateless_uniform([], seeds[1], self.min_scale, self.max_scale),
            shear=within([2], math.radians(self.max_shear_degrees), seeds[2]),
            translation=within([2], self.max_translation, seeds[3]),
        )

    def change(self, example: Example, draws: AffineDraws) -> Example:
        """Maps an example by random numbers."""
        size = tf.shape(example[F.IMAGE])[:2]
        matrix = affine(
            size,
            angle=draws.angle,
            scale=draws.scale,
            shear=tf.tan(draws.shear),
            shift=draws.translation * tf.cast(size, tf.float32),
        )
        color = self.pad_color or (0.0,)
        return warp(example, matrix, min_overlap=self.overlap_thresh, color=color)
