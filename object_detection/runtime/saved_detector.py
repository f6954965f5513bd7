"""Runs an exported SavedModel on images."""

import contextlib
import hashlib
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

from object_detection.core import tf_example_keys as keys
from object_detection.errors import UserError
from object_detection.models import precision as precisions
from object_detection.resizers.value_range import DEFAULT_RANGE, ValueRange
from object_detection.runtime import class_names, side_inputs
from object_detection.runtime.input_types import FLOAT_IMAGE_TENSOR, TF_EXAMPLE
from object_detection.runtime.runtime import Runtime, as_type

_FILE, _FOLDER = 'saved_model.pb', 'saved_model'
# Has the checksums of all weights.
_WEIGHTS_INDEX = 'variables/variables.index'
# Names of inputs.
_INPUT, _BOXES = 'input_tensor', 'boxes'


def find_saved_model(directory: str | os.PathLike) -> pathlib.Path | None:
    """Returns the folder of a SavedModel: `directory` or its `saved_model`; None without one."""
    path = pathlib.Path(directory)
    return next((p for p in (path / _FOLDER, path) if (p / _FILE).is_file()), None)


class SavedModelRuntime(Runtime):
    """An exported detector; see `Runtime`.

    Args:
      directory: output of an exporter, or its `saved_model` folder.

    Raises:
      ValueError: if there is no SavedModel with the signature `serving_default`, or if that
        signature takes boxes.
    """

    def __init__(self, directory: str | os.PathLike):
        path = find_saved_model(directory)
        if path is None:
            raise UserError(
                f'{directory}: holds no SavedModel (no {_FILE} here or in {_FOLDER}/); '
                'give the output directory of `tfod export`.'
            )
        self.source = str(path)
        self._model = tf.saved_model.load(self.source)
        if 'serving_default' not in self._model.signatures:
            raise UserError(f'{path}: the SavedModel has no signature `serving_default`.')
        self._serve = self._model.signatures['serving_default']
        inputs = dict(self._serve.structured_input_signature[1])
        # Without their boxes, the models that take given boxes find nothing.
        if len(inputs) > 1 and (_INPUT not in inputs or _BOXES in inputs):
            raise UserError(
                f'{path}: expected a SavedModel that takes images, or images and a context. '
                f'Received one that takes {", ".join(sorted(inputs))}; call what '
                '`tf.saved_model.load` returns.'
            )
        self._input_name = _INPUT if _INPUT in inputs else next(iter(inputs))
        self._spec = inputs.pop(self._input_name)
        self.side_inputs = inputs
        # If the model does not store the input type, a string input is an encoded image.
        self._takes_examples = self._stored_text('input_type') == TF_EXAMPLE
        self.precision = self._stored_text('precision')
        stored = getattr(self._model, 'value_range', None)
        self.value_range = None if stored is None else ValueRange(*stored().numpy().tolist())
        stored = getattr(self._model, 'advised_threshold', None)
        # Stored as float32.
        self.advised_threshold = None if stored is None else round(float(stored()[0]), 4)
        self.labels = class_names.parse(self._read_label_map(path))
        if self.precision is not None:
            precisions.warn_if_not_faster(self.precision)

    @property
    def traced_function(self) -> Any:
        return self._serve

    @property
    def input_spec(self) -> tf.TensorSpec:
        return tf.TensorSpec(self._spec.shape, self._spec.dtype, self._input_name)

    def fingerprint(self) -> str:
        path = pathlib.Path(self.source, _WEIGHTS_INDEX)
        # Weights may be constants of the graph.
        content = path if path.is_file() else pathlib.Path(self.source, _FILE)
        return f'SavedModel {hashlib.sha256(content.read_bytes()).hexdigest()}'

    def as_input(self, encoded: bytes) -> bytes:
        """Returns an image file as an element of a string input."""
        if self._takes_examples:
            value = tf.train.Feature(bytes_list=tf.train.BytesList(value=[encoded]))
            features = tf.train.Features(feature={keys.ENCODED: value})
            encoded = tf.train.Example(features=features).SerializeToString()
        return encoded

    def image_of(self, row: bytes) -> bytes:
        """Returns the image file in an element of a string input, the reverse of `as_input`.

        Raises:
          UserError: if a model takes tf.Examples and this is none.
        """
        if not self._takes_examples:
            return row
        try:
            features = tf.train.Example.FromString(row).features.feature
        except DecodeError as error:
            raise UserError('expected a serialized tf.Example. Received: other bytes.') from error
        return b''.join(features[keys.ENCODED].bytes_list.value[:1])

    def run_batch(self, images: tf.Tensor, **given: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the outputs as `Runtime.run_batch`.

        Models that take one image at a time, as the reference exports them, are run B times.

        Raises:
          UserError: for values that no image file of the model can hold.
        """
        if self._spec.dtype == tf.string:
            inputs = tf.stack([self._encode(image) for image in images])
        else:
            inputs = as_type(images, self._spec.dtype)
        return self._run_rows(inputs, given)

    def run_serialized(self, rows: Sequence[bytes]) -> dict[str, tf.Tensor]:
        """Returns the outputs for B elements of a string input, such as serialized tf.Examples."""
        return self._run_rows(tf.constant(list(rows)))

    def _run_rows(
        self, inputs: tf.Tensor, given: Mapping[str, tf.Tensor] | None = None
    ) -> dict[str, tf.Tensor]:
        """Runs a batch at once, or row by row if the model takes one image at a time."""
        given = given or {}
        if not self._takes_one_at_a_time():
            return self._run(inputs, given)
        rows = [
            self._run(inputs[i : i + 1], {name: value[i : i + 1] for name, value in given.items()})
            for i in range(len(inputs))
        ]
        # Other outputs of such a model than detections have no axis of images.
        return {
            key: tf.concat([row[key] for row in rows], axis=0)
            for key, value in rows[0].items()
            if value.shape.rank and value.shape[0] == 1
        }

    def _takes_one_at_a_time(self) -> bool:
        specs = (self._spec, *self.side_inputs.values())
        return any(spec.shape.rank and spec.shape[0] == 1 for spec in specs)

    def _run(
        self, inputs: tf.Tensor, given: Mapping[str, tf.Tensor] | None = None
    ) -> dict[str, tf.Tensor]:
        values = side_inputs.or_zeros(given or {}, self.side_inputs, len(inputs))
        # The graph does not store whether GPUs use TF32.
        with precisions.scope(self.precision) if self.precision else contextlib.nullcontext():
            return self._serve(**{self._input_name: inputs}, **values)

    def _read_label_map(self, path: pathlib.Path) -> str | None:
        asset = path / 'assets' / class_names.LABEL_MAP
        return class_names.read_file(str(asset)) if asset.is_file() else None

    def _stored_text(self, what: str) -> str | None:
        """Calls a function of the model that returns text; None in SavedModels of other tools."""
        describe = getattr(self._model, what, None)
        return None if describe is None else describe().numpy().decode()

    def _encode(self, image: tf.Tensor) -> bytes:
        """Encodes one image as an element of a string input."""
        if image.dtype != tf.uint8:
            # A file of 16 bits holds the values of a range, but no negative or other ones.
            known = self.value_range or DEFAULT_RANGE
            if not 0 <= known.min < known.max <= np.iinfo(np.uint16).max:
                raise UserError(
                    f'{self.source}: takes image files, which hold no values of '
                    f'{known.min:g} to {known.max:g}; export the model with --input_type '
                    f'{FLOAT_IMAGE_TENSOR} for such arrays.'
                )
            image = as_type(image, tf.uint8 if self.value_range is None else tf.uint16)
        return self.as_input(tf.io.encode_png(image).numpy())
