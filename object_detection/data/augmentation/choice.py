"""Random decisions: integers, and steps applied with a probability or drawn from several."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import TypeVar

import tensorflow as tf

from object_detection.core.fields import InputFields as F
from object_detection.data.objects import Example
from object_detection.errors import UserError, expected

T = TypeVar('T')
# (example, seed) -> example; see `num_partners`.
Step = Callable[..., Example]


def num_partners(step: Step) -> int:
    """Returns how many other images a step needs.

    A step that needs none is a function (example, seed) -> example. Another one has an attribute
    `num_partners` and is a function (example, seed, partners) -> example, whose partners are a
    sequence of so many examples with the same fields.
    """
    return getattr(step, 'num_partners', 0)


def apply(step: Step, example: Example, seed: tf.Tensor, partners: Sequence[Example]) -> Example:
    """Applies a step with the first of the partners, as many as it needs."""
    count = num_partners(step)
    return step(example, seed, partners[:count]) if count else step(example, seed)


@dataclasses.dataclass(frozen=True)
class WithProbability:
    """Applies a step with a probability, and otherwise returns the example as it is.

    The image of both is float32, as some steps return it.
    """

    step: Step
    probability: float

    @property
    def num_partners(self) -> int:
        """Number of other images that the step needs."""
        return num_partners(self.step)

    def __call__(
        self, example: Example, seed: tf.Tensor, partners: Sequence[Example] = ()
    ) -> Example:
        """Applies the step to `example`; all random choices depend only on `seed`, integer [2]."""
        of_number, of_step = tf.unstack(tf.random.split(seed))
        return tf.cond(
            tf.random.stateless_uniform([], of_number) < self.probability,
            lambda: with_float_image(apply(self.step, example, of_step, partners)),
            lambda: with_float_image(example),
        )


@dataclasses.dataclass(frozen=True)
class OneOf:
    """Applies one of several steps, drawn for each example.

    Attributes:
      steps: the steps.
      weights: how often each of them is drawn, relative to the others; () draws all equally often.

    Raises:
      ValueError: if there is no step, or there are other than one weight for each, or a weight is
        negative, or all are 0.
    """

    steps: tuple[Step, ...]
    weights: tuple[float, ...] = ()

    def __post_init__(self):
        if not self.steps:
            raise UserError('one_of.steps: expected at least one step. Received: none.')
        if self.weights and len(self.weights) != len(self.steps):
            raise expected(
                'one_of.weights', f'none, or {len(self.steps)}, one a step', len(self.weights)
            )
        if self.weights and not (min(self.weights) >= 0.0 and 0.0 < sum(self.weights) < 1e30):
            raise expected('one_of.weights', 'numbers of 0 or more, and one above 0', self.weights)

    @property
    def num_partners(self) -> int:
        """Number of other images that the step with the most of them needs."""
        return max(map(num_partners, self.steps))

    def __call__(
        self, example: Example, seed: tf.Tensor, partners: Sequence[Example] = ()
    ) -> Example:
        """Applies a step to `example`; all random choices depend only on `seed`, integer [2]."""
        of_step, of_change = tf.unstack(tf.random.split(seed))
        logits = tf.math.log(tf.constant(self.weights or [1.0] * len(self.steps), tf.float32))
        drawn = tf.random.stateless_categorical(logits[tf.newaxis], 1, of_step, tf.int32)[0, 0]

        def branch(step: Step) -> Callable[[], Example]:
            return lambda: with_float_image(apply(step, example, of_change, partners))

        return tf.switch_case(drawn, [branch(step) for step in self.steps])


def with_float_image(example: Example) -> Example:
    """Converts the image to float32."""
    return {**example, F.IMAGE: tf.cast(example[F.IMAGE], tf.float32)}


def draw_below(least: int | tf.Tensor, greatest: int | tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Draws an integer from `least` on and below `greatest`, int32 []; `least` if there is none."""
    # Not `least + 1`, which may be beyond int32.
    count = tf.maximum(tf.convert_to_tensor(greatest) - least, 1)
    return least + tf.random.stateless_uniform([], seed, 0, count, tf.int32)


def change_randomly(
    random_coef: float, seed: tf.Tensor, change: Callable[[], T], unchanged: T
) -> T:
    """Returns what `change` returns, or with the probability `random_coef` what is unchanged."""
    if random_coef == 0:
        return change()
    number = tf.random.stateless_uniform([], seed)
    return tf.cond(number > random_coef, change, lambda: unchanged)
