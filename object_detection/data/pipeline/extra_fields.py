"""Entries of batches that few models need: class vectors, contexts and points of DensePose.

Each function returns entries with static shapes, made of the fields that the decoder reads on
request; none for an example without them.
"""

from collections.abc import Sequence

import tensorflow as tf

from object_detection.core.fields import InputFields as F
from object_detection.core.shapes import asserted
from object_detection.data.objects import Example

_CLASS_IDS = (
    F.GROUNDTRUTH_IMAGE_CLASSES,
    F.GROUNDTRUTH_VERIFIED_NEG_CLASSES,
    F.GROUNDTRUTH_NOT_EXHAUSTIVE_CLASSES,
)


def class_vectors(example: Example, num_classes: int, *, empty_to_ones: bool) -> Example:
    """Returns the classes of the image as vectors float32 [K], K = `num_classes`.

    groundtruth_image_classes, groundtruth_verified_neg_classes and
    groundtruth_not_exhaustive_classes are 1 for the classes of the lists; groundtruth_image_
    confidences has the confidences of the classes. Ids that are not in 1..K are left out: the model
    has no such class.

    Args:
      example: decoded example.
      num_classes: K, without background.
      empty_to_ones: whether an image without any class has all of them, as everything was labelled.
    """
    vectors = {
        name: tf.minimum(_sum_of(example[name], num_classes), 1.0)
        for name in _CLASS_IDS
        if name in example
    }
    ids = example.get(F.GROUNDTRUTH_IMAGE_CLASSES)
    if ids is None:
        return vectors
    confidences = example[F.GROUNDTRUTH_IMAGE_CONFIDENCES]
    vectors[F.GROUNDTRUTH_IMAGE_CONFIDENCES] = _sum_of(ids, num_classes, confidences)
    if empty_to_ones:
        vectors[F.GROUNDTRUTH_IMAGE_CLASSES] = tf.where(
            tf.size(ids) > 0, vectors[F.GROUNDTRUTH_IMAGE_CLASSES], tf.ones([num_classes])
        )
    return vectors


def context(example: Example, size: tuple[int, int] | None) -> Example:
    """Returns the features of other images of the scene: the first N, padded with zeros.

    Args:
      example: decoded example.
      size: N and L, the length of a feature; None takes all features of the image.

    Returns:
      context_features float32 [N, L]; valid_context_size int32, how many of them there are;
      context_features_image_id_list string [N].

    Raises:
      tf.errors.InvalidArgumentError: when run, if the features have another length.
    """
    outputs = {}
    if F.CONTEXT_FEATURES in example:
        features = example[F.CONTEXT_FEATURES]
        count = tf.shape(features)[0]
        outputs[F.VALID_CONTEXT_SIZE] = count if size is None else tf.minimum(count, size[0])
        outputs[F.CONTEXT_FEATURES] = features if size is None else _fit_features(example, *size)
    if F.CONTEXT_FEATURES_IMAGE_ID_LIST in example:
        ids = example[F.CONTEXT_FEATURES_IMAGE_ID_LIST]
        outputs[F.CONTEXT_FEATURES_IMAGE_ID_LIST] = ids if size is None else _fit(ids, size[0])
    return outputs


def _fit_features(example: Example, size: int, length: int) -> tf.Tensor:
    features = example[F.CONTEXT_FEATURES]
    with asserted(
        tf.equal(tf.shape(features)[1], length),
        f'Context features need {length} numbers each (context_config.context_feature_length '
        'of the model). Image, numbers:',
        *(example[F.SOURCE_ID], tf.shape(features)[1]),
    ):
        return tf.ensure_shape(_fit(features, size), [size, length])


def keypoint_weights(example: Example, type_weights: Sequence[float]) -> Example:
    """Returns groundtruth_keypoint_weights float32 [n, P], 0 for keypoints that are not visible.

    Args:
      example: example with keypoints, or without.
      type_weights: weight of each of the P keypoints; () is 1 for all.
    """
    if F.GROUNDTRUTH_KEYPOINTS not in example:
        return {}
    is_visible = tf.cast(example[F.GROUNDTRUTH_KEYPOINT_VISIBILITIES], tf.float32)
    weights = tf.constant(tuple(type_weights) or (1.0,), tf.float32)
    return {F.GROUNDTRUTH_KEYPOINT_WEIGHTS: is_visible * weights}


def densepose(example: Example) -> Example:
    """Returns the points of DensePose that are left in the image, first in their rows.

    Augmentations make the coordinates of points outside of the image NaN.
    """
    if F.GROUNDTRUTH_DP_POINTS not in example:
        return {}
    points, counts = example[F.GROUNDTRUTH_DP_POINTS], example[F.GROUNDTRUTH_DP_NUM_POINTS]
    is_point = tf.range(points.shape[1]) < counts[:, tf.newaxis]  # [n, D]
    is_point &= ~tf.reduce_any(tf.math.is_nan(points), axis=-1)
    order = tf.argsort(tf.cast(~is_point, tf.int32), axis=1, stable=True)
    counts = tf.reduce_sum(tf.cast(is_point, tf.int32), axis=1)
    is_point = tf.range(points.shape[1]) < counts[:, tf.newaxis]

    def first(name: str) -> tf.Tensor:
        values = tf.gather(example[name], order, batch_dims=1)
        mask = is_point if values.shape.rank == 2 else is_point[..., tf.newaxis]
        return tf.where(mask, values, tf.zeros([], values.dtype))

    names = (F.GROUNDTRUTH_DP_POINTS, F.GROUNDTRUTH_DP_SURFACE, F.GROUNDTRUTH_DP_PART_IDS)
    return {F.GROUNDTRUTH_DP_NUM_POINTS: counts, **{name: first(name) for name in names}}


def _sum_of(ids: tf.Tensor, num_classes: int, values: tf.Tensor | None = None) -> tf.Tensor:
    """Sums values (1) of 1-based ids [m] -> [K]."""
    one_hot = tf.one_hot(ids - 1, num_classes)  # zeros for other ids
    return tf.reduce_sum(one_hot if values is None else one_hot * values[:, tf.newaxis], axis=0)


def _fit(rows: tf.Tensor, size: int) -> tf.Tensor:
    """Cuts or pads [n, ...] to [size, ...]."""
    rows = rows[:size]
    missing = [[0, size - tf.shape(rows)[0]]] + [[0, 0]] * (rows.shape.rank - 1)
    padding = '' if rows.dtype == tf.string else tf.zeros([], rows.dtype)
    return tf.ensure_shape(tf.pad(rows, missing, constant_values=padding), [size, *rows.shape[1:]])
