"""The predictions of a detection transformer, as typed values that a `tf.function` can return."""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf


class Selection(NamedTuple):
    """What the selection of queries predicts, of G groups of Q queries (G is 1 in inference).

    Attributes:
      class_logits: float32 [B, G * Q, K] of the selected cells.
      boxes: float32 [B, G * Q, 4], (x, y, width, height) as shares; see `Predictions.windows`.
      cell_logits: float32 [B, N, K] of all cells, of the first group.
      cell_boxes: float32 [B, N, 4]: how `boxes` of all cells are predicted, before a sigmoid if
        there is one.
    """

    class_logits: tf.Tensor
    boxes: tf.Tensor
    cell_logits: tf.Tensor
    cell_boxes: tf.Tensor


class Noisy(NamedTuple):
    """The D queries of training that are objects with noise.

    Attributes:
      classes: int32 [B, D], with noise; K where a query has no object.
      boxes: float32 [B, D, 4], logits of (x, y, width, height), with noise.
      matches: int32 [B, D]: the object that a query learns; `UNMATCHED` for those that learn that
        there is none, `IGNORED` for those that learn nothing.
      groups: int32 [B, D]: queries see those of their own group alone.
    """

    classes: tf.Tensor
    boxes: tf.Tensor
    matches: tf.Tensor
    groups: tf.Tensor


class Layer(NamedTuple):
    """What a layer of the decoder predicts for Q' queries: D noisy ones, then G groups of Q.

    Attributes:
      class_logits: float32 [B, Q', K], or K + 1 with background, which comes last.
      boxes: float32 [B, Q', 4], (x, y, width, height) as shares; see `Predictions.windows`.
      distributions: None, or float32 [B, Q', 4, bins + 1], logits for left, top, right and bottom.
    """

    class_logits: tf.Tensor
    boxes: tf.Tensor
    distributions: tf.Tensor | None = None


class Predictions(NamedTuple):
    """Predictions for B images.

    Attributes:
      maps: those of the encoder, [B, H_l, W_l, C].
      layers: of the decoder, in order; the last one detects.
      windows: float32 [B, 4], the true images in the frame of the boxes: what the maps cover, or
        the true images themselves.
      frame: float32 [B, 1, 4], height, width, height and width of the images in that frame.
      selection: of the queries; None if they are not selected.
      first_boxes: float32 [B, Q', 4], the boxes that the decoder begins with; None without.
      noisy: None without noisy queries.
      first: with distributions, what the first layer predicts before them; else None.
      num_groups: G, of this pass.
    """

    maps: Sequence[tf.Tensor]
    layers: Sequence[Layer]
    windows: tf.Tensor
    frame: tf.Tensor
    selection: Selection | None = None
    first_boxes: tf.Tensor | None = None
    noisy: Noisy | None = None
    first: Layer | None = None
    num_groups: int = 1
