"""The image of a tf.Example."""

import tensorflow as tf
from tf_slim.data import tfexample_decoder as slim

from object_detection.core import tf_example_keys as keys
from object_detection.data.image_decoding import count_pixels, decode_image
from object_detection.resizers.value_range import ValueRange

# The beginning of the error message about an image with too many pixels.
TOO_MANY_PIXELS = 'An image has more pixels than max_image_pixels of its input reader'


class ImageHandler(slim.ItemHandler):
    """Decodes image/encoded (see `decode_image`) to [H, W, C], uint8 or, with a range, float32.

    Args:
      max_pixels: maximum number of pixels of an image, read from its header; 0 sets no limit.
      num_channels: number of channels of image/encoded: 1, 3 or 4, see `decode_image`.
      num_additional_channels: number of files of one channel in image/additional_channels/encoded,
        which follow those of image/encoded.
      value_range: see `decode_image`.
    """

    def __init__(
        self,
        max_pixels: int = 0,
        *,
        num_channels: int = 3,
        num_additional_channels: int = 0,
        value_range: ValueRange | None = None,
    ):
        needed = [keys.ENCODED, keys.SOURCE_ID, keys.FILENAME]
        super().__init__([*needed, *([keys.ADDITIONAL_CHANNELS] * bool(num_additional_channels))])
        self._max_pixels = max_pixels
        self._num_channels = num_channels
        self._num_additional = num_additional_channels
        self._value_range = value_range

    def features(self) -> dict[str, tf.io.FixedLenFeature | tf.io.VarLenFeature]:
        """Returns the features that the image is made of."""
        features = {
            keys.ENCODED: tf.io.FixedLenFeature([], tf.string, ''),
            keys.FORMAT: tf.io.FixedLenFeature([], tf.string, 'jpeg'),
        }
        if self._num_additional:
            features[keys.ADDITIONAL_CHANNELS] = tf.io.VarLenFeature(tf.string)
        return features

    def tensors_to_item(self, keys_to_tensors: dict[str, tf.Tensor]) -> tf.Tensor:
        names = [keys_to_tensors[keys.SOURCE_ID], keys_to_tensors[keys.FILENAME]]
        image = self._decode(keys_to_tensors[keys.ENCODED], self._num_channels, names)
        if not self._num_additional:
            return image
        files = keys_to_tensors[keys.ADDITIONAL_CHANNELS].values
        check = tf.debugging.Assert(
            tf.equal(tf.size(files), self._num_additional),
            [
                f'A record needs {self._num_additional} {keys.ADDITIONAL_CHANNELS}, which '
                'num_additional_channels of its input reader says. Image, file name, files:',
                *names,
                tf.size(files),
            ],
        )
        with tf.control_dependencies([check] if check is not None else []):
            files = tf.ensure_shape(files, [self._num_additional])
        channels = [self._decode(file, 1, names) for file in tf.unstack(files)]
        sizes = tf.stack([tf.shape(channel)[:2] for channel in channels])
        check = tf.debugging.Assert(
            tf.reduce_all(sizes == tf.shape(image)[:2]),
            [
                f'{keys.ADDITIONAL_CHANNELS} have another size than the image. Image, file name, '
                'size, sizes:',
                *names,
                tf.shape(image)[:2],
                sizes,
            ],
            summarize=2 * self._num_additional,
        )
        with tf.control_dependencies([check] if check is not None else []):
            return tf.concat([image, *channels], axis=-1)

    def _decode(self, encoded: tf.Tensor, num_channels: int, names: list[tf.Tensor]) -> tf.Tensor:
        if not self._max_pixels:
            return decode_image(encoded, num_channels, self._value_range)
        num_pixels = count_pixels(encoded)
        check = tf.debugging.Assert(
            num_pixels <= self._max_pixels,
            [
                f'{TOO_MANY_PIXELS} ({self._max_pixels}). Image, file name, pixels:',
                *names,
                num_pixels,
            ],
        )
        # Decoding uses the output of the check, which is therefore executed first.
        with tf.control_dependencies([check] if check is not None else []):
            return decode_image(tf.identity(encoded), num_channels, self._value_range)
