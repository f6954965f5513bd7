"""Flips whose permutation is in the names of keypoints."""

import numpy as np
import tensorflow as tf
from google.protobuf import text_format
from PIL import Image

from object_detection.builders import preprocessor_builder, training_rules
from object_detection.core.fields import InputFields as F
from object_detection.data.formats.yolo import YoloSource
from object_detection.dataset_tools.converters import conversion
from object_detection.protos.input_reader_pb2 import InputReader
from object_detection.protos.preprocessor_pb2 import PreprocessingStep
from object_detection.protos.train_pb2 import TrainConfig

STEPS = """
data_augmentation_options { random_horizontal_flip { probability: 1 } }
data_augmentation_options { one_of { steps { random_horizontal_flip {} } } }
data_augmentation_options { random_horizontal_flip { keypoint_flip_permutation: [1, 0, 2] } }
data_augmentation_options { random_vertical_flip {} }
"""


def test_flip_idx_of_a_converted_data_set_is_the_permutation_of_its_trainings(tmp_path):
    (tmp_path / 'train').mkdir()
    Image.new('RGB', (40, 20)).save(tmp_path / 'train/a.png')
    (tmp_path / 'train/a.txt').write_text('0 .5 .5 .5 .6 .4 .3 .6 .3 .5 .7\n')
    (tmp_path / 'data.yaml').write_text(
        'names: [cat]\ntrain: train\nkpt_shape: [3, 2]\nflip_idx: [1, 0, 2]\n'
    )
    source = YoloSource(f'{tmp_path}/data.yaml', split='train')
    assert not conversion.convert(source, f'{tmp_path}/cats', 1)['notes']
    reader = InputReader(num_keypoints=3, label_map_path=f'{tmp_path}/cats_label_map.pbtxt')
    step = text_format.Parse('random_horizontal_flip {}', PreprocessingStep())
    [completed] = training_rules.completed([step], reader)
    assert list(completed.random_horizontal_flip.keypoint_flip_permutation) == [1, 0, 2]


def test_horizontal_flips_without_a_permutation_have_that_of_the_names(tmp_path):
    path = tmp_path / 'label_map.pbtxt'
    names = enumerate(('left_eye', 'nose', 'right_eye'))
    points = ' '.join(f"keypoints {{ id: {place} label: '{name}' }}" for place, name in names)
    path.write_text(f"item {{ id: 1 name: 'person' {points} }}")
    config = text_format.Parse(STEPS, TrainConfig())
    given = list(config.data_augmentation_options)
    reader = InputReader(num_keypoints=3, label_map_path=str(path))
    first, nested, own, vertical = training_rules.completed(given, reader)
    assert list(first.random_horizontal_flip.keypoint_flip_permutation) == [2, 1, 0]
    inner = nested.one_of.steps[0].random_horizontal_flip
    assert list(inner.keypoint_flip_permutation) == [2, 1, 0]
    assert (own, vertical) == (given[2], given[3])
    # The config itself stays as it is, and so do steps without keypoints.
    assert config == text_format.Parse(STEPS, TrainConfig())
    assert list(training_rules.completed(given, InputReader())) == given
    example = {
        F.IMAGE: tf.zeros([2, 2, 3]),
        F.GROUNDTRUTH_BOXES: tf.constant([[0.0, 0.0, 1.0, 1.0]]),
        F.GROUNDTRUTH_KEYPOINTS: tf.constant([[[0.1, 0.2], [0.3, 0.4], [0.5, float('nan')]]]),
        F.GROUNDTRUTH_KEYPOINT_VISIBILITIES: tf.constant([[True, True, False]]),
    }
    flipped = preprocessor_builder.build(first)(example, tf.constant([1, 2]))
    np.testing.assert_allclose(
        flipped[F.GROUNDTRUTH_KEYPOINTS], [[[0.5, np.nan], [0.3, 0.6], [0.1, 0.8]]]
    )
    np.testing.assert_array_equal(
        flipped[F.GROUNDTRUTH_KEYPOINT_VISIBILITIES], [[False, True, True]]
    )
