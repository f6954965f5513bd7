"""Every private name of TensorFlow and Keras that this package uses.

There is no public interface for these functions. A new version of either library may break this
module, but no other.
"""

import collections
import contextlib
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf
from keras.src.backend.common import global_state
from keras.src.models import functional
from tensorflow.compiler.tf2xla.python import xla
from tensorflow.compiler.xla.tsl.protobuf import coordination_config_pb2
from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import backprop, context
from tensorflow.python.framework import convert_to_constants
from tensorflow.python.framework.func_graph import FuncGraph, dismantle_func_graph
from tensorflow.python.ops import control_flow_util, resource_variable_ops

# Version of the calling convention of XlaCallModule: neither a platform index nor tokens.
_STABLEHLO_CALL_VERSION = 9

# Initializers that are defined for every shape.
_OF_ANY_SHAPE = (
    keras.initializers.Ones,
    keras.initializers.RandomNormal,
    keras.initializers.RandomUniform,
    keras.initializers.TruncatedNormal,
    keras.initializers.VarianceScaling,
    keras.initializers.Zeros,
)


def is_compiled_by_xla(graph: tf.Graph) -> bool:
    """Whether XLA compiles `graph` or a graph around it."""
    return bool(control_flow_util.GraphOrParentsInXlaContext(graph))


def behind_barrier(tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Returns the tensors; XLA computes what follows from them only when all of them are there."""
    return list(xla.optimization_barrier(*tensors))


def add_gradients_by(add: Callable[[Sequence[Any]], Any]) -> None:
    """Makes all gradient tapes of the process call `add` to sum the gradients of a tensor.

    Args:
      add: takes tensors or `tf.IndexedSlices`, and returns their sum.
    """
    pywrap_tfe.TFE_Py_RegisterVSpace(backprop._default_vspace._replace(aggregate_fn=add))


def add_gradients(gradients: Sequence[Any]) -> Any:
    """Adds up tensors or `tf.IndexedSlices` as gradient tapes do by default."""
    return backprop._aggregate_grads(gradients)


def set_heartbeat(num_workers: int, timeout: int) -> None:
    """Sets the time in seconds after which a silent worker of a cluster counts as lost.

    It must be called before the `MultiWorkerMirroredStrategy` is created.
    """
    jobs = [coordination_config_pb2.CoordinatedJob(name='worker', num_tasks=num_workers)]
    context.context().configure_coordination_service(
        service_type='standalone',
        service_leader='/job:worker/replica:0/task:0',
        heartbeat_timeout_in_ms=1000 * timeout,
        coordinated_jobs=jobs,
    )


def is_function_graph(graph: tf.Graph) -> bool:
    """Whether `graph` is the graph of a traced function, which has outputs."""
    return isinstance(graph, FuncGraph)


@contextlib.contextmanager
def graph_without_values() -> Iterator[None]:
    """What is made in the block is part of a graph, where variables have no values and no memory.

    As in a traced function, tensors are compared by value; in a `tf.Graph` by identity. After the
    block, nothing of the graph may be used.
    """
    graph = FuncGraph('without_values')
    try:
        with graph.as_default(), tf.variable_creator_scope(_without_value):
            yield
    finally:
        # Its operations are cycles that Python's garbage collector does not see.
        dismantle_func_graph(graph)


def _without_value(
    next_creator: object, *, initial_value: Any, dtype: Any = None, **options: Any
) -> tf.Variable:
    """Creates a variable that never gets its initial value, but has the shape and dtype of it."""
    del next_creator
    shape = _shape_of(initial_value)
    if shape is None:
        value = initial_value() if callable(initial_value) else initial_value
        value = tf.convert_to_tensor(value, dtype)
        shape, dtype = value.shape, value.dtype
    options |= {'shape': shape, 'dtype': tf.as_dtype(dtype)}
    return resource_variable_ops.UninitializedVariable(**options)


def _shape_of(initial_value: Any) -> Sequence[int] | None:
    """Returns the shape of what Keras initializes, unless its initializer may refuse the shape.

    The operations of initializers would be a third of a graph without values.
    """
    held = [cell.cell_contents for cell in getattr(initial_value, '__closure__', None) or ()]
    if any(isinstance(each, _OF_ANY_SHAPE) for each in held):
        return next((each.shape for each in held if isinstance(each, keras.Variable)), None)
    return None


class Node(NamedTuple):
    """A call of a layer in a functional Keras model.

    Attributes:
      call: Keras's description of it.
      inputs, outputs: its symbolic tensors.
    """

    call: Any
    inputs: list[Any]
    outputs: list[Any]

    def run(self, values: dict[int, tf.Tensor], training: bool) -> list[tf.Tensor]:
        """Calls the layer.

        Args:
          values: the ids of symbolic tensors, those of `inputs` among them -> their values.
          training: the mode of the layer.
        """
        arguments, options = self.call.arguments.fill_in(values)
        layer = functional.operation_fn(self.call.operation, training=training)
        return keras.tree.flatten(layer(*arguments, **options))


def nodes(network: keras.Model) -> list[Node]:
    """Returns the calls of layers, each after those whose outputs it takes.

    It is empty for other than functional models.
    """
    by_depth = getattr(network, '_nodes_by_depth', {})
    return [
        Node(node, node.input_tensors, node.output_tensors)
        for depth in sorted(by_depth, reverse=True)
        for node in by_depth[depth]
        if not node.is_input
    ]


def function_graph(graph: tf.Graph, name: str) -> tf.Graph:
    """Returns the graph, with shapes, of the function `name` that nodes of `graph` call."""
    return graph._get_function(name).graph


def layers_in(layer: keras.layers.Layer, include_self: bool = True) -> list[keras.layers.Layer]:
    """Returns all layers nested in `layer`, and `layer` itself unless `include_self` is False."""
    return layer._flatten_layers(include_self=include_self, recursive=True)


class Call(NamedTuple):
    """A call of a layer, or of an operation of Keras, in a functional model."""

    layer: Any
    inputs: list[keras.KerasTensor]
    outputs: list[keras.KerasTensor]


def calls_in(model: keras.Function) -> list[Call]:
    """Returns the calls in a functional model; each follows those that make its inputs."""
    depths = sorted(model._nodes_by_depth, reverse=True)
    nodes = [node for depth in depths for node in model._nodes_by_depth[depth]]
    return [Call(node.operation, list(node.input_tensors), list(node.outputs)) for node in nodes]


@contextlib.contextmanager
def fresh_layer_names() -> Iterator[None]:
    """In the block, layers without a name of their own are named as in a new process.

    Keras counts the layers of a process, and names them by their class and the count.
    """
    counts = global_state.get_global_attribute('object_name_uids')
    global_state.set_global_attribute('object_name_uids', collections.defaultdict(int))
    try:
        yield
    finally:
        global_state.set_global_attribute('object_name_uids', counts)


def stored_value(variable: keras.Variable) -> tf.Variable:
    """Returns TensorFlow's variable in a Keras variable; reading it never rounds to 16 bits.

    Where Keras traces a layer to build it, the variable has no value yet, and another one is given.
    """
    return variable.value if variable._value is None else variable._value


def set_input_dtype(model: keras.Model, dtype: str) -> None:
    """Changes the dtype that a functional model converts its inputs to before the first layers."""
    for each in model.inputs:
        each._dtype = dtype


def new_variable(value: tf.Tensor, name: str) -> tf.Variable:
    """Makes a variable while a function is traced, which captures it; `value` is an eager tensor.

    `tf.Variable` would have the function traced once more.
    """
    return resource_variable_ops.ResourceVariable(value, trainable=False, name=name)


def stablehlo_artifact(text: str, version: str) -> bytes:
    """Returns StableHLO text as a portable artifact, which readers of `version` or later accept."""
    # Imported here: it is only needed to export.
    from tensorflow.compiler.mlir.stablehlo import stablehlo

    return stablehlo.serialize_portable_artifact_str(text, version)


def call_stablehlo(
    module: bytes, arguments: Sequence[tf.Tensor], dtypes: Sequence[tf.DType]
) -> list[tf.Tensor]:
    """Calls a portable artifact of StableHLO, which XLA compiles for the device.

    Args:
      module: the artifact.
      arguments: its arguments.
      dtypes: of its results, whose shapes are not known until they are computed.
    """
    from tensorflow.compiler.tf2xla.ops import gen_xla_ops

    return gen_xla_ops.xla_call_module(
        args=list(arguments),
        version=_STABLEHLO_CALL_VERSION,
        module=module,
        Sout=[tf.TensorShape(None)] * len(dtypes),
        Tout=list(dtypes),
        # The artifact is of no platform; the operation demands a name, and then that it fits.
        platforms=['CPU'],
        disabled_checks=['platform'],
    )


def with_constants(function: Any) -> Any:
    """Returns a concrete function that computes the same with the present values of its variables.

    Its graph calls no other functions; its inputs are `inputs`, in the order of the graph.
    """
    return convert_to_constants.convert_variables_to_constants_v2(function)


def tflite_converter_error() -> type[Exception]:
    """Returns the error of TensorFlow's converter to TFLite."""
    from tensorflow.lite.python import convert_phase

    return convert_phase.ConverterError


def tflite_schema() -> types.ModuleType:
    """Returns the classes of the FlatBuffers schema of TFLite files."""
    # Imported here: it is only needed to export.
    from tensorflow.lite.python import schema_py_generated

    return schema_py_generated
