"""Names and order of the weights of torchvision's SSD with VGG16."""

import numpy as np
import pytest
from google.protobuf import text_format

from object_detection.meta_architectures.ssd import build
from object_detection.weights import restore
from tests.meta_architectures.ssd.configs import tiny
from tests.weights.pytorch import writers

# Of a convolution here and there; those of `features` are numbered with activations and poolings.
FEATURES = {
    **{'conv1_1': 0, 'conv1_2': 2, 'conv2_1': 5, 'conv2_2': 7, 'conv3_1': 10, 'conv3_2': 12},
    **{'conv3_3': 14, 'conv4_1': 17, 'conv4_2': 19, 'conv4_3': 21},
}
LAYERS = {
    **{f'backbone/{ours}': f'backbone.features.{number}' for ours, number in FEATURES.items()},
    **{f'backbone/conv5_{i}': f'backbone.extra.0.{2 * i - 1}' for i in (1, 2, 3)},
    **{'backbone/fc6': 'backbone.extra.0.7.1', 'backbone/fc7': 'backbone.extra.0.7.3'},
    **{f'fpn/map_{i}_projection': f'backbone.extra.{i - 1}.0' for i in (2, 3)},
    **{f'fpn/map_{i}_conv': f'backbone.extra.{i - 1}.2' for i in (2, 3)},
    **{f'box_predictor/classes_{i}': f'head.classification_head.module_list.{i}' for i in range(4)},
    **{f'box_predictor/box_codes_{i}': f'head.regression_head.module_list.{i}' for i in range(4)},
}
# Here squares come first and last; x, y, width and height are ours in another order.
ANCHORS = {4: [0, 2, 3, 1], 6: [0, 2, 3, 4, 5, 1]}
CODES, COLUMNS = [1, 0, 3, 2], 4
CHANGES = """
image_resizer { fixed_shape_resizer { height: 64 width: 64 } }
feature_extractor { type: 'ssd_vgg16' num_layers: 4 }
anchor_generator { ssd_anchor_generator {
  num_layers: 4 reduce_boxes_in_lowest_layer: false limit_sizes: true
  aspect_ratios: [3.0, 0.33333333] num_aspect_ratios: [3, 5, 5, 3]
} }
"""


@pytest.fixture(scope='module')
def detector():
    config = tiny(CHANGES)
    extractor = config.ssd.feature_extractor
    extractor.conv_hyperparams.ClearField('batch_norm')
    extractor.ClearField('override_base_feature_extractor_hyperparams')
    text_format.Merge('depth_multiplier: 0.01 min_depth: 4', extractor)
    detector = build.build_detector(config.ssd, is_training=True)
    detector.build_variables()
    return detector


def arrays_of(detector):
    """Their name -> array of a file that fits, and our name -> the value that is meant for it."""
    rng, theirs, ours = np.random.default_rng(0), {}, {}
    variables = detector.named_variables()
    for name, variable in variables.items():
        layer, _, kind = name.rpartition('/')
        if kind == 'scale':
            theirs['backbone.scale_weight'] = rng.normal(size=variable.shape).astype(np.float32)
            ours[name] = theirs['backbone.scale_weight']
            continue
        shape = variable.shape
        shape = [shape[-1], shape[2], *shape[:2]] if kind == 'kernel' else shape
        there = rng.normal(size=shape).astype(np.float32)
        theirs[f'{LAYERS[layer]}.{"weight" if kind == "kernel" else kind}'] = there
        if layer.startswith('box_predictor/'):
            size = 4 if 'codes' in layer else COLUMNS
            rows = there.reshape(-1, size, *shape[1:])
            rows = rows[ANCHORS[len(rows)]]
            there = (rows[:, CODES] if 'codes' in layer else rows).reshape(shape)
        ours[name] = there.transpose(2, 3, 1, 0) if kind == 'kernel' else there
    return theirs, ours


def test_each_variable_gets_its_value(tmp_path, detector, caplog):
    theirs, ours = arrays_of(detector)
    path = writers.write_zip(tmp_path / 'a.pth', writers.tensors(theirs))
    report = restore.restore(detector, path, 'full')
    assert (report.missing, report.unused, report.mismatched) == ([], [], [])
    assert len(report.restored) == len(ours) == len(theirs) == 2 * (15 + 4 + 8) + 1
    for name, variable in detector.named_variables().items():
        np.testing.assert_array_equal(variable, ours[name], err_msg=name)
    assert not [record for record in caplog.records if record.levelname == 'WARNING']


def test_the_backbone_alone(tmp_path, detector):
    theirs, _ = arrays_of(detector)
    path = writers.write_zip(tmp_path / 'a.pth', writers.tensors(theirs))
    report = restore.restore(detector, path, 'classification')
    assert len(report.restored) == 2 * 15 + 1
    assert all(name.startswith('backbone/') for name in report.restored)
