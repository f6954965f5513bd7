"""Cascades of box stages (Cascade R-CNN)."""

import numpy as np
import pytest
import tensorflow as tf

from object_detection.builders import model_builder
from object_detection.config import families, ranges
from object_detection.core import boxes as box_ops
from object_detection.core.fields import InputFields as F
from object_detection.errors import UserError
from object_detection.meta_architectures import side_inputs
from object_detection.meta_architectures.faster_rcnn import rules
from object_detection.meta_architectures.faster_rcnn.extra_outputs import of_detections
from object_detection.weights import restore
from tests import tiny_models as tiny
from tests import unread
from tests.meta_architectures import loss_families
from tests.tiny_models import SEEDS, shapes
from tests.weights.tiny_checkpoints import save

HEAD = """
second_stage_box_predictor { mask_rcnn_box_predictor { box_head { num_fcs: 1 fc_depth: 16 } } }
"""
STAGES = """
cascade_stages {
  iou_threshold: 0.6
  box_coder { faster_rcnn_box_coder { y_scale: 20 x_scale: 20 height_scale: 10 width_scale: 10 } }
}
cascade_stages { iou_threshold: 0.7 loss_weight: 0.5 }
"""
THRESHOLDS = (0.5, 0.6, 0.7)


def model(*fields: str) -> str:
    return f'model {{ faster_rcnn {{ {" ".join(fields)} }} }}'


# Objects are proposals, so that some are positive at every threshold.
CASCADE = model(HEAD, STAGES, 'second_stage_add_gt_as_proposals: true')


@pytest.fixture(scope='module')
def detector():
    detector = tiny.tiny_detector(CASCADE, model('output_final_box_features: true'))
    tiny.shrink_last_layers(detector)
    return detector


def predict(detector, images, *arguments):
    return detector.predict(detector.normalize(images), shapes(images), *arguments)


def refined(detector, number, predicted):
    """The boxes of the best classes, clipped, by NumPy."""
    batch, rows = predicted.proposals.scores.shape
    decoded = detector.box_stages[number].decode(predicted.regions.box_codes, predicted.proposals)
    best = np.argmax(np.reshape(predicted.regions.class_logits, [batch, rows, -1])[..., 1:], axis=2)
    boxes = np.take_along_axis(decoded.numpy(), best[:, :, np.newaxis, np.newaxis], axis=2)[:, :, 0]
    return np.clip(boxes, 0, tiny.IMAGE_SIZE)


def test_each_stage_learns_from_the_boxes_of_the_one_before(detector, images, groundtruth):
    predictions = predict(detector, images, True, groundtruth, SEEDS)
    stages, objects = predictions.box_stages, groundtruth.boxes * float(tiny.IMAGE_SIZE)
    assert [stage.proposals.boxes.shape for stage in stages] == [(2, 8, 4)] * 3
    for number, threshold in enumerate(THRESHOLDS):
        boxes, is_valid = stages[number].proposals.boxes, stages[number].proposals.is_valid()
        if number:
            expected = refined(detector, number - 1, stages[number - 1])
            assert np.abs(expected - stages[number - 1].proposals.boxes)[is_valid].max() > 1e-3
            np.testing.assert_allclose(boxes[is_valid], expected[is_valid], atol=1e-4)
        overlaps = tf.reduce_max(box_ops.iou(objects, boxes), axis=1)
        found = tf.argmax(stages[number].targets.class_targets, axis=-1) > 0
        np.testing.assert_array_equal(found[is_valid], (overlaps >= threshold)[is_valid])
        assert 0 < np.sum(found) < np.sum(is_valid)


def test_every_stage_has_losses_and_gradients(detector, images, groundtruth):
    with tf.GradientTape(persistent=True) as tape:
        losses = tiny.train_losses(detector, images, groundtruth)
        total = tf.add_n(list(losses.values()))
    config = tiny.tiny_pipeline(CASCADE).model
    names = families.find(config).loss_names(families.options(config))
    assert list(losses) == detector.loss_names() == list(names)
    added = {name for name in losses if name.endswith(('_2', '_3'))}
    assert added == {
        f'Loss/BoxClassifierLoss/{kind}_loss_{number}'
        for kind in ('localization', 'classification')
        for number in (2, 3)
    }
    assert all(losses[name] > 0 for name in losses)
    variables = detector.named_trainable_variables()
    gradients = tape.gradient(total, variables)
    assert [name for name, gradient in gradients.items() if gradient is None] == []
    assert np.abs(gradients['box_classifier_3/dense_1/kernel']).max() > 0
    # A stage does not learn from the one after it, which takes its boxes as they are.
    of_second = [variable for name, variable in variables.items() if name.startswith('box_head_2/')]
    assert of_second
    of_third = tape.gradient(losses['Loss/BoxClassifierLoss/localization_loss_3'], of_second)
    assert all(gradient is None for gradient in of_third)
    weights = [stage.params.classification_weight for stage in detector.box_stages]
    assert weights == [1.0, 1.0, 0.5]


def test_what_predict_does_not_match_the_loss_does(detector, images, groundtruth):
    matched = predict(detector, images, False, groundtruth)
    plain = predict(detector, images)
    assert [stage.targets for stage in plain.box_stages] == [None] * 3
    expected = detector.loss(matched, groundtruth, SEEDS)
    losses = detector.loss(plain, groundtruth, SEEDS)
    assert set(expected) - set(losses) == {'Loss/BoxClassifierLoss/mask_loss'}
    for name, loss in losses.items():
        np.testing.assert_allclose(loss, expected[name], rtol=1e-5, err_msg=name)


def test_detections_are_the_last_boxes_with_the_mean_scores(detector, images):
    predictions = predict(detector, images)
    detections = detector.postprocess(predictions, shapes(images))
    logits = [stage.regions.class_logits for stage in predictions.box_stages]
    scores = np.reshape(np.mean(tf.nn.softmax(logits), axis=0), [2, 16, -1])
    np.testing.assert_allclose(detections['raw_detection_scores'], scores, atol=1e-6)
    boxes = refined(detector, 2, predictions.box_stages[-1])
    best = np.argmax(np.reshape(logits[-1], [2, 16, -1])[..., 1:], axis=2)
    same = best == np.argmax(scores[..., 1:], axis=2)
    found = tiny.IMAGE_SIZE * detections['raw_detection_boxes'].numpy()
    np.testing.assert_allclose(found[same], boxes[same], atol=1e-3)
    assert same.any()
    assert {'refined_box_encodings', 'refined_box_encodings_3', 'proposal_boxes_2'} <= set(
        predictions.to_dict()
    )


def test_masks_and_features_are_those_of_the_final_boxes(detector, images):
    predictions = predict(detector, images)
    found = detector.postprocess(predictions, shapes(images))
    boxes = tiny.IMAGE_SIZE * found['detection_boxes']
    crops = detector._cropper(predictions.features, boxes, tiny.IMAGE_SIZE, tiny.IMAGE_SIZE)
    masks = detector.mask_stage.detect(crops, found)
    assert masks.shape == (2, 6, 14, 14)
    np.testing.assert_allclose(found['detection_masks'], masks, atol=1e-5)
    # Of the last stage, whose boxes they are.
    features = detector.box_stages[-1].classifier(detector._pool_crops(crops))
    features = of_detections(features, found)
    np.testing.assert_allclose(found['detection_features'], features, rtol=1e-4, atol=1e-5)


def test_given_boxes_are_classified_by_all_stages(detector, images):
    predictions = predict(detector, images)
    normalized = predictions.proposals_normalized[:, :3]
    found = detector.predict_masks_from_boxes(predictions, shapes(images), normalized)
    frame = (tiny.IMAGE_SIZE, tiny.IMAGE_SIZE)
    boxes = predictions.proposals.boxes[:, :3]
    scores = [
        tf.nn.softmax(
            detector.classify_regions(
                stage, predictions.features, boxes, frame, training=False
            ).class_logits
        )
        for stage in detector.box_stages
    ]
    expected = np.reshape(np.mean(scores, axis=0), [2, 3, -1])
    np.testing.assert_allclose(found['detection_multiclass_scores'], expected, atol=1e-6)


def test_boxes_without_area_and_padding_stay(detector, images):
    (stage, *_), predictions = detector.box_stages, predict(detector, images)
    first = predictions.box_stages[0]
    # Moves each box by a hundred times its height, out of the image.
    codes = tf.zeros_like(first.regions.box_codes) + tf.constant([1000.0, 0.0, 0.0, 0.0])
    proposals = first.proposals._replace(count=tf.constant([5, 16]))
    moved = first._replace(proposals=proposals, regions=first.regions._replace(box_codes=codes))
    found = stage.refine(moved, shapes(images))
    np.testing.assert_array_equal(found.boxes, first.proposals.boxes)
    kept = stage.refine(first._replace(proposals=proposals), shapes(images))
    np.testing.assert_array_equal(kept.boxes[0, 5:], first.proposals.boxes[0, 5:])
    assert np.abs(kept.boxes - first.proposals.boxes)[0, :5].max() > 1e-3


def test_it_continues_a_detector_of_one_box_stage(tmp_path, detector):
    source = tiny.tiny_detector(model(HEAD), seed=1)
    target = tiny.tiny_detector(CASCADE)
    before = {name: variable.numpy() for name, variable in target.named_variables().items()}
    report = restore.restore(target, save(tmp_path, source))
    parts = {'box_classifier_2', 'box_head_2', 'box_classifier_3', 'box_head_3'}
    assert {name.partition('/')[0] for name in report.missing} == parts
    for name, variable in target.named_variables().items():
        expected = before[name] if name in report.missing else source.named_variables()[name]
        np.testing.assert_array_equal(variable, expected, err_msg=name)


def test_the_layers_of_each_stage_depend_on_the_classes(tmp_path, detector):
    target = tiny.tiny_detector(CASCADE, model('num_classes: 2'))
    report = restore.restore(target, save(tmp_path, detector))
    heads = {name.rpartition('/')[0] for name in report.mismatched if name.startswith('box')}
    assert {'box_head/classes', 'box_head_2/box_codes', 'box_head_3/classes'} <= heads
    assert all(name.startswith('box_head') for name in heads)


def test_every_stage_sees_the_context():
    detector = loss_families.build('static_context_cascade')
    batch = loss_families.batch_of(detector)
    other = batch | {F.CONTEXT_FEATURES: -batch[F.CONTEXT_FEATURES]}
    first, second = (
        loss_families.predict(detector, each, loss_families.SEEDS)[0].box_stages
        for each in (batch, other)
    )
    for one, another in zip(first, second, strict=True):
        assert np.abs(one.regions.class_logits - another.regions.class_logits).max() > 1e-5
    with tf.GradientTape() as tape:
        sums = loss_families.loss_sums(detector, batch, loss_families.SEEDS)
        total = tf.add_n([each.sum for each in sums.values()])
    gradients = tape.gradient(total, detector.named_trainable_variables())
    assert [name for name, gradient in gradients.items() if gradient is None] == []
    # One memory and one attention for all stages.
    names = {name.partition('/')[0] for name in gradients if name.startswith('context')}
    assert names == {'context_memory', 'context_attention'}


@pytest.mark.slow
@pytest.mark.parametrize('family', ['cascade_rcnn', 'static_context_cascade'])
def test_compiled_detections_are_the_same(family):
    """`test_a_step_is_the_same_in_every_way` compiles the training step of both."""
    detector = loss_families.build(family)
    batch = loss_families.batch_of(detector)
    true_shapes = batch[F.TRUE_IMAGE_SHAPE]

    def detect():
        images, given = detector.normalize(batch[F.IMAGE]), side_inputs.select(detector, batch)
        return detector.postprocess(detector.predict(images, true_shapes, **given), true_shapes)

    found, wanted = (
        tf.function(detect, jit_compile=compiled, autograph=False)() for compiled in (True, None)
    )
    assert wanted['num_detections'].numpy().min() > 0
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-3, atol=1e-4, err_msg=name)


def test_nothing_of_a_cascade_is_unread():
    assert unread.unread(tiny.tiny_pipeline(CASCADE).model) == unread.unread(
        tiny.tiny_pipeline(model(HEAD)).model
    )


def test_depths_of_no_layers_are_unread():
    depth = 'second_stage_box_predictor { mask_rcnn_box_predictor { box_head { conv_depth: 8 } } }'
    found = dict(unread.unread(tiny.tiny_pipeline(CASCADE, model(depth)).model))
    path = 'model.faster_rcnn.second_stage_box_predictor.mask_rcnn_box_predictor.box_head'
    assert found[f'{path}.conv_depth'] == 'num_convs is 0'
    assert f'{path}.fc_depth' not in found


def test_what_a_cascade_needs():
    config = tiny.tiny_pipeline(model(STAGES)).model
    message = 'model.faster_rcnn.cascade_stages: expected .*box_head, the layers over the crops'
    with pytest.raises(UserError, match=message):
        model_builder.build(config)
    (problem,) = rules.check(config.faster_rcnn)
    assert 'cascade_stages' in problem
    found = ranges.find(tiny.tiny_pipeline(model(HEAD, 'cascade_stages {}')))
    (error,) = found.errors
    assert error.startswith('model.faster_rcnn.cascade_stages[0].iou_threshold: expected above 0')
