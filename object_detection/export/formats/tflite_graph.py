"""The graph of a detector for the TFLite converter.

Where detections come from anchors in one step, the end of the graph, from box codes and scores to
detections, is one operation of TFLite, `TFLite_Detection_PostProcess`, as in the reference's
exports. TensorFlow has no such operation: the graph calls a function that carries its name and
attributes, which the converter puts in its place.
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
from google.protobuf import text_format

from object_detection.config import families
from object_detection.core import boxes as box_ops
from object_detection.core import tracing
from object_detection.core.fields import DetectionFields
from object_detection.errors import UserError, expected
from object_detection.export.formats.source import ExportSource
from object_detection.meta_architectures.detection_model import DetectionModel
from object_detection.models.convolutions import FoldedVariables
from object_detection.protos import model_pb2
from object_detection.runtime.description import TensorDescription

OPERATION = 'TFLite_Detection_PostProcess'
# The outputs in the order of the operation, which is also that of their names.
OUTPUTS = (
    DetectionFields.BOXES,
    DetectionFields.CLASSES,
    DetectionFields.SCORES,
    DetectionFields.NUM_DETECTIONS,
)
_KEYPOINT_OUTPUTS = (
    DetectionFields.KEYPOINTS,
    DetectionFields.KEYPOINT_SCORES,
    DetectionFields.KEYPOINT_DEPTHS,
)
# Those that follow, of detectors that have them.
_FURTHER_OUTPUTS = (DetectionFields.MASKS, *_KEYPOINT_OUTPUTS, DetectionFields.SURFACE_COORDS)
# Regular suppression by T threads never looks at the class T (0-based): TFLite 2.21 and LiteRT 2.3
# go on with the class after it. This number of columns of zeros before those of the classes makes
# it one of them, for fewer threads than columns.
SPARE_CLASSES = 32
# Scores of 0 are no detections: 8 bits know no smaller ones.
_MIN_SCORE = 1e-8
_BOX_CODER = 'faster_rcnn_box_coder'


@dataclasses.dataclass(frozen=True)
class PostProcessOptions:
    """The attributes of `TFLite_Detection_PostProcess`.

    Attributes:
      num_classes: K, without background.
      max_detections: maximum number of boxes of an image.
      use_regular_nms: whether each class is suppressed for itself, as the configs say by default.
        Otherwise a box is suppressed by a better one of any class, which is faster.
      max_detections_per_class: maximum number for each class; of regular suppression alone.
      max_classes_per_detection: of how many classes a box is returned at most, each a detection of
        its own; regular suppression ignores it.
      score_threshold: lowest score.
      iou_threshold: a box is suppressed by a better one if their IoU is above it.
      scale_factors: (y, x, h, w), the divisors of box codes.
    """

    num_classes: int
    max_detections: int
    use_regular_nms: bool
    max_detections_per_class: int
    max_classes_per_detection: int
    score_threshold: float
    iou_threshold: float
    scale_factors: tuple[float, float, float, float]

    @property
    def num_spare(self) -> int:
        """Returns the number of columns before those of the classes."""
        # The class 2 is the first one that two threads miss.
        return SPARE_CLASSES if self.use_regular_nms and self.num_classes > 2 else 0

    @property
    def num_rows(self) -> int:
        """T, the number of rows of the outputs."""
        return self.max_detections * self.max_classes_per_detection

    def signature(self) -> str:
        """Returns the name and the attributes as the text by which the converter knows them."""
        operation = tf.compat.v1.NameAttrList(name=OPERATION)
        operation.attr['num_classes'].i = self.num_spare + self.num_classes
        for name in ('max_detections', 'max_classes_per_detection'):
            operation.attr[name].i = getattr(self, name)
        operation.attr['detections_per_class'].i = self.max_detections_per_class
        operation.attr['nms_score_threshold'].f = max(self.score_threshold, _MIN_SCORE)
        operation.attr['nms_iou_threshold'].f = self.iou_threshold
        for name, value in zip('yxhw', self.scale_factors, strict=True):
            operation.attr[f'{name}_scale'].f = value
        operation.attr['use_regular_nms'].b = self.use_regular_nms
        return text_format.MessageToString(operation, as_one_line=True)


def post_process_options(
    model: model_pb2.DetectionModel,
    max_detections: int | None = None,
    use_regular_nms: bool | None = None,
) -> PostProcessOptions:
    """Returns the attributes that give the detections of a config.

    Args:
      model: the model's message, of a family that decodes anchors; see `families.decodes_anchors`.
      max_detections: maximum number of boxes; None takes `max_total_detections`.
      use_regular_nms: see `PostProcessOptions`; None takes what the config says.

    Raises:
      UserError: if the operation cannot decode the boxes or suppress them as the config says.
    """
    stage, path = families.anchors(model).detection, families.path(model)
    nms = stage.post_processing.batch_non_max_suppression
    coder = stage.box_coder.WhichOneof('box_coder_oneof')
    if coder != _BOX_CODER:
        raise expected(f'{path}.box_coder', f'{_BOX_CODER}, whose codes {OPERATION} decodes', coder)
    if nms.soft_nms_sigma > 0 and not nms.use_hard_nms:
        raise UserError(
            f'{path}.post_processing.batch_non_max_suppression.soft_nms_sigma: expected 0, or '
            f'use_hard_nms: true, as {OPERATION} suppresses boxes and lowers no scores. '
            f'Received: {nms.soft_nms_sigma:g}.'
        )
    is_regular = not nms.use_class_agnostic_nms if use_regular_nms is None else use_regular_nms
    scales = stage.box_coder.faster_rcnn_box_coder
    if scales.HasField('max_log_size'):
        raise expected(
            f'{path}.box_coder.{_BOX_CODER}.max_log_size',
            f'none, as {OPERATION} decodes all sizes',
            scales.max_log_size,
        )
    return PostProcessOptions(
        num_classes=stage.num_classes,
        max_detections=max_detections or nms.max_total_detections,
        use_regular_nms=is_regular,
        max_detections_per_class=nms.max_detections_per_class,
        max_classes_per_detection=1 if is_regular else nms.max_classes_per_detection,
        score_threshold=nms.score_threshold,
        iou_threshold=nms.iou_threshold,
        scale_factors=(scales.y_scale, scales.x_scale, scales.height_scale, scales.width_scale),
    )


class TfliteAnchorDetector(tf.Module):
    """A detector of anchors as the converter takes it: one image in, its detections out.

    `serve` takes one resized and padded image, float32 [1, H, W, 3], and returns, all float32 and
    by the names `OUTPUTS`: boxes [1, T, 4], [ymin, xmin, ymax, xmax] normalized to the padded image
    and not clipped; classes [1, T], 0-based; scores [1, T], the best first; and the number of
    detections [1]. The converter alone can compute them: run as a TensorFlow graph it returns
    zeros.

    Args:
      detector: built and restored; its norms are folded into the layers before them.
      options: attributes of the post-processing.
      normalizes: whether the graph normalizes images of 0..255; otherwise its input is normalized
        already, as the reference's script has it.
      rounds_input: whether inputs are whole numbers of 0..255, which 8-bit inputs then are as they
        are.
      input_name: name of the input.

    Raises:
      UserError: if the resizer's outputs have no fixed size.
    """

    def __init__(
        self,
        detector: DetectionModel,
        options: PostProcessOptions,
        *,
        normalizes: bool,
        rounds_input: bool = False,
        input_name: str = 'image',
    ):
        super().__init__(name='tflite_anchor_detector')
        shape = fixed_shape(detector)
        self.inputs = (TensorDescription(input_name, 'float32', (1, *shape)),)
        self.outputs = OUTPUTS
        self.max_detections_per_class = options.max_detections_per_class
        folded = FoldedVariables()
        post_process = _post_process(options)
        true_shape = tf.constant([shape], tf.int32)

        def serve(image: tf.Tensor) -> dict[str, tf.Tensor]:
            if rounds_input:
                image = tf.quantization.fake_quant_with_min_max_args(image, 0.0, 255.0)
            if normalizes:
                image = detector.normalize(image)
            with tracing.portable(), tracing.BasicOperations(), folded:
                predictions = detector.predict(image, true_shape, training=False)
            codes, scores, anchors = detector.anchor_predictions(predictions)
            if options.num_spare:
                scores = tf.pad(scores, [[0, 0], [0, 0], [options.num_spare, 0]])
            boxes, classes, *others = post_process(
                codes, scores, box_ops.corners_to_center_size(anchors)
            )
            if options.num_spare:
                # Unused rows have the class 0. Integers, as floats would be quantized to 8 bits.
                numbers = tf.maximum(tf.cast(classes, tf.int32) - options.num_spare, 0)
                classes = tf.cast(numbers, tf.float32)
            return dict(zip(OUTPUTS, (boxes, classes, *others), strict=True))

        spec = tf.TensorSpec([1, *shape], tf.float32, input_name)
        self.serve = tf.function(serve, input_signature=[spec], autograph=False)
        captured = {id(each) for each, _ in self.serve.get_concrete_function().graph.captures}
        variables = [*detector.named_variables().values(), *folded.variables]
        self._variables = [each for each in variables if id(each.handle) in captured]


class TfliteDetector(tf.Module):
    """A detector of any family as the converter takes it, by operations that TFLite has itself.

    `serve` takes one resized image and returns the detections by the names of `DetectionFields`,
    float32, with 0-based classes and boxes normalized to the true image.

    Args:
      source: the model.
      format_name: name of the format, for messages.
      input_name: name of an input that is taken for an image without padding, as the reference's
        script has it; None has the inputs of `ExportSource.fixed_inputs`.
      has_keypoints: whether keypoints are among the outputs, if the detector has them.

    Raises:
      UserError: if the resizer's outputs have no fixed size.
    """

    def __init__(
        self,
        source: ExportSource,
        format_name: str,
        *,
        input_name: str | None = None,
        has_keypoints: bool = True,
    ):
        super().__init__(name='tflite_detector')
        self.inputs = source.fixed_inputs(format_name, 1)
        if input_name is not None:
            self.inputs = (dataclasses.replace(self.inputs[0], name=input_name),)
        left_out = () if has_keypoints else _KEYPOINT_OUTPUTS
        outputs = [each for each in (*OUTPUTS, *_FURTHER_OUTPUTS) if each not in left_out]
        # An attribute of the operation that detectors of anchors have.
        self.max_detections_per_class = 0
        detect, folded = source.fixed_function(format_name), FoldedVariables()

        def serve(*values: tf.Tensor) -> dict[str, tf.Tensor]:
            with tracing.portable(), tracing.BasicOperations(), tracing.SingleImages(), folded:
                found = detect(*values)
            if DetectionFields.CLASSES in found:
                found[DetectionFields.CLASSES] -= 1.0
            return {key: found[key] for key in outputs if key in found}

        specs = [tf.TensorSpec(each.shape, each.dtype, each.name) for each in self.inputs]
        self.serve = tf.function(serve, input_signature=specs, autograph=False)
        found = self.serve.get_concrete_function().structured_outputs
        self.outputs = tuple(key for key in outputs if key in found)
        self._variables = [*source.detector.named_variables().values(), *folded.variables]


def fixed_shape(detector: DetectionModel) -> tuple[int, int, int]:
    """Returns the size (height, width, channels) of every resized image.

    Raises:
      UserError: if it depends on the image.
    """
    shape = detector.resizer.static_shape
    if shape is None:
        raise UserError(
            'image_resizer: expected one whose outputs have a fixed size, as TFLite needs it: '
            'fixed_shape_resizer, or keep_aspect_ratio_resizer with pad_to_max_dimension: true or '
            'with pad_height and pad_width. Received: a resizer whose outputs depend on the image.'
        )
    return shape


def pad_color(detector: DetectionModel, padding: Sequence[float]) -> tuple[float, ...]:
    """Returns the colour of 0..255 that normalisation turns into the detector's padding.

    With `pads_normalized`, a detector pads normalized images, but a graph that normalizes gets
    padded ones.

    Args:
      detector: the detector.
      padding: its padding of normalized images, one value a channel; () is 0.

    Raises:
      UserError: if no colour does.
    """
    wanted = np.asarray(padding or (0.0, 0.0, 0.0), np.float32)
    black, white = (detector.normalize(tf.fill([1, 1, 1, 3], each)) for each in (0.0, 255.0))
    color = 255.0 * (wanted - black.numpy()) / (white - black).numpy()
    found = detector.normalize(tf.constant(color)).numpy()
    if not np.allclose(found, wanted, atol=1e-3):
        raise UserError(
            f'image_resizer: no colour is normalized to the padding {wanted.tolist()} of '
            f'{detector.name}; use a fixed_shape_resizer, which does not pad.'
        )
    return tuple(color.flatten().tolist())


def _post_process(options: PostProcessOptions) -> Callable[..., tuple[tf.Tensor, ...]]:
    """Returns the function whose calls the converter replaces by the operation."""

    def post_process(
        codes: tf.Tensor, scores: tf.Tensor, anchors: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        del codes, scores, anchors
        rows = options.num_rows
        return tf.zeros([1, rows, 4]), tf.zeros([1, rows]), tf.zeros([1, rows]), tf.zeros([1])

    return tf.function(post_process, experimental_implements=options.signature(), autograph=False)
