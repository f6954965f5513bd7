"""What the heads of single-stage detectors share: their options, and their outputs as rows."""

import dataclasses

import tensorflow as tf

from object_detection.core.sampling import sampling_noise
from object_detection.core.shapes import dimensions
from object_detection.errors import UserError


@dataclasses.dataclass(frozen=True)
class DenseHeadOptions:
    """Options of the heads that predict boxes and classes at each pixel of feature maps.

    Attributes:
      code_size: D, numbers of a box code.
      kernel_size: side of the kernels of the heads.
      num_layers: convolutions before the heads.
      class_bias: initial bias of the class logits.
      dropout_rate: share of the features that the class heads lose in training.
      use_depthwise: whether a depthwise and a 1x1 convolution replace each larger one.
      clip_range: the least and greatest value of a box code; None does not clip.

    Raises:
      ValueError: for numbers out of range, and for depthwise convolutions of size 1.
    """

    code_size: int = 4
    kernel_size: int = 3
    num_layers: int = 0
    class_bias: float = 0.0
    dropout_rate: float = 0.0
    use_depthwise: bool = False
    clip_range: tuple[float, float] | None = None

    def __post_init__(self):
        check('box_code_size', self.code_size >= 1, 'at least 1', self.code_size)
        check('kernel_size', self.kernel_size >= 1, 'at least 1', self.kernel_size)
        check('num_layers_before_predictor', self.num_layers >= 0, '0 or more', self.num_layers)
        check(
            'dropout_keep_probability',
            0.0 <= self.dropout_rate < 1.0,
            'above 0 and at most 1',
            1.0 - self.dropout_rate,
        )
        check(
            'kernel_size',
            not self.use_depthwise or self.kernel_size > 1,
            'above 1 with use_depthwise, which replaces larger convolutions',
            self.kernel_size,
        )
        if self.clip_range is not None:
            low, high = self.clip_range
            check('box_encodings_clip_range', low < high, 'min below max', self.clip_range)


def check(name: str, is_right: bool, expected: str, received: object) -> None:
    """Raises a ValueError that names the field unless `is_right`."""
    if not is_right:
        raise UserError(f'{name}: expected {expected}. Received: {received}.')


def anchor_rows(maps: tf.Tensor, size: int) -> tf.Tensor:
    """Turns the outputs at each pixel into rows, in the order y, x, anchor.

    Args:
      maps: [B, H, W, anchors * size].
      size: outputs of an anchor.

    Returns:
      float32 [B, H * W * anchors, size].
    """
    _, height, width, channels = maps.shape
    count = -1 if None in (height, width) else height * width * channels // size
    return tf.reshape(tf.cast(maps, tf.float32), [tf.shape(maps)[0], count, size])


def clip_codes(codes: tf.Tensor, clip_range: tuple[float, float] | None) -> tf.Tensor:
    """Returns box codes [B, N, D] within `clip_range`, unless it is None."""
    return codes if clip_range is None else tf.clip_by_value(codes, *clip_range)


def drop(maps: tf.Tensor, rate: float, seeds: tf.Tensor | None, level: int) -> tf.Tensor:
    """Sets a random share of features to zero and scales the others, as dropout in training does.

    Args:
      maps: [B, H, W, C].
      rate: the share.
      seeds: int32 [B, 2], one seed an image; None draws from the global generator.
      level: a number that makes the noise of each feature map of an image different.
    """
    batch, *sizes = dimensions(maps, 0, 1, 2, 3)
    if seeds is not None:
        seeds = tf.cast(seeds, tf.int32) + tf.constant([0, level])
    noise = sampling_noise(seeds, sizes[0] * sizes[1] * sizes[2], batch_size=batch)
    is_kept = tf.reshape(noise, tf.shape(maps)) >= rate
    return tf.where(is_kept, maps / (1.0 - rate), tf.zeros_like(maps))
