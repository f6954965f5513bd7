"""A layer that cuts maps after their size was doubled."""

import keras

from object_detection.core.shapes import dimensions


class CropTo(keras.layers.Layer):
    """Cuts maps [B, H, W, C] at the bottom and right to the size of others, [B, H', W', C']."""

    def call(self, inputs, like):
        if None not in inputs.shape[1:3] and inputs.shape[1:3] == like.shape[1:3]:
            return inputs
        height, width = dimensions(like, 1, 2)
        return inputs[:, :height, :width]

    def compute_output_shape(self, inputs_shape, like_shape):
        return (*like_shape[:3], inputs_shape[-1])
