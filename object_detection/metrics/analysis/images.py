"""Images with their annotated and detected boxes, and the file that holds them for analyses.

Matches the detected boxes of an image to its annotated ones, as COCO's evaluation does.
"""

import dataclasses
import os
import zipfile
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from object_detection.errors import UserError, expected
from object_detection.system import files

FILE_NAME = 'detections.npz'
_MAX_BYTES = 2**31


class ImageBoxes(NamedTuple):
    """The annotated and the detected boxes of one image.

    Attributes:
      name: its source id.
      height, width: size of the original image in pixels.
      boxes: float [g, 4], [ymin, xmin, ymax, xmax] in pixels, annotated.
      classes: int [g], 1-based ids of the label map.
      is_crowd: bool [g].
      found_boxes: float [d, 4], detected, as `boxes`.
      found_classes: int [d].
      scores: float [d], descending.
      overlap: float [d, g], of each detection and object what is compared in place of the IoU of
        their boxes, such as that of their masks; None compares the boxes.
    """

    name: str
    height: int
    width: int
    boxes: np.ndarray
    classes: np.ndarray
    is_crowd: np.ndarray
    found_boxes: np.ndarray
    found_classes: np.ndarray
    scores: np.ndarray
    overlap: np.ndarray | None = None

    def with_found(self, keep: np.ndarray) -> 'ImageBoxes':
        """Returns the image with those of its detections for which `keep`, bool [d], is true."""
        return self._replace(
            found_boxes=self.found_boxes[keep],
            found_classes=self.found_classes[keep],
            scores=self.scores[keep],
            overlap=None if self.overlap is None else self.overlap[keep],
        )

    def with_objects(self, keep: np.ndarray) -> 'ImageBoxes':
        """Returns the image with those of its objects for which `keep`, bool [g], is true."""
        return self._replace(
            boxes=self.boxes[keep],
            classes=self.classes[keep],
            is_crowd=self.is_crowd[keep],
            overlap=None if self.overlap is None else self.overlap[:, keep],
        )


class Compared(NamedTuple):
    """Images in which something else than boxes is compared.

    Attributes:
      title: what is compared, such as 'masks'.
      class_ids: 1-based ids of the classes that have it.
      images: the images, with their `overlap`.
    """

    title: str
    class_ids: list[int]
    images: list[ImageBoxes]


class Picture(NamedTuple):
    """A picture of an image's ground truth beside its detections.

    Attributes:
      name: the name of the image's file, or its source id where the record has none.
      caption: what it shows.
      is_best: whether the image is one of the best; otherwise it is one of the worst.
      jpeg: the content of a JPEG file.
    """

    name: str
    caption: str
    is_best: bool
    jpeg: bytes


@dataclasses.dataclass(frozen=True)
class EvaluatedImages:
    """What an evaluation stores of its images.

    Attributes:
      step: number of training steps done.
      names: 1-based id -> name of each class of the label map.
      images: the stored images.
      num_images: number of evaluated images, of which the stored ones may be the first.
      pictures: the worst images and the best, each from the extreme on.
      compared: the images by their masks and keypoints, where the metrics are.
    """

    step: int
    names: dict[int, str]
    images: list[ImageBoxes]
    num_images: int
    pictures: list[Picture]
    compared: Sequence[Compared] = ()

    def by(self, compared: Compared) -> 'EvaluatedImages':
        """Returns the images in which something else than boxes is compared, without pictures."""
        names = {i: name for i, name in self.names.items() if i in compared.class_ids}
        images = compared.images
        return EvaluatedImages(self.step, names, images, self.num_images, [])


def save(path: str | os.PathLike, evaluated: EvaluatedImages) -> None:
    """Writes a compressed file of arrays; a kill leaves the old file or the new one."""
    images, pictures = evaluated.images, evaluated.pictures
    columns = {
        'format': np.array(1),
        'step': np.array(evaluated.step),
        'num_images': np.array(evaluated.num_images),
        'class_ids': np.array(list(evaluated.names), np.int64),
        'class_names': _texts(list(evaluated.names.values())),
        **_image_columns(images),
        'picture_names': _texts([picture.name for picture in pictures]),
        'picture_captions': _texts([picture.caption for picture in pictures]),
        'picture_is_best': np.array([picture.is_best for picture in pictures], bool),
        'picture_sizes': np.array([len(picture.jpeg) for picture in pictures], np.int64),
        'picture_bytes': np.frombuffer(b''.join(p.jpeg for p in pictures), np.uint8),
        'compared': _texts([each.title for each in evaluated.compared]),
    }
    for number, each in enumerate(evaluated.compared):
        columns[f'compared_{number}_class_ids'] = np.array(each.class_ids, np.int64)
        for name, values in _image_columns(each.images).items():
            columns[f'compared_{number}_{name}'] = values
    with files.replacing(path) as draft, open(draft, 'wb') as file:
        np.savez_compressed(file, **columns)


def _image_columns(images: Sequence[ImageBoxes]) -> dict[str, np.ndarray]:
    columns = {
        'image_names': _texts([image.name for image in images]),
        'sizes': np.array([[i.height, i.width] for i in images], np.int32).reshape(-1, 2),
        'num_objects': np.array([len(image.classes) for image in images], np.int32),
        'num_found': np.array([len(image.scores) for image in images], np.int32),
        'boxes': _rows([image.boxes for image in images], np.float32, 4),
        'classes': _rows([image.classes for image in images], np.int32),
        'is_crowd': _rows([image.is_crowd for image in images], bool),
        'found_boxes': _rows([image.found_boxes for image in images], np.float32, 4),
        'found_classes': _rows([image.found_classes for image in images], np.int32),
        'scores': _rows([image.scores for image in images], np.float32),
    }
    overlaps = [image.overlap.ravel() for image in images if image.overlap is not None]
    return columns | ({'overlaps': _rows(overlaps, np.float32)} if overlaps else {})


def load(path: str | os.PathLike) -> EvaluatedImages:
    """Reads what `save` wrote.

    Raises:
      UserError: if it is no such file, or one of more than 2 GiB.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
        if size > _MAX_BYTES:
            raise UserError(f'{path}: expected at most {_MAX_BYTES} bytes. Received: {size}.')
        with np.load(path, allow_pickle=False) as archive:
            columns = {name: archive[name] for name in archive.files}
        return _evaluated(columns)
    except (zipfile.BadZipFile, KeyError, ValueError, EOFError) as error:
        if isinstance(error, UserError):
            raise
        raise expected(path, 'detections of an evaluation of this version', error) from error


def _evaluated(columns: dict[str, np.ndarray]) -> EvaluatedImages:
    content = columns['picture_bytes'].tobytes()
    ends = np.cumsum(columns['picture_sizes']).tolist()
    pictures = [
        Picture(str(name), str(caption), bool(is_best), content[end - int(size) : end])
        for name, caption, is_best, size, end in zip(
            columns['picture_names'],
            columns['picture_captions'],
            columns['picture_is_best'],
            columns['picture_sizes'],
            ends,
            strict=True,
        )
    ]
    ids = columns['class_ids'].tolist()
    names = dict(zip(ids, map(str, columns['class_names']), strict=True))
    compared = [
        Compared(
            str(title),
            columns[f'compared_{number}_class_ids'].tolist(),
            _images(columns, f'compared_{number}_'),
        )
        for number, title in enumerate(columns.get('compared', ()))
    ]
    counts = int(columns['step']), int(columns['num_images'])
    return EvaluatedImages(counts[0], names, _images(columns), counts[1], pictures, compared)


def _images(columns: dict[str, np.ndarray], prefix: str = '') -> list[ImageBoxes]:
    """Returns the images of the columns whose names begin with `prefix`."""
    sizes = (columns[f'{prefix}num_objects'], columns[f'{prefix}num_found'])
    objects, found = (np.cumsum(each)[:-1] for each in sizes)
    parts = [np.split(columns[prefix + n], objects) for n in ('boxes', 'classes', 'is_crowd')]
    names = ('found_boxes', 'found_classes', 'scores')
    parts += [np.split(columns[prefix + name], found) for name in names]
    images = [
        ImageBoxes(str(name), int(height), int(width), *rows)
        for name, (height, width), *rows in zip(
            columns[f'{prefix}image_names'], columns[f'{prefix}sizes'], *parts, strict=False
        )
    ]
    if f'{prefix}overlaps' not in columns:
        return images
    pairs = np.cumsum(sizes[0].astype(np.int64) * sizes[1])[:-1]
    overlaps = np.split(columns[f'{prefix}overlaps'], pairs)
    return [
        each._replace(overlap=values.reshape(len(each.scores), len(each.classes)))
        for each, values in zip(images, overlaps, strict=True)
    ]


def _rows(parts: list[np.ndarray], dtype: type, *shape: int) -> np.ndarray:
    empty = np.zeros((0, *shape), dtype)
    return np.concatenate([empty, *(np.asarray(p, dtype).reshape(-1, *shape) for p in parts)])


def _texts(texts: list[str]) -> np.ndarray:
    return np.array(texts, np.str_) if texts else np.zeros(0, 'U1')


class Matches(NamedTuple):
    """The matches of one image.

    Attributes:
      objects: int [d], the index of the object that a detection is matched to, or -1.
      is_ignored: bool [d], whether a detection does not count: it is matched to an object that is
        ignored, such as a crowd.
    """

    objects: np.ndarray
    is_ignored: np.ndarray


class Quality(NamedTuple):
    """Numbers of detections and objects of one image: matched, false detections, missed objects."""

    matched: int
    false: int
    missed: int

    @property
    def f1(self) -> float | None:
        """The harmonic mean of precision and recall; None without detections and objects."""
        all_ = 2 * self.matched + self.false + self.missed
        return 2 * self.matched / all_ if all_ else None


def overlaps(image: ImageBoxes) -> np.ndarray:
    """Returns the IoU, float64 [d, g], of each detection and object, of all classes.

    With crowds it is the intersection over the area of the detection. Of images with an `overlap`
    it is that one.
    """
    if image.overlap is not None:
        return np.asarray(image.overlap, np.float64)
    found = np.asarray(image.found_boxes, np.float64)[:, np.newaxis]
    boxes = np.asarray(image.boxes, np.float64)[np.newaxis]
    sides = np.minimum(found[..., 2:], boxes[..., 2:]) - np.maximum(found[..., :2], boxes[..., :2])
    shared = np.maximum(sides, 0).prod(axis=-1)
    areas = (found[..., 2:] - found[..., :2]).prod(axis=-1)
    unions = areas + (boxes[..., 2:] - boxes[..., :2]).prod(axis=-1) - shared
    unions = np.where(image.is_crowd, areas, unions)
    return np.divide(shared, unions, out=np.zeros_like(shared), where=shared > 0)


def match(
    image: ImageBoxes,
    overlap: np.ndarray,
    threshold: float = 0.5,
    is_ignored: np.ndarray | None = None,
) -> Matches:
    """Matches detections in descending order of scores, each to the best free object of its class.

    Args:
      image: the boxes.
      overlap: what `overlaps` returned.
      threshold: least IoU of a match.
      is_ignored: bool [g], objects that are matched only if no other is left, besides crowds.
    """
    ignored = image.is_crowd if is_ignored is None else image.is_crowd | is_ignored
    is_same = image.found_classes[:, np.newaxis] == image.classes
    usable = np.where(is_same & (overlap >= threshold), overlap, -1.0)
    objects = np.full(len(image.scores), -1)
    free = np.ones(len(image.classes), bool)
    order = np.argsort(-image.scores, kind='stable')
    for row in order[(usable > 0).any(axis=1)[order]]:
        for group in (~ignored, ignored):
            values = np.where(free & group, usable[row], -1.0)
            best = int(values.argmax())
            if values[best] > 0:
                objects[row] = best
                free[best] = image.is_crowd[best]
                break
    return Matches(objects, (objects >= 0) & np.append(ignored, False)[objects])


def quality(image: ImageBoxes, min_score: float) -> Quality:
    """Counts what a user sees who looks at detections from a score on, at an IoU of 0.5."""
    image = image.with_found(image.scores >= min_score)
    matches = match(image, overlaps(image))
    counts = ~matches.is_ignored
    matched = int((counts & (matches.objects >= 0)).sum())
    return Quality(matched, int(counts.sum()) - matched, int((~image.is_crowd).sum()) - matched)
