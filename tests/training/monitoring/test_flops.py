"""Counts of single operations, by hand."""

import tensorflow as tf

from object_detection.training.monitoring import model_summary
from tests import rows


def counted(function, *shapes) -> model_summary.FlopCount:
    specs = [tf.TensorSpec(shape, tf.float32) for shape in shapes]
    traced = tf.function(function, autograph=False).get_concrete_function(*specs)
    return model_summary.count(traced.graph)


def gradients(function):
    def run(*inputs):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            output = function(*inputs)
        return output, tape.gradient(output, inputs)

    return run


def convolve(image, kernel):
    return tf.nn.conv2d(image, kernel, 2, 'SAME')


def depthwise(image, kernel):
    return tf.nn.depthwise_conv2d(image, kernel, [1, 1, 1, 1], 'SAME')


@rows.parametrize(
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


def test_what_is_not_static_is_reported():
    result = counted(lambda a, b: tf.matmul(a, b, name='product'), [None, 4], [4, 5])
    assert (result.total, result.unknown) == (0, ['product'])


def test_loops_without_a_known_end_are_reported():
    def loop(a):
        return tf.while_loop(lambda i, _: i < 3, lambda i, x: (i + 1, tf.matmul(x, a)), (0, a))[1]

    result = counted(loop, [4, 4])
    assert result.total == 2 * 64
    assert (len(result.loops), result.unknown) == (1, [])


def test_loops_count_as_often_as_they_run():
    """Forward once, and two products for the gradients, of each of three rows."""

    def rows(a, b):
        return tf.map_fn(lambda row: tf.matmul(row, b), a)

    result = counted(rows, [3, 2, 4], [4, 5])
    assert (result.total, result.loops) == (3 * 2 * 2 * 4 * 5, [])
    result = counted(gradients(rows), [3, 2, 4], [4, 5])
    assert (result.total, result.loops) == (3 * 3 * 2 * 2 * 4 * 5, [])


def test_transposed_convolutions_and_their_gradients():
    def enlarge(image, kernel):
        return tf.nn.conv2d_transpose(image, kernel, [2, 8, 6, 5], 2)

    # Each of 2 x 4 x 3 pixels of 7 channels makes 2 x 2 pixels of 5.
    flops_once = 2 * (2 * 4 * 3 * 7) * (2 * 2 * 5)
    assert counted(enlarge, [2, 4, 3, 7], [2, 2, 5, 7]).total == flops_once
    assert counted(gradients(enlarge), [2, 4, 3, 7], [2, 2, 5, 7]).total == 3 * flops_once


def test_what_xla_compiles_counts():
    compiled = tf.function(tf.matmul, jit_compile=True)
    assert counted(lambda a, b: compiled(a, b), [3, 4], [4, 5]).total == 2 * 3 * 4 * 5


def test_what_nothing_depends_on_does_not_count():
    def only_the_kernel(image, kernel):
        with tf.GradientTape() as tape:
            tape.watch(kernel)
            # Watched as well: the gradient of the image is in the graph, but not asked for.
            tape.watch(image)
            output = convolve(image * 2.0, kernel)
        return tape.gradient(output, kernel)

    assert counted(only_the_kernel, [2, 8, 6, 5], [3, 3, 5, 7]).total == 2 * 2 * 12 * 45 * 7
