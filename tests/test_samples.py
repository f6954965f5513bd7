"""Every sample config builds, trains a step and exports."""

import importlib.resources

import numpy as np
import pytest
import tensorflow as tf

from object_detection.builders import model_builder, optimizer_builder
from object_detection.config import overrides
from object_detection.config.reader import read_pipeline
from object_detection.core.groundtruth import Groundtruth
from object_detection.export import saved_model

SAMPLES = importlib.resources.files('object_detection') / 'samples' / 'configs'
SIZE = 128
SMALL = [
    'model.faster_rcnn.image_resizer={fixed_shape_resizer { height: 128 width: 128 }}',
    'model.faster_rcnn.first_stage_max_proposals=8',
    'model.faster_rcnn.second_stage_batch_size=8',
    'model.faster_rcnn.second_stage_post_processing.batch_non_max_suppression'
    '.max_detections_per_class=4',
    'model.faster_rcnn.second_stage_post_processing.batch_non_max_suppression'
    '.max_total_detections=4',
]


def names() -> list[str]:
    return sorted(path.name for path in SAMPLES.iterdir() if path.name.endswith('.config'))


@pytest.mark.parametrize('name', names())
def test_opens_with_what_a_reader_needs(name):
    head = (SAMPLES / name).read_text().split('\nmodel')[0]
    for word in ('Paper', 'https://arxiv.org', 'Command:', 'To expect:'):
        assert word in head


@pytest.mark.parametrize('name', names())
def test_builds_trains_a_step_and_exports(name):
    pipeline = read_pipeline(str(SAMPLES / name))
    for setting in SMALL:
        overrides.apply_setting(pipeline, setting)
    detector = model_builder.build(pipeline.model)
    detector.build_variables()
    optimizer = optimizer_builder.build(pipeline.train_config.optimizer)
    trainable = {v.path: v.value for v in detector.trainable_variables}
    optimizer.build(trainable)
    images = tf.constant(np.random.default_rng(0).uniform(0, 255, (1, SIZE, SIZE, 3)), tf.float32)
    true_shapes = tf.constant([[SIZE, SIZE, 3]])
    groundtruth = Groundtruth(
        boxes=tf.constant([[[0.1, 0.1, 0.6, 0.7]]]),
        classes=tf.one_hot([[0]], detector.num_classes),
        weights=tf.ones([1, 1]),
        masks=tf.ones([1, 1, 28, 28]),
        masks_are_crops=True,
    )

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            predictions = detector.predict(
                detector.normalize(images), true_shapes, True, groundtruth
            )
            losses = detector.loss(predictions, groundtruth)
            total = tf.add_n([*losses.values(), *detector.regularization_losses()])
        optimizer.apply_gradients(
            tape.gradient(total, trainable, unconnected_gradients='zero'), tf.constant(0)
        )
        return total

    before = {path: variable.numpy() for path, variable in trainable.items()}
    assert np.isfinite(step())
    assert any((variable.numpy() != before[path]).any() for path, variable in trainable.items())
    served = saved_model.build_served(detector, 'image_tensor')
    detections = served.serve(tf.zeros([1, SIZE, SIZE, 3], tf.uint8))
    assert detections['detection_boxes'].shape == (1, 4, 4)
    assert ('detection_masks' in detections) == name.startswith('mask')
