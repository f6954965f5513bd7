"""Muon: orthogonal updates of kernels, and Adam for all other variables."""

import math

import tensorflow as tf

from object_detection.optimizers.optimizers import Adam, WeightDecay
from object_detection.optimizers.schedules import Schedule

# Of the quintic iteration, whose slope at zero is as steep as can be; and how often it is done.
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_ITERATIONS = 5
_TINY = 1e-7
# The root mean square of the updates of Adam.
_RMS = 0.2


class Muon(Adam):
    """Muon (https://kellerjordan.github.io/posts/muon), scaled for the rates and decay of AdamW.

    m = momentum * m + g; variable -= rate * 0.2 * sqrt(max(r, c)) * orthogonal(g + momentum * m),
    where r x c are the sides of the kernel as a matrix from inputs to outputs; the factors are
    those of https://arxiv.org/abs/2502.16982. Adam updates the variables that `decay` excludes,
    vectors, and kernels with one input or one output.

    Args:
      learning_rate: the rate as a function of the step.
      momentum: the share of the last mean gradient of a kernel that stays.
      beta1, beta2, epsilon: of Adam.
      decay: decoupled weight decay, of all that it does not exclude.
    """

    slot_names = ('momentum', 'm', 'v')
    title = 'muon_optimizer'

    def __init__(
        self,
        learning_rate: Schedule,
        *,
        momentum: float,
        decay: WeightDecay,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
    ):
        super().__init__(learning_rate, decay=decay, beta1=beta1, beta2=beta2, epsilon=epsilon)
        self._momentum = momentum

    def _needs(self, slot, name, variable):
        is_kernel = min(_sides(variable)) > 1 and not self.decay.excludes(name)
        return is_kernel == (slot == 'momentum')

    def _update(self, variable, gradient, learning_rate, step, *slots):
        if len(slots) > 1:
            return super()._update(variable, gradient, learning_rate, step, *slots)
        (mean,), sides = slots, _sides(variable)
        newest = mean.assign(self._momentum * mean + gradient)
        matrix = tf.reshape(gradient + self._momentum * newest, sides)
        update = tf.reshape(orthogonal(matrix), variable.shape)
        return variable.assign_sub(learning_rate * _RMS * math.sqrt(max(sides)) * update)


def orthogonal(matrix: tf.Tensor) -> tf.Tensor:
    """Returns nearly the orthogonal matrix next to a float matrix [r, c] of static shape.

    Its singular values become about 1, those that are not far below the largest.
    """
    rows, columns = matrix.shape
    x = tf.transpose(matrix) if rows > columns else matrix
    x /= tf.norm(x) + _TINY
    a, b, c = _COEFFICIENTS
    for _ in range(_ITERATIONS):
        square = tf.matmul(x, x, transpose_b=True)
        x = a * x + tf.matmul(b * square + c * tf.matmul(square, square), x)
    return tf.transpose(x) if rows > columns else x


def _sides(variable: tf.Variable) -> tuple[int, int]:
    """Returns inputs and outputs of a kernel [..., inputs, outputs]; a vector has one input."""
    *inputs, outputs = variable.shape.as_list() or [1]
    return math.prod(inputs), outputs
