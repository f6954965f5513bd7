"""Backbone, pyramid and heads give the reference's numbers with the reference's weights."""

import numpy as np
import pytest
import tensorflow as tf

from object_detection.builders import box_predictor_builder
from object_detection.core import crop_and_resize
from object_detection.meta_architectures.faster_rcnn import build
from object_detection.meta_architectures.faster_rcnn.feature_extractor import (
    TwoStageFeatureExtractor,
)
from object_detection.models.heads.rpn_head import RpnHead
from tests.models.golden_models import (
    GoldenModel,
    crop,
    fill_box_classifier,
    fill_box_head,
    fill_mask_head,
    fill_proposal_layers,
    fill_rpn_head,
)


@pytest.mark.slow
def test_resnet50_fpn():
    golden = GoldenModel('faster_rcnn_resnet50_v1_fpn_640x640')
    extractor = build.build_extractor(golden.config.feature_extractor, is_training=True)
    fill_proposal_layers(golden, extractor)
    maps = _check_proposals(golden, extractor, golden.images())

    boxes = golden.arrays['predict/proposal_boxes_normalized']
    levels = crop_and_resize.fpn_levels(tf.constant(boxes), 256, 256, len(maps)).numpy()
    crops = np.concatenate(
        [
            crop(maps[level][image].numpy(), boxes[image, [i]], golden.config.initial_crop_size)
            for image in range(2)
            for i, level in enumerate(levels[image])
        ]
    )
    features = extractor.box_classifier_features(tf.nn.max_pool2d(crops, 2, 2, 'VALID'))
    fill_box_classifier(golden, extractor)
    features = extractor.box_classifier_features(tf.nn.max_pool2d(crops, 2, 2, 'VALID'))
    _check_box_head(golden, features)

    assert not golden.unused
    penalty = sum(float(loss) for loss in extractor.losses)
    np.testing.assert_allclose(penalty, golden.facts['regularization_losses']['sum'], rtol=1e-5)
    heads = [key for key in golden.facts['trainable_keys'] if '_box_predictor' in key]
    assert len(extractor.trainable_variables) == golden.facts['num_trainable'] - len(heads)


def test_resnet50_with_masks():
    golden = GoldenModel('mask_rcnn_resnet50_keras')
    extractor = build.build_extractor(golden.config.feature_extractor, is_training=False)
    fill_proposal_layers(golden, extractor)
    fill_box_classifier(golden, extractor)
    (features,) = _check_proposals(golden, extractor, golden.images())

    def box_features(boxes):
        size = golden.config.initial_crop_size
        crops = [crop(features[i].numpy(), boxes[i], size) for i in range(2)]
        pooled = tf.nn.max_pool2d(np.concatenate(crops), 2, 2, 'VALID')
        return extractor.box_classifier_features(pooled)

    _check_box_head(golden, box_features(golden.arrays['predict/proposal_boxes_normalized']))

    _, mask_head = box_predictor_builder.build(golden.config.second_stage_box_predictor, 12)
    detected = box_features(golden.arrays['predict/detection_boxes'])
    mask_head(detected)
    fill_mask_head(golden, mask_head)
    golden.check('predict/mask_predictions', mask_head(detected))
    assert not golden.unused


@pytest.mark.slow
def test_inception_resnet_v2():
    golden = GoldenModel('mask_rcnn_inception_resnet_v2_1024x1024')
    extractor = build.build_extractor(golden.config.feature_extractor, is_training=True)
    fill_proposal_layers(golden, extractor)
    fill_box_classifier(golden, extractor)
    images = tf.compat.v1.image.resize(golden.arrays['images'].astype(np.float32), [256, 256])
    (features,) = _check_proposals(golden, extractor, images)
    boxes = golden.arrays['predict/proposal_boxes_normalized']
    crops = [crop(features[i].numpy(), boxes[i], golden.config.initial_crop_size) for i in range(2)]
    _check_box_head(golden, extractor.box_classifier_features(np.concatenate(crops)))

    assert {key.split('/')[2] for key in golden.unused} == {'_third_stage_heads'}
    assert not extractor.losses
    trainable = {golden.keys[variable.path] for variable in extractor.trainable_variables}
    assert trainable == {
        key for key in golden.facts['trainable_keys'] if '_feature_extractor' in key
    }


def _check_proposals(
    golden: GoldenModel, extractor: TwoStageFeatureExtractor, images: np.ndarray | tf.Tensor
) -> list[tf.Tensor]:
    images = extractor.normalize(tf.convert_to_tensor(images))
    golden.check('preprocess/inputs', images)
    maps = extractor.proposal_features(images)
    for i, level in enumerate(maps):
        golden.check(f'predict/rpn_features_to_crop.{i}', level)

    cells = sum(level.shape[1] * level.shape[2] for level in maps)
    anchors = golden.facts['tensors']['predict/anchors']['shape'][0] // cells
    head = RpnHead([anchors] * len(maps), hyperparams=build.head_hyperparams(golden.config))
    head(maps)
    fill_rpn_head(golden, head)
    predictions = head(maps)
    golden.check('predict/rpn_box_encodings', predictions.box_codes)
    golden.check(
        'predict/rpn_objectness_predictions_with_background', predictions.objectness_logits
    )
    for i, level in enumerate(predictions.features):
        golden.check(f'predict/rpn_box_predictor_features.{i}', level)
    return maps


def _check_box_head(golden: GoldenModel, features: tf.Tensor) -> None:
    golden.check('predict/box_classifier_features', features)
    config = golden.config
    head, _ = box_predictor_builder.build(config.second_stage_box_predictor, config.num_classes)
    head(features)
    fill_box_head(golden, head)
    box_codes, class_logits = head(features)
    golden.check('predict/refined_box_encodings', box_codes)
    golden.check('predict/class_predictions_with_background', class_logits)
