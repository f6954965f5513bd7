"""Random damage to pixels: against the reference, with what it drew, and what is drawn here."""

import numpy as np
import pytest
import tensorflow as tf

from object_detection.core.fields import InputFields as F
from object_detection.data.augmentation.noise import PatchDraws
from tests import goldens, rows
from tests.data import examples
from tests.data.augmentation import test_fixed_steps as steps


def draws(case, step, *names):
    return [case.outputs[f'draws.{step}.{name}'] for name in names]


def load(case_name):
    case = goldens.load('preprocessor', case_name)
    image = steps.golden_example(case)[F.IMAGE]
    return case, steps.build(case.config), image, case.outputs.get(F.IMAGE, image[tf.newaxis])[0]


@goldens.rows('preprocessor', prefix='black_patches_')
def test_black_squares_are_those_of_the_reference(case_name):
    case, step, image, expected = load(case_name)
    count = step.max_black_patches
    is_drawn = np.array(draws(case, 'black_patches', *range(count))) <= step.probability
    corners = np.zeros([count, 2], np.float32)
    for i in np.flatnonzero(is_drawn):
        corners[i] = draws(case, 'add_black_patch', f'{i}y', f'{i}x')
    changed = step.change(image, tf.constant(is_drawn), tf.constant(corners))
    np.testing.assert_array_equal(changed, expected)


@goldens.rows('preprocessor', prefix='patch_gaussian_')
def test_noise_is_that_of_the_reference(case_name):
    case, step, image, expected = load(case_name)
    if case_name == 'patch_gaussian_coef1':
        np.testing.assert_array_equal(step({F.IMAGE: image}, steps.SEED)[F.IMAGE], expected)
        return
    drawn = PatchDraws(*map(tf.constant, draws(case, 'patch_gaussian', *PatchDraws._fields)))
    start, end = step.corners(tf.shape(image)[:2], drawn)
    (noise,) = draws(case, 'patch_gaussian', 'gaussian')
    noise = noise[start[0] : end[0], start[1] : end[1]]
    np.testing.assert_allclose(step.change(image, drawn, noise), expected, atol=1e-3)


@goldens.rows('preprocessor', prefix='jpeg_quality_')
def test_compression_is_that_of_the_reference(case_name):
    case, step, image, expected = load(case_name)
    if case_name == 'jpeg_quality_coef1':
        changed = step({F.IMAGE: image}, steps.SEED)[F.IMAGE]
    else:
        changed = step.change(image, *draws(case, 'jpeg_quality', 'quality'))
    # The libraries that compress may differ in the last bit.
    np.testing.assert_allclose(changed, expected, atol=2)
    assert np.abs(changed - expected).mean() < 0.1


TEXTS = (
    'random_black_patches { max_black_patches: 4 }',
    'random_patch_gaussian { max_patch_size: 20 random_coef: 0.5 }',
    'random_jpeg_quality { random_coef: 0.5 }',
)


@rows.parametrize('text', TEXTS)
def test_inside_tf_data_as_alone(text):
    step = steps.build(text)
    image = tf.constant(examples.noise(37, 53))
    data = tf.data.Dataset.range(8).map(
        lambda i: step({F.IMAGE: image}, tf.stack([tf.constant(7, tf.int64), i]))
    )
    assert data.element_spec[F.IMAGE].shape == image.shape
    changed = [mapped[F.IMAGE].numpy() for mapped in data]
    for i, mapped in enumerate(changed):
        alone = step({F.IMAGE: image}, tf.constant([7, i], tf.int64))[F.IMAGE]
        np.testing.assert_allclose(mapped, alone, atol=1e-3)
        assert 0 <= mapped.min() <= mapped.max() <= 255
    different = sum(not np.array_equal(mapped, image) for mapped in changed)
    assert different >= 2
    assert different < 8 or 'random_coef' not in text


@rows.parametrize(
    ('text', 'message'),
    [
        ('random_black_patches { max_black_patches: -1 }', 'expected 0 to 16384. Received: -1'),
        ('random_black_patches { size_to_image_ratio: 2 }', 'size_to_image_ratio: expected 0 to 1'),
        ('random_patch_gaussian { min_patch_size: 300 }', 'Received: 300 and 250'),
        ('random_patch_gaussian { random_coef: 2 }', 'random_coef: expected 0 to 1'),
        (
            'random_jpeg_quality { max_jpeg_quality: 101 }',
            'max_jpeg_quality: expected 0 to 100. Received: 101',
        ),
    ],
)
def test_wrong_fields_are_reported(text, message):
    with pytest.raises(ValueError, match=message):
        steps.build(text)
