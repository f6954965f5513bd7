"""The image of a tf.Example, and the points of its objects: keypoints, and points on bodies."""

from collections.abc import Iterator

import tensorflow as tf
from tf_slim.data import tfexample_decoder as slim

from object_detection.core import tf_example_keys as keys
from object_detection.core.fields import InputFields as F
from object_detection.core.shapes import asserted
from object_detection.data.image_decoding import count_pixels, decode_image
from object_detection.data.objects import Example
from object_detection.data.text_ids import TextIds
from object_detection.resizers.value_range import ValueRange

# Traced once for all input pipelines of a process: most of the operations of a pipeline are here.
_decode_image = tf.function(decode_image, autograph=False)
_count_pixels = tf.function(count_pixels, autograph=False)
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
        with asserted(
            tf.equal(tf.size(files), self._num_additional),
            f'A record needs {self._num_additional} {keys.ADDITIONAL_CHANNELS}, which '
            'num_additional_channels of its input reader says. Image, file name, files:',
            *names,
            tf.size(files),
        ):
            files = tf.ensure_shape(files, [self._num_additional])
        channels = [self._decode(file, 1, names) for file in tf.unstack(files)]
        sizes = tf.stack([tf.shape(channel)[:2] for channel in channels])
        with asserted(
            tf.reduce_all(sizes == tf.shape(image)[:2]),
            f'{keys.ADDITIONAL_CHANNELS} have another size than the image. Image, file name, '
            'size, sizes:',
            *names,
            tf.shape(image)[:2],
            sizes,
            summarize=2 * self._num_additional,
        ):
            return tf.concat([image, *channels], axis=-1)

    def _decode(self, encoded: tf.Tensor, num_channels: int, names: list[tf.Tensor]) -> tf.Tensor:
        if not self._max_pixels:
            return _decode_image(encoded, num_channels, self._value_range)
        num_pixels = _count_pixels(encoded)
        # Decoding uses the output of the check, which is therefore executed first.
        with asserted(
            num_pixels <= self._max_pixels,
            f'{TOO_MANY_PIXELS} ({self._max_pixels}). Image, file name, pixels:',
            *names,
            num_pixels,
        ):
            return _decode_image(tf.identity(encoded), num_channels, self._value_range)


Tensors = dict[str, tf.SparseTensor]

# D: annotators of DensePose mark at most 14 points on each of 14 parts of a body.
MAX_DENSEPOSE_POINTS = 196

_KEYPOINTS = {
    keys.KEYPOINT_Y: tf.float32,
    keys.KEYPOINT_X: tf.float32,
    keys.KEYPOINT_VISIBILITY: tf.int64,
    keys.KEYPOINT_TEXT: tf.string,
    keys.KEYPOINT_DEPTH: tf.float32,
    keys.KEYPOINT_DEPTH_WEIGHT: tf.float32,
}
_DENSEPOSE = {
    keys.DENSEPOSE_NUM: tf.int64,
    keys.DENSEPOSE_PART: tf.int64,
    keys.DENSEPOSE_Y: tf.float32,
    keys.DENSEPOSE_X: tf.float32,
    keys.DENSEPOSE_V: tf.float32,
    keys.DENSEPOSE_U: tf.float32,
}
_DENSEPOSE_ITEMS = {
    F.GROUNDTRUTH_DP_POINTS: (keys.DENSEPOSE_Y, keys.DENSEPOSE_X),
    F.GROUNDTRUTH_DP_SURFACE: (keys.DENSEPOSE_V, keys.DENSEPOSE_U),
    F.GROUNDTRUTH_DP_PART_IDS: (keys.DENSEPOSE_PART,),
}


class KeypointItems:
    """The keypoints of objects, P each.

    Args:
      count: P.
      ids: positions of the names of keypoints. With them, records may hold the keypoints of an
        object in any order, and some only; those with other names are left out. None takes
        records as they are, with P keypoints of each object.
    """

    def __init__(self, count: int, ids: TextIds | None = None):
        self._count = count
        self._ids = ids

    def features(self) -> dict[str, tf.io.VarLenFeature]:
        """Returns the features that the items are made of."""
        return {key: tf.io.VarLenFeature(dtype) for key, dtype in _KEYPOINTS.items()}

    def handlers(self) -> Iterator[tuple[str, slim.ItemHandler]]:
        """Yields the name of each item and its handler: [n, P], or [n, P, 2]."""
        needed = [*_KEYPOINTS, keys.YMIN, keys.SOURCE_ID]
        for name, function in (
            (F.GROUNDTRUTH_KEYPOINTS, self._points),
            (F.GROUNDTRUTH_KEYPOINT_VISIBILITIES, self._visibilities),
            (F.GROUNDTRUTH_KEYPOINT_DEPTHS, self._depths),
            (F.GROUNDTRUTH_KEYPOINT_DEPTH_WEIGHTS, self._depth_weights),
        ):
            yield name, slim.ItemHandlerCallback(needed, function)

    def _points(self, tensors: Tensors) -> tf.Tensor:
        sides = [
            self._arranged(tensors, tensors[key].values, float('nan'))
            for key in (keys.KEYPOINT_Y, keys.KEYPOINT_X)
        ]
        return tf.stack(sides, axis=-1)

    def _visibilities(self, tensors: Tensors) -> tf.Tensor:
        # In records without visibilities, every keypoint that has coordinates is visible.
        stored = tensors[keys.KEYPOINT_VISIBILITY].values
        is_visible = tf.cond(
            tf.size(stored) > 0,
            lambda: stored > 0,
            lambda: ~tf.math.is_nan(tensors[keys.KEYPOINT_Y].values),
        )
        return self._arranged(tensors, is_visible, False)

    def _depths(self, tensors: Tensors) -> tf.Tensor:
        return self._arranged(tensors, tensors[keys.KEYPOINT_DEPTH].values, 0.0)

    def _depth_weights(self, tensors: Tensors) -> tf.Tensor:
        depths = tensors[keys.KEYPOINT_DEPTH].values
        stored = tensors[keys.KEYPOINT_DEPTH_WEIGHT].values
        weights = tf.cond(tf.size(stored) > 0, lambda: stored, lambda: tf.ones_like(depths))
        return self._arranged(tensors, weights, 0.0)

    def _arranged(self, tensors: Tensors, values: tf.Tensor, default: float | bool) -> tf.Tensor:
        """Values [n * Q] of all keypoints of a record -> [n, P], or [0, P] if there are none."""
        if self._ids is None:
            return tf.reshape(values, [-1, self._count])
        num_objects = tf.size(tensors[keys.YMIN].values)
        texts = tensors[keys.KEYPOINT_TEXT].values
        num_each = tf.size(texts) // tf.maximum(num_objects, 1)  # Q
        is_whole = tf.equal(num_each * num_objects, tf.size(texts))
        is_named = tf.equal(tf.size(values), 0) | tf.equal(tf.size(values), tf.size(texts))
        with asserted(
            is_whole & is_named,
            f'A record needs one {keys.KEYPOINT_TEXT} for each keypoint, and as many for each '
            'box. Image, boxes, texts, values:',
            *(tensors[keys.SOURCE_ID], num_objects, tf.size(texts), tf.size(values)),
        ):
            num_rows = tf.where(tf.equal(tf.size(values), 0), 0, num_objects)
        num_columns = tf.where(num_rows > 0, num_each, 0)
        rows = tf.reshape(values, [num_rows, num_columns])
        ids = tf.reshape(self._ids.look_up(texts)[: num_rows * num_columns], tf.shape(rows))
        # [n, Q, P]; an additional last column is chosen for a keypoint that is absent.
        is_same = ids[..., tf.newaxis] == tf.range(self._count, dtype=tf.int64)
        is_same = tf.concat([is_same, tf.ones([num_rows, 1, self._count], bool)], axis=1)
        chosen = tf.argmax(tf.cast(is_same, tf.int32), axis=1, output_type=tf.int32)
        rows = tf.pad(rows, [[0, 0], [0, 1]], constant_values=default)
        return tf.ensure_shape(tf.gather(rows, chosen, batch_dims=1), [None, self._count])


def hide_unlabelled(example: Example) -> Example:
    """Returns keypoints that are NaN and invisible where not visible or without a coordinate."""
    points = example[F.GROUNDTRUTH_KEYPOINTS]
    is_visible = example[F.GROUNDTRUTH_KEYPOINT_VISIBILITIES]
    is_visible &= ~tf.reduce_any(tf.math.is_nan(points), axis=-1)
    return {
        F.GROUNDTRUTH_KEYPOINTS: tf.where(is_visible[..., tf.newaxis], points, float('nan')),
        F.GROUNDTRUTH_KEYPOINT_VISIBILITIES: is_visible,
    }


def densepose_features() -> dict[str, tf.io.VarLenFeature]:
    """Returns the features of points on the surface of bodies."""
    return {key: tf.io.VarLenFeature(dtype) for key, dtype in _DENSEPOSE.items()}


def densepose_handlers() -> Iterator[tuple[str, slim.ItemHandler]]:
    """Yields the name of each item of DensePose and its handler: [n], [n, D] or [n, D, 2]."""
    yield (
        F.GROUNDTRUTH_DP_NUM_POINTS,
        slim.ItemHandlerCallback([keys.DENSEPOSE_NUM], _densepose_counts),
    )
    for name, columns in _DENSEPOSE_ITEMS.items():

        def of_objects(tensors: Tensors, columns: tuple[str, ...] = columns) -> tf.Tensor:
            return _of_objects(tensors, columns)

        yield (
            name,
            slim.ItemHandlerCallback([keys.DENSEPOSE_NUM, keys.SOURCE_ID, *columns], of_objects),
        )


def _densepose_counts(tensors: Tensors) -> tf.Tensor:
    return tf.cast(tensors[keys.DENSEPOSE_NUM].values, tf.int32)


def _of_objects(tensors: Tensors, columns: tuple[str, ...]) -> tf.Tensor:
    """Values of all points of a record -> [n, D], or [n, D, 2] of two keys; 0 for no point."""
    counts = tensors[keys.DENSEPOSE_NUM].values
    values = [tensors[key].values for key in columns]
    num_points = tf.stack([tf.size(each, tf.int64) for each in values])
    with asserted(
        tf.reduce_all(num_points == tf.reduce_sum(counts))
        & tf.reduce_all((counts >= 0) & (counts <= MAX_DENSEPOSE_POINTS)),
        f'A record needs as many {" and ".join(columns)} as {keys.DENSEPOSE_NUM} says, at most '
        f'{MAX_DENSEPOSE_POINTS} for each box. Image, values, points of each box:',
        *(tensors[keys.SOURCE_ID], num_points, counts),
        summarize=16,
    ):
        points = tf.stack(values, axis=-1) if len(values) > 1 else tf.identity(values[0])
    if points.dtype == tf.int64:
        points = tf.cast(points, tf.int32)
    rows = tf.RaggedTensor.from_row_lengths(points, counts, validate=False)
    shape = [None, MAX_DENSEPOSE_POINTS, *points.shape[1:]]
    return tf.ensure_shape(rows.to_tensor(shape=shape), shape)
