"""Random scales and methods: against the reference, with what it drew, and alone."""

import numpy as np
import pytest
import tensorflow as tf

from object_detection.core.fields import InputFields as F
from tests import goldens, rows
from tests.data import examples
from tests.data.augmentation import test_fixed_steps as steps

DRAWS = {
    'image_scale': 'draws.image_scale.',
    'downscale': 'draws.downscale_to_target_pixels.target_pixels',
    'resize_method': 'draws.selector.resize_method',
}


@goldens.rows('preprocessor', prefix=tuple(DRAWS))
def test_sizes_are_those_of_the_reference(case_name):
    case = goldens.load('preprocessor', case_name)
    step, example = steps.build(case.config), steps.golden_example(case)
    draw = tf.constant(case.outputs[DRAWS[case_name.rpartition('_')[0]]])
    if case_name == 'downscale_coef1':
        changed = step(example, steps.SEED)
    else:
        changed = step.change(example, draw)
    expected = case.outputs.get(F.IMAGE, example[F.IMAGE][tf.newaxis])[0]
    np.testing.assert_allclose(changed[F.IMAGE], expected, rtol=1e-4, atol=1e-3)
    masks = changed[F.GROUNDTRUTH_INSTANCE_MASKS]
    # With the scale of the image, the reference resizes masks along the wrong axes; with a method,
    # it does not resize them.
    assert masks.shape == (5, *expected.shape[:2])
    if case_name.startswith('downscale'):
        theirs = case.outputs.get(F.GROUNDTRUTH_INSTANCE_MASKS)
        np.testing.assert_array_equal(
            masks, example[F.GROUNDTRUTH_INSTANCE_MASKS] if theirs is None else theirs
        )
    np.testing.assert_array_equal(changed[F.GROUNDTRUTH_BOXES], example[F.GROUNDTRUTH_BOXES])


TEXTS = (
    'random_image_scale {}',
    'random_downscale_to_target_pixels { min_target_pixels: 500 max_target_pixels: 3000 }',
    'random_resize_method { target_height: 20 target_width: 30 }',
)


@pytest.mark.parametrize('dtype', [tf.uint8, tf.float32])
def test_no_method_leaves_the_range_of_values(dtype):
    """Beside an edge, bicubic interpolation does."""
    image = tf.cast(tf.repeat([[[200], [50]]], 4, axis=1), dtype)  # [1, 8, 1]
    example = {F.IMAGE: image}
    config = 'target_height: 3 target_width: 30'
    by_method = steps.build(f'random_resize_method {{ {config} }}')
    config = config.replace('target', 'new')
    changed = [by_method.change(example, tf.constant(i)) for i in range(4)]
    changed.append(steps.build(f'resize_image {{ {config} method: BICUBIC }}')(example, steps.SEED))
    for each in changed:
        assert each[F.IMAGE].shape == (3, 30, 1)
        assert [np.min(each[F.IMAGE]), np.max(each[F.IMAGE])] == [50, 200]


@rows.parametrize('text', TEXTS)
def test_inside_tf_data_as_alone(text):
    step = steps.build(text)
    example = {
        F.IMAGE: tf.constant(examples.noise(37, 53)),
        F.GROUNDTRUTH_INSTANCE_MASKS: tf.ones([2, 37, 53], tf.uint8),
    }
    data = tf.data.Dataset.range(14).map(
        lambda i: step(example, tf.stack([tf.constant(7, tf.int64), i]))
    )
    images = []
    for i, mapped in enumerate(data):
        alone = step(example, tf.constant([7, i], tf.int64))
        np.testing.assert_allclose(mapped[F.IMAGE], alone[F.IMAGE], atol=1e-3)
        images.append(mapped[F.IMAGE].numpy())
        assert mapped[F.GROUNDTRUTH_INSTANCE_MASKS].shape == (2, *images[-1].shape[:2])
        assert mapped[F.GROUNDTRUTH_INSTANCE_MASKS].numpy().all()
    if 'resize_method' in text:
        assert data.element_spec[F.IMAGE].shape == (20, 30, 3)
        assert len({image.tobytes() for image in images}) in (3, 4)
    else:
        assert len({image.shape for image in images}) > 3
    if 'downscale' in text:
        # 500 to 3000 pixels, and never more than the image has.
        assert max(image[..., 0].size for image in images) <= 37 * 53
        assert min(image[..., 0].size for image in images) > 400


@rows.parametrize(
    ('text', 'message'),
    [
        ('random_image_scale { min_scale_ratio: 3 }', 'max_scale_ratio <= 32. Received: 3 and 2'),
        ('random_resize_method {}', 'target_height: expected 1 to 16384. Received: 0'),
        (
            'random_downscale_to_target_pixels { min_target_pixels: 500001 }',
            'Received: 500001 and 500000',
        ),
    ],
)
def test_wrong_fields_are_reported(text, message):
    with pytest.raises(ValueError, match=message):
        steps.build(text)
