"""A model repository of the Triton Inference Server (https://github.com/triton-inference-server).

    triton/detector/config.pbtxt    triton/detector/1/model.onnx (or model.savedmodel/)

The model takes `input_tensor`, uint8 [B, H, W, 3], of any image size; Triton joins requests of
images of one size. `config.pbtxt` has no name, so that the folder may have another one.
"""

import pathlib

import tensorflow as tf

from object_detection.errors import UserError
from object_detection.export.formats import onnx_file
from object_detection.export.formats.formats import TRITON_BACKENDS, no_description
from object_detection.export.formats.source import ExportSource, FormatOptions
from object_detection.runtime.description import ModelDescription
from object_detection.runtime.file_detector import Arrays, FileRuntime
from object_detection.system import extras

_NAME = 'triton'
_ONNX, _SAVED_MODEL = TRITON_BACKENDS
_FILES = {_ONNX: '1/model.onnx', _SAVED_MODEL: '1/model.savedmodel'}
_BACKENDS = {_ONNX: 'backend: "onnxruntime"', _SAVED_MODEL: 'platform: "tensorflow_savedmodel"'}
# How long Triton waits for more images of a batch.
_QUEUE_MICROSECONDS = 2000


def check(source: ExportSource, options: FormatOptions) -> None:
    if options.triton_backend == _ONNX:
        extras.check_packages(f'--format {_NAME}', ('tf2onnx', 'onnx'), 'onnx')
        onnx_file.check(source, options)
    source.refuse_side_inputs(_NAME)


def write(source: ExportSource, path: pathlib.Path, options: FormatOptions) -> ModelDescription:
    model = path.parent / _FILES[options.triton_backend]
    model.parent.mkdir()
    if options.triton_backend == _ONNX:
        written = onnx_file.write(source, model, options)
        outputs, details = onnx_file.output_shapes(model), written.details
    else:
        served = source.served_module()
        tf.saved_model.save(served, str(model), signatures={'serving_default': served.serve})
        found = served.serve.get_concrete_function().structured_outputs
        outputs, details = {name: tuple(each.shape) for name, each in found.items()}, {}
    path.write_text(_config(source, outputs, options), encoding='utf-8')
    return source.describe(
        _NAME,
        inputs=(source.input_tensor,),
        outputs=tuple(outputs),
        resizes_inside=True,
        details={**details, 'backend': options.triton_backend},
    )


def _config(
    source: ExportSource, outputs: dict[str, tuple[int | None, ...]], options: FormatOptions
) -> str:
    """Returns the text of `config.pbtxt`; `outputs` are shapes with the axis B."""
    taken = source.input_tensor
    tensors = [('input', taken.name, taken.dtype, taken.shape)]
    tensors += [('output', name, 'float32', shape) for name, shape in outputs.items()]
    lines = [_BACKENDS[options.triton_backend], f'max_batch_size: {options.batch_size}']
    for kind, name, dtype, shape in tensors:
        kinds = {'uint8': 'TYPE_UINT8', 'float32': 'TYPE_FP32'}
        dims = ', '.join(str(-1 if side is None else side) for side in shape[1:])
        # Triton wants a dimension besides that of the batch; the model has none for counts.
        dims = f'dims: [ {dims} ]' if dims else 'dims: [ 1 ] reshape: { shape: [ ] }'
        lines.append(f'{kind} {{ name: "{name}" data_type: {kinds[dtype]} {dims} }}')
    delay = f'max_queue_delay_microseconds: {_QUEUE_MICROSECONDS}'
    lines.append(f'dynamic_batching {{ {delay} }}' if options.batch_size > 1 else '')
    return '\n'.join(filter(None, lines)) + '\n'


def load(path: pathlib.Path, description: ModelDescription | None) -> FileRuntime:
    if description is None:
        raise no_description(path)
    files = {name: path.parent / file for name, file in _FILES.items()}
    if files[_ONNX].is_file():
        extras.check_packages(str(path), ('onnxruntime',), 'onnx')
        return onnx_file.load(files[_ONNX], description)
    saved = files[_SAVED_MODEL]
    try:
        model = tf.saved_model.load(str(saved))
        model.signatures['serving_default']
    except (OSError, KeyError, tf.errors.OpError) as error:
        raise UserError(f'{path}: expected a model in the folder 1 next to it: {error}.') from error

    def run(inputs: Arrays) -> Arrays:
        given = {name: tf.constant(value) for name, value in inputs.items()}
        outputs = model.signatures['serving_default'](**given)
        return {name: outputs[name].numpy() for name in description.outputs}

    # The file of the weights, by which models are distinguished.
    return FileRuntime(saved / 'variables' / 'variables.data-00000-of-00001', description, run)
