"""Whole detectors of TensorFlow 1, and their networks: every variable is found, none is left over.

What the files hold is in `slim_keys`.
"""

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders import model_builder
from object_detection.meta_architectures.faster_rcnn.variable_names import FASTER_RCNN_NAMES
from object_detection.models.backbones import nasnet
from object_detection.models.backbones.table import BACKBONES
from object_detection.protos.model_pb2 import DetectionModel
from object_detection.weights import restore, slim
from tests import rows
from tests.meta_architectures.ssd import configs
from tests.weights import slim_keys, third_party_files

# A factor at which some numbers of channels are the least one.
MULTIPLIER = 0.2
INCEPTION = """
  image_resizer { fixed_shape_resizer { height: 96 width: 96 } }
  feature_extractor {
    type: 'ssd_%s' depth_multiplier: %g min_depth: 16 num_layers: 6
    conv_hyperparams { batch_norm { scale: true } }
  }
  box_predictor { convolutional_box_predictor { kernel_size: 3 } }
  anchor_generator { ssd_anchor_generator { num_layers: 6 } }
"""
# Of each map, with three aspect ratios and a box between two scales.
ANCHORS = (3, 4, 4, 4, 4, 4)


def write(folder, shapes, suffix='') -> tuple[str, dict[str, np.ndarray]]:
    """Writes a checkpoint of random values; returns its prefix, and the values."""
    random = np.random.default_rng(0)
    arrays = {
        f'{key}{suffix}': random.uniform(0.5, 1.5, shape).astype(np.float32)
        for key, shape in shapes.items()
    }
    return third_party_files.write_checkpoint(folder / 'model.ckpt', arrays), arrays


def build(config: DetectionModel):
    detector = model_builder.build(config)
    detector.build_variables()
    return detector


def check_restored(detector, report, arrays) -> None:
    """Every variable is restored, and every array is read once."""
    assert report.missing == report.unused == report.mismatched == []
    values = detector.named_variables().values()
    assert len(values) == len(arrays)
    assert sorted(float(np.sum(each)) for each in values) == sorted(
        float(np.sum(each)) for each in arrays.values()
    )


def inception(name: str, multiplier: float) -> slim_keys.Shapes:
    """The variables of an SSD on an Inception."""
    depth = slim_keys.truncated(multiplier)
    if name == 'inception_v2':
        network, blocks = slim_keys.inception_v2(depth)
        maps, base, filters = ['Mixed_4c', 'Mixed_5c'], 'Mixed_5c', (512, 256, 256, 128)
    else:
        network, blocks = slim_keys.inception_v3(depth)
        maps, base, filters = ['Mixed_5d', 'Mixed_6e', 'Mixed_7c'], 'Mixed_7c', (512, 256, 128)
    more, channels = slim_keys.extras(base, blocks[base], len(maps), filters, depth)
    channels = [*(blocks[each] for each in maps), *channels]
    scope = f'FeatureExtractor/Inception{name[-2:].upper()}'
    shapes = slim_keys.within(scope, network | more)
    return shapes | slim_keys.box_predictors(channels, ANCHORS, classes=4)


@pytest.fixture(scope='module')
def on_inception_v2():
    return build(configs.tiny(INCEPTION % ('inception_v2', MULTIPLIER)))


def test_a_single_shot_detector_on_inception_v2(tmp_path, on_inception_v2):
    prefix, arrays = write(tmp_path, inception('inception_v2', MULTIPLIER))
    check_restored(on_inception_v2, restore.restore(on_inception_v2, prefix, 'full'), arrays)


@pytest.mark.slow
@pytest.mark.parametrize(
    ('name', 'multiplier'),
    [('inception_v3', MULTIPLIER), ('inception_v2', 1.0), ('inception_v3', 1.0)],
)
def test_other_single_shot_detectors_on_inceptions(tmp_path, name, multiplier):
    detector = build(configs.tiny(INCEPTION % (name, multiplier)))
    prefix, arrays = write(tmp_path, inception(name, multiplier))
    check_restored(detector, restore.restore(detector, prefix, 'full'), arrays)


@rows.parametrize(
    ('name', 'maps'),
    [
        (
            'inception_v2',
            ['1_Conv2d_2_1x1_256', '2_Conv2d_2_3x3_s2_512', '2_Conv2d_5_3x3_s2_128'],
        ),
        (
            'inception_v3',
            ['1_Conv2d_3_1x1_256', '2_Conv2d_3_3x3_s2_512', '1_Conv2d_4_1x1_128',
             '2_Conv2d_4_3x3_s2_256', '1_Conv2d_5_1x1_64', '2_Conv2d_5_3x3_s2_128'],
        ),
    ],
)  # fmt: skip
def test_the_keys_are_those_of_the_facts(name, maps):
    base = {'inception_v2': 'InceptionV2/Mixed_5c', 'inception_v3': 'InceptionV3/Mixed_7c'}[name]
    assert {f'FeatureExtractor/{base}_{each}/weights' for each in maps} <= inception(name, 1).keys()


def test_a_classifier_without_scales_sets_the_scales_of_a_detector_to_one(
    tmp_path, on_inception_v2
):
    detector = on_inception_v2
    network, _ = slim_keys.inception_v2(slim_keys.truncated(MULTIPLIER))
    shapes = {key: shape for key, shape in network.items() if not key.endswith('gamma')}
    shapes['Logits/Conv2d_1c_1x1/weights'] = (1, 1, 204, 1001)
    prefix, arrays = write(tmp_path, slim_keys.within('InceptionV2', shapes))
    for name, variable in detector.named_variables().items():
        if name.endswith('gamma'):
            variable.assign(tf.fill(variable.shape, 2.0))
    report = restore.restore(detector, prefix, 'classification')
    assert report.unused == ['InceptionV2/Logits/Conv2d_1c_1x1/weights']
    scales = {
        name: set(np.unique(variable))
        for name, variable in detector.named_variables().items()
        if name.endswith('gamma')
    }
    for name, values in scales.items():
        assert values == ({1} if name.startswith('backbone/') else {2}), name
    backbone = detector.named_variables()['backbone/mixed_5c_branch2_3_bn/beta']
    key = 'InceptionV2/Mixed_5c/Branch_2/Conv2d_0c_3x3/BatchNorm/beta'
    np.testing.assert_array_equal(backbone, arrays[key])


MNASFPN = """
  feature_extractor {
    type: 'ssd_mobilenet_v2_mnasfpn' depth_multiplier: 1 min_depth: 16
    fpn { min_level: 3 max_level: 6 additional_layer_depth: 48 }
  }
  box_predictor {
    weight_shared_convolutional_box_predictor {
      depth: 64 num_layers_before_predictor: 4 share_prediction_tower: true use_depthwise: true
      conv_hyperparams { batch_norm { scale: true } }
    }
  }
  anchor_generator {
    multiscale_anchor_generator {
      min_level: 3 max_level: 6 aspect_ratios: [1, 2, 0.5] scales_per_octave: 3
    }
  }
"""


def mnasfpn() -> slim_keys.Shapes:
    scope = 'FeatureExtractor'
    return (
        slim_keys.within(f'{scope}/MobilenetV2', slim_keys.mobilenet_v2())
        | slim_keys.within(f'{scope}/MnasFPN', slim_keys.mnasfpn((32, 96, 320), 48))
        | slim_keys.shared_predictor(4, 48, 64, layers=4, anchors=9, k=4)
    )


def test_a_single_shot_detector_with_mnasfpn(tmp_path):
    config = configs.tiny()
    for field in ('feature_extractor', 'box_predictor', 'anchor_generator'):
        config.ssd.ClearField(field)
    detector = build(text_format.Merge(f'ssd {{ {MNASFPN} }}', config))
    prefix, arrays = write(tmp_path, mnasfpn())
    check_restored(detector, restore.restore(detector, prefix, 'full'), arrays)


NAS = """
faster_rcnn {
  num_classes: 3
  image_resizer { fixed_shape_resizer { height: 64 width: 64 } }
  feature_extractor { type: 'faster_rcnn_nas' }
  first_stage_anchor_generator { grid_anchor_generator { scales: 1 aspect_ratios: [1, 2] } }
  first_stage_box_predictor_depth: 4
  initial_crop_size: 17
  maxpool_kernel_size: 1
  maxpool_stride: 1
  second_stage_box_predictor { mask_rcnn_box_predictor {} }
}
"""


SMALL = nasnet.Size(cells=2, filters=8, stem_filters=6)


@pytest.fixture(scope='module')
def on_nasnet():
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(BACKBONES._rows, 'nasnet_large', nasnet.row(SMALL))
        yield build(text_format.Parse(NAS, DetectionModel()))


def faster_rcnn_nas() -> slim_keys.Shapes:
    size = SMALL
    scopes = {'first': 'FirstStageFeatureExtractor/', 'second': 'SecondStageFeatureExtractor/'}
    shapes = slim_keys.nasnet(size.cells, size.filters, size.stem_filters, **scopes)
    channels = {'first': 2 * 6 * 2 * size.filters, 'second': 6 * 4 * size.filters}
    first, second = 'FirstStageBoxPredictor', 'SecondStageBoxPredictor'
    return (
        shapes
        | slim_keys.biased('Conv', 3, channels['first'], 4)
        | slim_keys.biased(f'{first}/BoxEncodingPredictor', 1, 4, 2 * 4)
        | slim_keys.biased(f'{first}/ClassPredictor', 1, 4, 2 * 2)
        | slim_keys.dense(f'{second}/BoxEncodingPredictor', channels['second'], 3 * 4)
        | slim_keys.dense(f'{second}/ClassPredictor', channels['second'], 4)
    )


def test_a_faster_rcnn_on_a_nasnet(tmp_path, on_nasnet):
    prefix, arrays = write(tmp_path, faster_rcnn_nas())
    check_restored(on_nasnet, restore.restore(on_nasnet, prefix, 'full'), arrays)


def test_a_classifier_of_averages(tmp_path, on_nasnet):
    shapes = slim_keys.nasnet(SMALL.cells, SMALL.filters, SMALL.stem_filters)
    shapes['final_layer/FC/weights'] = (192, 1001)
    prefix, arrays = write(tmp_path, shapes, '/ExponentialMovingAverage')
    report = restore.restore(on_nasnet, prefix, 'classification')
    assert {name.split('/')[0] for name in report.missing} == {'rpn', 'box_head'}
    values = {
        name: variable
        for name, variable in on_nasnet.named_variables().items()
        if name.startswith(('backbone/', 'box_classifier/'))
    }
    assert set(report.restored) == values.keys()
    assert len(values) == len(arrays) - 1
    for ours, theirs in (
        ('backbone/conv0/kernel', 'conv0/weights'),
        ('backbone/conv0_bn/gamma', 'conv0_bn/gamma'),
        ('backbone/cell_stem_1_path2_conv/kernel', 'cell_stem_1/path2_conv/weights'),
        (
            'backbone/cell_0_comb_iter_4_left_separable_3x3_2/pointwise_kernel',
            'cell_0/comb_iter_4/left/separable_3x3_2/pointwise_weights',
        ),
        (
            'box_classifier/cell_5_comb_iter_0_right_bn_sep_3x3_1/moving_mean',
            'cell_5/comb_iter_0/right/bn_sep_3x3_1/moving_mean',
        ),
        ('box_classifier/reduction_cell_1_prev_bn/beta', 'reduction_cell_1/prev_bn/beta'),
    ):
        expected = arrays[f'{theirs}/ExponentialMovingAverage']
        np.testing.assert_array_equal(values[ours], expected, err_msg=ours)


def test_names_of_nasnet_are_its_scopes():
    """The large network's, whole."""
    scopes = {'first': 'FirstStageFeatureExtractor/', 'second': 'SecondStageFeatureExtractor/'}
    keys = slim_keys.nasnet(6, 168, 96, **scopes)
    assert slim.is_known(keys)
    ours = {}
    for key in keys:
        part, _, path = key.partition('/')
        scope, _, name = path.rpartition('/')
        name = {'weights': 'kernel'}.get(name, name.replace('_weights', '_kernel'))
        component = 'backbone' if part.startswith('First') else 'box_classifier'
        ours[f'{component}/{scope.replace("/", "_")}/{name}'] = key
    assert slim.match(ours, keys, FASTER_RCNN_NAMES) == ours
