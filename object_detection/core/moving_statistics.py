"""A context in which batch norms leave their moving statistics as they are."""

from object_detection.core.scopes import Scope


class Kept(Scope):
    """Within it batch norms normalise as in training, but move no statistics.

    For a further pass over a batch in the same step, which is no further batch.
    """
