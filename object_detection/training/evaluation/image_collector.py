"""Collects the boxes of evaluated images, and pictures of the worst and the best, for reports."""

import io
import os
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from object_detection.core.detections import Detections
from object_detection.core.fields import DetectionFields, InputFields
from object_detection.metrics import detections as image_detections
from object_detection.metrics.analysis import images as stored
from object_detection.metrics.analysis import thresholds
from object_detection.metrics.analysis.images import (
    EvaluatedImages,
    ImageBoxes,
    Picture,
    Quality,
    quality,
)
from object_detection.metrics.coco.annotations import CocoAnnotations
from object_detection.metrics.coco.collecting import StoringEvaluator, batch_instances
from object_detection.metrics.evaluator import Batch, Evaluator
from object_detection.metrics.instances import Instances
from object_detection.visualization import tensorboard

# Beyond these, the file of detections and reports would grow without showing more.
_MAX_IMAGES = 5000
MAX_DETECTIONS = 100
_NUM_PICTURES = 6
_MAX_WIDTH = 1200  # pixels
_NO_CLASS = 'object'
_NEEDED = {
    InputFields.SOURCE_ID,
    InputFields.ORIGINAL_IMAGE_SPATIAL_SHAPE,
    InputFields.NUM_EVALUATION_BOXES,
    InputFields.EVALUATION_BOXES,
    InputFields.EVALUATION_CLASSES,
    InputFields.EVALUATION_IS_CROWD,
    InputFields.EVALUATION_AREA,
}


class _Example(NamedTuple):
    """A candidate for a picture: an image with its batch entries, [1, ...]."""

    name: str
    quality: Quality
    batch: Batch
    detections: Batch


class ImageCollector:
    """Collects images batch by batch; an `Evaluator` without metrics, so that workers merge theirs.

    Args:
      names: 1-based class id -> name.
      annotations: ground truth in place of the batches' own.
      style: how pictures are drawn; images are judged by the detections that are drawn.
      max_detections: most detections of an image that are kept, best first.
    """

    notes: Sequence[str] = ()

    def __init__(
        self,
        names: dict[int, str],
        annotations: CocoAnnotations | None = None,
        style: tensorboard.PictureStyle = tensorboard.DEFAULT_STYLE,
        max_detections: int = MAX_DETECTIONS,
    ):
        self._max_detections = max_detections
        self._names, self._annotations, self._style = names, annotations, style
        self._images: list[ImageBoxes] = []
        self._num_images = 0
        self._has_classes = True
        self._examples: tuple[list[_Example], list[_Example]] = ([], [])
        self._pictures: list[tuple[Quality, Picture]] = []

    def add_batch(self, batch: Batch, detections: Batch) -> None:
        """Adds the images of a batch, see `Evaluator`; none of a batch without annotated boxes."""
        if not batch.keys() >= _NEEDED or DetectionFields.BOXES not in detections:
            return
        shapes = np.asarray(batch[InputFields.ORIGINAL_IMAGE_SPATIAL_SHAPE])
        self._has_classes = detections.get(DetectionFields.CLASSES) is not None
        for i, found in enumerate(Detections.from_batch(detections, shapes)):
            self._num_images += 1
            image = self._image(batch, i, found)
            if len(self._images) < _MAX_IMAGES:
                self._images.append(image)
            self._consider(image, batch, detections, i)

    def part(self) -> Any:
        return self._images, self._num_images, self._has_classes, self._all_pictures()

    def merge(self, part: Any) -> None:
        images, count, has_classes, pictures = part
        self._images = (self._images + images)[:_MAX_IMAGES]
        self._num_images += count
        self._has_classes = has_classes
        self._pictures += pictures

    def evaluate(self) -> dict[str, float]:
        return {}

    def save(
        self, path: str | os.PathLike, step: int, evaluators: Iterable[Evaluator] = ()
    ) -> None:
        """Writes the file that `analysis.images.load` reads; none without images.

        Args:
          path: the file.
          step: number of training steps done.
          evaluators: those of the metrics, whose masks and keypoints are compared.
        """
        if not self._images:
            return
        names = self._names if self._has_classes else {1: _NO_CLASS}
        pictures = self._all_pictures()
        # Of few images, each is in one half. Names alone may be empty.
        half = (len({_identity(picture) for _, picture in pictures}) + 1) // 2
        chosen: dict[tuple[str, bytes], Picture] = {}
        for is_best in (False, True):
            part = [
                (found, picture)
                for found, picture in pictures
                if picture.is_best == is_best
                and _identity(picture) not in chosen
                # One without a match is none of the best, and one without a mistake not bad.
                and found.f1 != (0 if is_best else 1)
            ]
            part.sort(key=lambda each: _key(each[0], is_best))
            part = part[: min(_NUM_PICTURES, half)]
            chosen |= {_identity(picture): picture for _, picture in part}
        found = (
            each.analysed(_MAX_IMAGES, self._max_detections)
            for each in evaluators
            if isinstance(each, StoringEvaluator)
        )
        # Two metrics may compare the same.
        compared = {each.title: each for each in found if each is not None}
        evaluated = EvaluatedImages(
            step,
            names,
            self._images,
            self._num_images,
            list(chosen.values()),
            list(compared.values()),
        )
        stored.save(path, evaluated)

    def advised_threshold(self) -> dict[str, Any] | None:
        """Returns the score threshold with the greatest F1, see `thresholds`; None without any.

        The thresholds of each class alone, by its name, are its 'by_class'.
        """
        names = self._names if self._has_classes else {1: _NO_CLASS}
        found = thresholds.by_score(self._images, names)
        if found is None:
            return None
        by_class = thresholds.by_class(self._images, names)
        alone = {names[id_]: each.advice()['score_threshold'] for id_, each in by_class.items()}
        return {**found.advice(), 'by_class': alone}

    def _image(self, batch: Batch, row: int, found: Detections) -> ImageBoxes:
        name = image_detections.source_text(batch[InputFields.SOURCE_ID][row])
        objects = self._annotated(batch, row, name)
        classes = objects.classes if self._has_classes else np.ones_like(objects.classes)
        annotated = objects.boxes, classes, objects.is_crowd
        best = found.best(self._max_detections)
        return ImageBoxes(name, *found.size, *annotated, best.boxes, best.ids(), best.scores)

    def _annotated(self, batch: Batch, row: int, name: str) -> Instances:
        if self._annotations is None:
            return batch_instances(batch, row, name, with_masks=False)
        return self._annotations.instances(self._annotations.image_id(name), with_masks=False)

    def _consider(self, image: ImageBoxes, batch: Batch, detections: Batch, row: int) -> None:
        """Keeps the image if it is among the worst or the best so far."""
        found = quality(image, self._style.min_score)
        if found.f1 is None:
            return
        for is_best, kept in enumerate(self._examples):
            is_full = len(kept) == _NUM_PICTURES
            if is_full and _key(kept[-1].quality, is_best) <= _key(found, is_best):
                continue
            # Copies, since a view would keep the whole batch.
            parts = (
                {name: np.array(value[row : row + 1]) for name, value in each.items()}
                for each in (batch, detections)
            )
            kept.append(_Example(_shown_name(image, batch, row), found, *parts))
            kept.sort(key=lambda each: _key(each.quality, is_best))
            del kept[_NUM_PICTURES:]

    def _all_pictures(self) -> list[tuple[Quality, Picture]]:
        own = []
        for is_best, kept in enumerate(self._examples):
            for example in kept:
                jpeg, (matched, false, missed) = self._draw(example), example.quality
                caption = f'{matched} found, {missed} missed, {false} false'
                picture = Picture(example.name, caption, bool(is_best), jpeg)
                own.append((example.quality, picture))
        return self._pictures + own

    def _draw(self, example: _Example) -> bytes:
        (picture,) = tensorboard.detection_pictures(
            example.batch, example.detections, self._names, limit=1, style=self._style
        )
        image = Image.fromarray(picture)
        image.thumbnail((_MAX_WIDTH, _MAX_WIDTH))
        file = io.BytesIO()
        image.save(file, 'JPEG', quality=85)
        return file.getvalue()


def _shown_name(image: ImageBoxes, batch: Batch, row: int) -> str:
    """Returns the name of the image's file, or its source id where none is recorded."""
    filename = batch[InputFields.FILENAME][row] if InputFields.FILENAME in batch else b''
    return bytes(filename).decode(errors='replace') or image.name


def _identity(picture: Picture) -> tuple[str, bytes]:
    return picture.name, picture.jpeg


def _key(found: Quality, is_best: bool | int) -> Sequence[float]:
    """Sorts the worst images, or the best, to the front; of equal ones those with more objects."""
    if is_best:
        return -found.f1, -found.matched
    return found.f1, -(found.false + found.missed)
