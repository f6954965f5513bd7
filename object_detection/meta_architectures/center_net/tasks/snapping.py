"""How the keypoints that an object's centre points to move to peaks of the keypoints' heat maps."""

import dataclasses
import enum
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from object_detection.core.shapes import dimensions
from object_detection.meta_architectures.center_net import heat_maps
from object_detection.meta_architectures.center_net.tasks.task import centers

# Overlap of a box that is moved by the radius of the peaks of its keypoints with itself.
MIN_OVERLAP = 0.7
# A distance beyond all others.
_FAR = 1e30
# A distance that no score is divided by less than.
_NEAR = 1e-6


class Ranking(enum.Enum):
    """Which of several candidates becomes a keypoint of an object.

    Attributes:
      MIN_DISTANCE: the nearest one.
      SCORE_DISTANCE_RATIO: the best score / (distance + constant).
      SCORE_SCALED_DISTANCE_RATIO: the same, with a constant that grows with the box.
      GAUSSIAN_WEIGHTED: the best score * Gaussian of the distance, whose width grows with the box.
      GAUSSIAN_WEIGHTED_CONST: the same over all cells of the box, with one width for all boxes.
    """

    MIN_DISTANCE = 'min_distance'
    SCORE_DISTANCE_RATIO = 'score_distance_ratio'
    SCORE_SCALED_DISTANCE_RATIO = 'score_scaled_distance_ratio'
    GAUSSIAN_WEIGHTED = 'gaussian_weighted'
    GAUSSIAN_WEIGHTED_CONST = 'gaussian_weighted_const'


@dataclasses.dataclass(frozen=True)
class Snapping:
    """How the regressed keypoints of an object move to peaks of the heat maps.

    Attributes:
      score_threshold: candidates score above it.
      num_candidates: candidates of each keypoint, in an image.
      peak_window: side of the window that a candidate must be the maximum of.
      unmatched_score: score of a keypoint that no candidate confirms.
      box_scale: candidates outside of the box, enlarged by this factor, are left out.
      search_scale: so are those farther than this share of the enlarged box's longer side.
      ranking: which of the others is taken.
      distance_offset: with SCORE_DISTANCE_RATIO, what is added to distances.
      distance_multiplier: with SCORE_SCALED_DISTANCE_RATIO, the share of the box's longer side that
        is added to distances.
      deviations: with GAUSSIAN_WEIGHTED, K factors of the width of the Gaussian.
      denominator_ratio: with GAUSSIAN_WEIGHTED_CONST, squared distances are divided by this share
        of the map's shorter side.
      clips: whether keypoints outside of the image are moved to its edge and have no score.
      rescores: whether the score of an object is multiplied by the mean score of its keypoints.
      rescoring_threshold: only keypoints above it count there; without any the score is 0.
    """

    score_threshold: float = 0.1
    num_candidates: int = 100
    peak_window: int = 3
    unmatched_score: float = 0.1
    box_scale: float = 1.2
    search_scale: float = 0.3
    ranking: Ranking = Ranking.MIN_DISTANCE
    distance_offset: float = 1.0
    distance_multiplier: float = 0.1
    deviations: tuple[float, ...] = ()
    denominator_ratio: float = 0.1
    clips: bool = False
    rescores: bool = False
    rescoring_threshold: float = 0.0


class Candidates(NamedTuple):
    """The best peaks of K keypoints, best first.

    Attributes:
      points: float32 [B, C, K, 2], in cells.
      scores: float32 [B, C, K].
      depths: float32 [B, C, K], or None.
    """

    points: tf.Tensor
    scores: tf.Tensor
    depths: tf.Tensor | None


def snap(
    options: Snapping, regressed: tf.Tensor, candidates: Sequence, boxes: tf.Tensor | None
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor | None]:
    """Moves regressed keypoints to candidates.

    Args:
      options: which candidate is taken.
      regressed: float32 [B, N, K, 2], in cells.
      candidates: values of a `Candidates`.
      boxes: float32 [B, N, 4], in cells; None where no boxes are predicted: then candidates may be
        anywhere, and only rankings that need no boxes are possible.

    Returns:
      Points float32 [B, N, K, 2], in cells; scores [B, N, K]; depths [B, N, K] or None.
    """
    candidates = Candidates(*candidates)
    points = candidates.points[:, tf.newaxis]  # [B, 1, C, K, 2]
    distances = tf.norm(regressed[:, :, tf.newaxis] - points, axis=-1)  # [B, N, C, K]
    is_valid = candidates.scores[:, tf.newaxis] > options.score_threshold
    ranks = _ranks(options, distances, candidates.scores[:, tf.newaxis], boxes)
    ranks = tf.where(is_valid, ranks, -_FAR)
    best = tf.argmax(ranks, axis=2, output_type=tf.int32)  # [B, N, K]
    chosen = Candidates(*(_take(each, best) for each in candidates))
    if options.ranking is Ranking.GAUSSIAN_WEIGHTED:
        # The weighted score is that of the keypoint.
        chosen = chosen._replace(scores=tf.reduce_max(ranks, axis=2))
    is_confirmed = chosen.scores > options.score_threshold
    if boxes is not None:
        # As in the reference, the nearest one must be near, though another one may be chosen.
        nearest = tf.reduce_min(tf.where(is_valid, distances, _FAR), axis=2)  # [B, N, K]
        is_confirmed &= _is_near(options, nearest, boxes)
        is_confirmed &= _is_inside(options, chosen.points, boxes)
    scores = tf.where(is_confirmed, chosen.scores, options.unmatched_score)
    refined = tf.where(is_confirmed[..., tf.newaxis], chosen.points, regressed)
    depths = None
    if chosen.depths is not None:
        depths = tf.where(is_confirmed, chosen.depths, 0.0)
    return refined, scores, depths


def best_cells(
    options: Snapping, regressed: tf.Tensor, scores: tf.Tensor, boxes: tf.Tensor
) -> heat_maps.Peaks:
    """Returns the best cell of each keypoint in each box, with GAUSSIAN_WEIGHTED_CONST.

    No peaks are sought: every cell of the box counts. One box of each image after another is
    looked at, since the weighted maps of all boxes would need much memory.

    Args:
      options: what scores are weighted by.
      regressed: float32 [B, N, K, 2], in cells.
      scores: float32 [B, H, W, K].
      boxes: float32 [B, N, 4], in cells.

    Returns:
      Peaks [B, N * K], whose channel is the keypoint. Scores are those of the map, without weights,
      and 0 where a box holds no cell with a score.
    """
    batch, height, width, count = dimensions(scores, 0, 1, 2, 3)
    (number,) = dimensions(boxes, 1)
    y, x = (tf.range(side, dtype=tf.float32) for side in map(heat_maps.as_float, (height, width)))
    shorter = tf.cast(tf.minimum(height, width), tf.float32)
    denominator = shorter * options.denominator_ratio

    def weights(cells: tf.Tensor, points: tf.Tensor, low: tf.Tensor, high: tf.Tensor) -> tf.Tensor:
        """Along one axis: cells [S], points [B, K], edges [B] -> [B, S, K]."""
        distances = cells[:, tf.newaxis] - points[:, tf.newaxis]
        is_inside = (cells >= low[:, tf.newaxis]) & (cells < high[:, tf.newaxis])
        weight = tf.exp(-tf.square(distances) / denominator)
        return weight * tf.cast(is_inside, tf.float32)[..., tf.newaxis]

    def best(each: tuple[tf.Tensor, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        points, (top, left, bottom, right) = each[0], tf.unstack(each[1], axis=-1)
        down = weights(y, points[..., 0], top, bottom)[:, :, tf.newaxis]
        across = weights(x, points[..., 1], left, right)[:, tf.newaxis]
        weighted = tf.reshape(scores * down * across, [batch, height * width, count])
        cells = tf.argmax(weighted, axis=1, output_type=tf.int32)  # [B, K]
        return cells, tf.reduce_max(weighted, axis=1)

    cells, highest = tf.map_fn(
        best,
        (tf.transpose(regressed, [1, 0, 2, 3]), tf.transpose(boxes, [1, 0, 2])),
        fn_output_signature=(tf.int32, tf.float32),
    )
    cells, highest = (
        tf.reshape(tf.transpose(each, [1, 0, 2]), [batch, number * count])
        for each in (cells, highest)
    )
    channels = tf.tile(tf.range(count), [number])[tf.newaxis] + tf.zeros_like(cells)
    rows, columns = cells // width, cells % width
    own = tf.gather(heat_maps.gather_cells(scores, rows, columns), channels, batch_dims=2)
    return heat_maps.Peaks(tf.where(highest > 0.0, own, 0.0), rows, columns, channels)


def _ranks(
    options: Snapping, distances: tf.Tensor, scores: tf.Tensor, boxes: tf.Tensor | None
) -> tf.Tensor:
    """Returns ranks [B, N, C, K], the best one highest, of scores [B, 1, C, K]."""
    if options.ranking is Ranking.MIN_DISTANCE:
        return -distances
    if options.ranking is Ranking.SCORE_DISTANCE_RATIO:
        return scores / (distances + options.distance_offset)
    _, sizes = centers(boxes)  # [B, N, 2]
    if options.ranking is Ranking.SCORE_SCALED_DISTANCE_RATIO:
        offsets = tf.reduce_max(sizes, axis=-1) * options.distance_multiplier
        return scores / tf.maximum(distances + offsets[..., tf.newaxis, tf.newaxis], _NEAR)
    widths = heat_maps.peak_widths(sizes[..., 0], sizes[..., 1], MIN_OVERLAP)
    widths = widths[..., tf.newaxis] * tf.constant(options.deviations)  # [B, N, K]
    factors = -0.5 / tf.square(widths)[:, :, tf.newaxis]
    return scores * tf.exp(factors * tf.square(distances))


def _is_near(options: Snapping, distance: tf.Tensor, boxes: tf.Tensor) -> tf.Tensor:
    _, sizes = centers(boxes)
    longer = tf.reduce_max(sizes, axis=-1, keepdims=True)  # [B, N, 1]
    return distance <= options.search_scale * options.box_scale * longer


def _is_inside(options: Snapping, points: tf.Tensor, boxes: tf.Tensor) -> tf.Tensor:
    middles, sizes = centers(boxes[:, :, tf.newaxis])  # [B, N, 1, 2]
    return tf.reduce_all(tf.abs(points - middles) <= options.box_scale * sizes / 2.0, axis=-1)


def _take(values: tf.Tensor | None, indices: tf.Tensor) -> tf.Tensor | None:
    """Returns of values [B, C, K, ...] those of the candidates [B, N, K], [B, N, K, ...]."""
    if values is None:
        return None
    rest = values.shape[3:]
    by_keypoint = tf.transpose(values, [0, 2, 1, *range(3, 3 + len(rest))])  # [B, K, C, ...]
    taken = tf.gather(by_keypoint, tf.transpose(indices, [0, 2, 1]), axis=2, batch_dims=2)
    return tf.transpose(taken, [0, 2, 1, *range(3, 3 + len(rest))])
