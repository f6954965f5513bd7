"""A layer that consists of other layers."""

import keras


class Composite(keras.layers.Layer):
    """A layer whose weights are those of other layers, which are built when it calls them.

    Without `build`, Keras would first run `call` in a graph of its own, to build them, and so again
    at each level of nesting: most of the time that building a detection transformer would take.
    Subclasses have no `compute_output_shape`, with which Keras would not run `call` in a model.
    """

    def build(self, input_shape):
        """Has nothing to build."""
