"""Keypoints of the objects of one class (https://arxiv.org/abs/1904.07850, section 4.2)."""

import dataclasses
import enum
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from object_detection.core.fields import DetectionFields
from object_detection.core.fields import InputFields as F
from object_detection.core.shapes import dimensions
from object_detection.errors import UserError
from object_detection.meta_architectures.center_net import heat_maps
from object_detection.meta_architectures.center_net.heat_maps import Peaks
from object_detection.meta_architectures.center_net.tasks.task import (
    Cells,
    Found,
    Head,
    Task,
    centers,
    gather_points,
)

_HEATMAP, _OFFSET, _REGRESSION = 'heatmap', 'offset', 'regression'
_DEPTH = 'depth'
# Overlap of a box that is moved by the radius of the peaks of its keypoints with itself.
_MIN_OVERLAP = 0.7
# A distance beyond all others.
_FAR = 1e30
KEYPOINTS, SCORES = DetectionFields.KEYPOINTS, DetectionFields.KEYPOINT_SCORES
DEPTHS = 'detection_keypoint_depths'


class Ranking(enum.Enum):
    """Which of several candidates becomes a keypoint of an object."""

    MIN_DISTANCE = 'min_distance'
    SCORE_DISTANCE_RATIO = 'score_distance_ratio'


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
      distance_offset: added to distances before scores are divided by them.
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
    clips: bool = False
    rescores: bool = False
    rescoring_threshold: float = 0.0


@dataclasses.dataclass(frozen=True)
class Layout:
    """Which keypoints a task has.

    Attributes:
      name: name of the task.
      class_index: its class, 0-based.
      indices: positions of its keypoints among all keypoints of the ground truth.
      num_total: number of all keypoints of all tasks.
      deviations: factors of the widths of the peaks.
    """

    name: str
    class_index: int
    indices: tuple[int, ...]
    num_total: int
    deviations: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class Learning:
    """What the losses of a task are.

    Attributes:
      heatmap_loss: `(logits [B, N, K], targets, weights) -> [B, N, K]`.
      loss: `(predictions [1, N, S], targets, weights [1, N]) -> [1, N]`, of all but heat maps.
      weights: factors of the losses by the last part of their names.
      offset_radius: cells around a keypoint, and around a centre, that learn offsets and vectors.
      per_keypoint_offset: whether each keypoint has offsets of its own.
      predicts_depth: whether there are distances to the camera.
      per_keypoint_depth: whether each keypoint has its own.
    """

    heatmap_loss: Callable
    loss: Callable
    weights: Mapping[str, float]
    offset_radius: int = 0
    per_keypoint_offset: bool = False
    predicts_depth: bool = False
    per_keypoint_depth: bool = False


class Targets(NamedTuple):
    """Keypoints of the ground truth.

    Attributes:
      points: float32 [B, M, K, 2], in cells; 0 where there is none.
      weights: float32 [B, M, K].
    """

    points: tf.Tensor
    weights: tf.Tensor


class Vectors(NamedTuple):
    """What cells learn: S numbers for each of n cells of each keypoint.

    Attributes:
      cells: float32 [B, M, K, n, 2].
      values: float32 [B, M, K, n, S].
      weights: float32 [B, M, K, n].
    """

    cells: tf.Tensor
    values: tf.Tensor
    weights: tf.Tensor


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


class Keypoints:
    """Predicts where the keypoints of an object are: as peaks, and as vectors from its centre.

    Args:
      layout: the keypoints.
      heads: by the last part of their names: heatmap, offset, regression and, with depths, depth.
      learning: the losses.
      snapping: the post-processing.
    """

    def __init__(
        self,
        *,
        layout: Layout,
        heads: Mapping[str, Head],
        learning: Learning,
        snapping: Snapping,
    ):
        self.heads = {self._path(layout, part): head for part, head in heads.items()}
        self.loss_names = tuple(f'Loss/{name}' for name in self.heads)
        self.layout = layout
        self.parts = {part: self._path(layout, part) for part in heads}
        self._learning = learning
        self.snapping = snapping

    @staticmethod
    def _path(layout: Layout, part: str) -> str:
        return f'{layout.name}/keypoint/{part}'

    def losses(self, maps: Mapping[str, Sequence[tf.Tensor]], cells: Cells) -> dict[str, tf.Tensor]:
        targets = self.targets(cells)
        options = self._learning
        radius = options.offset_radius
        stacks = {part: maps[name] for part, name in self.parts.items()}
        losses = {
            _HEATMAP: self._heatmap_loss(stacks[_HEATMAP], cells, targets),
            _OFFSET: self._loss_at(
                stacks[_OFFSET],
                self.offset_targets(cells, targets, radius),
                options.per_keypoint_offset,
            ),
            _REGRESSION: self._loss_at(
                stacks[_REGRESSION], self.regression_targets(cells, targets, radius), True
            ),
        }
        if options.predicts_depth:
            losses[_DEPTH] = self._loss_at(
                stacks[_DEPTH],
                self.depth_targets(cells, targets, radius),
                options.per_keypoint_depth,
            )
        return {
            f'Loss/{self.parts[part]}': self._learning.weights[part] * loss
            for part, loss in losses.items()
        }

    def detect(self, maps: Mapping[str, tf.Tensor], found: Found) -> dict[str, tf.Tensor]:
        """Returns keypoints of the detections of the class, among all keypoints; others are 0."""
        points, scores, depths = self.refine(maps, found)
        points = points / found.true_sizes[:, tf.newaxis, tf.newaxis]
        if self.snapping.clips:
            clipped = tf.clip_by_value(points, 0.0, 1.0)
            scores = tf.where(tf.reduce_all(points == clipped, axis=-1), scores, 0.0)
            points = clipped
        place = tf.one_hot(self.layout.indices, self.layout.num_total)  # [K, P]
        is_class = tf.cast(found.peaks.channels == self.layout.class_index, tf.float32)

        def spread(values: tf.Tensor) -> tf.Tensor:
            """[B, N, K] -> [B, N, P]."""
            return tf.einsum('bnk,kp->bnp', values, place) * is_class[..., tf.newaxis]

        detected = {
            KEYPOINTS: tf.stack([spread(points[..., 0]), spread(points[..., 1])], axis=-1),
            SCORES: spread(scores),
        }
        return detected if depths is None else detected | {DEPTHS: spread(depths)}

    def rescore(self, scores: tf.Tensor, of_keypoints: tf.Tensor, found: Found) -> tf.Tensor:
        """Returns scores [B, N], those of the class times the mean score of good keypoints."""
        is_class = found.peaks.channels == self.layout.class_index
        mine = tf.gather(of_keypoints, self.layout.indices, axis=2)
        is_counted = tf.cast(mine > self.snapping.rescoring_threshold, tf.float32)
        mean = tf.math.divide_no_nan(
            tf.reduce_sum(mine * is_counted, axis=-1), tf.reduce_sum(is_counted, axis=-1)
        )
        return tf.where(is_class, scores * mean, scores)

    def refine(
        self, maps: Mapping[str, tf.Tensor], found: Found
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor | None]:
        """Returns the keypoints of detections, also of those of other classes.

        Returns:
          Points float32 [B, N, K, 2], in cells; scores [B, N, K]; depths [B, N, K] or None.
        """
        return self.snap(self.regressed(maps, found), self.candidates(maps), found.boxes)

    def snap(
        self, regressed: tf.Tensor, candidates: tuple, boxes: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor | None]:
        """Moves regressed keypoints to candidates; see `refine`.

        Args:
          regressed: float32 [B, N, K, 2], in cells.
          candidates: values of a `Candidates`.
          boxes: float32 [B, N, 4], in cells.
        """
        candidates = Candidates(*candidates)
        points = candidates.points[:, tf.newaxis]  # [B, 1, C, K, 2]
        distances = tf.norm(regressed[:, :, tf.newaxis] - points, axis=-1)  # [B, N, C, K]
        scores = candidates.scores[:, tf.newaxis]  # [B, 1, C, K]
        is_valid = scores > self.snapping.score_threshold
        if self.snapping.ranking is Ranking.MIN_DISTANCE:
            ranks = -distances
        else:
            ranks = scores / (distances + self.snapping.distance_offset)
        best = tf.argmax(
            tf.where(is_valid, ranks, -_FAR), axis=2, output_type=tf.int32
        )  # [B, N, K]
        chosen = Candidates(*(_take(each, best) for each in candidates))
        # As in the reference, the nearest one must be near, though another one may be chosen.
        nearest = tf.reduce_min(tf.where(is_valid, distances, _FAR), axis=2)  # [B, N, K]
        is_confirmed = (
            (chosen.scores > self.snapping.score_threshold)
            & self._is_near(nearest, boxes)
            & self._is_inside(chosen.points, boxes)
        )
        scores = tf.where(is_confirmed, chosen.scores, self.snapping.unmatched_score)
        refined = tf.where(is_confirmed[..., tf.newaxis], chosen.points, regressed)
        depths = None
        if chosen.depths is not None:
            depths = tf.where(is_confirmed, chosen.depths, 0.0)
        return refined, scores, depths

    def _is_near(self, distance: tf.Tensor, boxes: tf.Tensor) -> tf.Tensor:
        _, sizes = centers(boxes)
        longer = tf.reduce_max(sizes, axis=-1, keepdims=True)  # [B, N, 1]
        return distance <= self.snapping.search_scale * self.snapping.box_scale * longer

    def _is_inside(self, points: tf.Tensor, boxes: tf.Tensor) -> tf.Tensor:
        middles, sizes = centers(boxes[:, :, tf.newaxis])  # [B, N, 1, 2]
        return tf.reduce_all(
            tf.abs(points - middles) <= self.snapping.box_scale * sizes / 2.0, axis=-1
        )

    def candidates(self, maps: Mapping[str, tf.Tensor]) -> Candidates:
        """Returns the best peaks of each keypoint."""
        count = len(self.layout.indices)
        scores = tf.sigmoid(maps[self.parts[_HEATMAP]])
        peaks = heat_maps.top_cells(
            heat_maps.find_peaks(scores, self.snapping.peak_window),
            self.snapping.num_candidates,
            per_channel=True,
        )
        (batch,) = dimensions(scores, 0)

        def by_candidate(values: tf.Tensor) -> tf.Tensor:
            """[B, K * C, ...] -> [B, C, K, ...]."""
            rest = values.shape[2:]
            split = tf.reshape(values, [batch, count, -1, *rest])
            return tf.transpose(split, [0, 2, 1, *range(3, 3 + len(rest))])

        cells = tf.cast(tf.stack([peaks.rows, peaks.columns], axis=-1), tf.float32)
        offsets = self._of_channel(maps[self.parts[_OFFSET]], peaks, 2)
        depths = None
        if self._learning.predicts_depth:
            depths = by_candidate(self._of_channel(maps[self.parts[_DEPTH]], peaks, 1)[..., 0])
        return Candidates(by_candidate(cells + offsets), by_candidate(peaks.scores), depths)

    def _of_channel(self, maps: tf.Tensor, peaks: Peaks, size: int) -> tf.Tensor:
        """Returns `size` values at each peak: those of its keypoint, or those for all of them."""
        values = heat_maps.gather_cells(maps, peaks.rows, peaks.columns)  # [B, K * C, S]
        if maps.shape[-1] == size:
            return values
        batch, rows = dimensions(values, 0, 1)
        values = tf.reshape(values, [batch, rows, -1, size])
        return tf.gather(values, peaks.channels, axis=2, batch_dims=2)

    def regressed(self, maps: Mapping[str, tf.Tensor], found: Found) -> tf.Tensor:
        vectors = found.gather(maps[self.parts[_REGRESSION]])
        batch, count = dimensions(vectors, 0, 1)
        vectors = tf.reshape(vectors, [batch, count, len(self.layout.indices), 2])
        return vectors + found.cells[:, :, tf.newaxis]

    def targets(self, cells: Cells) -> Targets:
        truth = cells.groundtruth
        if truth.keypoints is None:
            raise UserError(
                f'{self.layout.name}: expected keypoints in the ground truth. Received: none; set '
                'num_keypoints of the input readers.'
            )
        indices = list(self.layout.indices)
        points = tf.gather(truth.keypoints, indices, axis=2)  # [B, M, K, 2]
        is_labelled = ~tf.reduce_any(tf.math.is_nan(points), axis=-1)
        of_class = truth.classes[..., self.layout.class_index] * truth.weights  # [B, M]
        weights = tf.where(is_labelled, of_class[..., tf.newaxis], 0.0)
        if F.GROUNDTRUTH_KEYPOINT_WEIGHTS in truth.fields:
            given = truth.fields[F.GROUNDTRUTH_KEYPOINT_WEIGHTS]
            weights *= tf.gather(given, indices, axis=2)
        scale = tf.stack([tf.cast(side, tf.float32) for side in cells.size])
        return Targets(tf.where(is_labelled[..., tf.newaxis], points * scale, 0.0), weights)

    def heat_map_targets(self, cells: Cells, targets: Targets) -> tf.Tensor:
        """Returns the heat maps of the ground truth, float32 [B, H, W, K]."""
        _, sizes = centers(cells.boxes)
        widths = heat_maps.peak_widths(sizes[..., 0], sizes[..., 1], _MIN_OVERLAP)  # [B, M]
        widths = widths[..., tf.newaxis] * tf.constant(self.layout.deviations)  # [B, M, K]
        batch, rows, count = dimensions(targets.weights, 0, 1, 2)

        def by_keypoint(values: tf.Tensor) -> tf.Tensor:
            """[B, M, K, ...] -> [B * K, M, ...]."""
            rest = values.shape[3:]
            values = tf.transpose(values, [0, 2, 1, *range(3, 3 + len(rest))])
            return tf.reshape(values, [batch * count, rows, *rest])

        maps = heat_maps.draw_peaks(
            by_keypoint(targets.points),
            by_keypoint(widths),
            tf.zeros([batch * count, rows], tf.int32),
            by_keypoint(targets.weights),
            num_channels=1,
            size=cells.size,
        )
        maps = tf.reshape(maps, [batch, count, *cells.size])
        return tf.transpose(maps, [0, 2, 3, 1])

    def learnt_cells(self, cells: Cells, targets: Targets) -> tf.Tensor:
        """Returns which cells the heat maps learn from, float32 [B, H, W, K] of 0 and 1.

        Where a box may have a keypoint that is not labelled, nothing is learnt.
        """
        return heat_maps.cells_outside(cells.boxes, targets.weights <= 0.0, cells.size)

    def offset_targets(self, cells: Cells, targets: Targets, radius: int) -> Vectors:
        """Returns the vectors from the cells around each keypoint to it."""
        around, is_valid = heat_maps.neighbors(targets.points, radius, cells.size)
        return Vectors(
            around,
            targets.points[..., tf.newaxis, :] - around,
            targets.weights[..., tf.newaxis] * tf.cast(is_valid, tf.float32),
        )

    def regression_targets(self, cells: Cells, targets: Targets, radius: int) -> Vectors:
        """Returns the vectors from the cells around the centre of an object to its keypoints."""
        middles, _ = centers(cells.boxes)
        middles = middles[:, :, tf.newaxis] + tf.zeros_like(targets.points)  # [B, M, K, 2]
        around, is_valid = heat_maps.neighbors(middles, radius, cells.size)
        return Vectors(
            around,
            targets.points[..., tf.newaxis, :] - around,
            targets.weights[..., tf.newaxis] * tf.cast(is_valid, tf.float32),
        )

    def depth_targets(self, cells: Cells, targets: Targets, radius: int) -> Vectors:
        """Returns the depth of a keypoint for the cells around it."""
        origin = 'load_keypoint_depth_features of the input readers'
        names = F.GROUNDTRUTH_KEYPOINT_DEPTHS, F.GROUNDTRUTH_KEYPOINT_DEPTH_WEIGHTS
        depths, given = (
            tf.gather(cells.field(name, origin), list(self.layout.indices), axis=2)
            for name in names
        )
        around, is_valid = heat_maps.neighbors(targets.points, radius, cells.size)
        weights = (targets.weights * given)[..., tf.newaxis] * tf.cast(is_valid, tf.float32)
        values = depths[..., tf.newaxis] + tf.zeros_like(weights)
        return Vectors(around, values[..., tf.newaxis], weights)

    def _heatmap_loss(self, stacks: Sequence, cells: Cells, targets: Targets) -> tf.Tensor:
        truth = self.heat_map_targets(cells, targets)
        weights = self.learnt_cells(cells, targets) * cells.valid[..., tf.newaxis]
        batch, height, width, count = dimensions(truth, 0, 1, 2, 3)
        shape = [batch, height * width, count]
        truth, weights = tf.reshape(truth, shape), tf.reshape(weights, shape)
        sums = [
            tf.reduce_sum(self._learning.heatmap_loss(tf.reshape(each, shape), truth, weights))
            for each in stacks
        ]
        # As in the reference, a weight below 1 does not count as an object.
        number = tf.reduce_sum(tf.floor(targets.weights))
        return tf.add_n(sums) / (len(sums) * tf.maximum(number, 1.0))

    def _loss_at(
        self, stacks: Sequence[tf.Tensor], vectors: Vectors, per_keypoint: bool
    ) -> tf.Tensor:
        """Returns the mean loss at cells, by their weights.

        Args:
          stacks: float32 [B, H, W, S], or [B, H, W, K * S] if `per_keypoint`.
          vectors: what the cells learn.
          per_keypoint: whether each keypoint has channels of its own.
        """
        batch, rows, count, near = dimensions(vectors.weights, 0, 1, 2, 3)
        size = vectors.values.shape[-1]
        targets = tf.reshape(vectors.values, [1, -1, size])
        weights = tf.reshape(vectors.weights, [1, -1])
        total = []
        for maps in stacks:
            values = gather_points(maps, tf.reshape(vectors.cells, [batch, -1, 2]))
            if per_keypoint:
                values = tf.reshape(values, [batch, rows, count, near, count, size])
                # The channels of the keypoint itself.
                values = tf.einsum('bmknks->bmkns', values)
            values = tf.reshape(values, [1, -1, size])
            total.append(tf.reduce_sum(self._learning.loss(values, targets, weights)))
        number = tf.reduce_sum(weights)
        return tf.add_n(total) / (len(total) * tf.maximum(number, 1.0))


def _take(values: tf.Tensor | None, indices: tf.Tensor) -> tf.Tensor | None:
    """Returns of values [B, C, K, ...] those of the candidates [B, N, K], [B, N, K, ...]."""
    if values is None:
        return None
    rest = values.shape[3:]
    by_keypoint = tf.transpose(values, [0, 2, 1, *range(3, 3 + len(rest))])  # [B, K, C, ...]
    taken = tf.gather(by_keypoint, tf.transpose(indices, [0, 2, 1]), axis=2, batch_dims=2)
    return tf.transpose(taken, [0, 2, 1, *range(3, 3 + len(rest))])


class KeypointTasks(Task):
    """The keypoints of several classes, which the detections have in one tensor.

    Args:
      tasks: one for each class.
    """

    def __init__(self, tasks: Sequence[Keypoints]):
        self.heads = {name: head for task in tasks for name, head in task.heads.items()}
        self.loss_names = tuple(name for task in tasks for name in task.loss_names)
        self._tasks = tuple(tasks)

    def losses(self, maps: Mapping[str, Sequence[tf.Tensor]], cells: Cells) -> dict[str, tf.Tensor]:
        return {
            name: loss for task in self._tasks for name, loss in task.losses(maps, cells).items()
        }

    def detect(self, maps: Mapping[str, tf.Tensor], found: Found) -> dict[str, tf.Tensor]:
        """Returns the keypoints of the class of each detection, normalized; all others are zero."""
        detected: dict[str, tf.Tensor] = {}
        scores = found.peaks.scores
        for task in self._tasks:
            values = task.detect(maps, found)
            if task.snapping.rescores:
                scores = task.rescore(scores, values[SCORES], found)
            for name, value in values.items():
                detected[name] = detected[name] + value if name in detected else value
        return {**detected, DetectionFields.SCORES: scores}
