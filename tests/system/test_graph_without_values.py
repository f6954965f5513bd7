import keras
import pytest
import tensorflow as tf

from object_detection.system import private_names


@pytest.mark.parametrize('initializer', ['glorot_uniform', 'truncated_normal', 'orthogonal'])
def test_variables_have_their_shapes_and_dtypes(initializer):
    with private_names.graph_without_values():
        layer = keras.layers.Dense(3, kernel_initializer=initializer)
        outputs = layer(tf.zeros([2, 4]))
        variables = [tf.convert_to_tensor(each) for each in layer.weights]
        kinds = {each.type for each in tf.compat.v1.get_default_graph().get_operations()}
        shapes = [(each.dtype, each.shape.as_list()) for each in [*variables, outputs]]
    assert shapes == [(tf.float32, [4, 3]), (tf.float32, [3]), (tf.float32, [2, 3])]
    assert any('Random' in kind for kind in kinds) == (initializer == 'orthogonal')


def test_an_initializer_that_refuses_the_shape_is_an_error():
    layer = keras.layers.Conv2D(3, 3, kernel_initializer='identity')
    with (
        private_names.graph_without_values(),
        pytest.raises(ValueError, match='only be used for 2D matrices'),
    ):
        layer.build((None, None, None, 3))
