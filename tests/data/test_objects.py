"""Dropping and merging the objects of an example, against golden numbers."""

import numpy as np
import tensorflow as tf

from object_detection.core.fields import InputFields as F
from object_detection.data import objects
from tests import goldens

FILTERS = {
    'filter_crowd': objects.drop_crowds,
    'filter_unrecognized': objects.keep_known,
    'filter_nan': objects.keep_known,
    'retain_positive': objects.keep_known,
}


@goldens.parametrize('ops', names=tuple(FILTERS))
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
