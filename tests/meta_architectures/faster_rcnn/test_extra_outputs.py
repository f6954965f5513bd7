import numpy as np
import pytest
import tensorflow as tf

from object_detection.builders import model_builder
from object_detection.core.fields import DetectionFields
from tests import tiny_models as tiny

ALL = """
model { faster_rcnn {
  output_final_box_features: true
  output_final_box_rpn_features: true
  return_raw_detections_during_predict: true
} }
"""


@pytest.fixture(scope='module')
def detector():
    return tiny.tiny_detector(ALL)


@pytest.fixture(scope='module')
def predictions(detector):
    # Faint, as random weights send the boxes of others far out of the image.
    images = tiny.random_images(2) * 1e-3
    # The lower quarter of the first is padding.
    true_shapes = tf.constant([[48, 64, 3], [64, 64, 3]])
    return detector.predict(images, true_shapes), true_shapes


def test_none_of_them_is_returned_unasked():
    detector = tiny.tiny_detector()
    images, true_shapes = detector.preprocess(tiny.random_images(1))
    predictions = detector.predict(images, true_shapes)
    assert 'raw_detection_boxes' not in predictions.to_dict()
    detections = detector.postprocess(predictions, true_shapes)
    assert not {DetectionFields.FEATURES, DetectionFields.CROPPED_FEATURES} & set(detections)


def test_features_of_final_boxes_are_those_that_proposals_there_would_have(detector, predictions):
    predictions, true_shapes = predictions
    detections = detector.postprocess(predictions, true_shapes)
    boxes = detections['detection_boxes'] * tf.constant([[[48.0, 64, 48, 64]], [[64.0] * 4]])
    crops = detector._cropper(predictions.features, boxes, 64, 64)
    crops = detector._pool_crops(crops)
    features = detector.feature_extractor.box_classifier_features(crops)
    for name, rows in (('detection_features', features), ('cropped_rpn_box_features', crops)):
        received = detections[name].numpy()
        wanted = tf.reshape(rows, [2, 6, *rows.shape[1:]]).numpy()
        for image, count in enumerate(detections['num_detections'].numpy().astype(int)):
            assert count > 0
            np.testing.assert_allclose(received[image, :count], wanted[image, :count], rtol=1e-5)
            assert not received[image, count:].any()


def test_raw_detections_are_the_boxes_of_each_class_in_the_true_image(detector, predictions):
    predictions, true_shapes = predictions
    boxes = predictions.to_dict()['raw_detection_boxes'].numpy()
    indices = predictions.to_dict()['raw_detection_feature_map_indices']
    assert boxes.shape == (2, 16, tiny.NUM_CLASSES, 4)
    assert indices.shape == boxes.shape[:3]
    assert indices.dtype == tf.int32
    assert boxes.min() >= 0
    assert boxes.max() <= 1
    # Those of the best class are what postprocess returns.
    detections = detector.postprocess(predictions, true_shapes)
    best = detections['raw_detection_scores'].numpy()[..., 1:].argmax(-1)
    chosen = np.take_along_axis(boxes, best[..., None, None], axis=2)[:, :, 0]
    np.testing.assert_allclose(chosen, detections['raw_detection_boxes'], atol=1e-6)


def test_one_stage_has_no_features_of_boxes():
    with pytest.raises(ValueError, match='output_final_box_features'):
        model_builder.build(
            tiny.tiny_pipeline(ALL, 'model { faster_rcnn { number_of_stages: 1 } }').model
        )
