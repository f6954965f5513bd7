"""Exports a detector as a SavedModel, with the reference's signatures and directory layout."""

import os
import pathlib
import shutil
import tempfile
from collections.abc import Callable

import tensorflow as tf

from object_detection.core.fields import DetectionFields
from object_detection.data.decoder import decode_image
from object_detection.export import batch_norm_folding
from object_detection.meta_architectures.detection_model import DetectionModel

# Runs every layer whose batch norm may be folded.
_PROBE_SIZE = 128


class ServedDetector(tf.Module):
    """A detector as `serving_default`: one tensor in, float32 detections out, 1-based classes.

    Args:
      detector: built and restored; its batch norms are folded, so it can no longer be trained.
      input_type: a key of `INPUT_TYPES`.

    Raises:
      ValueError: if `input_type` is not known.
    """

    def __init__(self, detector: DetectionModel, input_type: str):
        super().__init__(name='served_detector')
        if input_type not in INPUT_TYPES:
            raise ValueError(
                f'Export: input_type must be one of {", ".join(INPUT_TYPES)}. '
                f'Received: {input_type!r}.'
            )
        self._detector = detector
        # A module that merely holds a Keras model loses its variables in some converters.
        self._variables = list(detector.named_variables().values())
        spec, self._read = INPUT_TYPES[input_type]
        self.serve = tf.function(self._serve, input_signature=[spec])
        # Encoded images and tf.Examples are both strings: a client can ask.
        self.input_type = tf.function(lambda: tf.constant(input_type), input_signature=[])

    def _serve(self, input_tensor: tf.Tensor) -> dict[str, tf.Tensor]:
        images, true_shapes = self._read(self._detector, input_tensor)
        predictions = self._detector.predict(images, true_shapes, training=False)
        detections = self._detector.postprocess(predictions, true_shapes)
        outputs = {key: tf.cast(value, tf.float32) for key, value in detections.items()}
        if DetectionFields.CLASSES in outputs:
            outputs[DetectionFields.CLASSES] += 1.0
        return outputs


def export(
    detector: DetectionModel,
    output_directory: str | os.PathLike,
    *,
    input_type: str,
    save_checkpoint: Callable[[str], None],
    pipeline_text: str,
) -> None:
    """Writes `checkpoint/`, `saved_model/` and `pipeline.config` below `output_directory`.

    Everything is written beside it first and moved when complete, so a failed export leaves nothing
    under its final name.

    Args:
      detector: built and restored; it can no longer be trained afterwards.
      output_directory: created; an earlier export there is replaced.
      input_type: a key of `INPUT_TYPES`.
      save_checkpoint: writes the unfolded variables as a checkpoint into a directory.
      pipeline_text: the pipeline config as text.
    """
    output = pathlib.Path(output_directory)
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix='.export-', dir=output) as scratch:
        draft = pathlib.Path(scratch)
        save_checkpoint(str(draft / 'checkpoint'))
        (draft / 'pipeline.config').write_text(pipeline_text)
        served = build_served(detector, input_type)
        tf.saved_model.save(
            served, str(draft / 'saved_model'), signatures={'serving_default': served.serve}
        )
        for item in draft.iterdir():
            _replace(item, output / item.name)


def build_served(detector: DetectionModel, input_type: str) -> ServedDetector:
    """Folds the detector's batch norms and wraps it for serving."""
    images = tf.zeros([1, _PROBE_SIZE, _PROBE_SIZE, 3])
    true_shapes = tf.constant([[_PROBE_SIZE, _PROBE_SIZE, 3]])

    def run() -> None:
        detector.postprocess(detector.predict(images, true_shapes), true_shapes)

    served = ServedDetector(detector, input_type)
    for part in detector.parts().values():
        batch_norm_folding.fold(part, run)
    return served


def _replace(source: pathlib.Path, target: pathlib.Path) -> None:
    if target.is_dir():
        shutil.rmtree(target)
    os.replace(source, target)


def _from_images(detector: DetectionModel, images: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    return detector.preprocess(images)


def _from_encoded(detector: DetectionModel, encoded: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Decodes and resizes each image by itself; pads to the largest where sizes differ."""

    def resize(image: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return detector.resizer(decode_image(image))

    if detector.resizer.static_shape is not None:
        shape = detector.resizer.static_shape
        signature = (
            tf.TensorSpec(shape, tf.float32),
            tf.TensorSpec([3], tf.int32),
        )
        images, true_shapes = tf.map_fn(resize, encoded, fn_output_signature=signature)
        return detector.normalize(images), true_shapes
    shapes = tf.map_fn(
        lambda image: tf.shape(resize(image)[0]),
        encoded,
        fn_output_signature=tf.TensorSpec([3], tf.int32),
    )
    height, width = tf.reduce_max(shapes[:, 0]), tf.reduce_max(shapes[:, 1])

    def resize_and_pad(image: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        resized, true_shape = resize(image)
        size = tf.shape(resized)
        padded = tf.pad(resized, [[0, height - size[0]], [0, width - size[1]], [0, 0]])
        return padded, true_shape

    signature = (
        tf.TensorSpec([None, None, 3], tf.float32),
        tf.TensorSpec([3], tf.int32),
    )
    images, true_shapes = tf.map_fn(resize_and_pad, encoded, fn_output_signature=signature)
    return detector.normalize(images), true_shapes


def _from_examples(detector: DetectionModel, examples: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    features = {'image/encoded': tf.io.FixedLenFeature([], tf.string)}
    return _from_encoded(detector, tf.io.parse_example(examples, features)['image/encoded'])


# input_type -> (spec of `input_tensor`, its reader)
INPUT_TYPES: dict[str, tuple[tf.TensorSpec, Callable]] = {
    'image_tensor': (
        tf.TensorSpec([None, None, None, 3], tf.uint8, 'input_tensor'),
        _from_images,
    ),
    'float_image_tensor': (
        tf.TensorSpec([None, None, None, 3], tf.float32, 'input_tensor'),
        _from_images,
    ),
    'encoded_image_string_tensor': (
        tf.TensorSpec([None], tf.string, 'input_tensor'),
        _from_encoded,
    ),
    'tf_example': (tf.TensorSpec([None], tf.string, 'input_tensor'), _from_examples),
}
