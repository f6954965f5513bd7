"""The ground truth of a batch of images, for losses and samplers."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from object_detection.core.example_fields import OBJECT_FIELDS, Geometry, image_fields_of_batches
from object_detection.core.fields import InputFields as F
from object_detection.core.shapes import is_same
from object_detection.errors import UserError, expected

# Attribute of `Groundtruth` -> name in a batch.
_ATTRIBUTES = {
    'boxes': F.GROUNDTRUTH_BOXES,
    'classes': F.GROUNDTRUTH_CLASSES,
    'weights': F.GROUNDTRUTH_WEIGHTS,
    'keypoints': F.GROUNDTRUTH_KEYPOINTS,
    'masks': F.GROUNDTRUTH_INSTANCE_MASKS,
    'is_crowd': F.GROUNDTRUTH_IS_CROWD,
}
# Fields that no record has, [n, 2] and [n]: only `Groundtruth.from_lists` takes them.
_LISTS = {F.GROUNDTRUTH_TEMPORAL_OFFSETS: np.float32, F.GROUNDTRUTH_TRACK_MATCH_FLAGS: np.float32}
# Classes of images, [B, K], whose entries in a batch the decoder made on request.
_PER_IMAGE = (
    F.GROUNDTRUTH_IMAGE_CLASSES,
    F.GROUNDTRUTH_VERIFIED_NEG_CLASSES,
    F.GROUNDTRUTH_NOT_EXHAUSTIVE_CLASSES,
)
# Names of the reference without 'groundtruth_' that are not those of the fields here.
_ALIASES = {
    'mask_weights': F.GROUNDTRUTH_INSTANCE_MASK_WEIGHTS,
    'labeled_classes': F.GROUNDTRUTH_IMAGE_CLASSES,
}
_SURFACE_COORDINATES = 'dp_surface_coords'


class Groundtruth(NamedTuple):
    """Padded ground truth of B images with M rows each, and K classes without background.

    Attributes:
      boxes: float32 [B, M, 4], [ymin, xmin, ymax, xmax] normalized to the preprocessed (resized
        and padded) image; padding rows are zero.
      classes: float32 [B, M, K], one-hot, k-hot or scores, 0-based, without a background column.
      weights: float32 [B, M]; 0 marks padding and objects to ignore.
      masks: None, or float32 in [0, 1]: [B, M, H, W] over the preprocessed image, or, where
        `masks_are_crops`, [B, M, S, S] over each object's own box, first and last samples on the
        box's edges.
      masks_are_crops: which of the two forms `masks` holds.
      keypoints: None, or float32 [B, M, P, 2], (y, x) normalized like `boxes`; NaN: not labelled.
      is_crowd: None, or bool [B, M].
      fields: the other `OBJECT_FIELDS` of a batch, [B, M, ...], and its `IMAGE_FIELDS`, [B, ...],
        by name.
    """

    boxes: tf.Tensor
    classes: tf.Tensor
    weights: tf.Tensor
    masks: tf.Tensor | None = None
    masks_are_crops: bool = False
    keypoints: tf.Tensor | None = None
    is_crowd: tf.Tensor | None = None
    fields: Mapping[str, tf.Tensor] = {}

    @classmethod
    def from_lists(
        cls,
        boxes: Sequence,
        classes: Sequence,
        weights: Sequence | None = None,
        masks: Sequence | None = None,
        keypoints: Sequence | None = None,
        is_crowd: Sequence | None = None,
        **fields: Sequence,
    ) -> 'Groundtruth':
        """Builds the padded batch from one entry per image.

        Args:
          boxes: arrays float32 [n, 4], normalized to the preprocessed image.
          classes: arrays float32 [n, K], one-hot.
          weights: arrays float32 [n]; ones if None.
          masks: arrays [n, H, W] over the preprocessed image.
          keypoints: arrays float32 [n, P, 2], normalized; NaN where not labelled.
          is_crowd: arrays bool [n].
          fields: arrays [n, ...] of further `OBJECT_FIELDS`, by name, with or without
            'groundtruth_'; `temporal_offsets` [n, 2], (y, x), the centre less that in the frame
            before, as a share of the image without its padding, and `track_match_flags` [n];
            `dp_surface_coords` [n, D, 4], (y, x, v, u). Of the whole image, `image_classes`,
            `verified_neg_classes` and `not_exhaustive_classes` [K], of 0 and 1.

        Raises:
          ValueError: if an argument has another number of images or rows than `boxes`, or classes
          are not one-hot.
        """
        for row in classes:
            if np.ndim(row) != 2:
                raise expected(
                    'Groundtruth.from_lists: classes', 'rows [n, K]', f'shape {np.shape(row)}'
                )
        if weights is None:
            weights = [np.ones(len(rows), np.float32) for rows in boxes]
        fields = _full_names(fields)
        # Strings, which have no padding, are files of masks: `masks` takes them decoded.
        known = {name for name, field in OBJECT_FIELDS.items() if field.dtype != tf.string}
        known = (known | set(_LISTS) | set(_PER_IMAGE)) - set(_ATTRIBUTES.values())
        unknown = fields.keys() - known
        if unknown:
            raise expected('Groundtruth.from_lists', f'fields of {sorted(known)}', sorted(unknown))
        given = {
            'boxes': boxes,
            'classes': classes,
            'weights': weights,
            'masks': masks,
            'keypoints': keypoints,
            'is_crowd': is_crowd,
            **fields,
        }
        counts = [len(rows) for rows in boxes]
        batch = {}
        for argument, rows in given.items():
            if rows is None:
                continue
            if argument in _PER_IMAGE:
                batch[argument] = tf.constant(np.stack(rows), tf.float32)
                continue
            if [len(row) for row in rows] != counts:
                raise UserError(
                    f'Groundtruth.from_lists: `{argument}` has {[len(row) for row in rows]} rows '
                    f'for the images of the batch; `boxes` has {counts}.'
                )
            name = _ATTRIBUTES.get(argument, argument)
            if name in _LISTS:
                batch[name] = _pad_rows(rows, max(counts, default=0), 0, _LISTS[name])
                continue
            field = OBJECT_FIELDS[name]
            # Classes and masks are decoded as integers, but used as numbers.
            keeps_type = argument in fields or field.dtype == tf.bool
            dtype = field.dtype.as_numpy_dtype if keeps_type else np.float32
            batch[name] = _pad_rows(rows, max(counts, default=0), field.padding or 0, dtype)
        return cls.from_batch(batch)

    @classmethod
    def from_batch(cls, batch: Mapping[str, tf.Tensor]) -> 'Groundtruth':
        """Returns the ground truth of a batch of a dataset (keys of `InputFields`)."""
        masks, masks_are_crops = None, False
        if F.GROUNDTRUTH_INSTANCE_MASK_CROPS in batch:
            # Crops are stored as uint8, where 255 means 1, in a quarter of the memory.
            crops = batch[F.GROUNDTRUTH_INSTANCE_MASK_CROPS]
            masks, masks_are_crops = tf.cast(crops, tf.float32) / 255.0, True
        elif F.GROUNDTRUTH_INSTANCE_MASKS in batch:
            masks = tf.cast(batch[F.GROUNDTRUTH_INSTANCE_MASKS], tf.float32)
        known = {*_ATTRIBUTES.values(), F.GROUNDTRUTH_INSTANCE_MASK_CROPS}
        return cls(
            boxes=batch[F.GROUNDTRUTH_BOXES],
            classes=batch[F.GROUNDTRUTH_CLASSES],
            weights=batch[F.GROUNDTRUTH_WEIGHTS],
            masks=masks,
            masks_are_crops=masks_are_crops,
            keypoints=batch.get(F.GROUNDTRUTH_KEYPOINTS),
            is_crowd=batch.get(F.GROUNDTRUTH_IS_CROWD),
            fields={
                name: batch[name]
                for name in (*OBJECT_FIELDS, *_LISTS, *_PER_IMAGE, *image_fields_of_batches())
                if name in batch and name not in known
            },
        )

    def in_padded(self, size: Sequence, padded: Sequence) -> 'Groundtruth':
        """Returns the ground truth of the images with padding at the bottom and right.

        Args:
          size: height and width in pixels of the images that it is normalized to.
          padded: those of the images that the result is normalized to.
        """
        if is_same(size, padded):
            return self
        scale = tf.cast(tf.stack(size), tf.float32) / tf.cast(tf.stack(padded), tf.float32)
        masks, keypoints = self.masks, self.keypoints
        if masks is not None and not self.masks_are_crops:
            ends = ([0, end - side] for side, end in zip(size, padded, strict=True))
            masks = tf.pad(masks, [[0, 0], [0, 0], *ends])
        points = {
            name: value * scale
            for name, value in self.fields.items()
            if name in OBJECT_FIELDS and OBJECT_FIELDS[name].geometry is Geometry.POINTS
        }
        return self._replace(
            boxes=self.boxes * tf.tile(scale, [2]),
            masks=masks,
            keypoints=None if keypoints is None else keypoints * scale,
            fields={**self.fields, **points},
        )


def _full_names(fields: Mapping[str, Sequence]) -> dict[str, Sequence]:
    """Returns further fields by their full names."""
    full = {}
    for name, rows in fields.items():
        if name == _SURFACE_COORDINATES:
            full[F.GROUNDTRUTH_DP_POINTS] = [np.asarray(row)[..., :2] for row in rows]
            full[F.GROUNDTRUTH_DP_SURFACE] = [np.asarray(row)[..., 2:] for row in rows]
            continue
        prefixed = _ALIASES.get(name, f'groundtruth_{name}')
        is_known = prefixed in (*OBJECT_FIELDS, *_LISTS, *_PER_IMAGE)
        full[prefixed if is_known else name] = rows
    return full


def _pad_rows(rows: Sequence, size: int, fill: float, dtype: type[np.generic]) -> tf.Tensor:
    """Stacks arrays [n_i, ...] to [B, size, ...] of `dtype`, missing rows set to `fill`."""
    arrays = [np.asarray(row, dtype) for row in rows]
    batch = np.full((len(arrays), size, *arrays[0].shape[1:]), fill, dtype)
    for i, array in enumerate(arrays):
        batch[i, : len(array)] = array
    return tf.constant(batch)
