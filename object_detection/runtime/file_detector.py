"""A detector that a model file and its description make, for every format of the file."""

import hashlib
import pathlib
from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders import image_resizer_builder
from object_detection.core.fields import DetectionFields
from object_detection.data.label_map import LabelMap
from object_detection.errors import UserError, expected
from object_detection.protos import image_resizer_pb2
from object_detection.resizers.resizer import Resizer
from object_detection.resizers.value_range import DEFAULT_RANGE
from object_detection.runtime.description import ModelDescription, path_beside
from object_detection.runtime.runtime import Runtime, as_type

Arrays = dict[str, np.ndarray]


class FileRuntime(Runtime):
    """Resizes images as the description says, runs the file, and names the outputs; see `Runtime`.

    Args:
      path: the model file, for messages.
      description: its description.
      run: function that runs the file: arrays by the names of `description.inputs`, of their
        dtypes and shapes -> arrays by the names of `description.outputs`, with the axis B.

    Attributes:
      description: its description.
      sees_padding: whether the file does not know which part of its input is padding, so that
        detections there take places of others.

    Raises:
      UserError: if the description's resizer does not give the input's size.
    """

    sees_padding = False

    def __init__(
        self, path: pathlib.Path, description: ModelDescription, run: Callable[[Arrays], Arrays]
    ):
        self.source = str(path)
        self.description = description
        self.precision = description.precision
        self.advised_threshold = description.advised_threshold
        names = description.class_names
        ids = {name: number for number, name in names.items()}
        # Without keypoints, which files do not store.
        self.labels = LabelMap([{'id': i, 'name': name} for i, name in names.items()], ids, ids)
        self._run = run
        self._resizer = _build_resizer(path, description) if description.resizer else None
        of_file = None if description.value_range == DEFAULT_RANGE else description.value_range
        self.value_range = self._resizer.value_range if self._resizer else of_file

    @property
    def input_size(self) -> tuple[int, int] | None:
        height, width = self.description.inputs[0].shape[1:3]
        return None if height is None or width is None else (height, width)

    @property
    def quantization(self) -> str | None:
        return self.description.details.get('quantization')

    def fingerprint(self) -> str:
        return hashlib.sha256(pathlib.Path(self.source).read_bytes()).hexdigest()

    def run_batch(self, images: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the outputs as `Runtime.run_batch`; a file of a fixed batch size is run often."""
        inputs = self._inputs(images)
        size = self.description.inputs[0].shape[0]
        if size is None:
            outputs = self._run(inputs)
        else:
            outputs = self._in_batches(inputs, size, len(images))
        outputs = {key: tf.constant(value, tf.float32) for key, value in outputs.items()}
        if DetectionFields.CLASSES in outputs:
            outputs[DetectionFields.CLASSES] += 1.0 - self.description.first_class_id
        return outputs

    def in_true_images(
        self, outputs: Mapping[str, tf.Tensor], size: tuple[int, int]
    ) -> dict[str, tf.Tensor]:
        """Returns outputs of the frame of the file in that of images of (height, width) `size`."""
        del size
        return dict(outputs)

    def _inputs(self, images: tf.Tensor) -> Arrays:
        spec, *others = self.description.inputs
        if self._resizer is None:
            return {spec.name: as_type(images, tf.as_dtype(spec.dtype)).numpy()}
        resized, true_shape = self._resizer(self._resizer.pixels(images))
        inputs = {spec.name: resized.numpy()}
        if others:
            inputs[others[0].name] = np.tile(true_shape.numpy(), [len(images), 1])
        return inputs

    def _in_batches(self, inputs: Arrays, size: int, count: int) -> Arrays:
        """Runs batches of `size` images; the last one is filled up with black images."""
        batches = []
        for start in range(0, max(count, 1), size):
            rows = {key: value[start : start + size] for key, value in inputs.items()}
            batches.append(self._run({key: _filled_up(v, size) for key, v in rows.items()}))
        return {
            key: np.concatenate([batch[key] for batch in batches])[:count] for key in batches[0]
        }


def _filled_up(rows: np.ndarray, size: int) -> np.ndarray:
    # Ones: a true shape of no pixels would give boxes that are no numbers.
    return np.concatenate([rows, np.ones((size - len(rows), *rows.shape[1:]), rows.dtype)])


def _build_resizer(path: pathlib.Path, description: ModelDescription) -> Resizer:
    where = path_beside(path)
    config = image_resizer_pb2.ImageResizer()
    try:
        text_format.Parse(description.resizer, config)
        resizer = image_resizer_builder.build(config)
    except (text_format.ParseError, ValueError) as error:
        raise UserError(f'{where}: resizer: {error}') from error
    shape = description.inputs[0].shape[1:]
    if resizer.static_shape != shape:
        raise expected(
            f'{where}: resizer', f'images {list(shape)}, the input', resizer.static_shape
        )
    return resizer
