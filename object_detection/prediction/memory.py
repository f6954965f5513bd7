"""What a model with a memory remembers of a camera, in a file that grows with its images."""

import datetime
import os
import pathlib
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, UnidentifiedImageError

from object_detection.core.fields import DetectionFields, InputFields
from object_detection.data import context_embeddings
from object_detection.errors import UserError
from object_detection.export.loading import Detector
from object_detection.system import files

# EXIF tags: the sub-directory of the camera, in it the time of the photo, and that of the file.
_EXIF_IFD, _TAKEN, _CHANGED = 0x8769, 0x9003, 0x0132
_EXIF_TIME = '%Y:%m:%d %H:%M:%S'
_FORMAT = 1
# Bounds the memory of a camera: 12,000 of the reference's embeddings of 2,057 numbers.
_MOST_NUMBERS = 25_000_000
_MOST_BYTES = 8 * _MOST_NUMBERS


class Bank(NamedTuple):
    """The content of a memory, in order of time.

    Attributes:
      rows: float32 [n, L], embeddings.
      times: int64 [n], seconds since 1970 (UTC) of the images.
      names: n names of the images.
    """

    rows: np.ndarray
    times: np.ndarray
    names: list[str]


class Memory:
    """A memory of one camera for a model with `context_config`: a bank in a file.

    Args:
      path: the file, a NumPy archive; it is made if it does not exist.
      embedder: the model whose features were remembered when the data of the training were made; it
        must return `detection_features`.
      length: L, numbers of an embedding, the `context_feature_length` of the model.
      most: largest number of embeddings that the model takes; the newest are given to it.
      count: number of objects that are remembered of an image, those with the best scores.

    Raises:
      UserError: if the file is no memory, or one of other embeddings.
    """

    def __init__(
        self,
        path: str | os.PathLike,
        embedder: Detector,
        *,
        length: int,
        most: int,
        count: int = 1,
    ):
        self._path = pathlib.Path(path)
        self._embedder = embedder
        self._length, self._most, self._count = length, most, count
        self.bank = _read(self._path, length)
        self._known = set(zip(self.bank.names, self.bank.times.tolist(), strict=True))

    def see(self, image: np.ndarray, name: str, time: datetime.datetime) -> dict[str, np.ndarray]:
        """Remembers an image, and returns what the model takes with it.

        An image that is in the memory is not remembered again.

        Args:
          image: uint8 [H, W, 3], RGB.
          name: of the image, such as the name of its file.
          time: when it was taken, in UTC or without a zone.

        Returns:
          `context_features` float32 [N, L] and `valid_context_size` int32 []: the embeddings of
          this image and of those before it, in order of time, the newest N.
        """
        seconds = int(time.replace(tzinfo=datetime.UTC).timestamp())
        if (name, seconds) not in self._known:
            self._known.add((name, seconds))
            rows = self._embed(image, time)
            place = int(np.searchsorted(self.bank.times, seconds, side='right'))
            self.bank = Bank(
                np.insert(self.bank.rows, [place] * len(rows), rows, axis=0),
                np.insert(self.bank.times, [place] * len(rows), seconds),
                [*self.bank.names[:place], *[name] * len(rows), *self.bank.names[place:]],
            )
        end = int(np.searchsorted(self.bank.times, seconds, side='right'))
        newest = self.bank.rows[max(0, end - self._most) : end]
        features = np.zeros((self._most, self._length), np.float32)
        features[: len(newest)] = newest
        return {
            InputFields.CONTEXT_FEATURES: features,
            InputFields.VALID_CONTEXT_SIZE: np.int32(len(newest)),
        }

    def save(self) -> None:
        """Writes the file, with at most 25 million numbers; the oldest embeddings are left out.

        An interrupted call leaves the earlier file.
        """
        oldest = max(0, len(self.bank.rows) - _MOST_NUMBERS // self._length)
        with files.replacing(str(self._path)) as draft, open(draft, 'wb') as file:
            np.savez(
                file,
                format=np.int64(_FORMAT),
                rows=self.bank.rows[oldest:],
                times=self.bank.times[oldest:],
                names=np.array(self.bank.names[oldest:], dtype=np.str_),
            )

    def _embed(self, image: np.ndarray, time: datetime.datetime) -> np.ndarray:
        outputs = self._embedder(image)
        features = outputs.get(DetectionFields.FEATURES)
        if features is None:
            raise UserError(
                f'{self._embedder.source}: expected a model that returns '
                f'{DetectionFields.FEATURES}; set output_final_box_features of its config and '
                f'export it again. Received: {", ".join(sorted(outputs))}.'
            )
        count = min(self._count, int(outputs[DetectionFields.NUM_DETECTIONS]))
        # Only the means leave the device.
        means = np.asarray(features[:count]).mean(axis=(1, 2))
        boxes = np.asarray(outputs[DetectionFields.BOXES][:count])
        rows = context_embeddings.embed(means, boxes, time)
        if rows.shape[1] != self._length:
            raise UserError(
                f'{self._embedder.source}: its features make embeddings of {rows.shape[1]} numbers '
                f'(with the box and the time). Expected {self._length}, the context_feature_length '
                'of the model.'
            )
        return rows


def limits(detector: Detector) -> tuple[int, int]:
    """Returns N and L of the context features that a model takes.

    Raises:
      UserError: if it takes none.
    """
    spec = detector.side_inputs.get(InputFields.CONTEXT_FEATURES)
    if spec is None or None in spec.shape[1:]:
        received = ', '.join(sorted(detector.side_inputs)) or 'images alone'
        raise UserError(
            f'{detector.source}: expected a model that takes {InputFields.CONTEXT_FEATURES} of a '
            f'fixed number, which one with `context_config` does. Received one that takes '
            f'{received}.'
        )
    return int(spec.shape[1]), int(spec.shape[2])


def time_taken(path: str | os.PathLike) -> datetime.datetime:
    """Returns when a photo was taken: by its EXIF data, else the time of its file, in UTC."""
    try:
        with Image.open(path) as image:
            exif = image.getexif()
            text = exif.get_ifd(_EXIF_IFD).get(_TAKEN) or exif.get(_CHANGED)
            return datetime.datetime.strptime(str(text).strip('\0 '), _EXIF_TIME)
    except (OSError, UnidentifiedImageError, ValueError, Image.DecompressionBombError):
        changed = os.path.getmtime(path)
        return datetime.datetime.fromtimestamp(changed, datetime.UTC).replace(tzinfo=None)


def in_order_of_time(paths: Sequence[str]) -> list[tuple[str, datetime.datetime]]:
    """Returns photos with the times when they were taken, the earliest first, then by name."""
    timed = [(path, time_taken(path)) for path in paths]
    return sorted(timed, key=lambda each: (each[1], each[0]))


def _read(path: pathlib.Path, length: int) -> Bank:
    if not path.exists():
        return Bank(np.zeros((0, length), np.float32), np.zeros(0, np.int64), [])
    found = _arrays(path)
    rows, times, names = found['rows'], found['times'], found['names']
    if rows.ndim != 2 or rows.shape[1] != length:
        raise UserError(
            f'{path}: expected a memory of embeddings of {length} numbers, the '
            f'context_feature_length of the model. Received: {list(rows.shape)}.'
        )
    if not len(rows) == len(times) == len(names) or (np.diff(times) < 0).any():
        raise UserError(f'{path}: the memory is damaged: its times and names do not fit its rows.')
    return Bank(rows.astype(np.float32), times.astype(np.int64), names.tolist())


def _arrays(path: pathlib.Path) -> Mapping[str, Any]:
    """Reads the arrays of a memory; bounds their size before they are allocated."""
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(each.file_size for each in archive.infolist()) > _MOST_BYTES:
                raise UserError(f'{path}: the memory is too large to be read.')
        with np.load(path, allow_pickle=False) as archive:
            found = {name: archive[name] for name in ('format', 'rows', 'times', 'names')}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(
            f'{path}: expected a memory that `tfod predict --memory` wrote. Received: {error}.'
        ) from error
    if found['format'] != _FORMAT:
        raise UserError(f'{path}: expected a memory of format 1. Received: {found["format"]}.')
    return found
