"""What will execute the graph that is being traced, and contexts that code far below asks for."""

import contextlib
import contextvars
import functools
from collections.abc import Callable, Mapping

import tensorflow as tf

from object_detection.core import scopes
from object_detection.system import private_names

_MOVING_STATISTICS = ('/moving_mean', '/moving_variance', '/moving_min', '/moving_max')
_current_step: contextvars.ContextVar[tf.Variable | None] = contextvars.ContextVar(
    'current_step', default=None
)
_image_seeds: contextvars.ContextVar[tf.Tensor | None] = contextvars.ContextVar(
    'image_seeds', default=None
)
_may_compile = contextvars.ContextVar('may_compile', default=True)


def is_compiled() -> bool:
    """Whether XLA compiles what is traced now: a `tf.function(jit_compile=True)`, or for TPUs.

    Forms that only XLA needs, or that are fast on TPUs alone, are for it: cropping regions by
    matrix products takes fifty times as long on a CPU as by TensorFlow's kernel.
    """
    return private_names.is_compiled_by_xla(tf.compat.v1.get_default_graph())


def portable() -> contextlib.AbstractContextManager:
    """Graphs that are traced in the block hold no function that has to be compiled by XLA.

    Exports are such graphs: servers and converters without XLA refuse the others, and XLA would
    compile again for each batch size that it meets.
    """
    return scopes.scope(_may_compile, False)


def may_compile() -> bool:
    """Whether a part of what is traced now may be handed to XLA: not within `portable`."""
    return _may_compile.get()


def training_step(step: tf.Variable) -> contextlib.AbstractContextManager:
    """What is traced in the block is a step of a training; `step` counts the steps before it."""
    return scopes.scope(_current_step, step)


def current_step() -> tf.Variable | None:
    """Returns the number of steps before the one that is traced now; None outside of trainings."""
    return _current_step.get()


def drawing_by(seeds: tf.Tensor | None) -> contextlib.AbstractContextManager:
    """Random numbers of layers that are called in the block follow from seeds, int32 [B, 2]."""
    return scopes.scope(_image_seeds, seeds)


def image_seeds() -> tf.Tensor | None:
    """Returns the seeds of the innermost `drawing_by`; None outside of all."""
    return _image_seeds.get()


def named(scope: str) -> Callable[[Callable], Callable]:
    """Decorates a function: the nodes that it adds to a graph are named `scope`/..., for profiles.

    `benchmarking/node_times.py` knows the scopes.
    """

    def decorate(function: Callable) -> Callable:
        @functools.wraps(function)
        def run(*arguments, **options):
            with tf.name_scope(scope):
                return function(*arguments, **options)

        return run

    return decorate


class Scope:
    """The base of a context that is on while it is entered, however often; one kind a subclass.

    It saves an argument through all the layers between. All threads share it.
    """

    _depth = 0

    def __enter__(self) -> None:
        type(self)._depth += 1

    def __exit__(self, *error: object) -> None:
        type(self)._depth -= 1

    @classmethod
    def is_on(cls) -> bool:
        return cls._depth > 0


class FrozenStatistics(Scope):
    """Within it layers compute as in training, but do not update their moving statistics.

    For a further pass over a batch in the same step, which is no further batch.
    """


class Recomputed(Scope):
    """Within it networks keep few maps for the gradients, and compute the others again."""


class BasicOperations(Scope):
    """Within it graphs hold only operations that converters for phones and boards know.

    Maps are enlarged by the operation that resizes images, regions are cropped by index, and
    detections suppressed by the operation for a single class; on CPUs and GPUs other forms are
    faster.
    """


class SingleImages(Scope):
    """Within it every batch is of one image, so that graphs hold no loops over images."""


def moving_statistics(variables: Mapping[str, tf.Variable]) -> list[tf.Variable]:
    """Returns the moving statistics among the variables of a model, by name.

    They are those of batch norms, and the ranges of quantized activations.
    """
    return [variable for name, variable in variables.items() if name.endswith(_MOVING_STATISTICS)]
