"""The steps without a random choice: against the reference, alone, and in the pipeline."""

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders import preprocessor_builder
from object_detection.core import boxes
from object_detection.core.example_fields import OBJECT_FIELDS
from object_detection.core.fields import InputFields as F
from object_detection.data import objects
from object_detection.data.augmentation.labels import DropLabelProbabilistically
from object_detection.data.decoder import ExampleDecoder
from object_detection.data.pipeline.transform import ExampleTransform
from object_detection.protos import preprocessor_pb2
from object_detection.resizers.fixed_sizes import FixedShapeResizer, IdentityResizer
from tests import goldens
from tests.data import examples
from tests.data.test_instance_masks import blobs
from tests.rows import parametrize

SEED = tf.constant([3, 4], tf.int64)


def parse(text):
    return text_format.Parse(text, preprocessor_pb2.PreprocessingStep())


def build(text):
    return preprocessor_builder.build(parse(text))


def golden_example(case):
    """The common inputs, with the case's own; those that belong to an example here."""
    inputs = {**goldens.load('preprocessor', 'common_inputs').inputs, **case.inputs}
    inputs[F.IMAGE] = inputs[F.IMAGE][0] * inputs.pop('image_scale', np.float32(1))
    names = {F.IMAGE, *OBJECT_FIELDS}
    return {name: tf.constant(value) for name, value in inputs.items() if name in names}


@goldens.rows(
    'preprocessor',
    prefix=(
        'adjust_gamma',
        'class_logits_to_softmax',
        'drop_label',
        'normalize_',
        'remap_labels',
        'resize_image_',
        'subtract_channel_mean',
    ),
)
def test_matches_the_reference(case_name):
    case = goldens.load('preprocessor', case_name)
    if case.raises:
        with pytest.raises(ValueError, match='expected 3 numbers, one a channel'):
            build(case.config)
        return
    example = golden_example(case)
    changed = build(case.config)(example, SEED)
    values = np.min(example[F.IMAGE]), np.max(example[F.IMAGE])
    for name, value in example.items():
        expected = case.outputs.get(name, value)
        if name == F.IMAGE and name in case.outputs:
            expected = np.clip(expected[0], *values) if 'BICUBIC' in case_name else expected[0]
        forgotten = (F.GROUNDTRUTH_KEYPOINT_VISIBILITIES, F.GROUNDTRUTH_INSTANCE_MASK_WEIGHTS)
        if name in forgotten and len(changed[name]) < len(value):
            # Like the boxes.
            assert len(changed[name]) == len(changed[F.GROUNDTRUTH_BOXES])
            continue  # The reference forgets them where it drops objects.
        np.testing.assert_allclose(changed[name], expected, rtol=1e-5, atol=2e-5, err_msg=name)


def test_an_image_without_objects_is_normalized():
    case = goldens.load('preprocessor', 'empty_step')
    step = build('normalize_image { original_maxval: 255 }')
    image = golden_example(case)[F.IMAGE]
    changed = step({F.IMAGE: image, F.GROUNDTRUTH_BOXES: tf.zeros([0, 4])}, SEED)
    np.testing.assert_allclose(changed[F.IMAGE], case.outputs[F.IMAGE][0], rtol=1e-5, atol=1e-6)
    assert changed[F.GROUNDTRUTH_BOXES].shape == (0, 4)


def test_gray_is_that_of_the_reference_in_each_of_three_channels():
    case = goldens.load('preprocessor', 'rgb_to_gray')
    gray = build(case.config)(golden_example(case), SEED)[F.IMAGE]
    expected = np.repeat(case.outputs[F.IMAGE][0], 3, axis=-1)
    np.testing.assert_allclose(gray, expected, rtol=1e-5, atol=2e-5)


def test_rows_above_a_weight_are_those_of_the_reference():
    case = goldens.load('preprocessor', 'retain_boxes_above_threshold')
    names = {
        'boxes': F.GROUNDTRUTH_BOXES,
        'labels': F.GROUNDTRUTH_CLASSES,
        'label_weights': F.GROUNDTRUTH_WEIGHTS,
        'masks': F.GROUNDTRUTH_INSTANCE_MASKS,
        'keypoints': F.GROUNDTRUTH_KEYPOINTS,
    }
    example = {ours: tf.constant(case.inputs[name]) for name, ours in names.items()}
    kept = objects.select(example, example[F.GROUNDTRUTH_WEIGHTS] > case.params['threshold'])
    for name, ours in names.items():
        np.testing.assert_array_equal(kept[ours], case.outputs[name])


def test_pixel_coordinates_and_float_images_are_those_of_the_reference():
    """Both are no steps here: boxes become absolute in the detector, images in the resizer."""
    case = goldens.load('preprocessor', 'scale_boxes_to_pixel_coordinates')
    example = golden_example(case)
    height, width, _ = example[F.IMAGE].shape
    absolute = boxes.normalized_to_absolute(example[F.GROUNDTRUTH_BOXES], height, width)
    np.testing.assert_allclose(absolute, case.outputs[F.GROUNDTRUTH_BOXES], rtol=1e-6)
    case = goldens.load('preprocessor', 'image_to_float')
    image, _ = IdentityResizer()(case.inputs['image'])
    assert image.dtype == tf.float32
    np.testing.assert_array_equal(image, case.outputs['image'])


@parametrize(
    ('text', 'message'),
    [
        ('normalize_image {}', 'original_maxval: expected more than original_minval.*: 0 and 0'),
        ('resize_image { new_height: 3 }', 'new_width: expected 1 to 16384. Received: 0'),
        ('adjust_gamma { gain: -1 }', r'adjust_gamma\.gain.*Received: -1'),
        ('adjust_gamma { gamma: -1 }', r'adjust_gamma\.gamma.*Received: -1'),
        ('remap_labels { new_label: 1 }', 'original_labels: expected at least one id'),
        ('remap_labels { original_labels: 1 }', 'new_label: expected at least 1.*: 0'),
        (
            'remap_labels { original_labels: [1, -2] new_label: 1 }',
            'original_labels.1.: expected at least 1.*: -2',
        ),
        ('drop_label_probabilistically {}', 'label: expected at least 1. Received: 0'),
        (
            'drop_label_probabilistically { label: 1 drop_probability: 2 }',
            'drop_probability: expected 0 to 1. Received: 2',
        ),
        ('convert_class_logits_to_softmax { temperature: 0 }', 'temperature: expected above 0'),
    ],
)
def test_wrong_fields_are_reported(text, message):
    with pytest.raises(ValueError, match=message):
        build(text)


def test_softmax_needs_stored_scores():
    with pytest.raises(ValueError, match='load_multiclass_scores: true'):
        build('convert_class_logits_to_softmax {}')({F.IMAGE: tf.zeros([2, 2, 3])}, SEED)


def test_objects_are_dropped_each_by_its_own_draw():
    classes = tf.constant([1, 2] * 500, tf.int64)
    example = {F.GROUNDTRUTH_CLASSES: classes, F.GROUNDTRUTH_WEIGHTS: tf.range(1000.0)}
    step = DropLabelProbabilistically(label=2, drop_probability=0.25)
    left = step(example, SEED)
    counts = np.bincount(left[F.GROUNDTRUTH_CLASSES])
    assert counts[1] == 500
    assert 340 < counts[2] < 410
    rows = left[F.GROUNDTRUTH_WEIGHTS].numpy()
    np.testing.assert_array_equal(left[F.GROUNDTRUTH_CLASSES], 1 + rows % 2)
    other = step(example, SEED + 1)[F.GROUNDTRUTH_WEIGHTS].numpy()
    assert set(other) != set(rows)


def make(steps, *, mask_crop_size=8, num_classes=4):
    """The pipeline of one example with some steps."""
    built = preprocessor_builder.build_all(map(parse, steps))
    return ExampleTransform(
        resizer=FixedShapeResizer(height=37, width=53),
        num_classes=num_classes,
        max_number_of_boxes=4,
        mask_crop_size=mask_crop_size,
        label_steps=built.label_steps,
        augmentations=built.augmentations,
    )


def decoded(num_objects=4):
    """An image of blobs with masks and no keypoints."""
    masks, corners = blobs()
    record = examples.example(
        corners[:num_objects],
        [1, 2, 3, 4][:num_objects],
        image=examples.png(examples.noise(37, 53)),
        masks=masks[:num_objects],
    )
    return ExampleDecoder(mask_type='png')(record)


def transformed(steps, **options):
    return make(steps, **options)(decoded(), SEED)


PIXEL_STEPS = {
    'normalize_image { original_maxval: 255 target_minval: -1 }': lambda v: v * (2 / 255) - 1,
    'subtract_channel_mean { means: [1, 2, 3] }': lambda v: v - [1, 2, 3],
    'adjust_gamma { gamma: 2 }': lambda v: v**2 / 255,
    'adjust_gamma { gain: 2 }': lambda v: np.minimum(2 * v, 255),
    'rgb_to_gray {}': lambda v: v @ [[0.2989] * 3, [0.587] * 3, [0.114] * 3],
}


@parametrize('text', PIXEL_STEPS)
def test_pixel_steps_in_the_pipeline_change_the_image_alone(text):
    plain, changed = transformed(()), transformed((text,))
    np.testing.assert_allclose(
        changed[F.IMAGE], PIXEL_STEPS[text](plain[F.IMAGE].numpy()), rtol=1e-4, atol=1e-3
    )
    for name in plain.keys() - {F.IMAGE}:
        np.testing.assert_array_equal(changed[name], plain[name], err_msg=name)


@pytest.mark.parametrize('mask_crop_size', [0, 8])
def test_resizing_in_the_pipeline_keeps_boxes_and_crops(mask_crop_size):
    text = 'resize_image { new_height: 74 new_width: 106 method: NEAREST_NEIGHBOR }'
    plain = transformed([], mask_crop_size=mask_crop_size)
    # Twice as large, and back to the size of the model.
    changed = transformed((text,), mask_crop_size=mask_crop_size)
    for name in plain.keys() - {F.SOURCE_ID}:
        np.testing.assert_allclose(changed[name], plain[name], atol=1e-3, err_msg=name)
    halved = transformed(('resize_image { new_height: 18 new_width: 26 }',))
    assert np.abs(halved[F.IMAGE] - plain[F.IMAGE]).mean() > 10
    np.testing.assert_array_equal(halved[F.GROUNDTRUTH_BOXES], plain[F.GROUNDTRUTH_BOXES])


def test_label_steps_in_the_pipeline_come_before_objects_are_counted():
    steps = (
        'rgb_to_gray {}',
        'remap_labels { original_labels: [1, 3] new_label: 4 }',
        'drop_label_probabilistically { label: 2 }',
    )
    plain, changed = transformed(()), transformed(steps)
    assert changed[F.NUM_GROUNDTRUTH_BOXES] == 3
    np.testing.assert_array_equal(
        changed[F.GROUNDTRUTH_CLASSES], [[0, 0, 0, 1]] * 3 + [[0, 0, 0, 0]]
    )
    for name in (F.GROUNDTRUTH_BOXES, F.GROUNDTRUTH_INSTANCE_MASK_CROPS):
        np.testing.assert_array_equal(changed[name][:3], plain[name].numpy()[[0, 2, 3]])
    assert changed[F.NUM_INVALID_OBJECTS] == changed[F.NUM_EXCESS_OBJECTS] == 0


def test_a_new_label_makes_room_for_ids_above_num_classes():
    step = 'remap_labels { original_labels: [2, 3, 4] new_label: 1 }'
    outputs = transformed((step,), num_classes=1)
    np.testing.assert_array_equal(outputs[F.GROUNDTRUTH_CLASSES], np.ones([4, 1]))


ALL_STEPS = (
    *PIXEL_STEPS,
    'resize_image { new_height: 20 new_width: 10 }',
    'remap_labels { original_labels: 1 new_label: 2 }',
    'drop_label_probabilistically { label: 2 drop_probability: 0.5 }',
)


def test_an_image_without_objects():
    outputs = make(ALL_STEPS)(decoded(num_objects=0), SEED)
    assert outputs[F.NUM_GROUNDTRUTH_BOXES] == 0
    assert outputs[F.IMAGE].shape == (37, 53, 3)


def test_inside_tf_data_as_alone():
    transform, example = make(ALL_STEPS), decoded()
    alone = transform(example, SEED)
    data = tf.data.Dataset.from_tensors(example).map(lambda example: transform(example, SEED))
    mapped = next(iter(data))
    np.testing.assert_allclose(mapped.pop(F.IMAGE), alone[F.IMAGE], rtol=1e-5)
    for name, value in mapped.items():
        np.testing.assert_array_equal(value, alone[name], err_msg=name)
