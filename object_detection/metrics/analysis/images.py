"""Images with their annotated and detected boxes, and the file that holds them for analyses."""

import dataclasses
import os
import zipfile
from typing import NamedTuple

import numpy as np

from object_detection.errors import UserError
from object_detection.system import files

FILE_NAME = 'detections.npz'
_MAX_BYTES = 2**31
_FORMAT = 1


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
    """

    step: int
    names: dict[int, str]
    images: list[ImageBoxes]
    num_images: int
    pictures: list[Picture]


def save(path: str | os.PathLike, evaluated: EvaluatedImages) -> None:
    """Writes a compressed file of arrays; a kill leaves the old file or the new one."""
    images, pictures = evaluated.images, evaluated.pictures
    columns = {
        'format': np.array(_FORMAT),
        'step': np.array(evaluated.step),
        'num_images': np.array(evaluated.num_images),
        'class_ids': np.array(list(evaluated.names), np.int64),
        'class_names': _texts(list(evaluated.names.values())),
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
        'picture_names': _texts([picture.name for picture in pictures]),
        'picture_captions': _texts([picture.caption for picture in pictures]),
        'picture_is_best': np.array([picture.is_best for picture in pictures], bool),
        'picture_sizes': np.array([len(picture.jpeg) for picture in pictures], np.int64),
        'picture_bytes': np.frombuffer(b''.join(p.jpeg for p in pictures), np.uint8),
    }
    with files.replacing(path) as draft, open(draft, 'wb') as file:
        np.savez_compressed(file, **columns)


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
        raise UserError(
            f'{path}: expected the file of detections that an evaluation of this version writes. '
            f'Received: {error}.'
        ) from error


def _evaluated(columns: dict[str, np.ndarray]) -> EvaluatedImages:
    objects = np.cumsum(columns['num_objects'])[:-1]
    found = np.cumsum(columns['num_found'])[:-1]
    parts = [np.split(columns[name], objects) for name in ('boxes', 'classes', 'is_crowd')]
    parts += [np.split(columns[n], found) for n in ('found_boxes', 'found_classes', 'scores')]
    images = [
        ImageBoxes(str(name), int(height), int(width), *rows)
        for name, (height, width), *rows in zip(
            columns['image_names'], columns['sizes'], *parts, strict=False
        )
    ]
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
    counts = int(columns['step']), int(columns['num_images'])
    return EvaluatedImages(counts[0], names, images, counts[1], pictures)


def _rows(parts: list[np.ndarray], dtype: type, *shape: int) -> np.ndarray:
    empty = np.zeros((0, *shape), dtype)
    return np.concatenate([empty, *(np.asarray(p, dtype).reshape(-1, *shape) for p in parts)])


def _texts(texts: list[str]) -> np.ndarray:
    return np.array(texts, np.str_) if texts else np.zeros(0, 'U1')
