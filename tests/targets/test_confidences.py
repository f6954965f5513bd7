import numpy as np
import tensorflow as tf

from object_detection.core.groundtruth import Groundtruth
from object_detection.targets.assigners import Candidates, SimilarityAssigner
from object_detection.targets.box_coders import FasterRcnnBoxCoder
from object_detection.targets.matchers import ArgMaxMatcher
from object_detection.targets.similarities import IouSimilarity
from object_detection.targets.targets import Columns, Targets, confidence_targets, encode_targets
from tests import goldens


def padded(arrays: list[np.ndarray]) -> tf.Tensor:
    """[M_i, ...] for each image -> [B, M, ...]."""
    size = max(map(len, arrays))
    return tf.constant(
        [np.pad(array, [(0, size - len(array))] + [(0, 0)] * (array.ndim - 1)) for array in arrays]
    )


def assign(
    matcher: ArgMaxMatcher, anchors: tf.Tensor, groundtruth: Groundtruth, unmatched: tf.Tensor
) -> Targets:
    candidates = Candidates(anchors)
    return encode_targets(
        SimilarityAssigner(IouSimilarity(), matcher).assign(candidates, groundtruth),
        candidates,
        groundtruth,
        FasterRcnnBoxCoder(),
        Columns(groundtruth.classes, unmatched),
    )


@goldens.rows('target_assigner', prefix='batch_assign_confidences')
def test_targets_equal_the_reference(case_name):
    case = goldens.load('target_assigner', case_name)
    inputs, outputs = case.inputs, case.outputs
    matcher = ArgMaxMatcher(0.5, 0.5, force_match_for_each_row=True)
    boxes, labels, weights = (
        padded([inputs[f'{name}.{image}'] for image in range(2)])
        for name in ('gt_boxes', 'labels', 'weights')
    )
    groundtruth = Groundtruth(boxes, labels, weights)
    targets = assign(matcher, inputs['anchors'], groundtruth, inputs['unmatched_class_label'])
    targets = confidence_targets(
        targets,
        has_background=case.params['include_background_class'],
        implicit_weight=case.params['implicit_class_weight'],
    )
    for name, values in (
        ('cls_targets', targets.class_targets),
        ('cls_weights', targets.class_weights),
        ('reg_targets', targets.box_targets),
        ('reg_weights', targets.box_weights),
        ('match', targets.matches),
    ):
        np.testing.assert_allclose(values, outputs[name], rtol=1e-5, atol=1e-5, err_msg=name)


def test_an_object_that_is_only_known_not_to_be_something_is_explicit_background():
    anchors = tf.constant([[0.0, 0, 1, 1], [2, 2, 3, 3]])
    groundtruth = Groundtruth(
        anchors[tf.newaxis, :1] + 0.01, tf.constant([[[0.0, -1, 0]]]), tf.ones([1, 1])
    )
    targets = assign(ArgMaxMatcher(0.5, 0.5), anchors, groundtruth, tf.constant([1.0, 0, 0]))
    targets = confidence_targets(targets, has_background=True, implicit_weight=0.25)
    np.testing.assert_array_equal(targets.class_targets, [[[1, 0, 0], [1, 0, 0]]])
    np.testing.assert_array_equal(targets.class_weights, [[[0.25, 1, 0.25], [0.25] * 3]])
    np.testing.assert_array_equal(targets.box_weights, [[0, 0]])
    np.testing.assert_array_equal(targets.box_targets, np.zeros([1, 2, 4]))
