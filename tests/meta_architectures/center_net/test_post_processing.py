"""Which peaks of a CenterNet become detections."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from object_detection.builders import post_processing_builder
from object_detection.core.fields import DetectionFields
from object_detection.protos import post_processing_pb2


@pytest.mark.parametrize('changes_frame', [True, False])
def test_suppression_removes_boxes_that_overlap(detector, monkeypatch, changes_frame):
    """Boxes are relative to the true image already, so that `change_coordinate_frame` is moot."""
    config = post_processing_pb2.PostProcessing()
    config.batch_non_max_suppression.iou_threshold = 0.5
    config.batch_non_max_suppression.change_coordinate_frame = changes_frame
    nms, _ = post_processing_builder.build(config)
    options = dataclasses.replace(detector._post_processing, nms=nms)
    monkeypatch.setattr(detector, '_post_processing', options)
    maps = {
        'object_center': [tf.fill([1, 16, 24, 2], -9.0)],
        'box/scale': [tf.fill([1, 16, 24, 2], 8.0)],
        'box/offset': [tf.zeros([1, 16, 24, 2])],
        'preprocessed_inputs': tf.zeros([1, 64, 96, 3]),
    }
    # Two peaks of class 1 that are two cells apart, and one far away of class 0.
    cells = [[0, 8, 8, 1], [0, 8, 10, 1], [0, 4, 20, 0]]
    centers = tf.tensor_scatter_nd_update(maps['object_center'][0], cells, [3.0, 2.0, 1.0])
    maps['object_center'] = [centers]
    found = detector.postprocess(maps, tf.constant([[64, 96, 3]]))
    count = np.sum(found[DetectionFields.SCORES].numpy() > 0.5)
    assert count == 2
    classes = found[DetectionFields.CLASSES].numpy()[0, :2]
    assert classes.tolist() == [1.0, 0.0]
    expected = [[4 / 16, 4 / 24, 12 / 16, 12 / 24], [0, 16 / 24, 8 / 16, 1]]
    np.testing.assert_allclose(found[DetectionFields.BOXES][0, :2], expected, rtol=1e-6)


@pytest.mark.parametrize('ignores', [False, True])
def test_peaks_in_the_padding(detector, monkeypatch, ignores):
    """Those in the padding of the resizer are as in the reference; the network's own has none."""
    options = dataclasses.replace(detector._post_processing, ignores_padding=ignores)
    monkeypatch.setattr(detector, '_post_processing', options)
    logits = np.full([1, 16, 24, 2], -9, np.float32)
    # A true image of 6.25 x 15 cells in an image of 12.5 x 20 cells; peaks in both paddings.
    logits[0, 6, 14, 0], logits[0, 7, 14, 0], logits[0, 6, 15, 0] = 1.0, 2.0, 3.0
    logits[0, 12, 19, 0], logits[0, 13, 0, 0], logits[0, 0, 20, 0] = 4.0, 5.0, 6.0
    maps = {
        'object_center': [tf.constant(logits)],
        'box/scale': [tf.ones([1, 16, 24, 2])],
        'box/offset': [tf.zeros([1, 16, 24, 2])],
        'preprocessed_inputs': tf.zeros([1, 50, 80, 3]),
    }
    shapes = tf.constant([[25, 60, 3]])
    found = detector.postprocess(maps, shapes)
    # Of a size that the graph does not know.
    specs = tf.nest.map_structure(lambda x: tf.TensorSpec([None, None, None, x.shape[-1]]), maps)
    dynamic = tf.function(
        lambda maps: detector.postprocess(maps, shapes), input_signature=[specs], autograph=False
    )(maps)
    for name, value in found.items():
        np.testing.assert_allclose(dynamic[name], value, rtol=1e-6, err_msg=name)
    scores = found[DetectionFields.SCORES][0].numpy()
    expected = [1.0] if ignores else [4.0, 3.0]
    expected = [1 / (1 + np.exp(-logit)) for logit in expected]
    # Without scores in the padding, the cell at its edge is the highest of its window.
    np.testing.assert_allclose(scores[scores > 0.5], expected, rtol=1e-6)


def test_more_detections_than_cells(detector, monkeypatch):
    maps = {
        'object_center': [tf.constant([[[[-1.0, 2.0]]]])],
        'box/scale': [tf.ones([1, 1, 1, 2])],
        'box/offset': [tf.zeros([1, 1, 1, 2])],
        'preprocessed_inputs': tf.zeros([1, 4, 4, 3]),
    }
    monkeypatch.setattr(detector.feature_extractor, 'pad_to_multiple', 4)
    found = detector.postprocess(maps, tf.constant([[4, 4, 3]]))
    expected = [1 / (1 + np.exp(-2)), 1 / (1 + np.exp(1)), 0, 0, 0, 0]
    np.testing.assert_allclose(found[DetectionFields.SCORES][0], expected, rtol=1e-6)
    assert found[DetectionFields.NUM_DETECTIONS][0] == 2
    assert np.isfinite(found[DetectionFields.BOXES]).all()
