"""OpenVINO files: `model.xml`, the graph, and `model.bin`, the weights.

OpenVINO (https://docs.openvino.ai) converts the SavedModel. The file takes `input_tensor`, uint8
[B, H, W, 3], of any batch and image size; resizing and normalizing are inside.
"""

import pathlib
import tempfile

import numpy as np
import tensorflow as tf

from object_detection.errors import UserError
from object_detection.export.formats.formats import no_description
from object_detection.export.formats.source import ExportSource, FormatOptions
from object_detection.runtime.description import ModelDescription
from object_detection.runtime.file_detector import Arrays, FileRuntime

_NAME = 'openvino'
# On CPUs with units for bfloat16 the default rounds to it.
_RUNTIME_OPTIONS = {'INFERENCE_PRECISION_HINT': 'f32'}


def check(source: ExportSource, options: FormatOptions) -> None:
    del options
    source.refuse_side_inputs(_NAME)
    source.refuse_precisions(_NAME)


def write(source: ExportSource, path: pathlib.Path, options: FormatOptions) -> ModelDescription:
    del options
    import openvino

    served = source.served_module()
    with tempfile.TemporaryDirectory(prefix='.saved-', dir=path.parent) as folder:
        tf.saved_model.save(served, folder, signatures={'serving_default': served.serve})
        try:
            model = openvino.convert_model(folder)
            openvino.save_model(model, path, compress_to_fp16=False)
        # OpenVINO's errors have no common class but these.
        except (RuntimeError, ValueError) as error:
            raise UserError(f'--format {_NAME}: OpenVINO cannot convert it: {error}') from error
    return source.describe(
        _NAME,
        inputs=(source.input_tensor,),
        outputs=tuple(output.get_any_name() for output in model.outputs),
        resizes_inside=True,
        details={'openvino': openvino.__version__},
    )


def load(path: pathlib.Path, description: ModelDescription | None) -> FileRuntime:
    import openvino

    if description is None:
        raise no_description(path)
    core = openvino.Core()
    try:
        compiled = core.compile_model(core.read_model(path), 'CPU', _RUNTIME_OPTIONS)
        outputs = {name: compiled.output(name) for name in description.outputs}
    except RuntimeError as error:
        raise UserError(f'{path}: OpenVINO cannot read it: {error}') from error

    def run(inputs: Arrays) -> Arrays:
        try:
            results = compiled(inputs)
        except RuntimeError as error:
            raise UserError(f'{path}: OpenVINO cannot run it: {error}') from error
        return {name: np.asarray(results[output]) for name, output in outputs.items()}

    return FileRuntime(path, description, run)
