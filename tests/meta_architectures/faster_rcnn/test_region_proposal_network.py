import numpy as np
import tensorflow as tf

from object_detection.builders import model_builder
from object_detection.meta_architectures.faster_rcnn.predictions import AnchorPredictions
from tests import slow_cases
from tests import tiny_models as tiny


@slow_cases.parametrize(1, 'combined', [False, True])
def test_proposals_outside_the_true_image_are_dropped(combined):
    override = f'use_combined_nms_in_first_stage: {str(combined).lower()}'
    pipeline = tiny.tiny_pipeline(f'model {{ faster_rcnn {{ {override} }} }}')
    rpn = model_builder.build(pipeline.model).rpn
    predictions = AnchorPredictions(
        boxes=tf.constant([[10.0, 10, 40, 40], [40, 40, 60, 60], [5, 5, 15, 15]]),
        box_codes=tf.zeros([1, 3, 4]),
        objectness_logits=tf.constant([[[0.0, 1], [0, 3], [0, 2]]]),
        level_sizes=[3],
        is_training=tf.constant(True),
    )
    proposals = rpn.propose(predictions, tf.constant([[30, 30, 3]]), True)
    expected = [[5, 5, 15, 15], [10, 10, 30, 30]]
    count = len(expected)
    np.testing.assert_array_equal(proposals.count, [count])
    np.testing.assert_allclose(proposals.boxes[0, :count], expected, rtol=1e-5)
    assert not np.any(proposals.boxes[0, count:])


INSIDE = 'model { faster_rcnn { clip_anchors_to_image: false } }'
NONE_INSIDE = """
model { faster_rcnn {
  clip_anchors_to_image: false
  first_stage_anchor_generator { multiscale_anchor_generator { anchor_scale: 100 } }
} }
"""


@slow_cases.parametrize(1, 'static', ['', tiny.STATIC], ids=['native', 'static'])
def test_anchors_that_cross_the_border_do_not_train(static):
    detector = tiny.tiny_detector(INSIDE, static)
    images, groundtruth = tiny.random_images(2), tiny.random_groundtruth(2)
    predictions = detector.predict(
        detector.normalize(images), tf.constant([[64, 64, 3]] * 2), True, groundtruth
    )
    anchors = predictions.anchors.boxes.numpy()
    assert anchors.min() >= 0
    assert anchors.max() <= 64
    assert predictions.anchors.box_codes.shape[1] == len(anchors) > 0


def test_images_smaller_than_all_anchors_train_nothing_of_the_first_stage():
    detector = tiny.tiny_detector(NONE_INSIDE)
    images, groundtruth = tiny.random_images(2), tiny.random_groundtruth(2)
    predictions = detector.predict(
        detector.normalize(images), tf.constant([[64, 64, 3]] * 2), True, groundtruth
    )
    assert predictions.anchors.boxes.shape == (0, 4)
    losses = detector.loss(predictions, groundtruth)
    assert losses['Loss/RPNLoss/localization_loss'] == 0
    assert losses['Loss/RPNLoss/objectness_loss'] == 0
    assert all(np.isfinite(loss) for loss in losses.values())
