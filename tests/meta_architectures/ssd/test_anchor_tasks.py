"""A third head of a single-shot detector is one object: here centerness, which weighs scores."""

import numpy as np
import pytest
import tensorflow as tf

from object_detection.core.groundtruth import Groundtruth
from object_detection.core.loss_sum import LossSum
from object_detection.meta_architectures.ssd import build
from object_detection.meta_architectures.ssd.anchor_tasks import AnchorTask
from object_detection.meta_architectures.ssd.ssd import Ssd
from object_detection.models.heads.convolutional import ConvolutionalBoxPredictor
from object_detection.models.heads.dense_outputs import DenseOutput
from object_detection.models.heads.weight_shared import (
    WeightSharedConvolutionalBoxPredictor,
    WeightSharedOptions,
)
from object_detection.models.hyperparams import LayerHyperparams
from tests.meta_architectures.ssd.configs import tiny

LOSS = 'Loss/centerness_loss'
SEEDS = tf.constant([[1, 2], [3, 4]])
ANCHORS = (
    'anchor_generator { ssd_anchor_generator { interpolated_scale_aspect_ratio: 0 '
    'reduce_boxes_in_lowest_layer: false } }'
)


class Centerness(AnchorTask):
    output = DenseOutput('centerness', 1, 'box_tower', bias=-1.0)
    loss_names = (LOSS,)

    def loss_sums(self, rows, predictions, targets):
        losses = tf.nn.sigmoid_cross_entropy_with_logits(tf.ones_like(rows), rows)[..., 0]
        weights = targets.box_weights
        return {LOSS: LossSum(tf.reduce_sum(losses * weights), tf.reduce_sum(weights))}

    def rescore(self, scores, rows):
        return scores * tf.sigmoid(rows)

    def fields(self, rows):
        return {'detection_centerness': tf.sigmoid(rows[..., 0])}


def detector_of(kind, **options) -> Ssd:
    """A tiny detector with the task."""
    tf.keras.utils.set_random_seed(0)
    plain = build.build_detector(tiny(ANCHORS).ssd, is_training=True)
    predictor = kind(
        4,
        plain.anchor_generator.num_anchors_per_location(),
        hyperparams=LayerHyperparams(),
        further=[Centerness.output],
        **options,
    )
    detector = Ssd(
        num_classes=3,
        resizer=plain.resizer,
        feature_extractor=plain.feature_extractor,
        anchor_generator=plain.anchor_generator,
        box_predictor=predictor,
        anchor_losses=plain._anchor_losses,
        post_processing=plain._post_processing,
        tasks=[Centerness()],
    )
    detector.build_variables()
    return detector


@pytest.mark.parametrize(
    ('kind', 'options', 'layers'),
    [
        (ConvolutionalBoxPredictor, {}, {f'centerness_{level}' for level in range(3)}),
        (
            WeightSharedConvolutionalBoxPredictor,
            {'options': WeightSharedOptions(num_layers=1, depth=8)},
            {'centerness'},
        ),
    ],
)
def test_a_third_head_is_learnt_and_weighs_the_scores(kind, options, layers):
    detector = detector_of(kind, **options)
    names = detector.named_trainable_variables()
    assert {name.split('/')[1] for name in names if 'center' in name} == layers
    images, shapes = detector.preprocess(
        tf.random.stateless_uniform([2, 64, 64, 3], (1, 2), 0, 255)
    )
    groundtruth = Groundtruth.from_lists(
        boxes=[[[0.1, 0.1, 0.6, 0.6]], np.zeros([0, 4])],
        classes=[[[0, 1, 0]], np.zeros([0, 3])],
    )
    with tf.GradientTape() as tape:
        predictions = detector.predict(images, shapes, True, groundtruth, SEEDS)
        losses = detector.loss(predictions, groundtruth, SEEDS)
    assert list(losses) == list(detector.loss_names())
    centerness = predictions.to_dict()['centerness']
    is_learnt = predictions.targets.box_weights.numpy() > 0
    expected = np.log1p(np.exp(-centerness.numpy()[..., 0]))[is_learnt]
    assert float(losses[LOSS]) == pytest.approx(np.mean(expected), rel=1e-4)
    gradients = tape.gradient(losses[LOSS], names)
    assert any(np.any(gradients[name]) for name in names if 'center' in name)
    detections = detector.postprocess(predictions, shapes)
    scores = tf.sigmoid(predictions.class_logits) * tf.sigmoid(centerness)
    np.testing.assert_allclose(detections['raw_detection_scores'], scores, rtol=1e-5)
    rows = tf.cast(detections['detection_anchor_indices'], tf.int32)
    taken = tf.gather(tf.sigmoid(centerness[..., 0]), rows, batch_dims=1)
    np.testing.assert_array_equal(detections['detection_centerness'], taken)
