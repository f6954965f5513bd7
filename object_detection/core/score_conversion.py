"""From logits to scores: converters, and calibrations that make scores probabilities."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

from object_detection.errors import UserError, expected

ScoreFunction = Callable[[tf.Tensor], tf.Tensor]

# Scores are kept this far from 0 and 1 where their logits are needed.
_EPSILON = 1e-7


@dataclasses.dataclass(frozen=True)
class ScoreConverter:
    """Turns logits float32 [..., C] into scores of the same shape: calibrate(convert(logits / s)).

    Attributes:
      convert: e.g. `tf.sigmoid`; works on the last axis if it mixes classes.
      logit_scale: the divisor s of the logits, non-zero.
      calibrate: scores -> calibrated scores, or None.

    Raises:
      ValueError: if `logit_scale` is 0.
    """

    convert: ScoreFunction
    logit_scale: float = 1.0
    calibrate: ScoreFunction | None = None

    def __post_init__(self):
        if self.logit_scale == 0.0:
            raise UserError('ScoreConverter: logit_scale must not be 0. Received: 0.')

    def __call__(self, logits: tf.Tensor) -> tf.Tensor:
        """Returns the scores."""
        # A division by 1 would take one more pass over the scores of all boxes and classes.
        scores = self.convert(logits if self.logit_scale == 1.0 else logits / self.logit_scale)
        return scores if self.calibrate is None else self.calibrate(scores)


class PiecewiseLinear:
    """Interpolates linearly between the points of a table; constant beyond its ends.

    Args:
      points: pairs (x, y), x strictly increasing.

    Raises:
      ValueError: if there are no points or x does not increase.
    """

    def __init__(self, points: Sequence[tuple[float, float]]):
        self._xs = [x for x, _ in points]
        self._ys = [y for _, y in points]
        if not points or any(a >= b for a, b in zip(self._xs, self._xs[1:], strict=False)):
            raise expected(
                'PiecewiseLinear', 'at least one x_y_pair, x strictly increasing', list(points)
            )

    def __call__(self, scores: tf.Tensor) -> tf.Tensor:
        """Maps float32 of any shape."""
        if len(self._xs) == 1:
            return tf.fill(tf.shape(scores), self._ys[0])
        xs = tf.constant(self._xs, scores.dtype)
        ys = tf.constant(self._ys, scores.dtype)
        scores = tf.clip_by_value(scores, xs[0], xs[-1])
        # The number of inner points at or below a score is its segment.
        segment = tf.reduce_sum(tf.cast(scores[..., tf.newaxis] >= xs[1:-1], tf.int32), axis=-1)
        slopes = (ys[1:] - ys[:-1]) / (xs[1:] - xs[:-1])
        start = tf.gather(xs, segment)
        return tf.gather(ys, segment) + (scores - start) * tf.gather(slopes, segment)


class PlattScaling:
    """Platt's sigmoid calibration: 1 / (1 + exp(a * logit + b)).

    "Probabilistic outputs for support vector machines", J. Platt, 1999. The logit is that of the
    converted score, so that the defaults (-1, 0) change nothing with any converter.

    Args:
      a, b: the parameters.
    """

    def __init__(self, a: float = -1.0, b: float = 0.0):
        self._a = a
        self._b = b

    def __call__(self, scores: tf.Tensor) -> tf.Tensor:
        """Maps probabilities, float32 of any shape."""
        scores = tf.clip_by_value(scores, _EPSILON, 1.0 - _EPSILON)
        logits = tf.math.log(scores) - tf.math.log1p(-scores)
        return tf.sigmoid(-(self._a * logits + self._b))


class PerClass:
    """Calibrates each class by its own function.

    Args:
      functions: column of the scores -> function; other columns stay as they are.

    Raises:
      ValueError: if a column is negative.
    """

    def __init__(self, functions: Mapping[int, ScoreFunction]):
        self._functions = dict(functions)
        if any(column < 0 for column in functions):
            raise expected(
                'PerClass', 'class ids of 0 or more (columns of the scores)', sorted(functions)
            )

    def __call__(self, scores: tf.Tensor) -> tf.Tensor:
        """Maps float32 [..., C], C static.

        Raises:
          ValueError: if there is a function for a column beyond C.
        """
        columns = tf.unstack(scores, axis=-1)
        if any(column >= len(columns) for column in self._functions):
            raise expected(
                'PerClass', f'class ids below {len(columns)}, the scores', sorted(self._functions)
            )
        for column, function in self._functions.items():
            columns[column] = function(columns[column])
        return tf.stack(columns, axis=-1)
