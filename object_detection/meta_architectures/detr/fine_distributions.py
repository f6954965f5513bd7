"""D-FINE's distributions of the distances of a box's edges (https://arxiv.org/abs/2410.13842)."""

import dataclasses

import tensorflow as tf

from object_detection.core.shapes import dimensions
from object_detection.models.composite import Composite
from object_detection.models.transformer import Mlp


@dataclasses.dataclass(frozen=True)
class FineOptions:
    """Sizes of the distributions; see the message FineDistributions."""

    bins: int = 32
    scale: float = 4.0
    up: float = 0.5
    quality_top: int = 4
    quality_hidden: int = 64
    quality_layers: int = 2


def distances(bins: int, scale: tf.Tensor | float, up: tf.Tensor | float) -> tf.Tensor:
    """Returns the distance that each bin stands for, float32 [bins + 1], ascending.

    In the middle there are many small ones, at both ends few large ones (eq. 3).
    """
    top = tf.abs(up) * tf.abs(scale)
    step = tf.pow(top + 1.0, 2.0 / (bins - 2))
    small = tf.pow(step, tf.range(1, bins // 2, dtype=tf.float32)) - 1.0
    right = tf.concat([small, [2.0 * top]], axis=0)
    return tf.concat([-tf.reverse(right, [0]), [0.0], right], axis=0)


class QualityHead(Composite):
    """What the shape of a box's distributions says about its score, float32 [B, Q, 1]."""

    def __init__(self, options: FineOptions, name: str):
        super().__init__(name=name, autocast=False)
        self._top = options.quality_top
        units = [options.quality_hidden] * (options.quality_layers - 1)
        self.reg_conf = Mlp((*units, 1), 'reg_conf', last_initializer='zeros')

    def call(self, distributions):
        """Takes logits, float32 [B, Q, 4, bins + 1]."""
        best, _ = tf.math.top_k(tf.nn.softmax(distributions), self._top)
        stats = tf.concat([best, tf.reduce_mean(best, axis=-1, keepdims=True)], axis=-1)
        batch, count = dimensions(stats, 0, 1)
        stats = tf.reshape(stats, [batch, count, 4 * (self._top + 1)])
        return tf.cast(self.reg_conf(stats), tf.float32)


def decode(
    boxes: tf.Tensor, distributions: tf.Tensor, scale: tf.Tensor, up: tf.Tensor
) -> tf.Tensor:
    """Moves the edges of boxes by the expected distances of distributions.

    Args:
      boxes: float32 [B, Q, 4], (x, y, width, height).
      distributions: float32 [B, Q, 4, bins + 1], logits for left, top, right and bottom.
      scale, up: see `distances`.

    Returns:
      float32 [B, Q, 4], (x, y, width, height).
    """
    of_bins = distances(distributions.shape[-1] - 1, scale, up)
    expected = tf.linalg.matvec(tf.nn.softmax(distributions), of_bins)  # [B, Q, 4]
    scale = tf.abs(scale)
    reach = (0.5 * scale + expected) * (tf.tile(boxes[..., 2:], [1, 1, 2]) / scale)
    low, high = boxes[..., :2] - reach[..., :2], boxes[..., :2] + reach[..., 2:]
    return tf.concat([(low + high) / 2, high - low], axis=-1)


def encode(boxes: tf.Tensor, targets: tf.Tensor, options: FineOptions) -> tf.Tensor:
    """Returns the distributions of the edges of targets, float32 [..., 4, bins + 1].

    Two neighbouring bins share a distance; beyond the ends one bin has it all.

    Args:
      boxes: float32 [..., 4], (x, y, width, height), from which edges are measured.
      targets: float32 [..., 4], (x, y, width, height).
      options: sizes.
    """
    scale = abs(options.scale)
    low = boxes[..., :2] - (targets[..., :2] - targets[..., 2:] / 2)
    high = (targets[..., :2] + targets[..., 2:] / 2) - boxes[..., :2]
    sides = tf.concat([boxes[..., 2:], boxes[..., 2:]], axis=-1) / scale + 1e-16
    edges = tf.concat([low, high], axis=-1) / sides - 0.5 * scale
    bins = distances(options.bins, options.scale, options.up)
    edges = tf.clip_by_value(edges, bins[0], bins[-1])[..., tf.newaxis]
    # The share of a bin falls from 1 at its own distance to 0 at those of its neighbours.
    gaps = bins[1:] - bins[:-1]
    rising = tf.concat([tf.ones([1]), gaps], axis=0)
    falling = tf.concat([gaps, tf.ones([1])], axis=0)
    away = edges - bins
    return tf.nn.relu(1.0 - tf.where(away < 0, -away / rising, away / falling))
