import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders import region_similarity_calculator_builder
from object_detection.core import boxes as box_ops
from object_detection.protos import region_similarity_calculator_pb2
from object_detection.targets.similarities import (
    IoaSimilarity,
    IouSimilarity,
    NegSqDistSimilarity,
    ThresholdedIouSimilarity,
    center_size_l1,
)
from tests import goldens, rows

SIMILARITIES = [
    IouSimilarity(),
    IoaSimilarity(),
    NegSqDistSimilarity(),
    ThresholdedIouSimilarity(0.3),
]
BOXES = np.array([[0, 0, 2, 2], [0, 0, 0, 0]], np.float32)
OTHERS = np.array([[0, 0, 2, 1], [1, 0, 3, 2], [5, 5, 5, 5]], np.float32)


@rows.parametrize(
    ('similarity', 'expected'),
    [
        (SIMILARITIES[0], [[1 / 2, 1 / 3, 0], [0, 0, 0]]),
        (SIMILARITIES[1], [[1, 1 / 2, 0], [0, 0, 0]]),
        (SIMILARITIES[2], [[-1, -2, -68], [-5, -14, -100]]),
        (ThresholdedIouSimilarity(0.4), [[1, 0, 0], [0, 0, 0]]),
    ],
)
def test_by_hand(similarity, expected):
    compared = similarity.compare(BOXES, OTHERS)
    np.testing.assert_allclose(compared, expected, rtol=1e-6)
    # Bit by bit, as matches depend on the last.
    prepared = similarity.compare_with(OTHERS)
    np.testing.assert_array_equal(prepared(BOXES), compared)
    np.testing.assert_array_equal(prepared(BOXES[np.newaxis, :1]), compared[np.newaxis, :1])


def test_thresholded_iou_gives_the_scores_of_the_first_boxes():
    actual = ThresholdedIouSimilarity(0.4).compare(BOXES, OTHERS, tf.constant([0.7, 0.8]))
    np.testing.assert_allclose(actual, [[0.7, 0, 0], [0, 0, 0]])


def test_thresholded_iou_rejects_thresholds_out_of_range():
    with pytest.raises(ValueError, match=r'Received: 1\.5'):
        ThresholdedIouSimilarity(1.5)


@rows.parametrize('similarity', SIMILARITIES)
def test_batches_unknown_dimensions_and_no_boxes(similarity):
    random = np.random.default_rng(0)
    boxes = random.uniform(size=[2, 3, 4]).astype(np.float32)
    others = random.uniform(size=[5, 4]).astype(np.float32)
    scores = random.uniform(size=[2, 3]).astype(np.float32)
    signature = [
        tf.TensorSpec([None, None, 4]),
        tf.TensorSpec([None, 4]),
        tf.TensorSpec([None, None]),
    ]
    traced = tf.function(similarity.compare, input_signature=signature)
    actual = traced(boxes, others, scores)
    assert actual.shape == [2, 3, 5]
    for image in range(2):
        expected = similarity.compare(boxes[image], others, scores[image])
        np.testing.assert_allclose(actual[image], expected, rtol=1e-6)
    assert traced(boxes[:, :0], others, scores[:, :0]).shape == [2, 0, 5]


@goldens.rows('similarity', prefix=('iou', 'ioa', 'neg_sq_dist', 'thresholded'))
def test_golden_similarities(case_name):
    case = goldens.load('similarity', case_name)
    config = text_format.Parse(
        case.config or 'iou_similarity {}',
        region_similarity_calculator_pb2.RegionSimilarityCalculator(),
    )
    similarity = region_similarity_calculator_builder.build(config)
    scores = case.inputs.get('scores1')
    actual = similarity.compare(case.inputs['boxes1'], case.inputs['boxes2'], scores).numpy()
    expected = case.outputs['similarity']
    if case_name == 'ioa':
        # The reference divides zero by zero where the second box is of zero size; the arg max of a
        # matcher needs numbers.
        undefined = np.isnan(expected)
        np.testing.assert_array_equal(undefined, np.tile(np.arange(13) == 12, [9, 1]))
        np.testing.assert_array_equal(actual[undefined], 0)
        expected = np.nan_to_num(expected)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


@goldens.parametrize('similarity', names=('giou_pairwise',))
def test_golden_distances(case_name):
    case = goldens.load('similarity', case_name)
    boxes, others = case.inputs['boxes1'], case.inputs['boxes2']
    giou = box_ops.giou(boxes, others)
    np.testing.assert_allclose(giou, case.outputs['giou'], rtol=1e-5, atol=1e-6)
    l1 = center_size_l1(boxes, others)
    np.testing.assert_allclose(l1, case.outputs['l1'], rtol=1e-5, atol=1e-6)
