"""A small detector with all options of the second and third stage set."""

import numpy as np
import pytest
import tensorflow as tf

from object_detection.builders import model_builder
from object_detection.core.loss_sum import divide
from object_detection.meta_architectures.faster_rcnn.mask_stage import positive_rows, take_rows
from object_detection.meta_architectures.faster_rcnn.predictions import RegionPredictions
from object_detection.meta_architectures.faster_rcnn.proposals import Proposals
from tests import tiny_models as tiny
from tests.tiny_models import SEEDS, shapes, train_losses

OPTIONS = """
model { faster_rcnn {
  second_stage_add_gt_as_proposals: true
  second_stage_fg_iou_threshold: 0.5
  second_stage_bg_iou_threshold_hi: 0.4
  second_stage_bg_iou_threshold_lo: 0.01
  second_stage_box_coder { faster_rcnn_box_coder { y_scale: 20 x_scale: 20 } }
  second_stage_localization_loss { l1_localization_loss {} }
  second_stage_localization_normalizer: NUM_FG_COORDS
  max_num_mask_rois: 2
  mask_target_binarize_threshold: 0.5
  second_stage_box_predictor { mask_rcnn_box_predictor {
    box_head { num_convs: 2 conv_depth: 8 num_fcs: 1 fc_depth: 16 }
    conv_hyperparams { group_norm { groups: 4 } }
    mask_head_deconv: true convolve_then_upsample_masks: false mask_height: 28 mask_width: 28
  } }
} }
"""


@pytest.fixture(scope='module')
def detector():
    return tiny.tiny_detector(OPTIONS)


def test_layers_of_the_box_head_replace_those_of_the_extractor(detector):
    layers = {
        name.split('/')[1]
        for name in detector.named_variables()
        if name.startswith('box_classifier/')
    }
    assert layers == {'conv_1', 'conv_1_bn', 'conv_2', 'conv_2_bn', 'dense_1'}
    names = {name for name in detector.named_variables() if name.startswith('mask_head/')}
    assert names >= {'mask_head/deconv/kernel', 'mask_head/conv_4_bn/gamma'}
    assert len(detector.weights) == len(detector.named_variables())


def test_a_step_trains_every_variable(detector, images, groundtruth):
    with tf.GradientTape() as tape:
        losses = train_losses(detector, images, groundtruth)
        total = tf.add_n(list(losses.values()))
    assert all(np.isfinite(loss) for loss in losses.values())
    # Objects are drawn, so these two train from the first step on.
    assert losses['Loss/BoxClassifierLoss/localization_loss'] > 0
    assert losses['Loss/BoxClassifierLoss/mask_loss'] > 0
    variables = {v.path: v.value for v in detector.trainable_variables}
    gradients = tape.gradient(total, variables)
    assert [path for path, gradient in gradients.items() if gradient is None] == []


def test_few_regions_train_masks(detector, images, groundtruth):
    predictions = detector.predict(
        detector.normalize(images), shapes(images), True, groundtruth, SEEDS
    )
    assert predictions.masks.logits.shape == (4, tiny.NUM_CLASSES, 28, 28)
    assert predictions.masks.rows.shape == (2, 2)
    sums = detector.loss_sums(predictions, groundtruth, SEEDS)
    assert sums['Loss/BoxClassifierLoss/mask_loss'].normalizer <= 4 * 28 * 28
    assert sums['Loss/BoxClassifierLoss/classification_loss'].normalizer == 2


OWN_CROPS = 'mask_roi_align { output_size: 14 sampling_ratio: 1 }'


@pytest.mark.slow
@pytest.mark.parametrize('crops', [OWN_CROPS, ''])
def test_masks_of_the_positive_proposals_alone_give_the_same_losses(crops, images, groundtruth):
    options = f"""model {{ faster_rcnn {{
      max_num_mask_rois: 0 second_stage_fg_iou_threshold: 0.9 {crops}
    }} }}"""
    first = tf.range(groundtruth.weights.shape[1]) == 0
    groundtruth = groundtruth._replace(weights=groundtruth.weights * tf.cast(first, tf.float32))
    padded = tiny.tiny_detector(OPTIONS, options)
    alone = tiny.tiny_detector(OPTIONS, options, 'model { faster_rcnn { pad_mask_rois: false } }')
    for name, variable in alone.named_variables().items():
        variable.assign(padded.named_variables()[name])

    @tf.function(autograph=False)
    def run(detector):
        predictions = detector.predict(
            detector.normalize(images), shapes(images), True, groundtruth, SEEDS
        )
        return predictions.masks.logits, detector.loss(predictions, groundtruth, SEEDS)

    (all_masks, wanted), (masks, losses) = run(padded), run(alone)
    assert 2 <= masks.shape[0] < all_masks.shape[0]
    for name, loss in losses.items():
        np.testing.assert_allclose(loss, wanted[name], rtol=1e-4, err_msg=name)


def test_losses_of_batches_make_those_of_all_images(detector, images, groundtruth):
    """Added up, as evaluation does it."""
    name = 'Loss/BoxClassifierLoss/localization_loss'

    def evaluated(start, end):
        rows = groundtruth._replace(
            **{
                key: value[start:end]
                for key, value in groundtruth._asdict().items()
                if isinstance(value, tf.Tensor)
            }
        )
        # Objects where there are proposals, so that there are positives; another number in each.
        boxes = tf.constant(proposals[start:end, :5]) * rows.weights[..., tf.newaxis]
        rows = rows._replace(boxes=boxes)
        batch = detector.normalize(images[start:end])
        predictions = detector.predict(batch, shapes(batch), False, rows)
        return detector.loss_sums(predictions, rows, SEEDS[start:end])[name]

    batch = detector.normalize(images)
    proposals = detector.predict(batch, shapes(batch)).proposals_normalized.numpy()
    (whole, number), first, second = evaluated(0, 2), evaluated(0, 1), evaluated(1, 2)
    assert number == first[1] + second[1] > 0
    np.testing.assert_allclose(whole, first[0] + second[0], rtol=1e-4)


def test_detections_have_masks_of_the_configured_size(detector, images):
    predictions = detector.predict(detector.normalize(images), shapes(images))
    detections = detector.postprocess(predictions, shapes(images))
    assert detections['detection_masks'].shape == (2, 6, 28, 28)


@pytest.fixture(scope='module')
def static(detector):
    """Of the same weights."""
    static = tiny.tiny_detector(OPTIONS, tiny.STATIC)
    for name, variable in static.named_variables().items():
        variable.assign(detector.named_variables()[name])
    return static


@pytest.mark.slow
def test_static_execution_gives_the_same_numbers(detector, static, images, groundtruth):
    wanted = train_losses(detector, images, groundtruth)
    for name, loss in train_losses(static, images, groundtruth).items():
        np.testing.assert_allclose(loss, wanted[name], rtol=1e-4, err_msg=name)


@pytest.mark.slow  # A whole detector takes XLA half a minute.
def test_compiled_training_gives_the_same_numbers(detector, static, images, groundtruth):
    wanted = train_losses(detector, images, groundtruth)
    compiled = tf.function(train_losses, jit_compile=True, autograph=False)(
        static, images, groundtruth
    )
    for name, loss in compiled.items():
        np.testing.assert_allclose(loss, wanted[name], rtol=1e-3, err_msg=name)


@pytest.mark.slow
def test_compiled_sample_and_losses_are_the_same(detector, static, images, groundtruth):
    """What is not network in the second and third stage."""
    predictions = detector.predict(detector.normalize(images), shapes(images))
    boxes = groundtruth.boxes * tiny.IMAGE_SIZE
    rng = np.random.default_rng(0)
    outputs = RegionPredictions(
        box_codes=tf.constant(rng.normal(size=(16, tiny.NUM_CLASSES, 4)), tf.float32),
        class_logits=tf.constant(rng.normal(size=(16, tiny.NUM_CLASSES + 1)), tf.float32),
    )
    masks = tf.constant(rng.normal(size=(4, tiny.NUM_CLASSES, 28, 28)), tf.float32)

    def losses_of(detector, count):
        proposals = Proposals(predictions.proposals.boxes, predictions.proposals.scores, count)
        sample, targets = detector.box_stages[0].sample(proposals, boxes, groundtruth, SEEDS)
        rows = positive_rows(targets, sample.is_valid(), 2)
        regions = tf.gather(sample.boxes, rows, batch_dims=1) / tiny.IMAGE_SIZE
        rows = take_rows(targets, rows, use_matmul=True)
        sums = detector.box_stages[0].loss_sums(outputs, sample, targets)
        return divide(sums | detector.mask_stage.loss_sums(masks, regions, rows, groundtruth))

    wanted = losses_of(detector, predictions.proposals.count)
    compiled = tf.function(losses_of, jit_compile=True, autograph=False)(
        static, predictions.proposals.count
    )
    assert len(wanted) == 3
    for name, loss in wanted.items():
        assert loss > 0
        np.testing.assert_allclose(compiled[name], loss, rtol=1e-4, err_msg=name)


def test_a_box_head_needs_a_pyramid():
    text = """
    model { faster_rcnn {
      masks_from_crops: false
      feature_extractor { type: 'faster_rcnn_resnet50_keras' box_head_depth: 16 }
    } }
    """
    pipeline = tiny.tiny_pipeline(OPTIONS, text)
    extractor = pipeline.model.faster_rcnn.feature_extractor
    for field in ('fpn', 'box_head_depth'):
        extractor.ClearField(field)
    generator = pipeline.model.faster_rcnn.first_stage_anchor_generator
    generator.Clear()
    generator.grid_anchor_generator.scales[:] = [1.0]
    generator.grid_anchor_generator.aspect_ratios[:] = [1.0]
    with pytest.raises(ValueError, match=r'box_head: expected a feature extractor with a pyramid'):
        model_builder.build(pipeline.model)


def test_boxes_outside_of_the_image_are_dropped_in_any_case():
    nms = 'batch_non_max_suppression { use_combined_nms: true }'
    detector = tiny.tiny_detector(
        f'model {{ faster_rcnn {{ second_stage_post_processing {{ {nms} }} }} }}'
    )
    detections = detector.box_stages[0]._nms(
        tf.constant([[[[20.0, -30, 40, -10]], [[0.0, 0, 10, 80]]]]),
        tf.constant([[[0.9], [0.8]]]),
        clip_window=tf.constant([[0.0, 0, 64, 64]]),
        change_coordinate_frame=True,
    )
    assert int(detections.num_detections[0]) == 1
    np.testing.assert_allclose(detections.boxes[0, :2], [[0, 0, 10 / 64, 1], [0, 0, 0, 0]])


def test_boxes_are_clipped_before_suppression_with_a_smallest_size():
    boxes = tf.constant([[0.0, 0, 20, 20], [0, -60, 20, 20], [0, 24, 4, 44]])[tf.newaxis, :, None]
    scores = tf.transpose(tf.constant([[[0.1, 0.2, 0.3], [0.9, 0.8, 0.7]]]), [0, 2, 1])
    for size, rows in ((0, [0, 1, 2]), (3, [0, 2]), (5, [0])):
        stage = tiny.tiny_detector(
            f'model {{ faster_rcnn {{ num_classes: 1 second_stage_min_box_size: {size} }} }}'
        ).box_stages[0]
        found = stage.suppress(boxes, scores, tf.constant([3]), tf.constant([[50, 50, 3]]))
        count = int(found['num_detections'][0])
        assert found['detection_anchor_indices'][0, :count].numpy().tolist() == rows
