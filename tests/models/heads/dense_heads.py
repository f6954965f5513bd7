"""Feature maps for heads of single-stage detectors, and the weights of these heads."""

import keras
import numpy as np
import tensorflow as tf


def maps(*shapes: tuple[int, int, int]) -> list[tf.Tensor]:
    """Returns random maps [2, H, W, C]."""
    return [tf.random.stateless_normal([2, *shape], [i, 0]) for i, shape in enumerate(shapes)]


def weights(
    predictor: keras.layers.Layer, levels: list[tf.Tensor] | None = None
) -> dict[str, np.ndarray]:
    """Returns the weights by 'layer/variable', of a predictor that `levels` build if given."""
    if levels is not None:
        predictor(levels)
    return {v.path.partition('/')[2]: v.numpy() for v in predictor.variables}
