"""The losses of every family, and their gradients, do not depend on the parts of a batch."""

import re

import numpy as np
import pytest
import tensorflow as tf

from object_detection.core import loss_sum
from tests import forks, slow_cases
from tests.meta_architectures import loss_families

# Of a sum of float32: a multiple of the distance from 1 to the next number, relative to the sum of
# the absolute values of what is added up.
ROUNDING = 2.0**8 * float(np.finfo(np.float32).eps)
# A bias that moves all logits of a softmax alike has no gradient: what is found is the rounding of
# a sum that cancels. Its absolute values add up to what two distributions differ by at most.
CANCELLED = {'keypoint_head/keypoints/bias': 'Loss/BoxClassifierLoss/keypoint_loss'}
MOST_DIFFERENCE = 2.0
# Keys of attention are compared with each other, so that their bias has no gradient either; the
# products that add up to it are those of the kernel.
_KEYS = 'k_proj/bias'
# The coarsest map has one cell, which sees itself alone: its queries and keys have no gradient, and
# what is found is the rounding of what its values have.
_ONE_CELL = re.compile(r'(encoder/aifi_0_layers_0/self_attn/)[qk]_proj/\w+')
# The objects of plain DETR begin as zeros, so that all values of its first attention are the bias
# of values, whatever the queries and keys are: these have no gradient either.
_ZEROS = re.compile(r'(decoder/layers_0/self_attn/)[qk]_proj/\w+')
# An image with objects, one without, and both together.
PARTS = (slice(0, 1), slice(1, 2), slice(2, 4))


def sums_and_gradients(detector, images):
    """Of some images: the sum and the normalizer of each loss, and the gradients of all sums."""
    batch = {name: each[images] for name, each in loss_families.batch_of(detector).items()}
    with tf.GradientTape() as tape:
        sums = loss_families.loss_sums(detector, batch, loss_families.SEEDS[images])
        total = tf.add_n([each.sum for each in sums.values()])
    gradients = tape.gradient(total, detector.named_trainable_variables())
    found = {name: each for name, each in gradients.items() if each is not None} | sums
    return {name: np.asarray(each, np.float64) for name, each in found.items()}


@slow_cases.parametrize(5, 'family', loss_families.FAMILIES)
def test_sums_normalizers_and_gradients_of_parts_add_up(family):
    detector = loss_families.build(family)
    parts = [sums_and_gradients(detector, images) for images in PARTS]
    whole = sums_and_gradients(detector, slice(None))
    assert set(detector.loss_names()) < whole.keys()
    for name, value in whole.items():
        of_parts = [part[name] for part in parts]
        scale = np.max(np.sum(np.abs(of_parts), axis=0))
        if name in CANCELLED:
            _, number = whole[CANCELLED[name]]
            scale = MOST_DIFFERENCE * number
            assert np.max(np.abs(value)) <= ROUNDING * scale
        kernel = _kernel(name, whole)
        if kernel != name:
            kernels = [part[kernel] for part in parts]
            scale = np.max(np.sum(np.abs(kernels), axis=0))
        np.testing.assert_allclose(
            np.sum(of_parts, axis=0), value, rtol=0, atol=ROUNDING * scale, err_msg=name
        )
    for name in detector.loss_names():
        assert whole[name][0] > 0, name


def _kernel(name, gradients):
    """The variable whose gradient has the size of what cancels in that of `name`."""
    one_cell, zeros = _ONE_CELL.fullmatch(name), _ZEROS.fullmatch(name)
    if one_cell:
        return f'{one_cell[1]}v_proj/kernel'
    if zeros and not np.any(gradients[f'{zeros[1]}v_proj/kernel']):
        return f'{zeros[1]}v_proj/bias'
    return name.removesuffix('bias') + 'kernel' if name.endswith(_KEYS) else name


@pytest.mark.slow
@pytest.mark.parametrize('family', loss_families.FAMILIES)
def test_a_step_is_the_same_in_every_way(family):
    ways = forks.call(loss_families.compute, family, time_limit=1200)
    whole = ways.pop('whole')
    means = ways.pop('means')
    assert len(means) > 1
    assert means == pytest.approx({name: whole[name] for name in means}, rel=ROUNDING)
    for way, found in ways.items():
        assert found.keys() == whole.keys()
        for name, value in whole.items():
            scale = np.max(np.abs(whole[_kernel(name, whole)]))
            scale = MOST_DIFFERENCE if name in CANCELLED else scale
            message = f'{way}: {name}'
            np.testing.assert_allclose(
                found[name], value, rtol=0, atol=ROUNDING * scale, err_msg=message
            )


def test_counting_the_objects_of_a_batch_runs_no_network():
    """What is left of the first pass of a step: the numbers of an SSD need its anchors alone."""
    detector = loss_families.build('ssd')
    batch = loss_families.batch_of(detector)

    def convolutions(function):
        def run():
            return function(loss_families.loss_sums(detector, batch, loss_families.SEEDS))

        graph = tf.function(run, autograph=False).get_concrete_function().graph
        names = [output.op.name for output in graph.outputs]
        kept = tf.compat.v1.graph_util.extract_sub_graph(graph.as_graph_def(), names)
        return sum(node.op == 'Conv2D' for node in kept.node)

    assert convolutions(loss_sum.divide) > 0
    assert convolutions(loss_sum.divisors) == 0
