"""Variables of single-shot detectors in checkpoints of other programs, by their names."""

import pytest

from object_detection.errors import CheckpointError
from object_detection.meta_architectures.ssd.variable_names import SSD_NAMES
from object_detection.weights import checkpoints, restore, slim
from tests import rows
from tests.training.fake_detectors import VariablesDetector

SHARED = 'WeightSharedConvolutionalBoxPredictor'
RESNET_FPN = 'FeatureExtractor/resnet_v1_50/fpn'
# Variable here -> key of TensorFlow 1.
SIX_MAPS = {
    'backbone/conv1/kernel': 'FeatureExtractor/MobilenetV1/Conv2d_0/weights',
    'backbone/conv_pw_13_bn/gamma': (
        'FeatureExtractor/MobilenetV1/Conv2d_13_pointwise/BatchNorm/gamma'
    ),
    'backbone/conv_pw_13/kernel': 'FeatureExtractor/MobilenetV1/Conv2d_13_pointwise/weights',
    'fpn/map_2_projection/kernel': (
        'FeatureExtractor/MobilenetV1/Conv2d_13_pointwise_1_Conv2d_2_1x1_256/weights'
    ),
    'fpn/map_2_projection_bn/beta': (
        'FeatureExtractor/MobilenetV1/Conv2d_13_pointwise_1_Conv2d_2_1x1_256/BatchNorm/beta'
    ),
    'fpn/map_2_conv/kernel': (
        'FeatureExtractor/MobilenetV1/Conv2d_13_pointwise_2_Conv2d_2_3x3_s2_512/weights'
    ),
    'fpn/map_5_depthwise/depthwise_kernel': (
        'FeatureExtractor/MobilenetV2/layer_19_2_Conv2d_5_3x3_s2_128_depthwise/depthwise_weights'
    ),
    'box_predictor/shared_3_0/kernel': 'BoxPredictor_3/Conv2d_0_1x1_256/weights',
    'box_predictor/shared_3_0_bn/beta': 'BoxPredictor_3/Conv2d_0_1x1_256/BatchNorm/beta',
    'box_predictor/box_codes_0/kernel': 'BoxPredictor_0/BoxEncodingPredictor/weights',
    'box_predictor/box_codes_0/bias': 'BoxPredictor_0/BoxEncodingPredictor/biases',
    'box_predictor/classes_5/kernel': 'BoxPredictor_5/ClassPredictor/weights',
    'box_predictor/classes_5_depthwise/depthwise_kernel': (
        'BoxPredictor_5/ClassPredictor_depthwise/depthwise_weights'
    ),
}
PYRAMID = {
    'fpn/projection_3/bias': f'{RESNET_FPN}/projection_1/biases',
    'fpn/projection_4/kernel': f'{RESNET_FPN}/projection_2/weights',
    'fpn/projection_5/kernel': f'{RESNET_FPN}/projection_3/weights',
    'fpn/smoothing_3/kernel': f'{RESNET_FPN}/smoothing_1/weights',
    'fpn/smoothing_4_bn/gamma': f'{RESNET_FPN}/smoothing_2/BatchNorm/gamma',
    'fpn/coarse_6/kernel': f'{RESNET_FPN}/bottom_up_block5/weights',
    'fpn/coarse_7_bn/moving_mean': f'{RESNET_FPN}/bottom_up_block6/BatchNorm/moving_mean',
    'box_predictor/box_tower_0/kernel': f'{SHARED}/BoxPredictionTower/conv2d_0/weights',
    'box_predictor/box_tower_0_bn_4/beta': (
        f'{SHARED}/BoxPredictionTower/conv2d_0/BatchNorm/feature_4/beta'
    ),
    'box_predictor/class_tower_3/pointwise_kernel': (
        f'{SHARED}/ClassPredictionTower/conv2d_3/pointwise_weights'
    ),
    'box_predictor/tower_1/kernel': f'{SHARED}/PredictionTower/conv2d_1/weights',
    'box_predictor/tower_1_bn_0/gamma': (
        f'{SHARED}/PredictionTower/conv2d_1/BatchNorm/feature_0/gamma'
    ),
    'box_predictor/box_codes/kernel': f'{SHARED}/BoxPredictor/weights',
    'box_predictor/classes/bias': f'{SHARED}/ClassPredictor/biases',
}


@pytest.mark.parametrize('keys', [SIX_MAPS, PYRAMID])
def test_detectors_of_tensorflow_1(keys):
    assert slim.is_detector(keys.values())
    # The state of the optimizer is no weight; the first map of a pyramid is the finest one.
    others = [f'{key}/Momentum' for key in keys.values()]
    assert slim.match(keys, [*keys.values(), *others], SSD_NAMES) == keys


def test_coarse_levels_of_mobilenets_have_other_numbers_there():
    path = 'FeatureExtractor/MobilenetV1/fpn'
    keys = {
        'fpn/projection_3/kernel': f'{path}/projection_1/weights',
        'fpn/projection_4/kernel': f'{path}/projection_2/weights',
        'fpn/projection_5/kernel': f'{path}/projection_3/weights',
        'fpn/coarse_6/kernel': f'{path}/bottom_up_Conv2d_14/weights',
        'fpn/coarse_7/kernel': f'{path}/bottom_up_Conv2d_15/weights',
    }
    assert slim.match(keys, keys.values(), SSD_NAMES) == keys


def head(anchors, outputs, *, kernel='kernel', level=''):
    return {
        f'box_predictor/box_codes{level}/{kernel}': (3, 3, 8, 4 * anchors),
        f'box_predictor/classes{level}/{kernel}': (3, 3, 8, anchors * outputs),
        f'box_predictor/classes{level}/bias': (anchors * outputs,),
    }


@rows.parametrize('background', [0, 1])
@rows.parametrize('options', [{}, {'kernel': 'pointwise_kernel'}, {'level': '_2'}])
def test_only_outputs_of_classes_depend_on_their_number(background, options):
    here, there = head(6, 1 + background, **options), head(6, 90 + background, **options)
    assert SSD_NAMES.num_classes(here, there, 1) == 90
    differing = [name for name in here if here[name] != there[name]]
    assert len(differing) == 2
    for name in differing:
        assert SSD_NAMES.depends_on_classes(name, (there[name], 90), (here[name], 1))
        deeper = (*here[name][:-1], here[name][-1] + 1)
        assert not SSD_NAMES.depends_on_classes(name, (there[name], 90), (deeper, 1))


def test_other_numbers_of_anchors_are_no_matter_of_classes():
    here, there = head(6, 4), head(9, 91)
    assert SSD_NAMES.num_classes(here, there, 3) == 90
    name = 'box_predictor/classes/bias'
    assert not SSD_NAMES.depends_on_classes(name, (there[name], 90), (here[name], 3))
    codes = 'box_predictor/box_codes/kernel'
    assert not SSD_NAMES.depends_on_classes(codes, (there[codes], 90), (here[codes], 3))
    assert SSD_NAMES.num_classes({'fpn/base/kernel': (1,)}, there, 3) is None


def test_what_each_type_restores():
    scopes = SSD_NAMES.checkpoint_scopes(())
    assert scopes['classification'] == ('backbone/',)
    assert scopes['detection'] == ('backbone/', 'fpn/')
    assert 'box_predictor/classes/bias'.startswith(scopes['full'])


class _Detector(VariablesDetector):
    variable_names = SSD_NAMES


def test_a_backbone_without_its_classifier_is_whole(tmp_path):
    backbone = {'backbone/stem_conv/kernel': (3, 3, 3, 2), 'backbone/top_bn/beta': (2,)}
    there = _Detector(backbone, num_classes=3, value=1.0)
    prefix = checkpoints.save_model(str(tmp_path), there.named_variables(), 5)
    here = _Detector(backbone | {'backbone/predictions/bias': (1000,)}, num_classes=3)
    report = restore.restore(here, prefix, 'classification')
    assert report.missing == ['backbone/predictions/bias']
    here = _Detector(backbone | {'backbone/top_conv/kernel': (1, 1, 2, 2)}, num_classes=3)
    with pytest.raises(CheckpointError, match='not in it: backbone/top_conv/kernel'):
        restore.restore(here, prefix, 'classification')


def test_another_number_of_classes_starts_the_class_heads_anew(tmp_path, caplog):
    there = _Detector(head(6, 91) | {'fpn/base/kernel': (2,)}, num_classes=90, value=1.0)
    prefix = checkpoints.save_model(str(tmp_path), there.named_variables(), 5)
    here = _Detector(head(6, 4) | {'fpn/base/kernel': (2,)}, num_classes=3)
    with caplog.at_level('INFO', 'object_detection'):
        report = restore.restore(here, prefix, 'full')
    assert report.restored == ['box_predictor/box_codes/kernel', 'fpn/base/kernel']
    assert 'num_classes is 3, and 90 there; initialised: box_predictor/classes' in caplog.text
