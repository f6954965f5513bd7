"""Exports a detector as a SavedModel, with the reference's signatures and directory layout."""

import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from object_detection.core import tf_example_keys as keys
from object_detection.core import tracing
from object_detection.core.fields import DetectionFields, InputFields
from object_detection.core.shapes import asserted
from object_detection.data import label_map
from object_detection.data.image_decoding import decode_image
from object_detection.errors import UserError
from object_detection.meta_architectures.detection_model import DetectionModel
from object_detection.models.convolutions import FoldedVariables
from object_detection.runtime import input_types, side_inputs
from object_detection.runtime.class_names import LABEL_MAP
from object_detection.runtime.in_process import (
    as_served,
    at_least_one,
    detect_function,
    read_images,
)
from object_detection.runtime.side_inputs import GivenSideInput
from object_detection.system import private_names, publishing

# The items of an export in the order in which they are renamed: `saved_model` marks completion.
_ITEMS = ('checkpoint', 'pipeline.config', 'saved_model')
# The side inputs that tf.Examples hold.
_CONTEXT = {InputFields.CONTEXT_FEATURES, InputFields.VALID_CONTEXT_SIZE}


class ServedDetector(tf.Module):
    """A detector as `serving_default`: one tensor in, float32 detections out, 1-based classes.

    With input boxes there are two tensors: images, and the boxes whose classes and masks are
    predicted. As in the reference, the object that `tf.saved_model.load` returns can be called with
    the same tensors.

    Args:
      detector: built and restored detector. It stays as it is; later changes of it do not count.
        Batch norms are folded into the layers before them.
      input_type: one of `input_types.INPUT_TYPES`.
      precision: the precision in which the detector computes, stored for clients.
      label_map_path: a label map, which becomes an asset; the function `class_names` returns its
        names. None exports neither.
      given_side_inputs: side inputs of the signature; None takes those of the detector, but reads
        the context of images from their tf.Examples.
      constant_weights: whether the graph holds the weights as constants. Kernels of some CPUs then
        lay them out once and not in each run; the first run takes seconds longer and more memory.

    Raises:
      ValueError: if `input_type` is not known or cannot hold the values of images, the label map
        cannot be read, or the detector takes other side inputs.
    """

    def __init__(
        self,
        detector: DetectionModel,
        input_type: str,
        precision: str,
        label_map_path: str | os.PathLike | None = None,
        given_side_inputs: Sequence[GivenSideInput] | None = None,
        *,
        constant_weights: bool = False,
        advised_threshold: float | None = None,
    ):
        super().__init__(name='served_detector')
        input_types.check(input_type, detector.resizer.value_range)
        folded = FoldedVariables(converts=True)
        side_specs = side_inputs.resolve(detector, given_side_inputs)
        names = {each.name for each in side_specs}
        if given_side_inputs is None and input_type == input_types.TF_EXAMPLE and names == _CONTEXT:
            side_specs = []
        specs, serve = _serving(detector, input_type, side_specs, folded)
        # No detector needs AutoGraph, and tracing takes several times as long with it.
        self.serve = tf.function(serve, input_signature=specs, autograph=False)
        if constant_weights:
            self.serve = _with_constants(self.serve.get_concrete_function(), specs)
        self.__call__ = self.serve
        # Tracks variables, not the model: saving and loading each Keras layer takes as long as
        # the rest, and some converters lose variables that a Keras model holds.
        captured = {id(each) for each, _ in self.serve.get_concrete_function().graph.captures}
        variables = [*detector.named_variables().values(), *folded.variables]
        self._variables = [each for each in variables if id(each.handle) in captured]
        # Encoded images and tf.Examples are both strings, and all precisions have the same
        # signature, so clients can query the input type, the precision and the range of values.
        self.input_type = _constant(input_type)
        self.precision = _constant(precision)
        if detector.resizer.value_range is not None:
            self.value_range = _constant(list(detector.resizer.value_range))
        if advised_threshold is not None:
            self.advised_threshold = _constant([advised_threshold])
        if label_map_path is not None:
            self.label_map = tf.saved_model.Asset(os.fspath(label_map_path))
            self.class_names = _constant(_names_by_id(label_map_path))


def _with_constants(
    function: Any, specs: Sequence[tf.TensorSpec]
) -> tf.types.experimental.PolymorphicFunction:
    """Returns a function of the same inputs and outputs that holds no variables."""
    constant = private_names.with_constants(function)

    def serve(*inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        given = dict(zip((spec.name for spec in specs), inputs, strict=True))
        flat = constant(*(given[each.op.name] for each in constant.inputs))
        return tf.nest.pack_sequence_as(function.structured_outputs, flat)

    return tf.function(serve, input_signature=specs, autograph=False)


def _serving(
    detector: DetectionModel,
    input_type: str,
    side_specs: Sequence[tf.TensorSpec],
    folded: FoldedVariables,
) -> tuple[list[tf.TensorSpec], Callable]:
    """Returns the input specs of an input type and the function that is served."""
    if input_type == input_types.IMAGE_AND_BOXES_TENSOR:
        names = [each.name for each in side_specs]

        def serve_boxes(
            input_tensor: tf.Tensor, boxes: tf.Tensor, *values: tf.Tensor
        ) -> dict[str, tf.Tensor]:
            given = dict(zip(names, map(at_least_one, values), strict=True))
            with tracing.portable(), folded:
                return _detect_in_boxes(detector, input_tensor, boxes, given)

        return [*_IMAGES_AND_BOXES, *side_specs], serve_boxes
    spec, read = _READERS[input_type]

    detect = detect_function(detector, read, [each.name for each in side_specs])
    if not side_specs and detector.side_inputs():
        detect = detect_function(detector, read, sorted(_CONTEXT), _context_of_examples)

    def serve(input_tensor: tf.Tensor, *side_inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        with tracing.portable(), folded:
            return detect(input_tensor, *side_inputs)

    return [spec, *side_specs], serve


def _detect_in_boxes(
    detector: DetectionModel,
    input_tensor: tf.Tensor,
    boxes: tf.Tensor,
    given: Mapping[str, tf.Tensor],
) -> dict[str, tf.Tensor]:
    """Classifies given boxes, float32 [B, N, 4], normalized, and predicts their masks."""
    images, true_shapes = read_images(detector, input_tensor)
    predictions = detector.predict(images, true_shapes, training=False, **given)
    batch, count = tf.unstack(tf.shape(boxes)[:2])
    # An empty set of boxes is replaced by one box, like an empty batch of images.
    missing = tf.maximum(1 - tf.shape(boxes)[:2], 0)
    padded = tf.pad(boxes, [[0, missing[0]], [0, missing[1]], [0, 0]])
    found = detector.predict_masks_from_boxes(predictions, true_shapes, padded)
    numbers = found.pop(DetectionFields.NUM_DETECTIONS)
    outputs = as_served({key: value[:batch, :count] for key, value in found.items()})
    count = tf.cast(count, tf.float32)
    return outputs | {DetectionFields.NUM_DETECTIONS: tf.minimum(numbers[:batch], count)}


def export(
    detector: DetectionModel,
    output_directory: str | os.PathLike,
    *,
    input_type: str,
    save_checkpoint: Callable[[str], None],
    pipeline_text: str,
    precision: str = 'float32',
    label_map_text: str | None = None,
    given_side_inputs: Sequence[GivenSideInput] | None = None,
    constant_weights: bool = False,
    advised_threshold: float | None = None,
    verify: Callable[[pathlib.Path], None] | None = None,
    describe: Callable[[pathlib.Path], str] | None = None,
) -> None:
    """Writes `checkpoint/`, `saved_model/` and `pipeline.config` below `output_directory`.

    Everything is written to a scratch folder and moved when complete: if `saved_model/` exists, all
    three items belong to one export, and an export that fails changes nothing; see `system.drafts`.

    Args:
      detector: built and restored detector; it stays as it is.
      output_directory: created if necessary; an earlier export in it is replaced.
      input_type: one of `input_types.INPUT_TYPES`.
      save_checkpoint: writes the unfolded variables as a checkpoint into a directory.
      pipeline_text: the pipeline config as text.
      precision: the precision in which the detector computes.
      label_map_text: a label map as text, which becomes an asset; None exports no class names.
      given_side_inputs, constant_weights, advised_threshold: see `ServedDetector`.
      verify: called with the folder of the complete export before it takes its place; what it
        raises leaves an earlier export there.
      describe: called with that folder after `verify`; writes a file there and returns its name,
        which is published with the export.

    Raises:
      ValueError: if `output_directory` holds the checkpoints of a training.
    """
    refuse_training_folder(output_directory)
    with publishing.open_draft(output_directory) as draft:
        save_checkpoint(str(draft.folder / 'checkpoint'))
        (draft.folder / 'pipeline.config').write_text(pipeline_text)
        label_map_path = None
        if label_map_text is not None:
            label_map_path = draft.scratch / LABEL_MAP
            label_map_path.write_text(label_map_text, encoding='utf-8')
        served = ServedDetector(
            detector,
            input_type,
            precision,
            label_map_path,
            given_side_inputs,
            constant_weights=constant_weights,
            advised_threshold=advised_threshold,
        )
        # Functions for gradients would capture tensors that constants have replaced.
        tf.saved_model.save(
            served,
            str(draft.folder / 'saved_model'),
            signatures={'serving_default': served.serve},
            options=tf.saved_model.SaveOptions(experimental_custom_gradients=not constant_weights),
        )
        if verify is not None:
            verify(draft.folder)
        described = [] if describe is None else [describe(draft.folder)]
        draft.publish([*described, *_ITEMS])


def refuse_training_folder(output: str | os.PathLike) -> None:
    """Raises UserError if a folder holds checkpoints of a training, which an export would harm."""
    if (pathlib.Path(output) / 'checkpoint').is_file():
        raise UserError(
            f'{output}: holds the checkpoints of a training, whose file `checkpoint` an export '
            'would replace; give another output directory.'
        )


def _constant(text: str | list[str] | list[float]) -> tf.types.experimental.PolymorphicFunction:
    return tf.function(lambda: tf.constant(text), input_signature=[], autograph=False)


def _names_by_id(label_map_path: str | os.PathLike) -> list[str]:
    """Returns the names of a label map, indexed by id; '' where there is no class, as at 0."""
    names = label_map.load(label_map_path).names
    return [names.get(class_id, '') for class_id in range(max(names, default=0) + 1)]


@tracing.named('preprocess')
def _from_encoded(detector: DetectionModel, encoded: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Decodes and resizes each image separately; pads to the largest if sizes differ.

    An empty batch is replaced by a black image.
    """
    missing = tf.maximum(1 - tf.shape(encoded), 0)
    black = tf.io.encode_png(tf.zeros([1, 1, 3], tf.uint8))
    encoded = tf.concat([encoded, tf.fill(missing, black)], axis=0)
    is_static = detector.resizer.static_shape is not None
    shape = detector.resizer.static_shape or (None, None, 3)
    spec = (
        tf.TensorSpec(shape, tf.float32)
        if is_static
        else tf.RaggedTensorSpec(shape, tf.float32, ragged_rank=1)
    )

    def resize(image: tf.Tensor) -> tuple[tf.Tensor | tf.RaggedTensor, tf.Tensor]:
        image = decode_image(image, value_range=detector.resizer.value_range)
        resized, true_shape = detector.resizer(image)
        return resized if is_static else tf.RaggedTensor.from_tensor(resized), true_shape

    signature = (spec, tf.TensorSpec([3], tf.int32))
    images, true_shapes = tf.map_fn(resize, encoded, fn_output_signature=signature)
    if not is_static:
        images = images.to_tensor(shape=[None, None, None, 3])
    return detector.normalize_padded(images, true_shapes), true_shapes


def _from_examples(detector: DetectionModel, examples: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    features = {keys.ENCODED: tf.io.FixedLenFeature([], tf.string)}
    return _from_encoded(detector, tf.io.parse_example(examples, features)[keys.ENCODED])


def _context_of_examples(detector: DetectionModel, examples: tf.Tensor) -> list[tf.Tensor]:
    """Returns the context of tf.Examples, string [B]: the values of `_CONTEXT`, by sorted names.

    An example without context features has none; what is too much is cut off.
    """
    size, length = detector.side_inputs()[InputFields.CONTEXT_FEATURES].shape[1:]
    features = {keys.CONTEXT_FEATURES: tf.io.RaggedFeature(tf.float32)}
    rows = tf.io.parse_example(examples, features)[keys.CONTEXT_FEATURES]  # [B, n * L]
    lengths = tf.cast(rows.row_lengths(), tf.int32)
    with asserted(
        tf.reduce_all(lengths % length == 0),
        f'{keys.CONTEXT_FEATURES}: expected a multiple of {length} numbers. Received:',
        lengths,
    ):
        padded = tf.reshape(rows.to_tensor(shape=[None, size * length]), [-1, size, length])
    values = {
        InputFields.CONTEXT_FEATURES: padded,
        InputFields.VALID_CONTEXT_SIZE: tf.minimum(lengths // length, size),
    }
    return [values[name] for name in sorted(_CONTEXT)]


_IMAGES_AND_BOXES = [
    tf.TensorSpec([None, None, None, 3], tf.uint8, 'input_tensor'),
    tf.TensorSpec([None, None, 4], tf.float32, 'boxes'),
]

# input_type -> (spec of `input_tensor`, its reader)
_READERS: dict[str, tuple[tf.TensorSpec, Callable]] = {
    input_types.IMAGE_TENSOR: (
        tf.TensorSpec([None, None, None, 3], tf.uint8, 'input_tensor'),
        read_images,
    ),
    input_types.FLOAT_IMAGE_TENSOR: (
        tf.TensorSpec([None, None, None, 3], tf.float32, 'input_tensor'),
        read_images,
    ),
    input_types.ENCODED_IMAGE_STRING_TENSOR: (
        tf.TensorSpec([None], tf.string, 'input_tensor'),
        _from_encoded,
    ),
    input_types.TF_EXAMPLE: (tf.TensorSpec([None], tf.string, 'input_tensor'), _from_examples),
}
