"""A family like DETR is a folder and a row: it learns, and the jobs of all families run it."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection import register
from object_detection.builders import dataset_builder, model_builder
from object_detection.config import families
from object_detection.core import boxes as box_ops
from object_detection.core.groundtruth import Groundtruth
from object_detection.errors import UserError
from object_detection.meta_architectures import tracing
from object_detection.models.backbones.table import BACKBONES
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.training import setup
from tests.meta_architectures import learned_shapes
from tests.meta_architectures.detr_like.detr_like import Predictions
from tests.meta_architectures.detr_like.family import FAMILY, LOSSES
from tests.plugin.toy_parts.backbones import PLAIN

TINY = {'backbone': 'plain', 'depth_multiplier': 1, 'width': 16, 'heads': 2, 'queries': 6}


@pytest.fixture(scope='module', autouse=True)
def _registered():
    register.family('detr_like', FAMILY)
    register.backbone('plain', PLAIN)
    yield
    del families.FAMILIES._rows['detr_like']
    del BACKBONES._rows['plain']


@pytest.fixture(scope='module')
def detector():
    """A tiny one with frozen norms."""
    tf.keras.utils.set_random_seed(0)
    detector = model_builder.build(learned_shapes.model('detr_like', **TINY), is_training=False)
    detector.build_variables()
    return detector


def test_a_config_is_checked_and_traced():
    assert tracing.check(learned_shapes.model('detr_like', **TINY), 3, stages=True) == ()
    message = r'model.experimental_model \(detr_like\): width: expected a multiple of 4 .* 18'
    with pytest.raises(UserError, match=message):
        model_builder.build(learned_shapes.model('detr_like', width=18))
    with pytest.raises(UserError, match='level: expected a backbone with maps of the levels 7'):
        model_builder.build(learned_shapes.model('detr_like', level=7))


def test_objects_are_matched_at_the_least_cost(detector):
    """Against all ways of giving three objects three of six queries."""
    rng = np.random.default_rng(1)
    low = rng.uniform(0.0, 0.5, [2, 9, 2])
    boxes = np.concatenate([low, low + rng.uniform(0.1, 0.5, low.shape)], -1).astype(np.float32)
    objects, predicted = boxes[:, :3], boxes[:, 3:]
    classes = np.eye(4, dtype=np.float32)[rng.integers(0, 4, [2, 3])]
    logits = rng.normal(size=[2, 6, 4]).astype(np.float32)
    weights = np.array([[1, 1, 1], [1, 0, 1]], np.float32)
    truth = Groundtruth(*(tf.constant(each) for each in (objects, classes, weights)))
    candidates = detector.candidates(tf.constant(logits), box_ops.corners_to_center_size(predicted))
    matches = detector.learning.assigner.assign(candidates, truth).numpy()
    for image in range(2):
        costs = pair_costs(objects[image], classes[image], predicted[image], logits[image])
        rows = np.flatnonzero(weights[image])
        least = min(
            itertools.permutations(range(6), len(rows)), key=lambda each: costs[rows, each].sum()
        )
        expected = np.full(6, -1)
        expected[list(least)] = rows
        assert matches[image].tolist() == expected.tolist()


def pair_costs(objects, classes, predicted, logits):
    """Costs [M, N] of giving an object a query."""
    scores = 1.0 / (1.0 + np.exp(-logits))
    ours, theirs = (box_ops.corners_to_center_size(each).numpy() for each in (objects, predicted))
    l1 = np.abs(ours[:, np.newaxis] - theirs).sum(-1)
    giou = box_ops.giou(tf.constant(objects), tf.constant(predicted)).numpy()
    return 2.0 * -(classes @ scores.T) + 5.0 * l1 + 2.0 * (1.0 - giou)


def test_detections_are_the_best_pairs_in_the_true_image(detector):
    boxes = [[0.0, 0.0, 0.25, 0.5], [0.25, 0.5, 0.75, 1.0], [0.6, 0.0, 0.9, 0.5]]
    scores = [[0.9, 0.2, 0.1, 0.8], [0.1, 0.7, 0.1, 0.1], [0.95, 0.1, 0.1, 0.1]]
    scores = np.array(scores, np.float32)
    predictions = Predictions(
        class_logits=[tf.zeros([1, 3, 4]), tf.constant(np.log(scores / (1 - scores)))[tf.newaxis]],
        boxes=[tf.zeros([1, 3, 4]), box_ops.corners_to_center_size(tf.constant([boxes]))],
        windows=tf.constant([[0.0, 0.0, 0.5, 1.0]]),
    )
    found = detector.postprocess(predictions, tf.constant([[32, 64, 3]]))
    # The last box lies in the padding below, and the second one half.
    assert found['num_detections'].numpy().tolist() == [3]
    assert found['detection_classes'].numpy().tolist() == [[0, 3, 1]]
    np.testing.assert_allclose(found['detection_scores'], [[0.9, 0.8, 0.7]], rtol=1e-6)
    expected = [[0, 0, 0.5, 0.5], [0, 0, 0.5, 0.5], [0.5, 0.5, 1, 1]]
    np.testing.assert_allclose(found['detection_boxes'], [expected], rtol=1e-6)


def test_cells_in_the_padding_change_nothing(detector):
    rng = np.random.default_rng(0)
    cells, centers = rng.normal(size=[1, 6, 16]), rng.random([6, 2])
    changed = np.concatenate([cells[:, :4], cells[:, 4:] + 1.0], axis=1)
    is_seen = np.array([[True] * 4 + [False] * 2])
    first, second = (
        tf.nest.flatten(detector.transformer(np.float32(each), np.float32(centers), is_seen))
        for each in (cells, changed)
    )
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)


def test_losses_fall(tmp_path):
    learned_shapes.write_data(tmp_path, num_train=8, num_val=1)
    text = learned_shapes.pipeline(tmp_path, 'detr_like', steps=400, batch_size=8, **TINY)
    pipeline = text_format.Parse(text, TrainEvalPipelineConfig())
    tf.keras.utils.set_random_seed(0)
    detector = setup.build_detector(pipeline)
    data = dataset_builder.build_train(pipeline, seed=1)
    step = setup.build_step(pipeline.train_config, detector, data.element_spec, seed=1)
    batch = next(iter(data))
    losses = [step(batch) for _ in range(60)]
    for name in LOSSES:
        assert losses[-1][name] < 0.7 * losses[0][name], name


@pytest.mark.slow
def test_it_learns_shapes_and_is_evaluated_and_exported(tmp_path):
    metrics, comparison = learned_shapes.train_evaluate_export(
        tmp_path, 'detr_like', num_train=2000, steps=2000
    )
    # 0.41 and 0.66 were measured.
    assert metrics['DetectionBoxes_Precision/mAP@.50IOU'] > 0.3
    assert metrics['DetectionBoxes_Recall/AR@10'] > 0.5
    assert comparison.detections == 80
    assert comparison.unmatched == 0
