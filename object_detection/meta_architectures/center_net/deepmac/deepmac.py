"""Masks of classes without mask annotations: DeepMAC (https://arxiv.org/abs/2104.00613).

A network that sees the pixels around one object predicts its mask for any class: it learns
from the masks of some classes, and from boxes, colours, points or a second view of the others.

What the mask network sees of each object: pixels in or around its box, and its embedding.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

from object_detection.core import boxes as box_ops
from object_detection.core import crop_and_resize, sampling, tracing
from object_detection.core import masks as mask_ops
from object_detection.core.fields import DetectionFields
from object_detection.core.fields import InputFields as F
from object_detection.core.groundtruth import Groundtruth
from object_detection.core.loss_sum import LossSum, add
from object_detection.core.shapes import dimensions, smaller
from object_detection.errors import UserError
from object_detection.meta_architectures.center_net.deepmac import losses, views
from object_detection.meta_architectures.center_net.tasks import task
from object_detection.models.backbones.mask_networks import MaskNetwork


def gather_embeddings(maps: tf.Tensor, boxes: tf.Tensor) -> tf.Tensor:
    """Returns the embeddings, [B, N, D], at the centres of boxes.

    A centre on the lower or right edge takes the last cell; the reference cannot read it.

    Args:
      maps: float32 [B, H, W, D].
      boxes: float32 [B, N, 4], normalized.
    """
    sides = [tf.cast(side, tf.float32) for side in dimensions(maps, 1, 2)]
    middles, _ = task.centers(boxes * tf.stack(sides * 2))
    return task.gather_points(maps, middles)


def crop_pixels(maps: tf.Tensor, boxes: tf.Tensor, size: int, *, use_xy: bool) -> tf.Tensor:
    """Returns the pixels in boxes, [B, N, size, size, C], after two coordinates if `use_xy`.

    The coordinates (y, x) go from -1 to 1 in each box.

    Args:
      maps: float32 [B, H, W, C].
      boxes: float32 [B, N, 4], normalized.
      size: rows and columns of samples in a box.
      use_xy: whether there are coordinates.
    """
    crops = crop_and_resize.crop_and_resize(maps, boxes, (size, size))
    if not use_xy:
        return crops
    grid = _grid(tf.linspace(-1.0, 1.0, size), tf.linspace(-1.0, 1.0, size))
    batch, count = dimensions(crops, 0, 1)
    return tf.concat([tf.broadcast_to(grid, [batch, count, size, size, 2]), crops], axis=-1)


def all_pixels(maps: tf.Tensor, boxes: tf.Tensor, *, use_xy: bool) -> tf.Tensor:
    """Returns all pixels for each box, [B, N, H, W, C], after two coordinates if `use_xy`.

    The coordinates (y, x) go from 0 to 1 in the image, less those of the centre of the box.

    Args:
      maps: float32 [B, H, W, C].
      boxes: float32 [B, N, 4], normalized.
      use_xy: whether there are coordinates.
    """
    batch, height, width, channels = dimensions(maps, 0, 1, 2, 3)
    (count,) = dimensions(boxes, 1)
    shape = [batch, count, height, width]
    pixels = tf.broadcast_to(maps[:, tf.newaxis], [*shape, channels])
    if not use_xy:
        return pixels
    middles, _ = task.centers(boxes)
    grid = _grid(tf.linspace(0.0, 1.0, height), tf.linspace(0.0, 1.0, width))
    return tf.concat([grid - middles[:, :, tf.newaxis, tf.newaxis], pixels], axis=-1)


def _grid(rows: tf.Tensor, columns: tf.Tensor) -> tf.Tensor:
    """Returns the coordinates (y, x) of a grid, float32 [h, w, 2]."""
    return tf.stack(tf.meshgrid(rows, columns, indexing='ij'), axis=-1)


INSTANCE_EMBEDDING, PIXEL_EMBEDDING = 'INSTANCE_EMBEDDING', 'PIXEL_EMBEDDING'
# Predictions of objects of the ground truth, of rows that are chosen of it.
MASK_LOGITS = 'MASK_LOGITS_GT_BOXES'
_ROWS, _IS_OWN, _REGIONS = 'MASK_ROWS', 'MASK_ROW_IS_OWN', 'MASK_REGIONS'
_OTHER_LOGITS, _SEEN = 'SELF_SUPERVISED_DEAUGMENTED_MASK_LOGITS', 'SELF_SUPERVISED_SEEN'
_MASKS, _BOXES, _COLORS, _VIEWS, _POINTS = (
    f'Loss/deep_mask_{name}'
    for name in (
        'estimation',
        'box_consistency',
        'color_consistency',
        'augmented_self_supervision',
        'pointly_supervised',
    )
)
LOSS_NAMES = (_MASKS, _BOXES, _COLORS, _VIEWS, _POINTS)
# Different in the seeds, so that the random numbers of the three uses are independent.
_CHOICE, _JITTER, _VIEW = (11, 0), (11, 1), (12, 0)


@dataclasses.dataclass(frozen=True)
class Regions:
    """Which pixels the mask network sees.

    Attributes:
      mask_size: rows and columns of samples in a box.
      covers_image: whether it sees all pixels of the map instead, which masks then cover.
      crop_size: rows and columns of the masks of detections then, which are cut by boxes.
      use_xy: whether it sees the positions of pixels.
      jitter_ratio: twice the greatest move of a side of a box in training, as a share.
      jitter_mode: a key of `boxes.JITTER_MODES`.
      max_objects: objects of an image whose masks learn, chosen at random in training; None is
        all.
      only_last_stage: whether only the last stack of features learns masks.
    """

    mask_size: int = 32
    covers_image: bool = False
    crop_size: int = 256
    use_xy: bool = True
    jitter_ratio: float = 0.0
    jitter_mode: str = box_ops.ANY_WAY
    max_objects: int | None = None
    only_last_stage: bool = False


@dataclasses.dataclass(frozen=True)
class Warmup:
    """A factor that grows linearly from 0 at step `start` to 1, `steps` later; 1 if that is 0."""

    start: int = 0
    steps: int = 0

    def factor(self, step: tf.Tensor | None) -> tf.Tensor | float:
        """Returns the factor at a step of a training; 1 outside of trainings, where it is None."""
        if step is None or not self.steps:
            return 1.0
        done = tf.cast(tf.cast(step, tf.int64) - self.start, tf.float32)
        return tf.clip_by_value(done / float(self.steps), 0.0, 1.0)


@dataclasses.dataclass(frozen=True)
class ViewOptions:
    """The second view of an image; see `views.random_view`."""

    max_translation: float = 0.0
    scales: tuple[float, float] = (1.0, 1.0)
    flip_probability: float = 0.0


@dataclasses.dataclass(frozen=True)
class Learning:
    """What masks learn from.

    Attributes:
      pixel_loss: of masks, boxes and points; see `losses.PixelLoss`.
      weights: factors of the losses, by their names; those of 0 are left out.
      mask_classes: classes whose masks learn, 0-based; None is all.
      is_tight, normalize: of boxes; see `losses.of_boxes`.
      ignores_shared_pixels: whether pixels in several boxes of a class count for no mask.
      color_threshold, color_dilation: see `losses.of_colors`.
      color_warmup, view_warmup: of these losses.
      to_lab: from preprocessed images to L*a*b*.
      view: the second view.
      view_loss: `(logits, others, inside) -> [B, M]`, such as `losses.dice_of_views`.
    """

    pixel_loss: losses.PixelLoss
    weights: Mapping[str, float]
    mask_classes: Sequence[int] | None = None
    is_tight: bool = False
    normalize: Callable[[tf.Tensor, tf.Tensor], tf.Tensor] | None = None
    ignores_shared_pixels: bool = False
    color_threshold: float = 0.4
    color_dilation: int = 2
    color_warmup: Warmup = dataclasses.field(default_factory=Warmup)
    view_warmup: Warmup = dataclasses.field(default_factory=Warmup)
    to_lab: Callable[[tf.Tensor], tf.Tensor] | None = None
    view: ViewOptions = dataclasses.field(default_factory=ViewOptions)
    view_loss: Callable[..., tf.Tensor] = losses.dice_of_views


class DeepMac(task.Task):
    """Predicts masks of objects of all classes by one network.

    Args:
      instance_head: as many channels as the embedding of an object has numbers.
      pixel_head: as many channels as that of a pixel.
      network: from pixels and embedding to the mask.
      regions: the pixels.
      learning: the losses.
    """

    def __init__(
        self,
        *,
        instance_head: task.Head,
        pixel_head: task.Head,
        network: MaskNetwork,
        regions: Regions,
        learning: Learning,
    ):
        self.heads = {INSTANCE_EMBEDDING: instance_head, PIXEL_EMBEDDING: pixel_head}
        self.layers = {'mask_network': network}
        self.regions = regions
        self._learning = learning
        self._weights = {n: w for n, w in learning.weights.items() if w > 0.0}
        self.loss_names = tuple(name for name in LOSS_NAMES if name in self._weights)
        self.needs_masks = _MASKS in self._weights
        self.needs_keypoints = _POINTS in self._weights
        self.object_predictions = (MASK_LOGITS, _ROWS, _IS_OWN, _REGIONS)
        if _VIEWS in self._weights:
            self.object_predictions += (_OTHER_LOGITS, _SEEN)

    def mask_logits(
        self, instances: tf.Tensor, pixels: tf.Tensor, boxes: tf.Tensor, training: bool = False
    ) -> tf.Tensor:
        """Returns the masks in boxes, or of the image for each box, float32 [B, N, h, w].

        Args:
          instances, pixels: maps of the two heads, [B, H, W, D] and [B, H, W, C].
          boxes: float32 [B, N, 4], normalized to the maps.
          training: whether batch norms learn.
        """
        regions = self.regions
        if regions.covers_image:
            seen = all_pixels(pixels, boxes, use_xy=regions.use_xy)
        else:
            seen = crop_pixels(pixels, boxes, regions.mask_size, use_xy=regions.use_xy)
        embeddings = gather_embeddings(instances, boxes)
        batch, count, height, width, channels = dimensions(seen, 0, 1, 2, 3, 4)
        logits = self.layers['mask_network'](
            tf.reshape(seen, [batch * count, height, width, channels]),
            tf.reshape(embeddings, [batch * count, embeddings.shape[-1]]),
            training=training,
        )
        return tf.reshape(logits, [batch, count, height, width])

    def predict_objects(
        self, maps: Mapping[str, Sequence[tf.Tensor]], objects: task.TaskObjects
    ) -> dict[str, tf.Tensor | Sequence[tf.Tensor]]:
        """Returns the masks of objects of the ground truth.

        There are as many rows as the image with most objects has, at most `max_objects`; where XLA
        compiles, as many as the ground truth has, padding included. Objects come first; rows beyond
        them repeat them, with no part in the losses, so that batch norms see objects and no
        padding.
        """
        truth = objects.groundtruth
        rows, is_own = self._choose(objects)
        boxes = sampling.gather_rows(truth.boxes, rows)
        regions = self._jitter(boxes, objects) if self.regions.jitter_ratio else boxes

        def logits(maps: Mapping[str, Sequence[tf.Tensor]], boxes: tf.Tensor) -> list[tf.Tensor]:
            stacks = zip(maps[INSTANCE_EMBEDDING], maps[PIXEL_EMBEDDING], strict=True)
            stacks = list(stacks)[-1:] if self.regions.only_last_stage else stacks
            return [self.mask_logits(*each, boxes, objects.training) for each in stacks]

        found = {
            MASK_LOGITS: logits(maps, regions),
            _ROWS: rows,
            _IS_OWN: is_own,
            _REGIONS: regions,
        }
        if _VIEWS in self._weights:
            with tracing.FrozenStatistics():
                found |= self._of_other_view(logits, regions, objects)
        return found

    def loss_sums(
        self, maps: Mapping[str, Sequence[tf.Tensor]], cells: task.Cells
    ) -> dict[str, LossSum]:
        truth, rows = cells.groundtruth, maps[_ROWS]
        chosen = _Chosen(truth, rows, maps[_REGIONS], sampling.gather_rows(truth.boxes, rows))
        functions = {
            _MASKS: self._of_masks,
            _BOXES: self._of_boxes,
            _COLORS: self._of_colors,
            _VIEWS: self._of_views,
            _POINTS: self._of_points,
        }
        found = {}
        for name, factor in self._weights.items():
            weights = self._weights_of(name, maps, truth)
            losses = [weights * each for each in functions[name](maps, cells, chosen)]
            # Divided by the sum of the weights of objects, as in the reference.
            found[name] = add(losses, tf.reduce_sum(weights), factor)
        return found

    def detect(self, maps: Mapping[str, tf.Tensor], found: task.Found) -> dict[str, tf.Tensor]:
        """Returns the masks of detections, probabilities in their boxes: float32 [B, N, h, w]."""
        return {DetectionFields.MASKS: self.masks_in(maps, found.boxes, found.stride)}

    def masks_in(self, maps: Mapping[str, tf.Tensor], boxes: tf.Tensor, stride: int) -> tf.Tensor:
        """Returns the masks of objects, probabilities in their boxes, float32 [B, N, h, w].

        Args:
          maps: float32 [B, H, W, C] of the last stack, by the names of the heads.
          boxes: float32 [B, N, 4], in cells.
          stride: side of a cell in pixels.
        """
        instances, pixels = maps[INSTANCE_EMBEDDING], maps[PIXEL_EMBEDDING]
        sides = dimensions(pixels, 1, 2)
        scale = tf.stack([tf.cast(side, tf.float32) for side in sides * 2])
        boxes = boxes / scale
        logits = self.mask_logits(instances, pixels, boxes)
        if self.regions.covers_image:
            height, width = (side * stride for side in sides)
            logits = losses.resize_masks(logits, height, width)
            logits = losses.crop_masks(logits, boxes, self.regions.crop_size)
        return tf.sigmoid(logits)

    def _choose(self, objects: task.TaskObjects) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns rows of the ground truth, int32 [B, S], and which are no repetitions, bool."""
        truth = objects.groundtruth
        is_object = truth.weights > 0.0
        if self._weights.keys() == {_MASKS}:
            is_object &= self._mask_weights(truth) > 0.0
        batch, count = dimensions(truth.weights, 0, 1)
        order = -tf.range(count, dtype=tf.float32) / tf.cast(count, tf.float32)
        noise = tf.zeros_like(truth.weights) + order
        if self.regions.max_objects is not None and objects.training:
            noise = sampling.sampling_noise(sampling.fold_in(objects.seeds, _CHOICE), count, batch)
            count = smaller(self.regions.max_objects, count)
        keys = tf.where(is_object, noise + 2.0, noise)
        rows = tf.math.top_k(keys, count).indices  # [B, S]
        number = tf.minimum(tf.reduce_sum(tf.cast(is_object, tf.int32), axis=1), count)
        if not tracing.is_compiled():
            # XLA alone needs a number of rows that is known; most images have few objects.
            count = tf.maximum(tf.reduce_max(number), 1)
            rows = rows[:, :count]
        slots = tf.range(count)[tf.newaxis]
        repeated = slots % tf.maximum(number, 1)[:, tf.newaxis]
        return tf.gather(rows, repeated, batch_dims=1), slots < number[:, tf.newaxis]

    def _jitter(self, boxes: tf.Tensor, objects: task.TaskObjects) -> tf.Tensor:
        if not objects.training:
            return boxes
        batch, count = dimensions(boxes, 0, 1)
        noise = sampling.sampling_noise(sampling.fold_in(objects.seeds, _JITTER), count * 4, batch)
        shares = (tf.reshape(noise, [batch, count, 4]) - 0.5) * self.regions.jitter_ratio
        return box_ops.move_sides(boxes, shares, self.regions.jitter_mode)

    def _of_other_view(
        self, logits: Callable, boxes: tf.Tensor, objects: task.TaskObjects
    ) -> dict[str, tf.Tensor | Sequence[tf.Tensor]]:
        """Returns the masks that the second view shows, as this view has them; no gradient."""
        options = self._learning.view
        view = views.random_view(
            sampling.fold_in(objects.seeds, _VIEW),
            dimensions(boxes, 0)[0],
            max_translation=options.max_translation,
            scales=options.scales,
            flip_probability=options.flip_probability,
        )
        moved = views.move_boxes(boxes, view)
        found = logits(objects.forward(views.to_view(objects.images, view)), moved)
        if self.regions.covers_image:
            found = [_by_pixel(views.from_view, each, view) for each in found]
            ones = tf.ones_like(found[-1][:, :1])
            seen = _by_pixel(views.from_view, _by_pixel(views.to_view, ones, view), view)
            seen += tf.zeros_like(found[-1])
        else:
            flips = view.flips[:, tf.newaxis, tf.newaxis, tf.newaxis]
            size = self.regions.mask_size
            seen = losses.crop_masks(tf.ones([*dimensions(moved, 0, 1), 2, 2]), moved, size)
            *found, seen = (
                tf.where(flips, tf.reverse(each, axis=[3]), each) for each in (*found, seen)
            )
        return {
            _OTHER_LOGITS: [tf.stop_gradient(each) for each in found],
            _SEEN: tf.cast(seen > 1.0 - 1e-3, tf.float32),
        }

    def _weights_of(self, name: str, maps: Mapping, truth: Groundtruth) -> tf.Tensor:
        """Returns the weights of the chosen objects in a loss, float32 [B, S]."""
        weights = self._mask_weights(truth) if name == _MASKS else truth.weights
        return sampling.gather_rows(weights, maps[_ROWS]) * tf.cast(maps[_IS_OWN], tf.float32)

    def _mask_weights(self, truth: Groundtruth) -> tf.Tensor:
        """Returns the weights of the masks of all objects, float32 [B, M]."""
        weights = truth.weights
        if self._learning.mask_classes is not None:
            of_classes = tf.gather(truth.classes, list(self._learning.mask_classes), axis=2)
            weights *= tf.cast(tf.reduce_max(of_classes, axis=2) > 0.0, tf.float32)
        if F.GROUNDTRUTH_INSTANCE_MASK_WEIGHTS in truth.fields:
            weights *= truth.fields[F.GROUNDTRUTH_INSTANCE_MASK_WEIGHTS]
        return weights

    def _of_masks(self, maps: Mapping, cells: task.Cells, chosen: '_Chosen') -> list[tf.Tensor]:
        masks = self._annotated(chosen, dimensions(cells.images, 1, 2))
        counted = None
        if self._learning.ignores_shared_pixels:
            size = dimensions(masks, 2, 3) if self.regions.covers_image else cells.size
            counted = self._not_shared(chosen, size)
        return [
            losses.of_masks(self._learning.pixel_loss, logits, masks, counted)
            for logits in maps[MASK_LOGITS]
        ]

    def _annotated(self, chosen: '_Chosen', image_size: tuple) -> tf.Tensor:
        """Returns the annotated masks in the frame of the predicted ones, [B, S, h, w]."""
        truth, rows = chosen.truth, chosen.rows
        if truth.masks is None:
            raise UserError(
                'The mask loss needs ground truth masks, but there are none: set '
                'load_instance_masks: true in the input reader, or task_loss_weight: 0 in '
                'deepmac_mask_estimation.'
            )
        size = (self.regions.mask_size, self.regions.mask_size)
        boxes = chosen.regions
        if self.regions.covers_image:
            if not truth.masks_are_crops:
                return sampling.gather_rows(truth.masks, rows)
            size = image_size
            boxes = tf.zeros_like(boxes) + tf.constant([0.0, 0.0, 1.0, 1.0])
        if truth.masks_are_crops:
            return mask_ops.mask_targets_from_crops(truth.masks, truth.boxes, boxes, rows, size)
        return mask_ops.mask_targets_from_images(truth.masks, boxes, rows, size)

    def _not_shared(self, chosen: '_Chosen', size: tuple) -> tf.Tensor:
        """Returns which pixels of masks lie in at most one box of the class, [B, S, h, w].

        Args:
          chosen: the objects.
          size: of the image's map that is cropped, or that is the result.
        """
        truth = chosen.truth
        counted = losses.not_in_several_boxes(truth.classes, truth.boxes, *size)
        counted = sampling.gather_rows(counted, chosen.rows)
        if self.regions.covers_image:
            return counted
        crops = losses.crop_masks(counted, chosen.regions, self.regions.mask_size)
        return tf.cast(crops > 0.5, tf.float32)

    def _of_boxes(self, maps: Mapping, cells: task.Cells, chosen: '_Chosen') -> list[tf.Tensor]:
        height, width = dimensions(maps[MASK_LOGITS][-1], 2, 3)
        if self.regions.covers_image:
            filled = losses.fill_boxes(chosen.boxes, height, width)
        else:
            size = self.regions.mask_size
            filled = losses.fill_in_regions(chosen.boxes, chosen.regions, size)
        learning = self._learning
        return [
            losses.of_boxes(
                learning.pixel_loss,
                logits,
                filled,
                is_tight=learning.is_tight,
                normalize=learning.normalize,
            )
            for logits in maps[MASK_LOGITS]
        ]

    def _of_colors(self, maps: Mapping, cells: task.Cells, chosen: '_Chosen') -> list[tf.Tensor]:
        learning = self._learning
        if not self.regions.covers_image:
            # As in the reference; the validation warns of it.
            return [tf.zeros_like(chosen.boxes[..., 0])]
        size = dimensions(maps[MASK_LOGITS][-1], 2, 3)
        images = learning.to_lab(tf.image.resize(cells.images, size))
        factor = learning.color_warmup.factor(tracing.current_step())
        return [
            factor
            * losses.of_colors(
                logits,
                chosen.boxes,
                images,
                threshold=learning.color_threshold,
                dilation=learning.color_dilation,
            )
            for logits in maps[MASK_LOGITS]
        ]

    def _of_views(self, maps: Mapping, cells: task.Cells, chosen: '_Chosen') -> list[tf.Tensor]:
        inside = maps[_SEEN]
        if self.regions.covers_image:
            inside *= losses.fill_boxes(chosen.boxes, *dimensions(inside, 2, 3))
        factor = self._learning.view_warmup.factor(tracing.current_step())
        pairs = zip(maps[MASK_LOGITS], maps[_OTHER_LOGITS], strict=True)
        return [
            factor * self._learning.view_loss(logits, others, inside) for logits, others in pairs
        ]

    def _of_points(self, maps: Mapping, cells: task.Cells, chosen: '_Chosen') -> list[tf.Tensor]:
        if chosen.truth.keypoints is None:
            raise UserError(
                'pointly_supervised_keypoint_loss_weight: expected keypoints in the ground truth. '
                'Received: none; set num_keypoints of the input readers.'
            )
        origin = 'load_keypoint_depth_features of the input readers'
        labels = cells.field(F.GROUNDTRUTH_KEYPOINT_DEPTHS, origin)
        points, labels = (
            sampling.gather_rows(each, chosen.rows) for each in (chosen.truth.keypoints, labels)
        )
        return [
            losses.of_points(self._learning.pixel_loss, logits, points, labels)
            for logits in maps[MASK_LOGITS]
        ]


@dataclasses.dataclass(frozen=True)
class _Chosen:
    """The rows of the ground truth whose masks learn.

    Attributes:
      truth: the ground truth.
      rows: int32 [B, S].
      regions: float32 [B, S, 4], boxes that masks were predicted in.
      boxes: float32 [B, S, 4], of the objects.
    """

    truth: Groundtruth
    rows: tf.Tensor
    regions: tf.Tensor
    boxes: tf.Tensor


def _by_pixel(function: Callable, masks: tf.Tensor, view: views.View) -> tf.Tensor:
    """Applies a function of maps [B, h, w, C] to masks [B, C, h, w]."""
    changed = function(tf.transpose(masks, [0, 2, 3, 1]), view)
    return tf.transpose(changed, [0, 3, 1, 2])
