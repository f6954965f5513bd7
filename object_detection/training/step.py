"""One training step, and many steps in one call.

The learning rate of step n is `optimizer.learning_rate(n)`, a schedule of `optimizers.schedules`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from object_detection.core import tracing
from object_detection.core.fields import InputFields
from object_detection.core.groundtruth import Groundtruth
from object_detection.core.loss_sum import LossSum, divide
from object_detection.meta_architectures import side_inputs
from object_detection.meta_architectures.detection_model import DetectionModel
from object_detection.optimizers.gradients import (
    Execution,
    GradientReduction,
    LossGradients,
    LossScale,
    with_penalties,
    with_total,
)
from object_detection.optimizers.optimizers import Optimizer
from object_detection.optimizers.plateau import Plateau
from object_detection.training.checkpoints import input_state
from object_detection.training.distribution import strategies
from object_detection.training.monitoring import model_summary, speed
from object_detection.training.monitoring.speed import CallTimes

# Names among the losses that a step returns: the norm of all gradients before clipping, and the
# factor of the loss that they were computed with, if there is one.
GRADIENT_NORM = 'gradient_norm'
LOSS_SCALE = 'loss_scale'
# Name of the state of what lowers the rate.
_PLATEAU = 'plateau'
# The votes of the workers to stop; removed from the losses before the step returns.
_STOP_VOTES = 'stop_votes'
# Entries of a batch that replicas do not see: accelerators support no strings.
_ON_HOST = (InputFields.SOURCE_ID, InputFields.STREAM_STATE)


class StepReport(NamedTuple):
    """One step of a call: the first with a number that is not finite, or else the last.

    Attributes:
      step: int64 scalar, the number of steps done before this one.
      values: the losses, `GRADIENT_NORM` and, with a loss scale, `LOSS_SCALE`, float32 scalars.
      source_ids: string [b], the ids of the images of this worker.
    """

    step: tf.Tensor
    values: dict[str, tf.Tensor]
    source_ids: tf.Tensor

    def is_finite(self) -> tf.Tensor:
        """bool scalar."""
        return tf.reduce_all(tf.math.is_finite(tf.stack(list(self.values.values()))))


class TrainStep:
    """Forward, backward and update of a detector, in the current tf.distribute strategy.

    The gradients are those of the loss of the batches of all replicas. They are summed over the
    replicas and only then clipped (the reference clips before the sum). To be constructed in the
    strategy's scope.

    Args:
      detector: with all variables built.
      optimizer: built for the variables to train; if it is not built, it trains all trainable ones.
      element_spec: the spec of the batches, e.g. `iterator.element_spec`.
      seed: the seed of the sampling noise.
      clip_norm: largest global norm of the gradients; 0 does not clip.
      gradient_factors: factors of the gradients of some variables, by name.
      add_regularization_loss: whether the total loss contains the regularizers' penalties.
      execution: how losses and gradients are computed; None takes the default.
      loss_scale: factor of the loss for gradients in float16. With it, a step whose gradients are
        not finite changes no variable, but counts as a step; as long as the factor can still
        decrease, it reports a norm of 0.
      reduction: sums the gradients of the replicas.
      plateau: what lowers the optimizer's rate between two steps, or None.

    Attributes:
      step: int64 variable, the number of steps done.
      strategy: the strategy that it was constructed in.
      stream_state: int64 variable [r, K], the `STREAM_STATE` of the newest batches of this
        process's r replicas; K = 0 where batches carry none.
      report: the report of the last call, to find what diverged; None before the first call.
      times: the times of the last call's steps; None before the first call.
      stop_votes: with several workers, after a call: a scalar, positive on all workers if any of
        them had called `request_stop` before the call; None with one worker.
    """

    def __init__(
        self,
        detector: DetectionModel,
        optimizer: Optimizer,
        *,
        element_spec: Any,
        seed: int = 0,
        clip_norm: float = 0.0,
        gradient_factors: Mapping[str, float] | None = None,
        add_regularization_loss: bool = True,
        execution: Execution | None = None,
        loss_scale: LossScale | None = None,
        reduction: GradientReduction | None = None,
        plateau: Plateau | None = None,
    ):
        self.detector = detector
        self.optimizer, self.plateau = optimizer, plateau
        self.step = tf.Variable(0, dtype=tf.int64, trainable=False, name='step')
        self.stream_state = tf.Variable(
            tf.zeros(input_state.state_spec(element_spec), tf.int64), trainable=False
        )
        if not optimizer.variables:
            optimizer.build(detector.named_trainable_variables())
        self._seed = seed
        self._clip_norm = clip_norm
        self._gradient_factors = dict(gradient_factors or {})
        execution = execution or Execution()
        self._gradients = LossGradients(
            self.loss_sums,
            optimizer.variables,
            execution,
            **({} if loss_scale is None else {'scaled': loss_scale.scaled}),
        )
        self._loss_scale = loss_scale
        # The forward pass changes them before the gradients are known to be finite.
        self._statistics = (
            [] if loss_scale is None else tracing.moving_statistics(detector.named_variables())
        )
        self._reduction = reduction or GradientReduction()
        self._add_regularization_loss = add_regularization_loss
        self.strategy = tf.distribute.get_strategy()
        self._element_spec = element_spec
        # What each replica runs. A single one updates its weights in the program that computes the
        # gradients; others exchange them between the two. Batches of several sizes are one of
        # several programs.
        self._replica_program = self._replica_step
        is_alone = self.strategy.num_replicas_in_sync == 1
        if execution.jit_compile and is_alone and not execution.bucket_sizes:
            self._replica_program = self._compiled()
        self.report: StepReport | None = None
        self.times: CallTimes | None = None
        self.stop_votes: tf.Tensor | None = None
        # The vote is reduced together with the losses, which workers exchange anyway.
        self._stop_vote = None
        if strategies.num_workers(self.strategy) > 1:
            self._stop_vote = tf.Variable(0.0, trainable=False, name='stop_vote')
        # A signature, because images of many sizes would otherwise be traced one by one. No
        # AutoGraph: detectors need none, and are traced in a fifth of the time.
        options = {'input_signature': [element_spec], 'autograph': False}
        self._untimed = tf.function(self._run_one, **options)
        self._one = tf.function(self._run_timed, **options)
        self._many = tf.function(self._run_many)

    @property
    def num_traces(self) -> int:
        """How many graphs of losses were built; see `LossGradients`."""
        return self._gradients.num_traces

    def count_flops(self) -> model_summary.FlopCount | None:
        """Counts the FLOPs of a step on all replicas of this process; None with `run_eagerly`."""
        if tf.config.functions_run_eagerly():
            return None
        with self.strategy.scope():
            # Built already, by the first step.
            return model_summary.count(self._untimed.get_concrete_function().graph)

    def lower(self) -> str:
        """Returns the whole step of a replica as the text (HLO) of one XLA program.

        It is the program that XLA compiles, from the batch to the updated variables, before it is
        changed for a kind of device. `monitoring.step_program` reads it. There must be one replica.
        """
        batch = {name: spec for name, spec in self._element_spec.items() if name not in _ON_HOST}

        # Specs of a dictionary are not accepted.
        @tf.function(jit_compile=True, autograph=False)
        def run(*tensors: tf.Tensor) -> dict[str, tf.Tensor]:
            return self._replica_step(dict(zip(batch, tensors, strict=True)))

        return run.experimental_get_compiler_ir(*batch.values())(stage='hlo')

    def _compiled(self) -> Any:
        return tf.function(self._replica_step, jit_compile=True, autograph=False)

    def optimizer_state(self) -> dict[str, dict[str, tf.Variable]]:
        """Returns the state that a resumed training needs: also of loss scale and plateau."""
        others = {LOSS_SCALE: self._loss_scale, _PLATEAU: self.plateau}
        states = {name: each.state() for name, each in others.items() if each is not None}
        return self.optimizer.state() | {name: state for name, state in states.items() if state}

    def request_stop(self) -> None:
        """Votes to stop; the next call sends the vote to all workers.

        This is not collective, and has no effect with one worker.
        """
        if self._stop_vote is not None:
            with self.strategy.scope():
                self._stop_vote.assign(1.0)

    def __call__(self, batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Trains one step on `batch`, keys of `InputFields`.

        Returns:
          The `values` of a `StepReport`.
        """
        return self._train(batch, speed.now())

    def _train(self, batch: Mapping[str, tf.Tensor], requested: float) -> dict[str, tf.Tensor]:
        ready = speed.now()
        with self.strategy.scope():
            self.report, ended = self._one(batch)
        self.times = CallTimes(requested, ready, ended)
        self.stop_votes = self.report.values.pop(_STOP_VOTES, None)
        return self.report.values

    def repeat(self, iterator: Iterator, count: int) -> dict[str, tf.Tensor]:
        """Trains `count` steps on the next batches; returns the means of the steps' values."""
        requested = speed.now()
        if count == 1:
            return self._train(next(iterator), requested)
        with self.strategy.scope():
            means, self.report, (ready, ended) = self._many(iterator, tf.constant(count))
        self.times = CallTimes(requested, ready, ended)
        self.report.values.pop(_STOP_VOTES, None)
        self.stop_votes = means.pop(_STOP_VOTES, None)
        return means

    def losses(
        self, batch: Mapping[str, tf.Tensor], seeds: tf.Tensor | None
    ) -> dict[str, tf.Tensor]:
        """Returns every loss of a batch and their sum, float32 scalars, by the reference's names.

        Args:
          batch: keys of `InputFields`.
          seeds: int32 [B, 2] of the sampling noise, or None.
        """
        return with_total(divide(self.loss_sums(batch, seeds)))

    def loss_sums(
        self, batch: Mapping[str, tf.Tensor], seeds: tf.Tensor | None
    ) -> dict[str, LossSum]:
        """Returns every loss of a part of a batch; see `losses`."""
        groundtruth = Groundtruth.from_batch(batch)
        true_shapes = batch[InputFields.TRUE_IMAGE_SHAPE]
        with tracing.training_step(self.step):
            predictions = self.detector.predict(
                self.detector.normalize_padded(batch[InputFields.IMAGE], true_shapes),
                true_shapes,
                training=True,
                groundtruth=groundtruth,
                seeds=seeds,
                **side_inputs.select(self.detector, batch),
            )
            sums = self.detector.loss_sums(predictions, groundtruth, seeds)
        penalties = self.detector.regularization_losses() if self._add_regularization_loss else []
        return with_penalties(sums, penalties, tf.shape(batch[InputFields.IMAGE])[0])

    def _run_one(self, batch: Any) -> StepReport:
        batch = dict(batch)
        ids = self.strategy.experimental_local_results(batch.pop(InputFields.SOURCE_ID))
        states = batch.pop(InputFields.STREAM_STATE, None)
        step = self.step.read_value()
        per_replica = self.strategy.run(self._replica_program, args=(batch,))
        # Of the whole batch: the same on each replica.
        values = {
            name: self.strategy.experimental_local_results(value)[0]
            for name, value in per_replica.items()
        }
        # Otherwise `_run_many` would count a step after the end of the data.
        with tf.control_dependencies(list(values.values())):
            self.step.assign_add(1)
            if states is not None:
                states = self.strategy.experimental_local_results(states)
                self.stream_state.assign(tf.stack(states))
        return StepReport(step, values, tf.concat(ids, axis=0))

    def _run_timed(self, batch: Any) -> tuple[StepReport, tf.Tensor]:
        """Runs one step; returns its report and the time when it ended."""
        report = self._untimed(batch)
        return report, speed.after_call(report.values[GRADIENT_NORM])

    def _run_many(
        self, iterator: Iterator, count: tf.Tensor
    ) -> tuple[dict[str, tf.Tensor], StepReport, tuple[tf.Tensor, tf.Tensor]]:
        names = self._untimed.get_concrete_function().structured_outputs.values
        totals = {name: tf.zeros([]) for name in names}
        # Its length is unknown, since batches may have different sizes.
        no_ids = tf.compat.v1.placeholder_with_default(tf.zeros([0], tf.string), [None])
        report = StepReport(self.step.read_value(), totals, no_ids)
        with tf.device('CPU:0'):
            times = tf.TensorArray(tf.float64, count, element_shape=[2])
        for index in tf.range(count):
            batch = next(iterator)
            ready = speed.after_batch(batch)
            newest, ended = self._one(batch)
            with tf.device('CPU:0'):
                times = times.write(index, tf.stack([ready, ended]))
            totals = {name: totals[name] + newest.values[name] for name in totals}
            report = _first_not_finite(report, newest)
        means = {name: total / tf.cast(count, tf.float32) for name, total in totals.items()}
        with tf.device('CPU:0'):
            return means, report, tuple(tf.unstack(times.stack(), axis=1))

    def _replica_step(self, batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        context = tf.distribute.get_replica_context()
        seeds = sampling_seeds(
            self._seed,
            self.step,
            tf.shape(batch[InputFields.IMAGE])[0],
            context.replica_id_in_sync_group,
        )
        statistics = [variable.read_value() for variable in self._statistics]
        losses, gradients = self._gradients(batch, seeds)
        gradients |= {name: gradients[name] * f for name, f in self._gradient_factors.items()}
        names = list(gradients)
        values = self._reduction([gradients[name] for name in names])
        if self._loss_scale is not None:
            values = list(self._loss_scale.unscaled(dict(zip(names, values, strict=True))).values())
        norm = tf.linalg.global_norm(values)
        if self._clip_norm > 0:
            values, _ = tf.clip_by_global_norm(values, self._clip_norm, use_norm=norm)
        update = (dict(zip(names, values, strict=True)), self.step)
        if self._loss_scale is None:
            self.optimizer.apply_gradients(*update)
            of_all = {GRADIENT_NORM: norm}
        else:
            of_all = self._apply_if_finite(update, norm)
            self._keep_finite(statistics, tf.math.is_finite(norm))
        if self._stop_vote is not None:
            losses[_STOP_VOTES] = self._stop_vote.read_value()
        sums = context.all_reduce(tf.distribute.ReduceOp.SUM, tf.stack(list(losses.values())))
        return {**dict(zip(losses, tf.unstack(sums), strict=True)), **of_all}

    def _apply_if_finite(
        self, update: tuple[Any, tf.Tensor], norm: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Updates the variables if the gradients are finite, and adapts the loss scale."""
        scale, is_finite = self._loss_scale, tf.math.is_finite(norm)
        values = {
            GRADIENT_NORM: tf.where(is_finite | ~scale.can_fall(), norm, 0.0),
            LOSS_SCALE: scale.value,
        }
        self.optimizer.apply_gradients(*update, is_finite)
        scale.update(is_finite)
        return values

    def _keep_finite(self, statistics: Sequence[tf.Tensor], is_finite: tf.Tensor) -> None:
        """Restores moving statistics after a skipped step, and those that are not finite."""
        for variable, before in zip(self._statistics, statistics, strict=True):
            after = variable.read_value()
            variable.assign(tf.where(is_finite & tf.math.is_finite(after), after, before))


def _first_not_finite(earlier: StepReport, newest: StepReport) -> StepReport:
    return tf.cond(earlier.is_finite(), lambda: newest, lambda: earlier)


def sampling_seeds(
    seed: int, step: tf.Tensor, batch_size: tf.Tensor, replica: tf.Tensor | int = 0
) -> tf.Tensor:
    """Returns the seeds of one replica's images: no two images or steps share one.

    They depend on the image's index in the global batch, not on the number of replicas.

    Args:
      seed: the seed of the run.
      step: scalar, the number of steps done before.
      batch_size: B, the number of images of each replica.
      replica: index of the replica.

    Returns:
      int32 [B, 2].
    """
    step = tf.cast(step, tf.int32)
    key = tf.stack([tf.constant(seed & 0x7FFFFFFF, tf.int32), step])
    start = tf.random.stateless_uniform([], key, minval=None, maxval=None, dtype=tf.int32)
    indices = tf.cast(replica, tf.int32) * batch_size + tf.range(batch_size)
    return tf.stack([start + indices, tf.fill([batch_size], step)], axis=1)
