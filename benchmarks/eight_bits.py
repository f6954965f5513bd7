"""8 bits beside 16 and 32: the 3x3 convolutions of a detector by TensorFlow's own operations.

    python benchmarks/eight_bits.py

For each shape, in turns: a convolution with bias and ReLU in float32 and bfloat16, and TensorFlow's
operation on integers, which a SavedModel in 8 bits would consist of: from integers to integers, and
between floating point numbers, as where additions and changes of size lie before and behind it. The
last row is the sum, each convolution as often as ResNet-50 with a feature pyramid and one head has
it at 640 x 640. Then two of them in a row as a SavedModel, which TensorFlow's own converter has
quantized after training. The whole detectors are those of `benchmarks/tflite.py --bfloat16`.
"""

import functools
import json
import statistics
import tempfile
from collections.abc import Callable

import click
import numpy as np
import tensorflow as tf
from tensorflow.compiler.mlir.quantization.tensorflow import quantization_options_pb2 as options_pb2
from tensorflow.core.framework import attr_value_pb2, types_pb2

from object_detection.benchmarking import rows, work

# (side, channels, how often): the blocks of the backbone, then the pyramid and the head.
_SHAPES = (
    (160, 64, 3),
    (80, 128, 4),
    (40, 256, 6),
    (20, 512, 3),
    (160, 256, 2),
    (80, 256, 2),
    (40, 256, 2),
    (20, 256, 2),
)
_NAMES = ('float32', 'bfloat16', 'int8', 'int8_between_floats')
_LARGEST = 6.0
_LEVELS = 255


@click.command(help=__doc__)
@click.option('--steps', default=10, show_default=True, help='Timed runs of each.')
def main(steps: int) -> None:
    click.echo(json.dumps(work.describe()))
    total = dict.fromkeys(_NAMES, 0.0)
    for side, channels, count in _SHAPES:
        functions, error = _functions(side, channels)
        rows.turns(functions, 3)
        seconds = rows.turns(functions, steps)
        medians = {name: statistics.median(values) for name, values in seconds.items()}
        for name, value in medians.items():
            total[name] += count * value
        row = {'side': side, 'channels': channels, 'count': count, 'error_in_levels': error}
        click.echo(json.dumps(row | _row(medians)))
    click.echo(json.dumps({'all': True} | _row(total)))
    functions = _saved_models(side=40, channels=256)
    rows.turns(functions, 2)
    seconds = rows.turns(functions, steps)
    click.echo(
        json.dumps(
            {name: round(1000 * statistics.median(each), 2) for name, each in seconds.items()}
        )
    )


def _row(seconds: dict[str, float]) -> dict[str, float]:
    found = {f'{name}_ms': round(1000 * value, 2) for name, value in seconds.items()}
    return found | {
        f'{name}_by_bfloat16': round(seconds['bfloat16'] / seconds[name], 2) for name in _NAMES[2:]
    }


def _functions(side: int, channels: int) -> tuple[dict[str, Callable], float]:
    """Returns the convolutions, and the largest difference of int8 to float32 in its levels."""
    rng = np.random.default_rng(0)
    images = rng.uniform(0, 1, [1, side, side, channels]).astype(np.float32)
    kernel = rng.normal(0, 1 / np.sqrt(9 * channels), [3, 3, channels, channels])
    kernel, bias = kernel.astype(np.float32), rng.normal(0, 1, channels).astype(np.float32)
    functions = {
        name: _floating(images, kernel, bias, getattr(tf, name)) for name in ('float32', 'bfloat16')
    }
    functions['int8'], functions['int8_between_floats'] = _integer(images, kernel, bias)
    expected = np.minimum(functions['float32']().numpy(), _LARGEST)
    found = tf.cast(functions['int8'](), tf.int32).numpy() * _LARGEST / _LEVELS
    error = float(np.abs(found - expected).max() / _LARGEST * _LEVELS)
    return functions, round(error, 1)


def _floating(
    images: np.ndarray, kernel: np.ndarray, bias: np.ndarray, dtype: tf.DType
) -> Callable[[], tf.Tensor]:
    images = tf.constant(images, dtype)

    @tf.function
    def convolve(images: tf.Tensor) -> tf.Tensor:
        product = tf.nn.conv2d(images, tf.constant(kernel, dtype), 1, 'SAME')
        return tf.nn.relu(tf.nn.bias_add(product, tf.constant(bias, dtype)))

    return lambda: convolve(images)


def _integer(
    images: np.ndarray, kernel: np.ndarray, bias: np.ndarray
) -> tuple[Callable[[], tf.Tensor], Callable[[], tf.Tensor]]:
    """The fused operation: uint8 in and out, kernels with a scale for each output channel."""
    scales = np.abs(kernel).max(axis=(0, 1, 2))
    rounded = np.round(kernel / scales * 127).astype(np.int8)

    def convolve(images: tf.Tensor) -> tf.Tensor:
        return tf.raw_ops.QuantizedConv2DWithBiasAndReluAndRequantize(
            **{'input': images, 'filter': _constant(rounded), 'bias': tf.constant(bias)},
            **{'min_input': 0.0, 'max_input': 1.0, 'min_filter': -scales, 'max_filter': scales},
            **{'min_freezed_output': 0.0, 'max_freezed_output': _LARGEST},
            **{'out_type': tf.quint8, 'strides': [1, 1, 1, 1], 'padding': 'SAME'},
        ).output

    @tf.function
    def of_integers(images: tf.Tensor) -> tf.Tensor:
        return convolve(tf.bitcast(images, tf.quint8))

    @tf.function
    def of_floats(images: tf.Tensor) -> tf.Tensor:
        integers = tf.quantization.quantize(images, 0.0, 1.0, tf.quint8).output
        return tf.quantization.dequantize(convolve(integers), 0.0, _LARGEST)

    integers = tf.constant(np.round(images * _LEVELS).astype(np.uint8))
    images = tf.constant(images)
    return lambda: of_integers(integers), lambda: of_floats(images)


class _Two(tf.Module):
    """Two convolutions with bias and ReLU, as a model to be saved."""

    def __init__(self, kernel: np.ndarray, bias: np.ndarray, side: int, dtype: tf.DType):
        super().__init__()
        self.weights = tf.constant(kernel, dtype), tf.constant(bias, dtype)
        spec = tf.TensorSpec([1, side, side, len(bias)], tf.float32, 'images')
        self.serve = tf.function(self._serve, input_signature=[spec], autograph=False)

    def _serve(self, images: tf.Tensor) -> dict[str, tf.Tensor]:
        kernel, bias = self.weights
        values = tf.cast(images, kernel.dtype)
        for _ in range(2):
            values = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(values, kernel, 1, 'SAME'), bias))
        return {'values': tf.cast(values, tf.float32)}


def _saved_models(side: int, channels: int) -> dict[str, Callable[[], tf.Tensor]]:
    """The two in floating point, and as the converter writes them for two sets of operations.

    The third set, of uniform quantization, takes a thousand times as long on CPUs.
    """
    rng = np.random.default_rng(0)
    images = rng.uniform(0, 1, [1, side, side, channels]).astype(np.float32)
    kernel = rng.normal(0, 1 / np.sqrt(9 * channels), [3, 3, channels, channels])
    kernel, bias = kernel.astype(np.float32), rng.normal(0, 1, channels).astype(np.float32)
    experimental, functions = tf.quantization.experimental, {}
    with tempfile.TemporaryDirectory() as folder:
        for name in ('float32', 'bfloat16'):
            module = _Two(kernel, bias, side, getattr(tf, name))
            tf.saved_model.save(module, f'{folder}/{name}', {'serving_default': module.serve})
        for name in ('TF', 'XLA'):
            options = experimental.QuantizationOptions(
                quantization_method=experimental.QuantizationMethod(
                    preset_method=options_pb2.QuantizationMethod.METHOD_STATIC_RANGE_INT8
                ),
                **{'op_set': getattr(options_pb2, name), 'tags': {'serve'}},
                signature_keys=['serving_default'],
            )
            experimental.quantize_saved_model(
                *(f'{folder}/float32', f'{folder}/{name}', options),
                representative_dataset=[{'images': images}] * 4,
            )
        for name in ('float32', 'bfloat16', 'TF', 'XLA'):
            loaded = tf.saved_model.load(f'{folder}/{name}')
            run = functools.partial(
                loaded.signatures['serving_default'], images=tf.constant(images)
            )
            # The function alone does not keep the variables of the model.
            functions[name] = lambda loaded=loaded, run=run: run()
    return functions


def _constant(values: np.ndarray) -> tf.Tensor:
    """A constant of quantized integers, which the operation asks for and `tf.constant` refuses."""
    proto = tf.make_tensor_proto(values)
    proto.dtype = types_pb2.DT_QINT8
    attributes = {
        'value': attr_value_pb2.AttrValue(tensor=proto),
        'dtype': attr_value_pb2.AttrValue(type=types_pb2.DT_QINT8),
    }
    graph = tf.compat.v1.get_default_graph()
    return graph.create_op('Const', [], [tf.qint8], attrs=attributes).outputs[0]


if __name__ == '__main__':
    main()
