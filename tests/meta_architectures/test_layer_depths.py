"""Depths of the variables of backbones by hand, and the groups of variables of detectors."""

import keras
import pytest
from google.protobuf import text_format

from object_detection.builders import model_builder, optimizer_builder
from object_detection.core.variable_names import PLAIN_NAMES
from object_detection.errors import UserError
from object_detection.meta_architectures import layer_depths
from object_detection.meta_architectures.detection_model import DetectionModel
from object_detection.models.backbones.table import find
from object_detection.models.feature_extractor import ExtractorOptions
from object_detection.models.hyperparams import LayerHyperparams
from object_detection.protos import pipeline_pb2
from object_detection.system import private_names
from object_detection.training import setup
from tests import rows, tiny_models
from tests.meta_architectures.ssd.configs import tiny

layers = keras.layers


def _conv(name, strides=1):
    return layers.Conv2D(4, 3, strides=strides, padding='same', use_bias=False, name=name)


def _norm(name):
    return layers.BatchNormalization(name=name)


class _Detector:
    """A backbone, and perhaps other parts, as a detector."""

    name = 'detector'
    quantization = None
    named_variables = DetectionModel.named_variables

    def __init__(self, backbone, names=PLAIN_NAMES, **others):
        self.variable_names = names
        self._parts = {'backbone': backbone, **others}

    def parts(self):
        return self._parts


def _depths(detector):
    """Depth of each layer by name, of which all variables have one depth."""
    found = {}
    for name, depth in layer_depths.of_variables(detector).items():
        assert found.setdefault(name.rpartition('/')[0], depth) == depth
    return found


def _network():
    """A stem, blocks with a shortcut and one without, a transition; a norm beside the last map."""
    images = keras.Input((None, None, 3), name='images')
    x = _norm('stem_norm')(_conv('stem')(images))
    y = _norm('a_norm')(_conv('a_1')(x))
    y = _conv('a_2')(layers.ReLU()(y))
    x = layers.Add()([y, _conv('a_shortcut')(x)])
    middle = _norm('b_norm')(_conv('b')(x))
    x = layers.Add()([_conv('c_1')(middle), middle])
    x = keras.Sequential([_norm('norm'), _conv('conv', 2)], name='transition')(x)
    side = _norm('side_norm')(middle)
    return keras.Model(images, [side, x], name='backbone')


def test_blocks_by_hand():
    assert _depths(_Detector(_network())) == {
        'backbone/stem': 5,
        'backbone/stem_norm': 5,
        'backbone/a_1': 4,
        'backbone/a_norm': 4,
        'backbone/a_2': 4,
        'backbone/a_shortcut': 4,
        'backbone/b': 3,
        'backbone/b_norm': 3,
        'backbone/side_norm': 3,
        'backbone/c_1': 2,
        'backbone/transition/norm': 1,
        'backbone/transition/conv': 1,
    }


class _TwoStageNames(type(PLAIN_NAMES)):
    backbone_parts = ('backbone', 'box_classifier')


def test_a_stage_over_crops_continues_the_backbone_unless_there_is_a_pyramid():
    crops = keras.Input((7, 7, 4), name='crops')
    stage = keras.Model(crops, _conv('d_2')(_conv('d_1')(crops)), name='box_classifier')
    parts = {'backbone': _network(), 'names': _TwoStageNames(), 'box_classifier': stage}
    found = _depths(_Detector(**parts))
    assert (found['box_classifier/d_2'], found['box_classifier/d_1']) == (1, 2)
    assert (found['backbone/transition/conv'], found['backbone/stem']) == (3, 7)
    found = _depths(_Detector(**parts, fpn=layers.Dense(1)))
    assert not any(name.startswith('box_classifier') for name in found)
    assert found['backbone/stem'] == 5
    head = layers.Dense(2, name='box_classifier')
    head.build((None, 3))
    assert _depths(_Detector(**parts | {'box_classifier': head})) == found


def _shared():
    images, conv = keras.Input((None, None, 4)), _conv('twice')
    return keras.Model(images, conv(conv(images)), name='backbone')


def _beside():
    """A map of the stem goes around all other layers."""
    images = keras.Input((None, None, 3))
    x = stem = _conv('stem')(images)
    for i in range(20):
        x = _conv(f'conv_{i}')(x)
    return keras.Model(images, layers.Add()([stem, x]), name='backbone')


@rows.parametrize(
    ('make', 'message'),
    [
        (_shared, 'Received: one that calls its layer twice several times'),
        (_beside, 'Received: one with 20 of 21 kernels in parallel'),
        (lambda: _trunk('hourglass_10'), 'Received: one with 9 of 14 kernels in parallel'),
        (lambda: layers.Dense(3, name='backbone'), 'that is no functional model of Keras'),
    ],
)
def test_networks_without_an_order_are_refused(make, message):
    with pytest.raises(UserError, match=r'^train_config\.optimizer\.layer_decay: .*' + message):
        layer_depths.of_variables(_Detector(make()))


def _trunk(name):
    row = find(name)
    options = ExtractorOptions(batch_norm_trainable=True, hyperparams=LayerHyperparams())
    with private_names.graph_without_values():
        return row.trunk(row.levels[-1:], options.for_backbone(row))


# A stem and the blocks of the papers. Of the blocks of MobileNet v2, the ten with a shortcut are
# one each; the other layers follow one another: the first and the last, two of the first block, and
# three of each of the six blocks that change the size.
@rows.parametrize(
    ('name', 'blocks', 'first', 'last'),
    [
        ('resnet_v1_18', 9, 'conv1_conv', 'conv5_block2_2_conv'),
        ('mobilenet_v2', 1 + 2 + 10 + 6 * 3 + 1, 'Conv1', 'Conv_1'),
    ],
)
def test_backbones(name, blocks, first, last):
    found = _depths(_Detector(_trunk(name)))
    assert max(found.values()) == blocks
    assert found[f'backbone/{first}'] == blocks
    assert found[f'backbone/{last}'] == 1


def _groups(pipeline, **fields):
    """The names of the variables that decay, and the factors of the rates, of a detector."""
    train = pipeline.train_config
    text_format.Merge('optimizer { adamw_optimizer { } }', train)
    train.optimizer.adamw_optimizer.learning_rate.constant_learning_rate.SetInParent()
    for name, value in fields.items():
        setattr(train.optimizer, name, value)
    with private_names.graph_without_values():
        detector = model_builder.build(pipeline.model, is_training=True)
        detector.build_variables()
        named = detector.named_trainable_variables()
        optimizer = optimizer_builder.build(train.optimizer)
        factors = setup.rate_multipliers(train.optimizer, detector, named)
        optimizer.build(named, multipliers=factors)
        return named, optimizer.decayed, factors


def test_groups_of_a_mask_rcnn():
    pipeline = tiny_models.tiny_pipeline()
    pipeline.train_config.optimizer.learning_rate_multiplier.add(
        variables='conv1_conv|box_head', multiplier=0.5
    )
    named, decayed, factors = _groups(pipeline, layer_decay=0.5)
    assert decayed == {name for name in named if name.endswith('/kernel')}
    assert 0 < len(decayed) < len(named)
    # The stem and the six blocks of three stages.
    assert factors['backbone/conv1_conv/kernel'] == 0.5 * 0.5**7
    assert factors['backbone/conv2_block1_1_conv/kernel'] == 0.5**6
    assert factors['backbone/conv4_block2_2_conv/kernel'] == 0.5
    assert not any(name.startswith(('fpn', 'rpn', 'mask_head')) for name in factors)
    heads = {factor for name, factor in factors.items() if name.startswith('box_head')}
    assert heads == {0.5}


def test_groups_of_an_ssd():
    pipeline = pipeline_pb2.TrainEvalPipelineConfig()
    pipeline.model.CopyFrom(tiny())
    named, decayed, factors = _groups(pipeline, layer_decay=0.5)
    kernels = {name for name in named if name.endswith('kernel')}
    assert decayed == kernels
    assert any(name.endswith('depthwise_kernel') for name in decayed)
    assert {name.partition('/')[0] for name in factors} == {'backbone'}
    assert factors['backbone/Conv1/kernel'] == min(factors.values())


@pytest.mark.slow
def test_groups_of_a_conv_next():
    """Norms, biases and factors of layers do not decay; stem, 18 blocks and 3 transitions."""
    pipeline = pipeline_pb2.TrainEvalPipelineConfig()
    pipeline.model.CopyFrom(tiny())
    extractor = pipeline.model.ssd.feature_extractor
    extractor.Clear()
    text_format.Merge(
        """type: 'ssd_fpn' backbone: 'keras:ConvNeXtTiny' fpn { additional_layer_depth: 8 }
        conv_hyperparams { initializer { variance_scaling_initializer {} } }""",
        extractor,
    )
    pipeline.model.ssd.anchor_generator.ssd_anchor_generator.num_layers = 5
    named, decayed, factors = _groups(pipeline, layer_decay=0.5)
    assert decayed == {name for name in named if name.endswith('kernel')}
    assert {name.rpartition('/')[2] for name in named.keys() - decayed} == {
        'bias',
        'gamma',
        'beta',
    }
    assert {0.5**depth for depth in range(1, 23)} == set(factors.values())
