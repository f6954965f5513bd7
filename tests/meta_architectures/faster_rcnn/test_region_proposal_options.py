"""Options of the first stage that the reference has not."""

import numpy as np
import pytest
import tensorflow as tf

from object_detection.core.groundtruth import Groundtruth
from object_detection.core.loss_sum import divide
from object_detection.meta_architectures.faster_rcnn import build
from object_detection.meta_architectures.faster_rcnn.predictions import AnchorPredictions
from object_detection.targets.box_coders import FasterRcnnBoxCoder
from tests import rows
from tests import tiny_models as tiny

# One stage, whose losses see all anchors, so that no sample is drawn.
WHOLE = """
model { faster_rcnn {
  number_of_stages: 1
  first_stage_minibatch_size: 10000
  first_stage_positive_balance_fraction: 1.0
} }
"""
ANCHORS = [[10.0, 10, 40, 40], [12, 10, 40, 40], [5, 5, 15, 15], [20, 20, 28, 28]]


def rpn_config(options: str) -> str:
    return f'model {{ faster_rcnn {{ {options} }} }}'


def predict(detector, training=True):
    images = tiny.random_images(2)
    return detector.predict(
        detector.normalize(images), tiny.shapes(images), training, tiny.random_groundtruth(2)
    )


def rpn(options=''):
    """A first stage of the given options, whose head is not run."""
    model = tiny.tiny_pipeline(WHOLE, rpn_config(options)).model
    return build.build_rpn(model.faster_rcnn, num_levels=3, is_training=True, static=False)


def given(logits, sizes, codes=None):
    """Predictions of ANCHORS, as of one image."""
    return AnchorPredictions(
        boxes=tf.constant(ANCHORS),
        box_codes=tf.zeros([1, 4, 4]) if codes is None else codes,
        objectness_logits=tf.constant([logits]),
        level_sizes=sizes,
        is_training=tf.constant(True),
    )


@rows.parametrize(
    ('options', 'expected'),
    [
        # One level: the second anchor suppresses the first.
        ('', [1, 2, 3]),
        # The first and the second are of different levels.
        ('first_stage_pre_nms_topk_per_level: 3', [1, 2, 3, 0]),
        ('first_stage_pre_nms_topk_per_level: 1', [1, 0]),
        ('first_stage_max_proposals_per_level: 2', [1, 2, 0]),
        ('first_stage_max_proposals_per_level: 2 first_stage_max_proposals: 2', [1, 2]),
        ('first_stage_min_box_size: 9', [1, 2]),
        ('first_stage_min_box_size: 9 first_stage_pre_nms_topk_per_level: 3', [1, 2, 0]),
        # One row, of which nothing is left.
        ('first_stage_min_box_size: 29 first_stage_pre_nms_topk_per_level: 1', [0]),
    ],
)
@rows.parametrize('sigmoid', [False, True])
def test_proposals_by_hand(options, expected, sigmoid):
    logits = [[1.0], [4.0], [3.0], [2.0]] if sigmoid else [[0.0, 1], [0, 4], [-1, 2], [-2, 0]]
    proposals = rpn(options).propose(given(logits, [1, 3]), tf.constant([[50, 50, 3]]), True)
    count = len(expected)
    np.testing.assert_array_equal(proposals.count, [count])
    boxes = [ANCHORS[row] for row in expected]
    np.testing.assert_allclose(proposals.boxes[0, :count], boxes, rtol=1e-5)
    odds = 1 / (1 + np.exp(-np.array([1.0, 4, 3, 2])[expected]))
    np.testing.assert_allclose(proposals.scores[0, :count], odds, rtol=1e-5)
    assert not np.any(proposals.boxes[0, count:])


def test_numbers_of_inference():
    options = """
      first_stage_pre_nms_topk_per_level: 2 first_stage_pre_nms_topk_per_level_eval: 1
      first_stage_max_proposals: 5 first_stage_max_proposals_eval: 9
    """
    predictions = given([[0.0, 1], [0, 4], [-1, 2], [-2, 0]], [1, 3])
    for training, shape, count in ((True, (1, 5, 4), 3), (False, (1, 9, 4), 2)):
        proposals = rpn(options).propose(predictions, tf.constant([[50, 50, 3]]), training)
        assert (proposals.boxes.shape, int(proposals.count[0])) == (shape, count)
    limited = rpn('first_stage_max_proposals_per_level_eval: 1')
    proposals = limited.propose(predictions, tf.constant([[50, 50, 3]]), False)
    np.testing.assert_allclose(proposals.boxes[0, :2], [ANCHORS[1], ANCHORS[0]], rtol=1e-5)
    assert int(proposals.count[0]) == 2


def test_only_the_best_of_each_level_are_decoded(monkeypatch):
    stage = rpn('first_stage_pre_nms_topk_per_level: 2')
    coder, decoded = stage.box_coder, []

    class Spy:
        def decode(self, codes, anchors):
            decoded.append((tuple(codes.shape), tuple(anchors.shape)))
            return coder.decode(codes, anchors)

    monkeypatch.setattr(stage, 'box_coder', Spy())
    stage.propose(given([[1.0, 0]] * 4, [1, 3]), tf.constant([[50, 50, 3]]), True)
    assert decoded == [((1, 3, 4), (1, 3, 4))]


def test_levels_clip_boxes_before_they_are_compared():
    # Of the true image 10 rows are left, in which the first box is all of the second.
    predictions = given([[0.0, 4], [0, 3], [0, -9], [0, -9]], [4])
    boxes = tf.constant([[0.0, 0, 10, 20], [0, 0, 90, 20], [0] * 4, [0] * 4])
    predictions = predictions._replace(boxes=boxes)
    for options, count in (('', 2), ('first_stage_pre_nms_topk_per_level: 4', 1)):
        proposals = rpn(options).propose(predictions, tf.constant([[10, 50, 3]]), True)
        assert int(proposals.count[0]) == count


@pytest.fixture(scope='module')
def policies():
    """One-stage detectors of the same weights, by their policy."""
    return {
        name: tiny.tiny_detector(
            WHOLE,
            rpn_config(f'clip_anchors_to_image: false first_stage_outside_anchors: {name}'),
        )
        for name in ('PRUNE', 'IGNORE_LABEL', 'KEEP')
    }


@pytest.mark.slow
def test_ignored_anchors_have_the_numbers_of_pruned_ones(policies):
    pruned, ignored = policies['PRUNE'], policies['IGNORE_LABEL']
    few, all_rows = predict(pruned), predict(ignored)
    in_use = all_rows.anchors.in_use
    assert 0 < len(few.anchors.boxes) < len(all_rows.anchors.boxes)
    np.testing.assert_array_equal(all_rows.anchors.boxes[in_use], few.anchors.boxes)
    np.testing.assert_allclose(all_rows.proposals.boxes, few.proposals.boxes, rtol=1e-4)
    np.testing.assert_array_equal(all_rows.proposals.count, few.proposals.count)
    groundtruth = tiny.random_groundtruth(2)
    losses = ignored.loss(all_rows, groundtruth)
    for name, expected in pruned.loss(few, groundtruth).items():
        assert expected > 0
        np.testing.assert_allclose(losses[name], expected, rtol=1e-5, err_msg=name)


@pytest.mark.parametrize('name', ['PRUNE', 'IGNORE_LABEL'])
def test_pruned_and_ignored_anchors_are_clipped_in_inference(policies, name):
    predictions = predict(policies[name], training=False)
    assert predictions.anchors.boxes.numpy().min() == 0
    assert predictions.anchors.boxes.shape == (6 * (16 * 16 + 8 * 8 + 4 * 4), 4)
    assert predictions.anchors.in_use is None


@pytest.mark.parametrize('training', [False, True])
def test_kept_anchors_cross_the_border_and_train(policies, training):
    predictions = predict(policies['KEEP'], training)
    assert predictions.anchors.boxes.numpy().min() < 0
    assert sum(predictions.anchors.level_sizes) == len(predictions.anchors.boxes)
    assert predictions.proposals.boxes.numpy().min() == 0


def test_pruned_levels_choose_for_themselves():
    text = 'clip_anchors_to_image: false first_stage_pre_nms_topk_per_level: 20'
    predictions = predict(tiny.tiny_detector(WHOLE, rpn_config(text)))
    sizes = [int(size) for size in predictions.anchors.level_sizes]
    assert len(sizes) == 3
    assert sum(sizes) == len(predictions.anchors.boxes) > 20
    assert (predictions.proposals.count.numpy() > 0).all()


def objects(*boxes, is_crowd=None):
    """Ground truth of one image, in pixels here."""
    weights = tf.ones([1, len(boxes)])
    crowds = None if is_crowd is None else tf.constant([is_crowd])
    boxes = tf.constant([boxes])
    return Groundtruth(boxes, weights[..., tf.newaxis], weights, is_crowd=crowds)


def losses(options, groundtruth, codes=0.0, logits=((0.0, 0.0),) * 4):
    """The losses of ANCHORS: localization, objectness."""
    predictions = given(logits, [4], tf.zeros([1, 4, 4]) + codes)
    found = divide(rpn(options).loss_sums(predictions, groundtruth.boxes, groundtruth, None))
    return [float(loss) for loss in found.values()]


def l1(box, anchor, scales=(10.0, 10, 5, 5)):
    return np.abs(
        FasterRcnnBoxCoder(scales).encode(
            tf.constant(box, tf.float32), tf.constant(anchor, tf.float32)
        )
    ).sum()


L1 = 'first_stage_localization_loss { l1_localization_loss {} } '
UNIT = """first_stage_box_coder {
  faster_rcnn_box_coder { y_scale: 1 x_scale: 1 height_scale: 1 width_scale: 1 }
} """


@rows.parametrize(
    ('loss', 'expected'),
    [
        ('', 4 * 0.5),
        ('weighted_smooth_l1 { delta: 0.25 }', 4 * 0.25 * (1 - 0.125)),
        ('l1_localization_loss {}', 4),
        ('weighted_l2 {}', 4 * 0.5),
    ],
)
def test_localization_losses(loss, expected):
    groundtruth = objects(*ANCHORS)  # Each anchor is an object; codes are off by 1.
    options = f'first_stage_localization_loss {{ {loss} }}' if loss else ''
    assert losses(options, groundtruth, codes=1.0)[0] == pytest.approx(expected, rel=1e-5)


def test_loss_of_all_matched_anchors():
    sample_of_one = """
      first_stage_minibatch_size: 2 first_stage_positive_balance_fraction: 0.5
    """
    groundtruth = objects(*ANCHORS)
    assert losses(sample_of_one, groundtruth, 1.0)[0] == pytest.approx(2)
    all_matched = sample_of_one + 'first_stage_localization_on_sampled_only: false'
    assert losses(all_matched, groundtruth, 1.0)[0] == pytest.approx(4 * 2)


@pytest.mark.parametrize(
    ('options', 'scales'), [(L1, (10.0, 10, 5, 5)), (L1 + UNIT, (1.0, 1, 1, 1))]
)
def test_scales_of_the_codes(options, scales):
    box = [11.0, 10, 41, 40]  # Matches the first two anchors; the others are background.
    expected = (l1(box, ANCHORS[0], scales) + l1(box, ANCHORS[1], scales)) / 4
    assert losses(options, objects(box))[0] == pytest.approx(expected, rel=1e-5)


@rows.parametrize(
    ('matcher', 'matched', 'num_sampled'),
    [
        # IoU with the first two anchors: 0.67, which is forced, and 0.64, which is ignored.
        ('', [0], 3),
        ('matched_threshold: 0.65 unmatched_threshold: 0.65', [0], 4),
        ('matched_threshold: 0.6 unmatched_threshold: 0.2', [0, 1], 4),
        ('matched_threshold: 0.9 unmatched_threshold: 0.1', [], 2),
    ],
)
def test_matchers(matcher, matched, num_sampled):
    box = [10.0, 10, 40, 30]
    options = f'first_stage_matcher {{ argmax_matcher {{ {matcher} }} }}' if matcher else ''
    expected = sum(l1(box, ANCHORS[row]) for row in matched) / num_sampled
    assert losses(L1 + options, objects(box))[0] == pytest.approx(expected, rel=1e-5)


def test_anchors_on_crowds_do_not_train():
    # Of the third anchor a quarter is on the first object, of the others all.
    groundtruth = objects(ANCHORS[0], ANCHORS[3], is_crowd=[True, False])
    logits = [[0.0, 1], [0, 2], [0, 3], [0, 4]]
    background, is_object = np.log(1 + np.exp([1, 2, 3, 4])), np.log(1 + np.exp([-1, -2, -3, -4]))
    mean = (is_object[0] + is_object[1] + background[2] + is_object[3]) / 4
    assert losses('', groundtruth, logits=logits)[1] == pytest.approx(mean)
    localization, objectness = losses(
        'first_stage_crowd_ioa_threshold: 0.5', groundtruth, 1.0, logits
    )
    assert (localization, objectness) == (0, pytest.approx(background[2]))
    assert losses('first_stage_crowd_ioa_threshold: 0.25', groundtruth, 1.0, logits) == [0, 0]


def test_crowds_are_no_objects_where_they_are_distinguished():
    # The crowd leaves the first two anchors, which match it, a little; they become background.
    groundtruth = objects([11.0, 10, 38, 40], is_crowd=[True])
    options = 'first_stage_crowd_ioa_threshold: 0.97'
    logits = [[0.0, 1]] * 4
    found = losses(options, groundtruth, 1.0, logits)
    assert found == [0, pytest.approx(np.log(1 + np.e))]


def test_crowds_must_be_known():
    with pytest.raises(ValueError, match=r'expected groundtruth.is_crowd, bool \[B, M\]'):
        losses('first_stage_crowd_ioa_threshold: 0.5', objects(ANCHORS[0]))


ALL_OPTIONS = """
  clip_anchors_to_image: false
  first_stage_objectness_type: SIGMOID_1
  first_stage_pre_nms_topk_per_level: 40 first_stage_pre_nms_topk_per_level_eval: 30
  first_stage_max_proposals_per_level: 10 first_stage_max_proposals_per_level_eval: 12
  first_stage_max_proposals_eval: 20
  first_stage_outside_anchors: IGNORE_LABEL
  first_stage_box_coder {
    faster_rcnn_box_coder { y_scale: 1 x_scale: 1 height_scale: 1 width_scale: 1 }
  }
  first_stage_localization_loss { weighted_smooth_l1 { delta: 0.11 } }
  first_stage_localization_on_sampled_only: false
  first_stage_crowd_ioa_threshold: 0.9
  first_stage_min_box_size: 2
  first_stage_matcher {
    argmax_matcher {
      matched_threshold: 0.6 unmatched_threshold: 0.3 force_match_for_each_row: true
    }
  }
  first_stage_anchor_generator { multiscale_anchor_generator { anchor_center_offset: 0.25 } }
"""


def groundtruth_with_a_crowd():
    groundtruth = tiny.random_groundtruth(2)
    is_crowd = np.zeros(groundtruth.weights.shape, bool)
    is_crowd[0, 0] = True
    return groundtruth._replace(is_crowd=tf.constant(is_crowd))


@pytest.mark.slow
def test_all_options_compile():
    groundtruth = groundtruth_with_a_crowd()
    boxes = groundtruth.boxes * tiny.IMAGE_SIZE
    features = [tf.random.stateless_normal([2, side, side, 8], [side, 0]) for side in (16, 8, 4)]
    model = tiny.tiny_pipeline(rpn_config(ALL_OPTIONS)).model.faster_rcnn
    native, static = (build.build_rpn(model, 3, True, static) for static in (False, True))
    for stage in (native, static):
        stage.head(features)
    for variable, other in zip(static.head.variables, native.head.variables, strict=True):
        other.assign(variable)

    def step(stage, features, boxes, groundtruth):
        """Losses and proposals."""
        predictions = stage.predict(features, 64, 64, True)
        losses = divide(stage.loss_sums(predictions, boxes, groundtruth, tiny.SEEDS))
        proposals = stage.propose(predictions, tf.constant([[64, 64, 3], [50, 40, 3]]), True)
        return losses | proposals._asdict()

    wanted = step(native, features, boxes, groundtruth)
    assert (wanted['count'].numpy() > 3).all()
    assert wanted['Loss/RPNLoss/localization_loss'] > 0
    compiled = tf.function(step, jit_compile=True, autograph=False)(
        static, features, boxes, groundtruth
    )
    for name, value in step(static, features, boxes, groundtruth).items():
        np.testing.assert_allclose(value, wanted[name], rtol=1e-4, atol=1e-5, err_msg=name)
        np.testing.assert_allclose(compiled[name], wanted[name], rtol=1e-3, atol=1e-4)


def test_a_detector_trains_with_all_options():
    images, groundtruth = tiny.random_images(2), groundtruth_with_a_crowd()
    detector = tiny.tiny_detector(rpn_config(ALL_OPTIONS))
    tiny.shrink_last_layers(detector)
    weights = detector.trainable_variables

    def total():
        return tf.add_n(list(tiny.train_losses(detector, images, groundtruth).values()))

    with tf.GradientTape() as tape:
        before = total()
    for variable, gradient in zip(weights, tape.gradient(before, weights), strict=True):
        variable.assign_sub(1e-3 * gradient)
    assert total() < before
    predictions = detector.predict(detector.normalize(images), tiny.shapes(images))
    assert predictions.proposals.boxes.shape == (2, 20, 4)
    assert predictions.anchors.objectness_logits.shape == (2, 2016, 1)
    detections = detector.postprocess(predictions, tiny.shapes(images))
    assert np.all(np.isfinite(detections['detection_scores']))


@pytest.mark.slow
def test_a_detector_with_all_options_compiles():
    images, groundtruth = tiny.random_images(2), groundtruth_with_a_crowd()
    native = tiny.tiny_detector(rpn_config(ALL_OPTIONS))
    static = tiny.tiny_detector(rpn_config(ALL_OPTIONS), tiny.STATIC)
    for detector in (native, static):
        tiny.shrink_last_layers(detector)
    wanted = tiny.train_losses(native, images, groundtruth)
    compiled = tf.function(tiny.train_losses, jit_compile=True, autograph=False)(
        static, images, groundtruth
    )
    for name, loss in tiny.train_losses(static, images, groundtruth).items():
        np.testing.assert_allclose(loss, wanted[name], rtol=1e-4, err_msg=name)
        np.testing.assert_allclose(compiled[name], wanted[name], rtol=1e-3, err_msg=name)


def test_first_stage_alone_detects_with_one_logit():
    detector = tiny.tiny_detector(WHOLE, rpn_config('first_stage_objectness_type: SIGMOID_1'))
    images = tiny.random_images(2)
    predictions = detector.predict(detector.normalize(images), tiny.shapes(images))
    detections = detector.postprocess(predictions, tiny.shapes(images))
    raw = detections['raw_detection_scores']
    assert raw.shape == (2, 2016, 2)
    np.testing.assert_allclose(tf.reduce_sum(raw, axis=-1), 1, rtol=1e-6)
    assert tf.reduce_max(detections['detection_scores']) == tf.reduce_max(raw[..., 1])
