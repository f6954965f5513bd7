"""Selection of rows of a batch: balanced samples of anchors, and gathering of their values.

All functions work on batches, have static shapes and are compiled by XLA.
"""

import numpy as np
import tensorflow as tf

from object_detection.core import tracing
from object_detection.core.shapes import dimensions
from object_detection.errors import UserError, expected


def sample_balanced(
    candidates: tf.Tensor,
    positives: tf.Tensor,
    num_samples: int | None,
    positive_fraction: float,
    noise: tf.Tensor,
    *,
    fill: bool | tf.Tensor = False,
) -> tf.Tensor:
    """Samples positives up to a share, and negatives for the rest (Faster R-CNN, sec. 3.1.3).

    At most int(positive_fraction * num_samples) positives are taken; negatives fill what is left
    of `num_samples`, so there are fewer samples only where negatives run out. Of each kind those
    with the largest noise are taken.

    Args:
      candidates: bool [B, N], rows that may be sampled.
      positives: bool [B, N]; all other candidates are negatives.
      num_samples: samples per image. None: all positives, and int(positives * (1 / fraction - 1))
        negatives.
      positive_fraction: the largest share of positives, in [0, 1].
      noise: float32 [B, N], finite, e.g. of `sampling_noise`.
      fill: a scalar, whether any other rows, including non-candidates, fill up missing samples to
        `num_samples`, as in the static sampler of the reference.

    Returns:
      bool [B, N], True for the samples.

    Raises:
      ValueError: if `positive_fraction` is outside [0, 1], or 0 without `num_samples`.
    """
    if not 0 <= positive_fraction <= 1 or (num_samples is None and positive_fraction == 0):
        raise expected(
            'positive_fraction', '0 to 1, above 0 where num_samples is None', positive_fraction
        )
    positives = tf.logical_and(candidates, positives)
    negatives = tf.logical_and(candidates, tf.logical_not(positives))
    num_positives = _count(positives)
    if num_samples is None:
        ratio = (1 - positive_fraction) / positive_fraction
        num_negatives = tf.cast(ratio * tf.cast(num_positives, tf.float32), tf.int32)
    else:
        num_positives = tf.minimum(num_positives, int(positive_fraction * num_samples))
        num_negatives = num_samples - num_positives
    num_negatives = tf.minimum(num_negatives, _count(negatives))
    size = (
        tf.shape(noise)[1] if num_samples is None else tf.minimum(num_samples, tf.shape(noise)[1])
    )
    sampled = tf.logical_or(
        _largest(positives, noise, num_positives, size),
        _largest(negatives, noise, num_negatives, size),
    )
    if fill is False or num_samples is None:
        return sampled
    others = tf.logical_not(sampled)
    num_others = tf.where(fill, size - _count(sampled), 0)
    return tf.logical_or(sampled, _largest(others, noise, num_others, size))


def sampled_indices(sampled: tf.Tensor, size: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns where `sampled` is True.

    Args:
      sampled: bool [B, N], N below 2^24; of more than `size` samples the first are taken.
      size: number of slots per image.

    Returns:
      indices: int32 [B, size], increasing; 0 in slots without a sample.
      valid: bool [B, size], whether a slot has a sample.
    """
    num_rows = tf.shape(sampled)[1]
    # Earlier rows have larger values. Float32 has the fastest top_k and is exact for these numbers.
    keys = tf.cast(sampled, tf.float32) * tf.cast(num_rows - tf.range(num_rows), tf.float32)
    keys, indices = tf.math.top_k(keys, tf.minimum(size, num_rows))
    valid = keys > 0
    missing = [[0, 0], [0, tf.maximum(size - num_rows, 0)]]
    indices = tf.pad(tf.where(valid, indices, 0), missing)
    valid = tf.pad(valid, missing)
    return tf.reshape(indices, [-1, size]), tf.reshape(valid, [-1, size])


def fold_in(seeds: tf.Tensor | None, use: tuple[int, int]) -> tf.Tensor | None:
    """Derives the seeds of one use from the seeds of images, int32 [B, 2]; None for None."""
    return None if seeds is None else seeds * 2 + tf.constant(use)


def sampling_noise(
    seeds: tf.Tensor | None, size: int | tf.Tensor, batch_size: int | tf.Tensor | None = None
) -> tf.Tensor:
    """Returns uniform noise for `sample_balanced`.

    With seeds, an image's noise depends on its own seed and on nothing else: not on its index in
    the batch, the size of the batch, the device or the compiler. It is a hash of seed and index,
    each step the integer mixing function "lowbias32" (https://nullprogram.com/blog/2018/07/31/), as
    stateless generators of TensorFlow have one seed per call and differ between devices.

    Args:
      seeds: int32 [B, 2], or None for stateful random numbers.
      size: numbers per image.
      batch_size: B if `seeds` is None; otherwise not needed.

    Returns:
      float32 [B, size] in [0, 1), multiples of 2^-24.

    Raises:
      ValueError: if both `seeds` and `batch_size` are None.
    """
    if seeds is None:
        if batch_size is None:
            raise UserError('sampling_noise: expected seeds or batch_size. Received: neither.')
        return tf.random.uniform([batch_size, size])
    seeds = tf.bitcast(tf.cast(seeds, tf.int32), tf.uint32)
    # Each image has two keys; with one, the numbers of two images could be shifted copies.
    first = _mix(_mix(seeds[:, :1]) + seeds[:, 1:])  # [B, 1]
    second = _mix(first + seeds[:, :1])
    index = tf.bitcast(tf.range(size), tf.uint32)[tf.newaxis]
    hashed = _mix(tf.bitwise.bitwise_xor(_mix(index + first), second))  # [B, size]
    return tf.cast(_shift(hashed, 8), tf.float32) * 2.0**-24


def noise_of_images(count: int | tf.Tensor, number: int) -> tf.Tensor:
    """Returns uniform noise, float32 [count] in [0, 1), by which a layer leaves something out.

    Within `tracing.drawing_by` it follows from the seeds of the images.

    Args:
      count: a multiple of the number of images; consecutive values are of the same image.
      number: of the layer, which makes its noise another one than that of others.
    """
    seeds = tracing.image_seeds()
    if seeds is None:
        return sampling_noise(None, 1, batch_size=count)[:, 0]
    # Far from the differences between the seeds of images.
    key = (number + 1) * 0x9E3779B1 % 2**31
    (images,) = dimensions(seeds, 0)
    noise = sampling_noise(seeds + tf.constant([0, key]), count // images)
    return tf.reshape(noise, [count])


def gather_rows(params: tf.Tensor, indices: tf.Tensor, use_matmul: bool = False) -> tf.Tensor:
    """Returns the rows of `params` that `indices` name, image by image.

    Args:
      params: [B, N, ...].
      indices: int32 [B, S], in [0, N).
      use_matmul: whether to multiply with a one-hot matrix [B, S, N], which is faster on hardware
        that is poor at gathering, and takes its memory. The result is the same to the bit for
        finite float32 (except for subnormal numbers, which hardware may flush to zero), booleans
        and integers below 2^24.

    Returns:
      [B, S, ...] of the type of `params`.
    """
    if not use_matmul:
        return tf.gather(params, indices, batch_dims=1)
    shape = tf.shape(params)
    flat_shape = [shape[0], shape[1], tf.reduce_prod(shape[2:])]
    flat = tf.cast(tf.reshape(params, flat_shape), tf.float32)
    one_hot = tf.one_hot(indices, shape[1], dtype=tf.float32)  # [B, S, N]
    # Matrix units round their input (to 8 bits on TPU): three parts of 8 bits pass unchanged.
    high, rest = _split_bits(flat)
    middle, low = _split_bits(rest)
    rows = tf.matmul(one_hot, tf.concat([high, middle, low], axis=-1))
    high, middle, low = tf.split(rows, 3, axis=-1)
    rows = tf.reshape(high + middle + low, tf.concat([tf.shape(indices), shape[2:]], axis=0))
    rows.set_shape([*indices.shape, *params.shape[2:]])
    return tf.cast(rows, params.dtype)


def _count(mask: tf.Tensor) -> tf.Tensor:
    """bool [B, N] -> int32 [B]."""
    return tf.reduce_sum(tf.cast(mask, tf.int32), axis=1)


def _largest(mask: tf.Tensor, noise: tf.Tensor, counts: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    """Marks the `counts` [B] rows of `mask` [B, N] with the largest noise; counts <= size."""
    _, order = tf.math.top_k(tf.where(mask, noise, -np.inf), size)  # [B, size]
    taken = tf.range(size) < counts[:, tf.newaxis]
    images = tf.broadcast_to(tf.range(tf.shape(order)[0])[:, tf.newaxis], tf.shape(order))
    where = tf.stack([images, order], axis=-1)
    # Float32, as TensorFlow scatters int32 on the host.
    marks = tf.scatter_nd(where, tf.cast(taken, tf.float32), tf.shape(noise))
    return tf.ensure_shape(marks > 0, mask.shape)


def _split_bits(values: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the first 8 significant bits of float32 numbers, and the exact rest."""
    bits = tf.bitwise.bitwise_and(tf.bitcast(values, tf.uint32), np.uint32(0xFFFF0000))
    high = tf.bitcast(bits, tf.float32)
    return high, values - high


def _mix(values: tf.Tensor) -> tf.Tensor:
    """A bijection of uint32 of which each bit of the result depends on each bit of the input."""
    values = tf.bitwise.bitwise_xor(values, _shift(values, 16)) * np.uint32(0x7FEB352D)
    values = tf.bitwise.bitwise_xor(values, _shift(values, 15)) * np.uint32(0x846CA68B)
    return tf.bitwise.bitwise_xor(values, _shift(values, 16))


def _shift(values: tf.Tensor, bits: int) -> tf.Tensor:
    return tf.bitwise.right_shift(values, np.uint32(bits))
