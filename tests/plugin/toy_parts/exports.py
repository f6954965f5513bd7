"""A format of exported models: a graph of TensorFlow with its weights."""

import sys

from object_detection.export.formats.formats import Format

NAME = 'frozen_graph'


def check(source, options) -> None:
    """Refuses models that the format cannot express, before anything is written."""
    source.refuse_side_inputs(NAME)
    source.static_shape(NAME)


def write(source, path, options):
    """Writes the file; returns its description."""
    import tensorflow as tf
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    inputs = source.fixed_inputs(NAME, batch_size=None)
    specs = {each.name: tf.TensorSpec(each.shape, each.dtype, each.name) for each in inputs}
    detect = tf.function(source.fixed_function(NAME), autograph=False)
    frozen = convert_variables_to_constants_v2(detect.get_concrete_function(**specs))
    path.write_bytes(frozen.graph.as_graph_def().SerializeToString())
    # Results of a function are in the order of their names.
    names = sorted(detect.get_concrete_function(**specs).structured_outputs)
    tensors = [tensor.name for tensor in frozen.outputs]
    return source.describe(NAME, inputs=inputs, outputs=tuple(names), details={'tensors': tensors})


def load(path, description):
    """Loads what `write` wrote."""
    import tensorflow as tf

    from object_detection.export.formats.formats import no_description
    from object_detection.runtime.file_detector import FileRuntime

    if description is None:
        raise no_description(path)
    graph_def = tf.compat.v1.GraphDef.FromString(path.read_bytes())
    wrapped = tf.compat.v1.wrap_function(lambda: tf.import_graph_def(graph_def, name=''), [])
    function = wrapped.prune(
        [f'{each.name}:0' for each in description.inputs], description.details['tensors']
    )

    def run(inputs):
        found = function(*(tf.constant(inputs[each.name]) for each in description.inputs))
        return {n: v.numpy() for n, v in zip(description.outputs, found, strict=True)}

    return FileRuntime(path, description, run)


# The functions of this module are those of `FormatModule`.
FROZEN_GRAPH = Format(file_name='model.pb', module=lambda: sys.modules[__name__])
