"""What is read in the text of a program, against small programs and lines of other devices."""

import tensorflow as tf

from object_detection.training.monitoring import step_program

LINES = """
ENTRY %main (x: f32[2]) -> f32[2] {
  %x.1 = f32[2]{0} parameter(0), metadata={op_name="XLA_Args"}
  %custom-call.2 = (f32[2]{0}, s32[2]{0}) custom-call(f32[2]{0} %x.1), custom_call_target="TopK", metadata={op_type="TopKV2" op_name="find/TopKV2"}
  %token.3 = token[] after-all()
  %outfeed.4 = token[] outfeed(f32[2]{0} %x.1, token[] %token.3), metadata={op_name="print"}
  %recv-done.5 = (f32[2]{0}, token[]) recv-done((f32[2]{0}, u32[], token[]) %recv)
  ROOT %add.6 = f32[?]{0} add(f32[2]{0} %x.1, f32[2]{0} %x.1), metadata={op_name="add_<=3"}
}
"""  # noqa: E501


def _lower(function, *specs):
    compiled = tf.function(function, jit_compile=True)
    return compiled.experimental_get_compiler_ir(*specs)(stage='hlo')


def test_rows_chosen_by_their_values_are_dynamic():
    text = _lower(
        lambda rows, weights: tf.reduce_sum(tf.boolean_mask(rows, weights > 0)),
        tf.TensorSpec([7, 4]),
        tf.TensorSpec([7]),
    )
    found = step_program.dynamic_shapes(text)
    assert ('f32[<=7,4]', 'boolean_mask/GatherV2') in found
    assert step_program.host_operations(text) == []


def test_rows_that_weights_remove_are_not():
    text = _lower(
        lambda rows, weights: tf.reduce_sum(rows * weights[:, tf.newaxis]),
        tf.TensorSpec([7, 4]),
        tf.TensorSpec([7]),
    )
    assert step_program.dynamic_shapes(text) == []
    assert step_program.count_operations(text)['multiply'] == 1


def test_operations_of_the_host_and_of_one_device_are_named():
    assert step_program.host_operations(LINES) == [
        ('custom-call TopK', 'find/TopKV2'),
        ('outfeed', 'print'),
        ('recv-done', ''),
    ]
    # A name that looks like a bound is none.
    assert step_program.dynamic_shapes(LINES) == [('f32[?]', 'add_<=3')]
