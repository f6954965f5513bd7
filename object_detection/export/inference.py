"""Runs an exported SavedModel on single images."""

import contextlib
import os
import pathlib

import numpy as np
import tensorflow as tf

from object_detection.evaluation.detections import ImageDetections, unbatch
from object_detection.export.input_types import TF_EXAMPLE
from object_detection.training import precision as precisions


class SavedDetector:
    """An exported detector.

    Args:
      directory: what an exporter wrote, or its `saved_model` folder.

    Attributes:
      precision: that it computes in; None where the model does not say.

    Raises:
      ValueError: if there is no SavedModel with the signature `serving_default`.
    """

    def __init__(self, directory: str | os.PathLike):
        path = pathlib.Path(directory)
        if (path / 'saved_model').is_dir():
            path /= 'saved_model'
        if not (path / 'saved_model.pb').is_file():
            raise ValueError(
                f'{directory}: holds no SavedModel (no saved_model.pb here or in saved_model/); '
                'give the output directory of `tfod export`.'
            )
        self._model = tf.saved_model.load(str(path))
        if 'serving_default' not in self._model.signatures:
            raise ValueError(f'{path}: the SavedModel has no signature `serving_default`.')
        self._serve = self._model.signatures['serving_default']
        (self._input_name,) = self._serve.structured_input_signature[1]
        self._dtype = self._serve.structured_input_signature[1][self._input_name].dtype
        # Where it does not say, a string input is an encoded image.
        self._takes_examples = self._said('input_type') == TF_EXAMPLE
        self.precision = self._said('precision')
        if self.precision is not None:
            precisions.tell_if_in_vain(self.precision)

    def run(self, image: np.ndarray, encoded: bytes | None = None) -> dict[str, np.ndarray]:
        """Returns the raw outputs for one image, without the batch dimension.

        Args:
          image: uint8 [H, W, 3], RGB.
          encoded: the image file's bytes, used by models that take encoded images; PNG is made of
            `image` where it is None.
        """
        # Whether GPUs take TF32 is no part of a graph.
        with precisions.scope(self.precision) if self.precision else contextlib.nullcontext():
            outputs = self._serve(**{self._input_name: self._as_input(image, encoded)})
        return {key: value.numpy()[0] for key, value in outputs.items()}

    def detect(self, image: np.ndarray, encoded: bytes | None = None) -> ImageDetections:
        """Detects objects in one image; arguments as for `run`."""
        outputs = {key: value[np.newaxis] for key, value in self.run(image, encoded).items()}
        (detections,) = unbatch(outputs, np.array([image.shape[:2]]), label_id_offset=0)
        return detections

    def _said(self, what: str) -> str | None:
        """What the model says of itself; SavedModels that other tools wrote say nothing."""
        describe = getattr(self._model, what, None)
        return None if describe is None else describe().numpy().decode()

    def _as_input(self, image: np.ndarray, encoded: bytes | None) -> tf.Tensor:
        if self._dtype != tf.string:
            return tf.cast(image[np.newaxis], self._dtype)
        if encoded is None:
            encoded = tf.io.encode_png(image).numpy()
        if self._takes_examples:
            value = tf.train.Feature(bytes_list=tf.train.BytesList(value=[encoded]))
            features = tf.train.Features(feature={'image/encoded': value})
            encoded = tf.train.Example(features=features).SerializeToString()
        return tf.constant([encoded])


def read_image(path: str | os.PathLike) -> tuple[np.ndarray, bytes]:
    """Returns an image file as uint8 [H, W, 3], RGB, and its bytes.

    Raises:
      ValueError: if the file is not an image that can be read.
    """
    encoded = pathlib.Path(path).read_bytes()
    try:
        image = tf.io.decode_image(encoded, channels=3, expand_animations=False)
    except tf.errors.InvalidArgumentError as error:
        raise ValueError(f'{path}: not an image that can be read: {error.message}') from error
    return image.numpy(), encoded
