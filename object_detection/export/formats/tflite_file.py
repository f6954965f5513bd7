"""TFLite files as FlatBuffers: names and order of outputs, metadata, demands of Edge TPUs."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import flatbuffers
from flatbuffers import flexbuffers

from object_detection.export.formats import tflite_metadata
from object_detection.export.formats.tflite_graph import OPERATION
from object_detection.system import private_names

_IDENTIFIER = b'TFL3'
# Bytes to which weights are aligned, as the schema requires.
_ALIGNMENT = 16

# The operations of https://coral.ai/docs/edgetpu/models-intro/#supported-operations, and the
# conversions of inputs and outputs, which its compiler leaves to the processor.
_EDGE_TPU = frozenset(
    """
    ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D EXPAND_DIMS FULLY_CONNECTED
    L2_NORMALIZATION LOGISTIC LSTM MAXIMUM MAX_POOL_2D MEAN MINIMUM MUL PACK PAD PRELU QUANTIZE
    REDUCE_MAX REDUCE_MIN RELU RELU6 RELU_N1_TO_1 RESHAPE RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR
    RSQRT SLICE SOFTMAX SPACE_TO_DEPTH SPLIT SQUARED_DIFFERENCE SQUEEZE STRIDED_SLICE SUB SUM TANH
    TRANSPOSE TRANSPOSE_CONV DEQUANTIZE
    """.split()  # noqa: SIM905
)


def finish(
    model: bytes, outputs: Sequence[str], metadata: bytes, max_detections_per_class: int
) -> bytes:
    """Puts the outputs of a converted file in order, names them, and adds metadata.

    The converter orders outputs by no rule, and its names are those of nodes.

    Args:
      model: a file with one signature.
      outputs: all outputs of the signature, in the order that they get.
      metadata: see `tflite_metadata.build`.
      max_detections_per_class: attribute of the post-processing that the converter leaves out.
    """
    schema = private_names.tflite_schema()
    tree = schema.ModelT.InitFromPackedBuf(bytearray(model), 0)
    (signature,), graph = tree.signatureDefs, tree.subgraphs[0]
    by_name = {_text(each.name): each for each in signature.outputs}
    signature.outputs = [by_name[name] for name in outputs]
    graph.outputs = [each.tensorIndex for each in signature.outputs]
    for each in [*signature.inputs, *signature.outputs]:
        graph.tensors[each.tensorIndex].name = each.name
    for operator in graph.operators:
        if _text(tree.operatorCodes[operator.opcodeIndex].customCode or '') == OPERATION:
            attributes = flexbuffers.Loads(bytes(operator.customOptions))
            attributes['detections_per_class'] = max_detections_per_class
            operator.customOptions = list(flexbuffers.Dumps(attributes))
    buffer = schema.BufferT()
    buffer.data = bytearray(metadata)
    entry = schema.MetadataT()
    entry.name, entry.buffer = tflite_metadata.BUFFER, len(tree.buffers)
    tree.buffers.append(buffer)
    tree.metadata = [*(tree.metadata or []), entry]
    builder = _Aligned(len(model) + len(metadata))
    builder.Finish(tree.Pack(builder), file_identifier=_IDENTIFIER)
    return bytes(builder.Output())


def edge_tpu_problems(model: bytes) -> list[str]:
    """Lists what the compiler for Edge TPUs does not take, one line for each kind of operation.

    The compiler gives the processor all that follows the first such operation. An empty list says
    that everything but the post-processing runs on the Edge TPU.
    """
    schema = private_names.tflite_schema()
    tree = schema.ModelT.InitFromPackedBuf(bytearray(model), 0)
    names = {
        number: name for name, number in vars(schema.BuiltinOperator).items() if name.isupper()
    }
    types = {number: name for name, number in vars(schema.TensorType).items() if name.isupper()}
    found: Counter[str] = Counter()
    for graph in tree.subgraphs:
        for operator in graph.operators:
            code = tree.operatorCodes[operator.opcodeIndex]
            name = _text(code.customCode) if code.customCode else names[_builtin(code)]
            if name == OPERATION:
                # It runs on the processor, and what follows it numbers its classes.
                break
            found.update(f'{name}: {each}' for each in _problems(name, operator, graph, types))
    return [f'{count} x {text}' for text, count in found.items()]


def _problems(name: str, operator: Any, graph: Any, types: Mapping[int, str]) -> Iterator[str]:
    """Yields what hinders one operation: at most one reason."""
    tensors = [graph.tensors[i] for i in [*operator.inputs, *operator.outputs] if i >= 0]
    kinds = {types[tensor.type] for tensor in tensors}
    if name not in _EDGE_TPU:
        yield 'no operation of the Edge TPU'
    elif any(-1 in _sizes(tensor) for tensor in tensors):
        yield 'the size of a tensor is not constant'
    elif 'FLOAT32' in kinds and name not in ('QUANTIZE', 'DEQUANTIZE'):
        yield 'computes in floating point'


def _sizes(tensor: Any) -> Sequence[int]:
    return () if tensor.shapeSignature is None else list(tensor.shapeSignature)


def _builtin(code: Any) -> int:
    # Files of either age of the schema have the number in one of two fields.
    return max(code.builtinCode, code.deprecatedBuiltinCode)


def _text(name: bytes | str) -> str:
    return name.decode() if isinstance(name, bytes) else name


class _Aligned(flatbuffers.Builder):
    """Aligns all vectors as weights have to be; Python's generated code aligns bytes to 1."""

    def StartVector(self, elemSize, numElems, alignment):  # noqa: N802, N803
        return super().StartVector(elemSize, numElems, max(alignment, _ALIGNMENT))
