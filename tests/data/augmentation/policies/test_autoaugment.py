"""Learned policies and drawn operations."""

import collections
import itertools

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageOps

from object_detection.builders.input_readers import channels
from object_detection.core.fields import InputFields as F
from object_detection.data.augmentation.policies.autoaugment import (
    AutoAugmentImage,
    RandAugment,
    sub_policies,
)
from object_detection.data.augmentation.policies.operations import (
    OPERATIONS,
    Choice,
    Layers,
    values_of,
)
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from tests import slow_cases
from tests.data import examples
from tests.data.augmentation import test_fixed_steps as steps
from tests.data.augmentation.policies.test_operations import FILL, example
from tests.rows import parametrize


def test_policies():
    policies = {name: sub_policies(name) for name in ('v0', 'v1', 'v2', 'v3', 'test')}
    assert {name: len(rows) for name, rows in policies.items()} == {
        'v0': 5,
        'v1': 20,
        'v2': 15,
        'v3': 15,
        'test': 1,
    }
    assert policies['v1'][:5] == policies['v0']
    assert policies['v0'][4] == [('Rotate_BBox', 0.6, 10), ('Color', 1, 6)]
    assert policies['v1'][19] == [('SolarizeAdd', 0.6, 8), ('Brightness', 0.8, 10)]
    assert policies['v2'][10] == [
        ('Rotate_BBox', 0.6, 10),
        ('BBox_Cutout', 1, 4),
        ('Cutout', 0.2, 8),
    ]
    assert policies['v3'][0] == [('Posterize', 0.8, 2), ('TranslateX_BBox', 1, 8)]
    assert policies['test'] == [[('TranslateX_BBox', 1, 4), ('Equalize', 1, 10)]]
    for rows in policies.values():
        for name, probability, magnitude in itertools.chain(*rows):
            assert name in OPERATIONS
            assert 0 <= probability <= 1
            assert 0 <= magnitude <= 10


def shifted(image, columns):
    """Moves an image right, or left where `columns` is negative."""
    result = np.full_like(image, FILL)
    if columns > 0:
        result[:, columns:] = image[:, :-columns]
    else:
        result[:, :columns] = image[:, -columns:]
    return result


@slow_cases.parametrize(1, 'dtype', ['uint8', 'float32'])
def test_a_policy_in_tf_data(dtype):
    """Moves by 100 columns either way, then equalizes."""
    image = examples.noise(20, 250)
    given = example(image.astype(dtype), [(0.1, 0.45, 0.3, 0.55)])
    step = steps.build('autoaugment_image { policy_name: "test" }')
    data = tf.data.Dataset.range(12).map(lambda i: step(given, tf.stack([i, 3])))
    expected = {
        columns: np.asarray(ImageOps.equalize(Image.fromarray(shifted(image, columns))))
        for columns in (-100, 100)
    }
    found = collections.Counter()
    for changed in data:
        left = float(changed[F.GROUNDTRUTH_BOXES][0, 1])
        columns = 100 if left > 0.45 else -100
        found[columns] += 1
        assert changed[F.IMAGE].dtype == dtype
        np.testing.assert_array_equal(changed[F.IMAGE], expected[columns])
        box = np.array([0.1, 0.45, 0.3, 0.55]) + columns / 250 * np.array([0, 1, 0, 1])
        np.testing.assert_allclose(changed[F.GROUNDTRUTH_BOXES], [box], atol=1e-6)
        np.testing.assert_allclose(
            changed[F.GROUNDTRUTH_KEYPOINTS], box.reshape(1, 2, 2), atol=1e-6
        )
        np.testing.assert_array_equal(changed[F.GROUNDTRUTH_INSTANCE_MASK_CROPS], 255)
        assert changed[F.SOURCE_ID] == b'a'
    assert len(found) == 2


def draw_many(step, count):
    draw = tf.function(step.draw, autograph=False)
    layers = [draw(tf.constant([i, 9], tf.int64)) for i in range(count)]
    return Layers(*(np.array(each) for each in zip(*layers, strict=True)))


def test_sub_policies_are_drawn_evenly_and_operations_with_their_probability():
    step = AutoAugmentImage('v0')
    layers = draw_many(step, 1000)
    # What the first operation of each of the five sub-policies gets: index, values, probability.
    names = [*step._names, None]
    drawn = collections.Counter()
    for operations, values in zip(layers.operations, layers.values, strict=True):
        pair = tuple(names[operation] for operation in operations)
        (row,) = [
            row
            for row, choices in enumerate(sub_policies('v0'))
            if all((values[i] == values_of(choice)).all() for i, choice in enumerate(choices))
        ]
        drawn[row] += 1
        drawn[(row, *pair)] += 1
        for name, choice in zip(pair, sub_policies('v0')[row], strict=True):
            assert name in (None, choice.name)
    # Standard deviations: 13 of 200, 0.035 of a probability.
    assert all(150 < drawn[row] < 250 for row in range(5))
    shares = {key: drawn[key] / drawn[key[0]] for key in drawn if isinstance(key, tuple)}
    assert shares[4, 'Rotate_BBox', 'Color'] == pytest.approx(0.6, abs=0.12)
    assert shares[4, None, 'Color'] == pytest.approx(0.4, abs=0.12)
    assert shares[0, 'TranslateX_BBox', 'Equalize'] == pytest.approx(0.48, abs=0.12)
    assert shares[0, None, None] == pytest.approx(0.08, abs=0.08)
    # Boxes draw their own numbers.
    assert shares[3, 'ShearY_BBox', 'TranslateY_Only_BBoxes'] == 1
    assert not any('Sharpness' in key for key in shares)
    assert len(np.unique(layers.seeds.reshape(-1, 2), axis=0)) == 2000


def test_rand_augment_draws_evenly():
    step = RandAugment(num_layers=3, magnitude=6)
    names = {name for name in OPERATIONS if 'Only' not in name}
    assert set(step._names) == names
    layers = draw_many(step, 700)
    counts = np.bincount(layers.operations.ravel(), minlength=16)
    # 2100 / 16 = 131, with a standard deviation of 11.
    assert (abs(counts - 131) < 50).all()
    assert (layers.operations[:, 0] == layers.operations[:, 1]).any()
    for operation, values in zip(layers.operations[0], layers.values[0], strict=True):
        choice = Choice(step._names[operation], 1.0, 6)
        np.testing.assert_array_equal(values, values_of(choice))


def test_rand_augment_applies_all_layers_of_the_chosen_operations():
    image = examples.noise(9, 11)
    step = steps.build(
        'rand_augment { num_layers: 2 magnitude: 0 operations: ["Solarize", "Solarize"] }'
    )
    assert len(step.operations) == 2
    given = example(image, [(0.1, 0.1, 0.9, 0.9)])
    # Inverted twice; once.
    np.testing.assert_array_equal(step(given, tf.constant([1, 2], tf.int64))[F.IMAGE], image)
    once = RandAugment(1, 0.0, ('Solarize',))(given, tf.constant([1, 2], tf.int64))
    np.testing.assert_array_equal(once[F.IMAGE], 255 - image)


@pytest.mark.slow
def test_graphs_stay_small():
    """Every start of a training pays for them: a change is in the graph once."""
    given = example(examples.noise(9, 11), [(0.1, 0.1, 0.9, 0.9)])
    step = tf.function(AutoAugmentImage('v1'), autograph=False)
    graph = step.get_concrete_function(given, tf.constant([1, 2], tf.int64)).graph.as_graph_def()
    warps = sum(
        node.op == 'ImageProjectiveTransformV3'
        for nodes in [graph.node, *(function.node_def for function in graph.library.function)]
        for node in nodes
    )
    # Of the image, of crops of masks, of images in boxes.
    assert warps == 3


@parametrize(
    ('text', 'message'),
    [
        (
            'autoaugment_image { policy_name: "v9" }',
            r"autoaugment_image\.policy_name: expected one of \['test', 'v0', 'v1', 'v2', 'v3'\]\. "
            r"Received: 'v9'",
        ),
        ('rand_augment { num_layers: 0 }', r'rand_augment\.num_layers: expected 1 to 100'),
        ('rand_augment { magnitude: 11 }', r'magnitude: expected 0 to 10\. Received: 11'),
        (
            'rand_augment { operations: "Colour" operations: "Color" }',
            r"rand_augment\.operations: .*'AutoContrast'.*Received: Colour\.",
        ),
    ],
)
def test_fields_are_checked(text, message):
    with pytest.raises(ValueError, match=message):
        steps.build(text)


@pytest.mark.parametrize('kind', ['autoaugment_image', 'rand_augment'])
def test_images_have_three_channels(kind):
    pipeline = TrainEvalPipelineConfig()
    pipeline.train_input_reader.num_channels = 1
    pipeline.train_input_reader.tf_record_input_reader.SetInParent()
    pipeline.train_config.data_augmentation_options.append(steps.parse(f'{kind} {{}}'))
    (problem,) = channels.check(pipeline, pipeline.train_input_reader, 'train_input_reader')
    assert f'{kind}: expected none' in problem
