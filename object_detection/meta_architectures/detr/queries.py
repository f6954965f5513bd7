"""The queries of the decoder: selected cells, learned ones, and objects with noise."""

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

import keras
import tensorflow as tf

from object_detection.core import sampling
from object_detection.core.groundtruth import Groundtruth
from object_detection.core.shapes import dimensions
from object_detection.errors import expected
from object_detection.meta_architectures.detr import boxes as box_ops
from object_detection.meta_architectures.detr.predictions import Noisy, Selection
from object_detection.models.composite import Composite
from object_detection.models.transformer import Mlp, dense, layer_norm
from object_detection.targets.matchers import IGNORED, UNMATCHED
from object_detection.targets.targets import gather_matched

# Side of the box of a cell of the finest map, as a share of the image; it doubles with each map.
_CELL_BOX = 0.05
# Boxes of cells must be this far from the edges of the image.
_MARGIN = 0.01
# Score of all classes in the beginning.
_PRIOR = 0.01


def prior_bias() -> keras.initializers.Initializer:
    """The offset of class logits with which all scores begin at 0.01."""
    return keras.initializers.Constant(-math.log(1 / _PRIOR - 1))


class Tokens(NamedTuple):
    """The cells of the maps of an encoder, fine to coarse: N in all.

    Attributes:
      values: [B, N, C].
      sizes: (height, width) of each map.
      seen: bool [B, N], False beyond the true images; None if all are seen.
      positions: [N, C] or [B, N, C], where cells are, for attention to all of them; None without.
      shares: float32 [B, 2], how much of the width and the height of the map is seen; None is all.
    """

    values: tf.Tensor
    sizes: Sequence[tuple]
    seen: tf.Tensor | None = None
    positions: tf.Tensor | None = None
    shares: tf.Tensor | None = None


class Queries(NamedTuple):
    """The queries that the decoder begins with: D noisy ones, then G groups of Q.

    Attributes:
      contents: [B, Q', C].
      boxes: float32 [B, Q', 4], (x, y, width, height) as shares; None without boxes.
      positions: [B, Q', C], what stands for boxes where there are none.
      visible: bool [B, 1, Q', Q'], which queries a query sees; None is all of its group.
      num_groups: G; queries of a group see those of their own group alone.
      selection: what was predicted to select them; None if they were not selected.
    """

    contents: tf.Tensor
    boxes: tf.Tensor | None
    positions: tf.Tensor | None = None
    visible: tf.Tensor | None = None
    num_groups: int = 1
    selection: Selection | None = None


@dataclasses.dataclass(frozen=True)
class QueryOptions:
    """Sizes of the queries; see the message DetrQueries.

    Attributes:
      width: C.
      num_classes: K, of the logits.
      count: Q.
      groups: G, of training.
      learned_contents, learned_boxes: whether queries have contents, and moves of their boxes, of
        their own.
      denoising: number of pairs of noisy queries.
      label_noise, box_noise: see the message.
      epsilon: of the norms.
    """

    width: int
    num_classes: int
    count: int
    groups: int = 1
    learned_contents: bool = False
    learned_boxes: bool = False
    denoising: int = 0
    label_noise: float = 0.5
    box_noise: float = 1.0
    epsilon: float = 1e-5


class CellHead(Composite):
    """Class logits and box codes of cells, of one group."""

    def __init__(self, options: QueryOptions, name: str):
        super().__init__(name=name)
        self.output_layer = dense(options.width, 'output')
        self.norm = layer_norm(options.epsilon, 'norm')
        self.score = dense(options.num_classes, 'score', bias_initializer=prior_bias())
        self.bbox = Mlp((options.width, options.width, 4), 'bbox', last_initializer='zeros')

    def call(self, cells):
        """[B, N, C] -> contents [B, N, C], and float32 [B, N, K] and [B, N, 4]."""
        contents = self.norm(self.output_layer(cells))
        found = (self.score(contents), self.bbox(contents))
        return contents, *(tf.cast(each, tf.float32) for each in found)


class SelectedQueries(keras.layers.Layer):
    """The queries that begin with the cells whose best class is best (RT-DETR, RF-DETR).

    With `learned_boxes` the boxes of cells are moved in units of their sizes, as in RF-DETR, else
    as logits.
    """

    def __init__(self, options: QueryOptions, name: str = 'queries'):
        super().__init__(name=name, autocast=False)
        self.options = options
        self.heads = [CellHead(options, f'cells_{i}') for i in range(options.groups)]
        self.build()

    def build(self):
        options, normal = self.options, keras.initializers.RandomNormal
        rows = options.groups * options.count
        if options.learned_contents:
            self.contents = self.add_weight(
                shape=(rows, options.width), initializer=normal(), name='contents'
            )
        if options.learned_boxes:
            self.moves = self.add_weight(
                shape=(rows, 4), initializer='zeros', name='boxes', autocast=False
            )
        if options.denoising:
            self.class_contents = self.add_weight(
                shape=(options.num_classes + 1, options.width),
                initializer=normal(),
                name='class_contents',
            )

    def begin(self, tokens: Tokens, noisy: Noisy | None = None, training: bool = False) -> Queries:
        """Returns the queries that the decoder begins with."""
        options = self.options
        groups = options.groups if training else 1
        anchors, is_inside = self._anchors(tokens)
        cells = tf.where(
            is_inside[..., tf.newaxis], tokens.values, tf.zeros([], tokens.values.dtype)
        )
        parts = [self._select(head, cells, anchors, is_inside) for head in self.heads[:groups]]
        contents, *predicted = zip(*parts, strict=True)
        selection = Selection(
            *(tf.concat(each, axis=1) for each in predicted[:2]),
            *(each[0] for each in predicted[2:]),
        )
        contents = tf.concat(contents, axis=1)
        boxes = tf.stop_gradient(selection.boxes)
        (batch,) = dimensions(contents, 0)
        rows = groups * options.count
        if options.learned_contents:
            learned = tf.cast(self.contents, tokens.values.dtype)
            contents = tf.tile(learned[tf.newaxis, :rows], [batch, 1, 1])
        else:
            contents = tf.stop_gradient(contents)
        if options.learned_boxes:
            boxes = box_ops.moved(boxes, self.moves[tf.newaxis, :rows])
        mask = None
        if noisy is not None:
            # A product, whose gradient is dense.
            labels = tf.one_hot(noisy.classes, options.num_classes + 1, dtype=contents.dtype)
            noise = tf.matmul(labels, tf.cast(self.class_contents, contents.dtype))
            contents = tf.concat([noise, contents], axis=1)
            boxes = tf.concat([tf.sigmoid(noisy.boxes), boxes], axis=1)
            mask = _denoising_mask(noisy.groups, rows)
        return Queries(contents, boxes, None, mask, groups, selection)

    def _anchors(self, tokens: Tokens) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the boxes of cells [b, N, 4], and which are inside [b, N]; b is 1 or B."""
        rows = []
        for level, (height, width) in enumerate(tokens.sizes):
            y, x = (
                (tf.range(count, dtype=tf.float32) + 0.5) / tf.cast(count, tf.float32)
                for count in (height, width)
            )
            grid = tf.stack(tf.meshgrid(x, y), axis=-1)
            sides = tf.fill(tf.shape(grid), _CELL_BOX * 2.0**level)
            rows.append(tf.reshape(tf.concat([grid, sides], axis=-1), [height * width, 4]))
        anchors = tf.concat(rows, axis=0)[tf.newaxis]
        if tokens.shares is not None:
            # Centres as shares of the true images.
            centers = anchors[..., :2] / tokens.shares[:, tf.newaxis]
            sides = tf.broadcast_to(anchors[..., 2:], tf.shape(centers))
            anchors = tf.concat([centers, sides], axis=-1)
        is_inside = tf.reduce_all((anchors > _MARGIN) & (anchors < 1.0 - _MARGIN), axis=-1)
        if tokens.seen is not None:
            is_inside &= tokens.seen
        return anchors, is_inside

    def _select(self, head: CellHead, cells, anchors, is_inside) -> tuple[tf.Tensor, ...]:
        contents, scores, codes = head(cells)
        best_scores = tf.reduce_max(scores, axis=-1)
        if self.options.learned_boxes:
            best_scores = tf.where(is_inside, best_scores, -float('inf'))
            boxes = box_ops.moved(tf.where(is_inside[..., tf.newaxis], anchors, 0.0), codes)
            found = boxes
        else:
            offsets = tf.math.log(anchors / (1.0 - anchors))
            found = codes + tf.where(is_inside[..., tf.newaxis], offsets, tf.float32.max)
            boxes = tf.sigmoid(found)
        if scores.shape[1] is not None and scores.shape[1] < self.options.count:
            raise expected(
                'queries.count',
                f'at most {scores.shape[1]}, the cells of the maps of such images',
                self.options.count,
            )
        _, best = tf.math.top_k(best_scores, self.options.count)
        chosen = [tf.gather(each, best, batch_dims=1) for each in (contents, scores, boxes)]
        return *chosen, scores, found


class LearnedQueries(keras.layers.Layer):
    """The queries of DETR (https://arxiv.org/abs/2005.12872): learned positions, no contents."""

    def __init__(self, options: QueryOptions, name: str = 'queries'):
        super().__init__(name=name, autocast=False)
        self.options = options
        self.build()

    def build(self):
        shape = (self.options.count, self.options.width)
        normal = keras.initializers.RandomNormal(stddev=1.0)
        self.positions = self.add_weight(shape=shape, initializer=normal, name='positions')

    def begin(self, tokens: Tokens, noisy: None = None, training: bool = False) -> Queries:
        """Returns the queries that the decoder begins with."""
        (batch,) = dimensions(tokens.values, 0)
        positions = tf.cast(self.positions, tokens.values.dtype)
        positions = tf.tile(positions[tf.newaxis], [batch, 1, 1])
        return Queries(tf.zeros_like(positions), None, positions)


def make_noisy(
    options: QueryOptions, groundtruth: Groundtruth, seeds: tf.Tensor | None
) -> Noisy | None:
    """Returns noisy queries (contrastive denoising, https://arxiv.org/abs/2203.03605, sec. 3.3).

    The published programs repeat the objects of the fullest image of a batch as often as they fit
    into the number of queries. Here each image has the same number of queries, `denoising` near
    objects and as many farther away, and repeats its own n objects: query i is of object i mod n.
    So shapes are static, and an image does not depend on the others of its batch. The queries of
    the last group that do not fit, and those of images without objects, have no object.

    Args:
      options: sizes.
      groundtruth: boxes in the frame of the images; crowds are padding.
      seeds: int32 [B, 2], of the noise; None draws from the global generator.
    """
    if not options.denoising:
        return None
    batch, rows = dimensions(groundtruth.weights, 0, 1)
    pairs = options.denoising
    is_object = groundtruth.weights > 0
    counts = tf.reduce_sum(tf.cast(is_object, tf.int32), axis=1, keepdims=True)  # [B, 1]
    # The objects in order, then what is none.
    order = tf.argsort(tf.cast(~is_object, tf.int32), axis=1, stable=True)
    slots = tf.range(pairs)[tf.newaxis]
    divisor = tf.maximum(counts, 1)
    group = slots // divisor
    fits = (slots < tf.maximum(pairs // divisor, 1) * divisor) & (counts > 0)
    if rows == 0:
        order = tf.zeros([batch, 1], tf.int32)
    objects = tf.where(fits, tf.gather(order, slots % divisor, batch_dims=1), -1)
    both = tf.concat([objects, objects], axis=1)  # [B, D]: the near ones, then the far ones
    is_far = tf.concat([tf.zeros([pairs]), tf.ones([pairs])], axis=0)
    noise = sampling.sampling_noise(seeds, 10 * 2 * pairs, batch)
    noise = tf.reshape(noise, [batch, 2 * pairs, 10])
    labels = gather_matched(groundtruth.classes, both, 0.0)
    known = tf.argmax(labels, axis=-1, output_type=tf.int32)
    drawn = tf.cast(noise[..., 0] * options.num_classes, tf.int32)
    known = tf.where(noise[..., 1] < options.label_noise / 2, drawn, known)
    corners = gather_matched(groundtruth.boxes, both, 0.0)
    half = tf.tile(corners[..., 2:] - corners[..., :2], [1, 1, 2]) / 2 * options.box_noise
    signs = tf.where(noise[..., 2:6] < 0.5, -1.0, 1.0)
    moves = (noise[..., 6:] + is_far[:, tf.newaxis]) * signs * half
    corners = tf.clip_by_value(corners + moves, 0.0, 1.0)
    matches = tf.where(is_far > 0, UNMATCHED, both)
    return Noisy(
        classes=tf.where(both >= 0, known, options.num_classes),
        boxes=box_ops.logits(box_ops.from_corners(corners)),
        matches=tf.where(both >= 0, matches, IGNORED),
        groups=tf.concat([tf.where(fits, group, -1)] * 2, axis=1),
    )


def _denoising_mask(groups: tf.Tensor, rows: int) -> tf.Tensor:
    """Returns bool [B, 1, D + rows, D + rows]: which queries a query sees."""
    batch, count = dimensions(groups, 0, 1)
    same = groups[:, :, tf.newaxis] == groups[:, tf.newaxis]
    # Noisy queries see all others; these do not see the noisy ones, which know the objects.
    above = tf.concat([same, tf.ones([batch, count, rows], tf.bool)], axis=2)
    unseen, seen = tf.zeros([batch, rows, count], tf.bool), tf.ones([batch, rows, rows], tf.bool)
    return tf.concat([above, tf.concat([unseen, seen], axis=2)], axis=1)[:, tf.newaxis]
