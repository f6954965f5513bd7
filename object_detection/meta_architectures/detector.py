"""Builds the detector of a pipeline config, with variables, precision and weight decay."""

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from object_detection.builders import model_builder, training_rules
from object_detection.builders.input_readers import channels
from object_detection.errors import ConfigError, UserError, raise_if_any
from object_detection.meta_architectures import trainable_variables
from object_detection.meta_architectures.detection_model import DetectionModel
from object_detection.models import image_channels, quantization, rounding
from object_detection.models import precision as precisions
from object_detection.models.quantization import Quantization, QuantizationParams
from object_detection.protos import graph_rewriter_pb2
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.system import private_names

_logger = logging.getLogger(__name__)

# Side in pixels of the image that shows which tensors a detector computes; all maps have cells.
_PROBE_SIZE = 320
_EXEMPTIONS = training_rules.EXEMPTIONS


def build(
    pipeline: TrainEvalPipelineConfig,
    *,
    is_training: bool,
    precision: str | None = None,
    has_penalty: bool = True,
) -> DetectionModel:
    """Builds the detector with its variables, which have random values.

    Args:
      pipeline: config whose `model`, `train_config` and `graph_rewriter` are read.
      is_training: False freezes all batch norms, for evaluation and export.
      precision: a name that `precision.canonical` knows; None takes that of the config.
      has_penalty: whether `train_config.weight_decay` is installed; a detector that computes no
        losses needs none.

    Raises:
      ValueError: if no model is set, an option is not supported or does not fit another, or the
        precision is unknown.
      ConfigError: if an expression for names of variables or layers does not fit the detector.
    """
    config = pipeline.train_config
    chosen = precisions.resolve(config, precision)
    rounds = pipeline.graph_rewriter.quantization
    is_quantized = pipeline.graph_rewriter.HasField('quantization')
    if is_quantized:
        raise_if_any(training_rules.quantization_problems(rounds, chosen))
    num_channels = channels.of_detector(pipeline)
    with precisions.scope(chosen), image_channels.scope(num_channels):
        made = _quantization(rounds) if is_quantized else None
        with rounding.rounded_by(made):
            detector = model_builder.build(pipeline.model, is_training=is_training)
            detector.build_variables()
        if made is not None:
            _build_ranges(detector, made)
    exempt_layers(detector, config.precision_exempt_patterns, chosen)
    if has_penalty:
        trainable_variables.install_weight_decay(detector, config)
    return detector


def check_quantization(pipeline: TrainEvalPipelineConfig) -> None:
    """Checks that `graph_rewriter.quantization` can quantize the model, built without values.

    Raises:
      ConfigError: if a layer cannot be quantized.
    """
    made = _quantization(pipeline.graph_rewriter.quantization)
    num_channels = channels.of_detector(pipeline)
    with private_names.graph_without_values(), image_channels.scope(num_channels):
        with rounding.rounded_by(made):
            detector = model_builder.build(pipeline.model)
            detector.build_variables()
        _quantized(quantization.check, detector)


def _quantized(function: Callable, detector: DetectionModel, *arguments: Any) -> None:
    """Calls a function with the layers that are quantized."""
    unused = detector.variable_names.is_dispensable
    layers = [(name, each) for name, each in _layers(detector) if not unused(f'{name}/')]
    try:
        function(layers, *arguments)
    except UserError as error:
        raise ConfigError(f'{training_rules.QUANTIZATION}: {error}') from error


def _quantization(config: graph_rewriter_pb2.Quantization) -> Quantization:
    return Quantization(
        QuantizationParams(
            delay=config.delay,
            weight_bits=config.weight_bits,
            activation_bits=config.activation_bits,
            symmetric=config.symmetric,
        )
    )


def _build_ranges(detector: DetectionModel, made: Quantization) -> None:
    """Makes a detector round its weights and activations from now on."""
    side = {
        name: tf.zeros([1, *spec.shape[1:]], spec.dtype)
        for name, spec in detector.side_inputs().items()
    }

    @tf.function(autograph=False)
    def run() -> None:
        shape = [_PROBE_SIZE, _PROBE_SIZE, detector.num_image_channels]
        shapes, images = tf.constant([shape]), tf.zeros([1, *shape])
        detector.postprocess(detector.predict(images, shapes, **side), shapes)

    _quantized(made.build, detector, run.get_concrete_function)
    _logger.info(
        'quantized: %d tensors have ranges (%s)', len(made.ranges) // 2, training_rules.QUANTIZATION
    )


def exempt_layers(detector: DetectionModel, patterns: Sequence[str], precision: str) -> None:
    """Makes matching layers of a detector compute in float32; call it before the first run.

    Args:
      detector: a detector with all variables built.
      patterns: `TrainConfig.precision_exempt_patterns`; an expression may match anywhere in the
        name of a layer, such as backbone/conv1_conv (backbone/ for a whole component), or of one
        of its variables.
      precision: precision of the other layers, a key of `precision.POLICIES`.

    Raises:
      ConfigError: if an expression is not valid or matches nothing, or if the precision is that of
        all layers or none.
    """
    raise_if_any(
        training_rules.exemption_problems(patterns, uses_tf32=precision == precisions.TF32)
    )
    if not patterns:
        return
    layers = list(_layers(detector))
    exempt: dict[str, keras.layers.Layer] = {}
    for index, pattern in enumerate(patterns):
        matching = {name: layer for name, layer in layers if _is_found(pattern, name, layer)}
        if not matching:
            some = ', '.join(name for name, _ in layers[1 :: len(layers) // 4])
            raise ConfigError(
                f'{_EXEMPTIONS}[{index}]: expected a regular expression that is found in the name '
                f'of a layer or variable, such as {some}. Received: {pattern!r}.'
            )
        exempt |= matching
    # A model casts its inputs, which would round the input of an exempt first layer.
    parts = {name.partition('/')[0] for name in exempt}
    models = [top for part, top in detector.parts().items() if part in parts]
    models = [top for top in models if isinstance(top, keras.Model)]
    for layer in [*exempt.values(), *models]:
        layer.dtype_policy = 'float32'
    for model in models:
        private_names.set_input_dtype(model, 'float32')
    _logger.info('%d of %d layers compute in float32 (%s)', len(exempt), len(layers), _EXEMPTIONS)


def _layers(detector: DetectionModel) -> Iterator[tuple[str, keras.layers.Layer]]:
    """Returns all layers by name, including components (`rpn/`) and layers without variables."""
    for part, top in detector.parts().items():
        for layer in private_names.layers_in(top):
            # A layer without variables may have no path.
            path = layer.path or layer.name
            yield f'{part}/{"" if layer is top else path.removeprefix(top.name + "/")}', layer


def _is_found(pattern: str, name: str, layer: keras.layers.Layer) -> bool:
    paths = [variable.path.rpartition('/') for variable in layer.weights]
    # Variables of layers within the layer do not count.
    own = [f'{name}/{last}' for path, _, last in paths if path == layer.path]
    return any(re.search(pattern, text) for text in [name, *own])
