"""What will execute the graph that is being traced."""

import tensorflow as tf
from tensorflow.python.ops import control_flow_util


def is_compiled() -> bool:
    """Whether XLA compiles what is traced now: a `tf.function(jit_compile=True)`, or for TPUs.

    Forms that only XLA needs, or that are fast on TPUs alone, are for it: cropping regions by
    matrix products takes fifty times as long on a CPU as by TensorFlow's kernel. TensorFlow has no
    public function that tells.
    """
    return bool(control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()))
