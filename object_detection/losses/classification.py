"""Losses of class logits.

Each is a callable `(logits [B, N, K], targets [B, N, K], weights [B, N, K] or [B, N, 1])`, float32.
K includes a background column if there is one. Losses of independent classes return [B, N, K],
softmax losses [B, N], and `DiceLoss` [B, K]. The caller sums over anchors and normalises.
"""

import functools
from collections.abc import Callable

import tensorflow as tf

from object_detection.core import tracing
from object_detection.errors import UserError

# Keeps the gradient of the focal factor finite where gamma is below 1.
_SMALLEST_ERROR = 1e-12
# Keeps the logarithms of heat map probabilities finite, and their gradients small.
_HEATMAP_CLIP = 1e-4
# From so many logits on, a loss is one loop; the programs of fewer take longer to compile than they
# save.
_MIN_FUSED = 2**20


def smoothed(targets: tf.Tensor, smoothing: float, num_choices: int) -> tf.Tensor:
    """Mixes probabilities with equal ones (https://arxiv.org/abs/1512.00567, sec. 7).

    Args:
      targets: probabilities of `num_choices` outcomes, or of one of them.
      smoothing: share of the equal probabilities, in [0, 1).
      num_choices: number of outcomes: all classes of a softmax, and the two of a sigmoid.
    """
    return (1.0 - smoothing) * targets + smoothing / num_choices if smoothing else targets


def _in_one_loop(compute: Callable) -> Callable:
    """Decorates a method that computes a loss of each logit by itself.

    TensorFlow would pass over all values thirty times for a focal loss and its gradient. Of many
    values, XLA makes one loop for the loss and one for the gradient, which needs nothing but the
    arguments.
    """

    @functools.wraps(compute)
    def run(self, logits: tf.Tensor, targets: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        loss = functools.partial(compute, self)
        is_large = (logits.shape.num_elements() or 0) >= _MIN_FUSED
        is_in_graph = not (tf.executing_eagerly() or tracing.is_compiled())
        if is_large and is_in_graph and tracing.may_compile():
            return _compiled(loss)(logits, targets, weights)
        return loss(logits, targets, weights)

    return run


def _compiled(loss: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
    """Returns a loss whose values, and whose gradient by each argument, are programs of XLA."""
    program = functools.partial(tf.function, jit_compile=True, autograph=False)

    def gradient_by(number: int) -> Callable[..., tf.Tensor]:
        def gradient(upstream: tf.Tensor, *arguments: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                tape.watch(arguments[number])
                losses = loss(*arguments)
            unconnected = tf.UnconnectedGradients.ZERO
            return tape.gradient(losses, arguments[number], upstream, unconnected)

        return program(gradient)

    @tf.custom_gradient
    def run(*arguments: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        # Graphs drop gradients that nothing uses.
        def gradients(upstream: tf.Tensor) -> list[tf.Tensor]:
            return [gradient_by(number)(upstream, *arguments) for number in range(len(arguments))]

        return program(loss)(*arguments), gradients

    return run


class SigmoidLoss:
    """Sigmoid cross entropy of each class independently.

    Args:
      label_smoothing: see `smoothed`; 0.1 makes targets of 0.05 and 0.95.
    """

    def __init__(self, *, label_smoothing: float = 0.0):
        self._smoothing = label_smoothing

    @_in_one_loop
    def __call__(self, logits: tf.Tensor, targets: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        """Returns [B, N, K]; arguments as the module says."""
        targets = smoothed(targets, self._smoothing, 2)
        return weights * tf.nn.sigmoid_cross_entropy_with_logits(labels=targets, logits=logits)


class SigmoidFocalLoss:
    """Focal loss (https://arxiv.org/abs/1708.02002, eq. 5).

        alpha_t * (1 - p_t)^gamma * cross entropy, p_t the probability of the target.

    Args:
      gamma: focusing parameter, which reduces the weight of easy examples, at least 0; 0 is cross
        entropy.
      alpha: weight of positive targets; negative targets have 1 - alpha. None is no weighting.
      label_smoothing: see `smoothed`; the cross entropy alone has smooth targets, as in the code of
        EfficientDet (https://arxiv.org/abs/1911.09070).

    Raises:
      ValueError: if `gamma` is negative.
    """

    def __init__(
        self, *, gamma: float = 2.0, alpha: float | None = None, label_smoothing: float = 0.0
    ):
        if gamma < 0:
            raise UserError(f'SigmoidFocalLoss: gamma must be 0 or more. Received: {gamma}.')
        self._gamma = gamma
        self._alpha = alpha
        self._smoothing = label_smoothing

    @_in_one_loop
    def __call__(self, logits: tf.Tensor, targets: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        """Returns [B, N, K]; arguments as the module says."""
        losses = tf.nn.sigmoid_cross_entropy_with_logits(
            labels=smoothed(targets, self._smoothing, 2), logits=logits
        )
        if self._gamma:
            probabilities = tf.sigmoid(logits)
            right = targets * probabilities + (1.0 - targets) * (1.0 - probabilities)
            losses *= tf.pow(tf.maximum(1.0 - right, _SMALLEST_ERROR), self._gamma)
        if self._alpha is not None:
            losses *= targets * self._alpha + (1.0 - targets) * (1.0 - self._alpha)
        return weights * losses


class SoftmaxLoss:
    """Softmax cross entropy, weighted by the mean of the classes' weights.

    Args:
      logit_scale: divides the logits, not 0.
      label_smoothing: see `smoothed`; background is one of the K classes.

    Raises:
      ValueError: if `logit_scale` is 0.
    """

    def __init__(self, *, logit_scale: float = 1.0, label_smoothing: float = 0.0):
        self._logit_scale = _nonzero_scale('SoftmaxLoss', logit_scale)
        self._smoothing = label_smoothing

    def __call__(self, logits: tf.Tensor, targets: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        """Returns [B, N]; arguments as the module says, targets are probabilities."""
        targets = smoothed(targets, self._smoothing, logits.shape[-1])
        return _weighted_softmax(logits / self._logit_scale, targets, weights)


class SoftmaxAgainstLogitsLoss:
    """Softmax cross entropy whose targets are logits, e.g. of a teacher.

    Args:
      logit_scale: divides both logits, not 0 (a temperature).

    Raises:
      ValueError: if `logit_scale` is 0.
    """

    def __init__(self, *, logit_scale: float = 1.0):
        self._logit_scale = _nonzero_scale('SoftmaxAgainstLogitsLoss', logit_scale)

    def __call__(self, logits: tf.Tensor, targets: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        """Returns [B, N]; arguments as the module says, targets are logits."""
        soft_targets = tf.nn.softmax(targets / self._logit_scale)
        return _weighted_softmax(logits / self._logit_scale, soft_targets, weights)


class BootstrappedSigmoidLoss:
    """Sigmoid loss against targets mixed with predictions (https://arxiv.org/abs/1412.6596).

        alpha * target + (1 - alpha) * prediction

    Args:
      alpha: share of the annotated targets, in [0, 1].
      hard: whether to mix in the decision (probability above 0.5) instead of the probability.

    Raises:
      ValueError: if `alpha` is out of range.
    """

    def __init__(self, *, alpha: float, hard: bool = False):
        if not 0.0 <= alpha <= 1.0:
            raise UserError(f'BootstrappedSigmoidLoss: alpha must be in [0, 1]. Received: {alpha}.')
        self._alpha = alpha
        self._hard = hard

    @_in_one_loop
    def __call__(self, logits: tf.Tensor, targets: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        """Returns [B, N, K]; arguments as the module says."""
        own = tf.sigmoid(logits)
        if self._hard:
            own = tf.cast(own > 0.5, tf.float32)
        mixed = self._alpha * targets + (1.0 - self._alpha) * own
        return weights * tf.nn.sigmoid_cross_entropy_with_logits(labels=mixed, logits=logits)


class PenaltyReducedFocalLoss:
    """Focal loss of heat maps (Objects as Points, https://arxiv.org/abs/1904.07850, eq. 1).

        target = 1:  -(1 - p)^alpha * log(p)
        target < 1:  -(1 - target)^beta * p^alpha * log(1 - p)

    Args:
      alpha: exponent that reduces the weight of easy pixels.
      beta: exponent that reduces the weight of negatives near a peak.
    """

    def __init__(self, *, alpha: float, beta: float):
        self._alpha = alpha
        self._beta = beta

    @_in_one_loop
    def __call__(self, logits: tf.Tensor, targets: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        """Returns [B, N, K]; arguments as the module says, targets in [0, 1]."""
        probabilities = tf.clip_by_value(tf.sigmoid(logits), _HEATMAP_CLIP, 1.0 - _HEATMAP_CLIP)
        at_peak = tf.pow(1.0 - probabilities, self._alpha) * tf.math.log(probabilities)
        elsewhere = (
            tf.pow(1.0 - targets, self._beta)
            * tf.pow(probabilities, self._alpha)
            * tf.math.log(1.0 - probabilities)
        )
        return -weights * tf.where(targets == 1.0, at_peak, elsewhere)


class DiceLoss:
    """1 - the dice coefficient of each class (V-Net, https://arxiv.org/abs/1606.04797).

        1 - 2 * sum(p * t) / (sum(p) + sum(t)), where p = weight * prediction, t = weight * target

    As in the reference, the weight enters the overlap twice, `squared_normalization` squares the
    overlap too (the paper squares only the normaliser), and a class that is neither predicted nor
    annotated has loss 1.

    Args:
      squared_normalization: whether to use the squares of predictions and targets.
      is_prediction_probability: whether predictions are probabilities, not logits.
    """

    def __init__(
        self, *, squared_normalization: bool = False, is_prediction_probability: bool = False
    ):
        self._squared = squared_normalization
        self._is_probability = is_prediction_probability

    def __call__(self, logits: tf.Tensor, targets: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        """Returns [B, K]; arguments as the module says, N being pixels."""
        probabilities = logits if self._is_probability else tf.sigmoid(logits)
        if self._squared:
            probabilities, targets = tf.square(probabilities), tf.square(targets)
        probabilities, targets = probabilities * weights, targets * weights
        overlap = tf.reduce_sum(probabilities * targets, axis=1)
        volume = tf.reduce_sum(probabilities + targets, axis=1)
        return 1.0 - tf.math.divide_no_nan(2.0 * overlap, volume)


def _weighted_softmax(logits: tf.Tensor, targets: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """[B, N, K], [B, N, K], [B, N, K or 1] -> [B, N]; no gradient into the targets."""
    losses = tf.nn.softmax_cross_entropy_with_logits(
        labels=tf.stop_gradient(targets), logits=logits
    )
    return tf.reduce_mean(weights, axis=2) * losses


def _nonzero_scale(name: str, logit_scale: float) -> float:
    if logit_scale == 0.0:
        raise UserError(f'{name}: logit_scale must not be 0. Received: {logit_scale}.')
    return logit_scale
