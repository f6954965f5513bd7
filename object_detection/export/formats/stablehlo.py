"""StableHLO: the operations that XLA compiles, with the weights as arguments.

`model.mlirbc` is a portable artifact of a version that later readers accept too (see
https://openxla.org/stablehlo/compatibility), `weights.npz` holds the weights by name. The module
takes the inputs and then the weights, in the order of the description, and returns the outputs in
its order. One file runs on CPUs, GPUs and TPUs, through JAX, PJRT or TensorFlow.
"""

import math
import pathlib
import re
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from object_detection.errors import UserError, expected
from object_detection.export.formats.formats import no_description
from object_detection.export.formats.source import ExportSource, FormatOptions
from object_detection.models import precision as precisions
from object_detection.models.convolutions import FoldedVariables
from object_detection.runtime.description import ModelDescription, TensorDescription
from object_detection.runtime.file_detector import Arrays, FileRuntime
from object_detection.system import private_names

_NAME = 'stablehlo'
WEIGHTS = 'weights.npz'
# Readers of the last years accept it, and no newer operation is needed.
VERSION = '1.0.0'


class Lowered(NamedTuple):
    """A function as StableHLO.

    Attributes:
      module: the portable artifact.
      text: StableHLO as text, from which it was made.
      captured: names of the variables that follow the arguments, in the module's order.
      outputs: names of the results, in the module's order; assigned variables follow them.
      traced: the concrete function.
    """

    module: bytes
    text: str
    captured: list[str]
    outputs: list[str]
    traced: tf.types.experimental.ConcreteFunction


def check(source: ExportSource, options: FormatOptions) -> None:
    source.refuse_side_inputs(_NAME)
    source.static_shape(_NAME)
    if options.batch_size < 1:
        raise UserError(f'--batch_size: expected at least 1. Received: {options.batch_size}.')


def write(source: ExportSource, path: pathlib.Path, options: FormatOptions) -> ModelDescription:
    inputs = source.fixed_inputs(_NAME, options.batch_size)
    detect, folded = source.fixed_function(_NAME), FoldedVariables()

    def compute(batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        with folded:
            return detect(**batch)

    specs = {each.name: tf.TensorSpec(each.shape, each.dtype) for each in inputs}
    with precisions.scope(source.precision):
        lowered = lower(compute, specs, lambda: _variables(source, folded))
    variables = _variables(source, folded)
    weights = {name: variables[name].numpy() for name in lowered.captured}
    path.write_bytes(lowered.module)
    np.savez(path.with_name(WEIGHTS), **weights)
    return source.describe(
        _NAME,
        # The order in which a dict is flattened.
        inputs=tuple(sorted(inputs, key=lambda each: each.name)),
        outputs=tuple(lowered.outputs),
        weights=tuple(
            TensorDescription(name, value.dtype.name, value.shape)
            for name, value in weights.items()
        ),
        details={
            'stablehlo_version': VERSION,
            'output_shapes': [
                lowered.traced.structured_outputs[name].shape.as_list() for name in lowered.outputs
            ],
        },
    )


def _variables(source: ExportSource, folded: FoldedVariables) -> dict[str, tf.Variable]:
    named = dict(source.detector.named_variables())
    # Layers that levels share have a kernel for each norm, under one name.
    for index, variable in enumerate(folded.variables):
        named[f'folded/{index}/{variable.name.partition(":")[0]}'] = variable
    return named


def lower(
    compute: Callable[[dict[str, tf.Tensor]], Mapping[str, tf.Tensor]],
    specs: Mapping[str, tf.TensorSpec],
    variables: Callable[[], Mapping[str, tf.Variable]],
) -> Lowered:
    """Compiles a function of a batch to StableHLO.

    Args:
      compute: batch -> results by name.
      specs: of the entries of the batch, of static shapes.
      variables: returns all variables that it may read or assign, by name, after it was traced.

    Raises:
      UserError: if it reads another variable.
    """
    function = tf.function(compute, jit_compile=True, autograph=False)
    traced = function.get_concrete_function(dict(specs))
    handles = {id(variable.handle): name for name, variable in variables().items()}
    captured = []
    for handle in traced.captured_inputs:
        if id(handle) not in handles:
            raise UserError(f'Expected variables of the detector alone. Received: {handle}.')
        captured.append(handles[id(handle)])
    batch = {name: tf.zeros(spec.shape, spec.dtype) for name, spec in specs.items()}
    text = function.experimental_get_compiler_ir(batch)(stage='stablehlo')
    outputs = sorted(traced.structured_outputs)
    return Lowered(_portable(text), text, captured, outputs, traced)


def _portable(text: str) -> bytes:
    # The one operation of another dialect: what becomes a variable's value is copied.
    text = re.sub(
        r'mhlo\.copy (%\S+) : (tensor<[^>]*>)', r'stablehlo.reshape \1 : (\2) -> \2', text
    )
    return private_names.stablehlo_artifact(text, VERSION)


def load(path: pathlib.Path, description: ModelDescription | None) -> FileRuntime:
    if description is None:
        raise no_description(path)
    module = path.read_bytes()
    weights = _read_weights(path.with_name(WEIGHTS), description.weights)
    # The shapes of the results are known to the module alone.
    names, types = description.outputs, [tf.float32] * len(description.outputs)

    @tf.function(autograph=False)
    def call(*arguments: tf.Tensor) -> list[tf.Tensor]:
        return private_names.call_stablehlo(module, [*arguments, *weights], types)

    def run(inputs: Arrays) -> Arrays:
        try:
            results = call(*(tf.constant(inputs[each.name]) for each in description.inputs))
        except tf.errors.OpError as error:
            # The message begins with the places in this program.
            raise UserError(f'{path}: cannot be run: {error.message[-500:]}') from error
        return {name: value.numpy() for name, value in zip(names, results, strict=True)}

    return FileRuntime(path, description, run)


def _read_weights(path: pathlib.Path, described: Sequence[TensorDescription]) -> list[tf.Tensor]:
    try:
        # Nothing is compressed, so that the arrays take no more than the file.
        size = sum(math.prod(each.shape) * tf.as_dtype(each.dtype).size for each in described)
        if size > path.stat().st_size:
            raise expected(
                path, f'{size} bytes of weights, as described', f'{path.stat().st_size} bytes'
            )
        with zipfile.ZipFile(path) as archive:
            return [tf.constant(_read_weight(path, archive, each)) for each in described]
    except UserError:
        raise
    # What a damaged archive raises has no common class.
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f'{path}: expected the weights of the model: {error}.') from error
    except (zlib.error, NotImplementedError, RuntimeError) as error:
        raise UserError(f'{path}: expected the weights of the model: {error}.') from error


def _read_weight(
    path: pathlib.Path, archive: zipfile.ZipFile, described: TensorDescription
) -> np.ndarray:
    """Reads an array whose header says what is expected, and no byte more than that takes."""
    entry = archive.getinfo(f'{described.name}.npy')
    if entry.compress_type != zipfile.ZIP_STORED:
        raise UserError(f'{path}: {described.name}: expected an array that is not compressed.')
    with archive.open(entry) as file:
        read = {(1, 0): np.lib.format.read_array_header_1_0}
        read[(2, 0)] = np.lib.format.read_array_header_2_0
        shape, is_fortran, dtype = read[np.lib.format.read_magic(file)](file)
        if (shape, dtype.name) != (described.shape, described.dtype) or dtype.hasobject:
            wanted, found = (
                f'{described.dtype} {list(described.shape)}',
                f'{dtype.name} {list(shape)}',
            )
            raise expected(f'{path}: {described.name}', wanted, found)
        content = file.read(dtype.itemsize * math.prod(shape))
    values = np.frombuffer(content, dtype)
    return values.reshape(shape, order='F' if is_fortran else 'C')
