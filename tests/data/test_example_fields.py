"""A field with a row in a table passes from the record to `Groundtruth` without another change."""

import numpy as np
import pytest
import tensorflow as tf

from object_detection.core import tf_example_keys as keys
from object_detection.core.example_fields import (
    IMAGE_FIELDS,
    OBJECT_FIELDS,
    ImageField,
    ObjectField,
    Stored,
)
from object_detection.core.fields import InputFields as F
from object_detection.core.groundtruth import Groundtruth
from object_detection.data import tf_examples
from object_detection.data.augmentation.symmetry import RandomHorizontalFlip
from object_detection.data.decoder import ExampleDecoder
from object_detection.data.pipeline import synthetic, transform
from object_detection.resizers.fixed_sizes import IdentityResizer

TRACKS, DEPTHS = 'groundtruth_trails', 'groundtruth_distances'
CONTEXT, CONTEXT_LENGTH = 'context', 'context_length'
EVALUATION_TRACKS = 'evaluation_trails'


@pytest.fixture
def rows(monkeypatch):
    """Adds rows: of objects, of their keypoints, and of images a list and a number."""
    of_objects = {
        TRACKS: ObjectField(
            tf.int32,
            padding=-1,
            stored=Stored('track', tf.int64, -1),
            evaluation=EVALUATION_TRACKS,
        ),
        DEPTHS: ObjectField(
            tf.float32, padding=0, is_by_keypoint=True, stored=Stored('depth', tf.float32, 9.0)
        ),
    }
    of_images = {
        CONTEXT: ImageField(tf.float32, Stored('context', tf.float32, 0.0), is_list=True),
        CONTEXT_LENGTH: ImageField(tf.int32, Stored('length', tf.int64, 2)),
    }
    for table, new in ((OBJECT_FIELDS, of_objects), (IMAGE_FIELDS, of_images)):
        for name, row in new.items():
            monkeypatch.setitem(table, name, row)


def record(*, tracks, context, depths=()):
    """A tf.Example of an image of 4 x 8 pixels with one object for each of `tracks`."""
    count = len(tracks)
    features = {
        keys.ENCODED: tf_examples.bytes_feature(
            [tf.io.encode_png(np.zeros((4, 8, 3), np.uint8)).numpy()]
        ),
        **{
            key: tf_examples.float_feature([value] * count)
            for key, value in zip(keys.BOX_SIDES, (0.25, 0.5, 0.75, 1.0), strict=True)
        },
        keys.CLASS_LABEL: tf_examples.int64_feature([1] * count),
        keys.KEYPOINT_Y: tf_examples.float_feature([0.5] * 2 * count),
        keys.KEYPOINT_X: tf_examples.float_feature([0.75] * 2 * count),
        'track': tf_examples.int64_feature(tracks),
        'context': tf_examples.float_feature(context),
    }
    if depths:
        features['depth'] = tf_examples.float_feature(depths)
    return tf_examples.serialize(features)


RECORDS = (
    {'tracks': [7, 8], 'depths': [1, 2, 3, 4], 'context': [1, 2, 3, 4]},
    {'tracks': [5], 'context': [5, 6]},
)


def first_batch():
    decoder = ExampleDecoder(num_keypoints=2)
    change = transform.ExampleTransform(
        IdentityResizer(),
        num_classes=1,
        max_number_of_boxes=3,
        augmentations=(RandomHorizontalFlip(probability=1.0, keypoint_permutation=(1, 0)),),
        for_evaluation=True,
    )
    records = tf.data.Dataset.from_tensor_slices([record(**each) for each in RECORDS])
    examples = records.map(lambda text: change(decoder(text), tf.constant([0, 0])))
    return next(iter(transform.batch(examples, 2, drop_remainder=True)))


def test_a_row_passes_from_the_record_to_groundtruth(rows):
    batch = first_batch()
    groundtruth = Groundtruth.from_batch(batch)
    assert groundtruth.boxes.shape == [2, 3, 4]
    fields = groundtruth.fields
    assert fields[TRACKS].dtype == tf.int32
    np.testing.assert_array_equal(fields[TRACKS], [[7, 8, -1], [5, -1, -1]])
    # A flip exchanges the keypoints; the second record has no depths.
    expected = [[[2, 1], [4, 3], [0, 0]], [[9, 9], [0, 0], [0, 0]]]
    np.testing.assert_array_equal(fields[DEPTHS], expected)
    np.testing.assert_array_equal(fields[CONTEXT], [[1, 2, 3, 4], [5, 6, 0, 0]])
    np.testing.assert_array_equal(fields[CONTEXT_LENGTH], [2, 2])
    np.testing.assert_array_equal(batch[EVALUATION_TRACKS], [[7, 8], [5, 0]])


def test_what_groundtruth_has_anyway_is_not_among_its_further_fields(rows):
    fields = Groundtruth.from_batch(first_batch()).fields
    assert fields.keys() == {
        F.GROUNDTRUTH_AREA, F.GROUNDTRUTH_DIFFICULT, F.GROUNDTRUTH_GROUP_OF,
        F.GROUNDTRUTH_KEYPOINT_VISIBILITIES, F.GROUNDTRUTH_KEYPOINT_WEIGHTS,
        TRACKS, DEPTHS, CONTEXT, CONTEXT_LENGTH,
    }  # fmt: skip


def test_lists_of_a_row_are_padded_as_it_says(rows):
    boxes = [np.zeros((2, 4)), np.zeros((1, 4))]
    classes = [np.zeros((2, 1)), np.zeros((1, 1))]
    groundtruth = Groundtruth.from_lists(boxes, classes, **{TRACKS: [[7, 8], [5]]})
    assert groundtruth.fields[TRACKS].dtype == tf.int32
    np.testing.assert_array_equal(groundtruth.fields[TRACKS], [[7, 8], [5, -1]])
    with pytest.raises(ValueError, match=r"Received: \['groundtruth_paths'\]"):
        Groundtruth.from_lists(boxes, classes, groundtruth_paths=[[7, 8], [5]])


def test_synthetic_examples_have_the_defaults_of_rows(rows):
    options = {'num_objects': 2, 'num_classes': 1, 'with_masks': False, 'seed': 0}
    example = next(iter(synthetic.examples([(4, 8)], 1, **options)))
    np.testing.assert_array_equal(example[TRACKS], [-1, -1])
    assert DEPTHS not in example
    assert example[CONTEXT].shape == [0]
    assert example[CONTEXT_LENGTH] == 2
