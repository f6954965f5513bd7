"""Extractors of single-shot detectors give the reference's maps with the reference's weights."""

import numpy as np
import pytest
import tensorflow as tf

from object_detection.meta_architectures.ssd import build
from object_detection.meta_architectures.ssd.variable_names import SSD_NAMES
from tests.models.golden_models import GoldenModel


@pytest.mark.parametrize(
    'name',
    [
        'ssd_mobilenet_v1_0.5_depth',
        pytest.param('ssd_mobilenet_v1_300x300', marks=pytest.mark.slow),
        pytest.param('ssd_mobilenet_v1_fpn_640x640', marks=pytest.mark.slow),
        pytest.param('ssd_mobilenet_v2_320x320', marks=pytest.mark.slow),
        'ssd_mobilenet_v2_fpnlite_320x320',
        pytest.param('ssd_resnet50_v1_fpn_640x640', marks=pytest.mark.slow),
    ],
)
def test_maps(name):
    golden = GoldenModel(name)
    config = golden.model_config.ssd.feature_extractor
    extractor = build.build_extractor(config, batch_norm_trainable=True)
    golden.fill(extractor.parts(), SSD_NAMES)
    assert not [key for key in golden.unused if '_feature_extractor' in key]
    size = golden.facts['tensors']['preprocess/inputs']['shape'][1:3]
    images = tf.compat.v1.image.resize(golden.arrays['images'].astype(np.float32), size)
    images = extractor.normalize(images)
    golden.check('preprocess/inputs', images)
    (maps,) = tf.function(extractor.feature_stacks, autograph=False)(images)
    for i, level in enumerate(maps):
        golden.check(f'predict/feature_maps.{i}', level)
    trainable = {golden.keys[variable.path] for variable in extractor.trainable_variables}
    assert trainable == {
        key for key in golden.facts['trainable_keys'] if '_feature_extractor' in key
    }
