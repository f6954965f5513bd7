"""The checks of a record find what training skips, and name it alike."""

import numpy as np

from object_detection.data import objects, record_checks, tf_examples
from object_detection.data.pipeline import bad_records
from object_detection.data.record_checks import Expectations, check
from object_detection.resizers.value_range import ValueRange
from tests import rows
from tests.dataset_tools.inspection.damaged_records import example, jpeg, png

BOX = (0.1, 0.2, 0.6, 0.7)
MASKS = Expectations(mask_type='png')


def test_a_good_record():
    checked = check(example(7, [BOX, BOX], labels=[1, 2]), Expectations())
    assert checked.problems == {}
    assert checked.source_id == 'image 7'
    assert checked.size == (24, 32)
    assert checked.classes == [1, 2]
    np.testing.assert_array_equal(checked.boxes, np.array([BOX, BOX], np.float32))


@rows.parametrize(
    ('kind', 'serialized', 'expected'),
    [
        ('not_an_example', b'\xff\xff', MASKS),
        # The feature lists of a tf.SequenceExample.
        ('not_an_example', b'\x12\x00', MASKS),
        ('not_an_example', example(labels=[1], CLASS_LABEL=b'').replace(b'ymin', b'y___'), None),
        ('not_an_example', example(YMIN=tf_examples.int64_feature([0])), MASKS),
        ('image', example(encoded=b''), MASKS),
        ('image', example(encoded=b'no image'), MASKS),
        ('image', example(encoded=jpeg()[:-200]), MASKS),
        ('image_too_large', example(), Expectations(max_pixels=100)),
        ('mask', example(masks=[png((24, 31))]), MASKS),
        ('mask', example(masks=[png()[:-30]]), MASKS),
        (
            'mask',
            example(MASK=tf_examples.float_feature([1.0])),
            Expectations(mask_type='numerical'),
        ),
        ('number_of_values', example(masks=[png(), png()]), MASKS),
        ('number_of_values', example(boxes=[BOX, BOX], texts=['cat']), MASKS),
        ('number_of_values', example(XMAX=tf_examples.float_feature([])), MASKS),
        ('number_of_values', example(IS_CROWD=tf_examples.int64_feature([0, 0])), MASKS),
        ('class_above_num_classes', example(labels=[4]), Expectations(num_classes=3)),
        (
            'class_above_num_classes',
            example(boxes=[BOX, BOX], labels=[0, 4]),
            Expectations(num_classes=3),
        ),
        ('number_of_values', example(texts=[], labels=[]), MASKS),
    ],
)
def test_records_that_training_skips(kind, serialized, expected):
    if expected is None:
        expected, kind = MASKS, 'number_of_values'
    checked = check(serialized, expected)
    assert checked.problems == {kind: 1}
    assert checked.reason
    assert kind in record_checks.RECORD_KINDS


@rows.parametrize(
    ('kind', 'box', 'text'),
    [
        ('nan_box', (0.1, float('nan'), 0.2, 0.3), 'cat'),
        ('nan_box', (0.1, 0.1, 0.2, float('inf')), 'cat'),
        ('inverted_box', (0.3, 0.1, 0.2, 0.3), 'cat'),
        ('box_without_area', (0.1, 0.3, 0.2, 0.3), 'cat'),
        ('box_outside_image', (1.0, 0.1, 1.2, 0.3), 'cat'),
        ('unknown_class', BOX, 'dog'),
    ],
)
def test_objects_that_training_leaves_out(kind, box, text):
    expected = Expectations(text_to_id={'cat': 1})
    checked = check(example(boxes=[BOX, box], texts=['cat', text]), expected)
    assert checked.problems == {kind: 1}
    assert checked.classes == [1]
    assert 'object 1' in checked.reason


@rows.parametrize(
    ('kind', 'serialized', 'expected'),
    [
        ('no_objects', example(boxes=[]), Expectations()),
        ('box_beyond_image', example(boxes=[(0.5, 0.5, 1.2, 0.9)]), Expectations()),
        ('duplicate_box', example(boxes=[BOX, BOX]), Expectations()),
        # Of 24 x 32 pixels.
        ('tiny_box', example(boxes=[(0.5, 0.5, 0.54, 0.9)]), Expectations()),
        ('stated_size', example(HEIGHT=tf_examples.int64_feature([25])), Expectations()),
        ('no_source_id', example(source_id=''), Expectations()),
        ('upper_8_bits', example(encoded=png(dtype=np.uint16)), Expectations()),
        ('too_many_objects', example(boxes=[BOX, BOX], labels=[1, 2]), Expectations(max_objects=1)),
    ],
)
def test_what_trains_but_is_worth_a_look(kind, serialized, expected):
    checked = check(serialized, expected)
    assert checked.problems == {kind: 1}
    assert kind in record_checks.WARNING_KINDS


def test_values_of_a_declared_range_are_no_warning():
    expected = Expectations(value_range=ValueRange(0, 4095))
    assert check(example(encoded=png(dtype=np.uint16)), expected).problems == {}


def test_a_box_of_one_pixel_is_not_tiny():
    assert check(example(boxes=[(0, 0, 1 / 24, 1 / 32)]), Expectations()).problems == {}


def test_without_decoding_only_headers_are_read():
    cut_off = example(encoded=jpeg()[:-200], masks=[png()[:-30]])
    assert check(cut_off, MASKS._replace(decodes=False)).problems == {}


def test_kinds_are_named_as_a_training_names_them():
    assert set(record_checks.OBJECT_KINDS) == set(objects.INVALID_KINDS)
    decoding = set(bad_records._KINDS.values()) - {'multiclass_scores'}
    assert decoding <= set(record_checks.RECORD_KINDS)
