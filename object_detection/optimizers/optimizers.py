"""Optimizers over named variables.

Their state is named by the variables that they update, so that checkpoints do not depend on names
inside a library. They run in the replica context of any tf.distribute strategy: `apply_gradients`
takes gradients that are already summed over the replicas.
"""

import abc
import dataclasses
import re
from collections.abc import Collection, Mapping
from typing import Any

import tensorflow as tf

from object_detection.errors import UserError, expected
from object_detection.optimizers.schedules import Schedule


@dataclasses.dataclass(frozen=True)
class WeightDecay:
    """Decay of weights that belongs to the update, not to the loss.

    Attributes:
      weight: the share of a variable that decays in a step of rate 1; 0 decays none.
      exclude_pattern: regular expression; variables in whose names it is found do not decay. Empty
        excludes none.

    Raises:
      ValueError: if `weight` is negative, or `exclude_pattern` is no regular expression.
    """

    weight: float = 0.0
    exclude_pattern: str = ''

    def __post_init__(self):
        if self.weight < 0:
            raise expected('weight_decay', 'at least 0', f'{self.weight:g}')
        try:
            re.compile(self.exclude_pattern)
        except re.error as error:
            raise expected(
                'exclude_pattern', 'a regular expression', f'{self.exclude_pattern!r} ({error})'
            ) from error

    def excludes(self, name: str) -> bool:
        """Returns whether the pattern is found in the name of a variable."""
        return bool(self.exclude_pattern) and re.search(self.exclude_pattern, name) is not None

    def decayed(self, names: Collection[str]) -> set[str]:
        """Returns those of the names of variables that decay."""
        return {name for name in names if self.weight and not self.excludes(name)}


NO_DECAY = WeightDecay()


class Optimizer(abc.ABC):
    """Updates named variables by their gradients.

    Args:
      learning_rate: the rate as a function of the step.
      decay: decoupled weight decay (https://arxiv.org/abs/1711.05101): before each update a
        variable loses rate * weight of itself.
      settings: numbers of the rule, which the operation that updates a variable takes.

    Attributes:
      slot_names: names of the state tensors of each variable, initially zero.
      title: name for a state of these slots in messages, the one in configs; '' gives none.
    """

    slot_names: tuple[str, ...] = ()
    title: str = ''

    def __init__(
        self, learning_rate: Schedule, *, decay: WeightDecay = NO_DECAY, **settings: float
    ):
        self.learning_rate = learning_rate
        self.decay = decay
        self._settings = settings
        self._variables: dict[str, tf.Variable] = {}
        self._multipliers: dict[str, float] = {}
        self._decayed: set[str] = set()
        self._slots: dict[str, dict[str, tf.Variable]] = {name: {} for name in self.slot_names}

    def build(
        self,
        variables: Mapping[str, tf.Variable],
        *,
        multipliers: Mapping[str, float] | None = None,
    ) -> None:
        """Creates the state of `variables`, which `apply_gradients` will update.

        It must be called in the scope of the strategy in which the variables were created.

        Args:
          variables: name -> variable.
          multipliers: variable name -> factor of its learning rate; 1 for other variables.

        Raises:
          ValueError: if `multipliers` names a variable that is not among `variables`.
        """
        unknown = sorted((multipliers or {}).keys() - variables.keys())
        if unknown:
            raise UserError(
                f'{type(self).__name__}.build: expected multipliers of variables that are updated. '
                f'Received multipliers of: {unknown[:5]}.'
            )
        self._variables = dict(variables)
        self._multipliers = dict(multipliers or {})
        self._decayed = self.decay.decayed(variables)
        for slot, slots in self._slots.items():
            for name, variable in variables.items():
                if self._needs(slot, name, variable):
                    zeros = tf.zeros(variable.shape, variable.dtype)
                    slots[name] = tf.Variable(zeros, trainable=False, name='slot')

    @property
    def variables(self) -> dict[str, tf.Variable]:
        """The variables that are updated, by name."""
        return dict(self._variables)

    @property
    def decayed(self) -> set[str]:
        """The names of the variables that decay beside their gradients."""
        return set(self._decayed)

    def state(self) -> dict[str, dict[str, tf.Variable]]:
        """Returns slot name -> variable name -> the variable's state tensor."""
        return {slot: dict(variables) for slot, variables in self._slots.items()}

    def averages(self) -> dict[str, tf.Variable]:
        """Returns variable name -> moving average; {} without moving averages."""
        return {}

    def apply_gradients(
        self,
        gradients: Mapping[str, tf.Tensor],
        step: tf.Tensor,
        condition: tf.Tensor | None = None,
    ) -> None:
        """Updates each variable once.

        Args:
          gradients: variable name -> gradient, float32, summed over all replicas.
          step: int64 scalar, the number of earlier updates.
          condition: bool scalar, the same on all replicas: False changes nothing. None is True.

        Raises:
          ValueError: if the names differ from the names in `build`.
        """
        if gradients.keys() != self._variables.keys():
            differing = sorted(gradients.keys() ^ self._variables.keys())
            raise UserError(
                f'{type(self).__name__}.apply_gradients: expected one gradient for each variable '
                f'given to build(). Received gradients that differ by: {differing[:5]}.'
            )
        step = tf.convert_to_tensor(step)
        rate = self.learning_rate(step)
        # The product is computed once for each factor, not for each variable.
        rates = {factor: rate * factor for factor in {1.0, *self._multipliers.values()}}
        context = tf.distribute.get_replica_context()
        context.merge_call(self._update_if, args=(dict(gradients), rates, step, condition))

    def _update_if(self, strategy: tf.distribute.Strategy, *args: Any) -> None:
        *changes, condition = args
        if condition is None:
            self._update_all(strategy, *changes)
            return
        (first, *_) = strategy.experimental_local_results(condition)
        tf.cond(first, lambda: self._update_all(strategy, *changes), lambda: None)

    def _update_all(
        self,
        strategy: tf.distribute.Strategy,
        gradients: dict[str, tf.Tensor],
        rates: dict[float, tf.Tensor],
        step: tf.Tensor,
    ) -> None:
        """Runs `_update` for every variable on each device that holds a copy of it."""
        for name, variable in self._variables.items():
            rate = rates[self._multipliers.get(name, 1.0)]
            slots = [slots[name] for slots in self._slots.values() if name in slots]
            if name in self._decayed:
                strategy.extended.update(variable, self._shrink, args=(rate,), group=False)
            strategy.extended.update(
                variable, self._update, args=(gradients[name], rate, step, *slots), group=False
            )

    def _shrink(self, variable: tf.Variable, learning_rate: tf.Tensor) -> tf.Operation:
        return variable.assign_sub(learning_rate * self.decay.weight * variable)

    def _needs(self, slot: str, name: str, variable: tf.Variable) -> bool:
        """Whether the variable of a name has a state tensor `slot`, one of `slot_names`."""
        del slot, name, variable
        return True

    @abc.abstractmethod
    def _update(
        self,
        variable: tf.Variable,
        gradient: tf.Tensor,
        learning_rate: tf.Tensor,
        step: tf.Tensor,
        *slots: tf.Variable,
    ) -> tf.Operation:
        """Updates one variable and its slots, those that it needs in the order of `slot_names`."""


class Momentum(Optimizer):
    """Gradient descent with momentum: m = momentum * m - rate * g; variable += m."""

    slot_names = ('momentum',)
    title = 'momentum_optimizer'

    def __init__(self, learning_rate: Schedule, *, momentum: float, decay: WeightDecay = NO_DECAY):
        super().__init__(learning_rate, decay=decay, momentum=momentum)

    def _update(self, variable, gradient, learning_rate, step, *slots):
        return tf.raw_ops.ResourceApplyKerasMomentum(
            var=variable.handle,
            accum=slots[0].handle,
            lr=learning_rate,
            grad=gradient,
            **self._settings,
        )


class Lars(Momentum):
    """Layer-wise adaptive rate scaling (LARS, https://arxiv.org/abs/1708.03888, algorithm 1).

    Momentum over t * |w| / (|g| + d * |w|) * (g + d * w) in place of each gradient g, where t is
    the trust coefficient and d the weight decay. A variable or gradient that is zero has the ratio
    1, as otherwise it would stay zero for ever.

    Args:
      learning_rate: the rate as a function of the step.
      momentum: the share of the last update that is added to the next one.
      trust_coefficient: t.
      weight_decay: d.
      exclude_pattern: regular expression; variables in whose names it is found have plain momentum
        without decay. Empty excludes none.

    Raises:
      ValueError: if `trust_coefficient` is not positive, `weight_decay` is negative, or
        `exclude_pattern` is no regular expression.
    """

    def __init__(
        self,
        learning_rate: Schedule,
        *,
        momentum: float,
        trust_coefficient: float,
        weight_decay: float,
        exclude_pattern: str,
    ):
        super().__init__(learning_rate, momentum=momentum)
        if trust_coefficient <= 0:
            raise expected('trust_coefficient', 'above 0', f'{trust_coefficient:g}')
        self._trust_coefficient = trust_coefficient
        self._within = WeightDecay(weight_decay, exclude_pattern)

    def apply_gradients(self, gradients, step, condition=None):
        adapted = {name: self._adapted(name, gradient) for name, gradient in gradients.items()}
        super().apply_gradients(adapted, step, condition)

    def _adapted(self, name: str, gradient: tf.Tensor) -> tf.Tensor:
        # The base class raises for an unknown name.
        if name not in self._variables or self._within.excludes(name):
            return gradient
        weights, weight_decay = tf.convert_to_tensor(self._variables[name]), self._within.weight
        weight_norm, gradient_norm = tf.norm(weights), tf.norm(gradient)
        decayed = gradient + weight_decay * weights
        ratio = tf.math.divide_no_nan(
            self._trust_coefficient * weight_norm, gradient_norm + weight_decay * weight_norm
        )
        is_adapted = (weight_norm > 0) & (gradient_norm > 0)
        return tf.where(is_adapted, ratio, 1.0) * decayed


class Adam(Optimizer):
    """Adam (https://arxiv.org/abs/1412.6980, the form at the end of section 2).

    rate_t = rate * sqrt(1 - beta2^t) / (1 - beta1^t); variable -= rate_t * m / (sqrt(v) + epsilon)
    """

    slot_names = ('m', 'v')
    title = 'adam_optimizer'

    def __init__(
        self,
        learning_rate: Schedule,
        *,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        decay: WeightDecay = NO_DECAY,
    ):
        super().__init__(learning_rate, decay=decay, beta1=beta1, beta2=beta2, epsilon=epsilon)

    def _update(self, variable, gradient, learning_rate, step, *slots):
        updates = tf.cast(step + 1, tf.float32)
        return tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=slots[0].handle,
            v=slots[1].handle,
            beta1_power=tf.pow(self._settings['beta1'], updates),
            beta2_power=tf.pow(self._settings['beta2'], updates),
            lr=learning_rate,
            grad=gradient,
            **self._settings,
        )


class Lion(Optimizer):
    """Lion (https://arxiv.org/abs/2302.06675, program 1).

    variable -= rate * sign(beta1 * m + (1 - beta1) * g); m = beta2 * m + (1 - beta2) * g
    """

    slot_names = ('m',)
    title = 'lion_optimizer'

    def __init__(
        self,
        learning_rate: Schedule,
        *,
        beta1: float = 0.9,
        beta2: float = 0.99,
        decay: WeightDecay = NO_DECAY,
    ):
        super().__init__(learning_rate, decay=decay, beta1=beta1, beta2=beta2)

    def _update(self, variable, gradient, learning_rate, step, *slots):
        (mean,), beta1, beta2 = slots, self._settings['beta1'], self._settings['beta2']
        old = mean.read_value()
        variable.assign_sub(learning_rate * tf.sign(beta1 * old + (1 - beta1) * gradient))
        return mean.assign(beta2 * old + (1 - beta2) * gradient)


class RmsProp(Optimizer):
    """RMSProp with momentum (https://www.cs.toronto.edu/~tijmen/csc321/slides/lecture_slides_lec6.pdf).

    r = rho * r + (1 - rho) * g^2; m = momentum * m + rate * g / sqrt(r + epsilon); variable -= m
    """

    slot_names = ('rms', 'momentum')
    title = 'rms_prop_optimizer'

    def __init__(self, learning_rate: Schedule, *, rho: float, momentum: float, epsilon: float):
        super().__init__(learning_rate, rho=rho, momentum=momentum, epsilon=epsilon)

    def _update(self, variable, gradient, learning_rate, step, *slots):
        return tf.raw_ops.ResourceApplyRMSProp(
            var=variable.handle,
            ms=slots[0].handle,
            mom=slots[1].handle,
            lr=learning_rate,
            grad=gradient,
            **self._settings,
        )
