"""A second view of each image: moved, scaled, mirrored; and what is seen there, moved back.

A point (y, x) of an image of height and width 1, whose first and last pixels lie on its edges, is
mirrored first (x), then scaled about the centre, then shifted.
"""

from typing import NamedTuple

import tensorflow as tf

from object_detection.core import bilinear, sampling
from object_detection.core.shapes import dimensions


class View(NamedTuple):
    """How the images of a batch change.

    Attributes:
      shifts: float32 [B, 2], (y, x), as shares of the image.
      scales: float32 [B, 2], (y, x), the sides of the part of the image that fills the view.
      flips: bool [B], whether left and right are exchanged.
    """

    shifts: tf.Tensor
    scales: tf.Tensor
    flips: tf.Tensor


def random_view(
    seeds: tf.Tensor | None,
    batch_size: int | tf.Tensor,
    *,
    max_translation: float,
    scales: tuple[float, float],
    flip_probability: float,
) -> View:
    """Draws a view for each image; see `sampling.sampling_noise` for `seeds`.

    Args:
      seeds: int32 [B, 2], or None.
      batch_size: B.
      max_translation: greatest shift.
      scales: smallest and greatest scale.
      flip_probability: share of mirrored images.
    """
    noise = sampling.sampling_noise(seeds, 5, batch_size)  # [B, 5]
    smallest, greatest = scales
    return View(
        shifts=(2.0 * noise[:, :2] - 1.0) * max_translation,
        scales=smallest + noise[:, 2:4] * (greatest - smallest),
        flips=noise[:, 4] < flip_probability,
    )


def move_boxes(boxes: tf.Tensor, view: View) -> tf.Tensor:
    """Returns where boxes [B, M, 4], normalized, are in the view; they are not clipped."""
    top, left, bottom, right = tf.unstack(boxes, axis=-1)
    flips = view.flips[:, tf.newaxis]
    left, right = tf.where(flips, 1.0 - right, left), tf.where(flips, 1.0 - left, right)
    moved = [
        (each - 0.5) / view.scales[:, i : i + 1] + 0.5 + view.shifts[:, i : i + 1]
        for each, i in ((top, 0), (left, 1), (bottom, 0), (right, 1))
    ]
    return tf.stack(moved, axis=-1)


def to_view(maps: tf.Tensor, view: View) -> tf.Tensor:
    """Returns maps, float32 [B, H, W, C], as the view shows them; 0 outside of the image."""

    def source(places: tf.Tensor, axis: int) -> tf.Tensor:
        shift, scale = view.shifts[:, axis : axis + 1], view.scales[:, axis : axis + 1]
        places = (places - shift - 0.5) * scale + 0.5
        return places if axis == 0 else tf.where(view.flips[:, tf.newaxis], 1.0 - places, places)

    return _sample(maps, source)


def from_view(maps: tf.Tensor, view: View) -> tf.Tensor:
    """Returns maps of the view, float32 [B, H, W, C], as the image has them; 0 outside of it."""

    def source(places: tf.Tensor, axis: int) -> tf.Tensor:
        shift, scale = view.shifts[:, axis : axis + 1], view.scales[:, axis : axis + 1]
        if axis == 1:
            places = tf.where(view.flips[:, tf.newaxis], 1.0 - places, places)
        return (places - 0.5) / scale + 0.5 + shift

    return _sample(maps, source)


def _sample(maps: tf.Tensor, source) -> tf.Tensor:
    """Samples maps bilinearly; `source` gives the places [B, S] of an axis that fill `places`."""
    weights = []
    for axis, size in enumerate(dimensions(maps, 1, 2)):
        last = tf.cast(size - 1, tf.float32)
        places = tf.range(size, dtype=tf.float32)[tf.newaxis] / last
        weights.append(bilinear.bilinear_weights(source(places, axis) * last, size))
    bands = tf.einsum('biy,byxc->bixc', weights[0], maps)
    return tf.einsum('bjx,bixc->bijc', weights[1], bands)
