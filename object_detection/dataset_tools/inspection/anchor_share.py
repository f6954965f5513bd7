"""How well the anchors of a config fit the objects of a data set.

Proposes anchors for a data set by k-means, in the form of the config's generator.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from google.protobuf import text_format

from object_detection.builders import anchor_generator_builder, image_resizer_builder
from object_detection.config.families import AnchorOptions
from object_detection.protos.anchor_generator_pb2 import AnchorGenerator
from object_detection.protos.model_pb2 import DetectionModel
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.targets.default_boxes import SsdAnchorGenerator

# Cells of the first map of most SSDs, whose anchors do not say their distance, are so many pixels;
# the other maps have half as many cells each.
_SSD_STRIDE = 16
_CHUNK = 4096


class Grid(NamedTuple):
    """The anchors of one feature map.

    Attributes:
      sizes: float64 [A, 2], height and width in pixels of the anchors of a cell.
      offset: float64 [2], (y, x) centre of the first cell.
      stride: float64 [2], distance between cells.
      cells: int64 [2], number of cells.
    """

    sizes: np.ndarray
    offset: np.ndarray
    stride: np.ndarray
    cells: np.ndarray


@dataclasses.dataclass(frozen=True)
class AnchorShare:
    """The fit of anchors to objects.

    Attributes:
      threshold: least IoU of an anchor that is matched.
      best_iou: float32 [n], of each object with the anchor that fits it best.
      classes: int64 [n], their ids, or -1.
      sizes: float32 [n, 2], height and width in pixels of the resized image.
    """

    threshold: float
    best_iou: np.ndarray
    classes: np.ndarray
    sizes: np.ndarray

    @property
    def unmatched(self) -> float:
        """The share of objects without a matching anchor; 0 if there are no objects."""
        return self.share_below(self.threshold)

    def share_below(self, iou: float) -> float:
        """Returns the share of objects whose best anchor has a lower IoU; 0 without objects."""
        return float((self.best_iou < iou).mean()) if len(self.best_iou) else 0.0

    def by_class(self, iou: float) -> Iterator[tuple[int, int, float]]:
        """Yields id, number of objects and share of a lower best IoU, the worst class first."""
        rows = []
        for value in np.unique(self.classes):
            chosen = self.best_iou[self.classes == value]
            rows.append((int(value), len(chosen), float((chosen < iou).mean())))
        yield from sorted(rows, key=lambda row: -row[2])

    def to_dict(self, class_name: Callable[[Any], str]) -> dict[str, Any]:
        """Returns everything as values of JSON."""
        return {
            'threshold': self.threshold,
            'objects': len(self.best_iou),
            'unmatched_share': round(self.unmatched, 6),
            'mean_best_iou': round(float(self.best_iou.mean()), 6) if len(self.best_iou) else None,
            'unmatched_by_class': {
                class_name(value): {'objects': count, 'unmatched_share': round(share, 6)}
                for value, count, share in self.by_class(self.threshold)
            },
        }


def measure(options: AnchorOptions, rows: np.ndarray) -> AnchorShare:
    """Compares objects with the anchors of an untrained model.

    An anchor counts with its full extent, also where a training clips it at the edge of the image.
    Images are as after the resizer of the config, without augmentation.

    Args:
      options: the anchors.
      rows: float32 [n, 7], of `Summary.boxes`.

    Raises:
      ValueError: if the anchor generator or the resizer is not valid.
    """
    resized, padded = frame_sizes(options, rows[:, :2])
    boxes = rows[:, 2:6].astype(np.float64) * np.concatenate([resized, resized], axis=1)
    best = np.zeros(len(rows), np.float32)
    grids = Grids(options)
    for size in np.unique(padded, axis=0):
        chosen = np.flatnonzero((padded == size).all(axis=1))
        levels = grids.of_size(*map(int, size))
        for start in range(0, len(chosen), _CHUNK):
            part = chosen[start : start + _CHUNK]
            window = size if options.is_inside_only else None
            best[part] = np.max([_best_iou(boxes[part], grid, window) for grid in levels], axis=0)
    sizes = (boxes[:, 2:] - boxes[:, :2]).astype(np.float32)
    return AnchorShare(options.threshold, best, rows[:, 6].astype(np.int64), sizes)


def frame_sizes(options: AnchorOptions, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the sizes of images after the resizer, without and with padding.

    Args:
      options: names the resizer.
      images: [n, 2], height and width in pixels.

    Returns:
      Two arrays int64 [n, 2].
    """
    resizer = image_resizer_builder.build(options.resizer)
    unique, places = np.unique(images.astype(np.int64), axis=0, return_inverse=True)
    resized, padded = np.zeros_like(unique), np.zeros_like(unique)
    for i, (height, width) in enumerate(unique.tolist()):
        size = [int(side) for side in resizer.resized_size(height, width)]
        resized[i] = size
        padded[i] = [int(side) for side in resizer.padded_size(*size)]
    places = places.reshape(-1)
    return resized[places], padded[places]


class Grids:
    """Finds the anchors of images of any size; `options` as for `measure`."""

    def __init__(self, options: AnchorOptions):
        resizer = image_resizer_builder.build(options.resizer)
        shape = resizer.static_shape if options.sees_static_size else None
        config = type(options.generator)()
        config.CopyFrom(options.generator)
        kind = config.WhichOneof('anchor_generator_oneof')
        if kind in ('multiscale_anchor_generator', 'flexible_grid_anchor_generator'):
            # Relative to the image, the same anchors had other numbers in each image.
            getattr(config, kind).normalize_coordinates = False
        self._generator = anchor_generator_builder.build(config).for_images(shape and shape[:2])
        self._fixed: list[Grid] | None = None
        self._map_sizes = self._halved_sizes
        if isinstance(self._generator, SsdAnchorGenerator) and options.map_sizes is not None:
            self._map_sizes = options.map_sizes()

    def of_size(self, height: int, width: int) -> list[Grid]:
        """Returns the anchors on an image of a size in pixels, padding included."""
        if isinstance(self._generator, SsdAnchorGenerator):
            return self._of_ssd(height, width)
        if self._fixed is None:
            self._fixed = self._place([(2, 2)] * self._num_levels(), height, width)
        size = np.array([height, width])
        return [
            grid._replace(cells=np.ceil(size / grid.stride).astype(np.int64))
            for grid in self._fixed
        ]

    def _num_levels(self) -> int:
        return len(self._generator.num_anchors_per_location())

    def _halved_sizes(self, height: int, width: int) -> list[tuple[int, ...]]:
        sizes = [(-(-height // _SSD_STRIDE), -(-width // _SSD_STRIDE))]
        while len(sizes) < self._num_levels():
            sizes.append(tuple((side + 1) // 2 for side in sizes[-1]))
        return sizes

    def _of_ssd(self, height: int, width: int) -> list[Grid]:
        size = np.array([height, width], np.float64)
        return [
            grid._replace(
                sizes=grid.sizes * size, offset=grid.offset * size, stride=grid.stride * size
            )
            for grid in self._place(self._map_sizes(height, width), height, width)
        ]

    def _place(self, shapes: list[tuple[int, int]], height: int, width: int) -> list[Grid]:
        """Returns the grids that the generator makes, in its own unit."""
        levels = self._generator.generate(shapes, height, width)
        counts = self._generator.num_anchors_per_location()
        grids = []
        for anchors, shape, count in zip(levels, shapes, counts, strict=True):
            corners = anchors.numpy().astype(np.float64).reshape(*shape, count, 4)
            centers = (corners[:, :, 0, :2] + corners[:, :, 0, 2:]) / 2
            stride = np.array(
                [
                    centers[1, 0, 0] - centers[0, 0, 0] if shape[0] > 1 else 1.0,
                    centers[0, 1, 1] - centers[0, 0, 1] if shape[1] > 1 else 1.0,
                ]
            )
            sizes = corners[0, 0, :, 2:] - corners[0, 0, :, :2]
            grids.append(Grid(sizes, centers[0, 0], stride, np.array(shape)))
        return grids


def _best_iou(boxes: np.ndarray, grid: Grid, window: np.ndarray | None) -> np.ndarray:
    """Returns the IoU of each box [n, 4] with the best anchor of a grid, float64 [n].

    Of the anchors of one size, the one whose centre is nearest along each axis overlaps a box most.

    Args:
      boxes: in pixels.
      grid: the anchors.
      window: size of the image, which anchors must not exceed; None for all anchors.
    """
    sizes = (boxes[:, 2:] - boxes[:, :2])[:, np.newaxis]
    centers = ((boxes[:, 2:] + boxes[:, :2]) / 2)[:, np.newaxis]
    half = grid.sizes / 2  # [A, 2]
    lowest, highest = np.zeros_like(half), np.broadcast_to(grid.cells - 1.0, half.shape)
    if window is not None:
        # Float32 arithmetic of the generator is exact to about 1e-3 pixels.
        lowest = np.maximum(lowest, np.ceil((half - grid.offset - 1e-3) / grid.stride))
        highest = np.minimum(highest, np.floor((window - half - grid.offset + 1e-3) / grid.stride))
    cell = np.clip(np.rint((centers - grid.offset) / grid.stride), lowest, highest)
    anchors = grid.offset + cell * grid.stride  # [n, A, 2]
    overlap = np.minimum(centers + sizes / 2, anchors + half) - np.maximum(
        centers - sizes / 2, anchors - half
    )
    common = np.maximum(overlap, 0).prod(axis=-1)
    union = sizes.prod(axis=-1) + grid.sizes.prod(axis=-1) - common
    iou = common / np.maximum(union, 1e-9)
    return np.where((lowest <= highest).all(axis=-1), iou, 0.0).max(axis=-1)


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
    before = measure(options, rows)
    some = rows[:_NUM_COMPARED]
    kind = options.generator.WhichOneof('anchor_generator_oneof')
    frames, _ = frame_sizes(options, rows[:, :2])
    boxes = _Boxes(before.sizes.astype(np.float64), frames, counts, seed)
    candidates = list(_PROPOSERS[kind](options.generator, boxes))
    if not any(counts):
        candidates.insert(0, options.generator)
    best = max(candidates, key=lambda generator: _quality(options, generator, some))
    after = measure(options._replace(generator=best), rows)
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

    def scales_to_try(self, own: Sequence[float], values: np.ndarray) -> list[list[float]]:
        """Returns the config's own scales, unless a number is given, and new ones of the boxes."""
        return self._to_try(own, values, self.counts.num_sizes)

    def aspects_to_try(self, own: Sequence[float], shape: float = 1.0) -> list[list[float]]:
        """Returns the same of the aspects of anchors; `shape` is the aspect of the base anchor."""
        values = self.sizes[:, 1] / self.sizes[:, 0] * shape
        return self._to_try(own, values, self.counts.num_aspects)

    def _to_try(self, own: Sequence[float], values: np.ndarray, number: int) -> list[list[float]]:
        new = self.means(values, number or len(own))
        return [new] if number else [list(own), new]

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
    share = measure(options._replace(generator=generator), rows)
    return -share.unmatched, float(share.best_iou.mean())


def _copy(generator: AnchorGenerator) -> tuple[AnchorGenerator, Any]:
    """Returns a copy, and the message in it that is set."""
    copy = AnchorGenerator()
    copy.CopyFrom(generator)
    return copy, getattr(copy, copy.WhichOneof('anchor_generator_oneof'))


def _grid(generator: AnchorGenerator, boxes: _Boxes) -> Iterator[AnchorGenerator]:
    own = generator.grid_anchor_generator
    base, shape = math.sqrt(own.height * own.width), own.height / own.width
    scales = boxes.scales_to_try(own.scales, boxes.roots() / base)
    for chosen in itertools.product(scales, boxes.aspects_to_try(own.aspect_ratios, shape)):
        copy, config = _copy(generator)
        config.scales[:], config.aspect_ratios[:] = chosen
        yield copy


def _multiscale(generator: AnchorGenerator, boxes: _Boxes) -> Iterator[AnchorGenerator]:
    own = generator.multiscale_anchor_generator
    for ratios in boxes.aspects_to_try(own.aspect_ratios):
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
    for ratios in boxes.aspects_to_try(own.aspect_ratios, shape):
        copy, config = _copy(generator)
        config.scales[:], config.aspect_ratios[:] = scales, ratios
        config.ClearField('min_scale')
        config.ClearField('max_scale')
        if len(ratios) != len(own.aspect_ratios):
            config.ClearField('num_aspect_ratios')
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
