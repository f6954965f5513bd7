"""What the modules of formats get to write, and the functions of images that they convert."""

import dataclasses
import importlib.metadata
import pathlib
from collections.abc import Callable

import tensorflow as tf
from google.protobuf import text_format

from object_detection.config import families
from object_detection.core import tracing
from object_detection.errors import UserError
from object_detection.export import saved_model
from object_detection.export.formats.formats import FLOAT32, TRITON_BACKENDS
from object_detection.meta_architectures.detection_model import DetectionModel
from object_detection.models import precision as precisions
from object_detection.protos import image_resizer_pb2, pipeline_pb2
from object_detection.resizers.fixed_sizes import FixedShapeResizer
from object_detection.resizers.value_range import DEFAULT_RANGE
from object_detection.runtime import class_names, input_types
from object_detection.runtime.description import (
    IMAGE,
    TRUE_IMAGE_SHAPE,
    ModelDescription,
    TensorDescription,
)
from object_detection.runtime.in_process import as_served

_DISTRIBUTION = 'object-detection-toolkit'


@dataclasses.dataclass(frozen=True)
class FormatOptions:
    """Options of formats; each says which formats read it.

    Attributes:
      batch_size: B of formats whose batch is fixed (stablehlo, tflite); the largest B of triton.
      quantization: one of `formats.QUANTIZATIONS` (tflite).
      calibration: image files from which ranges of activations are measured (tflite).
      triton_backend: one of `formats.TRITON_BACKENDS` (triton).
    """

    batch_size: int = 1
    quantization: str = FLOAT32
    calibration: tuple[pathlib.Path, ...] = ()
    triton_backend: str = TRITON_BACKENDS[0]


@dataclasses.dataclass(frozen=True, eq=False)
class ExportSource:
    """A model to write.

    Attributes:
      detector: built for inference and restored. Writers leave it as it is.
      pipeline: its config.
      precision: the precision in which it computes.
      label_map_text: the label map, a text proto; None if none is known.
      advised_threshold: see `ModelDescription`.
    """

    detector: DetectionModel
    pipeline: pipeline_pb2.TrainEvalPipelineConfig
    precision: str
    label_map_text: str | None = None
    advised_threshold: float | None = None

    @property
    def resizer_config(self) -> image_resizer_pb2.ImageResizer:
        """The resizer in the config of the model's family."""
        return families.options(self.pipeline.model).image_resizer

    @property
    def input_tensor(self) -> TensorDescription:
        """The input of a model of any batch and image size: floats where values have a range."""
        dtype = 'uint8' if self.detector.resizer.value_range is None else 'float32'
        return TensorDescription('input_tensor', dtype, (None, None, None, 3))

    @property
    def pads(self) -> bool:
        """Whether images of the model's size may be padded, so that it needs their true shapes."""
        return not isinstance(self.detector.resizer, FixedShapeResizer)

    def static_shape(self, format_name: str) -> tuple[int, int, int]:
        """Returns (height, width, channels) of every resized image.

        Raises:
          UserError: if they depend on the image; the message names the format and the remedy.
        """
        shape = self.detector.resizer.static_shape
        if shape is None:
            kind = self.resizer_config.WhichOneof('image_resizer_oneof')
            raise UserError(
                f"--format {format_name}: needs images of one size, but those of the config's "
                f'{kind} depend on the image. Use fixed_shape_resizer, or '
                'keep_aspect_ratio_resizer with pad_to_max_dimension: true (or pad_height and '
                'pad_width), for example by --set; or another format.'
            )
        return shape

    def refuse_side_inputs(self, format_name: str) -> None:
        """Raises UserError if the detector takes more than images."""
        names = ', '.join(self.detector.side_inputs())
        if names:
            raise UserError(
                f'--format {format_name}: takes images alone, but the model also takes {names}; '
                'use --format saved_model.'
            )

    def refuse_precisions(self, format_name: str) -> None:
        """Raises UserError if the model computes in another precision than float32."""
        if precisions.POLICIES[self.precision] != precisions.FLOAT32:
            raise UserError(
                f'--format {format_name}: computes in float32 alone, but the model computes in '
                f'{self.precision}; add --precision float32, or use --format saved_model or '
                'stablehlo.'
            )

    def describe(
        self,
        format_name: str,
        *,
        inputs: tuple[TensorDescription, ...],
        outputs: tuple[str, ...],
        resizes_inside: bool = False,
        **fields: object,
    ) -> ModelDescription:
        """Returns the description of a file of this model.

        Args:
          format_name, inputs, outputs, fields: see `ModelDescription`.
          resizes_inside: whether the file takes images of any size.
        """
        return ModelDescription(
            format=format_name,
            toolkit_version=importlib.metadata.version(_DISTRIBUTION),
            inputs=inputs,
            outputs=outputs,
            resizer='' if resizes_inside else text_format.MessageToString(self.resizer_config),
            class_names=class_names.parse(self.label_map_text).names,
            precision=self.precision,
            advised_threshold=self.advised_threshold,
            color_order='GRAY' if inputs[0].shape[-1] == 1 else 'RGB',
            value_range=(resizes_inside and self.detector.resizer.value_range) or DEFAULT_RANGE,
            **fields,
        )

    def served_module(self) -> tf.Module:
        """Returns a module with `serve`, the function of `input_tensor` that a SavedModel serves.

        Images become float32 before they are resized. The pixels are the same, and there is no
        branch on the image's size: with it, OpenVINO 2026.4 gives other detections.
        """
        module = tf.Module()
        with tracing.BasicOperations():
            module.served = saved_model.ServedDetector(
                self.detector, input_types.FLOAT_IMAGE_TENSOR, self.precision
            )

        def serve(input_tensor: tf.Tensor) -> dict[str, tf.Tensor]:
            # Saving traces the detector once more.
            with tracing.BasicOperations():
                return module.served.serve(tf.cast(input_tensor, tf.float32))

        taken = self.input_tensor
        spec = tf.TensorSpec(taken.shape, taken.dtype, taken.name)
        module.serve = tf.function(serve, input_signature=[spec], autograph=False)
        return module

    def fixed_inputs(
        self, format_name: str, batch_size: int | None
    ) -> tuple[TensorDescription, ...]:
        """Returns the inputs of `fixed_function`.

        They are `image`, float32 [B, H, W, C], and `true_image_shape`, int32 [B, 3], if the resizer
        pads. `batch_size` is B, None for any.
        """
        shape = self.static_shape(format_name)
        image = TensorDescription(IMAGE, 'float32', (batch_size, *shape))
        true_shape = TensorDescription(TRUE_IMAGE_SHAPE, 'int32', (batch_size, 3))
        return (image, true_shape) if self.pads else (image,)

    def fixed_function(self, format_name: str) -> Callable[..., dict[str, tf.Tensor]]:
        """Returns the detector as a function of resized images, by the names of `fixed_inputs`.

        It returns what a SavedModel does: float32, classes from 1. B is at least 1.
        """
        shape, detector = self.static_shape(format_name), self.detector

        def detect(
            image: tf.Tensor, true_image_shape: tf.Tensor | None = None
        ) -> dict[str, tf.Tensor]:
            if true_image_shape is None:
                true_image_shape = tf.tile(tf.constant([shape]), [tf.shape(image)[0], 1])
            images = detector.normalize_padded(image, true_image_shape)
            predictions = detector.predict(images, true_image_shape, training=False)
            return as_served(detector.postprocess(predictions, true_image_shape))

        return detect
