"""A family like FCOS is a folder and a row: it learns, and the jobs of all families run it."""

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection import register
from object_detection.builders import dataset_builder, model_builder
from object_detection.config import families
from object_detection.core.groundtruth import Groundtruth
from object_detection.errors import UserError
from object_detection.meta_architectures import tracing
from object_detection.models.backbones.table import BACKBONES
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.targets.box_coders import centerness
from object_detection.training import setup
from tests.meta_architectures import learned_shapes
from tests.meta_architectures.fcos_like.family import FAMILY, LOSSES
from tests.plugin.toy_parts.backbones import PLAIN

TINY = {'backbone': 'plain_points', 'depth_multiplier': 1, 'width': 16, 'num_layers': 1}
# Of the object below: its class and, in pixels, its box. Its centre is (20, 29).
CLASS, BOX = 2, (12.0, 16.0, 28.0, 42.0)


@pytest.fixture(scope='module', autouse=True)
def _registered():
    register.family('fcos_like', FAMILY)
    register.backbone('plain_points', PLAIN)
    yield
    del families.FAMILIES._rows['fcos_like']
    del BACKBONES._rows['plain_points']


@pytest.fixture(scope='module')
def detector():
    """A tiny one with frozen norms."""
    tf.keras.utils.set_random_seed(0)
    detector = model_builder.build(learned_shapes.model('fcos_like', **TINY), is_training=False)
    detector.build_variables()
    return detector


@pytest.fixture(scope='module')
def groundtruth():
    return Groundtruth.from_lists(
        boxes=[np.array([BOX], np.float32) / learned_shapes.SIDE, np.zeros([0, 4], np.float32)],
        classes=[np.eye(4, dtype=np.float32)[[CLASS]], np.zeros([0, 4], np.float32)],
    )


@pytest.fixture(scope='module')
def predictions(detector):
    images, shapes = detector.preprocess(tf.zeros([2, learned_shapes.SIDE, learned_shapes.SIDE, 3]))
    return detector.predict(images, shapes)


def test_a_config_is_checked_and_traced():
    assert tracing.check(learned_shapes.model('fcos_like', **TINY), 3, stages=True) == ()
    message = r'model.experimental_model \(fcos_like\): size: expected above 0. Received: 0'
    with pytest.raises(UserError, match=message):
        model_builder.build(learned_shapes.model('fcos_like', size=0))
    with pytest.raises(UserError, match='levels: expected a backbone with maps of the levels 6'):
        model_builder.build(
            learned_shapes.model('fcos_like', levels='6,6', backbone='plain_points')
        )


def test_points_near_the_centre_learn_the_distances_of_the_sides(
    detector, predictions, groundtruth
):
    targets = detector.targets(predictions, groundtruth)
    # 8 x 8 points of stride 8, 4 x 4 of stride 16, 2 x 2 of stride 32.
    fine, coarse, coarsest = np.split(targets.matches[0], [64, 80])
    # Within the box are (20, 20), (20, 28) and (20, 36), of which one is at most 16 from the sides.
    assert np.argwhere(fine.reshape(8, 8) == 0).tolist() == [[2, 3]]
    # (24, 24) is 18 from the right side, (24, 40) 24 from the left one.
    assert np.argwhere(coarse.reshape(4, 4) == 0).tolist() == [[1, 1], [1, 2]]
    assert np.all(coarsest == -1)
    assert np.all(targets.matches[1] == -1)
    point = 64 + 5
    np.testing.assert_allclose(targets.box_targets[0, point], np.array(distances(24, 24)) / 16)
    np.testing.assert_array_equal(targets.class_targets[0, point], np.eye(4)[CLASS])
    np.testing.assert_array_equal(targets.class_weights, np.ones([2, 84]))
    assert np.sum(targets.box_weights) == np.sum(targets.matches >= 0) == 3


def distances(y: float, x: float) -> list[float]:
    """Top, left, bottom, right, in pixels."""
    return [y - BOX[0], x - BOX[1], BOX[2] - y, BOX[3] - x]


def test_perfect_predictions_are_the_object_and_have_no_loss(detector, predictions, groundtruth):
    targets = detector.targets(predictions, groundtruth)
    sure = 40.0 * (2.0 * targets.class_targets - 1.0)
    central = centerness(targets.box_targets)[..., tf.newaxis]
    perfect = predictions._replace(
        distances=targets.box_targets,
        class_logits=sure,
        center_logits=tf.math.log(tf.maximum(central, 1e-9) / tf.maximum(1.0 - central, 1e-9)),
    )
    losses = detector.loss(perfect, groundtruth)
    assert losses[LOSSES[0]] < 1e-6
    assert abs(losses[LOSSES[1]]) < 1e-6
    # In the image the lower half is padding, which the object does not reach.
    found = detector.postprocess(perfect, tf.constant([[32, 64, 3], [64, 64, 3]]))
    assert found['num_detections'].numpy().tolist() == [1, 0]
    assert found['detection_classes'][0, 0] == CLASS
    expected = np.array(BOX) / [32, 64, 32, 64]
    np.testing.assert_allclose(found['detection_boxes'][0, 0], expected, rtol=1e-6)
    np.testing.assert_allclose(found['detection_scores'][0, 0], np.sqrt(np.max(central)), rtol=1e-6)


def test_losses_fall(tmp_path):
    learned_shapes.write_data(tmp_path, num_train=8, num_val=1)
    text = learned_shapes.pipeline(tmp_path, 'fcos_like', steps=100, batch_size=8, **TINY)
    pipeline = text_format.Parse(text, TrainEvalPipelineConfig())
    tf.keras.utils.set_random_seed(0)
    detector = setup.build_detector(pipeline)
    data = dataset_builder.build_train(pipeline, seed=1)
    step = setup.build_step(pipeline.train_config, detector, data.element_spec, seed=1)
    batch = next(iter(data))
    losses = [step(batch) for _ in range(30)]
    for name in LOSSES[:2]:
        assert losses[-1][name] < 0.6 * losses[0][name], name


@pytest.mark.slow
def test_it_learns_shapes_and_is_evaluated_and_exported(tmp_path):
    metrics, comparison = learned_shapes.train_evaluate_export(
        tmp_path, 'fcos_like', num_train=1000, steps=800
    )
    # 0.58 and 0.62 were measured.
    assert metrics['DetectionBoxes_Precision/mAP@.50IOU'] > 0.45
    assert metrics['DetectionBoxes_Recall/AR@10'] > 0.5
    assert comparison.detections > 0
    assert comparison.unmatched == 0
