"""Activations and layer norms in quantized trainings, and in files of other runtimes."""

import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf

from object_detection.core import tracing
from object_detection.export.formats import tflite
from object_detection.models import rounding
from object_detection.models.hyperparams import GELU, LEAKY_RELU, LayerHyperparams
from object_detection.models.normalization import LayerNormParams
from object_detection.models.quantization import Quantization, QuantizationParams

LAYERS = {
    name: LayerHyperparams(activation=name)
    for name in ('swish', GELU, LEAKY_RELU, 'hard_swish', 'mish')
} | {'layer_norm': LayerHyperparams(layer_norm=LayerNormParams())}
IMAGES = np.random.default_rng(0).normal(0.0, 2.0, (2, 8, 8, 3)).astype(np.float32)


def _network(hyperparams):
    images = keras.Input((8, 8, 3))
    x = hyperparams.conv(8, 3, name='conv')(images)
    x = hyperparams.norm(frozen=True, name='norm')(x)
    x = hyperparams.activation_layer(name='activation')(x)
    return keras.Model(images, hyperparams.conv(4, 1, name='last')(x))


def _exported(network, *variables):
    """The module whose `serve` computes the outputs of the first image as exports do."""
    module = tf.Module()
    module.variables_of_it = [each.value for each in network.variables] + list(variables)

    @tf.function(input_signature=[tf.TensorSpec([1, 8, 8, 3])], autograph=False)
    def serve(images):
        with tracing.BasicOperations():
            return network(images, training=False)

    module.serve = serve
    return module


def _run_tflite(module, **options):
    function = module.serve.get_concrete_function()
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function], module)
    for name, value in options.items():
        setattr(converter, name, value)
    interpreter = tflite.interpreter(pathlib.Path('a.tflite'), converter.convert())
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]['index'], IMAGES[:1])
    interpreter.invoke()
    return interpreter.get_tensor(interpreter.get_output_details()[0]['index'])


def test_gelu_in_exports_is_the_same():
    values = tf.linspace(-9.0, 9.0, 181)
    layer = LAYERS[GELU].activation_layer(name='activation')
    with tracing.BasicOperations():
        exported = layer(values)
    np.testing.assert_allclose(exported, layer(values), atol=1e-6)


@pytest.mark.parametrize(
    'name',
    [each if each == GELU else pytest.param(each, marks=pytest.mark.slow) for each in LAYERS],
)
def test_a_quantized_training_and_its_integer_file_agree(name):
    quantization = Quantization(QuantizationParams())
    with rounding.rounded_by(quantization):
        network = _network(LAYERS[name])
    exact = network(IMAGES).numpy()
    named = [(layer.name, layer) for layer in network.layers[1:]]
    quantization.build(named, lambda: network(IMAGES))
    assert 'activation/moving_min' in quantization.ranges
    with tracing.training_step(tf.Variable(0)):
        network(IMAGES, training=True)
    rounded = network(IMAGES[:1]).numpy()
    level = np.ptp(exact) / 255
    assert 0 < np.abs(rounded - exact[:1]).max() < 8 * level
    module = _exported(network, *quantization.ranges.values())
    found = _run_tflite(module, optimizations=[tf.lite.Optimize.DEFAULT])
    np.testing.assert_allclose(found, rounded, atol=3 * level)


@pytest.mark.slow
@pytest.mark.parametrize('name', LAYERS)
def test_files_of_other_runtimes(name, tmp_path):
    network = _network(LAYERS[name])
    module, expected = _exported(network), network(IMAGES[:1])
    np.testing.assert_allclose(_run_tflite(module), expected, atol=1e-4)
    tf2onnx, runtime = pytest.importorskip('tf2onnx'), pytest.importorskip('onnxruntime')
    signature = module.serve.input_signature
    model, _ = tf2onnx.convert.from_function(module.serve, input_signature=signature, opset=18)
    session = runtime.InferenceSession(model.SerializeToString())
    (found,) = session.run(None, {session.get_inputs()[0].name: IMAGES[:1]})
    np.testing.assert_allclose(found, expected, atol=1e-4)
    openvino = pytest.importorskip('openvino')
    tf.saved_model.save(module, str(tmp_path), signatures=module.serve)
    compiled = openvino.compile_model(openvino.convert_model(tmp_path), 'CPU')
    np.testing.assert_allclose(compiled(IMAGES[:1])[0], expected, atol=1e-4)
