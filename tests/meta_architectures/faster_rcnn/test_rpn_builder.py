import keras
import numpy as np
import pytest

from object_detection.meta_architectures.faster_rcnn.build import (
    build_rpn,
    head_hyperparams,
)
from object_detection.meta_architectures.faster_rcnn.proposals import ProposalLimits
from object_detection.meta_architectures.faster_rcnn.region_proposal_network import OutsideAnchors
from object_detection.targets.assigners import Candidates
from object_detection.targets.box_coders import FasterRcnnBoxCoder, MeanStddevBoxCoder
from tests import rows
from tests import tiny_models as tiny


def config(options):
    return tiny.tiny_pipeline(f'model {{ faster_rcnn {{ {options} }} }}').model.faster_rcnn


def build(options='', static=False):
    return build_rpn(config(options), 3, True, static)


def test_defaults_are_built():
    stage = build()
    assert stage.params.limits == stage.params.eval_limits == ProposalLimits(16)
    assert not stage.params.limits.is_per_level
    assert type(stage.box_coder) is FasterRcnnBoxCoder
    assert stage.loss_params.localize_sampled_only


@rows.parametrize(
    ('options', 'activation'),
    [
        ('', 'relu6'),
        ('first_stage_activation: RELU', 'relu'),
        ('first_stage_box_predictor_conv_hyperparams { activation: SWISH }', 'relu6'),
    ],
)
def test_activation_of_the_head(options, activation):
    assert head_hyperparams(config(options)).activation == activation
    assert build(options).head._activation.activation is keras.activations.get(activation)


def test_numbers_of_inference_default_to_those_of_training():
    stage = build('first_stage_pre_nms_topk_per_level: 9 first_stage_max_proposals_per_level: 7')
    assert stage.params.limits == stage.params.eval_limits == ProposalLimits(16, 9, 7)
    stage = build("""
      first_stage_pre_nms_topk_per_level: 9 first_stage_pre_nms_topk_per_level_eval: 8
      first_stage_max_proposals_per_level_eval: 6 first_stage_max_proposals_eval: 5
    """)
    assert stage.params.limits == ProposalLimits(16, 9, 0)
    assert stage.params.eval_limits == ProposalLimits(5, 8, 6)


@rows.parametrize(
    ('options', 'policy'),
    [
        ('clip_anchors_to_image: true', 'CLIP'),
        ('clip_anchors_to_image: false', 'PRUNE'),
        ('clip_anchors_to_image: true first_stage_outside_anchors: CLIP', 'CLIP'),
        ('clip_anchors_to_image: false first_stage_outside_anchors: KEEP', 'KEEP'),
    ],
)
def test_outside_anchors(options, policy):
    assert build(options)._outside_anchors == OutsideAnchors[policy]


def test_every_policy_of_the_schema_has_a_meaning():
    names = config('').OutsideAnchors.keys()
    assert names == [policy.name for policy in OutsideAnchors]


def test_the_bipartite_matcher_gives_each_object_one_anchor():
    detector = tiny.tiny_detector(
        'model { faster_rcnn { first_stage_matcher { bipartite_matcher {} } } }'
    )
    images, groundtruth = tiny.random_images(2), tiny.random_groundtruth(2)
    anchors = detector.predict(detector.normalize(images), tiny.shapes(images)).anchors.boxes
    # Four objects each; the last row is padding.
    for matches in detector.rpn.assigner.assign(
        Candidates(anchors), groundtruth._replace(boxes=groundtruth.boxes * tiny.IMAGE_SIZE)
    ).numpy():
        assert sorted(matches[matches >= 0]) == [0, 1, 2, 3]
    losses = tiny.train_losses(detector, images, groundtruth)
    assert all(np.isfinite(loss) for loss in losses.values())


def test_other_coders_of_four_numbers():
    coder = build('first_stage_box_coder { mean_stddev_box_coder {} }').box_coder
    assert isinstance(coder, MeanStddevBoxCoder)


@rows.parametrize(
    ('options', 'message'),
    [
        (
            'clip_anchors_to_image: true first_stage_outside_anchors: KEEP',
            'first_stage_outside_anchors: KEEP and clip_anchors_to_image: true contradict',
        ),
        (
            'clip_anchors_to_image: false first_stage_outside_anchors: CLIP',
            'first_stage_outside_anchors: CLIP and clip_anchors_to_image: false contradict',
        ),
        (
            'clip_anchors_to_image: false use_static_shapes: true '
            'first_stage_pre_nms_topk_per_level: 3',
            'expected first_stage_outside_anchors IGNORE_LABEL, KEEP or CLIP. Received: PRUNE',
        ),
        (
            'first_stage_matcher { hungarian_matcher {} }',
            'first_stage_matcher: expected argmax_matcher or bip.* Received: hungarian_matcher',
        ),
        ('first_stage_matcher {}', 'first_stage_matcher: expected argmax_matcher'),
        (
            'first_stage_matcher { argmax_matcher { unmatched_threshold: 0.9 } }',
            'unmatched_threshold must not be above',
        ),
        (
            'first_stage_box_coder { square_box_coder {} }',
            'expected faster_rcnn_box_coder .* Received: square_box_coder',
        ),
        (
            'first_stage_localization_loss { weighted_giou {} }',
            'weighted_giou compares boxes, .* expected one of: l1_localization_loss, plugin, ',
        ),
        (
            'first_stage_localization_loss { weighted_smooth_l1 { delta: 0 } }',
            'delta must be positive',
        ),
    ],
)
def test_contradictions_are_reported(options, message):
    with pytest.raises(ValueError, match=message):
        build(options, static='use_static_shapes: true' in options)


def test_matmul_gathering_of_the_model_holds_for_its_matchers_too():
    for matcher in ('', 'first_stage_matcher { argmax_matcher {} }'):
        stage = build(f'use_matmul_gather_in_matcher: true {matcher}')
        assert stage.loss_params.use_matmul_gather


@rows.parametrize(
    ('options', 'read', 'expected'),
    [
        ('first_stage_box_predictor_depth: 24', lambda stage: stage.head._convs[0].filters, 24),
        ('first_stage_num_convs: 3', lambda stage: len(stage.head._convs), 3),
        (
            'first_stage_box_predictor_kernel_size: 5',
            lambda stage: stage.head._convs[0].kernel_size,
            (5, 5),
        ),
        ('first_stage_minibatch_size: 48', lambda stage: stage.loss_params.minibatch_size, 48),
        (
            'first_stage_positive_balance_fraction: 0.25',
            lambda stage: stage.loss_params.positive_fraction,
            0.25,
        ),
        (
            'first_stage_nms_iou_threshold: 0.5',
            lambda stage: stage.params.nms.iou_threshold,
            0.5,
        ),
        (
            'use_static_balanced_label_sampler: true',
            lambda stage: (stage.loss_params.fill_samples, stage.params.keeps_empty),
            (True, True),
        ),
    ],
)
def test_the_parts_of_the_stage_get_what_the_config_says(options, read, expected):
    assert read(build(options, static=True)) == expected
    assert read(build(static=True)) != expected
