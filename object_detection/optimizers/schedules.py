"""Learning rate schedules: functions from the step, counted from 0, to the learning rate.

All work inside a `tf.function` with the step as a tensor, and give a float32 scalar.
"""

import math
from collections.abc import Callable, Sequence

import tensorflow as tf

from object_detection.errors import UserError, expected

_MAX_STEPS = 2**32 - 1

Schedule = Callable[[tf.Tensor], tf.Tensor]


def constant(learning_rate: float) -> Schedule:
    """The same rate at every step."""
    _check_not_negative('constant learning rate', learning_rate)
    return lambda step: tf.constant(learning_rate, tf.float32)


def exponential_decay(
    *,
    initial: float,
    decay_steps: int,
    decay_factor: float,
    staircase: bool = True,
    burnin_rate: float = 0.0,
    burnin_steps: int = 0,
    minimum: float = 0.0,
) -> Schedule:
    """Multiplies the rate by `decay_factor` every `decay_steps` steps, after a burn-in.

    Args:
      initial: rate at the end of the burn-in.
      decay_steps: number of steps for one factor.
      decay_factor: factor of the rate.
      staircase: whether the rate decays once every `decay_steps` steps, instead of at each step.
      burnin_rate: constant rate of the burn-in; 0 means `initial`.
      burnin_steps: length of the burn-in.
      minimum: lower bound of the rate.

    Raises:
      ValueError: if a rate is negative or `decay_steps` is not positive.
    """
    _check_not_negative('exponential decay, initial learning rate', initial)
    if decay_steps <= 0:
        raise UserError(
            f'exponential decay: decay_steps must be positive. Received: {decay_steps}.'
        )

    def schedule(step: tf.Tensor) -> tf.Tensor:
        exponent = (tf.cast(step, tf.float32) - burnin_steps) / decay_steps
        if staircase:
            exponent = tf.floor(exponent)
        rate = initial * tf.pow(tf.constant(decay_factor, tf.float32), exponent)
        rate = tf.where(step < burnin_steps, burnin_rate or initial, rate)
        return tf.maximum(rate, minimum)

    return schedule


def manual_steps(
    *, boundaries: Sequence[int], rates: Sequence[float], warmup: bool = False
) -> Schedule:
    """Holds each of `rates` from one boundary to the next.

    Args:
      boundaries: first step of `rates[1]`, `rates[2]`, ..., increasing.
      rates: one more than `boundaries`.
      warmup: whether the rate changes linearly from `rates[0]` to `rates[1]` before the first
        boundary.

    Raises:
      ValueError: if the boundaries are not positive and increasing, or the counts do not fit.
    """
    if not boundaries or list(boundaries) != sorted(set(boundaries)) or boundaries[0] <= 0:
        raise UserError(
            'manual steps: the steps of the schedule must be positive and increasing, and at least '
            f'one. Received: {list(boundaries)}.'
        )
    if len(rates) != len(boundaries) + 1:
        raise UserError(
            f'manual steps: expected {len(boundaries) + 1} learning rates for {len(boundaries)} '
            f'boundaries. Received: {list(rates)}.'
        )
    for rate in rates:
        _check_not_negative('manual steps, learning rate', rate)

    def schedule(step: tf.Tensor) -> tf.Tensor:
        step = tf.convert_to_tensor(step)
        passed = tf.reduce_sum(tf.cast(step >= tf.constant(boundaries, step.dtype), tf.int32))
        rate = tf.gather(tf.constant(rates, tf.float32), passed)
        if warmup:
            slope = (rates[1] - rates[0]) / boundaries[0]
            rising = rates[0] + slope * tf.cast(step, tf.float32)
            rate = tf.where(step < boundaries[0], rising, rate)
        return rate

    return schedule


def cosine_decay(
    *,
    base: float,
    total_steps: int,
    warmup_rate: float = 0.0,
    warmup_steps: int = 0,
    hold_steps: int = 0,
) -> Schedule:
    """Decays to zero along half a cosine (SGDR, https://arxiv.org/abs/1608.03983), after a warm-up.

    Args:
      base: the highest rate.
      total_steps: step from which on the rate is zero.
      warmup_rate: rate of step 0, if there is a warm-up, during which the rate rises linearly.
      warmup_steps: length of the warm-up.
      hold_steps: steps at the highest rate between warm-up and decay.

    Raises:
      ValueError: if `base` is negative or below `warmup_rate`, or the warm-up is longer than the
        whole schedule.
    """
    _check_not_negative('cosine decay, learning_rate_base', base)
    if total_steps < warmup_steps:
        raise UserError(
            'cosine decay: total_steps must be at least warmup_steps '
            f'({warmup_steps}). Received: {total_steps}.'
        )
    if warmup_steps > 0 and base < warmup_rate:
        raise UserError(
            'cosine decay: learning_rate_base must be at least warmup_learning_rate '
            f'({warmup_rate}). Received: {base}.'
        )
    decay_start = warmup_steps + hold_steps
    # A schedule without decay steps has the base rate until its end.
    decay_steps = max(total_steps - decay_start, 1)

    def schedule(step: tf.Tensor) -> tf.Tensor:
        position = tf.cast(step, tf.float32)
        angle = math.pi * (position - decay_start) / decay_steps
        rate = 0.5 * base * (1 + tf.cos(angle))
        rate = tf.where(step <= decay_start, base, rate)
        if warmup_steps > 0:
            rising = warmup_rate + position * ((base - warmup_rate) / warmup_steps)
            rate = tf.where(step < warmup_steps, rising, rate)
        return tf.where(step > total_steps, 0.0, rate)

    return schedule


def cosine_restarts(
    *,
    base: float,
    first_period: int,
    period_multiplier: int = 1,
    restart_factor: float = 1.0,
    minimum: float = 0.0,
) -> Schedule:
    """Falls along half a cosine in each period (SGDR, https://arxiv.org/abs/1608.03983, eq. 5).

    Args:
      base: the highest rate of the first period.
      first_period: its length in steps.
      period_multiplier: each period is so many times longer than the one before.
      restart_factor: factor of the highest rate from period to period.
      minimum: the rate that each period falls to.

    Raises:
      ValueError: if a rate is negative, `base` is below `minimum`, or a number of steps is not
        positive.
    """
    _check_not_negative('cosine restarts, min_learning_rate', minimum)
    if base < minimum:
        least = f'at least min_learning_rate ({minimum})'
        raise expected('cosine restarts, learning_rate_base', least, base)
    _check_steps('cosine restarts, first_period_steps', first_period)
    _check_steps('cosine restarts, period_multiplier', period_multiplier)
    # The first steps of the periods; equal ones need no list.
    starts, length = [0], first_period
    while period_multiplier > 1 and starts[-1] + length <= _MAX_STEPS:
        starts.append(starts[-1] + length)
        length *= period_multiplier

    def schedule(step: tf.Tensor) -> tf.Tensor:
        step = tf.cast(step, tf.int64)
        if period_multiplier == 1:
            period, length = step // first_period, tf.constant(first_period, tf.int64)
            position = step % first_period
        else:
            first_steps = tf.constant(starts, tf.int64)
            period = tf.reduce_sum(tf.cast(step >= first_steps, tf.int64)) - 1
            lengths = [first_period * period_multiplier**each for each in range(len(starts))]
            length = tf.gather(tf.constant(lengths, tf.int64), period)
            position = step - tf.gather(first_steps, period)
        share = tf.cast(position, tf.float32) / tf.cast(length, tf.float32)
        highest = base * tf.pow(
            tf.constant(restart_factor, tf.float32), tf.cast(period, tf.float32)
        )
        # Later periods may begin below the minimum.
        falls = 0.5 * tf.maximum(highest - minimum, 0.0) * (1 + tf.cos(math.pi * share))
        return minimum + falls

    return schedule


def polynomial(*, base: float, total_steps: int, end: float = 0.0, power: float = 1.0) -> Schedule:
    """Falls from `base` to `end` as a power of the share of the steps that are left.

    Args:
      base: rate of step 0.
      total_steps: step from which on the rate is `end`.
      end: the last rate.
      power: the power; 1 is a line.

    Raises:
      ValueError: if a rate is negative, or `total_steps` or `power` is not positive.
    """
    _check_not_negative('polynomial, learning_rate_base', base)
    _check_not_negative('polynomial, end_learning_rate', end)
    _check_steps('polynomial, total_steps', total_steps)
    if power <= 0:
        raise expected('polynomial, power', 'above 0', power)

    def schedule(step: tf.Tensor) -> tf.Tensor:
        left = 1 - tf.minimum(tf.cast(step, tf.float32) / total_steps, 1.0)
        return end + (base - end) * tf.pow(left, power)

    return schedule


def one_cycle(
    *,
    base: float,
    total_steps: int,
    warmup_share: float = 0.3,
    initial_share: float = 0.04,
    final_share: float = 4e-6,
) -> Schedule:
    """Rises and falls once along half cosines (https://arxiv.org/abs/1708.07120).

    Args:
      base: the highest rate.
      total_steps: step from which on the rate is the last one.
      warmup_share: share of these steps in which the rate rises, between 0 and 1.
      initial_share, final_share: the first and last rate, as shares of the highest.

    Raises:
      ValueError: if a number is out of its range.
    """
    _check_not_negative('one cycle, learning_rate_base', base)
    _check_steps('one cycle, total_steps', total_steps)
    if not 0 < warmup_share < 1:
        raise expected('one cycle, warmup_share', 'above 0 and below 1', warmup_share)
    peak = warmup_share * total_steps

    def schedule(step: tf.Tensor) -> tf.Tensor:
        position = tf.minimum(tf.cast(step, tf.float32), float(total_steps))
        is_rising = position < peak
        low = tf.where(is_rising, initial_share, final_share)
        # From the peak: 0 there, 1 at the ends.
        fall = (position - peak) / (total_steps - peak)
        distance = tf.where(is_rising, 1 - position / peak, fall)
        return base * (low + (1 - low) * 0.5 * (1 + tf.cos(math.pi * distance)))

    return schedule


def warmed_up(schedule: Schedule, *, initial: float, steps: int) -> Schedule:
    """Replaces the first rates by a line to the rate of the schedule at the end of it.

    Args:
      schedule: of the later steps; it counts from step 0, too.
      initial: rate of step 0.
      steps: length of the line.

    Raises:
      ValueError: if `initial` is negative or `steps` is not positive.
    """
    _check_not_negative('warmup, learning_rate', initial)
    _check_steps('warmup, steps', steps)

    def warmed(step: tf.Tensor) -> tf.Tensor:
        step = tf.convert_to_tensor(step)
        # Later steps are the schedule's own to the bit.
        rate = schedule(tf.maximum(step, tf.constant(steps, step.dtype)))
        rising = initial + (rate - initial) * (tf.cast(step, tf.float32) / steps)
        return tf.where(step < steps, rising, rate)

    return warmed


def scaled(schedule: Schedule, factor: float | tf.Variable) -> Schedule:
    """Multiplies the rate of every step, including a warm-up, by `factor`, as it is then."""
    return lambda step: schedule(step) * factor


def steps_in(epochs: float, steps_per_epoch: float) -> int:
    """Returns the number of steps of `epochs`: at least 1, or 0 for 0 epochs.

    Raises:
      UserError: if there are more steps than a field of a config can hold.
    """
    if not epochs * steps_per_epoch <= _MAX_STEPS:
        raise UserError(
            f'{epochs:g} epochs of {steps_per_epoch:g} steps: expected at most {_MAX_STEPS} steps.'
        )
    # Fields of a config have 24 bits: 0.1 epochs of 1000 steps would be 101 steps.
    return max(1, math.ceil(epochs * steps_per_epoch * (1 - 1e-7))) if epochs else 0


def _check_steps(what: str, steps: int) -> None:
    if steps < 1:
        raise expected(what, 'at least 1', steps)


def _check_not_negative(what: str, rate: float) -> None:
    if rate < 0:
        raise UserError(f'{what}: expected a rate of at least 0. Received: {rate}.')
