"""Transforms decoded examples to batches for detectors, losses and evaluators.

`ExampleTransform` is a function of tensors, so that it works both eagerly and inside tf.data.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf

from object_detection.core.example_fields import (
    OBJECT_FIELDS,
    Geometry,
    image_fields_of_batches,
    names_of,
)
from object_detection.core.fields import InputFields as F
from object_detection.core.shapes import asserted
from object_detection.data import instance_masks, objects
from object_detection.data.augmentation import choice
from object_detection.data.objects import Example
from object_detection.data.pipeline import extra_fields
from object_detection.errors import expected
from object_detection.resizers.resizer import Resizer

Step = Callable[..., Example]

# Size of an image after the resizer, until `_normalize_to_batch` has used it.
_IMAGE_SIZE = 'image_size'


class Stage(NamedTuple):
    """A part of an `ExampleTransform`.

    Attributes:
      num_partners: number of other examples that it needs, as the stage before it returns them.
      change: (example, seed, partners) -> example.
    """

    num_partners: int
    change: Callable[[Example, tf.Tensor, Sequence[Example]], Example]


@dataclasses.dataclass(frozen=True)
class ExampleTransform:
    """Cleans, augments, resizes and pads one decoded example.

    An augmentation that combines several images divides the transform into two stages: its partners
    are what the stage before it made of other images.

    Attributes:
      resizer: the model's image resizer; its random choices are made in training only.
      num_classes: K, without background.
      max_number_of_boxes: M, the number of objects in the padded ground truth; further objects that
        an image has after augmentation are left out.
      mask_crop_size: side S of the mask crops; 0 keeps full-size masks. Without effect on
        examples without masks.
      label_steps: functions (example, seed) -> example, applied in order, that change labels or
        drop objects; at this stage classes are ids, and masks are not decoded.
      augmentations: functions (example, seed) -> example, applied in order to the decoded image, or
        (example, seed, partners) -> example, see `augmentation.choice.num_partners`.
      merge_multiple_label_boxes: whether to merge objects with the same box into one k-hot object.
      use_multiclass_scores: whether classes are the stored scores of all classes (soft labels), for
        examples that have them.
      class_weights: K factors of the objects' weights; the largest one applies to an object of
        several classes; () changes no weights.
      keypoint_type_weights: weight of each keypoint; () is 1 for all.
      context_size: number and length of the context features of an image, padded; None takes all.
      empty_image_classes_to_ones: whether an image without classes of its own has all of them.
      for_evaluation: whether to add the exact ground truth (`evaluation_*`).
    """

    resizer: Resizer
    num_classes: int
    max_number_of_boxes: int
    mask_crop_size: int = 112
    label_steps: tuple[Step, ...] = ()
    augmentations: tuple[Step, ...] = ()
    merge_multiple_label_boxes: bool = False
    use_multiclass_scores: bool = False
    class_weights: tuple[float, ...] = ()
    keypoint_type_weights: tuple[float, ...] = ()
    context_size: tuple[int, int] | None = None
    empty_image_classes_to_ones: bool = True
    for_evaluation: bool = False

    def __post_init__(self):
        if len(self.class_weights) not in (0, self.num_classes):
            raise expected(
                'class_weights', f'none or {self.num_classes} numbers', len(self.class_weights)
            )
        if self.use_multiclass_scores and self.merge_multiple_label_boxes:
            raise expected(
                'ExampleTransform', 'use_multiclass_scores or merge_multiple_label_boxes', 'both'
            )

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages in order; the first one takes decoded examples and needs no partners."""
        starts = [i for i, step in enumerate(self.augmentations) if choice.num_partners(step)]
        bounds = list(zip([0, *starts], [*starts, len(self.augmentations)], strict=True))
        return tuple(
            self._stage(*each, is_first=number == 0, is_last=number == len(starts))
            for number, each in enumerate(bounds)
        )

    def __call__(self, example: Example, seed: tf.Tensor) -> Example:
        """Transforms an example of `ExampleDecoder`; no augmentation may need other images.

        Args:
          example: one decoded example.
          seed: integer [2], on which all random choices depend.

        Returns:
          image float32 [H', W', C], 0..255, resized and padded; true_image_shape int32 [3];
          original_image_spatial_shape int32 [2]; source_id string; hash_from_source_id int32;
          num_groundtruth_boxes int32; groundtruth_boxes float32 [M, 4], normalized to the padded
          image; groundtruth_classes float32 [M, K]; groundtruth_weights, groundtruth_area float32
          [M]; groundtruth_is_crowd bool [M]; the masks uint8, as groundtruth_instance_mask_crops
          [M, S, S] (255 = 1) or groundtruth_instance_masks [M, H', W']; keypoints [M, P, 2], their
          visibilities and weights [M, P]; the entries of `extra_fields`; num_invalid_objects and
          num_excess_objects int32: number of objects left out because of their box or class, and
          because there are more than M;
          invalid_objects int32 [kinds], the former by `objects.INVALID_KINDS`;
          unknown_classes string, if the decoder returns it; for evaluation, filename string, '' if
          not recorded, and for all G objects of a known class, evaluation_boxes float32 [G, 4],
          normalized to the original image, not clipped, evaluation_classes int64 [G], 1-based,
          evaluation_is_crowd bool [G], evaluation_area float32 [G], evaluation_masks string [G],
          num_evaluation_boxes int32;
          further rows of `OBJECT_FIELDS` and `IMAGE_FIELDS` as they say.

        Raises:
          ValueError: if requested scores are missing, or there are several stages.
          tf.errors.InvalidArgumentError: when run, for a class id above `num_classes`, or scores
            of another number of classes.
        """
        (stage,) = self.stages
        return stage.change(example, seed, ())

    def prepare(self, example: Example, seed: tf.Tensor) -> Example:
        """Returns what augmentations take: a cleaned example, with its entries for the batch.

        Args:
          example: one decoded example.
          seed: integer [2], on which the random choices of steps of labels depend.

        Returns:
          The image; the fields of `OBJECT_FIELDS`, with classes float32 [n, K] and loaded masks;
          and what else `__call__` returns of the decoded example.
        """
        outputs = _identity_of_image(example)
        outputs |= extra_fields.context(example, self.context_size)
        outputs |= extra_fields.class_vectors(
            example, self.num_classes, empty_to_ones=self.empty_image_classes_to_ones
        )
        names = (F.UNKNOWN_CLASSES, F.ORIGINAL_IMAGE_SPATIAL_SHAPE, *image_fields_of_batches())
        outputs |= {name: example[name] for name in names if name in example}
        decoded = example
        example = objects.keep_known(example)
        if self.for_evaluation:
            outputs.update(evaluation_groundtruth(example))
            outputs[F.FILENAME] = example[F.FILENAME]
        example = objects.clip_boxes(example)
        outputs[F.NUM_INVALID_OBJECTS] = _count(decoded) - _count(example)
        outputs[F.INVALID_OBJECTS] = tf.cond(
            outputs[F.NUM_INVALID_OBJECTS] > 0,
            lambda: objects.count_invalid(decoded),
            lambda: tf.zeros([len(objects.INVALID_KINDS)], tf.int32),
        )
        for i, step in enumerate(self.label_steps):
            example = step(example, tf.random.fold_in(seed, len(self.augmentations) + i))
        example = self._one_hot(example)
        if self.merge_multiple_label_boxes:
            example = objects.merge_same_boxes(example)
        if self.class_weights:
            example = self._weigh(example)
        if self.use_multiclass_scores:
            example = self._soften(example)
        example = self._load_masks(example)
        kept = (F.IMAGE, *OBJECT_FIELDS)
        return {**outputs, **{name: example[name] for name in kept if name in example}}

    def _stage(self, start: int, end: int, *, is_first: bool, is_last: bool) -> Stage:
        """Returns the stage of the augmentations from `start` on, before `end`."""
        steps = self.augmentations[start:end]
        count = 0 if is_first else choice.num_partners(steps[0])

        def change(example: Example, seed: tf.Tensor, partners: Sequence[Example]) -> Example:
            if is_first:
                example = self.prepare(example, seed)
            for i, step in enumerate(steps, start):
                example = choice.apply(step, example, tf.random.fold_in(seed, i), partners)
            return self._finish(example, seed) if is_last else example

        return Stage(count, change)

    def _finish(self, example: Example, seed: tf.Tensor) -> Example:
        """Resizes an augmented example, and pads its objects."""
        # Classes are converted after augmentation, which drops objects.
        num_augmented = _count(example)
        kept = tf.range(tf.minimum(num_augmented, self.max_number_of_boxes))
        example = objects.select(example, kept)
        num_excess = num_augmented - _count(example)
        example = self._resize(example, self._resizer(seed))
        example |= extra_fields.keypoint_weights(example, self.keypoint_type_weights)
        example |= extra_fields.densepose(example)
        outputs = {name: value for name, value in example.items() if name not in OBJECT_FIELDS}
        outputs[F.NUM_EXCESS_OBJECTS] = num_excess
        outputs[F.NUM_GROUNDTRUTH_BOXES] = _count(example)
        for name, field in OBJECT_FIELDS.items():
            if field.padding is not None and name in example:
                outputs[name] = _pad_rows(example[name], self.max_number_of_boxes, field.padding)
        return outputs

    def _one_hot(self, example: Example) -> Example:
        classes = example[F.GROUNDTRUTH_CLASSES]
        with asserted(
            tf.reduce_all(classes <= self.num_classes),
            f'A class id is above num_classes ({self.num_classes}) of the model. Image, ids:',
            example[F.SOURCE_ID],
            classes,
        ):
            one_hot = tf.one_hot(classes - 1, self.num_classes)
        return {**example, F.GROUNDTRUTH_CLASSES: one_hot}

    def _weigh(self, example: Example) -> Example:
        classes = example[F.GROUNDTRUTH_CLASSES]  # [n, K]
        factors = tf.reduce_max(classes * tf.constant(self.class_weights, tf.float32), axis=1)
        return {**example, F.GROUNDTRUTH_WEIGHTS: example[F.GROUNDTRUTH_WEIGHTS] * factors}

    def _soften(self, example: Example) -> Example:
        if F.MULTICLASS_SCORES not in example:
            raise expected(
                'use_multiclass_scores', 'examples with scores; set load_multiclass_scores'
            )
        classes, scores = example[F.GROUNDTRUTH_CLASSES], example[F.MULTICLASS_SCORES]
        num_scores = tf.shape(scores)[1]
        with asserted(
            (num_scores == 0) | (num_scores == self.num_classes),
            f'multiclass_scores of a record are not of the {self.num_classes} classes of the '
            'model (without background). Image, scores an object:',
            example[F.SOURCE_ID],
            num_scores,
        ):
            # A record without scores keeps its classes.
            classes = tf.cond(num_scores > 0, lambda: scores, lambda: classes)
        return {
            **example,
            F.GROUNDTRUTH_CLASSES: tf.ensure_shape(classes, [None, self.num_classes]),
        }

    def _load_masks(self, example: Example) -> Example:
        example = dict(example)
        encoded = example.pop(F.GROUNDTRUTH_ENCODED_MASKS, None)
        masks = example.pop(F.GROUNDTRUTH_INSTANCE_MASKS, None)
        boxes, size = example[F.GROUNDTRUTH_BOXES], self.mask_crop_size
        image_size = tf.shape(example[F.IMAGE])[:2]
        if encoded is not None:
            encoded = instance_masks.checked(encoded, image_size, example[F.SOURCE_ID])
        if masks is not None:
            masks = instance_masks.checked_size(masks, image_size, example[F.SOURCE_ID])
        if encoded is not None and size:
            example[F.GROUNDTRUTH_INSTANCE_MASK_CROPS] = instance_masks.crop_encoded(
                encoded, boxes, size
            )
        elif encoded is not None:
            masks = instance_masks.decode(encoded, *tf.unstack(image_size))
            example[F.GROUNDTRUTH_INSTANCE_MASKS] = masks
        elif masks is not None and size:
            example[F.GROUNDTRUTH_INSTANCE_MASK_CROPS] = instance_masks.crop(masks, boxes, size)
        elif masks is not None:
            example[F.GROUNDTRUTH_INSTANCE_MASKS] = masks
        return example

    def _resizer(self, seed: tf.Tensor) -> Resizer:
        if self.for_evaluation:
            return self.resizer
        num_steps = len(self.augmentations) + len(self.label_steps)
        return self.resizer.for_training(tf.random.fold_in(seed, num_steps))

    def _resize(self, example: Example, resizer: Resizer) -> Example:
        image, true_shape = resizer(example[F.IMAGE])
        example = {**example, F.IMAGE: image, F.TRUE_IMAGE_SHAPE: true_shape}
        for name in names_of(Geometry.IMAGE_MASK):
            if name in example:
                example[name] = resizer.resize_masks(example[name])
        return _rescale(example, true_shape[:2] / tf.shape(image)[:2])


def evaluation_groundtruth(example: Example) -> Example:
    """Returns the ground truth as annotated: not clipped, not resized, masks as PNG files."""
    evaluation = {F.NUM_EVALUATION_BOXES: _count(example)}
    for name, field in OBJECT_FIELDS.items():
        if field.evaluation and name in example:
            evaluation[field.evaluation] = example[name]
    if F.EVALUATION_MASKS not in evaluation and F.GROUNDTRUTH_INSTANCE_MASKS in example:
        masks = example[F.GROUNDTRUTH_INSTANCE_MASKS]
        evaluation[F.EVALUATION_MASKS] = instance_masks.encode(masks)
    return evaluation


def batch(dataset: tf.data.Dataset, size: int, *, drop_remainder: bool) -> tf.data.Dataset:
    """Batches examples of `ExampleTransform`.

    Images of different sizes are padded at the bottom and the right to the largest of the batch,
    and boxes are made relative to that; evaluation ground truth is padded to the largest number
    of objects.
    """
    specs = dataset.element_spec
    if all(spec.shape.is_fully_defined() for spec in specs.values()):
        return dataset.batch(size, drop_remainder=drop_remainder)
    has_size = specs[F.IMAGE].shape.is_fully_defined()
    if not has_size:
        dataset = dataset.map(lambda e: {**e, _IMAGE_SIZE: tf.shape(e[F.IMAGE])[:2]})
    dataset = dataset.padded_batch(size, drop_remainder=drop_remainder)
    return dataset if has_size else dataset.map(_normalize_to_batch)


def batch_by_size(
    dataset: tf.data.Dataset, size: int, *, drop_remainder: bool, group: int = 1
) -> tf.data.Dataset:
    """Batches examples of `ExampleTransform`, with images of one size in each batch.

    Images are buffered until there are enough of their size; images that are left at the end of an
    epoch are combined with images of the next one, so that none is lost or repeated. Only the end
    of the data set leaves batches that are not full.

    Args:
      dataset: dataset whose images are padded to a few sizes.
      size: number of images per batch.
      drop_remainder: whether batches that are not full are left out.
      group: number of consecutive batches of one size, which the replicas of one step take. The
        images of so many batches are buffered for each size.
    """

    def size_of(example: Example) -> tf.Tensor:
        height, width = tf.unstack(tf.shape(example[F.IMAGE], tf.int64)[:2])
        return height * 2**32 + width

    def batches(key: tf.Tensor, images: tf.data.Dataset) -> tf.data.Dataset:
        del key
        # Padded, because the number of objects in evaluation ground truth varies.
        return images.padded_batch(size, drop_remainder=drop_remainder)

    return dataset.group_by_window(size_of, batches, window_size=size * group)


def _normalize_to_batch(examples: Example) -> Example:
    """Converts boxes [B, M, 4] from the frame of their image to the frame of the batch."""
    examples = dict(examples)
    sizes = examples.pop(_IMAGE_SIZE)  # [B, 2]
    return _rescale(examples, (sizes / tf.shape(examples[F.IMAGE])[1:3])[:, tf.newaxis])


def _rescale(example: Example, scale: tf.Tensor) -> Example:
    """Multiplies boxes and points by `scale` (y, x), float64 [..., 2]."""
    scale = tf.cast(scale, tf.float32)
    example = dict(example)
    for name in names_of(Geometry.BOX, Geometry.POINTS):
        if name not in example:
            continue
        if OBJECT_FIELDS[name].geometry is Geometry.BOX:
            example[name] *= tf.concat([scale, scale], axis=-1)
        else:
            example[name] *= scale[..., tf.newaxis, :]
    return example


def _identity_of_image(example: Example) -> Example:
    """Returns the source id, or the file name if there is none, and its hash."""
    source_id, filename = example[F.SOURCE_ID], example[F.FILENAME]
    source_id = tf.where(tf.equal(source_id, ''), filename, source_id)
    return {
        F.SOURCE_ID: source_id,
        F.HASH_FROM_SOURCE_ID: tf.cast(tf.strings.to_hash_bucket_fast(source_id, 2**31), tf.int32),
    }


def _count(example: Example) -> tf.Tensor:
    return tf.shape(example[F.GROUNDTRUTH_BOXES])[0]


def _pad_rows(rows: tf.Tensor, size: int, padding: float) -> tf.Tensor:
    """Pads [n, ...], n <= size, to [size, ...]."""
    paddings = [[0, size - tf.shape(rows)[0]]] + [[0, 0]] * (rows.shape.rank - 1)
    padded = tf.pad(rows, paddings, constant_values=tf.cast(padding, rows.dtype))
    return tf.ensure_shape(padded, [size, *rows.shape[1:]])
