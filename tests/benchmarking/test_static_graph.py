"""Shapes that a graph gets from one run."""

import tensorflow as tf

from object_detection.benchmarking import convolutions, static_graph
from object_detection.training.monitoring import model_summary


def test_shapes_are_those_of_the_inputs_in_called_functions_too():
    kernel = tf.Variable(tf.ones([3, 3, 2, 4]))

    @tf.function
    def inner(values):
        # As many rows as there are positive values: known only when it runs.
        rows = tf.boolean_mask(tf.reshape(values, [-1, 4]), tf.reshape(values[..., 0] > 0, [-1]))
        return tf.matmul(rows, tf.ones([4, 5]))

    @tf.function(input_signature=[tf.TensorSpec([None, None, None, 2])])
    def outer(images):
        return inner(tf.nn.conv2d(images, kernel, 1, 'SAME'))

    images = tf.concat([tf.ones([2, 3, 6, 2]), -tf.ones([2, 5, 6, 2])], axis=1)
    function = outer.get_concrete_function()
    assert model_summary.count(function.graph).unknown
    graph = static_graph.trace(function, [images], model_summary.COUNTED)
    (convolution,) = convolutions.collect(graph)
    assert (convolution.image, convolution.kernel) == ((2, 8, 6, 2), (3, 3, 2, 4))
    counted = model_summary.count(graph)
    assert counted.unknown == []
    found = tf.nn.conv2d(images, kernel, 1, 'SAME')[..., 0]
    rows = int(tf.reduce_sum(tf.cast(found > 0, tf.int32)))
    assert 0 < rows < 96
    assert counted.total == 2 * (2 * 8 * 6 * 4 * 3 * 3 * 2) + 2 * rows * 4 * 5
