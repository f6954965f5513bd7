"""Runs a detector of this process, with the inputs and outputs of its export."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from object_detection.core.fields import DetectionFields
from object_detection.data.label_map import LabelMap
from object_detection.meta_architectures.detection_model import DetectionModel
from object_detection.runtime import side_inputs
from object_detection.runtime.runtime import Runtime


class ProcessRuntime(Runtime):
    """A detector in this process; see `Runtime`.

    Args:
      model: built and restored detector. It is not changed; later changes of its variables have an
        effect.
      source: the checkpoint.
      labels: its classes; None if they are not known.
      precision: the precision in which it computes.
      channels: number of channels of the images.
    """

    def __init__(
        self,
        model: DetectionModel,
        *,
        source: str = 'the detector',
        labels: LabelMap | None = None,
        precision: str | None = None,
        channels: int = 3,
    ):
        self.model, self.source, self.precision = model, source, precision
        self.channels = channels
        self.labels = LabelMap([], {}, {}) if labels is None else labels
        self.value_range = model.resizer.value_range
        specs = side_inputs.resolve(model, None)
        self.side_inputs = {each.name: each for each in specs}
        images = tf.TensorSpec([None, None, None, channels], tf.float32, 'input_tensor')
        # No detector needs AutoGraph.
        self._run = tf.function(
            detect_function(model, read_images, list(self.side_inputs)),
            input_signature=[images, *specs],
            autograph=False,
        )

    @property
    def traced_function(self) -> Any:
        return self._run.get_concrete_function()

    def fingerprint(self) -> str:
        digest = hashlib.sha256()
        for name, variable in sorted(self.model.named_variables().items()):
            digest.update(name.encode() + variable.numpy().tobytes())
        return digest.hexdigest()

    def run_batch(self, images: tf.Tensor, **given: tf.Tensor) -> dict[str, tf.Tensor]:
        values = side_inputs.or_zeros(given, self.side_inputs, len(images))
        return self._run(tf.cast(images, tf.float32), *values.values())


def detect_function(
    detector: DetectionModel,
    read: Callable,
    names: Sequence[str],
    read_side_inputs: Callable | None = None,
) -> Callable[..., dict[str, tf.Tensor]]:
    """Returns the function from the input of a signature, and side inputs, to outputs.

    Args:
      detector: the detector.
      read: from the detector and the input to preprocessed images and their true shapes.
      names: names of the side inputs.
      read_side_inputs: from the detector and the input to their values; with it, the function takes
        none.
    """

    def detect(input_tensor: tf.Tensor, *values: tf.Tensor) -> dict[str, tf.Tensor]:
        if read_side_inputs is not None:
            values = read_side_inputs(detector, input_tensor)
        # The readers replace an empty batch by one image, since not all layers accept empty
        # batches.
        count = tf.shape(input_tensor)[0]
        images, true_shapes = read(detector, input_tensor)
        given = dict(zip(names, map(at_least_one, values), strict=True))
        predictions = detector.predict(images, true_shapes, training=False, **given)
        detections = detector.postprocess(predictions, true_shapes)
        detections |= detector.exported_predictions(predictions)
        return as_served({key: value[:count] for key, value in detections.items()})

    return detect


def as_served(found: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Returns what `postprocess` does as exports have it: float32, with classes from 1."""
    outputs = {key: tf.cast(value, tf.float32) for key, value in found.items()}
    if DetectionFields.CLASSES in outputs:
        outputs[DetectionFields.CLASSES] += 1.0
    return outputs


def at_least_one(values: tf.Tensor) -> tf.Tensor:
    """Adds a row of zeros to values [B, ...] of no images."""
    missing = tf.maximum(1 - tf.shape(values)[:1], 0)
    row = tf.zeros(tf.concat([missing, tf.shape(values)[1:]], axis=0), values.dtype)
    return tf.concat([values, row], axis=0)


def read_images(detector: DetectionModel, images: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Reads images [B, H, W, 3]; an empty batch is replaced by a black image."""
    missing = tf.maximum([1, 1, 1] - tf.shape(images)[:3], 0)
    paddings = tf.concat([missing, [0]], axis=0)
    padded = tf.pad(images, tf.stack([tf.zeros_like(paddings), paddings], 1))
    # Normalizing needs to know the number of channels.
    return detector.preprocess(tf.ensure_shape(padded, [None, None, None, images.shape[-1]]))
