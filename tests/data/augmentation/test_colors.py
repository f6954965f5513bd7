"""Random changes of colours: against the reference, with what it drew, and what is drawn here."""

import colorsys

import numpy as np
import pytest
import tensorflow as tf

from object_detection.core.fields import InputFields as F
from object_detection.data.augmentation import colors
from tests import goldens, rows, slow_cases
from tests.data import examples
from tests.data.augmentation import test_fixed_steps as steps

DRAWS = {
    colors.RandomAdjustBrightness: 'draws.adjust_brightness.',
    colors.RandomAdjustContrast: 'draws.adjust_contrast.',
    colors.RandomAdjustHue: 'draws.adjust_hue.',
    colors.RandomAdjustSaturation: 'draws.adjust_saturation.',
    colors.RandomPixelValueScale: 'draws.pixel_value_scale.',
    colors.RandomRgbToGray: 'draws.rgb_to_gray.',
}
TEXTS = (
    'random_adjust_brightness {}',
    'random_adjust_contrast {}',
    'random_adjust_hue {}',
    'random_adjust_saturation {}',
    'random_distort_color {}',
    'random_distort_color { color_ordering: 1 }',
    'random_pixel_value_scale {}',
    'random_rgb_to_gray { probability: 0.5 }',
    'photometric_distortion { change_probability: 1 }',
)


def seeds(count):
    return [tf.constant([5, i], tf.int64) for i in range(count)]


@goldens.rows(
    'preprocessor',
    prefix=(
        'adjust_brightness_',
        'adjust_contrast_',
        'adjust_hue_',
        'adjust_saturation_',
        'distort_color',
        'pixel_value_scale_',
        'rgb_to_gray_',
    ),
)
def test_matches_the_reference_with_its_draws(case_name):
    case = goldens.load('preprocessor', case_name)
    step, image = steps.build(case.config), steps.golden_example(case)[F.IMAGE]
    parts = getattr(step, 'steps', (step,))
    draws = [case.outputs[DRAWS[type(part)]] for part in parts]
    changed = step.change(image, tf.constant(draws if len(parts) > 1 else draws[0]))
    expected = case.outputs.get(F.IMAGE, image[tf.newaxis])[0]
    # The reference rounds values in 0..1, and converts them to HSV.
    np.testing.assert_allclose(changed, expected, rtol=1e-5, atol=1e-4)


def test_numbers_by_hand():
    image = tf.constant([[[200.0, 100.0, 0.0], [100.0, 100.0, 100.0]]])
    brighter = colors.RandomAdjustBrightness().change(image, tf.constant(0.4))
    np.testing.assert_allclose(brighter, [[[255, 202, 102], [202, 202, 202]]], rtol=1e-5)
    contrast = colors.RandomAdjustContrast().change(image, tf.constant(2.0))
    np.testing.assert_allclose(contrast, [[[250, 100, 0], [50, 100, 150]]], rtol=1e-5)
    hue, saturation, value = colorsys.rgb_to_hsv(*image[0, 0].numpy())
    turned = colors.RandomAdjustHue().change(image, tf.constant(0.25))
    np.testing.assert_allclose(
        turned[0], [colorsys.hsv_to_rgb(hue + 0.25, saturation, value), [100] * 3], rtol=1e-4
    )
    pale = colors.RandomAdjustSaturation().change(image, tf.constant(0.5))
    np.testing.assert_allclose(
        pale[0], [colorsys.hsv_to_rgb(hue, saturation / 2, value), [100] * 3], rtol=1e-5
    )


@rows.parametrize(
    ('text', 'least', 'greatest'),
    [
        ('random_adjust_brightness { max_delta: 0.3 }', [-0.3], [0.3]),
        ('random_adjust_contrast {}', [0.8], [1.25]),
        ('random_adjust_hue {}', [-0.02], [0.02]),
        ('random_adjust_saturation { min_delta: 0.2 }', [0.2], [1.25]),
        ('random_distort_color {}', [-0.1255, 0.5, -0.2, 0.5], [0.1255, 1.5, 0.2, 1.5]),
        ('random_pixel_value_scale {}', [[[0.9] * 3]], [[[1.1] * 3]]),
    ],
)
def test_draws_fill_their_range(text, least, greatest):
    step = steps.build(text)
    drawn = np.stack([step.draw(tf.zeros([1, 1, 3]), seed) for seed in seeds(100)])
    span = np.subtract(greatest, least)
    assert (drawn.min(axis=0) >= least).all()
    assert (drawn.max(axis=0) <= greatest).all()
    assert (np.ptp(drawn, axis=0) > 0.9 * span).all()
    np.testing.assert_allclose(
        drawn.mean(axis=0), np.add(least, greatest) / 2, atol=0.12 * span.max()
    )


def test_numbers_of_one_step_are_drawn_independently():
    draws = [
        steps.build('random_distort_color {}').draw(tf.zeros([1, 1, 3]), s) for s in seeds(100)
    ]
    assert np.abs(np.corrcoef(np.transpose(draws)) - np.eye(4)).max() < 0.4


def test_gray_as_often_as_it_says():
    image = tf.constant([[[1.0, 2.0, 9.0]]])
    step = colors.RandomRgbToGray(probability=0.3)
    changed = np.stack([step({F.IMAGE: image}, seed)[F.IMAGE][0, 0] for seed in seeds(200)])
    is_gray = np.ptp(changed, axis=1) == 0
    assert 35 < is_gray.sum() < 85
    np.testing.assert_array_equal(changed[~is_gray], [[1, 2, 9]] * (~is_gray).sum())


def distorted(image, draws):
    """The changes of PhotometricDraws, by TensorFlow's operations on values in 0..1."""
    saturation = (tf.image.adjust_saturation, draws.saturation)
    hue = (tf.image.adjust_hue, draws.hue)
    contrast = (tf.image.adjust_contrast, draws.contrast)
    colors_first = (saturation, hue, contrast)
    order = colors_first if draws.contrast_is_last else (contrast, saturation, hue)
    values = tf.cast(image, tf.float32) / 255
    for adjust, number in ((tf.add, draws.brightness), *order):
        values = tf.clip_by_value(adjust(values, number), 0.0, 1.0)
    return 255 * tf.gather(values, draws.channels, axis=-1)


def test_photometric_distortion_applies_its_draws():
    step = steps.build('photometric_distortion { channel_swap_probability: 0.5 }')
    image = examples.noise(6, 7)
    for seed in seeds(30):
        draws = step.draw(image, seed)
        changed = step({F.IMAGE: tf.constant(image)}, seed)[F.IMAGE]
        np.testing.assert_allclose(changed, distorted(image, draws), rtol=1e-5, atol=1e-3)


@pytest.mark.slow
def test_photometric_distortion_draws_each_change_by_itself():
    text = 'photometric_distortion { change_probability: 0.6 channel_swap_probability: 0.3 }'
    step = steps.build(text)
    draws = [step.draw(tf.zeros([1, 1, 3]), seed) for seed in seeds(300)]
    numbers = np.array([draw[:4] for draw in draws])
    is_changed = numbers != [0, 1, 1, 0]
    assert (np.abs(is_changed.mean(axis=0) - 0.6) < 0.1).all()
    np.testing.assert_allclose(np.corrcoef(np.transpose(is_changed)), np.eye(4), atol=0.2)
    bounds = [[-0.125, 0.125], [0.5, 1.5], [0.5, 1.5], [-0.05, 0.05]]
    for column, changed, (least, greatest) in zip(numbers.T, is_changed.T, bounds, strict=True):
        drawn = column[changed]
        assert least <= drawn.min() < least + 0.1 * (greatest - least)
        assert greatest >= drawn.max() > greatest - 0.1 * (greatest - least)
    assert abs(np.mean([draw.contrast_is_last for draw in draws]) - 0.5) < 0.1
    channels = np.array([draw.channels for draw in draws])
    np.testing.assert_array_equal(np.sort(channels), [[0, 1, 2]] * 300)
    assert len(set(map(tuple, channels))) == 6
    # One of six random orders is the order of the image.
    assert abs((channels != [0, 1, 2]).any(axis=1).mean() - 0.25) < 0.1


def test_without_probabilities_nothing_changes():
    step = steps.build('photometric_distortion { change_probability: 0 }')
    image = examples.noise(6, 7)
    for seed in seeds(5):
        changed = step({F.IMAGE: tf.constant(image)}, seed)[F.IMAGE]
        np.testing.assert_allclose(changed, image, atol=1e-4)


@slow_cases.parametrize(3, 'text', TEXTS)
def test_steps_in_the_pipeline_change_the_image_alone(text):
    plain, changed = steps.transformed(()), steps.transformed((text,))
    assert np.abs(changed[F.IMAGE] - plain[F.IMAGE]).max() > 1
    assert changed[F.IMAGE].numpy().min() >= 0
    assert changed[F.IMAGE].numpy().max() <= 255
    for name in plain.keys() - {F.IMAGE}:
        np.testing.assert_array_equal(changed[name], plain[name], err_msg=name)


@rows.parametrize(
    ('text', 'message'),
    [
        ('random_adjust_brightness { max_delta: -1 }', 'brightness.max_delta: expected at least 0'),
        ('random_adjust_hue { max_delta: 2 }', 'hue.max_delta: expected 0 to 1. Received: 2'),
        (
            'random_adjust_contrast { min_delta: 2 }',
            'contrast: expected 0 <= min_delta <= max_delta. Received: 2 and 1.25',
        ),
        ('random_adjust_saturation { min_delta: -1 }', 'saturation.min_delta: expected at least 0'),
        ('random_distort_color { color_ordering: 2 }', 'color_ordering: expected 0 to 1.*: 2'),
        ('random_pixel_value_scale { maxval: 0.5 }', 'minval <= maxval. Received: 0.9 and 0.5'),
        (
            'photometric_distortion { max_brightness_delta: 2 }',
            r'photometric_distortion\.max_brightness_delta: expected 0 to 1. Received: 2',
        ),
        ('photometric_distortion { max_hue_delta: -1 }', 'max_hue_delta: expected 0 to 1'),
        ('photometric_distortion { change_probability: 2 }', 'change_probability: expected 0 to 1'),
        ('photometric_distortion { channel_swap_probability: 2 }', 'channel_swap_probability: ex'),
        (
            'photometric_distortion { min_contrast: 2 }',
            'photometric_distortion: expected 0 <= min_contrast <= max_contrast. Received: 2 and',
        ),
        ('photometric_distortion { min_saturation: -1 }', 'min_saturation: expected at least 0'),
        ('random_rgb_to_gray { probability: 2 }', 'probability: expected 0 to 1. Received: 2'),
    ],
)
def test_wrong_fields_are_reported(text, message):
    with pytest.raises(ValueError, match=message):
        steps.build(text)
