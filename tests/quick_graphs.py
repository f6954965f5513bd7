"""Graphs that are made fast rather than run fast: most tests run one a few times."""

import contextlib
from collections.abc import Iterator
from unittest import mock

import tensorflow as tf
from tensorflow.python.autograph.core import ag_ctx
from tensorflow.python.data.ops.dataset_ops import DatasetV2
from tensorflow.python.util import tf_stack

_STACK = tf_stack.extract_stack()


def _same_stack(stacklevel: int = 1):
    return _STACK


@contextlib.contextmanager
def without_stacks() -> Iterator[None]:
    """Leaves out where in Python each operation was made, which is a tenth of tracing."""
    with mock.patch.object(tf_stack, 'extract_stack', _same_stack):
        yield


@contextlib.contextmanager
def unoptimized() -> Iterator[None]:
    """Leaves graphs as they were traced, until the outermost of these blocks ends."""
    option = 'disable_meta_optimizer'
    before = tf.config.optimizer.get_experimental_options().get(option, False)
    tf.config.optimizer.set_experimental_options({option: True})
    try:
        yield
    finally:
        tf.config.optimizer.set_experimental_options({option: before})


@contextlib.contextmanager
def plain_data_sets(*, optimized: bool = False) -> Iterator[None]:
    """Traces functions of data sets as they are, which is what `dataset_builder` does.

    AutoGraph would rewrite their code first, and then watch each call: a fourth of the time. Nor
    are the graphs of data sets optimized unless `optimized`: a test takes a few elements of them.
    They run in one thread where they do not say in how many: each thread would prepare functions
    for itself.
    """
    options = tf.data.Options()
    if not optimized:
        options.experimental_optimization.apply_default_optimizations = False
    one_thread = tf.data.Options()
    one_thread.threading.private_threadpool_size = 1

    def with_options(data: tf.data.Dataset) -> tf.data.Dataset:
        data = data.with_options(options)
        # The options of a data set within a graph are not known.
        if not tf.executing_eagerly() or data.options().threading.private_threadpool_size:
            return data
        return data.with_options(one_thread)

    with (
        ag_ctx.ControlStatusCtx(status=ag_ctx.Status.DISABLED),
        # Each iterator calls it; the data set's own options stay.
        mock.patch.object(DatasetV2, '_apply_debug_options', with_options),
    ):
        yield
