"""Losses of the masks of DeepMAC: of annotated masks, of boxes, of colours, of views, of points.

Each returns one number for each object, before weights. Boxes are float32 [B, M, 4], normalized to
the image that masks cover; logits and masks float32 [B, M, h, w].

Colour spaces.
"""

from collections.abc import Callable

import tensorflow as tf

from object_detection.core import crop_and_resize
from object_detection.core.shapes import dimensions

# Distance of colours, in L*a*b*, at which their similarity is 1 / e.
_COLOR_SCALE = 2.0
# Samples on the edge of a box are in it, however they are rounded.
_EDGE = 1e-6
_SMALLEST_PROBABILITY = 1e-6

# `(logits [N, P, 1], targets, weights) -> [N, P, 1], [N, P] or [N, 1]`.
PixelLoss = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]


def fill_boxes(boxes: tf.Tensor, height: int | tf.Tensor, width: int | tf.Tensor) -> tf.Tensor:
    """Returns masks of boxes, float32 [B, M, h, w] of 0 and 1, edges included."""
    top, left, bottom, right = (each[..., tf.newaxis] for each in tf.unstack(boxes, axis=-1))
    rows, columns = (tf.range(side, dtype=tf.float32) for side in map(_as_float, (height, width)))
    is_row = (rows >= top * _as_float(height)) & (rows <= bottom * _as_float(height))
    is_column = (columns >= left * _as_float(width)) & (columns <= right * _as_float(width))
    inside = is_row[..., :, tf.newaxis] & is_column[..., tf.newaxis, :]
    return tf.cast(inside, tf.float32)


def fill_in_regions(boxes: tf.Tensor, regions: tf.Tensor, size: int) -> tf.Tensor:
    """Returns which samples of regions lie in boxes, float32 [B, M, size, size] of 0 and 1.

    Args:
      boxes: of the objects.
      regions: float32 [B, M, 4], in the same frame.
      size: rows and columns of samples, the first and last on the edges of a region.
    """
    shares = tf.linspace(0.0, 1.0, size)
    low, high = (each[..., tf.newaxis] for each in tf.split(regions, 2, axis=-1))
    first, last = (each[..., tf.newaxis] for each in tf.split(boxes, 2, axis=-1))
    places = low + shares * (high - low)  # [B, M, 2, size]
    inside = (places >= first - _EDGE) & (places <= last + _EDGE)
    inside = inside[:, :, 0, :, tf.newaxis] & inside[:, :, 1, tf.newaxis]
    return tf.cast(inside, tf.float32)


def not_in_several_boxes(
    classes: tf.Tensor, boxes: tf.Tensor, height: int | tf.Tensor, width: int | tf.Tensor
) -> tf.Tensor:
    """Returns which pixels lie in at most one box of the class of each object.

    Args:
      classes: float32 [B, M, K], one-hot.
      boxes: of the objects.
      height, width: of the result.

    Returns:
      float32 [B, M, h, w] of 0 and 1.
    """
    filled = fill_boxes(boxes, height, width)
    counts = tf.einsum('bmk,bmhw->bkhw', classes, filled)
    return tf.cast(tf.einsum('bmk,bkhw->bmhw', classes, counts) <= 1.0, tf.float32)


def crop_masks(masks: tf.Tensor, boxes: tf.Tensor, size: int) -> tf.Tensor:
    """Crops masks of whole images by boxes, [B, M, size, size]; see `core.crop_and_resize`."""
    batch, count, height, width = dimensions(masks, 0, 1, 2, 3)
    crops = crop_and_resize.crop_and_resize(
        tf.reshape(masks, [batch * count, height, width, 1]),
        tf.reshape(boxes, [batch * count, 1, 4]),
        (size, size),
    )
    return tf.reshape(crops, [batch, count, size, size])


def resize_masks(masks: tf.Tensor, height: int | tf.Tensor, width: int | tf.Tensor) -> tf.Tensor:
    """Resizes masks bilinearly, [B, M, height, width]."""
    batch, count, old_height, old_width = dimensions(masks, 0, 1, 2, 3)
    if (old_height, old_width) == (height, width):
        return masks
    flat = tf.reshape(masks, [batch * count, old_height, old_width, 1])
    resized = tf.image.resize(flat, [height, width])
    return tf.reshape(resized, [batch, count, height, width])


def of_masks(
    loss: PixelLoss, logits: tf.Tensor, masks: tf.Tensor, counted: tf.Tensor | None = None
) -> tf.Tensor:
    """Returns the mean loss over the pixels of each object, [B, M].

    Args:
      loss: of pixels.
      logits: resized to the size of the masks.
      masks: annotated, in 0..1.
      counted: float32 [B, M, h, w]; where it is 0, logit and mask are 0, as in the reference: each
        such pixel has the loss of no opinion, and no gradient. None counts all.
    """
    height, width = dimensions(masks, 2, 3)
    logits = resize_masks(logits, height, width)
    if counted is not None:
        logits, masks = logits * counted, masks * counted
    return _aggregate(loss, logits, masks)


def of_boxes(
    loss: PixelLoss,
    logits: tf.Tensor,
    boxes: tf.Tensor,
    *,
    is_tight: bool,
    normalize: Callable[[tf.Tensor, tf.Tensor], tf.Tensor] | None = None,
) -> tf.Tensor:
    """Returns how far masks, projected onto the axes, are from filled boxes, [B, M] (BoxInst).

    https://arxiv.org/abs/2012.02310, section 3.1: the greatest logit of each row and column is to
    be positive exactly within the box.

    Args:
      loss: of pixels.
      logits: masks.
      boxes: float32 [B, M, h, w], filled boxes, in the frame of the masks.
      is_tight: whether a row or column that crosses the box takes its greatest logit within it.
      normalize: from losses and targets [N, P, 1] to numbers [N]; None takes the mean.
    """
    total = 0.0
    for axis in (2, 3):
        target = tf.reduce_max(boxes, axis=axis)
        greatest = tf.reduce_max(logits, axis=axis)
        if is_tight:
            within = tf.reduce_max(logits * boxes, axis=axis)
            greatest = target * within + (1.0 - target) * greatest
        total += _aggregate(loss, greatest, target, normalize)
    return total


def by_count(losses: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """Divides sums of losses [N, P, 1] or [N, 1] by the sums of the targets, [N].

    Without any target, the sum is not divided; the reference returns infinity.
    """
    positive = tf.reduce_sum(targets, axis=[1, 2])
    return _sum(losses) / tf.where(positive > 0.0, positive, 1.0)


def balanced(losses: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """Adds the means of losses [N, P, 1] over positive and over negative targets, [N]."""
    others = 1.0 - targets
    numbers = targets * tf.reduce_sum(targets, axis=[1, 2], keepdims=True)
    numbers += others * tf.reduce_sum(others, axis=[1, 2], keepdims=True)
    return _sum(losses / numbers)


def neighbors(maps: tf.Tensor, dilation: int) -> list[tf.Tensor]:
    """Returns the maps of the eight neighbours at a distance, by rows; 0 outside of the map.

    Args:
      maps: [N, h, w, C].
      dilation: the distance, in pixels.
    """
    height, width = dimensions(maps, 1, 2)
    edge = [dilation, dilation]
    padded = tf.pad(maps, [[0, 0], edge, edge, [0, 0]])
    shifts = [(y, x) for y in range(3) for x in range(3) if (y, x) != (1, 1)]
    return [padded[:, y * dilation :, x * dilation :][:, :height, :width] for y, x in shifts]


def color_similarity(images: tf.Tensor, dilation: int) -> list[tf.Tensor]:
    """Returns how alike the colours of pixels and of their `neighbors` are, float32 [B, h, w]."""
    return [
        tf.exp(-tf.norm(images - each, axis=-1) / _COLOR_SCALE)
        for each in neighbors(images, dilation)
    ]


def of_colors(
    logits: tf.Tensor, boxes: tf.Tensor, images: tf.Tensor, *, threshold: float, dilation: int
) -> tf.Tensor:
    """Returns how far neighbours of like colours differ in their masks, [B, M] (BoxInst, sec. 3.2).

    Args:
      logits: masks.
      boxes: whose pixels count.
      images: float32 [B, h, w, 3], L*a*b*.
      threshold: similarity of neighbours that are to have the same mask value.
      dilation: distance of neighbours in pixels.
    """
    height, width = dimensions(logits, 2, 3)
    # [B, h, w, M]: one pass for all objects, and a sum without the eight maps side by side.
    masks = tf.transpose(tf.sigmoid(logits), [0, 2, 3, 1])
    total = 0.0
    similarities = color_similarity(images, dilation)
    for mask, similarity in zip(neighbors(masks, dilation), similarities, strict=True):
        is_alike = tf.cast(similarity > threshold, tf.float32)[..., tf.newaxis]
        total -= is_alike * tf.math.log(
            tf.maximum(same_label_probability(masks, mask), _SMALLEST_PROBABILITY)
        )
    return mean_inside(tf.transpose(total, [0, 3, 1, 2]), fill_boxes(boxes, height, width))


def same_label_probability(masks: tf.Tensor, others: tf.Tensor) -> tf.Tensor:
    """Returns how probably two independent pixels both belong, or both do not."""
    return masks * others + (1.0 - masks) * (1.0 - others)


def dice_of_views(logits: tf.Tensor, others: tf.Tensor, inside: tf.Tensor) -> tf.Tensor:
    """Returns 1 - dice of the masks and of where the other view's are above 1/2, [B, M].

    Args:
      logits, others: of this and of the other view, [B, M, h, w].
      inside: float32 [B, M, h, w], 1 for pixels that count, else 0.
    """
    masks, others = tf.sigmoid(logits) * inside, tf.cast(others > 0.0, tf.float32) * inside
    overlap = tf.reduce_sum(masks * others, axis=[2, 3])
    volume = tf.reduce_sum(masks + others, axis=[2, 3])
    return 1.0 - tf.math.divide_no_nan(2.0 * overlap, volume)


def squares_of_views(logits: tf.Tensor, others: tf.Tensor, inside: tf.Tensor) -> tf.Tensor:
    """Returns the mean squared difference of probabilities; see `dice_of_views`."""
    return mean_inside(tf.square(tf.sigmoid(logits) - tf.sigmoid(others)), inside)


def divergence_of_views(logits: tf.Tensor, others: tf.Tensor, inside: tf.Tensor) -> tf.Tensor:
    """Returns the mean KL divergence of this from the other view's; see `dice_of_views`."""
    probabilities = tf.sigmoid(others)
    cross = tf.nn.sigmoid_cross_entropy_with_logits(labels=probabilities, logits=logits)
    own = tf.nn.sigmoid_cross_entropy_with_logits(labels=probabilities, logits=others)
    return mean_inside(cross - own, inside)


def mean_inside(values: tf.Tensor, inside: tf.Tensor) -> tf.Tensor:
    """Returns the means of values [B, M, h, w] over the pixels `inside`; 0 without any."""
    count = tf.maximum(tf.reduce_sum(inside, axis=[2, 3]), 1.0)
    return tf.reduce_sum(values * inside, axis=[2, 3]) / count


def of_points(
    loss: PixelLoss, logits: tf.Tensor, points: tf.Tensor, labels: tf.Tensor
) -> tf.Tensor:
    """Returns the mean loss at annotated points (https://arxiv.org/abs/2104.06404), [B, M].

    Args:
      loss: of pixels.
      logits: masks over the whole image.
      points: float32 [B, M, P, 2], normalized; NaN where there is none: those count with loss 0.
      labels: float32 [B, M, P], above 0 for a point of the object.
    """
    batch, count, height, width = dimensions(logits, 0, 1, 2, 3)
    is_given = ~tf.reduce_any(tf.math.is_nan(points), axis=-1)
    points = tf.where(is_given[..., tf.newaxis], points, 0.0)
    rows, columns = (
        tf.clip_by_value(tf.cast(points[..., i] * _as_float(side), tf.int32), 0, side - 1)
        for i, side in enumerate((height, width))
    )
    flat = tf.reshape(logits, [batch, count, height * width])
    chosen = tf.gather(flat, rows * width + columns, batch_dims=2)  # [B, M, P]
    targets = tf.cast(labels > 0.0, tf.float32)
    return _aggregate(loss, chosen, targets, weights=tf.cast(is_given, tf.float32))


def _aggregate(
    loss: PixelLoss,
    logits: tf.Tensor,
    targets: tf.Tensor,
    normalize: Callable[[tf.Tensor, tf.Tensor], tf.Tensor] | None = None,
    weights: tf.Tensor | None = None,
) -> tf.Tensor:
    """Returns the loss of each object, [B, M]: the mean over its pixels, or as `normalize` says.

    Args:
      loss: of pixels.
      logits, targets: [B, M, ...].
      normalize: from losses and targets [N, P, 1] to numbers [N].
      weights: [B, M, ...]; ones if None.
    """
    batch, count = dimensions(logits, 0, 1)

    def rows(values: tf.Tensor) -> tf.Tensor:
        """[B, M, ...] -> [B * M, P, 1]."""
        pixels = dimensions(values, *range(2, len(values.shape)))
        size = pixels[0] * pixels[1] if len(pixels) == 2 else pixels[0]
        return tf.reshape(values, [batch * count, size, 1])

    logits, targets = rows(logits), rows(targets)
    weights = tf.ones_like(logits) if weights is None else rows(weights)
    losses = loss(logits, targets, weights)
    if normalize is not None:
        totals = normalize(losses, targets)
    elif len(losses.shape) == 2 and losses.shape[1] == 1:
        totals = losses[:, 0]
    else:
        totals = tf.reduce_mean(losses, axis=list(range(1, len(losses.shape))))
    return tf.reshape(totals, [batch, count])


def _sum(losses: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(losses, axis=list(range(1, len(losses.shape))))


def _as_float(side: int | tf.Tensor) -> tf.Tensor | float:
    return tf.cast(side, tf.float32) if tf.is_tensor(side) else float(side)


# sRGB (IEC 61966-2-1): from linear red, green and blue to X, Y, Z, which it divides by those of its
# white, D65.
_TO_XYZ = (
    (0.412453, 0.357580, 0.180423),
    (0.212671, 0.715160, 0.072169),
    (0.019334, 0.119193, 0.950227),
)
_WHITE = (0.95047, 1.0, 1.08883)
# Where the curves of sRGB and of CIE 1976 begin to be lines.
_LINEAR_SRGB = 0.04045
_LINEAR_LAB = 0.008856


def srgb_to_lab(images: tf.Tensor) -> tf.Tensor:
    """Converts sRGB to CIE 1976 L*a*b* with the white D65.

    Distances in it are about those that people see.

    Args:
      images: float32 [..., 3], red, green and blue, 0..1.

    Returns:
      float32 [..., 3]: L* in 0..100, a* and b* about -128..127.
    """
    # Roots of numbers that are not positive have no gradient.
    curve = tf.pow((tf.maximum(images, _LINEAR_SRGB) + 0.055) / 1.055, 2.4)
    linear = tf.where(images > _LINEAR_SRGB, curve, images / 12.92)
    to_xyz = tf.constant(_TO_XYZ) / tf.constant(_WHITE)[:, tf.newaxis]
    xyz = tf.linalg.matvec(to_xyz, linear)
    root = tf.pow(tf.maximum(xyz, _LINEAR_LAB), 1.0 / 3.0)
    x, y, z = tf.unstack(
        tf.where(xyz > _LINEAR_LAB, root, 7.787 * xyz + 16.0 / 116.0), num=3, axis=-1
    )
    return tf.stack([116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)], axis=-1)
