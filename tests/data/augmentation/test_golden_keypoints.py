"""Keypoints that flips, turns and crops move, beside those of the reference."""

import numpy as np
import tensorflow as tf

from object_detection.core.fields import InputFields as F
from object_detection.data import image_item
from object_detection.data.augmentation.symmetry import (
    RandomHorizontalFlip,
    RandomRotation90,
    RandomSymmetry,
    RandomVerticalFlip,
)
from object_detection.data.augmentation.window import Window, cut_out
from object_detection.data.pipeline import extra_fields
from tests import goldens

SIDE = 20


def example_of(keypoints: np.ndarray) -> dict[str, tf.Tensor]:
    return {
        F.IMAGE: tf.zeros([SIDE, SIDE, 3]),
        F.GROUNDTRUTH_BOXES: tf.tile([[0.0, 0.0, 1.0, 1.0]], [len(keypoints), 1]),
        F.GROUNDTRUTH_KEYPOINTS: tf.constant(keypoints),
    }


def moved(step, case: goldens.Case, permutation) -> np.ndarray:
    step = step(probability=1.0, keypoint_permutation=tuple(permutation))
    example = step(example_of(case.inputs['keypoints']), tf.constant([0, 0]))
    return example[F.GROUNDTRUTH_KEYPOINTS].numpy()


def check(step: type[RandomSymmetry], case: goldens.Case) -> None:
    found = moved(step, case, case.params['permutation'])
    np.testing.assert_allclose(found, case.outputs['keypoints'], rtol=1e-6)


def test_flips_and_turns():
    case = goldens.load('keypoint_ops', 'flip_horizontal')
    check(RandomHorizontalFlip, case)
    found = moved(RandomHorizontalFlip, case, range(len(case.params['permutation'])))
    np.testing.assert_allclose(found, case.outputs['noperm'], rtol=1e-6)
    check(RandomVerticalFlip, goldens.load('keypoint_ops', 'flip_vertical'))
    check(RandomRotation90, goldens.load('keypoint_ops', 'rot90'))


def test_crops():
    case = goldens.load('keypoint_ops', 'change_coordinate_frame')
    pruned = goldens.load('keypoint_ops', 'prune_outside_window')
    for each, clip in ((case, False), (pruned, True)):
        top, left, bottom, right = np.rint(each.inputs['window'] * SIDE).astype(np.int32)
        np.testing.assert_allclose(
            np.array([top, left, bottom, right]) / SIDE, each.inputs['window'], rtol=1e-6
        )
        window = Window(top, left, bottom - top, right - left)
        found = cut_out(example_of(each.inputs['keypoints']), window, clip=clip)
        found = found[F.GROUNDTRUTH_KEYPOINTS].numpy()
        expected = each.outputs['keypoints']
        if clip:
            # The reference leaves them in the frame of the image.
            expected = (expected - [top / SIDE, left / SIDE]) / [
                window.height / SIDE,
                window.width / SIDE,
            ]
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_weights():
    case = goldens.load('keypoint_ops', 'weights_from_visibilities')
    visibilities = case.inputs['visibilities']
    example = {
        F.GROUNDTRUTH_KEYPOINTS: tf.zeros([*visibilities.shape, 2]),
        F.GROUNDTRUTH_KEYPOINT_VISIBILITIES: tf.constant(visibilities),
    }
    for output, weights in (
        ('weights', tuple(case.params['per_keypoint_weights'])),
        ('weights_default', ()),
    ):
        found = extra_fields.keypoint_weights(example, weights)[F.GROUNDTRUTH_KEYPOINT_WEIGHTS]
        np.testing.assert_array_equal(found, case.outputs[output])


def test_visibilities():
    case = goldens.load('keypoint_ops', 'set_visibilities')
    keypoints, initial = case.inputs['keypoints'], case.inputs['initial']
    for output, given in (('visibilities', initial), ('default', np.ones_like(initial))):
        example = {
            F.GROUNDTRUTH_KEYPOINTS: tf.constant(keypoints),
            F.GROUNDTRUTH_KEYPOINT_VISIBILITIES: tf.constant(given),
        }
        found = image_item.hide_unlabelled(example)
        np.testing.assert_array_equal(
            found[F.GROUNDTRUTH_KEYPOINT_VISIBILITIES], case.outputs[output]
        )
