"""Single-shot detectors on Inception v2 and v3: maps, sizes, and what a config may say."""

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders import model_builder
from object_detection.config import reading
from object_detection.errors import UserError
from object_detection.meta_architectures.faster_rcnn import build as faster_rcnn
from object_detection.meta_architectures.ssd import family
from object_detection.meta_architectures.ssd.build import build_extractor
from object_detection.models.feature_extractor import FeatureExtractor
from object_detection.protos.faster_rcnn_pb2 import FasterRcnnFeatureExtractor
from object_detection.protos.ssd_pb2 import Ssd, SsdFeatureExtractor
from tests import rows
from tests.contracts_feature_extractor import check_stacks
from tests.meta_architectures.ssd import configs

OVERRIDE = 'override_base_feature_extractor_hyperparams: true'
CONV = f'conv_hyperparams {{ batch_norm {{ scale: true }} activation: RELU_6 }} {OVERRIDE}'
NARROW = f'depth_multiplier: 0.01 min_depth: 4 {CONV}'
V2, V3 = "type: 'ssd_inception_v2'", "type: 'ssd_inception_v3'"


def parse(text: str) -> SsdFeatureExtractor:
    return text_format.Parse(text, SsdFeatureExtractor())


def build(text: str) -> FeatureExtractor:
    return build_extractor(parse(text), True)


# Sides and channels of the maps at factor 1, by the facts on the reference.
@pytest.mark.slow
@pytest.mark.parametrize(
    ('text', 'channels', 'sides'),
    [
        (
            V2,
            [576, 1024, 512, 256, 256, 128],
            {299: [19, 10, 5, 3, 2, 1], 300: [19, 10, 5, 3, 2, 1], 128: [8, 4, 2, 1, 1, 1]},
        ),
        (
            V3,
            [288, 768, 2048, 512, 256, 128],
            {299: [35, 17, 8, 4, 2, 1], 320: [37, 18, 8, 4, 2, 1], 128: [13, 6, 2, 1, 1, 1]},
        ),
    ],
)
def test_maps(text, channels, sides):
    extractor = build(f'{text} {CONV}')
    for side, expected in sides.items():
        shapes = [(1, cells, cells, depth) for cells, depth in zip(expected, channels, strict=True)]
        assert extractor.map_shapes(side, side) == shapes
    (maps,) = extractor.feature_stacks(tf.zeros([2, 128, 128, 3]))
    assert [each.shape[1:] for each in maps] == [s[1:] for s in extractor.map_shapes(128, 128)]
    assert extractor.pad_to_multiple == 1
    pixels = extractor.normalize(tf.constant([[[[0.0, 127.5, 255.0]]]]))
    np.testing.assert_allclose(pixels, [[[[-1, 0, 1]]]], atol=1e-6)


@pytest.fixture(scope='module')
def narrow() -> dict[str, FeatureExtractor]:
    return {text: build(f'{text} {NARROW}') for text in (V2, V3)}


@rows.parametrize(
    ('text', 'strides', 'sides'),
    [
        (V2, [16, 32, 64, 128, 256, 512], {299: [19, 10, 5, 3, 2, 1], 128: [8, 4, 2, 1, 1, 1]}),
        (
            V3,
            [8, 16, 32, 64, 128, 256],
            {299: [35, 17, 8, 4, 2, 1], 320: [37, 18, 8, 4, 2, 1], 128: [13, 6, 2, 1, 1, 1]},
        ),
    ],
)
def test_sizes_of_narrow_networks(narrow, text, strides, sides):
    extractor = narrow[text]
    assert extractor.strides == strides
    for side, expected in sides.items():
        shapes = extractor.map_shapes(side, side)
        assert [shape[1:3] for shape in shapes] == [(cells, cells) for cells in expected]
        assert [each.shape for each in extractor.empty_features(side)] == shapes


@pytest.mark.slow
def test_contract_of_v2(narrow):
    check_stacks(narrow[V2])


@pytest.mark.slow
def test_unknown_sizes_of_v3(narrow):
    extractor = narrow[V3]
    images = tf.random.stateless_uniform([2, 107, 139, 3], (1, 2), -1, 1)

    @tf.function(input_signature=[tf.TensorSpec([None, None, None, 3])], autograph=False)
    def traced(images):
        return extractor.feature_stacks(images)

    (maps,), (found,) = extractor.feature_stacks(images), traced(images)
    shapes = extractor.map_shapes(107, 139)
    assert [tuple(each.shape) for each in maps] == [(2, *shape[1:]) for shape in shapes]
    for ours, each in zip(found, maps, strict=True):
        np.testing.assert_allclose(ours, each, atol=1e-5 * np.abs(each).max())


def test_the_config_reaches_all_layers():
    extractor = build(
        f'{V3} depth_multiplier: 0.01 min_depth: 4 num_layers: 4 pad_to_multiple: 32 {OVERRIDE} '
        'use_explicit_padding: true use_depthwise: true conv_hyperparams { activation: RELU_6 '
        'regularizer { l2_regularizer { weight: 0.5 } } batch_norm { decay: 0.9 epsilon: 0.01 } }'
    )
    stem, norm = (extractor.backbone.get_layer(name) for name in ('conv_1a', 'conv_1a_bn'))
    assert stem.kernel_regularizer.l2 == 0.25
    np.testing.assert_allclose((norm.epsilon, norm.momentum), (0.01, 0.9), rtol=1e-6)
    assert not norm.scale
    assert extractor.backbone.get_layer('mixed_5b_branch1_2_ac').activation.__name__ == 'relu6'
    # These reach the maps after the network alone.
    assert extractor.pyramid.get_layer('map_3_depthwise').padding == 'valid'
    assert extractor.backbone.get_layer('conv_2b').padding == 'same'
    assert [shape[1:3] for shape in extractor.map_shapes(299, 128)] == [
        (37, 13), (18, 6), (8, 2), (4, 1),
    ]  # fmt: skip
    assert extractor.strides == [8, 16, 32, 64]


@pytest.mark.slow
def test_regularize_depthwise_is_read():
    text = 'conv_hyperparams { regularize_depthwise: true regularizer { l2_regularizer {} } }'
    config = reading.tracked(parse(f'{V2} depth_multiplier: 0.01 {text} {OVERRIDE} num_layers: 1'))
    extractor = build_extractor(config, True)
    assert not list(reading.unread(config))
    assert extractor.backbone.get_layer('conv_1a').depthwise_regularizer is not None
    assert list(extractor.map_shapes(32, 32)) == [(1, 2, 2, 64)]


@rows.parametrize(
    ('text', 'message'),
    [
        (f'{V2} conv_hyperparams {{}}', 'override_base.*hyperparams: expected true, as the back'),
        (f'{V3} conv_hyperparams {{}}', 'override_base.*hyperparams: expected true, as the back'),
        (f'{V2} {NARROW} num_layers: 7', 'num_layers: expected 1 to 6. Received: 7'),
        (f'{V3} {NARROW} num_layers: 0', 'num_layers: expected 1 to 6. Received: 0'),
        (f'{V2} {NARROW} fpn {{}}', 'fpn: expected none'),
        (
            f"type: 'ssd_fpn' backbone: 'inception_v3' {NARROW}",
            r'backbone: expected maps of ceil\(size / stride\) cells, which the neck fpn needs. '
            "Received: 'inception_v3'",
        ),
        (
            f"type: 'ssd_bifpn' backbone: 'inception_v3' {NARROW}",
            'cells, which the neck bifpn needs',
        ),
    ],
)
def test_errors(text, message):
    with pytest.raises(UserError, match=message):
        build(text)


@pytest.mark.slow
@pytest.mark.parametrize(
    ('text', 'strides'),
    [
        ("type: 'ssd' backbone: 'inception_v2'", [16, 32, 64, 128, 256, 512]),
        ("type: 'ssd' backbone: 'inception_v3'", [16, 32, 64, 128, 256, 512]),
        ("type: 'ssd_fpn' backbone: 'inception_v2'", [8, 16, 32, 64, 128]),
        (
            "type: 'ssd_bifpn' backbone: 'inception_v2' bifpn { num_iterations: 1 num_filters: 4 "
            'min_level: 2 max_level: 5 }',
            [4, 8, 16, 32],
        ),
    ],
)
def test_as_a_backbone_of_other_types(text, strides):
    """Without the config's hyperparameters, too."""
    extractor = build(f'{text} {NARROW.replace(OVERRIDE, "")}')
    assert extractor.strides == strides
    (maps,) = extractor.feature_stacks(tf.zeros([1, 128, 128, 3]))
    assert [each.shape for each in maps] == extractor.map_shapes(128, 128)
    assert extractor.backbone.get_layer('conv_1a_bn').scale is False


@pytest.mark.slow
def test_images_that_leave_no_cells_are_refused(narrow):
    assert [shape[1] for shape in narrow[V3].map_shapes(75, 75)] == [7, 3, 1, 1, 1, 1]
    with pytest.raises(ValueError, match='output size would be zero'):
        narrow[V3].map_shapes(74, 75)
    changes = """
      feature_extractor { type: 'ssd_inception_v3' depth_multiplier: 0.01 num_layers: 6 }
      anchor_generator { ssd_anchor_generator { num_layers: 6 } }
      image_resizer { fixed_shape_resizer { height: 64 width: %d } }
    """
    with pytest.raises(
        UserError, match=r'sides of at least 75, for .* Received: images of 64 x 80'
    ):
        model_builder.build(configs.tiny(changes % 80))


def test_a_network_without_a_stage_for_crops_is_refused_there():
    text = "type: 'faster_rcnn' backbone: 'inception_v3'"
    config = text_format.Parse(text, FasterRcnnFeatureExtractor())
    with pytest.raises(UserError, match='backbone: expected one whose last stage runs on crops'):
        faster_rcnn.build_extractor(config, True)


@pytest.mark.slow
def test_sizes_of_maps_for_the_fit_of_anchors():
    text = f'image_resizer {{ identity_resizer {{}} }} feature_extractor {{ {V3} {NARROW} }}'
    config = text_format.Parse(text, Ssd())
    sizes = family.FAMILY.anchors(config).map_sizes()
    assert sizes(299, 128) == [(35, 13), (17, 6), (8, 2), (4, 1), (2, 1), (1, 1)]
    assert family.FAMILY.anchors(Ssd()).map_sizes is None
