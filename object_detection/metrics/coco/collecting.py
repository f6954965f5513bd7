"""What the evaluators of images have in common: they add the objects of one image after another."""

import abc
import logging
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from pycocotools import mask as mask_api

from object_detection.core.detections import Detections, boxes_to_absolute
from object_detection.core.fields import DetectionFields, InputFields
from object_detection.errors import UserError, expected
from object_detection.metrics import detections as image_detections
from object_detection.metrics.analysis.images import Compared, ImageBoxes
from object_detection.metrics.coco import metrics
from object_detection.metrics.coco.annotations import CocoAnnotations
from object_detection.metrics.instances import Instances, box_areas, encode_png, mask_areas
from object_detection.metrics.mask_pasting import PasteMethod

_LOG = logging.getLogger(__name__)

MASKS, KEYPOINTS = 'masks', 'keypoints'
# What is compared besides boxes -> the entries of a batch, and of detections, with it.
_ENTRIES = {
    MASKS: [InputFields.EVALUATION_MASKS],
    KEYPOINTS: [InputFields.EVALUATION_KEYPOINTS, InputFields.EVALUATION_KEYPOINT_VISIBILITIES],
}
_DETECTED = {MASKS: [DetectionFields.MASKS], KEYPOINTS: [DetectionFields.KEYPOINTS]}
# Entry of a batch -> the field of the reader that loads it.
_READER_OPTIONS = {
    InputFields.EVALUATION_MASKS: 'load_instance_masks: true',
    **dict.fromkeys(_ENTRIES[KEYPOINTS], 'num_keypoints'),
    InputFields.GROUNDTRUTH_IMAGE_CLASSES: 'load_image_labels: true',
    InputFields.GROUNDTRUTH_VERIFIED_NEG_CLASSES: 'load_image_labels: true',
    InputFields.GROUNDTRUTH_NOT_EXHAUSTIVE_CLASSES: 'load_image_labels: true',
}
# Entry of the detections -> the models that return it.
_MODEL_KINDS = {
    DetectionFields.CLASSES: 'a model that classifies (not number_of_stages: 1)',
    DetectionFields.MASKS: 'a model with a mask head (number_of_stages: 3)',
    DetectionFields.KEYPOINTS: 'a model that predicts keypoints',
}


class Image(NamedTuple):
    """An evaluated image.

    Attributes:
      image_id: its source id, or its id in the annotation file.
      height, width: its size in pixels.
      annotated, detected: its objects.
      counts: bool [n], the detections that are compared; the others are only in results files. None
        compares all.
    """

    image_id: Any
    height: int
    width: int
    annotated: Instances
    detected: Instances
    counts: np.ndarray | None = None

    @property
    def counted(self) -> Instances:
        """The detections that are compared."""
        return self.detected if self.counts is None else self.detected.where(self.counts)


_NOTHING = np.zeros(0, np.int64)


class Searched(NamedTuple):
    """What an image was searched for, beside the classes of its objects.

    Attributes:
      classes: int64 [n], 1-based ids of the classes of which it was verified whether the image
        contains them; those that are absent suffice.
      not_exhaustive: int64 [m], ids of the classes not all of whose objects are annotated.
    """

    classes: np.ndarray = _NOTHING
    not_exhaustive: np.ndarray = _NOTHING

    def found(self, image: Image) -> np.ndarray:
        """Returns which detections of an image, bool [d], have classes that it was searched for."""
        classes = np.concatenate([self.classes, image.annotated.classes])
        return np.isin(image.detected.classes, classes)


class CollectingEvaluator(abc.ABC):
    """Adds the objects of the images of a data set; subclasses say what is stored and measured.

    Only numbers and run-length encoded masks of an image are stored, so that memory does not grow
    with the size of the images. An image without a source id counts.

    Args:
      categories: the label map's entries, {'id': 1-based, 'name': ...}.
      annotations: ground truth that replaces the ground truth of the batches.
      paste_method: how detected masks are pasted into their images.
      name: name of the metrics in messages.

    Raises:
      ValueError: if an id or a name occurs twice in `categories`.
    """

    # What of the objects is compared besides boxes: MASKS, KEYPOINTS, or None.
    _compared: str | None = None
    # Whether detections count without classes, as all of one category.
    _may_lack_classes = False
    # Whether detections count only if their class is a label of the image, or has an object there.
    _only_labeled = False
    notes: Sequence[str] = ()

    def __init__(
        self,
        categories: Sequence[Mapping[str, Any]],
        *,
        annotations: CocoAnnotations | None = None,
        paste_method: PasteMethod = PasteMethod.UNCROP,
        name: str = '',
    ):
        self._name = name or type(self).__name__
        self._categories = [{**c, 'id': int(c['id']), 'name': str(c['name'])} for c in categories]
        for key in ('id', 'name'):
            values = [category[key] for category in self._categories]
            repeated = sorted({value for value in values if values.count(value) > 1})
            if repeated:
                raise expected(
                    self._name, f'an own {key} for every category', f'more than once: {repeated}'
                )
        self._categories.sort(key=lambda category: category['id'])
        self._category_ids = [category['id'] for category in self._categories]
        self._annotations = annotations
        self._paste_method = paste_method
        self.clear()

    def clear(self) -> None:
        """Removes all images."""
        self._images: list[Any] = []
        self._image_ids: set[Any] = set()
        self._class_agnostic: bool | None = None
        self._reported: set[str] = set()

    def add_batch(self, batch: Mapping[str, Any], detections: Mapping[str, Any]) -> None:
        """Adds the images of a batch; repeated images are ignored and named in the log.

        Args:
          batch: numpy arrays under `InputFields`: source_id [B], original_image_spatial_shape
            [B, 2] and the evaluation_* entries that the class names. With `annotations`, only the
            first two are read, and the labels of images where they count.
          detections: what the detector's `postprocess` returns, as numpy: classes 0-based, boxes
            and keypoints normalized to the true image.

        Raises:
          ValueError: if an entry that is needed is absent, a mask has another size than its image,
            or `annotations` has no such image.
        """
        self._check_entries(batch, detections)
        shapes = np.asarray(batch[InputFields.ORIGINAL_IMAGE_SPATIAL_SHAPE])
        found = Detections.from_batch(detections, shapes)
        for row, source_id in enumerate(batch[InputFields.SOURCE_ID]):
            image_id = source_id = image_detections.source_text(source_id)
            size = int(shapes[row][0]), int(shapes[row][1])
            if self._annotations is not None:
                image_id = self._annotations.image_id(source_id)
                self._annotations.check_size(image_id, *size)
            if not self._is_new(image_id):
                continue
            if self._annotations is None:
                annotated = self._known_objects(self._of_batch(batch, row, image_id))
            else:
                annotated = self._of_annotations(image_id)
            detected = self._known_detections(self._detected(found[row]))
            image = Image(image_id, *size, annotated, detected)
            self._images.append(self._stored(image, self._searched(batch, row, image_id)))

    def add_image(
        self,
        source_id: str,
        size: tuple[int, int],
        annotated: Instances,
        detected: Instances,
        image_classes: np.ndarray | None = None,
        not_exhaustive_classes: np.ndarray | None = None,
    ) -> None:
        """Adds one image of known objects, see `Evaluator`; a repeated image is ignored."""
        for side, instances in (('objects', annotated), ('detections', detected)):
            if self._compared and getattr(instances, self._compared) is None:
                raise expected(
                    f'{self._name}: image {source_id!r}', f'{self._compared} of the {side}'
                )
        self._class_agnostic = bool(self._class_agnostic)
        if self._is_new(source_id):
            given = (image_classes, not_exhaustive_classes)
            searched = Searched(*(_NOTHING if each is None else each for each in given))
            sides = self._known_objects(annotated), self._known_detections(detected)
            self._images.append(self._stored(Image(source_id, *size, *sides), searched))

    def part(self) -> Any:
        """Returns the images added so far as a picklable value for `merge`."""
        return self._class_agnostic, self._images

    def merge(self, part: Any) -> None:
        """Adds the images of an evaluator with the same arguments; repeated images are ignored."""
        class_agnostic, images = part
        if self._class_agnostic is None:
            self._class_agnostic = class_agnostic
        self._images += [image for image in images if self._is_new(image.image_id)]

    @abc.abstractmethod
    def evaluate(self) -> dict[str, float]:
        """Returns the metrics of the images added so far: name -> value."""

    def _stored(self, image: Image, searched: Searched) -> Any:
        """Returns what is stored of an image, given what it was searched for."""
        del searched
        return image

    def _batch_entries(self) -> list[str]:
        """Returns the entries of a batch that it reads beside those of all batches."""
        labels = [InputFields.GROUNDTRUTH_IMAGE_CLASSES] if self._only_labeled else []
        return labels + ([] if self._annotations else _ENTRIES.get(self._compared, []))

    def _check_entries(self, batch: Mapping[str, Any], detections: Mapping[str, Any]) -> None:
        """Raises UserError if an entry of the batch or of the detections is missing."""
        class_agnostic = detections.get(DetectionFields.CLASSES) is None
        if self._may_lack_classes and self._class_agnostic not in (None, class_agnostic):
            raise UserError(
                f'{self._name}: some batches have `{DetectionFields.CLASSES}` and some do not. '
                f'Received now: {sorted(detections)}.'
            )
        self._class_agnostic = class_agnostic and self._may_lack_classes
        needed = [] if self._may_lack_classes else [DetectionFields.CLASSES]
        for name in needed + _DETECTED.get(self._compared, []):
            if detections.get(name) is None:
                raise UserError(
                    f'{self._name}: the detections have no `{name}`; they need '
                    f'{_MODEL_KINDS[name]}. Received: {sorted(detections)}.'
                )
        for name in self._batch_entries():
            if batch.get(name) is None:
                option = _READER_OPTIONS.get(name)
                hint = f'; set `{option}` in eval_input_reader' if option else ''
                raise UserError(
                    f'{self._name}: the batch has no `{name}`{hint}. Received: {sorted(batch)}.'
                )

    def _of_batch(self, batch: Mapping[str, Any], row: int, source_id: str) -> Instances:
        """Returns the annotated objects of the image in a row of the batch."""
        return batch_instances(batch, row, source_id, with_masks=self._compared == MASKS)

    def _of_annotations(self, image_id: Any) -> Instances:
        """Returns the objects of an image of the annotation file that are compared."""
        with_masks = self._compared == MASKS
        return self._known_objects(self._annotations.instances(image_id, with_masks=with_masks))

    def _detected(self, found: Detections) -> Instances:
        """Returns the detections of an image."""
        masks, areas = None, box_areas(found.boxes)
        if self._compared == MASKS:
            masks = image_detections.encode_masks(found, self._paste_method)
            areas = mask_areas(masks, *found.size)
        return Instances(found.boxes, found.ids(), areas, masks, scores=found.scores)

    def _known_objects(self, instances: Instances) -> Instances:
        """Returns those of the annotated objects of an image that are compared."""
        return self._in_categories(instances, 'annotated')

    def _known_detections(self, instances: Instances) -> Instances:
        """Returns those of the detections of an image that are compared."""
        return self._in_categories(instances, 'detected')

    def _searched(self, batch: Mapping[str, Any], row: int, image_id: Any) -> Searched:
        """Returns what the image in a row of the batch was searched for."""
        del image_id
        name = InputFields.GROUNDTRUTH_IMAGE_CLASSES
        return Searched(labels(batch, name, row)) if self._only_labeled else Searched()

    def _is_new(self, image_id: Any) -> bool:
        if image_id == '':
            self._report('nameless', 'An image has no source id; all such images are counted.')
            return True
        if image_id in self._image_ids:
            _LOG.warning(
                'Image with source id %r was evaluated before; this one is ignored. Source ids '
                'must be unique.',
                image_id,
            )
            return False
        self._image_ids.add(image_id)
        return True

    def _in_categories(self, instances: Instances, what: str) -> Instances:
        """Keeps the objects of known categories; without classes, all have the same category."""
        if self._class_agnostic:
            return instances._replace(classes=np.ones_like(instances.classes))
        known = np.isin(instances.classes, self._category_ids)
        if known.all():
            return instances
        unknown = sorted(set(instances.classes[~known].tolist()))
        self._report(
            f'{what} classes',
            f'Objects are {what} whose classes the label map lacks; they do not count. First: '
            f'{unknown}.',
        )
        return instances.where(known)

    def _report(self, key: str, text: str) -> None:
        """Logs a warning the first time that it is called with `key`."""
        if key not in self._reported:
            self._reported.add(key)
            _LOG.warning(text)

    def _all_images(self) -> list[Any]:
        """All images, those of the annotation file that were not evaluated too, in their order."""
        images = list(self._images)
        missed = self._annotations.not_evaluated(self._image_ids) if self._annotations else ()
        for image_id in missed:
            annotated = self._of_annotations(image_id)
            nothing = annotated.where(np.zeros(0, int))
            nothing = nothing._replace(scores=np.zeros(0), is_crowd=None)
            image = Image(image_id, *self._annotations.size(image_id), annotated, nothing)
            images.append(self._stored(image, Searched()))
        return sorted(images, key=self._sort_key)

    def _sort_key(self, image: Any) -> Any:
        """Returns a key that sorts images by id."""
        return str(image.image_id)


class StoringEvaluator(CollectingEvaluator):
    """Stores the objects of images, and measures them by COCO's rules.

    Args:
      categories: as for `CollectingEvaluator`.
      max_detections: detections that count, best first; 0 for the published limit. Another number
        is in the names of the metrics.
      options: those of `CollectingEvaluator`.
    """

    # How many detections count; 0 where all do. Of an image and a class, or of an image.
    _published_limit = 0
    _limits_classes = True
    # What `analysed` calls that which is compared; '' where boxes are.
    _analysed_as = ''
    _areas: Sequence[str] = tuple(metrics.AREA_RANGES)

    def __init__(
        self, categories: Sequence[Mapping[str, Any]], *, max_detections: int = 0, **options: Any
    ):
        super().__init__(categories, **options)
        self._limit = max_detections or self._published_limit
        self._numbers: Sequence[int] = (self._limit,)

    @property
    def notes(self) -> list[str]:
        """Says that images have more objects than detections count."""
        if not self._limit:
            return []
        counts = [self._most_objects(image.annotated) for image in self._images]
        above = [row for row, count in enumerate(counts) if count > self._limit]
        if not above:
            return []
        most = max(above, key=counts.__getitem__)
        example = f'image {self._images[most].image_id!r} {counts[most]}'
        of_class = ' of a class' if self._limits_classes else ''
        return [
            f'{self._name}: {len(above)} of {len(counts)} images have more than {self._limit} '
            f'objects{of_class}, {example}, and only the best {self._limit} detections of an '
            f'image{of_class} count. eval_config.max_detections, or tfod eval --detections ... '
            '--max_detections, counts more.'
        ]

    def analysed(self, max_images: int, max_detections: int) -> Compared | None:
        """Returns the images added so far by what is compared besides boxes; None if nothing is.

        Args:
          max_images, max_detections: how many images, and best detections of each, are returned.
        """
        if not self._analysed_as:
            return None
        images = [self._analyse(each, max_detections) for each in self._all_images()[:max_images]]
        class_ids = [1] if self._class_agnostic else list(self._category_ids)
        return Compared(self._analysed_as, class_ids, images)

    def _analyse(self, image: Image, max_detections: int) -> ImageBoxes:
        annotated, detected = image.annotated, image.counted
        order = np.argsort(-detected.scores, kind='stable')[:max_detections]
        detected = detected.where(order)
        is_crowd = np.zeros(len(annotated.classes), bool)
        for flags in (annotated.is_crowd, annotated.is_ignored):
            is_crowd = is_crowd if flags is None else is_crowd | flags
        sides = ((each.boxes, each.classes) for each in (annotated, detected))
        if self._class_agnostic:
            sides = ((boxes, np.ones_like(classes)) for boxes, classes in sides)
        (boxes, classes), (found_boxes, found_classes) = sides
        overlap = self._overlap(image, detected) if len(order) and len(classes) else np.zeros(0)
        return ImageBoxes(
            str(image.image_id),
            image.height,
            image.width,
            boxes,
            classes,
            is_crowd,
            found_boxes,
            found_classes,
            detected.scores,
            np.asarray(overlap).reshape(len(order), len(classes)),
        )

    def _overlap(self, image: Image, detected: Instances) -> np.ndarray:
        """Returns float [d, g], how far detections are the annotated objects of an image."""
        size, annotated = [image.height, image.width], image.annotated
        found, objects = (
            [{'size': size, 'counts': mask} for mask in each.masks]
            for each in (detected, annotated)
        )
        is_crowd = np.zeros(len(objects)) if annotated.is_crowd is None else annotated.is_crowd
        return mask_api.iou(found, objects, is_crowd.astype(np.uint8))

    def _most_objects(self, annotated: Instances) -> int:
        """Returns how many objects of an image, or of one of its classes, are to be found."""
        if len(annotated.classes) <= self._limit:
            return 0
        counts = np.ones(len(annotated.classes), bool)
        for is_left_out in (annotated.is_crowd, annotated.is_ignored):
            counts &= True if is_left_out is None else ~is_left_out
        classes = annotated.classes[counts]
        of_classes = np.unique(classes, return_counts=True)[1] if self._limits_classes else []
        return int(max(of_classes, default=len(classes)))

    def coco_results(self) -> list[dict[str, Any]]:
        """Returns the detections as entries of a COCO results file.

        `image_id` is the source id, as a number if it is one; with `annotations`, `image_id` and
        `category_id` are the ids of the annotation file. Entries have that which is scored, so that
        pycocotools computes the same areas.
        """
        ids = {label: label for label in (1, *self._category_ids)}
        if self._annotations is not None and not self._class_agnostic:
            ids = self._annotations.category_ids
        return [
            {
                'image_id': self._id_in_results(image),
                'category_id': ids[label],
                **self._entry(image, row),
                'score': float(image.detected.scores[row]),
            }
            for image in self._images
            for row, label in enumerate(image.detected.classes.tolist())
        ]

    def _entry(self, image: Image, row: int) -> dict[str, Any]:
        """Returns what is scored of a detection, in COCO's JSON form."""
        if self._compared == MASKS:
            counts = image.detected.masks[row].decode('ascii')
            return {'segmentation': {'size': [image.height, image.width], 'counts': counts}}
        return {'bbox': image_detections.box_to_coco(image.detected.boxes[row])}

    def _measure(self) -> metrics.CocoMetrics | None:
        """Returns what the metrics are computed of; None without images."""
        if not self._images:
            return None
        images = self._all_images()
        areas = {name: metrics.AREA_RANGES[name] for name in self._areas}
        return metrics.measure(
            [image.annotated for image in images],
            [image.counted for image in images],
            [1] if self._class_agnostic else self._category_ids,
            compare=self._compare(images),
            rules=metrics.Rules(areas, tuple(self._numbers)),
        )

    def _compare(self, images: Sequence[Image]) -> metrics.Compare:
        """Returns what compares the detections with the objects."""
        sizes = [(image.height, image.width) for image in images]
        return metrics.masks(sizes) if self._compared == MASKS else metrics.boxes

    def _id_in_results(self, image: Image) -> Any:
        if self._annotations is not None:
            return image.image_id
        return image_detections.coco_image_id(image.image_id)

    def _sort_key(self, image: Image) -> tuple[bool, Any]:
        """Returns a key that sorts images by id as COCO's files: numbers first, then texts.

        This is the order in which pycocotools ranks equal scores.
        """
        image_id = self._id_in_results(image)
        return isinstance(image_id, str), image_id


def batch_instances(
    batch: Mapping[str, Any], row: int, source_id: str, *, with_masks: bool
) -> Instances:
    """Returns the annotated objects of one image of a batch.

    Args:
      batch: evaluation_* entries: boxes [B, G, 4] normalized to the original image, classes [B, G]
        1-based, is_crowd [B, G], area [B, G] (below 0 = not recorded), num_evaluation_boxes [B]
        and, with masks, masks [B, G], encoded PNG of the original size.
      row: index of the image.
      source_id: name of the image in errors.
      with_masks: whether masks are needed. Objects without a recorded area have the area of their
        mask, or else of their box.

    Raises:
      ValueError: if an object has no mask, or one of another size than its image.
    """
    shape = [int(size) for size in batch[InputFields.ORIGINAL_IMAGE_SPATIAL_SHAPE][row]]
    boxes = batch_rows(batch, InputFields.EVALUATION_BOXES, row)
    boxes = boxes_to_absolute(boxes, *shape)
    masks, own_areas = None, box_areas(boxes)
    if with_masks:
        encoded = batch_rows(batch, InputFields.EVALUATION_MASKS, row)
        masks = [encode_png(png, *shape, source_id) for png in encoded]
        own_areas = mask_areas(masks, *shape)
    areas = batch_rows(batch, InputFields.EVALUATION_AREA, row, np.float64)
    return Instances(
        boxes,
        batch_rows(batch, InputFields.EVALUATION_CLASSES, row, np.int64),
        np.where(areas >= 0, areas, own_areas),
        masks,
        is_crowd=batch_rows(batch, InputFields.EVALUATION_IS_CROWD, row, bool),
    )


def batch_rows(
    batch: Mapping[str, Any], name: str, row: int, dtype: type | None = None
) -> np.ndarray:
    """Returns an evaluation_* entry of one image of a batch, without the padding."""
    return np.asarray(batch[name][row][: int(batch[InputFields.NUM_EVALUATION_BOXES][row])], dtype)


def labels(batch: Mapping[str, Any], name: str, row: int) -> np.ndarray:
    """Returns the 1-based ids, int64 [m], of a vector of classes [B, K] of a batch."""
    return np.flatnonzero(batch[name][row]) + 1
