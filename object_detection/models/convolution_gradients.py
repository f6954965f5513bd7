"""Convolutions whose gradients are faster on CPUs than TensorFlow's; values are the same."""

from collections.abc import Sequence

import tensorflow as tf

# Of the pixels that the gradient of a kernel goes over, at most this many for each are padding.
_MAX_PADDING = 1.1
# Pixels with an upstream gradient that is not zero are few if there are this many others for each.
_FEW = 16


def convolve(maps: tf.Tensor, kernel: tf.Tensor, *, is_sparse: bool = False) -> tf.Tensor:
    """Convolves with stride 1 and SAME padding; gradients are by matrix products.

    TensorFlow's gradients in float32 copy all k x k neighbours of all pixels of an image, one image
    after the other in one thread: 0.6 GB for 256 channels of 208 x 336 pixels. In bfloat16 they
    convert the layout of whole maps.

    Args:
      maps: float [B, H, W, C], of static sizes but for B.
      kernel: [k, k', C, D] of the same dtype, k and k' odd.
      is_sparse: whether most pixels of the upstream gradient may be zero, such as those of anchors
        that are not sampled. If so, gradients are computed from the others alone.

    Returns:
      [B, H, W, D] of the same dtype.
    """

    @tf.custom_gradient
    def run(maps: tf.Tensor, kernel: tf.Tensor):
        def gradients(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            compute = _gradients_if_sparse if is_sparse else _gradients
            return compute(maps, kernel, upstream)

        return tf.nn.conv2d(maps, kernel, 1, 'SAME'), gradients

    return run(maps, kernel)


def _gradients(
    maps: tf.Tensor, kernel: tf.Tensor, upstream: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    return _gradient_of_maps(maps, kernel, upstream), _gradient_of_kernel(
        maps, upstream, kernel.shape[:2]
    )


def _gradient_of_maps(maps: tf.Tensor, kernel: tf.Tensor, upstream: tf.Tensor) -> tf.Tensor:
    if maps.dtype != tf.float32:
        return tf.raw_ops.Conv2DBackpropInput(
            input_sizes=tf.shape(maps),
            filter=kernel,
            out_backprop=upstream,
            strides=[1, 1, 1, 1],
            padding='SAME',
        )
    turned = tf.transpose(kernel[::-1, ::-1], [0, 1, 3, 2])
    return tf.nn.conv2d(upstream, turned, 1, 'SAME')


def _gradient_of_kernel(maps: tf.Tensor, upstream: tf.Tensor, sides: Sequence[int]) -> tf.Tensor:
    """[B, H, W, C], [B, H, W, D] -> [*sides, C, D].

    With zeros around the images, all pixels form one row, and the pixels for an element of the
    kernel are a slice of this row, from another index on: no neighbours need to be copied.
    """
    vertical, horizontal = (side - 1 for side in sides)
    height, width = maps.shape[1:3]
    if (height + vertical) * (width + horizontal) > _MAX_PADDING * height * width:
        sizes = [*sides, maps.shape[3], upstream.shape[3]]
        return tf.raw_ops.Conv2DBackpropFilter(
            input=maps,
            filter_sizes=sizes,
            out_backprop=upstream,
            strides=[1, 1, 1, 1],
            padding='SAME',
        )
    around = [[vertical // 2] * 2, [horizontal // 2] * 2]
    pixels = _pixels(maps, around)
    gradients = _pixels(upstream, [[0, vertical], [0, horizontal]])
    count = tf.shape(pixels)[0]
    starts = [y * (width + horizontal) + x for y in range(sides[0]) for x in range(sides[1])]
    products = [
        tf.matmul(pixels[start:], gradients[: count - start], transpose_a=True) for start in starts
    ]
    return tf.reshape(tf.stack(products), [*sides, maps.shape[3], upstream.shape[3]])


def _pixels(maps: tf.Tensor, paddings: Sequence[Sequence[int]]) -> tf.Tensor:
    """[B, H, W, C] -> [B * H' * W', C], with zeros around."""
    if any(map(any, paddings)):
        maps = tf.pad(maps, [[0, 0], *paddings, [0, 0]])
    return tf.reshape(maps, [-1, maps.shape[3]])


def _gradients_if_sparse(
    maps: tf.Tensor, kernel: tf.Tensor, upstream: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the gradients, from few pixels where that suffices."""
    pixels = _nonzero_rows(tf.reshape(upstream, [-1, upstream.shape[3]]))
    count = tf.size(upstream) // upstream.shape[3]
    return tf.cond(
        tf.size(pixels) * _FEW < count,
        lambda: _gradients_of_few(maps, kernel, upstream, pixels),
        lambda: _gradients(maps, kernel, upstream),
    )


def _nonzero_rows(values: tf.Tensor) -> tf.Tensor:
    """Float [N, D] -> int32 [n], rows that are not zero; the bits of rows of zeros are zeros."""
    if values.dtype.size == 2 and values.shape[1] % 2 == 0:
        # Pairs of numbers, as integers, are compared faster.
        bits = tf.bitcast(tf.reshape(values, [-1, values.shape[1] // 2, 2]), tf.int32)
    elif values.dtype.size == 4:
        bits = tf.bitcast(values, tf.int32)
    else:
        bits = tf.bitcast(tf.cast(values, tf.float32), tf.int32)
    is_zero = (tf.reduce_max(bits, axis=1) == 0) & (tf.reduce_min(bits, axis=1) == 0)
    return tf.cast(tf.where(~is_zero)[:, 0], tf.int32)


def _gradients_of_few(
    maps: tf.Tensor, kernel: tf.Tensor, upstream: tf.Tensor, pixels: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the gradients from the given pixels, int32 [n], of the upstream gradient.

    Products and sums are in float32.
    """
    height, width, channels = maps.shape[1:]
    vertical, horizontal, _, depth = kernel.shape
    taps = vertical * horizontal
    rows = tf.cast(tf.gather(tf.reshape(upstream, [-1, depth]), pixels), tf.float32)
    sources, is_inside = _neighbours(pixels, (height, width), (vertical, horizontal))
    flat = tf.reshape(maps, [-1, channels])
    values = tf.gather(flat, tf.where(is_inside, sources, 0))  # [n, taps, C]
    values = tf.where(is_inside[..., tf.newaxis], tf.cast(values, tf.float32), 0.0)
    of_kernel = tf.matmul(tf.reshape(values, [-1, taps * channels]), rows, transpose_a=True)
    weights = tf.reshape(tf.cast(kernel, tf.float32), [taps * channels, depth])
    of_values = tf.reshape(tf.matmul(rows, weights, transpose_b=True), [-1, taps, channels])
    of_values = tf.boolean_mask(of_values, is_inside)
    touched, positions = tf.unique(tf.boolean_mask(sources, is_inside))
    sums = tf.math.unsorted_segment_sum(of_values, positions, tf.size(touched))
    of_maps = tf.scatter_nd(touched[:, tf.newaxis], tf.cast(sums, maps.dtype), tf.shape(flat))
    return (
        tf.reshape(of_maps, tf.shape(maps)),
        tf.cast(tf.reshape(of_kernel, kernel.shape), kernel.dtype),
    )


def _neighbours(
    pixels: tf.Tensor, size: Sequence[int], sides: Sequence[int]
) -> tuple[tf.Tensor, tf.Tensor]:
    """Pixels int32 [n] of maps -> those that a kernel sees, and which exist, [n, taps]."""
    height, width = size
    y, x = pixels // width % height, pixels % width
    rows = tf.repeat(tf.range(sides[0]) - sides[0] // 2, sides[1])
    columns = tf.tile(tf.range(sides[1]) - sides[1] // 2, sides[:1])
    y, x = y[:, tf.newaxis] + rows, x[:, tf.newaxis] + columns
    is_inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)
    return pixels[:, tf.newaxis] + rows * width + columns, is_inside
