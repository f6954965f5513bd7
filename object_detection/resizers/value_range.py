"""The range of values that the images of a model have; this module does not load TensorFlow."""

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from object_detection.errors import expected

if TYPE_CHECKING:
    import tensorflow as tf


class ValueRange(NamedTuple):
    """The values of images that are black and white for a model.

    Attributes:
      min: the value that becomes 0.
      max: the value that becomes 255; greater than `min`.
    """

    min: float = 0.0
    max: float = 255.0

    @classmethod
    def of(cls, config: Any) -> 'ValueRange | None':
        """Returns the range in an ImageResizer message; None without one.

        Raises:
          UserError: if it is no range.
        """
        if not config.HasField('value_range'):
            return None
        low, high = config.value_range.min, config.value_range.max
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise expected(
                'image_resizer.value_range', 'finite numbers, min below max', f'{low:g}, {high:g}'
            )
        return cls(low, high)

    def scaled(self, images: 'tf.Tensor') -> 'tf.Tensor':
        """Maps images of any dtype linearly to float32, 0..255; clips what is beyond the range."""
        import tensorflow as tf

        values = tf.cast(images, tf.float32) - self.min
        return tf.clip_by_value(values * (255.0 / (self.max - self.min)), 0.0, 255.0)

    def finite(self, images: np.ndarray) -> np.ndarray:
        """Returns images in which infinite values are those of the range, and NaN is black."""
        return np.nan_to_num(images, nan=self.min, neginf=self.min, posinf=self.max)

    def picture(self, images: np.ndarray) -> np.ndarray:
        """Returns images as uint8, for those who look at them."""
        values = (images.astype(np.float32) - self.min) * (255.0 / (self.max - self.min))
        return np.clip(np.rint(values), 0, 255).astype(np.uint8)


# Of images of a model that declares none.
DEFAULT_RANGE = ValueRange()
