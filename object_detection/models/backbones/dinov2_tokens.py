"""From images to the tokens of a DINOv2, and from tokens to maps; see `dinov2`.

Of images that are not square, transformers takes height for width where it cuts windows out, but
not where it joins them. The same is done here, so that the maps are the same.
"""

from typing import Any

import keras
import tensorflow as tf

from object_detection.core import tracing
from object_detection.core.shapes import asserted, dimensions, is_same
from object_detection.errors import expected

# Of initial values.
DEVIATION = 0.02


class CheckedImages(keras.layers.Layer):
    """The identity; an error for images of other sizes than multiples.

    Args:
      multiple: what the sides have to be multiples of.
    """

    def __init__(self, multiple: int, *, name: str):
        super().__init__(name=name)
        self._multiple = multiple

    def call(self, images):
        sides = dimensions(images, 1, 2)
        subject = 'DINOv2: height and width of the images'
        wanted = f'multiples of {self._multiple} pixels, patch_size * num_windows'
        if any(isinstance(side, int) and side % self._multiple for side in sides):
            raise expected(subject, wanted, ' x '.join(map(str, sides)))
        if all(isinstance(side, int) for side in sides) or tracing.BasicOperations.is_on():
            return images
        holds = tf.reduce_all(tf.stack(sides) % self._multiple == 0)
        with asserted(holds, f'{subject}: expected {wanted}. Received:', tf.stack(sides)):
            return tf.identity(images)


class Embeddings(keras.layers.Layer):
    """Patches [B, h, w, C] -> tokens [B * windows^2, 1 + registers + patches of a window, C].

    Args:
      grid: position embeddings along each side.
      windows: windows along each side.
      registers: number of register tokens.
      antialias: see `Dinov2Spec`.
    """

    def __init__(self, *, grid: int, windows: int, registers: int, antialias: bool, name: str):
        super().__init__(name=name)
        self._grid, self._windows = grid, windows
        self._num_registers = registers
        self._antialias = antialias

    def build(self, shape):
        channels, random = shape[-1], keras.initializers.TruncatedNormal
        counts = {'cls_token': 1, 'position_embeddings': 1 + self._grid**2}
        self._cls, self._positions = (
            # Positions are interpolated in float32.
            self.add_weight(
                shape=(1, count, channels),
                initializer=random(stddev=DEVIATION),
                autocast=False,
                name=name,
            )
            for name, count in counts.items()
        )
        self._registers = None
        if self._num_registers:
            self._registers = self.add_weight(
                shape=(1, self._num_registers, channels),
                initializer='zeros',
                autocast=False,
                name='register_tokens',
            )

    def call(self, patches):
        height, width = dimensions(patches, 1, 2)
        positions = tf.convert_to_tensor(self._positions)
        of_patches = self._interpolated(positions[0, 1:], height, width)
        tokens = patches + tf.cast(of_patches, patches.dtype)
        tokens = tf.reshape(tokens, [-1, *self._of_windows(height, width), tokens.shape[-1]])
        tokens = tf.transpose(tokens, [0, 1, 3, 2, 4, 5])
        cells = height * width // self._windows**2
        tokens = tf.reshape(tokens, [-1, cells, tokens.shape[-1]])
        first = [self._cls + positions[:, :1]]
        if self._registers is not None:
            first.append(tf.convert_to_tensor(self._registers))
        first = tf.cast(tf.concat(first, axis=1), tokens.dtype)
        first = tf.tile(first, [dimensions(tokens, 0)[0], 1, 1])
        return tf.concat([first, tokens], axis=1)

    def _of_windows(self, height: Any, width: Any) -> list[Any]:
        # Width before height, as in transformers: a difference if they are not the same.
        count = self._windows
        return [count, width // count, count, height // count]

    def _interpolated(self, positions: tf.Tensor, height: Any, width: Any) -> tf.Tensor:
        """Returns the embeddings [height, width, C] of [grid^2, C]."""
        grid = self._grid
        positions = tf.reshape(positions, [grid, grid, -1])
        if is_same((height, width), (grid, grid)):
            return positions
        of_rows, of_columns = (
            _cubic_interpolation(grid, size, self._antialias) for size in (height, width)
        )
        return tf.einsum('yi,xj,ijc->yxc', of_rows, of_columns, positions)

    def compute_output_shape(self, shape):
        batch, height, width, channels = shape
        windows = self._windows**2
        count = None
        if None not in (height, width):
            count = 1 + self._num_registers + height * width // windows
        return batch and batch * windows, count, channels


def _cubic_interpolation(count: int, size: int | tf.Tensor, antialias: bool) -> tf.Tensor:
    """Returns the factors, float32 [size, count], of bicubic interpolation as PyTorch has it.

    Args:
      count: numbers that there are.
      size: numbers that there shall be, at the centres of as many cells.
      antialias: whether the cubic is that of Keys, made as wide as the steps are, and cut off at
        the ends; else it is another one, and the ends are repeated.
    """
    step = tf.cast(count, tf.float32) / tf.cast(size, tf.float32)
    centres = step * (tf.cast(tf.range(size), tf.float32) + 0.5) - 0.5
    if antialias:
        offsets = tf.range(count, dtype=tf.float32) - centres[:, tf.newaxis]
        factors = _cubic(offsets / tf.maximum(step, 1.0), -0.5)
        return factors / tf.reduce_sum(factors, axis=1, keepdims=True)
    taps = tf.floor(centres)[:, tf.newaxis] + tf.constant([-1.0, 0.0, 1.0, 2.0])
    factors = _cubic(taps - centres[:, tf.newaxis], -0.75)
    columns = tf.cast(tf.clip_by_value(taps, 0.0, count - 1.0), tf.int32)
    return tf.reduce_sum(tf.one_hot(columns, count) * factors[..., tf.newaxis], axis=1)


def _cubic(x: tf.Tensor, a: float) -> tf.Tensor:
    """The piecewise cubic with slope `a` at 1, zero from 2 on."""
    x = tf.abs(x)
    inner = ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    outer = ((x - 5.0) * x + 8.0) * x * a - 4.0 * a
    return tf.where(x < 1.0, inner, tf.where(x < 2.0, outer, 0.0))


class Maps(keras.layers.Layer):
    """Tokens [B * windows^2, S, C], and patches [B, h, w, C'] -> map [B, h, w, C].

    Args:
      windows: windows along each side.
      num_first: number of tokens of a window before those of its patches.
    """

    def __init__(self, windows: int, num_first: int, *, name: str):
        super().__init__(name=name)
        self._windows, self._num_first = windows, num_first

    def call(self, inputs):
        tokens, patches = inputs
        height, width = dimensions(patches, 1, 2)
        count, channels = self._windows, tokens.shape[-1]
        of_windows = [count, count, height // count, width // count]
        cells = tf.reshape(tokens[:, self._num_first :], [-1, *of_windows, channels])
        cells = tf.transpose(cells, [0, 1, 3, 2, 4, 5])
        return tf.reshape(cells, [-1, height, width, channels])

    def compute_output_shape(self, shapes):
        return *shapes[1][:3], shapes[0][-1]
