"""ONNX files, converted by tf2onnx (https://github.com/onnx/tensorflow-onnx).

The file takes `input_tensor`, uint8 [B, H, W, 3], of any batch and image size, as the SavedModel
does; resizing and normalizing are inside. Its metadata hold the description.
"""

import logging
import pathlib
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from object_detection.errors import UserError, format_list
from object_detection.export.formats.formats import no_description
from object_detection.export.formats.source import ExportSource, FormatOptions
from object_detection.models import precision as precisions
from object_detection.runtime import description as descriptions
from object_detection.runtime.description import ModelDescription
from object_detection.runtime.file_detector import Arrays, FileRuntime

if TYPE_CHECKING:
    import onnx

_NAME = 'onnx'
# The newest that tf2onnx writes.
_OPSET = 18
# A file is one message of protobuf, which has this limit; graphs take the rest.
_MAX_WEIGHTS = 2_000_000_000
_DESCRIPTION_KEY = 'object_detection.description'


def check(source: ExportSource, options: FormatOptions) -> None:
    del options
    source.refuse_side_inputs(_NAME)
    source.refuse_precisions(_NAME)
    size = sum(each.numpy().nbytes for each in source.detector.named_variables().values())
    if size > _MAX_WEIGHTS:
        raise UserError(
            f'--format {_NAME}: a file holds at most 2 GB, but the weights take {size / 1e9:.1f} '
            'GB; use --format saved_model or stablehlo.'
        )


def write(source: ExportSource, path: pathlib.Path, options: FormatOptions) -> ModelDescription:
    del options
    with precisions.scope(source.precision):
        model = _convert(source.served_module().serve)
    described = source.describe(
        _NAME,
        inputs=(source.input_tensor,),
        outputs=tuple(each.name for each in model.graph.output),
        resizes_inside=True,
        details={'opset': _OPSET},
    )
    entry = model.metadata_props.add()
    entry.key, entry.value = _DESCRIPTION_KEY, described.to_json()
    path.write_bytes(model.SerializeToString())
    return described


def _convert(function: tf.types.experimental.PolymorphicFunction) -> 'onnx.ModelProto':
    import onnx
    import tf2onnx

    # It logs each pass, and as errors what its own optimizer then tries otherwise.
    logging.getLogger('tf2onnx').setLevel(logging.CRITICAL)
    try:
        model, _ = tf2onnx.convert.from_function(
            function, input_signature=function.input_signature, opset=_OPSET
        )
        onnx.checker.check_model(model)
    except (ValueError, RuntimeError, onnx.checker.ValidationError) as error:
        raise UserError(f'--format {_NAME}: tf2onnx cannot convert the model: {error}') from error
    foreign = sorted({node.op_type for node in model.graph.node if node.domain})
    if foreign:
        raise UserError(
            f'--format {_NAME}: ONNX has no operation for {format_list(foreign)} of the model; use '
            '--format saved_model or stablehlo.'
        )
    _name_axes(model.graph)
    return model


def _name_axes(graph: 'onnx.GraphProto') -> None:
    """Names the free axes, which readers show; the converter numbers them."""
    for value, names in (
        *((each, ('batch', 'height', 'width')) for each in graph.input),
        *((each, ('batch',)) for each in graph.output),
    ):
        for axis, name in zip(value.type.tensor_type.shape.dim, names, strict=False):
            if not axis.HasField('dim_value'):
                axis.dim_param = name


def output_shapes(path: pathlib.Path) -> dict[str, tuple[int | None, ...]]:
    """Returns the outputs of a file: name -> size of each axis, None for any."""
    import onnx

    return {
        each.name: tuple(
            axis.dim_value if axis.HasField('dim_value') else None
            for axis in each.type.tensor_type.shape.dim
        )
        for each in onnx.load(path).graph.output
    }


def load(path: pathlib.Path, description: ModelDescription | None) -> FileRuntime:
    import onnxruntime

    try:
        session = onnxruntime.InferenceSession(
            path, providers=onnxruntime.get_available_providers()
        )
    # Its errors have no common class but this.
    except Exception as error:
        raise UserError(f'{path}: ONNX Runtime cannot read it: {error}') from error
    if description is None:
        text = session.get_modelmeta().custom_metadata_map.get(_DESCRIPTION_KEY)
        if text is None:
            raise no_description(path)
        description = descriptions.parse(text, f'{path}: {_DESCRIPTION_KEY}', _NAME)
    names = list(description.outputs)

    def run(inputs: Arrays) -> Arrays:
        try:
            values = session.run(names, inputs)
        except Exception as error:
            raise UserError(f'{path}: ONNX Runtime cannot run it: {error}') from error
        return {name: np.asarray(value) for name, value in zip(names, values, strict=True)}

    return FileRuntime(path, description, run)
