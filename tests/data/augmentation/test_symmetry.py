import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders import preprocessor_builder
from object_detection.core.fields import InputFields as F
from object_detection.data import instance_masks
from object_detection.data.augmentation.symmetry import (
    RandomHorizontalFlip,
    RandomRotation90,
    RandomVerticalFlip,
)
from object_detection.protos import preprocessor_pb2
from tests import goldens
from tests.data import examples
from tests.data.test_instance_masks import blobs

SEED = tf.constant([3, 4], tf.int64)

# Class, turns until everything is as it was, what it does to the image.
SYMMETRIES = pytest.mark.parametrize(
    ('symmetry', 'order', 'expected_image'),
    [
        (RandomHorizontalFlip, 2, lambda image: image[:, ::-1]),
        (RandomVerticalFlip, 2, lambda image: image[::-1]),
        (RandomRotation90, 4, lambda image: np.rot90(image)),
    ],
)


def example():
    masks, boxes = blobs()
    return {
        F.IMAGE: tf.constant(examples.noise(37, 53)),
        F.GROUNDTRUTH_BOXES: tf.constant(boxes),
        F.GROUNDTRUTH_CLASSES: tf.constant([1, 2, 3, 4]),
        F.GROUNDTRUTH_INSTANCE_MASKS: tf.constant(masks),
        F.GROUNDTRUTH_INSTANCE_MASK_CROPS: instance_masks.crop(masks, boxes, 28),
    }


@SYMMETRIES
def test_flips_of_crops_are_crops_of_flips(symmetry, order, expected_image):
    flipped = symmetry(probability=1.0)(example(), SEED)
    np.testing.assert_array_equal(flipped[F.IMAGE], expected_image(example()[F.IMAGE].numpy()))
    crops_of_flipped = instance_masks.crop(
        flipped[F.GROUNDTRUTH_INSTANCE_MASKS], flipped[F.GROUNDTRUTH_BOXES], 28
    )
    # One step of 255: the boxes are rounded differently.
    np.testing.assert_allclose(
        tf.cast(flipped[F.GROUNDTRUTH_INSTANCE_MASK_CROPS], tf.int32),
        tf.cast(crops_of_flipped, tf.int32),
        atol=1,
    )


@SYMMETRIES
def test_repeated_is_nothing(symmetry, order, expected_image):
    flip = symmetry(probability=1.0)
    flipped = example()
    for _ in range(order):
        flipped = flip(flipped, SEED)
    for name, value in flipped.items():
        np.testing.assert_allclose(value, example()[name], atol=1e-6)


def test_probability_and_seeds():
    seeds = [tf.constant([0, i], tf.int64) for i in range(200)]
    boxes = tf.constant([[0.0, 0.0, 1.0, 0.25]])

    def flips(probability):
        flip = RandomHorizontalFlip(probability=probability)
        flipped = [flip({F.GROUNDTRUTH_BOXES: boxes}, seed)[F.GROUNDTRUTH_BOXES] for seed in seeds]
        return np.stack(flipped)[:, 0, 1] > 0

    assert not flips(0.0).any()
    assert flips(1.0).all()
    assert 70 < flips(0.5).sum() < 130
    np.testing.assert_array_equal(flips(0.5), flips(0.5))


@pytest.mark.parametrize('symmetry', [RandomHorizontalFlip, RandomRotation90])
def test_inside_tf_data_as_alone(symmetry):
    flip = symmetry()
    data = tf.data.Dataset.range(8).map(lambda i: flip(example(), tf.stack([tf.int64.min + 5, i])))
    for i, flipped in enumerate(data):
        expected = flip(example(), tf.stack([tf.int64.min + 5, i]))
        for name, value in flipped.items():
            np.testing.assert_array_equal(value, expected[name])


@goldens.rows('preprocessor', prefix=('hflip', 'vflip', 'rot90'))
def test_matches_the_reference(case_name):
    case = goldens.load('preprocessor', case_name)
    inputs = {**goldens.load('preprocessor', 'common_inputs').inputs, **case.inputs}
    for name in case.params.get('absent_inputs', ()):
        del inputs[name]
    inputs['image'] = inputs['image'][0]
    step = text_format.Parse(case.config, preprocessor_pb2.PreprocessingStep())
    if case_name == 'hflip_default':
        # What the reference drew; it flips below the probability.
        draw = case.outputs['draws.horizontal_flip.']
        step.random_horizontal_flip.probability = float(draw < 0.5)
    flip = preprocessor_builder.build(step)
    if case_name in ('hflip_kp_noperm', 'vflip_kp_noperm'):
        assert case.raises == 'ValueError'
        with pytest.raises(ValueError, match='expected one entry for each of the 4 keypoints'):
            flip(inputs, SEED)
        return
    flipped = flip({name: tf.constant(value) for name, value in inputs.items()}, SEED)
    if case_name == 'hflip_p0':
        # The reference cannot build probability 0; here it never flips.
        assert case.raises == 'ValueError'
        np.testing.assert_array_equal(flipped['image'], inputs['image'])
        return
    for name in case.params['changed']:
        expected = case.outputs[name][0] if name == 'image' else case.outputs[name]
        np.testing.assert_allclose(flipped[name], expected, rtol=1e-5, err_msg=name)


def test_a_permutation_is_checked():
    with pytest.raises(ValueError, match=r'keypoint_rot_permutation.*Received: \(1, 2\)'):
        RandomRotation90(keypoint_permutation=(1, 2))


def test_visibilities_follow_the_permutation():
    visibilities = tf.constant([[True, False]])
    keypoints = {
        F.GROUNDTRUTH_KEYPOINTS: tf.constant([[[0.1, 0.2], [0.3, 0.4]]]),
        F.GROUNDTRUTH_KEYPOINT_VISIBILITIES: visibilities,
    }
    for symmetry in (RandomHorizontalFlip, RandomVerticalFlip, RandomRotation90):
        flip = symmetry(probability=1.0, keypoint_permutation=(1, 0))
        flipped = flip(keypoints, SEED)
        np.testing.assert_array_equal(flipped[F.GROUNDTRUTH_KEYPOINT_VISIBILITIES], [[False, True]])
