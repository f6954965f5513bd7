"""A detector as a function of images: `Predictor('exported')('photo.jpg')`."""

import dataclasses
import itertools
import numbers
import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, overload

import numpy as np

from object_detection.core.detections import Detections
from object_detection.data.file_access import is_image
from object_detection.data.tiff.tiff_files import LargeImage
from object_detection.errors import UserError, expected
from object_detection.prediction import loading, merging, sources, tracking, views
from object_detection.prediction.prediction import Prediction, class_ids, of_path
from object_detection.prediction.sources import Frame
from object_detection.prediction.views import Augmentation, Tiling
from object_detection.runtime import images as image_inputs
from object_detection.runtime.images import ImageLike
from object_detection.runtime.runtime import Runtime, batches

BEST = 'best'
_FAINT = 0.05
# Longest side of a large image as a whole; models make images smaller than that.
_WHOLE_SIDE = 2048


class Predictor:
    """A model with its weights, which finds objects in images.

    It may be called from several threads; the model runs one batch at a time.

    Args:
      path: an export of any format, a SavedModel, the `model_dir` of a training, the prefix of a
        checkpoint or an unpacked archive, as for `object_detection.load`.
      score_threshold: lowest score of the objects that are returned; 'best' takes that of the
        greatest F1 in the evaluation of the model.
      classes: names or ids of the classes that are returned; None returns all.
      precision: the precision in which the model computes, such as 'bfloat16' or 'float16'; None
        takes that of the config or the export, the precision of which cannot be changed.
      batch_size: maximum number of images, of one size, that the model runs on at a time.
      tiling: cuts large images into tiles, as `views.Tiling(640)` does; None does not.
      augmentation: looks at flips and scales of each image, as `views.Augmentation.parse('flip')`
        does; None does not.
      max_pixels: maximum number of pixels of an image; larger ones are refused before they are
        decoded.
      checkpoint, config, label_map: as for `object_detection.load`.

    Attributes:
      labels: the classes; none where no label map was found.
      class_names: class id, from 1 -> name.
      keypoint_edges: pairs of keypoints between which pictures have lines; empty without keypoints
        in the label map.
      score_threshold, batch_size, tiling, augmentation, max_pixels: see above.
      advised_threshold: the score that 'best' stands for; None where it is not known.
      detector: the model, as `object_detection.load` returns it.
      source: the SavedModel, the model file, or the prefix of the checkpoint.
      precision: the precision in which it computes; None if an export does not store it.
      value_range: the range of the values of images that the model declares; None is 0..255.
      quantization: what the weights of a file were rounded to, such as 'int8', if it says so.

    Raises:
      UserError: if there is no model, or an option does not fit it.
    """

    def __init__(
        self,
        path: str | os.PathLike,
        *,
        score_threshold: float | Literal['best'] = 0.5,
        classes: Collection[int | str] | None = None,
        precision: str | None = None,
        batch_size: int = 8,
        tiling: Tiling | None = None,
        augmentation: Augmentation | None = None,
        max_pixels: int = image_inputs.MAX_PIXELS,
        checkpoint: str | os.PathLike | None = None,
        config: str | os.PathLike | None = None,
        label_map: str | os.PathLike | None = None,
    ):
        if score_threshold != BEST:
            _check_threshold(score_threshold)
        if batch_size < 1:
            raise expected('Predictor', 'a batch_size of at least 1', batch_size)
        self.detector = loading.load(
            path, checkpoint=checkpoint, config=config, label_map=label_map, precision=precision
        )
        self._lock = threading.Lock()
        self.labels = self.detector.labels
        self.class_names = self.detector.class_names
        self.keypoint_edges = self.detector.keypoint_edges
        self.source = self.detector.source
        self.precision = self.detector.precision
        self.value_range = self.detector.value_range
        self.quantization = self.detector.quantization
        self.advised_threshold = self.detector.advised_threshold
        self.score_threshold = _chosen(score_threshold, self.detector)
        self.batch_size = batch_size
        self.tiling = tiling
        self.augmentation = augmentation
        self.max_pixels = max_pixels
        self._classes = None if classes is None else class_ids(classes, self.labels)

    def __repr__(self) -> str:
        return f'<Predictor of {self.source}, {len(self.class_names)} class names>'

    @overload
    def __call__(self, images: ImageLike, **options: Any) -> Prediction: ...

    @overload
    def __call__(self, images: Sequence[ImageLike], **options: Any) -> list[Prediction]: ...

    def __call__(
        self, images: ImageLike | Sequence[ImageLike], *, score_threshold: float | None = None
    ) -> Prediction | list[Prediction]:
        """Finds objects.

        Args:
          images: a path, the bytes of an image file, a PIL image or an array [H, W, 3], see
            `images.read`; or a list of those. A list is held in memory; `stream` takes any number.
          score_threshold: lowest score of the objects that are returned; None takes the
            predictor's.

        Returns:
          What was found in the image; a list of it for a list.

        Raises:
          UserError: for an image that cannot be read or is too large.
        """
        if isinstance(images, (list, tuple)):
            return list(self.stream(images, score_threshold=score_threshold))
        return next(self.stream([images], score_threshold=score_threshold))

    def stream(
        self,
        images: Iterable[ImageLike],
        *,
        score_threshold: float | None = None,
        on_error: Callable[[ImageLike, UserError], None] | None = None,
    ) -> Iterator[Prediction]:
        """Finds objects in any number of images; holds `batch_size` of them in memory.

        Args:
          images: as for a call.
          score_threshold: as for a call.
          on_error: is called with each image that cannot be read, and the error; the image is left
            out. None ends at the first one.

        Yields:
          What was found in each image, in order.

        Raises:
          UserError: as a call, without `on_error`.
        """
        remaining = self._readable(images, on_error)
        while batch := list(itertools.islice(remaining, self.batch_size)):
            arrays = [array for _, array in batch]
            found = self.predict_batch(arrays, score_threshold=score_threshold)
            for (image, _), prediction in zip(batch, found, strict=True):
                is_path = isinstance(image, (str, os.PathLike))
                yield of_path(prediction, image if is_path else None)

    def track(
        self,
        frames: str | os.PathLike | Iterable[ImageLike],
        *,
        rate: float | None = None,
        score_threshold: float | None = None,
    ) -> Iterator[Prediction]:
        """Finds objects in the frames of a video, and numbers them: `Prediction.track_ids`.

        Args:
          frames: a video, camera or stream as `tfod predict --input` takes it; a folder of frames,
            in the order of their names; or images in order.
          rate: frames in a second; None takes that of the video, and 30 for images.
          score_threshold: score with which an object begins a track, in which it may have less;
            None takes the predictor's.

        Yields:
          The objects of each frame that belong to a track, which may not be the first frame that
          shows them.

        Raises:
          UserError: as a call; if there is no such video; if a package is not installed.
        """
        threshold = self.score_threshold if score_threshold is None else score_threshold
        tracker = None
        remaining = self._frames(frames)
        while batch := list(itertools.islice(remaining, self.batch_size)):
            if tracker is None:
                clip = batch[0].clip
                own = tracking.DEFAULT_RATE if clip is None else float(clip.rate)
                tracker = tracking.Tracker(score_threshold=threshold, rate=rate or own)
            arrays = [frame.image for frame in batch]
            found = self.predict_batch(arrays, score_threshold=tracking.faint(threshold))
            for frame, prediction in zip(batch, found, strict=True):
                tracked = tracker.update(prediction)
                yield of_path(tracked.take(tracked.track_ids > 0), frame.source or None)

    def _frames(self, frames: str | os.PathLike | Iterable[ImageLike]) -> Iterator[Frame]:
        if not isinstance(frames, (str, os.PathLike)):
            for image in frames:
                path = os.fspath(image) if isinstance(image, (str, os.PathLike)) else ''
                yield Frame(self._read(image), path)
            return
        path = os.fspath(frames)
        names = [path]
        if os.path.isdir(path):
            names = [
                os.path.join(path, name) for name in sorted(os.listdir(path)) if is_image(name)
            ]
        for name in names:
            yield from sources.read(
                name, self.max_pixels, self.value_range, channels=self.detector.channels
            )

    def predict_batch(
        self,
        images: Sequence[np.ndarray],
        *,
        score_threshold: float | None = None,
        contexts: Sequence[Mapping[str, np.ndarray]] | None = None,
    ) -> list[Prediction]:
        """Finds objects in images that are decoded; those of one size share runs of the model.

        Args:
          images: [H, W, 3], RGB, each of its own size, as `images.read` returns them.
          score_threshold: as for a call.
          contexts: for each image, what the model takes with it, as `memory.Memory.see` returns it.

        Returns:
          What was found in each image, in order.
        """
        threshold = self.score_threshold if score_threshold is None else score_threshold
        _check_threshold(threshold)
        arrays = [self._read(image) for image in images]
        found = self._detect(arrays, threshold, contexts)
        return [
            Prediction(
                **each.arrays(),
                size=each.size,
                image=self._picture(image),
                names=self.class_names,
                keypoint_edges=self.keypoint_edges,
            )
            for image, each in zip(arrays, found, strict=True)
        ]

    def _readable(
        self, images: Iterable[ImageLike], on_error: Callable[[ImageLike, UserError], None] | None
    ) -> Iterator[tuple[ImageLike, np.ndarray]]:
        for image in images:
            try:
                array = self._read(image)
            except UserError as error:
                if on_error is None:
                    raise
                on_error(image, error)
            else:
                yield image, array

    def _read(self, image: ImageLike) -> np.ndarray | LargeImage:
        in_parts = self.tiling is not None
        return image_inputs.read(
            image,
            self.max_pixels,
            self.value_range,
            channels=self.detector.channels,
            in_parts=in_parts,
        )

    def _picture(self, image: np.ndarray | LargeImage) -> np.ndarray | LargeImage:
        if isinstance(image, LargeImage):
            return image
        return image_inputs.picture(image, self.value_range)

    def _detect(
        self,
        images: Sequence[np.ndarray],
        threshold: float,
        contexts: Sequence[Mapping[str, np.ndarray]] | None,
    ) -> list[Detections]:
        if contexts is not None:
            if self.tiling or self.augmentation:
                raise UserError('Predictor: tiles, flips and scales have no context of their own.')
            return self._run(images, threshold, contexts)
        if self.tiling is None:
            return self._augmented(images, threshold)
        return [self._tiled(image, self.tiling, threshold) for image in images]

    def _tiled(self, image: np.ndarray, tiling: Tiling, threshold: float) -> Detections:
        size = image.shape[:2]
        tiles = tiling.tiles(*size)
        if len(tiles) == 1:
            return self._augmented([image], threshold)[0]
        found = []
        # A large image stays in its file, of which a batch of tiles is read at a time.
        for start in range(0, len(tiles), self.batch_size):
            batch = tiles[start : start + self.batch_size]
            objects = self._augmented([views.crop(image, tile) for tile in batch], threshold)
            found += [
                merging.moved(each, (tile.top, tile.left), (1, 1), size)
                for each, tile in zip(objects, batch, strict=True)
            ]
        if tiling.whole_image:
            tiles.append(merging.Tile(0, 0, *size))
            whole = image.reduced(_WHOLE_SIDE) if isinstance(image, LargeImage) else image
            (objects,) = self._augmented([whole], threshold)
            scale = (size[0] / whole.shape[0], size[1] / whole.shape[1])
            found.append(merging.moved(objects, (0, 0), scale, size))
        return merging.joined(found, tiles, size)

    def _augmented(self, images: Sequence[np.ndarray], threshold: float) -> list[Detections]:
        if self.augmentation is None:
            return self._run(images, threshold)
        return [self._merged(image, self.augmentation, threshold) for image in images]

    def _merged(
        self, image: np.ndarray, augmentation: Augmentation, threshold: float
    ) -> Detections:
        variants = augmentation.variants(image, self.max_pixels, self.labels)
        arrays = [array for variant in variants for array in variant.images]
        # Faint objects of one view have a part in the score of all.
        found = iter(self._run(arrays, min(threshold, _FAINT)))
        whole = [each.merge(list(itertools.islice(found, len(each.images)))) for each in variants]
        merged = views.MERGES[augmentation.merge](whole)
        return merged.above(threshold)

    def _run(
        self,
        images: Sequence[np.ndarray],
        threshold: float,
        contexts: Sequence[Mapping[str, np.ndarray]] | None = None,
    ) -> list[Detections]:
        """Runs the model on images, those of one size together."""
        found: list[Detections | None] = [None] * len(images)
        for rows in batches([image.shape for image in images], self.batch_size):
            given = {} if contexts is None else _stacked([contexts[row] for row in rows])
            # A detector sets the precision of the whole process while it runs.
            with self._lock:
                batch = self.detector.run([images[row] for row in rows], **given)
            for row, each in zip(rows, batch, strict=True):
                found[row] = self._chosen(_in_float32(each), threshold)
        return found

    def _chosen(self, found: Detections, threshold: float) -> Detections:
        keep = found.scores >= threshold
        if self._classes is not None:
            keep &= np.isin(found.classes, self._classes)
        return found.take(keep)


def _chosen(threshold: float | str, detector: Runtime) -> float:
    if threshold != BEST:
        return threshold
    if detector.advised_threshold is None:
        raise UserError(
            f'score_threshold: {BEST!r} needs a model that was evaluated by `tfod eval` before it '
            f'was exported, which {detector.source} does not say. Expected a number.'
        )
    return detector.advised_threshold


def _check_threshold(value: float) -> None:
    if not (isinstance(value, numbers.Real) and 0 <= value <= 1):
        raise UserError(f'score_threshold: expected a number from 0 to 1. Received: {value!r}.')


def _stacked(contexts: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.stack([each[name] for each in contexts]) for name in contexts[0]}


def _in_float32(found: Detections) -> Detections:
    """Returns the objects as predictions have them; of class 1 if the model does not classify."""
    points = None if found.keypoints is None else found.keypoints.astype(np.float32)
    boxes = found.boxes.astype(np.float32)
    return dataclasses.replace(found, boxes=boxes, classes=found.ids(), keypoints=points)
