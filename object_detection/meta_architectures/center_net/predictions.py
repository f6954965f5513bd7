"""The predictions of CenterNet, as a typed value that a `tf.function` can return."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf


class Predictions(NamedTuple):
    """The result of `CenterNet.predict` for B images.

    Attributes:
      images: float32 [B, H', W', C], the preprocessed images.
      true_shapes: int32 [B, 3], shapes before padding.
      features: [B, H, W, D] of each stack.
      maps: float32 [B, H, W, C] of each stack, by the name of the head.
      objects: what tasks predict of the objects of the ground truth, by name; None without any.
    """

    images: tf.Tensor
    true_shapes: tf.Tensor
    features: Sequence[tf.Tensor]
    maps: Mapping[str, Sequence[tf.Tensor]]
    objects: Mapping[str, tf.Tensor | Sequence[tf.Tensor]] | None = None

    def last_maps(self) -> dict[str, tf.Tensor]:
        """Returns the maps of the last stack by the name of the head."""
        return {name: stacks[-1] for name, stacks in self.maps.items()}

    def to_dict(self) -> dict[str, Any]:
        """Returns the predictions by the names of the reference."""
        return {
            **self.maps,
            'extracted_features': self.features,
            'preprocessed_inputs': self.images,
            'true_image_shapes': self.true_shapes,
            **(self.objects or {}),
        }

    def items(self):
        """Returns the names and values of `to_dict`, for scripts for the reference."""
        return self.to_dict().items()
