"""What a model with a memory remembers of a camera, in a file that grows with its images."""

import bisect
import contextlib
import datetime
import hashlib
import logging
import os
from collections.abc import Sequence
from typing import BinaryIO, NamedTuple, Self

import numpy as np
from PIL import Image

from object_detection.core import tf_example_keys as keys
from object_detection.core.fields import DetectionFields, InputFields
from object_detection.data import context_embeddings, image_files, tf_examples, tf_record_files
from object_detection.data.tf_record_files import CorruptFileError
from object_detection.dataset_tools.context_rcnn import records
from object_detection.errors import DataError, UserError, expected
from object_detection.runtime.runtime import Runtime
from object_detection.system import folder_lock

_logger = logging.getLogger(__name__)

# EXIF tags: the sub-directory of the camera, in it the time of the photo, and that of the file.
_EXIF_IFD, _TAKEN, _CHANGED = 0x8769, 0x9003, 0x0132
_EXIF_TIME = '%Y:%m:%d %H:%M:%S'
# Numbers of embeddings that are held, of the newest images: 12,000 of the reference's of 2,057.
_MAX_NUMBERS = 25_000_000
_TIME_LENGTH = 5


class _Seen(NamedTuple):
    """An image that is remembered.

    Attributes:
      seconds: when it was taken, in seconds since 1970 (UTC).
      digest: of its pixels.
      rows: float32 [k, L], its embeddings.
    """

    seconds: int
    digest: str
    rows: np.ndarray


class Memory:
    """A memory of one camera for a model with `context_config`, in a TFRecord file.

    Use it as a context manager. Each image is added to the file when it is seen, as a tf.Example
    with the keys of the embedding job; a memory whose process was killed continues after the last
    complete image.

    Args:
      path: the file; it is made if it does not exist.
      embedder: the model whose features were remembered when the data of the training were made; it
        must return `detection_features`.
      length: L, numbers of an embedding, the `context_feature_length` of the model.
      max_features: N, largest number of embeddings that the model takes; the newest are given.
      count: number of objects that are remembered of an image, those with the best scores.

    Raises:
      UserError: if the file is no memory, or one of another model, or another process uses it.
    """

    def __init__(
        self,
        path: str | os.PathLike,
        embedder: Runtime,
        *,
        length: int,
        max_features: int,
        count: int = 1,
    ):
        self._path = os.fspath(path)
        self._embedder, self._fingerprint = embedder, embedder.fingerprint()
        self._length, self._max_features, self._count = length, max_features, count
        self._seen: list[_Seen] = []
        self._known: set[tuple[int, str]] = set()
        self._num_numbers = 0
        self._file = self._open()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the use of the file."""
        self._file.close()

    def see(self, image: np.ndarray, name: str, time: datetime.datetime) -> dict[str, np.ndarray]:
        """Remembers an image, and returns what the model takes with it.

        An image that is in the memory, by its pixels and its time, is not remembered again.

        Args:
          image: [H, W, 3], RGB, with the values that the embedding model takes.
          name: name of the image, for those who read the file.
          time: when it was taken, in UTC or without a zone.

        Returns:
          `context_features` float32 [N, L] and `valid_context_size` int32 []: the embeddings of
          this image and of those before it, in order of time, the newest N.
        """
        seconds = int(time.replace(tzinfo=datetime.UTC).timestamp())
        digest = hashlib.sha256(np.ascontiguousarray(image)).hexdigest()
        if (seconds, digest) not in self._known:
            seen = _Seen(seconds, digest, self._embed(image, time))
            self._write(seen, name)
            self._add(seen)
        return self._context(seconds)

    def _context(self, seconds: int) -> dict[str, np.ndarray]:
        features = np.zeros((self._max_features, self._length), np.float32)
        end = bisect.bisect_right(self._seen, seconds, key=_time_of)
        chosen: list[np.ndarray] = []
        missing = self._max_features
        # Many images have no objects.
        while end > 0 and missing > 0:
            end -= 1
            chosen.append(self._seen[end].rows[-missing:])
            missing -= len(chosen[-1])
        size = self._max_features - missing
        if size:
            features[:size] = np.concatenate(chosen[::-1])
        return {
            InputFields.CONTEXT_FEATURES: features,
            InputFields.VALID_CONTEXT_SIZE: np.int32(size),
        }

    def _add(self, seen: _Seen) -> None:
        """Adds an image; the oldest are forgotten if there are too many."""
        place = bisect.bisect_right(self._seen, seen.seconds, key=_time_of)
        self._seen.insert(place, seen)
        self._known.add((seen.seconds, seen.digest))
        self._num_numbers += seen.rows.size
        while self._num_numbers > _MAX_NUMBERS:
            oldest = self._seen.pop(0)
            self._known.discard((oldest.seconds, oldest.digest))
            self._num_numbers -= oldest.rows.size

    def _write(self, seen: _Seen, name: str) -> None:
        tf_record_files.write_record(
            self._file,
            tf_examples.serialize(
                {
                    keys.SOURCE_ID: tf_examples.text_feature([name]),
                    keys.SHA256: tf_examples.text_feature([seen.digest]),
                    keys.UNIX_SECONDS: tf_examples.int64_feature([seen.seconds]),
                    keys.EMBEDDING: tf_examples.float_feature(seen.rows.ravel()),
                    keys.EMBEDDING_COUNT: tf_examples.int64_feature([len(seen.rows)]),
                    keys.EMBEDDING_LENGTH: tf_examples.int64_feature([self._length]),
                    keys.EMBEDDING_MODEL: tf_examples.text_feature([self._fingerprint]),
                }
            ),
        )
        self._file.flush()

    def _open(self) -> BinaryIO:
        """Opens the file, keeps other processes out and reads what it holds."""
        with contextlib.ExitStack() as closed_after_errors:
            file = closed_after_errors.enter_context(open(self._path, 'ab'))
            taken = UserError(f'{self._path}: another process uses this memory.')
            folder_lock.lock(file, taken=taken, named_in_warning=self._path)
            self._read(file)
            closed_after_errors.pop_all()
            return file

    def _read(self, file: BinaryIO) -> None:
        try:
            for serialized in tf_record_files.records(self._path):
                self._add(self._parse(serialized))
        except CorruptFileError as error:
            if error.reason != 'truncated_file' or not self._seen:
                raise UserError(f'{error}. Expected a memory of `tfod predict`.') from error
            _logger.warning('%s; the memory continues after the image before it', error)
            file.truncate(error.end)

    def _parse(self, serialized: bytes) -> _Seen:
        wanted = 'a memory of `tfod predict --memory`'
        try:
            example = records.parse(serialized)
            numbers = example.floats(keys.EMBEDDING)
            seconds = example.integers(keys.UNIX_SECONDS)
            lengths = example.integers(keys.EMBEDDING_LENGTH)
            embedder, digest = example.text(keys.EMBEDDING_MODEL), example.text(keys.SHA256)
        except DataError as error:
            raise UserError(f'{self._path}: expected {wanted}. {error}') from error
        if len(seconds) != 1 or len(lengths) != 1 or not embedder or not digest:
            raise expected(self._path, wanted, 'records of something else')
        if lengths[0] != self._length or len(numbers) % self._length:
            raise expected(
                self._path, f'context_feature_length, {self._length} numbers', lengths[0]
            )
        if embedder != self._fingerprint:
            raise UserError(
                f'{self._path}: expected what {self._embedder.source} remembers. Received what '
                'another model does; each embedding model needs a memory of its own.'
            )
        return _Seen(seconds[0], digest, numbers.reshape(-1, self._length))

    def _embed(self, image: np.ndarray, time: datetime.datetime) -> np.ndarray:
        outputs = self._embedder(image)
        features = outputs.get(DetectionFields.FEATURES)
        if features is None:
            raise UserError(
                f'{self._embedder.source}: expected a model that returns '
                f'{DetectionFields.FEATURES}; set output_final_box_features of its config and '
                f'export it again. Received: {", ".join(sorted(outputs))}.'
            )
        used = int(outputs[DetectionFields.NUM_DETECTIONS])
        scores = np.asarray(outputs[DetectionFields.SCORES])[:used]
        chosen = np.argsort(-scores, kind='stable')[: self._count]
        # Only the chosen features leave the device.
        means = np.stack([np.asarray(features[row]).mean(axis=(0, 1)) for row in chosen] or [[]])
        if not len(chosen):
            return np.zeros((0, self._length), np.float32)
        boxes = np.asarray(outputs[DetectionFields.BOXES])[chosen]
        has_time = self._length != means.shape[1] + context_embeddings.of_boxes(boxes).shape[1]
        rows = context_embeddings.embed(means, boxes, time if has_time else None)
        if rows.shape[1] != self._length:
            raise UserError(
                f'{self._embedder.source}: its features make embeddings of {rows.shape[1]} numbers '
                f'(with the box and the time), or of {rows.shape[1] - _TIME_LENGTH} without the '
                f'time. Expected {self._length}, the context_feature_length of the model.'
            )
        return rows.astype(np.float32)


def _time_of(seen: _Seen) -> int:
    return seen.seconds


def limits(detector: Runtime) -> tuple[int, int]:
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
        with Image.open(path, formats=image_files.READERS) as image:
            exif = image.getexif()
            text = exif.get_ifd(_EXIF_IFD).get(_TAKEN) or exif.get(_CHANGED)
            return datetime.datetime.strptime(str(text).strip('\0 '), _EXIF_TIME)
    # PIL's plugins raise many kinds of errors on a corrupt file.
    except Exception:
        changed = os.path.getmtime(path)
        return datetime.datetime.fromtimestamp(changed, datetime.UTC).replace(tzinfo=None)


def in_order_of_time(paths: Sequence[str]) -> dict[str, datetime.datetime]:
    """Returns photos with the times when they were taken, the earliest first, then by name.

    Files that are not there come last, with the latest time there is.
    """
    timed = {
        path: time_taken(path) if os.path.exists(path) else datetime.datetime.max for path in paths
    }
    return dict(sorted(timed.items(), key=lambda each: (each[1], each[0])))
