"""Decodes tf.Examples to tensors (the keys of the reference system's records)."""

from collections.abc import Collection, Mapping

import tensorflow as tf
from tf_slim.data import tfexample_decoder as slim

from object_detection.core import tf_example_keys as keys
from object_detection.core.example_fields import IMAGE_FIELDS, OBJECT_FIELDS, ImageField
from object_detection.core.fields import InputFields as F
from object_detection.core.shapes import asserted
from object_detection.data import image_item
from object_detection.data.label_hierarchy import LabelHierarchy
from object_detection.data.label_map import LabelMap
from object_detection.data.objects import Example
from object_detection.data.text_ids import TextIds
from object_detection.errors import UserError, expected

PNG_MASKS = 'png'
NUMERICAL_MASKS = 'numerical'

# The fields that `ExampleDecoder` reads on request.
OPTIONAL_FIELDS = {
    *(name for name, field in (OBJECT_FIELDS | IMAGE_FIELDS).items() if field.is_optional),
    *(F.GROUNDTRUTH_IMAGE_CLASSES, F.GROUNDTRUTH_IMAGE_CONFIDENCES),
    F.CONTEXT_FEATURES,
}

# The values of objects in a record that lacks the field, for fields with handlers of their own.
_ABSENT = {
    F.GROUNDTRUTH_KEYPOINTS: float('nan'),
    F.GROUNDTRUTH_KEYPOINT_VISIBILITIES: False,
    F.GROUNDTRUTH_KEYPOINT_DEPTHS: 0.0,
    F.GROUNDTRUTH_KEYPOINT_DEPTH_WEIGHTS: 0.0,
    F.GROUNDTRUTH_DP_POINTS: 0.0,
    F.GROUNDTRUTH_DP_SURFACE: 0.0,
    F.GROUNDTRUTH_DP_PART_IDS: 0,
    F.GROUNDTRUTH_DP_NUM_POINTS: 0,
}


class ExampleDecoder:
    """Decodes one serialized tf.Example.

    Args:
      label_map: maps image/object/class/text (a name or a display name) to ids. Text takes
        precedence over image/object/class/label, so that a label map may select and renumber a part
        of a data set's classes; the label is used for records without text, or without a label map.
        The same holds for image/class/text and image/class/label.
      mask_type: the format of masks in records, PNG_MASKS or NUMERICAL_MASKS; None does not decode
        masks.
      num_keypoints: number of keypoints per object; 0 does not decode keypoints.
      keypoint_ids: position of each name in image/object/keypoint/text, see `KeypointItems`.
      fields: names of the fields to read of those that are read on request: `OPTIONAL_FIELDS`.
      expand_hierarchy: whether an object, or image, of a class is also one of the classes above it
        in the label map; objects are repeated with all their fields. An absent class
        (image/class/confidence 0) makes the classes below it absent.
      image: decoder of the image.

    Raises:
      ValueError: if an argument is not valid.
    """

    def __init__(
        self,
        *,
        label_map: LabelMap | None = None,
        mask_type: str | None = None,
        num_keypoints: int = 0,
        keypoint_ids: Mapping[str, int] | None = None,
        fields: Collection[str] = (),
        expand_hierarchy: bool = False,
        image: image_item.ImageHandler | None = None,
    ):
        if mask_type not in (None, PNG_MASKS, NUMERICAL_MASKS):
            raise expected(
                'mask_type', f'None, {PNG_MASKS!r} or {NUMERICAL_MASKS!r}', repr(mask_type)
            )
        if set(fields) - OPTIONAL_FIELDS:
            raise expected('ExampleDecoder', f'fields of {sorted(OPTIONAL_FIELDS)}', sorted(fields))
        if expand_hierarchy and label_map is None:
            raise UserError('ExampleDecoder: expected a label_map with expand_hierarchy.')
        self._num_keypoints = num_keypoints
        self._stored = {
            name: field
            for name, field in OBJECT_FIELDS.items()
            if field.stored
            and (num_keypoints or not field.is_by_keypoint)
            and (name in fields or not field.is_optional)
        }
        self._of_image = {
            name: field
            for name, field in IMAGE_FIELDS.items()
            if name in fields or not field.is_optional
        }
        self._ids = TextIds(label_map.text_to_id) if label_map is not None else None
        self._hierarchy = LabelHierarchy(label_map) if expand_hierarchy else None
        image = image_item.ImageHandler() if image is None else image
        self._features = {
            **image.features(),
            **{field.stored.key: _feature(field) for field in self._of_image.values()},
            **{key: tf.io.VarLenFeature(tf.float32) for key in keys.BOX_SIDES},
        }
        self._handlers = {
            F.IMAGE: image,
            F.GROUNDTRUTH_BOXES: slim.BoundingBox(keys.BOX_SIDES),
            **{name: _tensor(field) for name, field in self._of_image.items()},
        }
        self._add_classes(F.GROUNDTRUTH_CLASSES, keys.CLASS_TEXT, keys.CLASS_LABEL)
        for name, field in self._stored.items():
            self._add_list(name, field.stored.key, field.stored.dtype)
        if self._ids is not None:
            self._handlers[F.UNKNOWN_CLASSES] = slim.ItemHandlerCallback(
                [keys.CLASS_TEXT],
                lambda tensors: self._ids.unknown(tensors[keys.CLASS_TEXT].values),
            )
        if mask_type is not None:
            self._add_masks(mask_type)
        if num_keypoints:
            ids = None if keypoint_ids is None else TextIds(keypoint_ids)
            self._add_points(image_item.KeypointItems(num_keypoints, ids), fields)
        if F.MULTICLASS_SCORES in fields:
            self._add_list(F.MULTICLASS_SCORES, keys.CLASS_SCORES, tf.float32)
        if F.GROUNDTRUTH_IMAGE_CLASSES in fields:
            self._add_classes(
                F.GROUNDTRUTH_IMAGE_CLASSES, keys.IMAGE_CLASS_TEXT, keys.IMAGE_CLASS_LABEL
            )
            self._add_list(F.GROUNDTRUTH_IMAGE_CONFIDENCES, keys.IMAGE_CLASS_CONFIDENCE, tf.float32)
        if F.GROUNDTRUTH_DP_POINTS in fields:
            self._features.update(image_item.densepose_features())
            self._handlers.update(image_item.densepose_handlers())
        if F.CONTEXT_FEATURES in fields:
            self._add_context()
        self._decoder = slim.TFExampleDecoder(self._features, self._handlers)

    def __call__(self, serialized: tf.Tensor) -> Example:
        """Decodes a scalar string.

        Returns:
          image [H, W, C], uint8 or float32, as `ImageHandler` says; original_image_spatial_shape
          int32 [2]; source_id, key and filename, scalar strings; and for n objects
          groundtruth_boxes float32 [n, 4], normalized to the image, as they stand in the record;
          groundtruth_classes int64 [n], 1-based, -1
          for a text that the label map lacks; groundtruth_area float32 [n], square pixels, -1
          if not known; groundtruth_weights float32 [n]; groundtruth_is_crowd,
          groundtruth_difficult, groundtruth_group_of bool [n]; if asked for,
          groundtruth_encoded_masks string [n] (PNG files) or groundtruth_instance_masks uint8
          [n, H, W], 0 or 1; groundtruth_keypoints float32 [n, P, 2], (y, x) normalized, NaN where
          not labelled, and groundtruth_keypoint_visibilities bool [n, P]; multiclass_scores
          float32 [n, C], C = 0 for a record without; groundtruth_image_classes int64 [m] and
          groundtruth_image_confidences float32 [m], 1 for a record without; points on the surface
          of bodies, with D = `MAX_DENSEPOSE_POINTS`: groundtruth_dp_num_points int32 [n],
          groundtruth_dp_points float32 [n, D, 2], (y, x) normalized, groundtruth_dp_surface float32
          [n, D, 2], (v, u), and groundtruth_dp_part_ids int32 [n, D]; context_features float32
          [m, L]; with a label map, unknown_classes, a scalar string: the texts that it lacks, each
          once, with line breaks between them. Further rows of `OBJECT_FIELDS` with `stored`, and of
          `IMAGE_FIELDS`, are added by their names.

        Raises:
          tf.errors.InvalidArgumentError: when run, if a field does not have one value per
            object, or the image is corrupt or has too many pixels.
        """
        example = self._items(serialized, self._decoder.list_items())
        count = tf.shape(example[F.GROUNDTRUTH_BOXES])[0]
        example[F.ORIGINAL_IMAGE_SPATIAL_SHAPE] = tf.shape(example[F.IMAGE])[:2]
        if F.GROUNDTRUTH_KEYPOINTS in example:
            example.update(image_item.hide_unlabelled(example))
        if F.MULTICLASS_SCORES in example:
            example[F.MULTICLASS_SCORES] = _scores_of_objects(example, count)
        example = _check_counts(example, count)
        return example if self._hierarchy is None else self._hierarchy.expand(example)

    def annotations(self, serialized: tf.Tensor) -> Example:
        """Decodes the fields of `OBJECT_FIELDS` that are stored as lists, not the image.

        Raises:
          tf.errors.InvalidArgumentError: as `__call__`.
        """
        names = [F.GROUNDTRUTH_BOXES, F.GROUNDTRUTH_CLASSES, F.SOURCE_ID, *self._stored]
        example = self._items(serialized, names)
        example = _check_counts(example, tf.shape(example[F.GROUNDTRUTH_BOXES])[0])
        return example if self._hierarchy is None else self._hierarchy.expand(example)

    def _items(self, serialized: tf.Tensor, names: list[str]) -> Example:
        values = self._decoder.decode(serialized, names)
        example = dict(zip(names, values, strict=True))
        count = tf.shape(example[F.GROUNDTRUTH_BOXES])[0]
        for name, field in self._stored.items():
            values = tf.cast(example[name], field.dtype)
            if field.is_by_keypoint:
                values = tf.reshape(values, [-1, self._num_keypoints])
            example[name] = _fill_if_absent(values, count, field.stored.default)
        for name, default in _ABSENT.items():
            if name in example:
                example[name] = _fill_if_absent(example[name], count, default)
        for name in names:
            if name in IMAGE_FIELDS:
                example[name] = tf.cast(example[name], IMAGE_FIELDS[name].dtype)
        if F.GROUNDTRUTH_IMAGE_CLASSES in example:
            example[F.GROUNDTRUTH_IMAGE_CONFIDENCES] = _confidences_of_classes(example)
        return example

    def _add_list(self, name: str, key: str, dtype: tf.DType) -> None:
        self._features[key] = tf.io.VarLenFeature(dtype)
        self._handlers[name] = slim.Tensor(key)

    def _add_classes(self, name: str, text_key: str, label_key: str) -> None:
        def classes(tensors: dict[str, tf.SparseTensor]) -> tf.Tensor:
            texts, labels = tensors[text_key].values, tensors[label_key].values
            if self._ids is None:
                return labels
            return tf.cond(tf.size(texts) > 0, lambda: self._ids.look_up(texts), lambda: labels)

        self._features[text_key] = tf.io.VarLenFeature(tf.string)
        self._features[label_key] = tf.io.VarLenFeature(tf.int64)
        self._handlers[name] = slim.ItemHandlerCallback([text_key, label_key], classes)

    def _add_masks(self, mask_type: str) -> None:
        if mask_type == PNG_MASKS:
            self._features[keys.MASK] = tf.io.VarLenFeature(tf.string)
            handler = slim.Tensor(keys.MASK, default_value='')
            self._handlers[F.GROUNDTRUTH_ENCODED_MASKS] = handler
            return
        self._features[keys.MASK] = tf.io.VarLenFeature(tf.float32)
        size_keys = [keys.HEIGHT, keys.WIDTH]
        self._features.update({k: tf.io.FixedLenFeature([], tf.int64, 1) for k in size_keys})
        self._handlers[F.GROUNDTRUTH_INSTANCE_MASKS] = slim.ItemHandlerCallback(
            [keys.MASK, *size_keys], _numerical_masks
        )

    def _add_points(self, keypoints: image_item.KeypointItems, fields: Collection[str]) -> None:
        self._features.update(keypoints.features())
        for name, handler in keypoints.handlers():
            if name in fields or not OBJECT_FIELDS[name].is_optional:
                self._handlers[name] = handler

    def _add_context(self) -> None:
        self._features[keys.CONTEXT_FEATURES] = tf.io.VarLenFeature(tf.float32)
        self._features[keys.CONTEXT_FEATURE_LENGTH] = tf.io.FixedLenFeature([], tf.int64, 0)
        self._handlers[F.CONTEXT_FEATURES] = slim.ItemHandlerCallback(
            [keys.CONTEXT_FEATURES, keys.CONTEXT_FEATURE_LENGTH, keys.SOURCE_ID], _context_features
        )


def _feature(field: ImageField) -> tf.io.VarLenFeature | tf.io.FixedLenFeature:
    if field.is_list:
        return tf.io.VarLenFeature(field.stored.dtype)
    return tf.io.FixedLenFeature([], field.stored.dtype, field.stored.default)


def _tensor(field: ImageField) -> slim.Tensor:
    # The default makes a list dense.
    default = '' if field.stored.dtype == tf.string else 0
    return slim.Tensor(field.stored.key, default_value=default)


def _numerical_masks(keys_to_tensors: dict) -> tf.Tensor:
    height, width = (tf.cast(keys_to_tensors[key], tf.int32) for key in (keys.HEIGHT, keys.WIDTH))
    values = keys_to_tensors[keys.MASK].values
    return tf.cast(tf.reshape(values, [-1, height, width]) > 0, tf.uint8)


def _fill_if_absent(values: tf.Tensor, count: tf.Tensor, default: float | bool) -> tf.Tensor:
    """Returns `values` [count, ...], or `default` for each object if the record has none."""
    num_missing = tf.where(tf.equal(tf.shape(values)[0], 0), count, 0)
    filling = tf.fill([num_missing, *values.shape[1:]], tf.cast(default, values.dtype))
    return tf.concat([values, filling], axis=0)


def _context_features(tensors: dict) -> tf.Tensor:
    values = tensors[keys.CONTEXT_FEATURES].values
    length = tf.cast(tensors[keys.CONTEXT_FEATURE_LENGTH], tf.int32)
    count = tf.size(values) // tf.maximum(length, 1)
    with asserted(
        (length > 0) & tf.equal(count * length, tf.size(values)),
        f'A record needs {keys.CONTEXT_FEATURES} of {keys.CONTEXT_FEATURE_LENGTH} numbers each '
        'for load_context_features. Image, numbers, length:',
        *(tensors[keys.SOURCE_ID], tf.size(values), length),
    ):
        return tf.reshape(values, [count, length])


def _confidences_of_classes(example: Example) -> tf.Tensor:
    classes, confidences = (
        example[name] for name in (F.GROUNDTRUTH_IMAGE_CLASSES, F.GROUNDTRUTH_IMAGE_CONFIDENCES)
    )
    confidences = _fill_if_absent(confidences, tf.size(classes), 1.0)
    with asserted(
        tf.equal(tf.size(confidences), tf.size(classes)),
        f'A record needs one {keys.IMAGE_CLASS_CONFIDENCE} for each class of the image. Image, '
        'classes, confidences:',
        *(example[F.SOURCE_ID], tf.size(classes), tf.size(confidences)),
    ):
        return tf.identity(confidences)


def _scores_of_objects(example: Example, count: tf.Tensor) -> tf.Tensor:
    """Stored scores [count * C] -> [count, C]."""
    scores = example[F.MULTICLASS_SCORES]
    num_columns = tf.size(scores) // tf.maximum(count, 1)
    with asserted(
        tf.equal(num_columns * count, tf.size(scores)),
        f'A record holds no whole number of {keys.CLASS_SCORES} a box. Image, boxes, scores:',
        example[F.SOURCE_ID],
        count,
        tf.size(scores),
    ):
        return tf.reshape(scores, [count, num_columns])


def _check_counts(example: Example, count: tf.Tensor) -> Example:
    """Raises, when run, if a field does not have one value per box."""
    names = [name for name in OBJECT_FIELDS if name in example]
    rows = tf.stack([tf.shape(example[name])[0] for name in names])
    wrong = tf.where(rows != count)[:, 0]
    with asserted(
        tf.equal(tf.size(wrong), 0),
        'A record needs one value a box in each field. Fields, values, image, boxes:',
        tf.gather(tf.constant(names), wrong),
        tf.gather(rows, wrong),
        example[F.SOURCE_ID],
        count,
        summarize=len(names),
    ):
        boxes = tf.identity(example[F.GROUNDTRUTH_BOXES])
    return {**example, F.GROUNDTRUTH_BOXES: boxes}
