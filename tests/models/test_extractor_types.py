"""Feature extractors of any family, by a toy."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders import hyperparams_builder
from object_detection.export.saved_model import ServedDetector
from object_detection.models import feature_extractor
from object_detection.models.feature_extractor import ExtractorOptions, FeatureExtractor
from object_detection.models.resnet_options import ResnetOptions
from object_detection.protos.hyperparams_pb2 import Hyperparams
from object_detection.resizers.fixed_sizes import FixedShapeResizer
from tests import tolerances
from tests.contracts_feature_extractor import check_stacks
from tests.toy_extractor import TOYS, HourglassOptions, StackedDetector

HYPERPARAMS = 'activation: RELU_6 batch_norm { scale: true } regularizer { l2_regularizer {} }'


def build(type_name: str, **options) -> FeatureExtractor:
    hyperparams = hyperparams_builder.build(text_format.Parse(HYPERPARAMS, Hyperparams()))
    options = {'hyperparams': hyperparams, 'override_backbone': True} | options
    return feature_extractor.build(
        TOYS, type_name, ExtractorOptions(batch_norm_trainable=True, **options)
    )


@pytest.mark.parametrize('num_stacks', [1, 2])
def test_contract(num_stacks):
    extractor = build(f'toy_hourglass_{num_stacks}', backbone=HourglassOptions(depth=5))
    check_stacks(extractor)
    assert extractor.num_stacks == num_stacks
    assert list(extractor.parts()) == ['backbone']
    assert [tuple(level.shape) for level in extractor.empty_features(48)] == [
        (1, 12, 12, 5),
        (1, 4, 4, 5),
    ]


@pytest.mark.parametrize(
    ('type_name', 'options', 'message'),
    [
        ('toy', {}, "type: expected one of toy_hourglass_1, toy_hourglass_2. Received: 'toy'"),
        ('toy_hourglass_1', {'hyperparams': None}, 'needs `conv_hyperparams`'),
        ('toy_hourglass_1', {'pad_to_multiple': 0}, 'pad_to_multiple: expected at least 1'),
        (
            'toy_hourglass_1',
            {'backbone': ResnetOptions(frozen_stages=1)},
            'frozen_stages: only feature extractors on a ResNet have it. Received: 1.',
        ),
    ],
)
def test_errors(type_name, options, message):
    with pytest.raises(ValueError, match=message):
        build(type_name, **options)


def test_networks_return_a_map_for_each_stride_of_each_stack():
    image = keras.Input((None, None, 3))
    with pytest.raises(ValueError, match=r'2 stacks of 1 maps, of the strides \[4\].*1 outputs'):
        FeatureExtractor(backbone=keras.Model(image, image), strides=[4], num_stacks=2)


@pytest.fixture
def detector() -> StackedDetector:
    """With weights as after a training."""
    keras.utils.set_random_seed(0)
    detector = StackedDetector(
        build('toy_hourglass_2'), num_classes=3, resizer=FixedShapeResizer(height=24, width=24)
    )
    detector.build_variables()
    rng = np.random.default_rng(0)
    for name, variable in detector.named_variables().items():
        if '_bn/' in name or '/bn_' in name:
            variable.assign(rng.uniform(0.5, 1.5, variable.shape))
    return detector


def test_an_export_folds_all_norms(detector):
    """Those behind depthwise convolutions too, and a tower's of each level."""
    images = np.random.default_rng(1).uniform(0, 255, (2, 24, 24, 3)).astype(np.float32)
    served = ServedDetector(detector, 'float_image_tensor', 'float32')
    found = served.serve(tf.constant(images))
    graph = served.serve.get_concrete_function().graph
    assert 'FusedBatchNormV3' not in {each.type for each in graph.get_operations()}
    names = [variable.name.rpartition('/')[2] for variable in served._variables]
    assert not [name for name in names if 'moving' in name or 'gamma' in name]
    offsets = [name for name in names if name.startswith('bn_')]
    assert offsets == ['bn_0_offset:0', 'bn_1_offset:0']
    # The tower's pointwise kernel, once for each level.
    assert names.count('conv_kernel:0') == 2

    def unfolded() -> dict[str, np.ndarray]:
        # Eagerly, all norms are computed as such.
        batch, shapes = detector.preprocess(tf.constant(images))
        outputs = detector.postprocess(detector.predict(batch, shapes), shapes)
        return {key: outputs[key].numpy() for key in ('detection_boxes', 'detection_scores')}

    expected = unfolded()
    repeated = list(tolerances.runs_off_by_last_digits(detector.named_variables(), unfolded))
    for key, allowed in tolerances.of_rounding(expected, repeated).items():
        np.testing.assert_allclose(found[key], expected[key], rtol=0, atol=allowed)
