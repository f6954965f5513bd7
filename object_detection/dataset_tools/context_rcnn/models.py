"""Runs an exported detector on records, in batches; a process loads the model once."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import tensorflow as tf
from apache_beam.utils import shared

from object_detection.core.fields import DetectionFields
from object_detection.data import image_files
from object_detection.dataset_tools.context_rcnn.options import RPN_BOX_FEATURES
from object_detection.dataset_tools.context_rcnn.record_job import Counts
from object_detection.dataset_tools.context_rcnn.records import Example
from object_detection.errors import UnusableError, UserError, expected
from object_detection.runtime.input_types import TF_EXAMPLE
from object_detection.runtime.runtime import batches
from object_detection.runtime.saved_detector import SavedModelRuntime, find_saved_model

Outputs = dict[str, np.ndarray]

# Images of one size are looked for among so many batches.
_BATCHES_AT_A_TIME = 4
_BOXES = (DetectionFields.BOXES, DetectionFields.SCORES, DetectionFields.NUM_DETECTIONS)
_OUTPUT_FIELDS = {
    DetectionFields.FEATURES: 'output_final_box_features',
    DetectionFields.CROPPED_FEATURES: 'output_final_box_rpn_features',
}


def features_output(embedding_type: str) -> str:
    """Returns the name of the output that an embedding type is made of."""
    is_rpn = embedding_type == RPN_BOX_FEATURES
    return DetectionFields.CROPPED_FEATURES if is_rpn else DetectionFields.FEATURES


class Model:
    """A detector that was exported with --input_type tf_example; it is pickled without weights.

    Args:
      directory: the output of an exporter.
      batch_size: largest number of images at a time; a model of one image at a time gets one.
      features: name of an output [B, T, h, w, C] to return as its mean over h and w, or ''.
    """

    def __init__(self, directory: str, batch_size: int, features: str = ''):
        self._directory = directory
        self._batch_size = batch_size
        self._features = features
        self._shared = shared.Shared()

    def check(self) -> None:
        """Raises a UserError if there is no SavedModel in the folder."""
        if find_saved_model(self._directory) is None:
            raise UserError(f'{self._directory}: holds no SavedModel.')

    def run(
        self,
        examples: Iterable[Example],
        counts: Counts,
        is_wanted: Callable[[Example], bool] | None = None,
    ) -> Iterator[tuple[Example, Outputs]]:
        """Yields each image, in order, with its used detections, the best first.

        All are wanted by default. Those that are not have {}; the model does not run on them. Each
        of the outputs has an axis of the image's detections: boxes float32 [n, 4], normalized;
        scores [n]; and the features [n, C]. Wanted images that cannot be decoded are left out, and
        counted as 'bad_images'.

        Raises:
          UserError: if the model cannot be used.
        """
        examples = iter(examples)
        window = self._batch_size * _BATCHES_AT_A_TIME
        while chunk := list(itertools.islice(examples, window)):
            wanted = [i for i, each in enumerate(chunk) if not is_wanted or is_wanted(each)]
            outputs: dict[int, Outputs | None] = {i: {} for i in range(len(chunk))}
            sizes = [_size(chunk[i]) for i in wanted]
            for rows in batches(sizes, self._batch_size):
                indices = [wanted[row] for row in rows]
                found = self._run_usable([chunk[i] for i in indices])
                outputs |= dict(zip(indices, found, strict=True))
            for index, example in enumerate(chunk):
                found = outputs[index]
                counts['bad_images'] += found is None
                if found is not None:
                    yield example, found

    def _run_usable(self, examples: Sequence[Example]) -> list[Outputs | None]:
        """Returns the outputs of images, None for those that cannot be decoded."""
        try:
            return self._run_batch(examples)
        except tf.errors.InvalidArgumentError as error:
            is_usable = [_has_image(example) for example in examples]
            if all(is_usable):
                raise UserError(
                    f'{self._directory} cannot process {examples[0]}, one of {len(examples)}; it '
                    f'must be exported with --input_type {TF_EXAMPLE}: {error.message[:300]}'
                ) from error
        usable = [each for each, is_good in zip(examples, is_usable, strict=True) if is_good]
        found = iter(self._run_usable(usable) if usable else [])
        return [next(found) if is_good else None for is_good in is_usable]

    def _run_batch(self, examples: Sequence[Example]) -> list[Outputs | None]:
        detector = self._shared.acquire(self._load)
        outputs = detector.run_serialized([example.with_features({}) for example in examples])
        self._check_outputs(outputs, detector.source)
        wanted = {key: outputs[key] for key in _BOXES}
        if self._features:
            # Only the mean leaves the device: the features of an image take a hundred megabytes.
            wanted[self._features] = tf.reduce_mean(outputs[self._features], axis=(2, 3))
        arrays = {key: value.numpy() for key, value in wanted.items()}
        counts = arrays.pop(DetectionFields.NUM_DETECTIONS).astype(int)
        return [_used(arrays, index, count) for index, count in enumerate(counts)]

    def _load(self) -> SavedModelRuntime:
        detector = SavedModelRuntime(self._directory)
        if detector.input_spec.dtype != tf.string:
            raise expected(
                detector.source, f'--input_type {TF_EXAMPLE}', 'an export that takes pixels'
            )
        return detector

    def _check_outputs(self, outputs: dict[str, tf.Tensor], directory: str) -> None:
        wanted = (*_BOXES, self._features) if self._features else _BOXES
        missing = [name for name in wanted if name not in outputs]
        if missing:
            fields = [_OUTPUT_FIELDS[name] for name in missing if name in _OUTPUT_FIELDS]
            hint = f'; set {", ".join(fields)} of its config and export again' if fields else ''
            raise expected(
                directory, f'the outputs {", ".join(wanted)}{hint}', f'no {", ".join(missing)}'
            )


def _size(example: Example) -> tuple[int, int] | None:
    """Returns the size of the image file: what the record states may be another one."""
    try:
        return image_files.stored_size(example.encoded())
    except UnusableError:
        return None


def _has_image(example: Example) -> bool:
    try:
        image_files.check(example.encoded())
    except UnusableError:
        return False
    return True


def _used(arrays: Outputs, index: int, count: int) -> Outputs:
    """Returns the used rows of an image, by descending score."""
    order = np.argsort(-arrays[DetectionFields.SCORES][index, :count], kind='stable')
    return {key: value[index, :count][order] for key, value in arrays.items()}
