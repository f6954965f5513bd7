"""The losses and gradients of one replica's batch: at once or in parts, interpreted or compiled.

Also their reduction over replicas, and the scaling of the loss for gradients in float16
(https://arxiv.org/abs/1710.03740, sec. 3.2).
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import tensorflow as tf

from object_detection.core import determinism, loss_sum, tracing
from object_detection.core.example_fields import Geometry, names_of
from object_detection.core.fields import InputFields
from object_detection.core.loss_sum import LossSum
from object_detection.core.shapes import rows_from
from object_detection.errors import UserError

Tensors = dict[str, tf.Tensor]
# (batch, seeds int32 [B, 2]) -> losses of the batch by name.
LossFunction = Callable[[Tensors, tf.Tensor], Mapping[str, LossSum]]
# The sum of the regularisers' penalties.
REGULARIZATION_LOSS = 'Loss/regularization_loss'
# The sum of all losses, of which gradients are computed.
TOTAL_LOSS = 'Loss/total_loss'
# Axis of the image's height in each entry of the size of the image.
_SIZED = {InputFields.IMAGE: 1} | dict.fromkeys(names_of(Geometry.IMAGE_MASK), 2)


@dataclasses.dataclass(frozen=True)
class Execution:
    """Options of the computation of a step. Results are the same up to rounding.

    Attributes:
      jit_compile: whether XLA compiles losses and gradients, as one program for each image size.
      accumulation_steps: number of parts of a replica's batch that are computed one after the
        other; their gradients are summed.
      bucket_sizes: (height, width) of all batches; there is a program of static shapes for each. If
        empty, there is one program with the shapes of the data.
      recomputes: whether networks keep few of their maps for the gradients, and compute the others
        again; see `models.recomputation`.
    """

    jit_compile: bool = False
    accumulation_steps: int = 1
    bucket_sizes: tuple[tuple[int, int], ...] = ()
    recomputes: bool = False

    def __post_init__(self):
        if self.accumulation_steps < 1:
            raise UserError(
                'gradient_accumulation_steps: expected 1 or more. '
                f'Received: {self.accumulation_steps}.'
            )

    @property
    def is_plain(self) -> bool:
        """Whether the computation is part of the step's own graph."""
        return self == Execution(recomputes=self.recomputes)


class LossGradients:
    """Computes losses and gradients in the current replica.

    Losses are divided by numbers of the whole batch (such as the number of positive regions), which
    gradients need. If they cannot be exchanged during the computation, because other parts of the
    batch come later or the program is compiled, a first pass without gradients computes them. It
    runs only what they depend on: nothing of a network whose targets do not depend on predictions.

    Args:
      losses: computes the losses.
      variables: name -> variable.
      execution: options of the computation.
      scaled: scales the loss before differentiation; gradients are returned scaled.

    Attributes:
      num_traces: number of graphs that were built: one for each replica, or for each image size,
        and as many again for the first pass. XLA compiles each once, since all its shapes are
        static.
    """

    def __init__(
        self,
        losses: LossFunction,
        variables: Mapping[str, tf.Variable],
        execution: Execution,
        scaled: Callable[[tf.Tensor], tf.Tensor] = lambda objective: objective,
    ):
        self._losses = losses
        self._variables = dict(variables)
        self._execution = execution
        self._scaled = scaled
        self.num_traces = 0

    def __call__(self, batch: Tensors, seeds: tf.Tensor) -> tuple[Tensors, Tensors]:
        """Computes in replica context.

        Args:
          batch: batch of this replica, without texts.
          seeds: int32 [B, 2].

        Returns:
          The losses and their sum, and the gradients of that sum, by name. Their sums over the
          replicas are those of the batch.
        """
        parts = self._execution.accumulation_steps
        if self._execution.is_plain:
            return self._differentiate(batch, seeds, {})
        totals = {}
        if parts * tf.distribute.get_replica_context().num_replicas_in_sync > 1:
            totals = self._totals(batch, seeds)
        program = self._program(self._differentiate, batch, seeds, totals, count=parts)
        if parts == 1:
            return program(batch, seeds, totals)

        def add(index: tf.Tensor, sums: Any) -> tuple[tf.Tensor, Any]:
            results = program(*_part([batch, seeds], index, parts), totals)
            return index + 1, tf.nest.map_structure(tf.add, sums, results)

        zeros = tf.nest.map_structure(lambda t: tf.zeros(t.shape, t.dtype), program.outputs)
        _, sums = tf.while_loop(
            lambda index, _: index < parts, add, (0, zeros), parallel_iterations=1
        )
        return sums

    def _differentiate(
        self, batch: Tensors, seeds: tf.Tensor, totals: Tensors
    ) -> tuple[Tensors, Tensors]:
        """Returns losses and gradients; without `totals`, replicas exchange the normalizers."""
        self.num_traces += 1
        recomputed = tracing.Recomputed() if self._execution.recomputes else nullcontext()
        with tf.GradientTape() as tape:
            with recomputed:
                sums = self._losses(batch, seeds)
            totals = totals or loss_sum.over_replicas(loss_sum.divisors(sums))
            losses = with_total(loss_sum.divide(sums, totals))
            objective = self._scaled(losses[TOTAL_LOSS])
        # Variables on which no loss depends get zero gradients and keep their values.
        gradients = tape.gradient(
            objective, self._variables, unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        return losses, gradients

    def _totals(self, batch: Tensors, seeds: tf.Tensor) -> Tensors:
        """Returns the normalizers of the whole batch, of all parts and replicas."""
        parts = self._execution.accumulation_steps

        def count(batch: Tensors, seeds: tf.Tensor, _: Tensors) -> Tensors:
            self.num_traces += 1
            with tracing.FrozenStatistics():
                return loss_sum.divisors(self._losses(batch, seeds))

        program = self._program(count, batch, seeds, {}, count=parts)
        numbers = tf.map_fn(
            lambda index: program(*_part([batch, seeds], index, parts), {}),
            tf.range(parts),
            fn_output_signature=dict.fromkeys(program.outputs, tf.float32),
            parallel_iterations=1,
        )
        return loss_sum.over_replicas(tf.nest.map_structure(tf.reduce_sum, numbers))

    def _program(
        self, function: Callable, batch: Tensors, seeds: tf.Tensor, totals: Tensors, *, count: int
    ) -> '_Program':
        """Builds a function of (batch, seeds, totals) for each size of images.

        Args:
          function: function of these arguments.
          batch, seeds, totals: examples, of which `count` parts are one argument each.
          count: see there.
        """
        sizes = self._execution.bucket_sizes or (None,)
        examples = (*_part([batch, seeds], 0, count), totals)
        specs = tf.nest.map_structure(lambda t: tf.TensorSpec(t.shape, t.dtype), examples)
        # Created again in each trace of the step, since captured tensors belong to one replica.
        functions = [
            tf.function(
                function, jit_compile=self._execution.jit_compile or None, autograph=False
            ).get_concrete_function(*_with_size(specs, size))
            for size in sizes
        ]
        return _Program(sizes, functions)


@dataclasses.dataclass(frozen=True)
class _Program:
    """One function for each size of images; `None` is any size."""

    sizes: tuple[tuple[int, int] | None, ...]
    functions: list[Any]

    @property
    def outputs(self) -> Any:
        """The structure of the outputs of a call, with specs."""
        return self.functions[0].structured_outputs

    def __call__(self, batch: Tensors, seeds: tf.Tensor, totals: Tensors) -> Any:
        if len(self.functions) == 1:
            return self._run(0, batch, seeds, totals)
        shape = tf.shape(batch[InputFields.IMAGE])[1:3]
        is_size = tf.reduce_all(tf.constant(self.sizes) == shape, axis=1)
        return tf.switch_case(
            tf.argmax(is_size, output_type=tf.int32),
            [
                lambda index=index: self._run(index, batch, seeds, totals)
                for index in range(len(self.functions))
            ],
        )

    def _run(self, index: int, batch: Tensors, seeds: tf.Tensor, totals: Tensors) -> Any:
        size = self.sizes[index]
        if size is not None:
            batch = {
                name: tf.ensure_shape(t, _sized(name, t.shape, size)) for name, t in batch.items()
            }
        return self.functions[index](batch, seeds, totals)


def _part(tensors: Any, index: tf.Tensor | int, parts: int) -> Any:
    """The `index`-th of equal parts of tensors [B, ...]."""
    if parts == 1:
        return tensors

    def cut(tensor: tf.Tensor) -> tf.Tensor:
        size = tensor.shape[0] // parts
        return rows_from(tensor, index * size, size)

    return tf.nest.map_structure(cut, tensors)


def _with_size(specs: tuple[Any, ...], size: tuple[int, int] | None) -> tuple[Any, ...]:
    if size is None:
        return specs
    batch, *others = specs
    batch = {
        name: tf.TensorSpec(_sized(name, spec.shape, size), spec.dtype)
        for name, spec in batch.items()
    }
    return batch, *others


def _sized(name: str, shape: tf.TensorShape, size: tuple[int, int]) -> tf.TensorShape:
    """The static shape of an entry of a batch of images of `size`."""
    axis = _SIZED.get(name)
    return shape if axis is None else shape[:axis] + list(size) + shape[axis + 2 :]


def with_penalties(
    sums: Mapping[str, LossSum], penalties: Sequence[tf.Tensor], images: tf.Tensor
) -> dict[str, LossSum]:
    """Adds the regularization loss, if there are penalties, to the losses of a number of images.

    It is a mean over images, all of which have the same penalty.
    """
    if not penalties:
        return dict(sums)
    count = tf.cast(images, tf.float32)
    penalty = tf.cast(determinism.sum_in_order(penalties), tf.float32)
    return {**sums, REGULARIZATION_LOSS: LossSum(penalty * count, count)}


def with_total(losses: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Adds the total loss to losses, float32 scalars by name."""
    return {**losses, TOTAL_LOSS: determinism.sum_in_order(list(losses.values()))}


class GradientReduction:
    """The sum of gradients over all replicas.

    Args:
      bytes_per_pack: number of bytes of gradients that are sent at a time, so that the first pack
        is sent while other gradients are computed; 0 sends all gradients at once.
      implementation: 'AUTO', 'RING' or 'NCCL', see `tf.distribute.experimental`.
      in_bfloat16: whether gradients are sent and summed in bfloat16, which halves the traffic.
    """

    def __init__(
        self, *, bytes_per_pack: int = 0, implementation: str = 'AUTO', in_bfloat16: bool = False
    ):
        self._options = tf.distribute.experimental.CommunicationOptions(
            bytes_per_pack=bytes_per_pack,
            implementation=tf.distribute.experimental.CommunicationImplementation[implementation],
        )
        self._in_bfloat16 = in_bfloat16

    def __call__(self, gradients: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Sums gradients in replica context; the results have the dtypes of the gradients."""
        context = tf.distribute.get_replica_context()
        total = tf.distribute.ReduceOp.SUM
        # A single replica sends nothing, so it does not round.
        if not self._in_bfloat16 or context.num_replicas_in_sync == 1:
            return list(context.all_reduce(total, list(gradients), options=self._options))
        sent = [tf.cast(gradient, tf.bfloat16) for gradient in gradients]
        sums = context.all_reduce(total, sent, options=self._options)
        return [tf.cast(s, own.dtype) for s, own in zip(sums, gradients, strict=True)]


# Maximum of the scale: the next power of two is infinite in float32.
_LARGEST = 2.0**127


class LossScale:
    """A constant factor of the loss during differentiation.

    Without it, gradients below float16's smallest number would become zero. A power of two does not
    round.

    Args:
      value: the factor.
    """

    def __init__(self, value: float):
        self._value = value

    @property
    def value(self) -> tf.Tensor:
        """The current factor, float32 scalar."""
        return tf.constant(self._value, tf.float32)

    def scaled(self, objective: tf.Tensor) -> tf.Tensor:
        """Returns the objective, float32 scalar, times the factor."""
        return objective * self.value

    def unscaled(self, gradients: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Divides gradients of the scaled objective, float tensors by name; returns float32."""
        value = self.value
        return {name: tf.cast(values, tf.float32) / value for name, values in gradients.items()}

    def can_fall(self) -> tf.Tensor:
        """Whether the factor can decrease after gradients that are not finite, bool scalar."""
        return tf.constant(False)

    def update(self, is_finite: tf.Tensor) -> None:
        """Updates the factor; `is_finite`, bool scalar: whether all gradients were finite."""
        del is_finite

    def state(self) -> dict[str, tf.Variable]:
        """Returns the variables to save for a resumed training, by name."""
        return {}


class DynamicLossScale(LossScale):
    """A factor that is as large as finite gradients allow.

    It doubles after `growth_steps` consecutive steps with finite gradients, and is halved, down to
    1, by each step whose gradients are not finite. It must be created in the scope of the strategy.
    With several replicas, all must pass the same value to `update`.

    Args:
      initial: the initial factor, at least 1.
      growth_steps: number of steps before it doubles, at least 1.
    """

    def __init__(self, initial: float = 32768.0, growth_steps: int = 2000):
        super().__init__(initial)
        self._growth_steps = growth_steps
        options = {
            'trainable': False,
            # All replicas write the same value.
            'synchronization': tf.VariableSynchronization.ON_WRITE,
            'aggregation': tf.VariableAggregation.ONLY_FIRST_REPLICA,
        }
        self._scale = tf.Variable(initial, dtype=tf.float32, name='loss_scale', **options)
        self._finite_steps = tf.Variable(0, dtype=tf.int64, name='finite_steps', **options)

    @property
    def value(self) -> tf.Tensor:
        return self._scale.read_value()

    def can_fall(self) -> tf.Tensor:
        return self.value > 1.0

    def update(self, is_finite: tf.Tensor) -> None:
        scale, steps = self._scale.read_value(), self._finite_steps.read_value() + 1
        grows = steps >= self._growth_steps
        raised = tf.where(grows, tf.minimum(scale * 2.0, _LARGEST), scale)
        self._scale.assign(tf.where(is_finite, raised, tf.maximum(scale / 2.0, 1.0)))
        self._finite_steps.assign(tf.where(is_finite & ~grows, steps, 0))

    def state(self) -> dict[str, tf.Variable]:
        return {'scale': self._scale, 'finite_steps': self._finite_steps}
