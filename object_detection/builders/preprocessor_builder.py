"""Builds the data augmentation that PreprocessingStep protos describe."""

from collections.abc import Callable

import tensorflow as tf

from object_detection.builders.oneof import build_oneof
from object_detection.data.augmentation.flip import RandomHorizontalFlip, RandomVerticalFlip
from object_detection.data.augmentation.rotation import RandomRotation90
from object_detection.data.objects import Example
from object_detection.protos import preprocessor_pb2

Augmentation = Callable[[Example, tf.Tensor], Example]


def _random_horizontal_flip(config: preprocessor_pb2.RandomHorizontalFlip) -> Augmentation:
    return RandomHorizontalFlip(
        probability=config.probability,
        keypoint_permutation=tuple(config.keypoint_flip_permutation),
    )


def _random_vertical_flip(config: preprocessor_pb2.RandomVerticalFlip) -> Augmentation:
    return RandomVerticalFlip(
        probability=config.probability,
        keypoint_permutation=tuple(config.keypoint_flip_permutation),
    )


def _random_rotation90(config: preprocessor_pb2.RandomRotation90) -> Augmentation:
    return RandomRotation90(
        probability=config.probability,
        keypoint_permutation=tuple(config.keypoint_rot_permutation),
    )


BUILDERS = {
    'random_horizontal_flip': _random_horizontal_flip,
    'random_vertical_flip': _random_vertical_flip,
    'random_rotation90': _random_rotation90,
}


def build(config: preprocessor_pb2.PreprocessingStep) -> Augmentation:
    """Builds one step, a function (example, seed int [2]) -> example.

    Raises:
      ValueError: if no step is set or the one that is set is not supported; the text names it.
    """
    return build_oneof(config, 'preprocessing_step', BUILDERS)
