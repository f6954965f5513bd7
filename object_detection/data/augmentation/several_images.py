"""Steps that combine an image with others: mosaics, blended images, pasted objects.

Each is a function (example, seed, partners) -> example, see `choice.num_partners`.
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from object_detection.core.example_fields import Geometry, names_of
from object_detection.core.fields import InputFields as F
from object_detection.data import instance_masks, objects
from object_detection.data.augmentation.checks import check_positive_order
from object_detection.data.augmentation.padding import Color, check_color
from object_detection.data.augmentation.window import Window, cut_out, surround
from object_detection.data.augmentation.zoom import ZoomDraws, draw_zoom, with_static_size, zoom
from object_detection.data.objects import Example
from object_detection.errors import expected

# Of what no image of a mosaic covers, as in the implementations that people know.
_GRAY = (114.0,)


class MosaicDraws(NamedTuple):
    """Random numbers of a mosaic.

    Attributes:
      center: float32 [2], the point at which the four images meet, y and x, as shares.
      zooms: of each of the four images: top left, top right, bottom left, bottom right.
    """

    center: tf.Tensor
    zooms: tuple[ZoomDraws, ...]


@dataclasses.dataclass(frozen=True)
class Mosaic:
    """Puts an image and three others together (YOLOv4, https://arxiv.org/abs/2004.10934).

    The four images meet at a random point. Each shows a random part of itself in its quarter of the
    result, at a scale of its own; one that is smaller than its quarter lies at the point.

    Attributes:
      height, width: size of the result in pixels; all outputs have this static size.
      min_scale, max_scale: bounds of an image's factor; 1 makes it as large as it fits on the
        whole result.
      min_share: the point is at least this share of the height and width away from the sides.
      overlap_thresh: objects with a smaller share of their box inside are dropped.
      pad_color: one value, or one for each channel, of what no image covers, 0..255; () is 114.

    Raises:
      ValueError: if the factors are not positive and in order, or the number of values of the
        colour is wrong.
    """

    height: int = 640
    width: int = 640
    min_scale: float = 0.5
    max_scale: float = 1.5
    min_share: float = 0.25
    overlap_thresh: float = 0.1
    pad_color: Color = ()

    num_partners = 3

    def __post_init__(self):
        check_positive_order('mosaic', self, 'min_scale', 'max_scale')
        check_color('mosaic', self.pad_color, or_one=True)

    def __call__(self, example: Example, seed: tf.Tensor, partners: Sequence[Example]) -> Example:
        """Combines `example` with three others; all choices depend only on `seed`, integer [2]."""
        return self.change([example, *partners], self.draw(seed))

    def draw(self, seed: tf.Tensor) -> MosaicDraws:
        """Draws the numbers of a mosaic."""
        of_center, *of_zooms = tf.unstack(tf.random.split(seed, 5))
        center = tf.random.stateless_uniform([2], of_center, self.min_share, 1.0 - self.min_share)
        zooms = [draw_zoom(self.min_scale, self.max_scale, each) for each in of_zooms]
        return MosaicDraws(center, tuple(zooms))

    def change(self, examples: Sequence[Example], draws: MosaicDraws) -> Example:
        """Combines four examples, the first of which gives the fields of the image."""
        canvas = (self.height, self.width)
        sides = tf.constant(canvas, tf.float32)
        center = tf.cast(tf.round(draws.center * sides), tf.int32)
        center = tf.clip_by_value(center, 1, tf.constant(canvas) - 1)
        parts, frames = [], []
        for number, (example, zoom_draws) in enumerate(zip(examples, draws.zooms, strict=True)):
            is_after = (number // 2 == 1, number % 2 == 1)
            size = tf.where(is_after, tf.constant(canvas) - center, center)
            part = zoom(
                example,
                canvas,
                zoom_draws,
                size=size,
                is_at_end=(not is_after[0], not is_after[1]),
                min_overlap=self.overlap_thresh,
                color=self.pad_color or _GRAY,
            )
            parts.append(part)
            frames.append((tf.where(is_after, center, 0), size))
        images = [tf.cast(part[F.IMAGE], tf.float32) for part in parts]
        rows = [tf.concat(images[i : i + 2], axis=1) for i in (0, 2)]
        # Graphs divide by a constant, `canvas`, otherwise than this code does.
        size = frames[0][1] + frames[3][1]
        parts = [_on_canvas(part, *frame, size) for part, frame in zip(parts, frames, strict=True)]
        joined = {**examples[0], **objects.concat(parts), F.IMAGE: tf.concat(rows, axis=0)}
        return with_static_size(joined, canvas)


@dataclasses.dataclass(frozen=True)
class MixUp:
    """Blends an image with another one, and keeps the objects of both.

    "Bag of Freebies for Training Object Detection Neural Networks",
    https://arxiv.org/abs/1902.04103. Both images are at the top left of a black canvas as large as
    both, so that no object is deformed.

    Attributes:
      alpha: both parameters of the beta distribution of the share of the first image.
      weigh_objects: whether the weights of objects are multiplied by the share of their image.
    """

    alpha: float = 1.5
    weigh_objects: bool = True

    num_partners = 1

    def __call__(self, example: Example, seed: tf.Tensor, partners: Sequence[Example]) -> Example:
        """Blends `example` with another; the share depends only on `seed`, integer [2]."""
        return self.change(example, partners[0], self.draw(seed))

    def draw(self, seed: tf.Tensor) -> tf.Tensor:
        """Draws the share of the first image, float32 []."""
        seeds = tf.unstack(tf.random.split(seed))
        first, second = (tf.random.stateless_gamma([], each, alpha=self.alpha) for each in seeds)
        # Both are 0 where a small alpha makes them too small for float32.
        return tf.where(first + second > 0.0, tf.math.divide_no_nan(first, first + second), 1.0)

    def change(self, example: Example, other: Example, share: tf.Tensor) -> Example:
        """Blends two examples; `share` is that of the first, float32 []."""
        sizes = [tf.shape(each[F.IMAGE])[:2] for each in (example, other)]
        canvas = Window(0, 0, *tf.unstack(tf.maximum(*sizes)))
        shares = (share, 1.0 - share)
        both = [surround(each, canvas, (0.0,)) for each in (example, other)]
        first, second = (tf.cast(each[F.IMAGE], tf.float32) for each in both)
        if self.weigh_objects:
            both = [
                {**each, F.GROUNDTRUTH_WEIGHTS: each[F.GROUNDTRUTH_WEIGHTS] * part}
                for each, part in zip(both, shares, strict=True)
            ]
        # Unlike a sum of two products, this is not rounded beyond both.
        blended = second + share * (first - second)
        return {**example, **objects.concat(both), F.IMAGE: blended}


@dataclasses.dataclass(frozen=True)
class CopyPaste:
    """Pastes objects of another image, cut out along their masks.

    "Simple Copy-Paste is a Strong Data Augmentation Method", https://arxiv.org/abs/2012.07177;
    the paper scales both images before by `large_scale_jitter`. The other image lies on this one
    with its top left corner; what extends beyond is cut off. Masks and boxes of objects below
    become what is left of them; their keypoints stay. Crowds, and objects whose mask is empty or
    cut off, are not pasted.

    Attributes:
      object_probability: probability of each object of the other image to be pasted.
      max_objects: greatest number of pasted objects.
      min_visible_share: objects below with a smaller share of their mask left are dropped.
    """

    object_probability: float = 0.5
    max_objects: int = 20
    min_visible_share: float = 0.1

    num_partners = 1

    def __call__(self, example: Example, seed: tf.Tensor, partners: Sequence[Example]) -> Example:
        """Pastes objects of another example; they depend only on `seed`, integer [2].

        Raises:
          ValueError: if the examples have no masks.
        """
        (other,) = partners
        numbers = tf.random.stateless_uniform(tf.shape(other[F.GROUNDTRUTH_WEIGHTS]), seed)
        return self.change(example, other, numbers)

    def change(self, example: Example, other: Example, numbers: tf.Tensor) -> Example:
        """Pastes objects of another example.

        Args:
          example, other: with the same fields.
          numbers: float32 [n], one a random number in [0, 1) for each object of `other`.
        """
        if not any(name in example for name in _MASKS):
            raise expected('copy_paste', 'masks; set train_input_reader.load_instance_masks: true')
        size = tf.shape(example[F.IMAGE])[:2]
        numbers = tf.where(other[F.GROUNDTRUTH_IS_CROWD], 1.0, numbers)
        first = tf.argsort(numbers, stable=True)[: self.max_objects]
        chosen = tf.gather(
            first, tf.where(tf.gather(numbers, first) < self.object_probability)[:, 0]
        )
        pasted = cut_out(objects.select(other, chosen), Window(0, 0, *tf.unstack(size)))
        pasted = objects.select(pasted, _has_mask(pasted))
        covered = _covered(pasted, size)
        image = tf.where(
            covered[..., tf.newaxis],
            tf.cast(pasted[F.IMAGE], tf.float32),
            tf.cast(example[F.IMAGE], tf.float32),
        )
        below = hide(example, covered, self.min_visible_share)
        return {**example, **objects.concat([below, pasted]), F.IMAGE: image}


_MASKS = names_of(Geometry.BOX_MASK, Geometry.IMAGE_MASK)


def hide(example: Example, covered: tf.Tensor, min_visible_share: float) -> Example:
    """Removes covered pixels from the masks of an example, and shrinks boxes to what is left.

    Args:
      example: with masks.
      covered: bool [H, W].
      min_visible_share: objects with a smaller share of their mask left, or nothing, are dropped.
    """
    hide_form = _hide_crops if F.GROUNDTRUTH_INSTANCE_MASK_CROPS in example else _hide_masks
    changed, share = hide_form(example, covered)
    boxes = changed[F.GROUNDTRUTH_BOXES]
    has_area = tf.reduce_all(boxes[:, 2:] > boxes[:, :2], axis=1)
    is_kept = (share >= min_visible_share) & (share > 0.0) & has_area
    return objects.select({**example, **changed}, is_kept)


def _hide_masks(example: Example, covered: tf.Tensor) -> tuple[Example, tf.Tensor]:
    """Returns the changed full-size masks and boxes, and the share of each mask that is left."""
    masks, boxes = example[F.GROUNDTRUTH_INSTANCE_MASKS], example[F.GROUNDTRUTH_BOXES]
    left = tf.where(covered, tf.zeros([], masks.dtype), masks)
    share = _share(left, masks)
    extent = _extent(left > 0, are_samples=False)
    corners = [tf.maximum(boxes[:, :2], extent[:, :2]), tf.minimum(boxes[:, 2:], extent[:, 2:])]
    boxes = tf.where(share[:, tf.newaxis] < 1.0, tf.concat(corners, axis=1), boxes)
    return {F.GROUNDTRUTH_INSTANCE_MASKS: left, F.GROUNDTRUTH_BOXES: boxes}, share


def _hide_crops(example: Example, covered: tf.Tensor) -> tuple[Example, tf.Tensor]:
    """Returns the changed mask crops and boxes, and the share of each mask that is left."""
    crops, boxes = example[F.GROUNDTRUTH_INSTANCE_MASK_CROPS], example[F.GROUNDTRUTH_BOXES]
    is_hidden = _crop(covered, boxes, crops.shape[1])
    left = tf.where(is_hidden, tf.zeros([], crops.dtype), crops)
    share = _share(left, crops)
    is_cut = share < 1.0
    whole = tf.constant([0.0, 0.0, 1.0, 1.0])
    parts = tf.where(is_cut[:, tf.newaxis], _extent(left > 127, are_samples=True), whole)
    sizes = tf.tile(boxes[:, 2:] - boxes[:, :2], [1, 2])
    shrunk = tf.tile(boxes[:, :2], [1, 2]) + parts * sizes
    # What nothing covers keeps its box and samples exactly.
    left = tf.where(is_cut[:, tf.newaxis, tf.newaxis], instance_masks.recrop(left, parts), crops)
    boxes = tf.where(is_cut[:, tf.newaxis], shrunk, boxes)
    return {F.GROUNDTRUTH_INSTANCE_MASK_CROPS: left, F.GROUNDTRUTH_BOXES: boxes}, share


def _share(left: tf.Tensor, masks: tf.Tensor) -> tf.Tensor:
    """Returns the sum of each mask, [n, h, w], as a share of what it was; 1 for an empty one."""
    after, before = (
        tf.reduce_sum(tf.cast(each, tf.float32), axis=[1, 2]) for each in (left, masks)
    )
    return tf.where(before > 0.0, tf.math.divide_no_nan(after, before), 1.0)


def _covered(example: Example, size: tf.Tensor) -> tf.Tensor:
    """Returns which pixels of an image of `size`, int32 [2], belong to an object: bool [H, W]."""
    if F.GROUNDTRUTH_INSTANCE_MASKS in example:
        return tf.reduce_any(example[F.GROUNDTRUTH_INSTANCE_MASKS] > 0, axis=0)
    crops, boxes = example[F.GROUNDTRUTH_INSTANCE_MASK_CROPS], example[F.GROUNDTRUTH_BOXES]
    return instance_masks.union(crops, boxes, size)


def _has_mask(example: Example) -> tf.Tensor:
    """Returns which objects have a mask that is not empty: bool [n]."""
    masks = next(example[name] for name in _MASKS if name in example)
    return tf.reduce_any(masks > 0, axis=[1, 2])


def _crop(covered: tf.Tensor, boxes: tf.Tensor, size: int) -> tf.Tensor:
    """Samples boxes [n, 4] of one mask, bool [H, W]: bool [n, size, size]."""
    mask = tf.cast(covered, tf.float32)[tf.newaxis, ..., tf.newaxis]
    samples = tf.image.crop_and_resize(
        mask, boxes, tf.zeros_like(boxes[:, 0], tf.int32), [size, size]
    )
    return samples[..., 0] > 0.5


def _extent(masks: tf.Tensor, *, are_samples: bool) -> tf.Tensor:
    """Returns the box around each mask, bool [n, h, w], normalized to the mask: float32 [n, 4].

    Args:
      masks: the masks; the box of an empty one has no area.
      are_samples: whether 0 and 1 are the first and last sample, as in crops; otherwise they are
        the edges of the first and last pixel.
    """

    def ends(axis: int) -> tuple[tf.Tensor, tf.Tensor]:
        is_any = tf.cast(tf.reduce_any(masks, axis=3 - axis), tf.int32)  # [n, h] or [n, w]
        length = tf.shape(masks)[axis]
        first = tf.cast(tf.argmax(is_any, axis=1, output_type=tf.int32), tf.float32)
        end = length - tf.argmax(is_any[:, ::-1], axis=1, output_type=tf.int32)
        end = tf.where(tf.reduce_max(is_any, axis=1) > 0, tf.cast(end, tf.float32), first)
        length = tf.cast(length, tf.float32)
        if are_samples:
            # Half a sample around the first and the last one.
            first, end, length = first - 0.5, end - 0.5, tf.maximum(length - 1.0, 1.0)
        # TensorFlow's graph optimizer turns a division by a constant into this product, too.
        first, end = (each * (1.0 / length) for each in (first, end))
        return tf.clip_by_value(first, 0.0, 1.0), tf.clip_by_value(end, 0.0, 1.0)

    (top, bottom), (left, right) = ends(1), ends(2)
    return tf.stack([top, left, bottom, right], axis=1)


def _on_canvas(part: Example, start: tf.Tensor, size: tf.Tensor, canvas: tf.Tensor) -> Example:
    """Converts the objects of a part to the frame of the canvas; the image stays.

    Args:
      part: one of the images of a mosaic.
      start, size: int32 [2], first row and column, and height and width, on the canvas.
      canvas: int32 [2], height and width.
    """
    part = dict(part)
    sides = tf.cast(canvas, tf.float32)
    scale, offset = tf.cast(size, tf.float32) / sides, tf.cast(start, tf.float32) / sides
    for name in names_of(Geometry.BOX):
        if name in part:
            part[name] = part[name] * tf.tile(scale, [2]) + tf.tile(offset, [2])
    for name in names_of(Geometry.POINTS):
        if name in part:
            part[name] = part[name] * scale + offset
    for name in names_of(Geometry.IMAGE_MASK):
        if name in part:
            paddings = tf.stack([start, canvas - start - size], axis=1)
            part[name] = tf.pad(part[name], tf.concat([[[0, 0]], paddings], axis=0))
    return part
