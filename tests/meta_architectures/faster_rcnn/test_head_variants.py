"""Heads, pyramids and backbones of the Mask R-CNN systems that the samples do not have."""

import numpy as np
import pytest
import tensorflow as tf

from tests import slow_cases
from tests import tiny_models as tiny

GROUP_NORM = 'group_norm { groups: 4 }'
SYNC_NORM = 'sync_batch_norm { decay: 0.9 scale: true center: true }'
# 4conv1fc and up4conv, here with two convolutions, and the pyramid.
NORMS = """
model {{ faster_rcnn {{
  feature_extractor {{
    batch_norm_trainable: true override_base_feature_extractor_hyperparams: {override}
    conv_hyperparams {{ {norm} }}
  }}
  first_stage_box_predictor_conv_hyperparams {{ {norm} }}
  second_stage_add_gt_as_proposals: true
  second_stage_box_predictor {{ mask_rcnn_box_predictor {{
    conv_hyperparams {{ {norm} }} fc_hyperparams {{ {norm} }}
    box_head {{ num_convs: 2 conv_depth: 8 num_fcs: 1 fc_depth: 16 }}
    mask_prediction_num_conv_layers: 3
  }} }}
}} }}
"""
RECIPE = """
model { faster_rcnn {
  feature_extractor {
    type: "faster_rcnn_resnet34_fpn_keras"
    stride_in_1x1: false padding_mode: SAME frozen_stages: 2 freeze_affine: true
    batch_norm_trainable: false override_base_feature_extractor_hyperparams: false
    fpn { extra_level_type: MAX_POOL smoothing_type: AFTER_TOP_DOWN }
  }
  first_stage_activation: RELU
  second_stage_box_predictor { mask_rcnn_box_predictor {
    box_initializer { random_normal_initializer { stddev: 0.001 } }
  } }
} }
"""


def _train(detector):
    """Takes one small step down the gradient; returns the losses around it, and the gradients."""
    images, groundtruth = tiny.random_images(2), tiny.random_groundtruth(2)
    variables = {v.path: v.value for v in detector.trainable_variables}

    def total_loss():
        return tf.add_n(list(tiny.train_losses(detector, images, groundtruth).values()))

    with tf.GradientTape() as tape:
        before = total_loss()
    gradients = tape.gradient(before, variables)
    norm = tf.linalg.global_norm([g for g in gradients.values() if g is not None])
    for path, gradient in gradients.items():
        if gradient is not None:
            variables[path].assign_sub(gradient * (1e-3 / norm))
    return before.numpy(), total_loss().numpy(), gradients


@slow_cases.parametrize(1, ('norm', 'override'), [(GROUP_NORM, 'true'), (SYNC_NORM, 'false')])
def test_norms_of_heads_and_pyramid_train(norm, override):
    detector = tiny.tiny_detector(NORMS.format(norm=norm, override=override))
    before, after, gradients = _train(detector)
    assert np.isfinite(before)
    assert after < before
    trained = {path for path, g in gradients.items() if g is not None and np.any(g != 0)}
    scales = {path for path in trained if path.endswith('/gamma')}
    for part in ('box_classifier/conv_1', 'box_classifier/dense_1', 'mask_head/conv_2', 'rpn'):
        assert any(part in path for path in scales), (part, sorted(scales))
    # Of the box head in two parts only the layers have the norm.
    assert not any('box_head' in path for path in scales)


@pytest.mark.slow
def test_a_small_backbone_trains_with_the_options_of_the_recipe():
    detector = tiny.tiny_detector(RECIPE)
    before, after, gradients = _train(detector)
    assert after < before
    # Neither the frozen stages nor the affine part of the frozen norms.
    paths = {path for path, g in gradients.items() if g is not None}
    assert any('conv3_block1' in path for path in paths)
    assert not any('conv1_' in path or 'conv2_block' in path for path in paths)
    assert not any(path.startswith('backbone/') and '_bn/' in path for path in paths)
