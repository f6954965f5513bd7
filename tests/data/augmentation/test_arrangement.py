"""Moved box corners and repeated images: against the reference, and alone."""

import numpy as np
import pytest
import tensorflow as tf

from object_detection.core.fields import InputFields as F
from object_detection.data import instance_masks
from object_detection.data.augmentation.arrangement import RandomJitterBoxes, repeat
from tests import goldens
from tests.data.augmentation import test_fixed_steps as steps
from tests.data.test_instance_masks import blobs


def shares(boxes, before):
    """By which share of its height or width each side of a box has moved."""
    return (boxes - before) / np.tile(before[:, 2:] - before[:, :2], [1, 2])


@goldens.rows('preprocessor', prefix='jitter_boxes_')
def test_boxes_move_as_in_the_reference(case_name):
    """Its draws are not recorded: they follow from boxes that the image does not clip."""
    case = goldens.load('preprocessor', case_name)
    step, example = steps.build(case.config), steps.golden_example(case)
    before = example[F.GROUNDTRUTH_BOXES].numpy()
    theirs = case.outputs[F.GROUNDTRUTH_BOXES]
    if not step.ratio:
        same = step(example, steps.SEED)[F.GROUNDTRUTH_BOXES]
        np.testing.assert_allclose(same, theirs, atol=1e-6)
        return
    numbers = shares(theirs, before) / (0.5 * step.ratio)
    ours = step.change(example, tf.constant(shares(theirs, before), tf.float32))
    np.testing.assert_allclose(ours[F.GROUNDTRUTH_BOXES], theirs, atol=1e-5)
    # The numbers are as large as in the reference, whose signs and symmetry the mode gives.
    assert np.abs(numbers).max() <= 1 + 1e-5
    assert np.abs(numbers).max() > 0.8
    drawn = step(example, steps.SEED)[F.GROUNDTRUTH_BOXES].numpy()
    for moved in (shares(drawn, before)[[0, 1, 3]], numbers[[0, 1, 3]] * 0.5 * step.ratio):
        outwards = moved * [-1, -1, 1, 1]
        assert np.abs(moved).max() <= 0.1 + 1e-5
        if step.jitter_mode.startswith('EXPAND'):
            assert (outwards >= 0).all()
        elif step.jitter_mode.startswith('SHRINK'):
            assert (outwards <= 0).all()
        else:
            assert len(np.unique(np.sign(outwards))) == 2
        if 'SYMMETRIC' in step.jitter_mode:
            np.testing.assert_allclose(outwards[:, :2], outwards[:, 2:], atol=1e-5)
            is_same = np.allclose(outwards[:, 0], outwards[:, 1], atol=1e-5)
            assert is_same == step.jitter_mode.endswith('XY')


def test_crops_of_masks_show_what_they_showed():
    masks, boxes = blobs()
    example = {
        F.IMAGE: tf.zeros([37, 53, 3]),
        F.GROUNDTRUTH_BOXES: tf.constant(boxes),
        F.GROUNDTRUTH_INSTANCE_MASK_CROPS: instance_masks.crop(masks, boxes, 64),
    }
    numbers = tf.random.stateless_uniform([len(boxes), 4], [1, 2], -0.3, 0.3)
    moved = RandomJitterBoxes(ratio=0.6).change(example, numbers)
    of_moved = instance_masks.crop(masks, moved[F.GROUNDTRUTH_BOXES], 64).numpy()
    crops = moved[F.GROUNDTRUTH_INSTANCE_MASK_CROPS].numpy()
    # A crop does not know what the mask shows beyond its box, which is nothing here.
    assert ((crops > 127) == (of_moved > 127)).mean() > 0.93
    same = RandomJitterBoxes(ratio=0.0)(example, steps.SEED)
    for name, value in same.items():
        np.testing.assert_array_equal(value, example[name], err_msg=name)


@goldens.rows('preprocessor', prefix='self_concat_')
def test_repeated_images_are_those_of_the_reference(case_name):
    """The reference leaves masks and keypoints of one image; here they are repeated."""
    case = goldens.load('preprocessor', case_name)
    example = steps.golden_example(case)
    is_repeated = [case.outputs[f'draws.self_concat_image..{i}'] for i in range(2)]
    copies = repeat(example, tf.constant(is_repeated))
    np.testing.assert_array_equal(copies[F.IMAGE], case.outputs[F.IMAGE][0])
    for name in (
        F.GROUNDTRUTH_BOXES,
        F.GROUNDTRUTH_CLASSES,
        F.GROUNDTRUTH_WEIGHTS,
        F.MULTICLASS_SCORES,
    ):
        np.testing.assert_allclose(copies[name], case.outputs[name], rtol=1e-6, err_msg=name)
    boxes = case.outputs[F.GROUNDTRUTH_BOXES]
    masks = copies[F.GROUNDTRUTH_INSTANCE_MASKS].numpy()
    keypoints = copies[F.GROUNDTRUTH_KEYPOINTS].numpy()
    before = example[F.GROUNDTRUTH_KEYPOINTS].numpy()
    height, width = masks.shape[1:]
    for i, box in enumerate(boxes):
        # The box of the whole image is that of its copy.
        copy = boxes[i - i % 5 + 2]
        top, left = round(copy[0] * height), round(copy[1] * width)
        own = masks[i, top : top + 30, left : left + 44]
        np.testing.assert_array_equal(own, example[F.GROUNDTRUTH_INSTANCE_MASKS][i % 5])
        assert own.sum() == masks[i].sum()
        moved = copy[:2] + before[i % 5] * (copy[2:] - copy[:2])
        np.testing.assert_allclose(keypoints[i], moved, rtol=1e-5, err_msg=str(box))


def test_repeating_inside_tf_data():
    step = steps.build(
        'random_self_concat_image {'
        ' concat_vertical_probability: 0.5 concat_horizontal_probability: 0.5 }'
    )
    masks, boxes = blobs()
    example = {
        F.IMAGE: tf.zeros([37, 53, 3], tf.uint8),
        F.GROUNDTRUTH_BOXES: tf.constant(boxes),
        F.GROUNDTRUTH_INSTANCE_MASKS: tf.constant(masks),
    }
    data = tf.data.Dataset.range(12).map(
        lambda i: step(example, tf.stack([tf.constant(7, tf.int64), i]))
    )
    sizes = set()
    for mapped in data:
        height, width, _ = mapped[F.IMAGE].shape
        sizes.add((height // 37, width // 53))
        count = height * width // (37 * 53) * len(boxes)
        assert mapped[F.GROUNDTRUTH_BOXES].shape == (count, 4)
        assert mapped[F.GROUNDTRUTH_INSTANCE_MASKS].shape == (count, height, width)
    assert len(sizes) >= 3


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        ('random_jitter_boxes { ratio: 2 }', 'ratio: expected 0 to 1. Received: 2'),
        (
            'random_self_concat_image { concat_vertical_probability: -1 }',
            'concat_vertical_probability: expected 0 to 1',
        ),
    ],
)
def test_wrong_fields_are_reported(text, message):
    with pytest.raises(ValueError, match=message):
        steps.build(text)
