"""Boxes (x, y, width, height), as the published networks predict them."""

import math

import tensorflow as tf

# Nearest to 0 and 1 that a share counts.
_EPSILON = 1e-5


def to_corners(boxes: tf.Tensor) -> tf.Tensor:
    """(x, y, width, height) [..., 4] -> [ymin, xmin, ymax, xmax], float32 [..., 4]."""
    x, y, width, height = tf.unstack(boxes, axis=-1)
    sides = (y - height / 2, x - width / 2, y + height / 2, x + width / 2)
    return tf.stack(sides, axis=-1)


def from_corners(corners: tf.Tensor) -> tf.Tensor:
    """[ymin, xmin, ymax, xmax] [..., 4] -> (x, y, width, height), float32 [..., 4]."""
    ymin, xmin, ymax, xmax = tf.unstack(corners, axis=-1)
    return tf.stack([(xmin + xmax) / 2, (ymin + ymax) / 2, xmax - xmin, ymax - ymin], axis=-1)


def logits(shares: tf.Tensor) -> tf.Tensor:
    """The inverse of the sigmoid, of shares in 0..1 that are at least 1e-5 away from both."""
    shares = tf.clip_by_value(shares, 0.0, 1.0)
    return tf.math.log(tf.maximum(shares, _EPSILON) / tf.maximum(1.0 - shares, _EPSILON))


def moved(boxes: tf.Tensor, codes: tf.Tensor) -> tf.Tensor:
    """Moves boxes [..., 4] by codes [..., 4]: centres by sizes, sizes by exponents."""
    centers = codes[..., :2] * boxes[..., 2:] + boxes[..., :2]
    return tf.concat([centers, tf.exp(codes[..., 2:]) * boxes[..., 2:]], axis=-1)


def waves(angles: tf.Tensor, channels: int) -> tf.Tensor:
    """Returns sine and cosine of each frequency in turns, float32 [..., channels].

    Args:
      angles: float32 [...], of the highest frequency.
      channels: even.
    """
    exponents = tf.range(channels // 2, dtype=tf.float32) * (2.0 / channels)
    scaled = angles[..., tf.newaxis] / tf.pow(10000.0, exponents)
    found = tf.stack([tf.sin(scaled), tf.cos(scaled)], axis=-1)  # [..., channels / 2, 2]
    shape = tf.concat([tf.shape(angles), [channels]], axis=0)
    return tf.ensure_shape(tf.reshape(found, shape), [*angles.shape, channels])


def sine_encoding(boxes: tf.Tensor, channels: int) -> tf.Tensor:
    """Encodes boxes by sines and cosines (https://arxiv.org/abs/2201.12329, eq. 6).

    Args:
      boxes: float32 [..., 4], (x, y, width, height) as shares of the images.
      channels: of a coordinate, even.

    Returns:
      float32 [..., 4 * channels]: y, x, width and height.
    """
    x, y, width, height = tf.unstack(boxes * (2 * math.pi), axis=-1)
    return tf.concat([waves(each, channels) for each in (y, x, width, height)], axis=-1)
