"""TFLite files: detectors for phones and boards, by `tf.lite` and its interpreter.

A detector whose detections come from anchors in one step, such as SSD, ends with the operation
`TFLite_Detection_PostProcess`, and its file returns what apps for the reference's files expect;
other than there, it normalizes images itself. Its boxes
are relative to the padded image. Other detectors are made of TFLite's own operations.
"""

import dataclasses
import json
import logging
import pathlib
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders import image_resizer_builder
from object_detection.config import families
from object_detection.core.fields import DetectionFields
from object_detection.errors import UserError, expected, format_list
from object_detection.export.formats import tflite_file, tflite_graph, tflite_metadata
from object_detection.export.formats.formats import (
    FLOAT16,
    FLOAT32,
    INT8,
    QUANTIZATIONS,
    no_description,
)
from object_detection.export.formats.source import ExportSource, FormatOptions
from object_detection.export.formats.tflite_graph import TfliteAnchorDetector, TfliteDetector
from object_detection.models.quantization import QuantizationParams
from object_detection.protos import image_resizer_pb2
from object_detection.resizers.resizer import Resizer
from object_detection.runtime import description as descriptions
from object_detection.runtime.description import QUANTIZATION, ModelDescription
from object_detection.runtime.file_detector import Arrays, FileRuntime
from object_detection.runtime.images import read_image
from object_detection.system import cpu, private_names

_logger = logging.getLogger(__name__)

_NAME = 'tflite'
# The description in the file itself.
_INSIDE = 'model.json'
# Fields of `ModelDescription.details`.
_FRAME = 'boxes_relative_to'
_CALIBRATION = 'calibration_images'
_PADDED_IMAGE = 'padded_image'
_SIGNATURE = 'serving_default'


def check(source: ExportSource, options: FormatOptions) -> None:
    source.refuse_side_inputs(_NAME)
    source.static_shape(_NAME)
    _check_options(source, options)
    model = source.pipeline.model
    # Run, such a file ends the process with a signal, which no caller can handle.
    if getattr(source.detector, 'keypoint_stage', None) is not None:
        raise UserError(
            f'--format {_NAME}: expected a detector whose regions have no keypoints, as TensorFlow '
            'Lite crashes on their heat maps; use another format. Received: predict_keypoints: '
            f'true of {families.path(model)}.'
        )
    if families.decodes_anchors(model):
        tflite_graph.post_process_options(model)
        _resizer_of_pixels(source)
    elif options.quantization == INT8:
        raise UserError(
            f'--quantization {INT8}: expected a model that ends with {tflite_graph.OPERATION}, '
            f'such as SSD. Received: {families.path(model)}; use {FLOAT16}.'
        )


def _check_options(source: ExportSource, options: FormatOptions) -> None:
    kind, count = options.quantization, len(options.calibration)
    if kind not in QUANTIZATIONS:
        raise expected('--quantization', f'one of {", ".join(QUANTIZATIONS)}', repr(kind))
    if source.detector.quantization is not None:
        _check_learnt(source.detector.quantization.params, kind, count)
    elif (kind == INT8) != bool(count):
        raise UserError(
            '--calibration: expected images with --quantization int8, and none otherwise: they '
            'give the ranges of activations, such as a hundred images like those of the use. '
            f'Received: {count} with --quantization {kind}.'
        )
    if options.batch_size != 1:
        raise expected(
            '--batch_size', f'1, as a file of --format {_NAME} takes one image', options.batch_size
        )
    if source.precision not in ('float32', 'tf32'):
        raise UserError(
            f'--format {_NAME}: expected a model that computes in float32; export it with '
            f'--precision float32, and choose smaller numbers by --quantization '
            f'{FLOAT16} or {INT8}. Received: {source.precision}.'
        )


def _check_learnt(params: QuantizationParams, kind: str, count: int) -> None:
    """Checks the options for a model that was trained with `graph_rewriter.quantization`."""
    if kind != INT8:
        raise expected(
            '--quantization', f'{INT8}, as graph_rewriter.quantization trained the model', kind
        )
    if count:
        raise expected(
            '--calibration', 'none, as graph_rewriter.quantization has learnt the ranges', count
        )
    for name in ('weight_bits', 'activation_bits'):
        if getattr(params, name) != 8:
            raise UserError(
                f'graph_rewriter.quantization.{name}: expected 8 for --format {_NAME} '
                f'--quantization {INT8}. Received: {getattr(params, name)}.'
            )


def write(source: ExportSource, path: pathlib.Path, options: FormatOptions) -> ModelDescription:
    kind = options.quantization
    resizer = _resizer_of_pixels(source)
    details: dict[str, Any] = {QUANTIZATION: kind}
    model_config = source.pipeline.model
    if families.decodes_anchors(model_config):
        chosen = tflite_graph.post_process_options(model_config)
        graph = TfliteAnchorDetector(
            source.detector, chosen, normalizes=True, rounds_input=kind == INT8
        )
        details[_FRAME] = _PADDED_IMAGE
    else:
        graph = TfliteDetector(source, _NAME)
    samples = None
    if options.calibration:
        samples = Samples(image_resizer_builder.build(resizer), options.calibration)
    model = convert(graph, kind, samples)
    if kind == INT8:
        if samples is not None:
            details[_CALIBRATION] = len(options.calibration)
        details['edge_tpu_refuses'] = tflite_file.edge_tpu_problems(model)
        _warn_of_edge_tpu(details['edge_tpu_refuses'])
    image, *others = graph.inputs
    described = source.describe(
        _NAME,
        inputs=(dataclasses.replace(image, dtype='uint8' if kind == INT8 else 'float32'), *others),
        outputs=graph.outputs,
        first_class_id=0,
        details=details,
    )
    described = dataclasses.replace(described, resizer=text_format.MessageToString(resizer))
    path.write_bytes(_finish(model, described, graph.max_detections_per_class))
    _try(path, described)
    return described


def _try(path: pathlib.Path, described: ModelDescription) -> None:
    """Runs a file once: some operations fail when they are run only."""
    inputs = {each.name: np.ones(each.shape, each.dtype) for each in described.inputs}
    try:
        _Runner(path, path.read_bytes(), described)(inputs)
    except RuntimeError as error:
        raise UserError(
            f'--format {_NAME}: cannot run the model; use --format onnx. TFLite: {error}'
        ) from error


def _finish(model: bytes, described: ModelDescription, max_detections_per_class: int) -> bytes:
    """Returns the file with names, metadata, class names and its description."""
    text = (
        f'An object detector that takes pixels from 0 to 255 ({described.details[QUANTIZATION]}).'
    )
    shapes = [each.shape for each in described.inputs]
    metadata = tflite_metadata.build_metadata(shapes, described.outputs, 'object detector', text)
    model = tflite_file.finish(model, described.outputs, metadata, max_detections_per_class)
    files = {
        tflite_metadata.LABELS: tflite_metadata.labels(described.class_names),
        _INSIDE: described.to_json(),
    }
    return tflite_metadata.with_files(model, files)


def _warn_of_edge_tpu(refused: Sequence[str]) -> None:
    if refused:
        _logger.warning(
            'an Edge TPU would not run these operations, nor what follows the first of them: %s',
            '; '.join(refused),
        )


@dataclasses.dataclass(frozen=True)
class Samples:
    """Images for the calibration: each call yields them one by one, float32 [1, H, W, 3], 0..255.

    Attributes:
      resizer: brings them to the size of the model's input.
      paths: image files.
    """

    resizer: Resizer
    paths: Sequence[pathlib.Path]

    def __call__(self) -> Iterator[list[tf.Tensor]]:
        for path in self.paths:
            values, _ = read_image(path, value_range=self.resizer.value_range)
            resized, _ = self.resizer(self.resizer.pixels(values))
            yield [resized[tf.newaxis]]


def convert(
    graph: TfliteAnchorDetector | TfliteDetector,
    kind: str,
    samples: Callable[[], Iterator[list[tf.Tensor]]] | None,
) -> bytes:
    """Converts a graph to a TFLite file, as TensorFlow's converter writes it.

    Args:
      graph: the graph.
      kind: one of `QUANTIZATIONS`: FLOAT32; FLOAT16 halves the weights; DYNAMIC stores them in 8
        bits and quantizes activations as they come; INT8 computes in 8 bits alone except for the
        post-processing, and takes uint8 images.
      samples: images for INT8; None takes the ranges that a training has learnt. Operations
        without a range, such as the normalization of images, then stay in 32 bits.

    Raises:
      UserError: if TFLite lacks an operation of the graph; the message names it.
    """
    converter = tf.lite.TFLiteConverter.from_concrete_functions(
        [graph.serve.get_concrete_function()], graph
    )
    if kind != FLOAT32:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if kind == FLOAT16:
        converter.target_spec.supported_types = [tf.float16]
    if kind == INT8:
        converter.inference_input_type = tf.uint8
    if kind == INT8 and samples is not None:
        converter.representative_dataset = samples
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    try:
        return converter.convert()
    except private_names.tflite_converter_error() as error:
        lacking = re.search(r'^(?:TF Select|Custom) ops: (.*)$', str(error), re.MULTILINE)
        if lacking is None:
            raise
        raise UserError(
            f'--format {_NAME}: TFLite has no {lacking[1]}; use --format onnx.'
        ) from error


def _resizer_of_pixels(source: ExportSource) -> image_resizer_pb2.ImageResizer:
    """Returns the resizer for images of 0..255: it pads with what is normalized to the padding."""
    config = image_resizer_pb2.ImageResizer()
    config.CopyFrom(source.resizer_config)
    if source.pads and source.detector.pads_normalized:
        keep = config.keep_aspect_ratio_resizer
        keep.per_channel_pad_value[:] = tflite_graph.pad_color(
            source.detector, keep.per_channel_pad_value
        )
    return config


def load(path: pathlib.Path, description: ModelDescription | None) -> FileRuntime:
    model = path.read_bytes()
    if description is None:
        text = tflite_metadata.read_file(model, _INSIDE)
        if text is None:
            raise no_description(path)
        description = descriptions.parse(text, f'{path}: {_INSIDE}', _NAME)
    _check_details(path, description)
    run = _Runner(path, model, description)
    is_padded = _FRAME in description.details
    detector = (_OfPaddedImages if is_padded else FileRuntime)(path, description, run)
    if description.details[QUANTIZATION] != FLOAT32:
        # That of the model which was quantized.
        detector.precision = None
    return detector


def _check_details(path: pathlib.Path, description: ModelDescription) -> None:
    """Raises UserError for values of `details` that no reader knows."""
    details = description.details
    for name, known in ((QUANTIZATION, QUANTIZATIONS), (_FRAME, (None, _PADDED_IMAGE))):
        if details.get(name) not in known:
            raise UserError(
                f'{path}: details.{name} of the description: expected '
                f'{" or ".join(filter(None, known))}. '
                f'Received: {json.dumps(details.get(name))[:80]}.'
            )


class _Runner:
    """Runs a TFLite file by its signature.

    Args:
      path: of the file, for messages.
      model: the file.
      description: its description.

    Raises:
      UserError: if it is no TFLite file, or its tensors are not those of the description.
    """

    def __init__(self, path: pathlib.Path, model: bytes, description: ModelDescription):
        made = interpreter(path, model)
        signature = made.get_signature_list().get(_SIGNATURE, {'inputs': [], 'outputs': []})
        for kind in ('inputs', 'outputs'):
            wanted = [getattr(each, 'name', each) for each in getattr(description, kind)]
            if sorted(signature[kind]) != sorted(wanted):
                raise expected(
                    f'{path}: {kind}', format_list(wanted), format_list(signature[kind]) or 'none'
                )
        self._run = made.get_signature_runner(_SIGNATURE)
        # The interpreter owns what the runner uses.
        self._interpreter = made
        found = self._run.get_input_details()
        self._types = {name: each['dtype'] for name, each in found.items()}
        for each in description.inputs:
            shape = tuple(map(int, found[each.name]['shape']))
            if shape != each.shape:
                raise expected(f'{path}: {each.name}', f'shape {list(each.shape)}', list(shape))

    def __call__(self, inputs: Arrays) -> Arrays:
        return self._run(**{name: _as(value, self._types[name]) for name, value in inputs.items()})


def interpreter(path: pathlib.Path, model: bytes) -> Any:
    """Returns an interpreter of a TFLite file, by as many threads as there are cores.

    Args:
      path: name of the file, for messages.
      model: the file.

    Raises:
      UserError: if it is no TFLite file.
    """
    try:
        with warnings.catch_warnings():
            # That `tf.lite.Interpreter` moves to a package of its own.
            warnings.simplefilter('ignore')
            threads = min(max(1, int(cpu.num_cores())), tflite_graph.SPARE_CLASSES - 1)
            made = _interpreter_class()(model_content=model, num_threads=threads)
        made.allocate_tensors()
    except (ValueError, RuntimeError) as error:
        raise UserError(f'{path}: cannot be read as a TFLite file: {error}') from error
    return made


def _interpreter_class() -> Any:
    """The interpreter of the package that succeeds `tf.lite`, if it is installed."""
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError:
        return tf.lite.Interpreter
    return Interpreter


def _as(values: np.ndarray, dtype: type) -> np.ndarray:
    if np.issubdtype(dtype, np.integer) and not np.issubdtype(values.dtype, np.integer):
        values = np.clip(np.rint(values), np.iinfo(dtype).min, np.iinfo(dtype).max)
    return values.astype(dtype)


class _OfPaddedImages(FileRuntime):
    """A file whose boxes are relative to padded images, and neither clipped nor dropped."""

    sees_padding = True

    def run_batch(self, images: tf.Tensor) -> dict[str, tf.Tensor]:
        return self.in_true_images(super().run_batch(images), images.shape[1:3])

    def in_true_images(
        self, outputs: Mapping[str, tf.Tensor], size: tuple[int, int]
    ) -> dict[str, tf.Tensor]:
        outputs = {key: value.numpy() for key, value in outputs.items()}
        padded = np.array(self.description.inputs[0].shape[1:3], np.float32)
        height, width = self._resizer.resized_size(*size)
        window = np.tile(np.array([height, width], np.float32) / padded, 2)
        boxes = np.clip(outputs[DetectionFields.BOXES], 0.0, window) / window
        low, high = np.split(boxes, 2, axis=-1)
        scores = outputs[DetectionFields.SCORES]
        rows = np.arange(scores.shape[1]) < outputs[DetectionFields.NUM_DETECTIONS][:, np.newaxis]
        is_used = rows & (high > low).all(axis=-1) & (scores > 0)
        # The used rows first; the order among them is that of the file.
        order = np.argsort(~is_used, axis=1, kind='stable')
        count = is_used.sum(axis=1)
        is_first = np.arange(scores.shape[1]) < count[:, np.newaxis]
        found = {
            DetectionFields.BOXES: np.take_along_axis(boxes, order[..., np.newaxis], axis=1)
            * is_first[..., np.newaxis]
        }
        for key in (DetectionFields.SCORES, DetectionFields.CLASSES):
            found[key] = np.take_along_axis(outputs[key], order, axis=1) * is_first
        found[DetectionFields.NUM_DETECTIONS] = count
        return {key: tf.constant(value, tf.float32) for key, value in found.items()}
