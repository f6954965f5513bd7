"""Decodes tf.Examples to tensors (the keys of the reference system's records)."""

import tensorflow as tf
from tf_slim.data import tfexample_decoder as slim

from object_detection.core import tf_example_keys as keys
from object_detection.core.example_fields import IMAGE_FIELDS, OBJECT_FIELDS, ImageField
from object_detection.core.fields import InputFields as F
from object_detection.data.image_decoding import count_pixels, decode_image
from object_detection.data.label_map import LabelMap
from object_detection.data.objects import Example
from object_detection.errors import UserError

PNG_MASKS = 'png'
NUMERICAL_MASKS = 'numerical'

# The beginning of the error message about an image with too many pixels.
TOO_MANY_PIXELS = 'An image has more pixels than max_image_pixels of its input reader'


class ExampleDecoder:
    """Decodes one serialized tf.Example.

    Args:
      label_map: maps image/object/class/text (a name or a display name) to ids. Text takes
        precedence over image/object/class/label, so that a label map may select and renumber a part
        of a data set's classes; the label is used for records without text, or without a label map.
      mask_type: the format of masks in records, PNG_MASKS or NUMERICAL_MASKS; None does not decode
        masks.
      num_keypoints: number of keypoints per object; 0 does not decode keypoints.
      load_multiclass_scores: whether to read scores of all classes for each object.
      max_image_pixels: maximum number of pixels of an image; 0 sets no limit.

    Raises:
      ValueError: if `mask_type` is not valid.
    """

    def __init__(
        self,
        *,
        label_map: LabelMap | None = None,
        mask_type: str | None = None,
        num_keypoints: int = 0,
        load_multiclass_scores: bool = False,
        max_image_pixels: int = 0,
    ):
        if mask_type not in (None, PNG_MASKS, NUMERICAL_MASKS):
            raise UserError(
                f'ExampleDecoder: mask_type must be None, {PNG_MASKS!r} or {NUMERICAL_MASKS!r}. '
                f'Received: {mask_type!r}.'
            )
        self._num_keypoints = num_keypoints
        self._stored = {
            name: field
            for name, field in OBJECT_FIELDS.items()
            if field.stored and (num_keypoints or not field.is_by_keypoint)
        }
        self._ids = _TextIds(label_map) if label_map is not None else None
        features = {
            keys.ENCODED: tf.io.FixedLenFeature([], tf.string, ''),
            keys.FORMAT: tf.io.FixedLenFeature([], tf.string, 'jpeg'),
            **{field.stored.key: _feature(field) for field in IMAGE_FIELDS.values()},
            **{key: tf.io.VarLenFeature(tf.float32) for key in keys.BOX_SIDES},
            keys.CLASS_TEXT: tf.io.VarLenFeature(tf.string),
            keys.CLASS_LABEL: tf.io.VarLenFeature(tf.int64),
        }
        handlers = {
            F.IMAGE: ImageHandler(max_image_pixels),
            F.GROUNDTRUTH_BOXES: slim.BoundingBox(keys.BOX_SIDES),
            F.GROUNDTRUTH_CLASSES: slim.ItemHandlerCallback(
                [keys.CLASS_TEXT, keys.CLASS_LABEL], self._classes
            ),
            **{name: slim.Tensor(field.stored.key) for name, field in IMAGE_FIELDS.items()},
        }
        for name, field in self._stored.items():
            features[field.stored.key] = tf.io.VarLenFeature(field.stored.dtype)
            handlers[name] = slim.Tensor(field.stored.key)
        if self._ids is not None:
            handlers[F.UNKNOWN_CLASSES] = slim.ItemHandlerCallback(
                [keys.CLASS_TEXT], self._unknown_classes
            )
        if mask_type is not None:
            self._add_masks(features, handlers, mask_type)
        if num_keypoints:
            self._add_keypoints(features, handlers)
        if load_multiclass_scores:
            features[keys.CLASS_SCORES] = tf.io.VarLenFeature(tf.float32)
            handlers[F.MULTICLASS_SCORES] = slim.Tensor(keys.CLASS_SCORES)
        self._decoder = slim.TFExampleDecoder(features, handlers)

    def __call__(self, serialized: tf.Tensor) -> Example:
        """Decodes a scalar string.

        Returns:
          image uint8 [H, W, 3]; original_image_spatial_shape int32 [2]; source_id, key and
          filename, scalar strings; and for n objects groundtruth_boxes float32 [n, 4], normalized
          to the image, as they stand in the record; groundtruth_classes int64 [n], 1-based, -1
          for a text that the label map lacks; groundtruth_area float32 [n], square pixels, -1
          if not known; groundtruth_weights float32 [n]; groundtruth_is_crowd,
          groundtruth_difficult, groundtruth_group_of bool [n]; if asked for,
          groundtruth_encoded_masks string [n] (PNG files) or groundtruth_instance_masks uint8
          [n, H, W], 0 or 1; groundtruth_keypoints float32 [n, P, 2], (y, x) normalized, NaN where
          not labelled, and groundtruth_keypoint_visibilities bool [n, P]; multiclass_scores
          float32 [n, C], C = 0 for a record without; with a label map, unknown_classes, a scalar
          string: the texts that it lacks, each once, with line breaks between them. Further rows of
          `OBJECT_FIELDS` with `stored`, and of `IMAGE_FIELDS`, are added by their names.

        Raises:
          tf.errors.InvalidArgumentError: when run, if a field does not have one value per
            object, or the image is corrupt or has too many pixels.
        """
        example = self._items(serialized, self._decoder.list_items())
        count = tf.shape(example[F.GROUNDTRUTH_BOXES])[0]
        example[F.ORIGINAL_IMAGE_SPATIAL_SHAPE] = tf.shape(example[F.IMAGE])[:2]
        if F.GROUNDTRUTH_KEYPOINTS in example:
            example.update(_hide_unlabelled(example, count))
        if F.MULTICLASS_SCORES in example:
            example[F.MULTICLASS_SCORES] = _scores_of_objects(example, count)
        return _check_counts(example, count)

    def annotations(self, serialized: tf.Tensor) -> Example:
        """Decodes the fields of `OBJECT_FIELDS` that are stored as lists, not the image.

        Raises:
          tf.errors.InvalidArgumentError: as `__call__`.
        """
        names = [F.GROUNDTRUTH_BOXES, F.GROUNDTRUTH_CLASSES, F.SOURCE_ID, *self._stored]
        example = self._items(serialized, names)
        return _check_counts(example, tf.shape(example[F.GROUNDTRUTH_BOXES])[0])

    def _items(self, serialized: tf.Tensor, names: list[str]) -> Example:
        values = self._decoder.decode(serialized, names)
        example = dict(zip(names, values, strict=True))
        count = tf.shape(example[F.GROUNDTRUTH_BOXES])[0]
        for name, field in self._stored.items():
            values = tf.cast(example[name], field.dtype)
            if field.is_by_keypoint:
                values = tf.reshape(values, [-1, self._num_keypoints])
            example[name] = _fill_if_absent(values, count, field.stored.default)
        for name in names:
            if name in IMAGE_FIELDS:
                example[name] = tf.cast(example[name], IMAGE_FIELDS[name].dtype)
        return example

    def _classes(self, keys_to_tensors: dict[str, tf.SparseTensor]) -> tf.Tensor:
        texts = keys_to_tensors[keys.CLASS_TEXT].values
        labels = keys_to_tensors[keys.CLASS_LABEL].values
        if self._ids is None:
            return labels
        return tf.cond(tf.size(texts) > 0, lambda: self._ids.look_up(texts), lambda: labels)

    def _unknown_classes(self, keys_to_tensors: dict[str, tf.SparseTensor]) -> tf.Tensor:
        texts = keys_to_tensors[keys.CLASS_TEXT].values
        unknown, _ = tf.unique(tf.boolean_mask(texts, self._ids.look_up(texts) < 0))
        return tf.strings.reduce_join(unknown, separator='\n')

    def _add_masks(self, features: dict, handlers: dict, mask_type: str) -> None:
        if mask_type == PNG_MASKS:
            features[keys.MASK] = tf.io.VarLenFeature(tf.string)
            handlers[F.GROUNDTRUTH_ENCODED_MASKS] = slim.Tensor(keys.MASK, default_value='')
            return
        features[keys.MASK] = tf.io.VarLenFeature(tf.float32)
        size_keys = [keys.HEIGHT, keys.WIDTH]
        features.update({k: tf.io.FixedLenFeature([], tf.int64, 1) for k in size_keys})
        handlers[F.GROUNDTRUTH_INSTANCE_MASKS] = slim.ItemHandlerCallback(
            [keys.MASK, *size_keys], _numerical_masks
        )

    def _add_keypoints(self, features: dict, handlers: dict) -> None:
        features[keys.KEYPOINT_Y] = features[keys.KEYPOINT_X] = tf.io.VarLenFeature(tf.float32)
        features[keys.KEYPOINT_VISIBILITY] = tf.io.VarLenFeature(tf.int64)

        def keypoints(tensors: dict[str, tf.SparseTensor]) -> tf.Tensor:
            points = tf.stack(
                [tensors[keys.KEYPOINT_Y].values, tensors[keys.KEYPOINT_X].values], axis=-1
            )
            return tf.reshape(points, [-1, self._num_keypoints, 2])

        def visibilities(tensors: dict[str, tf.SparseTensor]) -> tf.Tensor:
            # In records without visibilities, every keypoint that has coordinates is visible.
            is_visible = tf.cond(
                tf.size(tensors[keys.KEYPOINT_VISIBILITY].values) > 0,
                lambda: tensors[keys.KEYPOINT_VISIBILITY].values > 0,
                lambda: ~tf.math.is_nan(tensors[keys.KEYPOINT_Y].values),
            )
            return tf.reshape(is_visible, [-1, self._num_keypoints])

        handlers[F.GROUNDTRUTH_KEYPOINTS] = slim.ItemHandlerCallback(
            [keys.KEYPOINT_Y, keys.KEYPOINT_X], keypoints
        )
        handlers[F.GROUNDTRUTH_KEYPOINT_VISIBILITIES] = slim.ItemHandlerCallback(
            [keys.KEYPOINT_Y, keys.KEYPOINT_VISIBILITY], visibilities
        )


class ImageHandler(slim.ItemHandler):
    """Decodes image/encoded (see `decode_image`) to uint8 [H, W, 3].

    Args:
      max_pixels: maximum number of pixels of an image, read from its header; 0 sets no limit.
    """

    def __init__(self, max_pixels: int = 0):
        super().__init__([keys.ENCODED, keys.SOURCE_ID, keys.FILENAME])
        self._max_pixels = max_pixels

    def tensors_to_item(self, keys_to_tensors: dict[str, tf.Tensor]) -> tf.Tensor:
        encoded = keys_to_tensors[keys.ENCODED]
        if not self._max_pixels:
            return decode_image(encoded)
        num_pixels = count_pixels(encoded)
        check = tf.debugging.Assert(
            num_pixels <= self._max_pixels,
            [
                f'{TOO_MANY_PIXELS} ({self._max_pixels}). Image, file name, pixels:',
                keys_to_tensors[keys.SOURCE_ID],
                keys_to_tensors[keys.FILENAME],
                num_pixels,
            ],
        )
        # Decoding uses the output of the check, which is therefore executed first.
        with tf.control_dependencies([check] if check is not None else []):
            return decode_image(tf.identity(encoded))


class _TextIds:
    """The ids of a label map's texts, looked up in constant tensors.

    TensorFlow treats a hash table as state: with deterministic operations, records would be decoded
    sequentially because of it.
    """

    def __init__(self, label_map: LabelMap):
        texts, ids = zip(*label_map.text_to_id.items(), strict=True)
        with tf.init_scope():
            hashes = _hashes(tf.constant(texts, tf.string))
            order = tf.argsort(hashes)
            self._hashes = tf.gather(hashes, order).numpy()
            self._texts = tf.gather(texts, order).numpy()
            self._ids = tf.gather(tf.constant(ids, tf.int64), order).numpy()

    def look_up(self, texts: tf.Tensor) -> tf.Tensor:
        """Returns the ids int64 [n] of texts, string [n]; -1 for unknown texts."""
        positions = tf.searchsorted(self._hashes, _hashes(texts))
        positions = tf.minimum(positions, len(self._hashes) - 1)
        is_known = tf.gather(tf.constant(self._texts, tf.string), positions) == texts
        return tf.where(is_known, tf.gather(self._ids, positions), -1)


def _hashes(texts: tf.Tensor) -> tf.Tensor:
    return tf.strings.to_hash_bucket_fast(texts, 2**62)


def _feature(field: ImageField) -> tf.io.VarLenFeature | tf.io.FixedLenFeature:
    if field.is_list:
        return tf.io.VarLenFeature(field.stored.dtype)
    return tf.io.FixedLenFeature([], field.stored.dtype, field.stored.default)


def _numerical_masks(keys_to_tensors: dict) -> tf.Tensor:
    height, width = (tf.cast(keys_to_tensors[key], tf.int32) for key in (keys.HEIGHT, keys.WIDTH))
    values = keys_to_tensors[keys.MASK].values
    return tf.cast(tf.reshape(values, [-1, height, width]) > 0, tf.uint8)


def _fill_if_absent(values: tf.Tensor, count: tf.Tensor, default: float | bool) -> tf.Tensor:
    """Returns `values` [count, ...], or `default` for each object if the record has none."""
    num_missing = tf.where(tf.equal(tf.shape(values)[0], 0), count, 0)
    filling = tf.fill([num_missing, *values.shape[1:]], tf.cast(default, values.dtype))
    return tf.concat([values, filling], axis=0)


def _hide_unlabelled(example: Example, count: tf.Tensor) -> Example:
    """Sets keypoints that are not visible, or lack a coordinate, to NaN and invisible."""
    points = _fill_if_absent(example[F.GROUNDTRUTH_KEYPOINTS], count, float('nan'))
    is_visible = _fill_if_absent(example[F.GROUNDTRUTH_KEYPOINT_VISIBILITIES], count, False)
    is_visible &= ~tf.reduce_any(tf.math.is_nan(points), axis=-1)
    return {
        F.GROUNDTRUTH_KEYPOINTS: tf.where(is_visible[..., tf.newaxis], points, float('nan')),
        F.GROUNDTRUTH_KEYPOINT_VISIBILITIES: is_visible,
    }


def _scores_of_objects(example: Example, count: tf.Tensor) -> tf.Tensor:
    """Stored scores [count * C] -> [count, C]."""
    scores = example[F.MULTICLASS_SCORES]
    num_columns = tf.size(scores) // tf.maximum(count, 1)
    check = tf.debugging.Assert(
        tf.equal(num_columns * count, tf.size(scores)),
        [
            f'A record holds no whole number of {keys.CLASS_SCORES} a box. Image, boxes, scores:',
            example[F.SOURCE_ID],
            count,
            tf.size(scores),
        ],
    )
    with tf.control_dependencies([check] if check is not None else []):
        return tf.reshape(scores, [count, num_columns])


def _check_counts(example: Example, count: tf.Tensor) -> Example:
    """Raises, when run, if a field does not have one value per box."""
    names = [name for name in OBJECT_FIELDS if name in example]
    rows = tf.stack([tf.shape(example[name])[0] for name in names])
    wrong = tf.where(rows != count)[:, 0]
    check = tf.debugging.Assert(
        tf.equal(tf.size(wrong), 0),
        [
            'A record needs one value a box in each field. Fields, values, image, boxes:',
            tf.gather(tf.constant(names), wrong),
            tf.gather(rows, wrong),
            example[F.SOURCE_ID],
            count,
        ],
        summarize=len(names),
    )
    with tf.control_dependencies([check] if check is not None else []):
        boxes = tf.identity(example[F.GROUNDTRUTH_BOXES])
    return {**example, F.GROUNDTRUTH_BOXES: boxes}
