"""Proposes anchors for a data set by k-means, in the form of the config's generator."""

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from google.protobuf import text_format

from object_detection.config.model_rules import AnchorOptions
from object_detection.dataset_tools.inspection import anchor_share
from object_detection.dataset_tools.inspection.anchor_share import AnchorShare
from object_detection.protos.anchor_generator_pb2 import AnchorGenerator
from object_detection.protos.model_pb2 import DetectionModel
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig

# Objects by which proposals are compared, and of which the shares are measured.
_NUM_COMPARED, _NUM_MEASURED = 4000, 50_000
_MAX_STEPS = 100
# Factors of anchor_scale that are tried: up to two octaves either way.
_FACTORS = [2.0 ** (i / 8) for i in range(-16, 17)]


class Counts(NamedTuple):
    """How many sizes and aspects to propose; 0 takes as many as the config has."""

    num_sizes: int = 0
    num_aspects: int = 0


_AS_THE_CONFIG = Counts()


class Proposal(NamedTuple):
    """Anchors, and how they fit.

    Attributes:
      generator: the proposed generator; the config's own where none was better.
      before, after: the fit of the config's anchors and of these.
    """

    generator: AnchorGenerator
    before: AnchorShare
    after: AnchorShare


def propose(
    options: AnchorOptions, rows: np.ndarray, counts: Counts = _AS_THE_CONFIG, seed: int = 0
) -> Proposal:
    """Proposes anchors that match more objects.

    Args:
      options: the config's anchors.
      rows: float32 [n, 7], of `Summary.boxes`; at least one.
      counts: numbers of sizes and aspects.
      seed: of the sample and of k-means.

    Raises:
      ValueError: if the anchor generator or the resizer is not valid.
    """
    rows = np.random.default_rng(seed).permutation(rows)[:_NUM_MEASURED]
    before = anchor_share.measure(options, rows)
    some = rows[:_NUM_COMPARED]
    kind = options.generator.WhichOneof('anchor_generator_oneof')
    frames, _ = anchor_share.frame_sizes(options, rows[:, :2])
    boxes = _Boxes(before.sizes.astype(np.float64), frames, counts, seed)
    candidates = list(_PROPOSERS[kind](options.generator, boxes))
    if not any(counts):
        candidates.insert(0, options.generator)
    best = max(candidates, key=lambda generator: _quality(options, generator, some))
    after = anchor_share.measure(options._replace(generator=best), rows)
    return Proposal(best, before, after)


def fragment(model: DetectionModel, options: AnchorOptions, generator: AnchorGenerator) -> str:
    """Returns the part of a config, as text, that sets the generator of a model."""
    config = TrainEvalPipelineConfig()
    target = getattr(config.model, model.WhichOneof('model'))
    getattr(target, options.path).CopyFrom(generator)
    return text_format.MessageToString(config)


class _Boxes(NamedTuple):
    """Sizes of boxes, [n, 2] height and width in pixels, and of the resized images they are on."""

    sizes: np.ndarray
    frames: np.ndarray
    counts: Counts
    seed: int

    def roots(self) -> np.ndarray:
        return np.sqrt(self.sizes.prod(axis=1))

    def aspects(self) -> np.ndarray:
        return self.sizes[:, 1] / self.sizes[:, 0]

    def means(self, values: np.ndarray, number: int) -> list[float]:
        """Returns the centres of clusters of positive values, ascending."""
        logs = np.log(values[values > 0])[:, np.newaxis]
        centers = k_means(logs, number, self.seed, lambda a, b: np.abs(a - b)[..., 0])
        return sorted(_rounded(np.exp(centers[:, 0])))


def k_means(
    points: np.ndarray, number: int, seed: int, distance: Callable[[np.ndarray, np.ndarray], Any]
) -> np.ndarray:
    """Returns the centres of clusters, [number, d], from points [n, d]; of fewer points, those.

    Args:
      points: their mean is the centre of a cluster.
      number: number of clusters.
      seed: of the first centres, which are drawn far from each other (k-means++).
      distance: of arrays [n, 1, d] and [1, k, d]; returns [n, k].
    """
    unique = np.unique(points, axis=0)
    if len(unique) <= number:
        return unique
    random = np.random.default_rng(seed)
    centers = points[random.integers(len(points))][np.newaxis]
    while len(centers) < number:
        nearest = distance(points[:, np.newaxis], centers[np.newaxis]).min(axis=1) ** 2
        drawn = random.choice(len(points), p=nearest / nearest.sum())
        centers = np.concatenate([centers, points[drawn][np.newaxis]])
    for _ in range(_MAX_STEPS):
        chosen = distance(points[:, np.newaxis], centers[np.newaxis]).argmin(axis=1)
        moved = np.stack(
            [
                points[chosen == i].mean(axis=0) if (chosen == i).any() else centers[i]
                for i in range(number)
            ]
        )
        if np.allclose(moved, centers):
            break
        centers = moved
    return centers


def _quality(
    options: AnchorOptions, generator: AnchorGenerator, rows: np.ndarray
) -> tuple[float, float]:
    share = anchor_share.measure(options._replace(generator=generator), rows)
    return -share.unmatched, float(share.best_iou.mean())


def _copy(generator: AnchorGenerator) -> tuple[AnchorGenerator, Any]:
    """Returns a copy, and the message in it that is set."""
    copy = AnchorGenerator()
    copy.CopyFrom(generator)
    return copy, getattr(copy, copy.WhichOneof('anchor_generator_oneof'))


def _grid(generator: AnchorGenerator, boxes: _Boxes) -> Iterator[AnchorGenerator]:
    own = generator.grid_anchor_generator
    base, shape = math.sqrt(own.height * own.width), own.height / own.width
    num_sizes = boxes.counts.num_sizes or len(own.scales)
    num_aspects = boxes.counts.num_aspects or len(own.aspect_ratios)
    scales = boxes.means(boxes.roots() / base, num_sizes)
    aspects = boxes.means(boxes.aspects() * shape, num_aspects)
    for chosen in itertools.product(
        *_alternatives((list(own.scales), scales), (list(own.aspect_ratios), aspects), boxes.counts)
    ):
        copy, config = _copy(generator)
        config.scales[:], config.aspect_ratios[:] = chosen
        yield copy


def _multiscale(generator: AnchorGenerator, boxes: _Boxes) -> Iterator[AnchorGenerator]:
    own = generator.multiscale_anchor_generator
    num_aspects = boxes.counts.num_aspects or len(own.aspect_ratios)
    aspects = boxes.means(boxes.aspects(), num_aspects)
    for ratios in (aspects,) if boxes.counts.num_aspects else (list(own.aspect_ratios), aspects):
        for factor in _FACTORS:
            copy, config = _copy(generator)
            config.aspect_ratios[:] = ratios
            config.anchor_scale = _rounded([own.anchor_scale * factor])[0]
            config.scales_per_octave = boxes.counts.num_sizes or own.scales_per_octave
            yield copy


def _ssd(generator: AnchorGenerator, boxes: _Boxes) -> Iterator[AnchorGenerator]:
    own = generator.ssd_anchor_generator
    base = math.sqrt(own.base_anchor_height * own.base_anchor_width)
    shape = own.base_anchor_height / own.base_anchor_width
    relative = boxes.roots() / boxes.frames.min(axis=1) / base
    scales = boxes.means(relative, own.num_layers)
    scales += [scales[-1]] * (own.num_layers - len(scales))
    num_aspects = boxes.counts.num_aspects or len(own.aspect_ratios)
    aspects = boxes.means(boxes.aspects() * shape, num_aspects)
    for ratios in (aspects,) if boxes.counts.num_aspects else (list(own.aspect_ratios), aspects):
        copy, config = _copy(generator)
        config.scales[:], config.aspect_ratios[:] = scales, ratios
        config.ClearField('min_scale')
        config.ClearField('max_scale')
        yield copy


def _flexible(generator: AnchorGenerator, boxes: _Boxes) -> Iterator[AnchorGenerator]:
    copy, config = _copy(generator)
    grids = sorted(config.anchor_grid, key=lambda grid: grid.height_stride * grid.width_stride)
    number = sum(len(grid.base_sizes) for grid in grids)
    sizes = boxes.sizes[(boxes.sizes > 0).all(axis=1)][:_NUM_MEASURED]
    centers = np.exp(k_means(np.log(sizes), number, boxes.seed, _log_iou_distance))
    centers = centers[np.argsort(centers.prod(axis=1))]
    for grid in grids:
        count = min(len(grid.base_sizes), len(centers))
        # Fewer clusters than anchors: the largest stand on several grids.
        chosen = centers[:count]
        centers = centers[count:] if len(centers) > count else centers[-1:]
        grid.base_sizes[:] = _rounded(np.sqrt(chosen.prod(axis=1)))
        grid.aspect_ratios[:] = _rounded(chosen[:, 1] / chosen[:, 0])
    yield copy


def _alternatives(sizes, aspects, counts: Counts) -> tuple:
    """Returns the lists to try: own and new ones, but only new ones of a number that was given."""
    return (
        sizes[1:] if counts.num_sizes else sizes,
        aspects[1:] if counts.num_aspects else aspects,
    )


def _log_iou_distance(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Returns 1 - IoU of boxes with one centre, from logarithms of their sizes."""
    common = np.exp(np.minimum(first, second).sum(axis=-1))
    union = np.exp(first.sum(axis=-1)) + np.exp(second.sum(axis=-1)) - common
    return 1 - common / union


def _rounded(values: Any) -> list[float]:
    """Returns values with 3 significant digits."""
    return [float(f'{value:.3g}') for value in values]


_PROPOSERS: dict[str, Callable[[AnchorGenerator, _Boxes], Iterator[AnchorGenerator]]] = {
    'grid_anchor_generator': _grid,
    'multiscale_anchor_generator': _multiscale,
    'ssd_anchor_generator': _ssd,
    'flexible_grid_anchor_generator': _flexible,
}
