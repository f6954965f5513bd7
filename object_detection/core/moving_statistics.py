"""The moving statistics of batch norms, and a context in which they stay as they are."""

from collections.abc import Mapping

import tensorflow as tf

from object_detection.core.scopes import Scope

_NAMES = ('/moving_mean', '/moving_variance')


def among(variables: Mapping[str, tf.Variable]) -> list[tf.Variable]:
    """Returns the moving statistics of batch norms among the variables of a model, by name."""
    return [variable for name, variable in variables.items() if name.endswith(_NAMES)]


class Kept(Scope):
    """Within it batch norms normalise as in training, but move no statistics.

    For a further pass over a batch in the same step, which is no further batch.
    """
