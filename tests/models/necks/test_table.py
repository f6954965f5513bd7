"""Necks that configs name in place of those of their types."""

import re

import keras
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.config import reading
from object_detection.errors import UserError
from object_detection.meta_architectures.center_net import build as center_net
from object_detection.meta_architectures.center_net import rules
from object_detection.meta_architectures.faster_rcnn import build as faster_rcnn
from object_detection.meta_architectures.ssd import build as ssd
from object_detection.models.backbones.table import BACKBONES
from object_detection.models.necks.table import NECKS, Neck
from object_detection.protos.center_net_pb2 import CenterNet, CenterNetFeatureExtractor
from object_detection.protos.faster_rcnn_pb2 import FasterRcnnFeatureExtractor
from object_detection.protos.ssd_pb2 import SsdFeatureExtractor
from tests import rows
from tests.plugin.toy_parts.backbones import PLAIN
from tests.plugin.toy_parts.necks import LATERALS

SSD = (ssd.build_extractor, SsdFeatureExtractor)
RCNN = (faster_rcnn.build_extractor, FasterRcnnFeatureExtractor)
CENTER_NET = (center_net.build_extractor, CenterNetFeatureExtractor)


def finest(channels, options) -> keras.Model:
    """The finest map, as wide as `settings`, which are the arguments of the type's own neck."""
    inputs = [keras.Input((None, None, count)) for count in channels]
    x = keras.layers.Conv2D(7 + len(options.settings), 1, name='conv')(inputs[0])
    assert (options.inputs, options.levels) == (range(2, 6), range(2, 3))
    return keras.Model(inputs, x, name='fpn')


@pytest.fixture(autouse=True)
def tables(monkeypatch):
    monkeypatch.setitem(BACKBONES._rows, 'plain', PLAIN)
    monkeypatch.setitem(NECKS._rows, 'laterals', LATERALS)
    monkeypatch.setitem(NECKS._rows, 'finest', Neck(finest))


def build(family, text: str):
    build_extractor, message = family
    return build_extractor(text_format.Parse(f"backbone: 'plain' {text}", message()), True)


FPN = 'conv_hyperparams {} fpn { min_level: 3 max_level: 6 additional_layer_depth: 8 }'


@rows.parametrize(
    ('family', 'text', 'levels', 'depth'),
    [
        # min_depth is 16.
        (SSD, f"type: 'ssd_fpn' neck: 'laterals' {FPN}", [3, 4, 5, 6], 16),
        (RCNN, f"type: 'faster_rcnn_fpn' neck: 'laterals' {FPN}", [3, 4, 5, 6], 8),
        (CENTER_NET, "type: 'center_net_fpn' neck: 'finest'", [2], 7),
        # The own neck of a type may be named, too.
        (SSD, f"type: 'ssd_fpn' neck: 'fpn' {FPN}", [3, 4, 5, 6], 16),
        (CENTER_NET, "type: 'center_net_fpn' neck: 'merged_pyramid'", [2], 64),
    ],
)
def test_a_neck_takes_the_place_of_that_of_the_type(family, text, levels, depth):
    extractor = build(family, text)
    assert extractor.strides == [2**level for level in levels]
    ((*maps,),) = extractor.feature_stacks(tf.zeros([1, 64, 64, 3]))
    assert [tuple(each.shape) for each in maps] == [
        (1, 64 >> level, 64 >> level, depth) for level in levels
    ]
    assert list(extractor.parts())[:2] == ['backbone', 'fpn']


@rows.parametrize(
    ('family', 'text', 'message'),
    [
        (SSD, "type: 'ssd_fpn' neck: 'fnp'", "Received: 'fnp'; did you mean 'fpn'? Expected one"),
        (SSD, "type: 'ssd_fpn' neck: 'upsampling'", 'expected one of fpn, laterals, finest. Rec'),
        (
            SSD,
            "type: 'ssd' neck: 'laterals'",
            'expected one of multi_resolution, as the maps of the type need one that reads '
            "num_layers. Received: 'laterals', which reads fpn.",
        ),
        (
            RCNN,
            "type: 'faster_rcnn_fpn' neck: 'finest'",
            'expected one of fpn, laterals, as the maps of the type need one that reads fpn. '
            "Received: 'finest', which reads none of bifpn, fpn, num_layers.",
        ),
        (
            CENTER_NET,
            "type: 'center_net' neck: 'laterals'",
            'expected one of upsampling, finest, as the maps of the type need one that reads none',
        ),
        (
            RCNN,
            "type: 'faster_rcnn' neck: 'laterals'",
            'expected none, as the type faster_rcnn has no neck.',
        ),
        (
            SSD,
            f"type: 'ssd_fpn' neck: 'laterals' use_depthwise: true {FPN}",
            'expected false, as the neck laterals does not read it; it reads fpn.',
        ),
    ],
)
def test_necks_that_do_not_fit(family, text, message):
    with pytest.raises(UserError, match=f'Extractor.*(neck|use_depthwise): {re.escape(message)}'):
        build(family, text)


def test_a_check_without_tensorflow_names_the_field():
    extractor = {'type': 'center_net', 'backbone': 'plain', 'neck': 'upsamplin'}
    found = list(rules.check(CenterNet(feature_extractor=extractor)))
    (problem,) = [each for each in found if '.neck' in each]
    assert problem.startswith("model.center_net.feature_extractor.neck: Received: 'upsamplin'; did")


def test_fields_that_the_neck_of_a_center_net_does_not_read():
    text = """type: 'center_net_fpn' backbone: 'plain' use_separable_conv: true
      upsampling_interpolation: 'bilinear' """
    for neck, unread in (("neck: 'finest'", 2), ('', 0)):
        config = reading.tracked(text_format.Parse(text + neck, CenterNetFeatureExtractor()))
        center_net.build_extractor(config, True)
        fields = [path for path, _ in reading.unread(config)]
        assert fields == ['use_separable_conv', 'upsampling_interpolation'][:unread]
