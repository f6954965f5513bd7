"""Feature extractors of any family, by a toy."""

import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders import hyperparams_builder
from object_detection.errors import UserError
from object_detection.export.saved_model import ServedDetector
from object_detection.meta_architectures.center_net import extractors as center_net
from object_detection.meta_architectures.faster_rcnn import extractors as faster_rcnn
from object_detection.meta_architectures.ssd import extractors as ssd
from object_detection.models.backbones.table import BACKBONES
from object_detection.models.extractors import Extractor
from object_detection.models.feature_extractor import (
    ExtractorOptions,
    FeatureExtractor,
    find_parts,
)
from object_detection.models.necks.table import NECKS
from object_detection.protos.hyperparams_pb2 import Hyperparams
from object_detection.resizers.fixed_sizes import FixedShapeResizer
from tests import rows, tolerances
from tests.contracts_feature_extractor import check_stacks
from tests.plugin.toy_parts.backbones import PLAIN
from tests.toy_extractor import StackedDetector, hourglass

TOY = Extractor('hourglass_10', None)
HYPERPARAMS = 'activation: RELU_6 batch_norm { scale: true } regularizer { l2_regularizer {} }'


def build(num_stacks: int, **arguments) -> FeatureExtractor:
    hyperparams = hyperparams_builder.build(text_format.Parse(HYPERPARAMS, Hyperparams()))
    options = ExtractorOptions(True, hyperparams, override_backbone=True)
    return hourglass(num_stacks, options, **arguments)


@pytest.mark.parametrize('num_stacks', [1, 2])
def test_contract(num_stacks):
    extractor = build(num_stacks, depth=5)
    check_stacks(extractor)
    assert extractor.num_stacks == num_stacks
    assert list(extractor.parts()) == ['backbone']
    assert [tuple(level.shape) for level in extractor.empty_features(48)] == [
        (1, 12, 12, 5),
        (1, 4, 4, 5),
    ]


@rows.parametrize(
    ('extractor', 'options', 'message'),
    [
        (TOY, {'override_backbone': True}, 'expected `conv_hyperparams`'),
        (TOY, {'pad_to_multiple': 0}, 'pad_to_multiple: expected at least 1'),
        (
            TOY,
            {'neck': 'fpn'},
            "neck: expected none, as the type toy has no neck. Received: 'fpn'.",
        ),
        (
            Extractor('resnet_v1_50', 'fpn'),
            {'neck': 'bifpn'},
            "neck: Received: 'bifpn'; did you mean 'fpn'? Expected one of fpn.",
        ),
        (
            TOY,
            {'backbone': 'resnet_v1_50'},
            'backbone: expected none, as the type toy has the backbone hourglass_10. '
            "Received: 'resnet_v1_50'.",
        ),
        (
            Extractor(None, 'fpn'),
            {},
            'backbone: not set; the type toy expects e.g. keras:ConvNeXtTiny or resnet_v1_50.',
        ),
        (
            Extractor(None, 'fpn'),
            {'backbone': 'resnet_v1_51'},
            "backbone: Received: 'resnet_v1_51'; did you mean 'resnet_v1_50",
        ),
    ],
)
def test_errors_of_every_family(extractor, options, message):
    with pytest.raises(UserError, match=re.escape(message)):
        find_parts('toy', {'toy': extractor}, ExtractorOptions(True, **options))


def test_every_row_of_the_tables_can_be_loaded():
    for name in BACKBONES.names():
        assert BACKBONES[name].levels, name
    for name in NECKS.names():
        assert callable(NECKS[name].build), name


def test_types_name_rows_of_the_tables():
    for family in (ssd, faster_rcnn, center_net):
        for type_name, row in family.EXTRACTORS.items():
            assert row.backbone is None or row.backbone in BACKBONES.names(), type_name
            assert row.neck is None or row.neck in NECKS.names(), type_name


def test_the_example_of_the_page_on_backbones():
    options = ExtractorOptions(batch_norm_trainable=True).for_backbone(PLAIN)
    maps = PLAIN.trunk(range(3, 5), options)(tf.zeros([1, 32, 48, 3]))
    assert [tuple(each.shape) for each in maps] == [(1, 4, 6, 16), (1, 2, 3, 16)]
    assert PLAIN.crop_stage(options)(tf.zeros([5, 4, 4, 16])).shape == (5, 2, 2, 32)


def test_networks_return_a_map_for_each_stride_of_each_stack():
    image = keras.Input((None, None, 3))
    with pytest.raises(ValueError, match=r'2 x 1 maps. Received: 1 outputs'):
        FeatureExtractor(backbone=keras.Model(image, image), strides=[4], num_stacks=2)


@pytest.fixture
def detector() -> StackedDetector:
    """With weights as after a training."""
    keras.utils.set_random_seed(0)
    detector = StackedDetector(
        build(2), num_classes=3, resizer=FixedShapeResizer(height=24, width=24)
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
