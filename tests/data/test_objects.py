"""Dropping and merging the objects of an example, against golden numbers."""

import numpy as np
import pytest
import tensorflow as tf

from object_detection.core.example_fields import IMAGE_FIELDS, OBJECT_FIELDS, Geometry, ObjectField
from object_detection.core.fields import InputFields as F
from object_detection.data import objects
from object_detection.data.augmentation.symmetry import RandomHorizontalFlip
from object_detection.data.augmentation.window import Window, cut_out
from object_detection.data.pipeline.transform import ExampleTransform
from object_detection.resizers.fixed_sizes import IdentityResizer
from tests import goldens

FILTERS = {
    'filter_crowd': objects.drop_crowds,
    'filter_unrecognized': objects.keep_known,
    'filter_nan': objects.keep_known,
    'retain_positive': objects.keep_known,
}


@goldens.rows('ops', names=tuple(FILTERS))
def test_all_fields_lose_the_same_rows(case_name):
    case = goldens.load('ops', case_name)
    kept = FILTERS[case_name]({name: tf.constant(value) for name, value in case.inputs.items()})
    assert kept.keys() == case.outputs.keys()
    for name, value in kept.items():
        np.testing.assert_array_equal(value, case.outputs[name], err_msg=name)


@goldens.parametrize('ops', names=('merge_boxes',))
def test_objects_of_one_box_are_merged(case_name):
    case = goldens.load('ops', case_name)
    boxes = case.inputs['boxes']
    classes = tf.one_hot(case.inputs['classes'], case.params['num_classes'])
    example = {F.GROUNDTRUTH_BOXES: tf.constant(boxes), F.GROUNDTRUTH_CLASSES: classes}
    merged = objects.merge_same_boxes(example)
    # The reference takes the last box for the first one, from which it differs by 1e-5.
    assert 0 < np.abs(boxes[4] - boxes[0]).max() < 2e-5
    for name, output in (
        (F.GROUNDTRUTH_BOXES, 'boxes'),
        (F.GROUNDTRUTH_CLASSES, 'class_encodings'),
    ):
        np.testing.assert_array_equal(merged[name][:2], case.outputs[output])
        np.testing.assert_array_equal(merged[name][2:], example[name][4:])


def test_every_field_of_objects_is_in_the_table():
    fields = {value for name, value in vars(F).items() if name.startswith('GROUNDTRUTH_')}
    of_images = {name for name in IMAGE_FIELDS if name.startswith('groundtruth')} | {
        F.GROUNDTRUTH_IMAGE_CLASSES,
        F.GROUNDTRUTH_IMAGE_CONFIDENCES,
    }
    # Only `Groundtruth.from_lists` takes these, as no record has them.
    of_lists = {F.GROUNDTRUTH_TEMPORAL_OFFSETS, F.GROUNDTRUTH_TRACK_MATCH_FLAGS}
    assert OBJECT_FIELDS.keys() == fields - of_images - of_lists | {F.MULTICLASS_SCORES}


@pytest.fixture
def corners(monkeypatch):
    """Adds a field to the table, a point an object, and returns an example of two objects."""
    field = ObjectField(tf.float32, Geometry.POINTS, padding=-1)
    monkeypatch.setitem(OBJECT_FIELDS, 'groundtruth_corners', field)
    return {
        F.IMAGE: tf.zeros([10, 20, 3], tf.uint8),
        F.ORIGINAL_IMAGE_SPATIAL_SHAPE: tf.constant([10, 20]),
        F.SOURCE_ID: tf.constant('5'),
        F.FILENAME: tf.constant('a.jpg'),
        F.GROUNDTRUTH_BOXES: tf.constant([[0.0, 0, 0.5, 0.5], [0.25, 0.5, 1, 1]]),
        F.GROUNDTRUTH_CLASSES: tf.constant([1, 2], tf.int64),
        'groundtruth_corners': tf.constant([[[0.0, 0.5]], [[0.5, 0.75]]]),
    }


def test_a_field_of_the_table_follows_its_object_and_the_image(corners):
    seed = tf.constant([0, 0])
    kept = objects.select(corners, tf.constant([1]))
    np.testing.assert_allclose(kept['groundtruth_corners'], [[[0.5, 0.75]]])
    flipped = RandomHorizontalFlip(probability=1.0)(corners, seed)
    np.testing.assert_allclose(flipped['groundtruth_corners'], [[[0, 0.5]], [[0.5, 0.25]]])
    right_half = cut_out(corners, Window(*map(tf.constant, (0, 10, 10, 10))))
    np.testing.assert_allclose(right_half['groundtruth_corners'], [[[0.5, 0.5]]])
    transform = ExampleTransform(IdentityResizer(), num_classes=2, max_number_of_boxes=3)
    padded = transform(corners, seed)['groundtruth_corners']
    np.testing.assert_allclose(padded, [[[0, 0.5]], [[0.5, 0.75]], [[-1, -1]]])
