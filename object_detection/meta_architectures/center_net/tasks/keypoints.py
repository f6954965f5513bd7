"""Keypoints of the objects of one class (https://arxiv.org/abs/1904.07850, section 4.2)."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from object_detection.core.fields import DetectionFields
from object_detection.core.fields import InputFields as F
from object_detection.core.loss_sum import LossSum, add
from object_detection.core.shapes import dimensions
from object_detection.errors import expected
from object_detection.meta_architectures.center_net import heat_maps
from object_detection.meta_architectures.center_net.heat_maps import Peaks
from object_detection.meta_architectures.center_net.tasks.object_center import ObjectPoints
from object_detection.meta_architectures.center_net.tasks.snapping import (
    MIN_OVERLAP,
    Candidates,
    Ranking,
    Snapping,
    best_cells,
    snap,
)
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
# A coordinate beyond all others.
_FAR = 1e30
KEYPOINTS, SCORES = DetectionFields.KEYPOINTS, DetectionFields.KEYPOINT_SCORES
DEPTHS = DetectionFields.KEYPOINT_DEPTHS


@dataclasses.dataclass(frozen=True)
class Layout:
    """Which keypoints a task has.

    Attributes:
      name: name of the task.
      class_index: its class, 0-based.
      indices: positions of its keypoints among all keypoints of the ground truth.
      num_total: the number of keypoints of detections, beyond the positions of all tasks.
      deviations: factors of the widths of the peaks.
      center_weights: weights of the keypoints whose mean is the centre of an object; () takes the
        centre of its box.
    """

    name: str
    class_index: int
    indices: tuple[int, ...]
    num_total: int
    deviations: tuple[float, ...]
    center_weights: tuple[float, ...] = ()


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


class Keypoints:
    """Predicts where the keypoints of an object are: as peaks, and as vectors from its centre.

    Args:
      layout: the keypoints.
      heads: by the last part of their names: heatmap, offset, regression and, with depths, depth.
      learning: the losses.
      snapping: the post-processing.
    """

    def __init__(
        self, *, layout: Layout, heads: Mapping[str, Head], learning: Learning, snapping: Snapping
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

    def loss_sums(
        self, maps: Mapping[str, Sequence[tf.Tensor]], cells: Cells
    ) -> dict[str, LossSum]:
        targets = self.targets(cells)
        options = self._learning
        radius = options.offset_radius
        stacks = {part: maps[name] for part, name in self.parts.items()}
        sums = {
            _HEATMAP: self._heatmap_losses(stacks[_HEATMAP], cells, targets),
            _OFFSET: self._losses_at(
                stacks[_OFFSET],
                self.offset_targets(cells, targets, radius),
                options.per_keypoint_offset,
            ),
            _REGRESSION: self._losses_at(
                stacks[_REGRESSION], self.regression_targets(cells, targets, radius), True
            ),
        }
        if options.predicts_depth:
            sums[_DEPTH] = self._losses_at(
                stacks[_DEPTH],
                self.depth_targets(cells, targets, radius),
                options.per_keypoint_depth,
            )
        return {
            f'Loss/{self.parts[part]}': add(*found, options.weights[part])
            for part, found in sums.items()
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

    def enclosing_boxes(self, points: tf.Tensor) -> tf.Tensor:
        """Returns the boxes [B, N, 4] around the task's own of all keypoints [B, N, P, 2]."""
        own = tf.gather(points, self.layout.indices, axis=2)
        boxes = tf.concat([tf.reduce_min(own, axis=2), tf.reduce_max(own, axis=2)], axis=-1)
        return tf.clip_by_value(boxes, 0.0, 1.0)

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
        regressed = self.regressed(maps, found)
        if self.snapping.ranking is Ranking.GAUSSIAN_WEIGHTED_CONST:
            return self._best_of_boxes(maps, regressed, found.boxes)
        return snap(self.snapping, regressed, self.candidates(maps), found.boxes)

    def _best_of_boxes(
        self, maps: Mapping[str, tf.Tensor], regressed: tf.Tensor, boxes: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor | None]:
        """See `refine`; where a box holds no cell, its keypoints stay where they are."""
        scores = tf.sigmoid(maps[self.parts[_HEATMAP]])
        peaks = best_cells(self.snapping, regressed, scores, boxes)
        batch, number, count = dimensions(regressed, 0, 1, 2)
        points, depths = self._at_peaks(maps, peaks)
        points = tf.reshape(points, [batch, number, count, 2])
        scores = tf.reshape(peaks.scores, [batch, number, count])
        is_found = scores > 0.0
        if depths is not None:
            depths = tf.where(is_found, tf.reshape(depths, [batch, number, count]), 0.0)
        return (
            tf.where(is_found[..., tf.newaxis], points, regressed),
            tf.where(is_found, scores, self.snapping.unmatched_score),
            depths,
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

        points, depths = self._at_peaks(maps, peaks)
        if depths is not None:
            depths = by_candidate(depths)
        return Candidates(by_candidate(points), by_candidate(peaks.scores), depths)

    def _at_peaks(
        self, maps: Mapping[str, tf.Tensor], peaks: Peaks
    ) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Returns points [B, n, 2], in cells, and depths [B, n] or None, of peaks [B, n]."""
        cells = tf.cast(tf.stack([peaks.rows, peaks.columns], axis=-1), tf.float32)
        offsets = self._of_channel(maps[self.parts[_OFFSET]], peaks, 2)
        depths = None
        if self._learning.predicts_depth:
            depths = self._of_channel(maps[self.parts[_DEPTH]], peaks, 1)[..., 0]
        return cells + offsets, depths

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
        return _points_of(self.layout, cells)

    def object_points(self, cells: Cells) -> ObjectPoints:
        """Returns the weighted means of the keypoints of objects, which then are their centres.

        The sizes are those of the boxes around all labelled keypoints of an object. Objects of
        other classes, and those without any of the keypoints that count, have no peaks.
        """
        targets, truth = self.targets(cells), cells.groundtruth
        weights = targets.weights * tf.constant(self.layout.center_weights)  # [B, M, K]
        total = tf.reduce_sum(weights, axis=-1, keepdims=True)
        weighted = tf.reduce_sum(targets.points * weights[..., tf.newaxis], axis=2)
        every = dataclasses.replace(self.layout, indices=tuple(range(truth.keypoints.shape[2])))
        points, of_points = _points_of(every, cells)
        is_labelled = (of_points > 0.0)[..., tf.newaxis]
        low = tf.reduce_min(tf.where(is_labelled, points, _FAR), axis=2)
        high = tf.reduce_max(tf.where(is_labelled, points, -_FAR), axis=2)
        heights = truth.classes[..., self.layout.class_index] * truth.weights
        return ObjectPoints(
            tf.math.divide_no_nan(weighted, total),
            tf.maximum(high - low, 0.0),
            tf.where(total[..., 0] > 0.0, heights, 0.0),
        )

    def heat_map_targets(self, cells: Cells, targets: Targets) -> tf.Tensor:
        """Returns the heat maps of the ground truth, float32 [B, H, W, K]."""
        _, sizes = centers(cells.boxes)
        widths = heat_maps.peak_widths(sizes[..., 0], sizes[..., 1], MIN_OVERLAP)  # [B, M]
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
        if self.layout.center_weights:
            middles = self.object_points(cells).points
        else:
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

    def _heatmap_losses(
        self, stacks: Sequence, cells: Cells, targets: Targets
    ) -> tuple[list[tf.Tensor], tf.Tensor]:
        """Returns the losses of each stack, and what divides them."""
        truth = self.heat_map_targets(cells, targets)
        weights = self.learnt_cells(cells, targets) * cells.valid[..., tf.newaxis]
        batch, height, width, count = dimensions(truth, 0, 1, 2, 3)
        shape = [batch, height * width, count]
        truth, weights = tf.reshape(truth, shape), tf.reshape(weights, shape)
        losses = [
            self._learning.heatmap_loss(tf.reshape(each, shape), truth, weights) for each in stacks
        ]
        # As in the reference, a weight below 1 does not count as an object.
        return losses, tf.reduce_sum(tf.floor(targets.weights))

    def _losses_at(
        self, stacks: Sequence[tf.Tensor], vectors: Vectors, per_keypoint: bool
    ) -> tuple[list[tf.Tensor], tf.Tensor]:
        """Returns the losses at cells of each stack, and what divides them: the sum of weights.

        Args:
          stacks: float32 [B, H, W, S], or [B, H, W, K * S] if `per_keypoint`.
          vectors: what the cells learn.
          per_keypoint: whether each keypoint has channels of its own.
        """
        batch, rows, count, near = dimensions(vectors.weights, 0, 1, 2, 3)
        size = vectors.values.shape[-1]
        targets = tf.reshape(vectors.values, [1, -1, size])
        weights = tf.reshape(vectors.weights, [1, -1])
        losses = []
        for maps in stacks:
            values = gather_points(maps, tf.reshape(vectors.cells, [batch, -1, 2]))
            if per_keypoint:
                values = tf.reshape(values, [batch, rows, count, near, count, size])
                # The channels of the keypoint itself.
                values = tf.einsum('bmknks->bmkns', values)
            values = tf.reshape(values, [1, -1, size])
            losses.append(self._learning.loss(values, targets, weights))
        return losses, tf.reduce_sum(weights)


def _points_of(layout: Layout, cells: Cells) -> Targets:
    """Returns the keypoints of a layout; see `Keypoints.targets`."""
    truth = cells.groundtruth
    if truth.keypoints is None:
        raise expected(
            layout.name, 'keypoints in the ground truth; set num_keypoints of the input readers'
        )
    indices = list(layout.indices)
    points = tf.gather(truth.keypoints, indices, axis=2)  # [B, M, K, 2]
    is_labelled = ~tf.reduce_any(tf.math.is_nan(points), axis=-1)
    of_class = truth.classes[..., layout.class_index] * truth.weights  # [B, M]
    weights = tf.where(is_labelled, of_class[..., tf.newaxis], 0.0)
    if F.GROUNDTRUTH_KEYPOINT_WEIGHTS in truth.fields:
        given = truth.fields[F.GROUNDTRUTH_KEYPOINT_WEIGHTS]
        weights *= tf.gather(given, indices, axis=2)
    scale = tf.stack([tf.cast(side, tf.float32) for side in cells.size])
    return Targets(tf.where(is_labelled[..., tf.newaxis], points * scale, 0.0), weights)


class KeypointTasks(Task):
    """The keypoints of several classes, which the detections have in one tensor.

    Args:
      tasks: one for each class.
    """

    needs_keypoints = True

    def __init__(self, tasks: Sequence[Keypoints]):
        self.heads = {name: head for task in tasks for name, head in task.heads.items()}
        self.loss_names = tuple(name for task in tasks for name in task.loss_names)
        self.heat_maps = tuple(task.parts[_HEATMAP] for task in tasks)
        self._tasks = tuple(tasks)

    def loss_sums(
        self, maps: Mapping[str, Sequence[tf.Tensor]], cells: Cells
    ) -> dict[str, LossSum]:
        return {
            name: each for task in self._tasks for name, each in task.loss_sums(maps, cells).items()
        }

    def detect(self, maps: Mapping[str, tf.Tensor], found: Found) -> dict[str, tf.Tensor]:
        """Returns the keypoints of the class of each detection, normalized; all others are zero.

        Without a task for boxes, the box of a detection is the one that encloses its keypoints.
        """
        detected: dict[str, tf.Tensor] = {}
        scores = found.peaks.scores
        for task in self._tasks:
            values = task.detect(maps, found)
            if found.boxes is None:
                values[DetectionFields.BOXES] = task.enclosing_boxes(values[KEYPOINTS])
            if task.snapping.rescores:
                scores = task.rescore(scores, values[SCORES], found)
            for name, value in values.items():
                detected[name] = detected[name] + value if name in detected else value
        return {**detected, DetectionFields.SCORES: scores}
