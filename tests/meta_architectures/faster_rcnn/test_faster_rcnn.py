from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders import model_builder
from object_detection.core.groundtruth import Groundtruth
from object_detection.meta_architectures.faster_rcnn import build
from object_detection.protos import faster_rcnn_pb2
from object_detection.system import private_names
from tests import slow_cases
from tests import tiny_models as tiny
from tests.meta_architectures.faster_rcnn.test_rfcn import small_extractor
from tests.meta_architectures.graphs import check_graph_equals_eager
from tests.tiny_models import SEEDS, shapes, train_losses

pytestmark = pytest.mark.usefixtures('graphs_as_they_are')

LOSSES = {
    'Loss/RPNLoss/localization_loss',
    'Loss/RPNLoss/objectness_loss',
    'Loss/BoxClassifierLoss/localization_loss',
    'Loss/BoxClassifierLoss/classification_loss',
    'Loss/BoxClassifierLoss/mask_loss',
}


def stages(number: int) -> str:
    return f'model {{ faster_rcnn {{ number_of_stages: {number} }} }}'


@pytest.fixture(scope='module')
def detector():
    return tiny.tiny_detector()


def test_detections_have_the_documented_shapes(detector, images):
    preprocessed, true_shapes = detector.preprocess(tf.cast(images, tf.uint8))
    detections = detector.postprocess(detector.predict(preprocessed, true_shapes), true_shapes)
    found = {key: tuple(value.shape) for key, value in detections.items()}
    assert found == {
        'detection_boxes': (2, 6, 4),
        'detection_scores': (2, 6),
        'detection_classes': (2, 6),
        'detection_multiclass_scores': (2, 6, 5),
        'detection_anchor_indices': (2, 6),
        'num_detections': (2,),
        'detection_masks': (2, 6, 14, 14),
        'raw_detection_boxes': (2, 16, 4),
        'raw_detection_scores': (2, 16, 5),
    }
    boxes = detections['detection_boxes'].numpy()
    assert boxes.min() >= 0
    assert boxes.max() <= 1
    scores = detections['detection_scores'].numpy()
    assert (np.diff(scores, axis=1) <= 0).all()


@slow_cases.parametrize(2, 'number', [3, 1, 2])
def test_each_number_of_stages_has_its_losses_and_detections(number, detector, images, groundtruth):
    if number != 3:
        detector = tiny.tiny_detector(stages(number))
    losses = train_losses(detector, images, groundtruth)
    wanted = {1: 'RPN', 2: 'RPN BoxClassifierLoss/c BoxClassifierLoss/l', 3: 'Loss'}[number].split()
    assert set(losses) == {name for name in LOSSES if any(part in name for part in wanted)}
    assert set(losses) == set(detector.loss_names())
    assert all(np.isfinite(loss) and loss >= 0 for loss in losses.values())
    detections = detector.postprocess(
        detector.predict(detector.normalize(images), shapes(images)), shapes(images)
    )
    assert ('detection_classes' in detections) == (number > 1)
    assert ('detection_masks' in detections) == (number > 2)


def test_every_trainable_variable_gets_a_gradient(detector, images, groundtruth):
    with tf.GradientTape() as tape:
        losses = train_losses(detector, images, groundtruth)
        total = tf.add_n(list(losses.values()))
    variables = {v.path: v.value for v in detector.trainable_variables}
    gradients = tape.gradient(total, variables)
    assert [path for path, gradient in gradients.items() if gradient is None] == []


def test_graph_with_unknown_sizes_equals_eager(images):
    check_graph_equals_eager([], images, [None, None, None, 3])


@pytest.fixture(scope='module')
def static_losses(detector, images, groundtruth):
    """A detector of static execution, and the losses of the other one with its weights."""
    static = tiny.tiny_detector(tiny.STATIC)
    for name, variable in static.named_variables().items():
        variable.assign(detector.named_variables()[name])
    return static, train_losses(detector, images, groundtruth)


def test_static_execution_gives_the_same_numbers(static_losses, images, groundtruth):
    static, wanted = static_losses
    for name, loss in train_losses(static, images, groundtruth).items():
        np.testing.assert_allclose(loss, wanted[name], rtol=1e-4, err_msg=name)


# By default, the samples, targets, crops and losses are compiled for themselves.
@pytest.mark.slow
def test_static_execution_compiles(static_losses, images, groundtruth):
    static, wanted = static_losses
    compiled = tf.function(train_losses, jit_compile=True, autograph=False)(
        static, images, groundtruth
    )
    for name, loss in compiled.items():
        np.testing.assert_allclose(loss, wanted[name], rtol=1e-3, err_msg=name)


def test_an_images_sample_depends_on_its_own_seed_alone(detector, images, groundtruth):
    def sampled(order):
        rows = Groundtruth(
            *(
                tf.gather(field, order) if isinstance(field, tf.Tensor) else field
                for field in groundtruth
            )
        )
        batch = tf.gather(images, order)
        predictions = detector.predict(detector.normalize(batch), shapes(batch), False, None, None)
        proposals = detector.rpn.propose(predictions.anchors, shapes(batch), training=True)
        boxes = rows.boxes * tiny.IMAGE_SIZE
        seeds = tf.gather(SEEDS, order)
        sample, _ = detector.box_stages[0].sample(proposals, boxes, rows, seeds)
        return sample.boxes

    np.testing.assert_allclose(sampled([0, 1])[0], sampled([1, 0])[1], rtol=1e-5)


def test_sampled_proposals_keep_their_order(detector, images, groundtruth):
    predictions = detector.predict(detector.normalize(images), shapes(images))
    proposals = detector.rpn.propose(predictions.anchors, shapes(images), training=True)
    sample, _ = detector.box_stages[0].sample(
        proposals, groundtruth.boxes * tiny.IMAGE_SIZE, groundtruth, SEEDS
    )
    for image in range(2):
        count = int(sample.count[image])
        scores = sample.scores[image, :count].numpy()
        assert count > 1
        assert (np.diff(scores) <= 0).all()
        assert not sample.boxes[image, count:].numpy().any()


def test_images_without_objects_train(detector, images):
    empty = Groundtruth(
        boxes=tf.zeros([2, 3, 4]),
        classes=tf.zeros([2, 3, tiny.NUM_CLASSES]),
        weights=tf.zeros([2, 3]),
        masks=tf.zeros([2, 3, tiny.MASK_CROP, tiny.MASK_CROP]),
        masks_are_crops=True,
    )
    losses = train_losses(detector, images, empty)
    assert all(np.isfinite(loss) for loss in losses.values())
    assert losses['Loss/BoxClassifierLoss/mask_loss'] == 0
    assert losses['Loss/BoxClassifierLoss/localization_loss'] == 0
    assert losses['Loss/RPNLoss/objectness_loss'] > 0


def test_training_without_masks_says_what_is_missing(detector, images, groundtruth):
    with pytest.raises(ValueError, match='load_instance_masks'):
        train_losses(detector, images, groundtruth._replace(masks=None))
    with pytest.raises(ValueError, match='expected `groundtruth`'):
        detector.predict(detector.normalize(images), shapes(images), training=True)


def test_padding_does_not_move_masks_or_boxes(detector):
    """The same image in a padded frame gives detections in the same frame: the true image's."""
    image = tiny.random_images(1)
    padded = tf.pad(detector.normalize(image), [[0, 0], [0, 0], [0, 64], [0, 0]])
    true_shapes = shapes(image)
    detections = detector.postprocess(detector.predict(padded, true_shapes), true_shapes)
    boxes = detections['detection_boxes']
    frame = tf.constant([1.0, 0.5, 1.0, 0.5])
    predictions = detector.predict(padded, true_shapes)
    crops = detector._cropper(
        predictions.features,
        boxes * frame * tf.constant([64.0, 128.0, 64.0, 128.0]),
        64,
        128,
    )
    logits = detector.mask_stage.head(crops, training=False)
    classes = tf.cast(detections['detection_classes'], tf.int32)
    wanted = tf.sigmoid(detector.mask_stage.select_class(logits, classes))
    count = int(detections['num_detections'][0])
    assert count > 0
    np.testing.assert_allclose(
        detections['detection_masks'][0, :count], wanted[:count], rtol=1e-4, atol=1e-5
    )


@pytest.mark.slow
def test_masks_of_a_pyramid_are_by_default_of_what_classifies_a_box(images, groundtruth):
    """As in the reference: the second stage's features of a box, a vector, make its mask."""
    detector = tiny.tiny_detector('model { faster_rcnn { masks_from_crops: false } }')
    assert detector.named_variables()['mask_head/conv_1/kernel'].shape == (3, 3, 16, 8)
    images = detector.normalize(images)
    training = detector.predict(images, shapes(images), True, groundtruth, SEEDS)
    vectors = tf.reshape(training.regions.features, [2, 8, 1, 1, 16])
    vectors = tf.gather(vectors, training.masks.rows, batch_dims=1)
    logits = detector.mask_stage.head(tf.reshape(vectors, [-1, 1, 1, 16]))
    np.testing.assert_allclose(training.masks.logits, logits, rtol=1e-4, atol=1e-5)
    assert set(detector.loss(training, groundtruth, SEEDS)) == LOSSES

    predictions = detector.predict(images, shapes(images))
    detections = detector.postprocess(predictions, shapes(images))
    boxes = detections['detection_boxes'] * tiny.IMAGE_SIZE
    maps = predictions.features
    crops = tf.nn.max_pool2d(detector._cropper(maps, boxes, 64, 64), 2, 2, 'VALID')
    vectors = detector.feature_extractor.box_classifier_features(crops)
    classes = tf.cast(detections['detection_classes'], tf.int32)
    logits = detector.mask_stage.select_class(detector.mask_stage.head(vectors), classes)
    assert tf.reduce_all(detections['num_detections'] == 6)
    wanted = tf.reshape(tf.sigmoid(logits), [2, 6, 14, 14])
    np.testing.assert_allclose(detections['detection_masks'], wanted, rtol=1e-4, atol=1e-5)


def test_masks_from_crops_need_a_pyramid():
    config = tiny.tiny_pipeline().model
    config.faster_rcnn.feature_extractor.CopyFrom(
        faster_rcnn_pb2.FasterRcnnFeatureExtractor(type='faster_rcnn_resnet50_keras')
    )
    anchors = config.faster_rcnn.first_stage_anchor_generator
    anchors.Clear()
    text_format.Parse('grid_anchor_generator { scales: 1 aspect_ratios: 1 }', anchors)
    with (
        mock.patch.object(build, 'build_extractor', small_extractor),
        pytest.raises(ValueError, match=r'masks_from_crops: expected .* with a'),
    ):
        model_builder.build(config)


@pytest.mark.slow
@pytest.mark.parametrize('crops', [True, False])
def test_what_the_extractor_pads_does_not_move_crops(crops, images, groundtruth):
    """Frames that a pyramid pads to the same size give the same predictions, masks and losses."""
    detector = tiny.tiny_detector(
        f'model {{ faster_rcnn {{ masks_from_crops: {str(crops).lower()} }} }}',
        'model { faster_rcnn { first_stage_outside_anchors: KEEP } }',
        # Frozen, so that the first training does not change what follows.
        'model { faster_rcnn { feature_extractor { batch_norm_trainable: false } } }',
        'model { faster_rcnn { feature_extractor { pad_to_multiple: 32 } } }',
        'model { faster_rcnn { clip_anchors_to_image: false } }',
    )
    tiny.shrink_last_layers(detector)
    images = detector.normalize(images[:, :40, :38])
    true_shapes = shapes(images)

    def results(height, width):
        framed = tf.pad(images, [[0, 0], [0, height - 40], [0, width - 38], [0, 0]])
        objects = groundtruth.boxes * tf.constant([40.0, 38, 40, 38])
        objects /= tf.constant([height, width, height, width], tf.float32)
        objects = groundtruth._replace(boxes=objects)
        predictions = detector.predict(framed, true_shapes)
        detections = detector.postprocess(predictions, true_shapes)
        training = detector.predict(framed, true_shapes, True, objects, SEEDS)
        losses = detector.loss(training, objects, SEEDS)
        boxes = {'boxes': training.regions.box_codes, 'masks': training.masks.logits}
        return predictions.to_dict(), detections, losses, boxes

    assert results(64, 64)[1]['num_detections'].numpy().min() > 0
    for found, wanted in zip(results(45, 38), results(64, 64), strict=True):
        for name, value in wanted.items():
            # Normalized to the frame.
            if name.startswith(('image_shape', 'final_anchors', 'proposal_boxes_normalized')):
                continue
            for ours, theirs in zip(
                tf.nest.flatten(found[name]), tf.nest.flatten(value), strict=True
            ):
                np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3, err_msg=name)


def test_named_variables_are_unique_and_stable(detector):
    with private_names.graph_without_values():
        second = tiny.tiny_detector(seed=1)
    names = list(detector.named_variables())
    assert names == list(second.named_variables())
    assert 'backbone/conv1_conv/kernel' in names
    assert {name.split('/')[0] for name in names} == {
        'backbone',
        'fpn',
        'box_classifier',
        'rpn',
        'box_head',
        'mask_head',
    }


def test_crops_and_full_masks_give_nearly_the_same_loss(detector, images):
    """Both forms of the same ellipses; the crop form interpolates twice."""
    size = 56
    # Objects where the untrained detector proposes some, so that masks have something to learn.
    predictions = detector.predict(detector.normalize(images), shapes(images))
    boxes = predictions.proposals_normalized[:, :3].numpy()
    full = np.zeros((2, 3, tiny.IMAGE_SIZE, tiny.IMAGE_SIZE), np.float32)
    position = np.arange(tiny.IMAGE_SIZE) / (tiny.IMAGE_SIZE - 1)
    for image in range(2):
        for row in range(3):
            top, left, bottom, right = boxes[image, row]
            y = (2 * position - top - bottom) / (bottom - top)
            x = (2 * position - left - right) / (right - left)
            full[image, row] = y[:, None] ** 2 + x[None] ** 2 <= 1
    axis = np.linspace(-1, 1, size)
    crop = (axis[:, None] ** 2 + axis[None] ** 2 <= 1).astype(np.float32)
    crops = np.broadcast_to(crop, (2, 3, size, size))
    common = {
        'boxes': tf.constant(boxes),
        'classes': tf.one_hot([[0, 1, 2]] * 2, tiny.NUM_CLASSES),
        'weights': tf.ones([2, 3]),
    }
    losses = [
        train_losses(detector, images, Groundtruth(**common, masks=tf.constant(masks), **form))[
            'Loss/BoxClassifierLoss/mask_loss'
        ]
        for masks, form in ((full, {}), (crops, {'masks_are_crops': True}))
    ]
    assert losses[0] > 0
    np.testing.assert_allclose(losses[0], losses[1], rtol=0.02)


MASK_NORM = """
model { faster_rcnn { second_stage_box_predictor { mask_rcnn_box_predictor {
  use_dropout: true
  conv_hyperparams { batch_norm {} }
} } } }
"""


@pytest.fixture(scope='module')
def normed():
    return tiny.tiny_detector(MASK_NORM)


def test_evaluation_with_groundtruth_changes_no_variable(normed, images, groundtruth):
    before = {name: value.numpy() for name, value in normed.named_variables().items()}
    assert 'mask_head/conv_1_bn/moving_mean' in before
    predictions = normed.predict(
        normed.normalize(images), shapes(images), False, groundtruth, SEEDS
    )
    assert predictions.masks.rows.shape == predictions.proposals.scores.shape
    normed.loss(predictions, groundtruth, SEEDS)
    for name, value in normed.named_variables().items():
        np.testing.assert_array_equal(value, before[name], err_msg=name)


def test_dropout_is_a_function_of_the_seeds(normed, images, groundtruth):
    def logits(seeds):
        normalized = normed.normalize(images)
        predictions = normed.predict(normalized, shapes(images), True, groundtruth, seeds)
        return predictions.regions.class_logits.numpy()

    first = logits(SEEDS)
    np.testing.assert_array_equal(logits(SEEDS), first)
    assert np.any(logits(SEEDS + 1) != first)


def test_inference_freezes_the_norms_of_all_parts():
    detector = tiny.tiny_detector(MASK_NORM, is_training=False)
    norms = [
        layer for layer in detector.mask_stage.head._flatten_layers() if layer.name.endswith('_bn')
    ]
    assert norms
    x = tf.random.stateless_normal([2, 7, 7, 8], [1, 2])
    for norm in norms:
        before = norm.moving_mean.numpy()
        norm(x, training=True)
        np.testing.assert_array_equal(norm.moving_mean, before)


@pytest.mark.parametrize('training', [True, False])
def test_groundtruth_is_matched_once_to_anchors_and_once_to_proposals(
    training, detector, images, groundtruth
):
    normalized = detector.normalize(images)
    assigners = detector.rpn.assigner, detector.box_stages[0].assigner
    with (
        mock.patch.object(assigners[0], 'assign', side_effect=assigners[0].assign) as first,
        mock.patch.object(assigners[1], 'assign', side_effect=assigners[1].assign) as second,
    ):
        predictions = detector.predict(normalized, shapes(images), training, groundtruth, SEEDS)
        losses = detector.loss(predictions, groundtruth, SEEDS)
    assert losses.keys() == LOSSES
    assert first.call_count == second.call_count == 1
    # Losses of predictions that know no ground truth are those of what is given to `loss`.
    if not training:
        later = detector.predict(normalized, shapes(images), training, None, SEEDS)
        for name, loss in detector.loss(later, groundtruth, SEEDS).items():
            np.testing.assert_array_equal(loss, losses[name], err_msg=name)
