import numpy as np
import pytest
import tensorflow as tf

from object_detection.core.fields import InputFields
from object_detection.core.groundtruth import Groundtruth


def test_lists_are_padded_to_the_longest():
    groundtruth = Groundtruth.from_lists(
        boxes=[[[0, 0, 1, 1]], np.zeros((0, 4))],
        classes=[[[0, 1]], np.zeros((0, 2))],
        masks=[np.ones((1, 3, 5)), np.zeros((0, 3, 5))],
        keypoints=[np.ones((1, 2, 2)), np.zeros((0, 2, 2))],
        is_crowd=[[True], []],
    )
    assert groundtruth.is_crowd.dtype == tf.bool
    np.testing.assert_array_equal(groundtruth.is_crowd, [[True], [False]])
    assert groundtruth.boxes.shape == (2, 1, 4)
    np.testing.assert_array_equal(groundtruth.weights, [[1], [0]])
    np.testing.assert_array_equal(groundtruth.classes, [[[0, 1]], [[0, 0]]])
    assert groundtruth.masks.shape == (2, 1, 3, 5)
    assert not groundtruth.masks_are_crops
    assert np.isnan(groundtruth.keypoints[1]).all()


def test_no_objects_at_all():
    groundtruth = Groundtruth.from_lists(boxes=[np.zeros((0, 4))], classes=[np.zeros((0, 3))])
    assert groundtruth.boxes.shape == (1, 0, 4)
    assert groundtruth.classes.shape == (1, 0, 3)


def test_what_does_not_fit_is_named():
    with pytest.raises(ValueError, match=r'`weights` has \[2\] rows'):
        Groundtruth.from_lists(boxes=[[[0, 0, 1, 1]]], classes=[[[1, 0]]], weights=[[1, 1]])
    with pytest.raises(ValueError, match='classes: expected rows'):
        Groundtruth.from_lists(boxes=[[[0, 0, 1, 1]]], classes=[[0]])
    for name in ('groundtruth_boxes', 'groundtruth_encoded_masks', 'other'):
        with pytest.raises(ValueError, match=rf"Received: \['{name}'\]"):
            Groundtruth.from_lists(boxes=[[[0, 0, 1, 1]]], classes=[[[1, 0]]], **{name: [[0]]})


def test_crops_of_a_batch_become_numbers_in_0_to_1():
    batch = {
        InputFields.GROUNDTRUTH_BOXES: np.zeros((1, 1, 4), np.float32),
        InputFields.GROUNDTRUTH_CLASSES: np.zeros((1, 1, 2), np.float32),
        InputFields.GROUNDTRUTH_WEIGHTS: np.ones((1, 1), np.float32),
        InputFields.GROUNDTRUTH_INSTANCE_MASK_CROPS: np.full((1, 1, 2, 2), 255, np.uint8),
    }
    groundtruth = Groundtruth.from_batch(batch)
    assert groundtruth.masks_are_crops
    np.testing.assert_array_equal(groundtruth.masks, np.ones((1, 1, 2, 2)))
