"""Steps that are drawn."""

import collections

import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders import preprocessor_builder
from object_detection.core.fields import InputFields as F
from object_detection.data.augmentation import choice
from object_detection.protos import preprocessor_pb2
from tests import rows

SEEDS = tf.random.split([3, 1], 300)
EXAMPLE = {F.IMAGE: tf.zeros([1, 1, 3], tf.uint8), F.GROUNDTRUTH_BOXES: tf.zeros([0, 4])}
# Each sets the image to its number.
ONE, TWO = (
    f'normalize_image {{ original_maxval: 1 target_minval: {i} target_maxval: {i + 1} }}'
    for i in (1, 2)
)


def build(text):
    return preprocessor_builder.build(text_format.Parse(text, preprocessor_pb2.PreprocessingStep()))


def counts(step):
    call = tf.function(step, reduce_retracing=True)
    return collections.Counter(float(call(EXAMPLE, seed)[F.IMAGE][0, 0, 0]) for seed in SEEDS)


@pytest.mark.slow
def test_a_step_has_a_probability():
    count = counts(build(f'{ONE} probability: 0.25'))
    assert count.keys() == {0.0, 1.0}
    assert abs(count[1.0] - 75) < 4 * (300 * 0.25 * 0.75) ** 0.5
    assert counts(build(f'{ONE} probability: 0')) == {0.0: 300}
    assert counts(build(ONE)) == {1.0: 300}


def test_one_of_several_steps_is_drawn():
    both = f'steps {{ {ONE} }} steps {{ {TWO} }}'
    count = counts(build(f'one_of {{ {both} }}'))
    assert count.keys() == {1.0, 2.0}
    assert abs(count[1.0] - 150) < 4 * (300 * 0.25) ** 0.5
    count = counts(build(f'one_of {{ {both} weights: [3, 1] }}'))
    assert abs(count[1.0] - 225) < 4 * (300 * 0.75 * 0.25) ** 0.5
    assert counts(build(f'one_of {{ {both} weights: [0, 2] }}')) == {2.0: 300}
    inside = f'one_of {{ steps {{ {ONE} probability: 0 }} }} probability: 0.5'
    assert counts(build(inside)) == {0.0: 300}


def test_partners_are_those_of_the_step_with_most():
    step = build('one_of { steps { mosaic {} } steps { mix_up {} } steps { rgb_to_gray {} } }')
    assert choice.num_partners(step) == 3
    assert choice.num_partners(build('mix_up {} probability: 0.5')) == 1
    assert choice.num_partners(build('rgb_to_gray {} probability: 0.5')) == 0


@rows.parametrize(
    ('text', 'message'),
    [
        (f'{ONE} probability: 1.5', '^probability: expected 0 to 1'),
        ('one_of {}', r'one_of\.steps: expected at least one step'),
        ('one_of { steps {} }', 'preprocessing_step is not set'),
        (
            f'one_of {{ steps {{ {ONE} }} '
            f'steps {{ one_of {{ steps {{ {ONE} probability: 3 }} }} }} }}',
            r'^one_of\.steps\[1\]\.one_of\.steps\[0\]\.probability: expected 0 to 1',
        ),
        (
            f'one_of {{ steps {{ {ONE} }} weights: [1, 2] }}',
            'weights: expected none, or 1',
        ),
        (f'one_of {{ steps {{ {ONE} }} weights: 0 }}', 'weights: expected numbers of 0 or more'),
        (
            'one_of { steps { remap_labels { original_labels: 1 new_label: 2 } } }',
            r'one_of\.steps: expected no steps of labels alone. Received: remap_labels',
        ),
    ],
)
def test_wrong_fields_are_reported(text, message):
    with pytest.raises(ValueError, match=message):
        build(text)


def test_integers_are_drawn_from_the_first_on_and_below_the_second():
    seeds = [tf.constant([3, i]) for i in range(40)]
    assert {int(choice.draw_below(5, 8, seed)) for seed in seeds} == {5, 6, 7}
    assert {int(choice.draw_below(tf.constant(5), 5, seed)) for seed in seeds[:3]} == {5}
    greatest = 2**31 - 1
    assert int(choice.draw_below(greatest, greatest, seeds[0])) == greatest
