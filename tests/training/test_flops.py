"""Counts of single operations, by hand."""

import pytest
import tensorflow as tf

from object_detection.training import flops


def counted(function, *shapes) -> flops.FlopCount:
    specs = [tf.TensorSpec(shape, tf.float32) for shape in shapes]
    traced = tf.function(function, autograph=False).get_concrete_function(*specs)
    return flops.count(traced.graph)


def gradients(function):
    def run(*inputs):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            output = function(*inputs)
        return tape.gradient(output, inputs)

    return run


def convolve(image, kernel):
    return tf.nn.conv2d(image, kernel, 2, 'SAME')


def depthwise(image, kernel):
    return tf.nn.depthwise_conv2d(image, kernel, [1, 1, 1, 1], 'SAME')


@pytest.mark.parametrize(
    ('function', 'shapes', 'expected'),
    [
        # 2 images, 4 x 3 pixels out, each 3 * 3 * 5 products for 7 channels.
        (convolve, ([2, 8, 6, 5], [3, 3, 5, 7]), 2 * 2 * 12 * 45 * 7),
        # Forward and two gradients of the same cost.
        (gradients(convolve), ([2, 8, 6, 5], [3, 3, 5, 7]), 3 * 2 * 2 * 12 * 45 * 7),
        (depthwise, ([1, 4, 4, 5], [3, 3, 5, 2]), 2 * 16 * 10 * 9),
        (gradients(depthwise), ([1, 4, 4, 5], [3, 3, 5, 2]), 3 * 2 * 16 * 10 * 9),
        (tf.matmul, ([3, 4], [4, 5]), 2 * 3 * 4 * 5),
        (lambda a, b: tf.matmul(a, b, transpose_a=True), ([4, 3], [4, 5]), 2 * 3 * 4 * 5),
        (tf.matmul, ([6, 3, 4], [6, 4, 5]), 2 * 6 * 3 * 4 * 5),
        (lambda a, b: tf.einsum('bij,bjk->bik', a, b), ([6, 3, 4], [6, 4, 5]), 2 * 6 * 3 * 4 * 5),
        (lambda a, b: tf.einsum('...j,jk->...k', a, b), ([6, 3, 4], [4, 5]), 2 * 6 * 3 * 4 * 5),
    ],
)
def test_by_hand(function, shapes, expected):
    result = counted(function, *shapes)
    assert result.total == expected
    assert result.unknown == []


def test_called_functions_and_the_dearest_branch_count():
    @tf.function(autograph=False)
    def inner(a, b):
        return tf.matmul(a, b)

    def outer(a, b):
        first = inner(a, b)
        return first, tf.cond(a[0, 0] > 0, lambda: tf.matmul(a, b), lambda: tf.zeros([3, 5]))

    result = counted(outer, [3, 4], [4, 5])
    assert result.total == 2 * (2 * 3 * 4 * 5)
    assert all('/' in name for name in result.by_operation)


def test_what_is_not_static_is_told():
    result = counted(lambda a, b: tf.matmul(a, b, name='product'), [None, 4], [4, 5])
    assert (result.total, result.unknown) == (0, ['product'])


def test_loops_are_told():
    def loop(a):
        return tf.while_loop(lambda i, _: i < 3, lambda i, x: (i + 1, tf.matmul(x, a)), (0, a))[1]

    result = counted(loop, [4, 4])
    assert result.total == 2 * 64
    assert (len(result.loops), result.unknown) == (1, [])
