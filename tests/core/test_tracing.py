import pytest
import tensorflow as tf

from object_detection.core import tracing


@pytest.mark.parametrize('jit_compile', [False, True])
def test_detects_what_xla_compiles(jit_compile):
    seen = []

    @tf.function(autograph=False)
    def inner(x):
        seen.append(tracing.is_compiled())
        return x

    @tf.function(jit_compile=jit_compile, autograph=False)
    def outer(x):
        seen.append(tracing.is_compiled())
        return tf.while_loop(lambda i, _: i < 1, lambda i, y: (i + 1, inner(y)), (0, x))

    outer(tf.constant(1.0))
    assert seen
    assert set(seen) == {jit_compile}
    assert not tracing.is_compiled()
