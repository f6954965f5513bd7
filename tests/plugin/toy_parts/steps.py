"""A step of augmentation."""

import dataclasses

import tensorflow as tf

from object_detection.errors import UserError


@dataclasses.dataclass(frozen=True)
class Posterize:
    """Keeps the upper `bits` of the 8 bits of each pixel value."""

    bits: int = 4

    def __post_init__(self):
        if not 1 <= self.bits <= 8:
            raise UserError(f'bits: expected 1 to 8. Received: {self.bits}.')

    def __call__(self, example: dict[str, tf.Tensor], seed: tf.Tensor) -> dict[str, tf.Tensor]:
        """Changes example['image'], [H, W, 3] of 0..255; a random step draws from `seed`."""
        level = 2.0 ** (8 - self.bits)
        image = tf.floor(tf.cast(example['image'], tf.float32) / level) * level
        return {**example, 'image': image}
